"""Numbers in table metadata that do not fit the types that the specification gives them.

PyIceberg reads integers of any size. Source: https://iceberg.apache.org/spec/#table-metadata-fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lake.core.spec.types.arrow_schema import parts_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
    from pyiceberg.types import NestedField

_INT, _LONG = range(-(2**31), 2**31), range(-(2**63), 2**63)
# A counter below its type's greatest number: a commit takes the following one.
_COUNTER = range(2**63 - 1)
_FIELD_ID = range(2**31)
# The members of snapshots and of their log with the narrowest of the ranges that their numbers have.
_OF_LOG = {"snapshot_id": _COUNTER, "timestamp_ms": _COUNTER}
_OF_SNAPSHOTS = {
    **_OF_LOG,
    **dict.fromkeys(("parent_snapshot_id", "sequence_number"), _COUNTER),
    "schema_id": range(2**31),
    **dict.fromkeys(("first_row_id", "added_rows"), _COUNTER),
}


def out_of_range(metadata: TableMetadata) -> Iterator[tuple[str, str]]:
    """Yield the place and a description of each number that is out of its range."""
    for place, value, allowed in _numbers(metadata):
        if value is not None and value not in allowed:
            yield place, f"{value} is not between {allowed[0]} and {allowed[-1]}"


_Number = tuple[str, int | None, range]


def _numbers(metadata: TableMetadata) -> Iterator[_Number]:
    yield "last-sequence-number", getattr(metadata, "last_sequence_number", None), _COUNTER
    yield "next-row-id", getattr(metadata, "next_row_id", None), _COUNTER
    yield "last-updated-ms", metadata.last_updated_ms, _LONG
    yield "last-column-id", metadata.last_column_id, _FIELD_ID
    yield "last-partition-id", metadata.last_partition_id, _FIELD_ID
    yield "current-snapshot-id", metadata.current_snapshot_id, _LONG
    yield "current-schema-id", metadata.current_schema_id, _INT
    yield "default-spec-id", metadata.default_spec_id, _INT
    yield "default-sort-order-id", metadata.default_sort_order_id, _INT
    for snapshot in () if _all_fit(metadata.snapshots, _OF_SNAPSHOTS) else metadata.snapshots:
        yield from _of_snapshot(snapshot)
    for schema in metadata.schemas:
        place = f"schema {schema.schema_id}"
        yield place, schema.schema_id, _INT
        for number in _field_ids(schema.fields):
            yield f"{place}, a column", number, _FIELD_ID
    for spec in metadata.partition_specs:
        place = f"partition spec {spec.spec_id}"
        yield place, spec.spec_id, _INT
        for field in spec.fields:
            yield f"{place}, field {field.name}", field.field_id, _FIELD_ID
            yield f"{place}, field {field.name}", field.source_id, _FIELD_ID
    for order in metadata.sort_orders:
        place = f"sort order {order.order_id}"
        yield place, order.order_id, _INT
        for item in order.fields:
            yield place, item.source_id, _FIELD_ID
    for name, ref in metadata.refs.items():
        ages = (ref.max_ref_age_ms, ref.max_snapshot_age_ms)
        yield from ((f"ref {name}", number, _LONG) for number in (ref.snapshot_id, *ages))
        yield f"ref {name}", ref.min_snapshots_to_keep, _INT
    for entry in () if _all_fit(metadata.snapshot_log, _OF_LOG) else metadata.snapshot_log:
        yield "snapshot-log", entry.snapshot_id, _LONG
        yield "snapshot-log", entry.timestamp_ms, _LONG
    for earlier in metadata.metadata_log:
        yield "metadata-log", earlier.timestamp_ms, _LONG
    for file in (*metadata.statistics, *metadata.partition_statistics):
        yield "statistics", file.snapshot_id, _LONG
        yield "statistics", file.file_size_in_bytes, _LONG


def _all_fit(
    items: Sequence[Snapshot] | Sequence[SnapshotLogEntry], ranges: Mapping[str, range]
) -> bool:
    """Whether all numbers are certainly in their ranges: of many items, to look at each alone would cost."""
    for name, allowed in ranges.items():
        numbers = {getattr(item, name) for item in items}
        numbers.discard(None)
        if numbers and not (min(numbers) in allowed and max(numbers) in allowed):
            return False
    return True


def _of_snapshot(snapshot: Snapshot) -> Iterator[_Number]:
    place = f"snapshot {snapshot.snapshot_id}"
    yield place, snapshot.snapshot_id, _LONG
    yield f"{place}, parent", snapshot.parent_snapshot_id, _LONG
    yield f"{place}, sequence-number", snapshot.sequence_number, _COUNTER
    yield f"{place}, timestamp-ms", snapshot.timestamp_ms, _LONG
    yield f"{place}, schema-id", snapshot.schema_id, _INT
    yield f"{place}, first-row-id", snapshot.first_row_id, _COUNTER
    yield f"{place}, added-rows", snapshot.added_rows, _COUNTER


def _field_ids(fields: Sequence[NestedField]) -> Iterator[int]:
    for item in fields:
        yield item.field_id
        yield from _field_ids(parts_of(item.field_type))
