"""What a table's metadata contradicts in itself; only the metadata is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyiceberg.transforms import VoidTransform
from pyiceberg.types import ListType, MapType, NestedField, StructType, UnknownType

from lake.core.base.errors import LakeError
from lake.core.data.columns.type_promotion import promotable
from lake.core.maintain.checking.findings import Finding
from lake.core.spec.types.arrow_schema import arrow_type
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.table.snapshots.ancestry import MAIN, is_restored, snapshots_by_id

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

# Clocks of writers differ; Iceberg Java accepts the same difference in the logs.
_MINUTE_MS = 60_000
_PARTITION_IDS = 1000


def table_findings(metadata: TableMetadata) -> Iterator[Finding]:
    """Check refs, snapshots, logs, schemas, partition specs, sort orders and row ids."""
    yield from _refs(metadata)
    yield from _snapshots(metadata)
    yield from _parents(metadata)
    yield from _logs(metadata)
    yield from _ids(metadata)
    yield from _fields(metadata)
    yield from _partition_names(metadata)
    yield from _sources(metadata)
    yield from _row_ids(metadata)


def incompatible(old: Schema, new: Schema) -> Iterator[str]:
    """Yield messages about columns of one id whose types in two schemas cannot be promoted to each other."""
    types = {item.field_id: item for item in fields_of(new.fields)}
    for item in fields_of(old.fields):
        other = types.get(item.field_id)
        if other is None or _related(item.field_type, other.field_type):
            continue
        yield (
            f"the id {item.field_id} is that of the column {item.name} ({_name(item.field_type)}) and of the "
            f"column {other.name} ({_name(other.field_type)})"
        )


def fields_of(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    """Yield fields and all fields inside them."""
    for item in fields:
        yield item
        kind = item.field_type
        if isinstance(kind, StructType):
            yield from fields_of(kind.fields)
        elif isinstance(kind, ListType):
            yield from fields_of((kind.element_field,))
        elif isinstance(kind, MapType):
            yield from fields_of((kind.key_field, kind.value_field))


def _refs(metadata: TableMetadata) -> Iterator[Finding]:
    known = snapshots_by_id(metadata)
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id not in known:
            yield Finding("R001", name, f"snapshot {ref.snapshot_id} does not exist")
    main = metadata.refs.get(MAIN)
    current = metadata.current_snapshot_id
    if main is not None and main.snapshot_id != current:
        text = f"its snapshot is {main.snapshot_id}, the table's current snapshot is {current}"
        yield Finding("R004", MAIN, text)
    elif main is not None and main.snapshot_ref_type != "branch":
        yield Finding("R004", MAIN, "it is not a branch")


def _snapshots(metadata: TableMetadata) -> Iterator[Finding]:
    schemas = {item.schema_id for item in metadata.schemas}
    newest = getattr(metadata, "last_sequence_number", 0)
    owners: dict[int, int] = {}
    for snapshot in metadata.snapshots:
        place = f"snapshot {snapshot.snapshot_id}"
        if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
            yield Finding("R002", place, f"schema {snapshot.schema_id} does not exist")
        number = snapshot.sequence_number or 0
        if number > newest:
            text = f"sequence number {number} is above the table's, {newest}"
            yield Finding("R003", place, text)
        if number and owners.setdefault(number, snapshot.snapshot_id) != snapshot.snapshot_id:
            text = f"it has the sequence number {number} of snapshot {owners[number]}"
            yield Finding("R007", place, text)


def _parents(metadata: TableMetadata) -> Iterator[Finding]:
    by_id = snapshots_by_id(metadata)
    numbers = {item.sequence_number or 0 for item in metadata.snapshots}
    for snapshot in metadata.snapshots:
        place = f"snapshot {snapshot.snapshot_id}"
        if snapshot.parent_snapshot_id is None:
            continue
        parent = by_id.get(snapshot.parent_snapshot_id)
        own = snapshot.sequence_number or 0
        if parent is None:
            # If snapshots expired, their sequence numbers are missing. Those of version 1 have none.
            if own > 1 and numbers.issuperset(range(1, own)):
                text = f"its parent {snapshot.parent_snapshot_id} does not exist, and no snapshot expired"
                yield Finding("R006", place, text)
            continue
        if is_restored(parent):
            continue
        if own and parent is not snapshot and (parent.sequence_number or 0) > own:
            text = f"its sequence number {own} is below that of its parent {parent.snapshot_id}"
            yield Finding("R007", place, text)
        if parent.timestamp_ms - snapshot.timestamp_ms > _MINUTE_MS:
            text = f"it is older than its parent {parent.snapshot_id}"
            yield Finding("R008", place, text)
    for snapshot_id in _in_cycles({key: item.parent_snapshot_id for key, item in by_id.items()}):
        yield Finding("R005", f"snapshot {snapshot_id}", "it is its own ancestor")


def _in_cycles(parents: dict[int, int | None]) -> list[int]:
    """Return one snapshot of each cycle of parents."""
    seen: dict[int, int] = {}
    found = []
    for walk, start in enumerate(parents):
        at: int | None = start
        while at in parents and at not in seen:
            seen[at] = walk
            at = parents[at]
        if at in parents and seen[at] == walk:
            found.append(at)
    return found


def _logs(metadata: TableMetadata) -> Iterator[Finding]:
    for name, log in (
        ("snapshot-log", metadata.snapshot_log),
        ("metadata-log", metadata.metadata_log),
    ):
        times = [item.timestamp_ms for item in log]
        if any(later - earlier < -_MINUTE_MS for earlier, later in pairwise(times)):
            yield Finding("G001", name, "its times are not in order")
        elif times and metadata.last_updated_ms - times[-1] < -_MINUTE_MS:
            yield Finding("G001", name, "it ends after last-updated-ms")


def _ids(metadata: TableMetadata) -> Iterator[Finding]:
    """Check that ids are unique, and that those of the next objects are free."""
    for name, ids in (
        ("schemas", [item.schema_id for item in metadata.schemas]),
        ("partition-specs", [item.spec_id for item in metadata.partition_specs]),
        ("sort-orders", [item.order_id for item in metadata.sort_orders]),
    ):
        for number in _repeated(ids):
            yield Finding("C001", name, f"two have the id {number}")
    fields = [item for schema in metadata.schemas for item in fields_of(schema.fields)]
    highest = max((item.field_id for item in fields), default=0)
    if metadata.last_column_id < highest:
        text = f"it is {metadata.last_column_id}, but a column has the id {highest}"
        yield Finding("C003", "last-column-id", text)
    ids = [item.field_id for spec in metadata.partition_specs for item in spec.fields]
    highest = max(ids, default=0)
    last = metadata.last_partition_id
    if last is not None and last < highest and highest >= _PARTITION_IDS:
        text = f"it is {last}, but a partition field has the id {highest}"
        yield Finding("C004", "last-partition-id", text)


def _fields(metadata: TableMetadata) -> Iterator[Finding]:
    for schema in metadata.schemas:
        place = f"schema {schema.schema_id}"
        fields = list(fields_of(schema.fields))
        for number in _repeated([item.field_id for item in fields]):
            yield Finding("C002", place, f"two columns have the id {number}")
        for name in _repeated([item.name for item in schema.fields]):
            yield Finding("C002", place, f"two columns have the name {name}")
    # A replaced table may give ids to columns of other types: only what its branches contain matters.
    by_id = {item.schema_id: item for item in metadata.schemas}
    current = metadata.schema()
    used = dict.fromkeys(_schemas_in_use(metadata))
    for number in used:
        if number in by_id and number != current.schema_id:
            for message in incompatible(by_id[number], current):
                yield Finding("C005", f"schema {number}", message)
    yield from _returned(metadata)


def _schemas_in_use(metadata: TableMetadata) -> Iterator[int]:
    """Yield the schemas of the snapshots from which the branches descend."""
    by_id = snapshots_by_id(metadata)
    seen: set[int] = set()
    for ref in metadata.refs.values():
        at = ref.snapshot_id if ref.snapshot_ref_type == "branch" else None
        while at in by_id and at not in seen:
            seen.add(at)
            number = by_id[at].schema_id
            if number is not None:
                yield number
            at = by_id[at].parent_snapshot_id


def _returned(metadata: TableMetadata) -> Iterator[Finding]:
    """Find ids that a schema lacks between two schemas in which they have different names."""
    schemas = sorted(metadata.schemas, key=lambda item: item.schema_id)
    last: dict[int, tuple[int, str]] = {}
    for index, schema in enumerate(schemas):
        for item in fields_of(schema.fields):
            before, name = last.get(item.field_id, (index, item.name))
            if before < index - 1 and name != item.name:
                text = f"the id {item.field_id} of the column {item.name} was that of the column {name}"
                yield Finding("C005", f"schema {schema.schema_id}", text)
            last[item.field_id] = index, item.name


def _partition_names(metadata: TableMetadata) -> Iterator[Finding]:
    """Compare the names of partition fields with those of columns: engines bind all specs to the current schema."""
    schema = metadata.schema()
    names = {schema.find_column_name(number): number for number in schema.field_ids}
    for spec in metadata.partition_specs:
        for field in spec.fields:
            # A field whose column was dropped is not compared.
            known = schema.find_column_name(field.source_id) is not None
            if known and names.get(field.name, field.source_id) != field.source_id:
                text = f"its field {field.name} has the name of a column that is not its source"
                yield Finding("C007", f"partition spec {spec.spec_id}", text)


def _sources(metadata: TableMetadata) -> Iterator[Finding]:
    """Check that the columns exist on which the current spec, sort order and schema depend."""
    schema = metadata.schema()
    known = {item.field_id for item in fields_of(schema.fields)}
    spec = metadata.specs()[metadata.default_spec_id]
    for field in spec.fields:
        if field.source_id not in known and not isinstance(field.transform, VoidTransform):
            text = f"{field.name} is of the column {field.source_id}, which does not exist"
            yield Finding("C006", f"partition spec {spec.spec_id}", text)
    orders = {item.order_id: item for item in metadata.sort_orders}
    order = orders.get(metadata.default_sort_order_id)
    if order is None:
        text = f"sort order {metadata.default_sort_order_id} does not exist"
        yield Finding("C006", "default-sort-order-id", text)
    else:
        for item in order.fields:
            if item.source_id not in known:
                text = f"it sorts by the column {item.source_id}, which does not exist"
                yield Finding("C006", f"sort order {order.order_id}", text)
    for number in schema.identifier_field_ids:
        if number not in known:
            text = f"the identifier column {number} does not exist"
            yield Finding("C006", f"schema {schema.schema_id}", text)


def _row_ids(metadata: TableMetadata) -> Iterator[Finding]:
    """Check the ranges of row ids that snapshots of format version 3 reserve."""
    if metadata.format_version < ROW_LINEAGE_SINCE:
        return
    ranges = sorted(
        (item.first_row_id, item.added_rows or 0, item.snapshot_id)
        for item in metadata.snapshots
        if item.first_row_id is not None
    )
    following = getattr(metadata, "next_row_id", None)
    if following is None:
        if ranges:
            yield Finding("N001", "next-row-id", "it is missing")
        return
    for first, rows, snapshot_id in ranges:
        if first + rows > following:
            text = f"its row ids end at {first + rows}, the table's next row id is {following}"
            yield Finding("N001", f"snapshot {snapshot_id}", text)
    for (first, rows, one), (start, _, other) in pairwise([item for item in ranges if item[1]]):
        if start < first + rows:
            text = f"its row ids from {start} on are also those of snapshot {one}"
            yield Finding("N002", f"snapshot {other}", text)


def _related(one: IcebergType, other: IcebergType) -> bool:
    """Whether values of one of two types can be read as the other."""
    if one == other or UnknownType() in {one, other}:
        return True
    if not one.is_primitive or not other.is_primitive:
        return type(one) is type(other)
    try:
        return promotable(arrow_type(one), other) or promotable(arrow_type(other), one)
    except LakeError:
        return True


def _name(kind: IcebergType) -> str:
    return str(kind) if kind.is_primitive else type(kind).__name__.removesuffix("Type").lower()


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]
