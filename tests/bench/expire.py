"""Time `lake expire` against Iceberg Java's procedure, whole processes in turn, on copies of the same table.

    python tests/bench/expire.py [--snapshots 1001] [--files 20] [--rounds 3] [--no-java] [--folder DIR]
    python tests/bench/expire.py --shape wide      (1,000,000 files in 5,000 manifests; planned, then expired)
    python tests/bench/expire.py --shape long      (50,000 snapshots, a metadata.json of 25 MB)

All snapshots but the newest expire. In the first table each snapshot replaced all files of the one before, and
every file is there to be deleted; in the others, which Java is not given, only metadata is. Memory is the most
that the process ever held (VmHWM). Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import copy_of, medians, timed  # noqa: E402
from manifests import SCHEMA, SPEC, entries  # noqa: E402
from shared import java_command, lake_command, parser_of  # noqa: E402
from support.tables.iceberg_tables import make_table, pyiceberg_catalog  # noqa: E402

from lake.core.table.manifests.api import (  # noqa: E402
    ManifestContext,
    ManifestListHeader,
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
)
from lake.core.table.manifests.schemas import (  # noqa: E402
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    MANIFEST_SCHEMA,
    METRIC_COLUMNS,
)

_FIRST_ID = 1 << 60
_FIRST_DAY = date(2024, 2, 27)
# Fewer than a file system allows.
_LINKS = 30_000
_STEP_MS = 20_000
_END_MS = 1_750_000_000_000
_OLDER = "2025-07-01T00:00:00Z"


class History:
    """A table whose manifests are written one by one, and its metadata at the end."""

    def __init__(
        self,
        warehouse: Path,
        snapshots: int,
        *,
        schema: Schema = SCHEMA,
        spec: PartitionSpec = SPEC,
        folders: int = 1,
        has_metrics: bool = True,
        location: str | None = None,
    ) -> None:
        """Make the table.

        Args:
            warehouse: the folder of its catalog and of its files.
            snapshots: how many snapshots it will have.
            schema: its schema.
            spec: its partitioning.
            folders: the number of folders of the data files.
            has_metrics: whether entries have the metrics of columns.
            location: what metadata names as the table's location, if its files will be moved there.
        """
        self.warehouse = warehouse
        self._folders = folders
        self._has_metrics = has_metrics
        self._count = snapshots
        self._made = make_table(warehouse, schema=schema, spec=spec)
        self._written_to = self._made.metadata.location
        self.location = location or self._written_to
        self._snapshots: list[dict[str, Any]] = []
        self._templates: dict[int, pa.Table] = {}
        Path(self._local(f"{self.location}/data")).mkdir()

    def manifest(self, number: int, files: range, status: int = ADDED) -> dict[str, Any]:
        """Write the manifest of some files of a snapshot, by number; return its row in the list."""
        if len(files) not in self._templates:
            self._templates[len(files)] = self._template(len(files))
        rows = self._templates[len(files)]
        paths = [self.data_file(each) for each in files]
        given = {
            "file_path": pa.array(paths),
            "status": pa.repeat(pa.scalar(status, pa.int32()), len(files)),
            "snapshot_id": pa.repeat(pa.scalar(_FIRST_ID + number, pa.int64()), len(files)),
        }
        if status == DELETED:
            given["sequence_number"] = pa.repeat(pa.scalar(number, pa.int64()), len(files))
            given["file_sequence_number"] = given["sequence_number"]
        part = pa.table({name: given.get(name, rows[name]) for name in ENTRY_COLUMNS})
        return self.manifest_of(number, part)

    def _template(self, files: int) -> pa.Table:
        rows = entries(files)
        for place, name in enumerate(rows.schema.names):
            if name in METRIC_COLUMNS and not self._has_metrics:
                field = rows.schema.field(place)
                rows = rows.set_column(place, field, pa.nulls(files, field.type))
        return rows

    def manifest_of(self, number: int, part: pa.Table) -> dict[str, Any]:
        """Write the manifest of some entries of a snapshot; return its row in the list."""
        kind = {"spec": self._made.spec(), "schema": self._made.schema(), "content": 0}
        context = ManifestContext(format_version=2, **kind)
        data = encode_manifest(part, context)
        return describe_manifest(
            part,
            context,
            location=self._write("m", data),
            length=len(data),
            sequence_number=number + 1,
            added_snapshot_id=self.snapshot_id(number),
        )

    def snapshot_id(self, number: int) -> int:
        """Return the id of a snapshot."""
        return _FIRST_ID + number

    def data_file(self, number: int) -> str:
        """Return the location of a data file."""
        day = _FIRST_DAY + timedelta(days=number % self._folders)
        return f"{self.location}/data/ts_day={day}/{number:08d}-{uuid.UUID(int=number)}.parquet"

    def make_data_files(self, count: int) -> None:
        """Make the data files, of a few bytes each: they are not read. Some of them are links to the same bytes."""
        first = Path()
        for number in range(count):
            path = Path(self._local(self.data_file(number)))
            if number < self._folders:
                path.parent.mkdir()
            if number % _LINKS:
                path.hardlink_to(first)
            else:
                path.write_bytes(b"PAR1" * 25)
                first = path

    def snapshot(
        self, number: int, manifests: pa.Table, summary: dict[str, str] | None = None
    ) -> bytes:
        """Add a snapshot that has these manifests; return its list."""
        data = encode_manifest_list(
            manifests,
            ManifestListHeader(
                format_version=2,
                snapshot_id=_FIRST_ID + number,
                parent_snapshot_id=_FIRST_ID + number - 1 if number else None,
                sequence_number=number + 1,
            ),
        )
        self.snapshot_of(number, data, summary)
        return data

    def snapshot_of(
        self, number: int, manifest_list: bytes, summary: dict[str, str] | None = None
    ) -> None:
        """Add a snapshot with a given list."""
        self._snapshots.append(
            {
                "snapshot-id": _FIRST_ID + number,
                **({"parent-snapshot-id": _FIRST_ID + number - 1} if number else {}),
                "sequence-number": number + 1,
                "timestamp-ms": _END_MS - (self._count - number) * _STEP_MS,
                "manifest-list": self._write(f"snap-{number}", manifest_list),
                "summary": summary
                or {
                    "operation": "overwrite",
                    "added-data-files": "20",
                    "deleted-data-files": "20",
                    "total-records": "1300000",
                    "total-data-files": "20",
                },
                "schema-id": 0,
            }
        )

    def finish(self) -> Path:
        """Write the metadata and register it where it was written; return its file."""
        old = Path(self._local(self._made.metadata_location))
        document = json.loads(old.read_text())
        head = self._snapshots[-1]
        document |= {
            "location": self.location,
            "snapshots": self._snapshots,
            "snapshot-log": [
                {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
                for each in self._snapshots
            ],
            "current-snapshot-id": head["snapshot-id"],
            "last-sequence-number": head["sequence-number"],
            "last-updated-ms": head["timestamp-ms"],
            "refs": {"main": {"snapshot-id": head["snapshot-id"], "type": "branch"}},
        }
        new = old.with_name(f"00001-{uuid.uuid4()}.metadata.json")
        new.write_text(json.dumps(document, separators=(",", ":")))
        catalog = pyiceberg_catalog(self.warehouse)
        catalog.drop_table("db.t")
        catalog.register_table("db.t", f"file://{new}")
        return new

    def _write(self, prefix: str, data: bytes) -> str:
        location = f"{self.location}/metadata/{prefix}-{uuid.uuid4()}.avro"
        Path(self._local(location)).write_bytes(data)
        return location

    def _local(self, location: str) -> str:
        return location.replace(self.location, self._written_to, 1).removeprefix("file://")


def rows_of(manifests: list[dict[str, Any]]) -> pa.Table:
    """Return the rows of a manifest list."""
    return pa.Table.from_pylist(manifests, MANIFEST_SCHEMA)


def make_replaced(warehouse: Path, snapshots: int, files: int) -> None:
    """Make a table in which each snapshot replaced all files of the one before."""
    history = History(warehouse, snapshots)
    history.make_data_files(snapshots * files)
    for number in range(snapshots):
        first = number * files
        made = [history.manifest(number, range(first, first + files))]
        if number:
            made.append(history.manifest(number, range(first - files, first), DELETED))
        history.snapshot(number, rows_of(made))
    history.finish()


def make_wide(warehouse: Path, files: int, manifests: int) -> None:
    """Make a table of two snapshots; the second replaced a hundredth of the first one's manifests."""
    history = History(warehouse, 2)
    each, gone = files // manifests, manifests // 100
    made = [
        history.manifest(0, range(number * each, (number + 1) * each))
        for number in range(manifests + gone)
    ]
    history.snapshot(0, rows_of(made[:manifests]))
    history.snapshot(1, rows_of(made[gone:]))
    history.finish()


