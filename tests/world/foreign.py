"""What other writers do to a table, written without lake's planning: whole files, deletes, refs, schemas."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetSnapshotRefUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import StringType
from support.tables.delete_files import equality_file, position_file, vectors

from lake.core.base import locations
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles, DeleteKey, RowDelta
from lake.core.transaction.commit.operations import Operation as TableOperation
from world.model import ID, NAMES, VALUE, Operation, adding, replacing, without
from world.reference import POSITIONS, Entry, vector
from world.simulation import DAY_MS, ELSEWHERE, MAIN, PARTS, World

_NEWEST_IDS = 10_000
_REMEMBERED_MS = 7 * DAY_MS


def data_files(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[DataFile]:
    """Write rows as other writers do, a file for each partition."""
    groups = defaultdict(list)
    for row in rows:
        groups[_partition(table, row)].append(row)
    return [_data_file(table, group, key) for key, group in groups.items()]


def _data_file(
    table: Table, rows: Sequence[Mapping[str, Any]], partition: tuple[bytes | None, ...]
) -> DataFile:
    names = [name for name in table.schema.column_names if any(name in row for row in rows)]
    schema = schema_to_pyarrow(table.schema.select(*names))
    data = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows], schema)
    location = f"{table.data_location}/other-{uuid.uuid4()}.parquet"
    buffer = BytesIO()
    pq.write_table(data, buffer, row_group_size=3, write_page_checksum=True)
    _write(table, location, buffer.getvalue())
    return DataFile(
        path=location,
        spec_id=table.spec.spec_id,
        partition=partition,
        record_count=len(rows),
        size_bytes=buffer.tell(),
    )


def _write(table: Table, location: str, content: bytes) -> None:
    """Write a file; on this machine without lake's storage, whose calls are points of a world."""
    if not locations.parse(location).is_local:
        table.storage.write(location, content)
        return
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _partition(table: Table, row: Mapping[str, Any]) -> tuple[bytes | None, ...]:
    values = []
    for part in table.spec.fields:
        source = table.schema.find_field(part.source_id)
        values.append(part.transform.transform(source.field_type)(row[source.name]))
    return encoded(values)


def encoded(partition: Sequence[Any]) -> tuple[bytes | None, ...]:
    """Return a partition's values as entries of lake hold them."""
    return tuple(
        None
        if value is None
        else value.encode()
        if isinstance(value, str)
        else struct.pack("<i", value)
        for value in partition
    )


def commit(
    world: World, table: Table, operation: TableOperation, summary: Mapping[str, str] | None = None
) -> None:
    commit_snapshot(
        world.session(),
        table,
        operation,
        CommitRequest(operation_id=str(uuid.uuid4())),
        summary=summary,
    )


# Rows


def append(world: World, random: Random) -> None:
    ids = random.sample(range(_NEWEST_IDS), random.randint(1, 5))
    rows = world.new_rows(ids, random.choice(PARTS))

    def work() -> None:
        table = world.table()
        commit(world, table, AppendFiles(added=data_files(table, rows)))

    world.other_writer(Operation("other append", adding(rows)), work)


def append_by_pyiceberg(world: World, random: Random) -> None:
    if world.config.version > 2:
        return
    rows = world.new_rows([random.randrange(_NEWEST_IDS)], random.choice(PARTS))

    def work() -> None:
        handle = world.table().handle
        schema = schema_to_pyarrow(handle.schema())
        names = schema.names
        data = [{name: row.get(name) for name in names} for row in rows]
        handle.append(pa.Table.from_pylist(data, schema))

    world.other_writer(Operation("pyiceberg append", adding(rows), cleans=True), work)


def delete_by_position(world: World, random: Random) -> None:
    if world.config.version == 1:
        return
    table = world.table()
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    places = [
        (entry, place, row)
        for entry, place, row in world.reference.places(table.metadata, snapshot)
        if entry.spec_id == table.spec.spec_id
    ]
    if not places:
        return
    entry = random.choice(places)[0]
    own = [(place, row) for of, place, row in places if of is entry]
    chosen = random.sample(own, min(len(own), random.randint(1, 3)))
    operation = Operation("position deletes", without(row[VALUE] for _, row in chosen))

    def work() -> None:
        found = [place for place, _ in chosen]
        deletes, replaced = deletes_of(world, table, entry, found)
        commit(
            world,
            table,
            RowDelta(
                added=[],
                deletes=deletes,
                replaced_deletes=replaced,
                base_snapshot_id=snapshot.snapshot_id,
                isolation=world.config.isolation,
            ),
        )

    world.other_writer(operation, work)


def deletes_of(
    world: World, table: Table, entry: Entry, places: list[int]
) -> tuple[list[DataFile], list[DeleteKey]]:
    partition = encoded(entry.partition)
    if world.config.version == 2:
        return [position_file(table, [(entry.path, at) for at in places], partition=partition)], []
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    every, replaced = set(places), []
    for other in world.reference.contents(table.metadata, snapshot).entries:
        if other.content == POSITIONS and other.referenced == entry.path:
            assert other.offset is not None
            assert other.length is not None
            every |= set(vector(other.path, other.offset, other.length))
            replaced.append(DeleteKey(other.path, other.offset))
    return vectors(table, {entry.path: every}, partition=partition), replaced


