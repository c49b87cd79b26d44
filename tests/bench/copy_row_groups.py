"""Compaction of large row groups: copied, decoded, as plain copies of the files, and by Iceberg Java.

    python tests/bench/copy_row_groups.py [--files 64] [--groups 3] [--rounds 3] [--no-java]

Prints, per round and as medians, the seconds and the seconds of CPU of whole processes, and ``of_copy``: the time of
plain copies, flushed to the disk, as a part of the time of lake's.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/bench")]

from compact import SCHEMA, copy_of, data_files, lake_compaction, lineitems, timed  # noqa: E402
from shared import java_command, parser_of  # noqa: E402
from support.tables.iceberg_tables import make_table, open_session  # noqa: E402

_ROWS_AT_ONCE = 100_000
# A little less than the size at which a row group is written.
_GROUP_BYTES = 128 * 1024 * 1024 * 0.999
_BUFFER_BYTES = 8 * 1024 * 1024


def make_files(warehouse: Path, files: int, groups: int) -> None:
    """Make ``db.t`` of files with the same rows, each with a number of row groups of the default size."""
    from lake.core.data.rows.writer import WriteSettings, open_writer
    from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
    from lake.core.transaction.commit.operations import AppendFiles

    make_table(warehouse, schema=SCHEMA)
    session = open_session(warehouse)
    table = session.table("db.t")
    operation = session.ids.uuid()
    settings = WriteSettings.of(table, operation, target_bytes=2**40)
    left, number = groups * _GROUP_BYTES, 0
    with open_writer(table.storage, settings, task=0, attempt="b") as writer:
        while left > 0:
            rows = lineitems(number, _ROWS_AT_ONCE).combine_chunks().to_batches()[0]
            rows = rows.slice(0, int(rows.num_rows * min(1, left / rows.nbytes)))
            writer.write(rows)
            left -= max(rows.nbytes, 1)
            number += 1
        (first,) = writer.close()
    written = [replace(first, path=f"{first.path[:-8]}-{at:03}.parquet") for at in range(files)]
    for file in written:
        source, target = (item.path.removeprefix("file://") for item in (first, file))
        shutil.copyfile(source, target)
    table.storage.delete([first.path])
    request = CommitRequest(operation_id=operation)
    commit_snapshot(session, table, AppendFiles(added=written), request)
    print(
        f"{files} files of {first.size_bytes / 2**20:.0f} MiB, {len(first.split_offsets)} row groups each"
    )


def plain_copies(paths: list[Path], target: Path) -> None:
    """Copy files one after another into one, and flush it."""
    with target.open("wb") as sink:
        for path in paths:
            with path.open("rb") as source:
                shutil.copyfileobj(source, sink, _BUFFER_BYTES)
        os.fsync(sink.fileno())
    target.unlink()


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, files=64, groups=3)
    arguments = parser.parse_args()
    used = arguments.folder / "warehouse"
    kept = arguments.folder / f"made-{arguments.files}-{arguments.groups}"
    if not kept.exists():
        # Locations in metadata are absolute: the table is made where it will be used.
        shutil.rmtree(used, ignore_errors=True)
        make_files(used, arguments.files, arguments.groups)
        used.rename(kept)
    java = "CALL lake.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))"

    def lake(mode: str) -> None:
        options = ("--rewrite-all", "--copy-row-groups", mode)
        _, peak, output = timed(lake_compaction(used, "inline", *options))
        print(f"lake {mode}: peak {peak:.0f} MiB, {json.loads(output)['result']}", flush=True)

    runs: dict[str, Callable[[], object]] = {
        "plain": lambda: plain_copies(data_files(used), arguments.folder / "plain"),
        "copied": lambda: lake("always"),
        "decoded": lambda: lake("never"),
        "java": lambda: timed(java_command(used, java)),
    }
    if arguments.no_java:
        del runs["java"]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    cpu: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            copy_of(kept, used)
            before, started = _cpu(), time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - started)
            cpu[name].append(_cpu() - before)
            print(f"{name} {seconds[name][-1]:.2f} s, {cpu[name][-1]:.2f} s of CPU", flush=True)
    found = {name: round(statistics.median(each), 2) for name, each in seconds.items()}
    print(
        json.dumps(
            {
                **found,
                "cpu": {name: round(statistics.median(each), 2) for name, each in cpu.items()},
                "of_copy": round(found["plain"] / found["copied"], 2),
            }
        )
    )


def _cpu() -> float:
    """Return the seconds of CPU of this process and of those that it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