def make_long(warehouse: Path, snapshots: int) -> None:
    """Make a table of many snapshots that all hold one manifest."""
    history = History(warehouse, snapshots)
    data = history.snapshot(0, rows_of([history.manifest(0, range(20))]))
    for number in range(1, snapshots):
        history.snapshot_of(number, data)
    size = history.finish().stat().st_size
    print(f"metadata.json: {size:,} bytes")


def java_expiry(warehouse: Path) -> list[str]:
    """Return the command line of the peer's procedure."""
    arguments = f"table => 'db.t', older_than => TIMESTAMP '{_OLDER}', retain_last => 1"
    call = f"CALL lake.system.expire_snapshots({arguments})"
    return java_command(warehouse, call)


EXPIRE = ("expire", "db.t", "--older-than", _OLDER, "--retain-last", "1")


def files_left(warehouse: Path) -> int:
    """Return how many files are left of a table."""
    return sum(1 for path in (warehouse / "db").rglob("*") if path.is_file())


def compare(kept: Path, used: Path, rounds: int, *, java: bool) -> None:
    """Let the two take turns."""
    seconds: dict[str, list[float]] = {"lake": [], "java": []}
    for _ in range(rounds):
        for name in ("lake", "java") if java else ("lake",):
            copy_of(kept, used)
            before = files_left(used)
            command = lake_command(used, *EXPIRE) if name == "lake" else java_expiry(used)
            took, peak, output = timed(command)
            seconds[name].append(took)
            result = json.loads(output.splitlines()[-1])["result"]
            print(f"{name} {took:.2f} s, peak {peak:.0f} MiB, {result}", flush=True)
            print(
                f"    {before - files_left(used)} files went, {files_left(used)} stay", flush=True
            )
    print(json.dumps(medians(seconds)))


