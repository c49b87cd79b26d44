"""Measure the memory of commands on tables whose manifests exist only while they are read.

    python tests/bench/lazy_manifests.py [--manifests 2000 8000] [--files 200] [--replaced N]
                                         [--engine inline|spark|auto] [--command expire|check|scan|compact]
                                         [--latency-ms 0]

A store in the memory of this process (`memory_store.py`) makes each manifest from its number when it is asked for
it, so that a table of 100,000,000 files (`--manifests 500000`) takes no room. The second of two snapshots replaced
some of the first one's manifests, a hundredth without ``--replaced``. `expire --dry-run` must plan exactly their
files, `check` must read all entries and find no error, `scan --plan` and `compact --dry-run` must find the files of
the second. Target of `scan`: 6 seconds for 5,000 manifests whose answers are 30 ms late. Memory is the most that a
Python process held (VmHWM): the command, or a worker of Spark.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from clean import LOCATION, serve  # noqa: E402
from expire import EXPIRE, History  # noqa: E402
from memory_store import MemoryStore  # noqa: E402
from shared import lake_command  # noqa: E402
from turns import run  # noqa: E402

from lake.core.table.manifests.schemas import MANIFEST_SCHEMA  # noqa: E402

# What stands for a manifest's number in the template; all numbers have as many digits.
_MARK = b"#########"
_CHANGED = 1_700_000_000.0


class LazyStore(MemoryStore):
    """A store that makes manifests from a template.

    Args:
        template: the bytes of each manifest, with `_MARK` in the place of its number.
        latency_ms: how late each answer is.
    """

    def __init__(self, template: bytes, latency_ms: int) -> None:
        super().__init__(latency_ms)
        self._template = template

    def get(self, key: str) -> tuple[bytes, float] | None:
        """Return a manifest, or another object."""
        name = key.rpartition("/")[2]
        if not name.startswith("lazy-"):
            return super().get(key)
        return self._template.replace(_MARK, name[5:14].encode()), _CHANGED


class LazyHistory(History):
    """A table whose manifests are those of one template."""

    def template(self, files: int) -> tuple[bytes, pa.Table]:
        """Return the bytes of a manifest of some files, and its row in the list, with the mark."""
        row = self.manifest(0, range(files))
        path = Path(self._local(row["manifest_path"]))
        packed = path.read_bytes()
        path.unlink()
        reader = fastavro.reader(io.BytesIO(packed))
        records = list(reader)
        for number, record in enumerate(records):
            name = f"{_MARK.decode()}-{number:06d}.parquet"
            record["data_file"]["file_path"] = f"{self.location}/data/{name}"
        kept = {
            key: text
            for key, text in reader.metadata.items()
            if not key.startswith(("avro.", "lake."))
        }
        # Not compressed and not sealed: the number is written into the bytes.
        plain = io.BytesIO()
        fastavro.writer(plain, reader.writer_schema, records, codec="null", metadata=kept)
        return plain.getvalue(), pa.Table.from_pylist(
            [row | {"manifest_length": plain.tell()}], MANIFEST_SCHEMA
        )

    def lists(self, row: pa.Table, manifests: int, gone: int) -> None:
        """Add two snapshots: the second replaces some of the first one's manifests."""
        every = row.take(pa.array([0] * (manifests + gone)))
        paths = [f"{self.location}/metadata/lazy-{number:09d}.avro" for number in range(len(every))]
        every = every.set_column(0, "manifest_path", pa.array(paths))
        self.snapshot(0, every.slice(0, manifests))
        self.snapshot(1, every.slice(gone))


class Command(NamedTuple):
    """A command line, and how many manifests it must find, of all in the second snapshot and of those before."""

    arguments: tuple[str, ...]
    found: Callable[[Any], int]
    expected: Callable[[int, int], int]


COMMANDS = {
    "expire": Command(
        (*EXPIRE, "--dry-run"), lambda done: done["plan"]["data_files"], lambda _, gone: gone
    ),
    "check": Command(
        ("check", "db.t"),
        lambda done: done["result"]["entries"] if not done["result"]["errors"] else -1,
        lambda manifests, gone: manifests + gone,
    ),
    "scan": Command(
        ("scan", "db.t", "--plan"),
        lambda done: done["plan"]["files"],
        lambda manifests, _: manifests,
    ),
    "compact": Command(
        ("compact", "db.t", "--dry-run"),
        lambda done: done["plan"]["total_data_files"],
        lambda manifests, _: manifests,
    ),
}
# The summaries are not those of these tables: `check` warns.
_WARNINGS = 6


def measure(manifests: int, files: int, gone: int, engine: str, name: str, latency_ms: int) -> None:
    """Run one command."""
    asked = COMMANDS[name]
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder)
        history = LazyHistory(warehouse, 2, location=LOCATION)
        template, row = history.template(files)
        history.lists(row, manifests, gone)
        history.finish()
        with LazyStore(template, latency_ms) as store:
            serve(warehouse, store)
            command = lake_command(warehouse, "--engine", engine, *asked.arguments)
            # The catalog is the one that `serve` configured.
            done = run(
                [part for part in command if part not in ("--warehouse", folder)], (0, _WARNINGS)
            )
            found = asked.found(json.loads(done.output))
            if found != asked.expected(manifests, gone) * files:
                raise SystemExit(f"{found} files were found")
            print(
                f"{name}, {manifests:,} manifests, {gone:,} replaced, {manifests * files:,} files, {engine}: {done}, "
                f"{sum(store.asked.values()):,} requests, {store.worked:.0f} s of the server's processor",
                flush=True,
            )


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifests", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--replaced", type=int)
    parser.add_argument("--engine", default="spark")
    parser.add_argument("--command", choices=COMMANDS, default="expire")
    parser.add_argument("--latency-ms", type=int, default=0)
    chosen = parser.parse_args()
    for manifests in chosen.manifests:
        gone = manifests // 100 if chosen.replaced is None else chosen.replaced
        measure(manifests, chosen.files, gone, chosen.engine, chosen.command, chosen.latency_ms)


if __name__ == "__main__":
    main()
