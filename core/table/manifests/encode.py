"""Encode Arrow tables as manifests and manifest lists, and compute a manifest's row in the list.

Format: https://iceberg.apache.org/spec/#manifests and #manifest-lists; the header entries match
those of Iceberg Java 1.11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError
from lake.core.io.avro.codecs import codec_of_manifests
from lake.core.io.avro.container import write_container
from lake.core.io.avro.encode import blocks_of, encode_records, encode_rows
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.spec.types.single_values import (
    arrow_type,
    bounds,
    partition_struct,
    stored_partition_type,
    struct_array,
)
from lake.core.table.manifests.schemas import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    MANIFEST_COLUMNS,
    ManifestLayout,
    entry_layout,
    manifest_layout,
    spec_json,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

# The value that Iceberg Java writes: readers of version 1 ignore it.
_BLOCK_SIZE = 64 * 1024 * 1024
_CONTENTS = ("data", "deletes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestListHeader:
    """The header of a manifest list, which describes its snapshot.

    Args:
        format_version: 1, 2 or 3.
        snapshot_id: the snapshot of the list.
        parent_snapshot_id: the snapshot's parent.
        sequence_number: the snapshot's sequence number; not written in version 1.
        first_row_id: the snapshot's first row id, in version 3; the manifests already have theirs.
    """

    format_version: int
    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    first_row_id: int | None = None

    def entries(self) -> dict[str, str]:
        """Return the Avro file's metadata."""
        version, parent_id = self.format_version, self.parent_snapshot_id
        entries = {
            "format-version": str(version),
            "snapshot-id": str(self.snapshot_id),
            "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
            "iceberg.schema": manifest_layout(version).iceberg_json,
        }
        if version > 1:
            entries["sequence-number"] = str(self.sequence_number)
        if version >= ROW_LINEAGE_SINCE:
            row_id = self.first_row_id
            entries["first-row-id"] = "null" if row_id is None else str(row_id)
        return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestContext:
    """What all entries of a manifest have in common, and the compression of its file.

    Args:
        format_version: 1, 2 or 3.
        spec: the partition spec.
        schema: the table's schema.
        content: 0 for data files, 1 for delete files.
        codec: Iceberg's name of the compression codec.
        level: the codec's level; None for its default.
    """

    format_version: int
    spec: PartitionSpec
    schema: Schema
    content: int
    codec: str = "gzip"
    level: int | None = None

    @classmethod
    def of(cls, metadata: TableMetadata, spec_id: int, content: int) -> ManifestContext:
        """Return the context of new manifests of a table, with the compression that its properties set."""
        codec, level = codec_of_manifests(metadata.properties)
        return cls(
            format_version=metadata.format_version,
            spec=metadata.specs()[spec_id],
            schema=metadata.schema(),
            content=content,
            codec=codec,
            level=level,
        )


def encode_manifest_list(manifests: pa.Table, header: ManifestListHeader) -> bytes:
    """Return a manifest list's bytes.

    Args:
        manifests: the rows, `MANIFEST_COLUMNS`.
        header: the snapshot of the list.

    Raises:
        ValueError: a row lacks a value that the version requires.
        BadInputError: a row is a delete manifest, and the version is 1.
    """
    version = header.format_version
    if version == 1 and pc.any(pc.not_equal(manifests["content"], 0), min_count=0).as_py():
        raise BadInputError(
            "the table has format version 1, which does not have delete files, but lists some"
        )
    layout = manifest_layout(version)
    rows = pa.table({name: manifests[name].cast(MANIFEST_COLUMNS[name]) for name in layout.columns})
    return write_container(
        layout.avro, encode_records(layout.avro, rows), metadata=header.entries(), codec="gzip"
    )


def encode_manifest(
    entries: pa.Table, context: ManifestContext, *, marks: Mapping[str, str] | None = None
) -> bytes:
    """Return a manifest's bytes; nulls are kept, to be inherited.

    Args:
        entries: `ENTRY_COLUMNS`; further columns are ignored.
        context: what the entries have in common.
        marks: additional entries for the Avro file's metadata.

    Raises:
        ValueError: an entry lacks a value that the version requires, or does not match the manifest's
            content.
    """
    partition = entries.schema.field("partition").type
    return pack_manifest(encode_entries(entries, context), partition, context, marks=marks)


def encode_entries(entries: pa.Table, context: ManifestContext) -> Iterator[pa.LargeBinaryArray]:
    """Encode entries as records of a manifest, one value each, in several arrays; see `encode_manifest`.

    Raises:
        ValueError: an entry lacks a value that the version requires, or does not match the manifest's
            content.
    """
    _check_entries(entries, context.format_version, context.content)
    partition, layout = _layout(entries.schema.field("partition").type, context)
    yield from encode_rows(layout.avro, _nested(entries, partition, layout))


def pack_manifest(
    records: Iterable[pa.LargeBinaryArray],
    partition: pa.StructType,
    context: ManifestContext,
    *,
    marks: Mapping[str, str] | None = None,
) -> bytes:
    """Return the bytes of a manifest of encoded entries.

    Args:
        records: the entries, as `encode_entries` returns them for the same context and type of partitions.
        partition: the type of the column ``partition``.
        context: what the entries have in common.
        marks: additional entries for the Avro file's metadata.
    """
    version, spec, schema = context.format_version, context.spec, context.schema
    _, layout = _layout(partition, context)
    header = {
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": spec_json(spec.fields),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(version),
        "iceberg.schema": layout.iceberg_json,
        **(marks or {}),
    }
    if version > 1:
        header["content"] = _CONTENTS[context.content]
    blocks = (block for some in records for block in blocks_of(some))
    return write_container(
        layout.avro, blocks, metadata=header, codec=context.codec, level=context.level
    )


