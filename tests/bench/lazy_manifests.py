"""Measure the memory of `lake expire --dry-run` on tables whose manifests exist only while they are read.

    python tests/bench/lazy_manifests.py [--manifests 2000 8000] [--files 200] [--engine inline|spark|auto]

A store in the memory of this process (`memory_store.py`) makes each manifest from its number when it is asked for it,
so that a table of 100,000,000 files (`--manifests 500000`) takes no room. The second of two snapshots replaced a
hundredth of the first one's manifests; the plan must have exactly their files. Memory is the most that a Python
process held (VmHWM): the command, or a worker of Spark.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
from pathlib import Path

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
    """

    def __init__(self, template: bytes) -> None:
        super().__init__(latency_ms=0)
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

    def lists(self, row: pa.Table, manifests: int) -> None:
        """Add two snapshots: the second replaces a hundredth of the first one's manifests."""
        gone = manifests // 100
        every = row.take(pa.array([0] * (manifests + gone)))
        paths = [f"{self.location}/metadata/lazy-{number:09d}.avro" for number in range(len(every))]
        every = every.set_column(0, "manifest_path", pa.array(paths))
        self.snapshot(0, every.slice(0, manifests))
        self.snapshot(1, every.slice(gone))


def measure(manifests: int, files: int, engine: str) -> None:
    """Plan one expiry."""
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder)
        history = LazyHistory(warehouse, 2, location=LOCATION)
        template, row = history.template(files)
        history.lists(row, manifests)
        history.finish()
        with LazyStore(template) as store:
            serve(warehouse, store)
            command = lake_command(warehouse, "--engine", engine, *EXPIRE, "--dry-run")
            # The catalog is the one that `serve` configured.
            done = run([part for part in command if part not in ("--warehouse", folder)])
            plan = json.loads(done.output)["plan"]
            if plan["data_files"] != manifests // 100 * files:
                raise SystemExit(f"{plan['data_files']} files were found")
            print(
                f"{manifests:,} manifests, {manifests * files:,} files, {plan['engine']}: {done}, "
                f"{store.worked:.0f} s of the server's processor",
                flush=True,
            )


def main() -> None:
    """Measure each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifests", type=int, nargs="+", default=[2000, 8000])
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--engine", default="spark")
    chosen = parser.parse_args()
    for manifests in chosen.manifests:
        measure(manifests, chosen.files, chosen.engine)


if __name__ == "__main__":
    main()
