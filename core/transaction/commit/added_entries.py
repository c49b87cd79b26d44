"""Convert the files that a commit adds into tables of manifest entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base.errors import BadInputError, RefusedError
from lake.core.spec.types.single_values import (
    partition_struct,
    searched_schemas,
    stored_partition_type,
)
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.manifests.entries import entries_of
from lake.core.table.manifests.schemas import ADDED, ENTRY_COLUMNS
from lake.core.transaction.commit.operations import EntryTable, Files

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.metadata import TableMetadata

# Columns that are inherited from the snapshot and the manifest list that add the file.
_INHERITED = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")


def entry_tables(files: Files, metadata: TableMetadata) -> list[EntryTable]:
    """Return files as added entries without inherited values: one table for each spec, ordered by spec id.

    Raises:
        BadInputError: the table does not have such a spec.
        RefusedError: a file is encrypted.
    """
    tables: dict[int, list[pa.Table]] = {}
    for part in _as_tables(files, metadata):
        tables.setdefault(part.spec_id, []).append(_without_inherited(part, metadata))
    return [EntryTable(spec_id, pa.concat_tables(tables[spec_id])) for spec_id in sorted(tables)]


def _as_tables(files: Files, metadata: TableMetadata) -> Iterator[EntryTable]:
    single: dict[int, list[DataFile]] = {}
    for file in files:
        if isinstance(file, DataFile):
            single.setdefault(file.spec_id, []).append(file)
        elif file.entries.num_rows:
            yield file
    schema, *older = searched_schemas(metadata)
    for spec_id, group in single.items():
        spec = _spec(metadata, spec_id)
        entries = entries_of(
            group, spec=spec, schema=schema, older=older, status=ADDED, snapshot_id=None
        )
        yield EntryTable(spec_id, entries)


def _without_inherited(files: EntryTable, metadata: TableMetadata) -> pa.Table:
    entries, spec = files.entries, _spec(metadata, files.spec_id)
    if entries["key_metadata"].null_count < entries.num_rows:
        raise RefusedError("some of the files are encrypted, which lake does not write")
    columns = {name: entries[name] for name in ENTRY_COLUMNS}
    columns |= {name: pa.nulls(entries.num_rows, ENTRY_COLUMNS[name]) for name in _INHERITED}
    columns["status"] = pa.repeat(pa.scalar(ADDED, pa.int32()), entries.num_rows)
    struct_type = stored_partition_type(spec, metadata.schema(), columns["partition"].type)
    if struct_type.fields:
        columns["partition"] = columns["partition"].cast(partition_struct(struct_type))
    return pa.table(columns)


def _spec(metadata: TableMetadata, spec_id: int) -> PartitionSpec:
    spec = metadata.specs().get(spec_id)
    if spec is None:
        raise BadInputError(f"the table has no partition spec {spec_id}")
    return spec
