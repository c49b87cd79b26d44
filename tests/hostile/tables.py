"""Small real tables to break: made by lake, by PyIceberg and by Flink, with the truth about each.

The truth, which rows and files there are, is read without any of lake's code (`world.reference`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.iceberg_tables import make_table
from support.tables.metadata_edits import edit_metadata, read_metadata
from world.reference import DATA, Reference, local

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", LongType(), required=False),
)
_SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
NAME = "db.t"
TAG = "kept"
UPSERTED = {1: 901, 12: 912, 99: 999}
# Of a snapshot beside the history, and its WAP id.
STAGED, WAP_ID = range(300, 306, 2), "wap 1"
_VERSIONED = re.compile(r"v([0-9]+)\.metadata\.json")
# Of one partition.
ADDED = (200, 202)


def rows_of(ids: Any, value: int = 0) -> pa.Table:
    """Return rows of the tables' schema."""
    numbers = list(ids)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "part": ["even" if number % 2 == 0 else "odd" for number in numbers],
            "value": pa.array([value or number for number in numbers], pa.int64()),
        }
    )


def _by_lake(warehouse: Path, version: int, catalog_type: str = "sql") -> None:
    lake = CommandLine(warehouse, engine="inline", catalog_type=catalog_type)

    def load(ids: Any, *options: str, value: int = 0) -> None:
        source = warehouse.parent / "source.parquet"
        pq.write_table(rows_of(ids, value), source)
        lake.ok("ingest", NAME, source, *options)

    load(range(10), "--create", "--partition-by", "part", "--property", f"format-version={version}")
    load(range(10, 20))
    lake.ok("tag", NAME, TAG)
    lake.ok("compact", NAME, "--rewrite-all", "--min-input-files", "1")
    load(range(20, 30))
    lake.ok("compact", NAME, "--rewrite-all", "--min-input-files", "1")
    load([2, 5, 11], "--upsert", "--key", "id", value=500)
    load(range(30, 40))


def _by_pyiceberg(warehouse: Path, version: int) -> None:
    table = make_table(
        warehouse,
        NAME,
        SCHEMA,
        _SPEC,
        format_version=str(version),
        write__object_storage__enabled="false",
    )
    for start in (0, 10, 20):
        table.append(rows_of(range(start, start + 10)))
        if start == 10:
            table.manage_snapshots().create_tag(table.metadata.current_snapshot_id, TAG).commit()
    table.delete("id = 3")
    table.append(rows_of(range(30, 40)))


def _in_blocks(warehouse: Path) -> None:
    """Make a table by lake whose manifests and lists have a block for each record."""
    _by_lake(warehouse, 2)
    folder = warehouse / "db/t/metadata"
    for path in folder.glob("*.avro"):
        if not path.name.startswith("snap-"):
            _split(path)
    for path in folder.glob("snap-*.avro"):
        _split(path, lambda row: row | {"manifest_length": _size(row["manifest_path"])})


def _with_staged(
    warehouse: Path, staging: Sequence[str] = (), behind: Sequence[int] = range(20, 30)
) -> None:
    """Make a table by lake with a snapshot that was staged under a WAP id, as Spark does.

    Args:
        warehouse: where.
        staging: the options of the load that is staged.
        behind: the rows that are loaded after it.
    """
    lake = CommandLine(warehouse, engine="inline")
    source = warehouse.parent / "source.parquet"

    def load(ids: Any, *options: str) -> None:
        pq.write_table(rows_of(ids), source)
        lake.ok("ingest", NAME, source, *options)

    load(range(10), "--create", "--partition-by", "part")
    load(range(10, 20))
    lake.ok("tag", NAME, TAG)
    lake.ok("ref", NAME, "--branch-create", "audit")
    load(STAGED, "--branch", "audit", *staging)
    lake.ok("ref", NAME, "--drop", "audit")
    document = read_metadata(warehouse)
    staged = document["snapshots"][-1]["snapshot-id"]

    def mark(plain: Any) -> None:
        (one,) = (item for item in plain["snapshots"] if item["snapshot-id"] == staged)
        one["summary"]["wap.id"] = WAP_ID

    edit_metadata(warehouse, mark)
    if behind:
        load(behind)


def _size(location: str) -> int:
    return Path(local(location)).stat().st_size