def measure(warehouse: Path, *commands: tuple[str, ...]) -> None:
    """Run commands of lake, each in a process of its own, and print time and memory."""
    for command in commands:
        took, peak, output = timed(lake_command(warehouse, *command))
        document = json.loads(output)
        result = document["result"] or document["plan"]
        print(f"{' '.join(command)}: {took:.1f} s, peak {peak:.0f} MiB, {result}", flush=True)


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = parser_of(__doc__, manifests=5_000)
    parser.add_argument("--shape", choices=["replaced", "wide", "long"], default="replaced")
    parser.add_argument("--snapshots", type=int)
    parser.add_argument("--files", type=int, help="of each snapshot; of the whole table if wide")
    chosen = parser.parse_args()
    folder = chosen.folder
    used, kept = folder / "warehouse", folder / f"made-{chosen.shape}"
    if not kept.exists():
        # Locations in metadata are absolute: the table is made where it will be used.
        shutil.rmtree(used, ignore_errors=True)
        if chosen.shape == "replaced":
            make_replaced(used, chosen.snapshots or 1001, chosen.files or 20)
        elif chosen.shape == "wide":
            make_wide(used, chosen.files or 1_000_000, chosen.manifests)
        else:
            make_long(used, chosen.snapshots or 50_000)
        used.rename(kept)
    if chosen.shape == "replaced":
        compare(kept, used, chosen.rounds, java=not chosen.no_java)
        return
    copy_of(kept, used)
    reading = [("scan", "db.t", "--plan")] if chosen.shape == "wide" else []
    measure(used, *reading, (*EXPIRE, "--dry-run"), EXPIRE)


if __name__ == "__main__":
    main()