def _layout(
    partition: pa.StructType, context: ManifestContext
) -> tuple[StructType, ManifestLayout]:
    """Return the partition struct of the entries, and the layout of their records."""
    struct_type = stored_partition_type(context.spec, context.schema, partition)
    return struct_type, entry_layout(struct_type, context.format_version)


def _check_entries(entries: pa.Table, format_version: int, content: int) -> None:
    if format_version == 1 and content:
        raise ValueError("a delete manifest in format version 1")
    status, sequence = entries["status"], entries["sequence_number"]
    problems = {
        "of unknown status": pc.invert(pc.is_in(status, pa.array([EXISTING, ADDED, DELETED]))),
        "whose content does not match the manifest's": pc.not_equal(
            pc.greater(entries["content"], 0), bool(content)
        ),
    }
    if format_version > 1:
        problems["that inherits a sequence number but is not added"] = pc.and_(
            pc.is_null(sequence), pc.not_equal(status, ADDED)
        )
        problems["with an unassigned sequence number"] = pc.less(sequence, 0)
    for problem, bad in problems.items():
        if pc.any(bad, min_count=0).as_py():
            raise ValueError(f"an entry {problem}")


def describe_manifest(
    entries: pa.Table,
    context: ManifestContext,
    *,
    location: str,
    length: int,
    sequence_number: int,
    added_snapshot_id: int,
) -> dict[str, Any]:
    """Return a manifest's row for the manifest list (`MANIFEST_COLUMNS`).

    Args:
        entries: the entries given to `encode_manifest`.
        context: the context given to `encode_manifest`.
        location: the manifest's location.
        length: its length in bytes.
        sequence_number: the snapshot's sequence number; entries without a number inherit it.
        added_snapshot_id: the snapshot that adds the manifest.
    """
    status = entries["status"]
    row: dict[str, Any] = dict.fromkeys(MANIFEST_COLUMNS)
    row |= {
        "manifest_path": location,
        "manifest_length": length,
        "partition_spec_id": context.spec.spec_id,
        "content": context.content,
        "sequence_number": sequence_number,
        "min_sequence_number": _lowest_sequence(entries, sequence_number),
        "added_snapshot_id": added_snapshot_id,
        "partitions": _summaries(entries, context.spec, context.schema),
    }
    for code, name in ((ADDED, "added"), (EXISTING, "existing"), (DELETED, "deleted")):
        rows = entries["record_count"].filter(pc.equal(status, code))
        row[f"{name}_files_count"] = len(rows)
        row[f"{name}_rows_count"] = pc.sum(rows, min_count=0).as_py()
    return row


def _lowest_sequence(entries: pa.Table, sequence_number: int) -> int:
    live = entries["sequence_number"].filter(pc.not_equal(entries["status"], DELETED))
    lowest = pc.min(live.fill_null(sequence_number)).as_py()
    return sequence_number if lowest is None else int(lowest)


def _summaries(entries: pa.Table, spec: PartitionSpec, schema: Schema) -> list[dict[str, Any]]:
    partition = one_array(entries["partition"])
    struct_type = stored_partition_type(spec, schema, partition.type)
    children = _children(partition, struct_type)
    return [
        bounds(child, field.field_type)
        for child, field in zip(children, struct_type.fields, strict=True)
    ]


def _children(partition: pa.Array, struct_type: StructType) -> list[pa.Array]:
    """Return the children of a partition struct in the spec's order."""
    flat = dict(zip([field.name for field in partition.type], partition.flatten(), strict=True))
    children = []
    for field in struct_type.fields:
        name, target = str(field.field_id), arrow_type(field.field_type)
        child = flat[name] if name in flat else pa.nulls(len(partition), target)
        children.append(child.cast(target))
    return children


def _nested(entries: pa.Table, partition: StructType, layout: ManifestLayout) -> pa.Table:
    """Return the entries as manifest records, with the data file as a struct."""
    rows = entries.num_rows
    columns = {name: _column(entries, name, partition) for name in layout.columns}
    record = {field["name"]: field for field in layout.avro["fields"]}
    stored = [field["name"] for field in record["data_file"]["type"]["fields"]]
    # Version 1 requires a block size, which no reader uses.
    columns["block_size_in_bytes"] = pa.repeat(pa.scalar(_BLOCK_SIZE, pa.int64()), rows)
    inner = {name: columns[name] for name in stored}
    struct_type = pa.struct([(name, column.type) for name, column in inner.items()])
    columns["data_file"] = struct_array(list(inner.values()), struct_type, rows)
    return pa.table({name: columns[name] for name in record})


def _column(entries: pa.Table, name: str, partition: StructType) -> pa.Array:
    column = one_array(entries[name])
    if name == "partition":
        return struct_array(_children(column, partition), partition_struct(partition), len(column))
    return column.cast(ENTRY_COLUMNS[name])