def _split(path: Path, change: Callable[[Any], Any] = lambda row: row) -> None:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        rows, schema = [change(row) for row in reader], reader.writer_schema  # type: ignore[arg-type]
        own = ("avro.", "lake.sync-marker")
        kept = {key: value for key, value in reader.metadata.items() if not key.startswith(own)}
    assert schema is not None
    with path.open("wb") as file:
        # A block ends once it has this number of bytes.
        fastavro.writer(file, schema, rows, codec="deflate", sync_interval=1, metadata=kept)


_MAKERS: dict[str, Callable[[Path], None]] = {
    "lake-v2": lambda warehouse: _by_lake(warehouse, 2),
    "lake-v3": lambda warehouse: _by_lake(warehouse, 3),
    "hadoop": lambda warehouse: _by_lake(warehouse, 2, "hadoop"),
    "blocks": _in_blocks,
    "staged": _with_staged,
    "staged-on-head": lambda warehouse: _with_staged(warehouse, behind=()),
    # The rows behind it are in no partition that it replaced.
    "staged-replacement": lambda warehouse: _with_staged(
        warehouse, ["--replace-partitions"], range(21, 31, 2)
    ),
    "pyiceberg-v1": lambda warehouse: _by_pyiceberg(warehouse, 1),
    "pyiceberg-v2": lambda warehouse: _by_pyiceberg(warehouse, 2),
}
STAGED_TABLES = ("staged", "staged-on-head", "staged-replacement")
FLINK = {"flink-append": "a-append", "flink-upsert": "c-upsert"}
TABLES = (*_MAKERS, *FLINK)


@dataclass(frozen=True)
class Truth:
    """What a table holds.

    Args:
        rows: of the head.
        facts: how many data files, delete files and rows in data files that is.
        refs: branches and tags.
        needed: every file that they need.
        staged: rows that the snapshot with `WAP_ID` added.
        replaced: rows that it removed.
        tagged: rows of the snapshot with `TAG`.
    """

    rows: Counter[Any]
    facts: Mapping[str, int]
    refs: frozenset[str]
    needed: frozenset[Path]
    staged: Counter[Any] = field(default_factory=Counter)
    replaced: Counter[Any] = field(default_factory=Counter)
    tagged: Counter[Any] = field(default_factory=Counter)

    @property
    def picked(self) -> Counter[Any]:
        """The rows after the staged snapshot was applied to the head."""
        return self.rows + self.staged - self.replaced


