"""File slices and read settings, as plain data that is sent to tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.plain import PlainData
from lake.core.data.keys.columns import key_schema
from lake.core.spec.expressions.filters import bind_filter, filter_from_plain, filter_to_plain
from lake.core.spec.properties.table_properties import NAME_MAPPING
from lake.core.spec.types.arrow_schema import (
    schema_from_plain,
    schema_to_plain,
    spec_from_plain,
    spec_to_plain,
)
from lake.core.spec.types.unsupported_columns import refuse_unsupported
from lake.core.table.manifests.data_files import DataFile, DeleteFile
from lake.core.table.manifests.entries import files_of
from lake.core.table.snapshots.delete_scopes import all_schemas

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.partitioning import PartitionSpec

    from lake.core.data.keys.row_keys import RowKeys
    from lake.core.table.catalogs.catalog import Table

BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice(PlainData):
    """A data file, or those of its row groups that begin in a byte range.

    `partition` contains single values as in `lake.core.table.manifests.data_files.DataFile`. `sequence_number` is the
    data sequence number of the file. The first `skip_rows` rows of the slice are skipped, and at most `take_rows` of
    the others are read; both count all rows of the file, including deleted ones.
    """

    path: str
    format: str = "PARQUET"
    size_bytes: int
    record_count: int
    spec_id: int
    partition: tuple[bytes | None, ...] = ()
    start: int = 0
    length: int | None = None
    skip_rows: int = 0
    take_rows: int | None = None
    sequence_number: int = 0
    first_row_id: int | None = None

    @classmethod
    def of(cls, file: DataFile, *, sequence_number: int = 0) -> FileSlice:
        """Return a slice with the whole data file."""
        return cls(
            path=file.path,
            format=file.format,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            spec_id=file.spec_id,
            partition=file.partition,
            sequence_number=sequence_number,
            first_row_id=file.first_row_id,
        )


def slices_of(entries: pa.Table, *, spec: PartitionSpec, schema: Schema) -> list[FileSlice]:
    """Return slices with the whole data files of manifest entries that share a spec.

    Args:
        entries: with the columns `sequence_number` and, if row ids are read, `first_row_id`.
        spec: their partition spec.
        schema: the schema with the spec's source columns.
    """
    files = files_of(entries, spec=spec, schema=schema)
    numbers = entries["sequence_number"].to_pylist()
    return [
        FileSlice.of(file, sequence_number=number)
        for file, number in zip(files, numbers, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How to read the files of one table.

    Args:
        projection: the columns to return.
        schema: the table's schema; the filter is bound to it.
        specs: the partition specs by id; they show which missing column has a partition's value.
        row_filter: rows to return, bound to `schema`; None for all.
        name_mapping: the table's ``schema.name-mapping.default``, for files without field ids.
        batch_bytes: the approximate maximum size of a batch.
        deletes: the delete files that may apply to the files.
        key_types: the columns that equality deletes compare, by id; None without such deletes.
        complete: whether a missing column is an error even if NULL or a default could replace it.
        keys: keys by which row groups are skipped and rows are tested. They are not part of `to_plain`'s values:
            tasks receive them as shared data, see `lake.core.engine.tasks.TaskContext`.
        dictionaries: the ids of columns of texts that may be dictionary arrays where the file has a dictionary. They
            are not part of `to_plain`'s values: a task that copies rows chooses them.
    """

    projection: Schema
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    row_filter: BooleanExpression | None = None
    name_mapping: str | None = None
    batch_bytes: int = BATCH_BYTES
    deletes: tuple[DeleteFile, ...] = ()
    key_types: Schema | None = None
    complete: bool = False
    keys: RowKeys | None = None
    dictionaries: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        schema: Schema | None = None,
        projection: Schema | None = None,
        row_filter: BooleanExpression | None = None,
        deletes: Sequence[DeleteFile] = (),
    ) -> ReadSettings:
        """Return the settings for a table.

        Args:
            table: the table.
            schema: a past schema of the table; None for the current one.
            projection: the columns to return; None for all.
            row_filter: bound to the schema.
            deletes: the delete files that may apply to the files.

        Raises:
            RefusedError: a column to return has a type that lake cannot read.
        """
        schema = table.schema if schema is None else schema
        refuse_unsupported(schema if projection is None else projection)
        ids = {column for item in deletes for column in item.equality_ids or ()}
        return cls(
            projection=schema if projection is None else projection,
            schema=schema,
            specs=table.metadata.specs(),
            row_filter=row_filter,
            name_mapping=NAME_MAPPING.of(table.properties),
            deletes=tuple(deletes),
            key_types=key_schema(ids, all_schemas(table.metadata)) if ids else None,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "projection": schema_to_plain(self.projection),
            "schema": schema_to_plain(self.schema),
            "specs": [spec_to_plain(spec) for spec in self.specs.values()],
            "row_filter": None if self.row_filter is None else filter_to_plain(self.row_filter),
            "name_mapping": self.name_mapping,
            "batch_bytes": self.batch_bytes,
            "deletes": [item.to_plain() for item in self.deletes],
            "key_types": None if self.key_types is None else schema_to_plain(self.key_types),
            "complete": self.complete,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ReadSettings:
        """Rebuild from `to_plain`'s values."""
        schema = schema_from_plain(plain["schema"])
        condition = plain["row_filter"]
        specs = [spec_from_plain(spec) for spec in plain["specs"]]
        return cls(
            projection=schema_from_plain(plain["projection"]),
            schema=schema,
            specs={spec.spec_id: spec for spec in specs},
            row_filter=None
            if condition is None
            else bind_filter(filter_from_plain(condition), schema),
            name_mapping=plain["name_mapping"],
            batch_bytes=plain["batch_bytes"],
            deletes=tuple(DeleteFile.from_plain(item) for item in plain["deletes"]),
            key_types=None if plain["key_types"] is None else schema_from_plain(plain["key_types"]),
            complete=plain["complete"],
        )
