"""Conversion of equality deletes and rewrites of position deletes, in turn with Iceberg Java, in whole processes.

    python tests/bench/deletes.py [--rows 10000000] [--keys 1000000] [--files 50] [--rounds 1] [--positions]
                                  [--format-version 2] [--folder DIR] [--no-java]

``lake deletes --convert`` beside Java's compaction of a copy of the same table, in which every data file with a
delete file is rewritten. With ``--positions``, ``lake deletes --rewrite`` of 20 position delete files for each data
file, with as many positions as keys, beside Java's ``rewrite_position_delete_files``. Afterwards Java reads both:
their rows must be equal. Prints the seconds of each process, its processor time (user and system, of all its
processes), and the peak memory of lake's largest process.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from bench.compact import PeakMemory, copy_of  # noqa: E402
from bench.shared import java_command, lake_command, parser_of  # noqa: E402
from support.tables.delete_files import commit_deletes, equality_file, position_file  # noqa: E402
from support.tables.iceberg_tables import make_table, open_session  # noqa: E402

_COLUMNS: Mapping[str, Any] = {
    "id": LongType(),
    "customer": LongType(),
    "day": DateType(),
    "amount": DoubleType(),
    "status": StringType(),
    "comment": StringType(),
}
SCHEMA = Schema(
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, kind) in enumerate(_COLUMNS.items(), 1)
    )
)
_COMMITS = 10
_FILES_OF_DATA_FILE = 20
_TICKS = os.sysconf("SC_CLK_TCK")


def rows_of(number: int, rows: int) -> pa.RecordBatch:
    """Return the rows of the data file with a number: the same in every run."""
    rng = np.random.default_rng(number)
    words = pa.array([f"{word:x}" for word in rng.integers(0, 2**40, 5000)])
    comment = [words.take(pa.array(rng.integers(0, len(words), rows))) for _ in range(3)]
    columns = [
        pa.array(np.arange(number * rows, (number + 1) * rows)),
        pa.array(rng.integers(0, 1_000_000, rows)),
        pa.array(rng.integers(19_000, 19_400, rows).astype(np.int32)).view(pa.date32()),
        pa.array(rng.random(rows) * 1000),
        pa.array(["new", "paid", "sent", "back"]).take(pa.array(rng.integers(0, 4, rows))),
        pc.binary_join_element_wise(*comment, " "),
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(_COLUMNS))


def make(warehouse: Path, files: int, rows: int, version: str) -> list[str]:
    """Make ``db.t`` with data files, committed as one append; return their paths, in the order of the ids."""
    from lake.core.data.rows.writer import WriteSettings, open_writer
    from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
    from lake.core.transaction.commit.operations import AppendFiles

    make_table(warehouse, schema=SCHEMA, format_version=version)
    session = open_session(warehouse)
    table = session.table("db.t")
    operation = session.ids.uuid()
    settings = WriteSettings.of(table, operation)
    written = []
    for number in range(files):
        with open_writer(table.storage, settings, task=number, attempt="b") as writer:
            writer.write(rows_of(number, rows // files))
            written += writer.close()
    commit_snapshot(
        session, table, AppendFiles(added=written), CommitRequest(operation_id=operation)
    )
    return [file.path for file in written]


def delete_by_key(warehouse: Path, rows: int, keys: int) -> None:
    """Delete rows by key, in commits of several equality delete files in no order."""
    table = open_session(warehouse).table("db.t")
    chosen = np.random.default_rng(7).choice(rows, keys, replace=False)
    for part in np.array_split(chosen, _COMMITS):
        named = [{"id": key} for key in part.tolist()]
        table = commit_deletes(table, equality_file(table, named, ["id"]))


def delete_by_position(warehouse: Path, paths: Sequence[str], rows: int, count: int) -> None:
    """Delete rows by position, in commits of one position delete file for each data file."""
    table = open_session(warehouse).table("db.t")
    rng = np.random.default_rng(7)
    each = rows // len(paths)
    places = [rng.choice(each, count // len(paths), replace=False) for _ in paths]
    split = [np.array_split(own, _FILES_OF_DATA_FILE) for own in places]
    for turn in range(_FILES_OF_DATA_FILE):
        deletes = [
            position_file(table, [(path, place) for place in own[turn].tolist()])
            for path, own in zip(paths, split, strict=True)
        ]
        table = commit_deletes(table, *deletes)


class ProcessorTime:
    """The user and system time of a process and all processes below it, as far as they are seen while they run."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self._look(self._pid)

    def _look(self, pid: int) -> None:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            self._seen[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
            tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
            children = [int(text) for task in tasks for text in task.read_text().split()]
        except OSError:
            return
        for child in children:
            self._look(child)

    def stop(self) -> float:
        """End watching and return the seconds."""
        self._stop.set()
        self._thread.join()
        return sum(self._seen.values())


def timed(command: Sequence[str]) -> tuple[dict[str, float], Any]:
    """Run a process; return what it took, and its output as JSON."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    memory, processor = PeakMemory(process.pid), ProcessorTime(process.pid)
    output, errors = process.communicate()
    took = {
        "seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": round(processor.stop(), 2),
        "peak_mib": round(memory.stop()),
    }
    if process.returncode != 0:
        raise SystemExit(f"{command} failed:\n{output}\n{errors}")
    return took, json.loads(output[output.index("{") :])


def java(warehouse: Path, *words: str) -> tuple[dict[str, float], Any]:
    """Run the peer with a statement, as a whole process."""
    return timed(java_command(warehouse, *words))


def compare(kept: Path, used: Path, kind: str, *, with_java: bool) -> dict[str, dict[str, float]]:
    """Run lake and Java on copies of the table in turn; their rows must be equal afterwards."""
    took: dict[str, dict[str, float]] = {}
    copy_of(kept, used)
    took["lake"], done = timed(lake_command(used, "deletes", "db.t", kind))
    print("lake", took["lake"], done["result"], flush=True)
    if not with_java:
        return took
    _, rows = java(used, "checksum", "db.t")
    copy_of(kept, used)
    if kind == "--convert":
        call = "rewrite_data_files(table => 'db.t', options => map('delete-file-threshold', '1'))"
    else:
        call = "rewrite_position_delete_files(table => 'db.t')"
    took["java"], done = java(used, f"CALL lake.system.{call}")
    print("java", took["java"], done["result"], flush=True)
    _, theirs = java(used, "checksum", "db.t")
    if rows["result"] != theirs["result"]:
        raise SystemExit(f"the rows differ: {rows['result']} and {theirs['result']}")
    print("rows of both", rows["result"], flush=True)
    return took


def main() -> None:
    """Make the table, then run the comparison."""
    parser = parser_of(__doc__, rounds=1, rows=10_000_000, keys=1_000_000, files=50)
    parser.add_argument("--positions", action="store_true", help="rewrite position deletes")
    parser.add_argument("--format-version", default="2")
    given = parser.parse_args()
    folder = given.folder
    used = folder / "warehouse"
    kind = "--rewrite" if given.positions else "--convert"
    kept = folder / f"made{kind}-{given.rows}-{given.keys}-{given.files}-{given.format_version}"
    if not kept.exists():
        # Locations in metadata are absolute: the table is made where it will be used.
        shutil.rmtree(used, ignore_errors=True)
        paths = make(used, given.files, given.rows, given.format_version)
        if given.positions:
            delete_by_position(used, paths, given.rows, given.keys)
        else:
            delete_by_key(used, given.rows, given.keys)
        used.rename(kept)
    rounds = [compare(kept, used, kind, with_java=not given.no_java) for _ in range(given.rounds)]
    found = {
        name: round(statistics.median(one[name]["seconds"] for one in rounds), 2)
        for name in rounds[0]
    }
    if "java" in found:
        found["ratio"] = round(found["java"] / found["lake"], 2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
