"""Independent readers of a world's table: every retained snapshot is compared with the model."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.table.snapshots import Snapshot
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

from world.model import as_row, state_of
from world.reference import EQUALITY, Row
from world.simulation import TABLE, World, schema_of

# Java needs a quarter of a second for each.
_SNAPSHOTS = 6


def judge_by_java(world: World, java: JavaPeer) -> Counter[str]:
    """Let Iceberg Java read some retained snapshots, and each branch by its name."""
    _register(world)
    metadata = world.metadata
    every = metadata.snapshots[:: -(-len(metadata.snapshots) // _SNAPSHOTS)]
    snapshots = {str(item.snapshot_id): item for item in every}
    heads = {
        f"'{name}'": metadata.snapshot_by_id(ref.snapshot_id)
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == "branch"
    }
    parts = [
        f"SELECT {place} AS place, to_json(struct(*)) AS row FROM {{c}}.{TABLE} VERSION AS OF {name}"
        for place, name in enumerate((*snapshots, *heads))
    ]
    found = defaultdict(list)
    for row in java.sql(world.warehouse, " UNION ALL ".join(parts)):
        found[row["place"]].append(json.loads(row["row"]))
    for place, (name, snapshot) in enumerate((*snapshots.items(), *heads.items())):
        assert snapshot is not None
        # A branch is read with the table's current schema, a snapshot with its own.
        now = metadata.schema()
        _compare(world, snapshot, found[place], now if name.startswith("'") else None, "Java")
    _drop(world)
    return Counter({"read by Java": len(parts)})


def judge_by_pyiceberg(world: World) -> Counter[str]:
    """Let PyIceberg read every retained snapshot without equality deletes, which it does not support."""
    table = _register(world)
    counts: Counter[str] = Counter()
    for snapshot in world.metadata.snapshots:
        entries = world.reference.contents(world.metadata, snapshot).entries
        if any(entry.content == EQUALITY for entry in entries):
            continue
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        _compare(world, snapshot, rows, None, "PyIceberg")
        counts["read by PyIceberg"] += 1
    _drop(world)
    return counts


def _drop(world: World) -> None:
    """Remove the table from that catalog: another catalog that contains it prevents deletions."""
    pyiceberg_catalog(world.warehouse).drop_table(TABLE)


def _register(world: World) -> Any:
    """Register the table in a catalog that others can open."""
    catalog = pyiceberg_catalog(world.warehouse)
    catalog.create_tables()
    catalog.create_namespace_if_not_exists("db")
    if catalog.table_exists(TABLE):
        catalog.drop_table(TABLE)
    return catalog.register_table(TABLE, world.location)


def _compare(
    world: World, snapshot: Snapshot, rows: Iterable[Mapping[str, Any]], schema: Any, reader: str
) -> None:
    schema = schema or schema_of(world.metadata, snapshot)
    names = {field.name: field.field_id for field in schema.fields}
    found = state_of(as_row(row, names) for row in rows)
    ids = set(names.values())
    wanted: dict[int, Row] = {
        value: frozenset(cell for cell in row if cell[0] in ids)
        for value, row in world.model.rows(snapshot.snapshot_id).items()
    }
    assert found == wanted, f"{reader} reads other rows of {snapshot.snapshot_id}"