def delete_by_key(world: World, random: Random) -> None:
    if world.config.version == 1:
        return
    table = world.table()
    if not table.spec.is_unpartitioned():
        return
    state = world.model.rows(table.metadata.current_snapshot_id)
    known = sorted(dict(row)[ID] for row in state.values())
    ids = set(random.sample(known, min(len(known), random.randint(1, 4)))) | {-1}
    operation = Operation("equality deletes", replacing(lambda row: row[ID] in ids))

    def work() -> None:
        file = equality_file(table, [{"id": one} for one in sorted(ids)], ["id"])
        delta = RowDelta(
            added=[],
            deletes=[file],
            base_snapshot_id=table.metadata.current_snapshot_id,
            validates=False,
        )
        commit(world, table, delta)

    world.other_writer(operation, work)


def file_elsewhere(world: World, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows to a file outside of the table, which nothing may delete."""
    schema = schema_to_pyarrow(world.metadata.schema().select(*NAMES))
    path = world.folder / ELSEWHERE / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
    world.born(f"file://{path}")
    return path


# Schema, specs and refs


class First(Random):
    """Always takes the first."""

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[0]


def add_column(world: World, random: Random) -> None:
    table = world.table()
    names = [name for name in table.schema.column_names if name.startswith("extra")]

    def work() -> None:
        with table.handle.update_schema() as update:
            if names and random.random() < 0.5:
                update.rename_column(random.choice(names), f"extra_{random.getrandbits(24)}")
            elif len(names) < 4:
                update.add_column(f"extra_{random.getrandbits(24)}", StringType())
            else:
                update.delete_column(random.choice(names))

    world.other_writer(Operation("schema"), work)


def change_spec(world: World, random: Random) -> None:
    table = world.table()
    if world.config.version == 1 or not world.config.respecs:
        return

    def work() -> None:
        name = f"p_{random.getrandbits(24)}"
        with table.handle.update_spec() as update:
            for part in table.spec.fields:
                update.remove_field(part.name)
            kind = random.choice(["none", "part", "bucket"])
            if kind == "part":
                update.add_field("part", IdentityTransform(), name)
            elif kind == "bucket":
                update.add_field("id", BucketTransform(random.choice([2, 3])), name)

    world.other_writer(Operation("spec"), work)


def change_order(world: World, random: Random) -> None:
    table = world.table()

    def work() -> None:
        column = random.choice(["id", "part", "value"])
        with table.handle.update_sort_order() as update:
            (update.asc if random.random() < 0.5 else update.desc)(column, IdentityTransform())

    world.other_writer(Operation("sort order"), work)


def change_statistics(world: World, random: Random) -> None:
    """Give a snapshot a statistics file, as engines do."""
    table = world.table()
    snapshot = random.choice(table.metadata.snapshots)
    location = f"{table.metadata_folder}/other-{uuid.uuid4()}.stats"
    payload = b'{"blobs":[]}'
    footer = b"PFA1" + payload + pack("<i4x4s", len(payload), b"PFA1")
    Path(location.removeprefix("file://")).write_bytes(b"PFA1" + footer)
    file = StatisticsFile(
        **{
            "snapshot-id": snapshot.snapshot_id,
            "statistics-path": location,
            "file-size-in-bytes": 4 + len(footer),
            "file-footer-size-in-bytes": len(footer),
            "blob-metadata": [],
        }
    )
    world.other_writer(
        Operation("statistics"),
        lambda: table.handle.update_statistics().set_statistics(file).commit(),
    )


def change_ref(world: World, random: Random) -> None:
    table = world.table()
    mine = f"ref-{world.scheduler.actor()}-{random.randrange(2)}".replace(" ", "-")
    operation = Operation("ref", refs=frozenset({mine}))
    ref = table.metadata.refs.get(mine)

    def work() -> None:
        with table.handle.manage_snapshots() as update:
            if ref is not None:
                tag = ref.snapshot_ref_type == "tag"
                (update.remove_tag if tag else update.remove_branch)(mine)
                return
            snapshot = random.choice(table.metadata.snapshots).snapshot_id
            age = random.choice([None, DAY_MS])
            if random.random() < 0.6:
                update.create_tag(snapshot, mine, max_ref_age_ms=age)
            else:
                update.create_branch(snapshot, mine)

    world.other_writer(operation, work)


def roll_back(world: World, random: Random) -> None:
    table = world.table()
    metadata = table.metadata
    current = metadata.current_snapshot_id
    ids = {item.snapshot_id: item for item in metadata.snapshots}
    chain, at = [], metadata.current_snapshot()
    while at is not None and at.parent_snapshot_id in ids:
        at = ids[at.parent_snapshot_id]
        chain.append(at.snapshot_id)
    if not chain:
        return
    target = random.choice(chain[:3])

    def work() -> None:
        world.catalog.commit_table(
            table.handle,
            (
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertRefSnapshotId(ref=MAIN, snapshot_id=current),
            ),
            (SetSnapshotRefUpdate(ref_name=MAIN, type="branch", snapshot_id=target),),
        )

    world.other_writer(Operation("rollback"), work)