class BrokenTable:
    """A table whose files can be changed, and put back as they were.

    Args:
        folder: where to make it; it contains only this table and a canary beside the warehouse.
        name: one of `TABLES`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._stack = ExitStack()
        if name in FLINK:
            fixture = self._stack.enter_context(flink_fixtures.lent(FLINK[name]))
            self.warehouse, self.name = fixture.warehouse, fixture.table
            self.catalog_type = fixture.catalog_type
        else:
            self.warehouse, self.name = folder / "warehouse", NAME
            self.catalog_type = name if name == "hadoop" else "sql"
            self.warehouse.mkdir(parents=True)
            _MAKERS[name](self.warehouse)
        self._canary = folder / "canary"
        self._make_canary()
        self.pointer = self._pointer()
        self._entries = self.entries()
        self._contents = {path: path.read_bytes() for path in _files(self.root)}
        self._found = _look(self.root)
        self.truth = self.truth_now()

    def _make_canary(self) -> None:
        self._canary.mkdir()
        for one in ("a.parquet", "b.avro", "hard"):
            (self._canary / one).write_bytes(one.encode() * 100)
        self._canaries = _look(self._canary)

    def close(self) -> None:
        """Give back what was lent."""
        self.restore()
        self._stack.close()

    @cached_property
    def root(self) -> Path:
        """The table's folder."""
        return self.warehouse.joinpath(*self.name.split("."))

    @property
    def metadata_path(self) -> Path:
        """The current metadata file."""
        return Path(local(self.pointer))

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata as it is now."""
        return self._parsed(self._pointer())

    @property
    def is_lost(self) -> bool:
        """Whether the catalog names metadata that are not there."""
        return any(not Path(local(pointer)).exists() for pointer in self.pointers())

    @cached_property
    def staged_id(self) -> str:
        """The id of the snapshot that was staged; the tag's name if there is none."""
        for one in self.metadata.snapshots:
            if one.summary and one.summary.additional_properties.get("wap.id") == WAP_ID:
                return str(one.snapshot_id)
        return TAG

    def original(self, path: Path) -> bytes:
        """Return a file's content as it was."""
        return self._contents[path]

    def write(self, path: Path, data: bytes) -> None:
        """Break a file."""
        path.write_bytes(data)

    def point_at(self, location: str) -> None:
        """Make the catalog name another metadata file."""
        with sqlite3.connect(self.warehouse / "catalog.db") as catalog:
            catalog.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))

    def entries(self) -> list[Any]:
        """Return the rows of a SQL catalog's tables."""
        if self.catalog_type != "sql":
            return []
        with sqlite3.connect(self.warehouse / "catalog.db") as catalog:
            return sorted(catalog.execute("SELECT * FROM iceberg_tables"))

    def enter(self, *rows: Any) -> None:
        """Replace the rows of a SQL catalog's tables; other catalogs stay as they are."""
        if self.catalog_type != "sql":
            return
        with sqlite3.connect(self.warehouse / "catalog.db") as catalog:
            catalog.execute("DELETE FROM iceberg_tables")
            marks = ", ".join("?" * len(self._entries[0]))
            catalog.executemany(f"INSERT INTO iceberg_tables VALUES ({marks})", rows)

    def pointers(self) -> list[str]:
        """Return the metadata files that the catalog names; none if the table was dropped."""
        if self.catalog_type != "sql":
            return [self._pointer()] if self._versions() else []
        return [row[3] for row in self.entries()]

    def _pointer(self, name: str | None = None) -> str:
        if self.catalog_type != "sql":
            return f"{self.root}/metadata/v{max(self._versions())}.metadata.json"
        with sqlite3.connect(self.warehouse / "catalog.db") as catalog:
            names = (name or self.name).rsplit(".", 1)
            query = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
            found = catalog.execute(query, names).fetchone()
        return str(found[0])

    def _versions(self) -> list[int]:
        names = [path.name for path in (self.root / "metadata").glob("v*.metadata.json")]
        return [int(found[1]) for name in names if (found := _VERSIONED.fullmatch(name))]

    def _parsed(self, location: str) -> TableMetadata:
        text = Path(local(location)).read_text()
        return TableMetadataUtil.parse_raw(text)

    def rows_of(self, name: str) -> Counter[Any]:
        """Return the rows of another table."""
        metadata = self._parsed(self._pointer(name))
        head = metadata.current_snapshot()
        assert head is not None
        return Counter(Reference().rows(metadata, head))

    def truth_now(self) -> Truth:
        """Return what the table holds now, by other code than lake's."""
        reference, metadata = Reference(), self.metadata
        head = metadata.current_snapshot()
        if head is None:
            return Truth(Counter(), {}, frozenset(metadata.refs), frozenset())
        kept = [_snapshot(metadata, ref.snapshot_id) for ref in metadata.refs.values()]
        needed = {path for one in kept for path in reference.contents(metadata, one).files}
        entries = reference.contents(metadata, head).entries
        data = [entry for entry in entries if entry.content == DATA]
        facts = {
            "files": len(data),
            "delete_files": len(entries) - len(data),
            "records": sum(entry.records for entry in data),
        }
        return Truth(
            Counter(reference.rows(metadata, head)),
            facts,
            frozenset(metadata.refs),
            frozenset(Path(local(path)) for path in needed),
            *self._staged(reference, metadata),
            _tagged(reference, metadata),
        )

    def _staged(
        self, reference: Reference, metadata: TableMetadata
    ) -> tuple[Counter[Any], Counter[Any]]:
        for one in metadata.snapshots:
            if one.summary and one.summary.additional_properties.get("wap.id") == WAP_ID:
                parent = _snapshot(metadata, one.parent_snapshot_id or 0)
                found = Counter(reference.rows(metadata, one))
                before = Counter(reference.rows(metadata, parent))
                return found - before, before - found
        return Counter(), Counter()

    def rows_now(self) -> Counter[Any]:
        """Return the rows that the table holds now, by other code than lake's."""
        metadata = self.metadata
        head = metadata.current_snapshot()
        return Counter() if head is None else Counter(Reference().rows(metadata, head))

    def head_files(self) -> set[Path]:
        """Return the files that the head needs."""
        metadata = self.metadata
        head = _snapshot(metadata, metadata.current_snapshot_id or 0)
        return {Path(local(path)) for path in Reference().contents(metadata, head).files}

    def lists(self) -> list[Path]:
        """Return the manifest lists of all snapshots, the head's first."""
        found = sorted(self.metadata.snapshots, key=lambda one: -one.timestamp_ms)
        return [Path(local(one.manifest_list)) for one in found]

    def staged_files(self) -> list[Path]:
        """Return the manifest list of the staged snapshot, and the manifests in it that it added."""
        snapshot = _snapshot(self.metadata, int(self.staged_id))
        path = Path(local(snapshot.manifest_list))
        with path.open("rb") as file:
            rows: list[Any] = list(fastavro.reader(file))
        own = [row for row in rows if row["added_snapshot_id"] == snapshot.snapshot_id]
        return [path, *(Path(local(row["manifest_path"])) for row in own)]

    def manifests(self, which: int = 0) -> list[Path]:
        """Return the manifests of a snapshot, the head's by default."""
        with self.lists()[which].open("rb") as file:
            return [
                Path(local(row["manifest_path"]))
                for row in fastavro.reader(file)  # type: ignore[attr-defined,index]
            ]

    def restore(self) -> None:
        """Put back all that changed."""
        if self.canary_changed():
            shutil.rmtree(self._canary)
            self._make_canary()
        now = _look(self.root)
        for path in now.keys() - self._found.keys():
            path.unlink()
        for path, before in self._found.items():
            if now.get(path) != before:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                path.write_bytes(self._contents[path])
                self._found[path] = _stat(path)
        shutil.rmtree(self.warehouse / "db" / "new", ignore_errors=True)
        if self.catalog_type == "sql" and self.entries() != self._entries:
            self.enter(*self._entries)

    def changes(self) -> tuple[set[Path], set[Path]]:
        """Return which files have come and which have gone."""
        now = set(_files(self.root))
        return now - self._contents.keys(), self._contents.keys() - now

    def forget(self, name: str) -> None:
        """Remove another table from the catalog, with its files."""
        namespace, table = name.split(".")
        with sqlite3.connect(self.warehouse / "catalog.db") as catalog:
            query = "DELETE FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
            catalog.execute(query, (namespace, table))
        shutil.rmtree(self.warehouse / namespace / table, ignore_errors=True)

    @property
    def has_moved(self) -> bool:
        """Whether something was committed."""
        return self.pointers() != [self.pointer]

    def look_at_canary(self) -> None:
        """Take what is beside the warehouse now as what must stay."""
        self._canaries = _look(self._canary)

    def canary_changed(self) -> bool:
        """Whether anything beside the warehouse was touched."""
        return _look(self._canary) != self._canaries

    def canary_harmed(self) -> bool:
        """Whether anything beside the warehouse was changed or removed."""
        now = _look(self._canary)
        return any(now.get(path) != before for path, before in self._canaries.items())


def _tagged(reference: Reference, metadata: TableMetadata) -> Counter[Any]:
    if (tag := metadata.refs.get(TAG)) is None:
        return Counter()
    return Counter(reference.rows(metadata, _snapshot(metadata, tag.snapshot_id)))


def _snapshot(metadata: TableMetadata, snapshot_id: int) -> Any:
    return next(one for one in metadata.snapshots if one.snapshot_id == snapshot_id)


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield Path(folder, name)


def _look(root: Path) -> dict[Path, tuple[int, ...]]:
    return {path: _stat(path) for path in _files(root)}


def _stat(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_mode


def edited(metadata: bytes, change: Callable[[Any], None]) -> bytes:
    """Return metadata.json with a change made to it."""
    document = json.loads(metadata)
    change(document)
    return json.dumps(document).encode()


_made: dict[tuple[Path, str], BrokenTable] = {}


def broken_table(folder: Path, name: str) -> BrokenTable:
    """Return a table in a folder, made when it is first asked for."""
    if (folder, name) not in _made:
        _made[folder, name] = BrokenTable(folder, name)
    return _made[folder, name]
