"""The options of an upsert, and the columns that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from lake.core.base.choices import MERGES, UPSERT_MODES
from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    RefusedError,
    listed_columns,
    unknown_column,
)
from lake.core.base.options import Option
from lake.core.data.deletes.equality_coverage import check_columns, check_partitions
from lake.core.load.ingest.options import Needs
from lake.core.load.upsert.row_kinds import WRITTEN
from lake.core.spec.properties.table_properties import COPY_ON_WRITE, MERGE_MODE
from lake.core.spec.types.arrow_schema import field_path
from lake.core.spec.types.type_text import type_text

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

_ORDERED = (
    *(IntegerType, LongType, FloatType, DoubleType, DecimalType, StringType, BinaryType, DateType),
    *(TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType),
)

POSITION, EQUALITY, _ = UPSERT_MODES
# The mode of a load that deletes no rows.
NONE = "none"

DEDUPLICATE, FIRST_ROW, PARTIAL_UPDATE = MERGES


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertOptions:
    """The options of an upsert.

    Args:
        key: columns that identify rows; empty for the schema's identifier fields.
        deletes: how old rows are deleted, one of `UPSERT_MODES`; None to use the table's properties.
        order_by: of the source rows with one key, the last by these columns is used; empty for the input's order.
        repair_duplicates: if the table has several rows with one key, all of them are replaced.
        sequence: a column; a source row with a lower value than the table's row of its key is dropped.
        merge: what becomes of a source row whose key the table contains, one of `MERGES`.
        match_where: a filter; only the table's rows that it selects are compared with the source's keys.
        null_overwrites: with `PARTIAL_UPDATE`, the columns in which NULL replaces the table's value.
        changes_column: the column of a change log that contains the row kind; None if the source's rows are not
            changes. The changes of a key are applied in their order, and the last one is compared with the table.
        ignore_deletes: whether rows of kind -D are left out.
    """

    key: Sequence[str] = ()
    deletes: str | None = None
    order_by: Sequence[str] = ()
    repair_duplicates: bool = False
    sequence: str | None = None
    merge: str = DEDUPLICATE
    match_where: str | None = None
    null_overwrites: Sequence[str] = ()
    changes_column: str | None = None
    ignore_deletes: bool = False

    def __post_init__(self) -> None:
        if self.changes_column is not None:
            self._check_changes()
        if self.merge not in MERGES:
            raise InvalidRequestError(
                f"{Option.MERGE} {self.merge!r} is not one of {', '.join(MERGES)}"
            )
        if self.merge == FIRST_ROW:
            self._check_first_row()
        if self.merge == PARTIAL_UPDATE:
            self._check_partial_update()
        elif self.null_overwrites:
            raise InvalidRequestError(
                f"{Option.NULL_OVERWRITES} needs {Option.MERGE} {PARTIAL_UPDATE}"
            )
        if self.deletes == EQUALITY and (self.sequence or self.match_where):
            option = Option.SEQUENCE if self.sequence else Option.MATCH_WHERE
            raise InvalidRequestError(
                f"{option} and {Option.DELETES} {EQUALITY} contradict each other: equality deletes are written "
                "without reading the table's rows",
                hint=f"use {Option.DELETES} {POSITION} or {COPY_ON_WRITE}",
            )
        if self.deletes not in {None, *UPSERT_MODES}:
            raise InvalidRequestError(
                f"{Option.DELETES} {self.deletes!r} is not one of {', '.join(UPSERT_MODES)}"
            )

    def needs(self, missing: str | None) -> Needs | None:
        """Return which columns of the table the source must have.

        Args:
            missing: `IngestOptions.missing`.

        Raises:
            InvalidRequestError: missing columns are to be set although rows are merged column by column.
        """
        if self.merge == PARTIAL_UPDATE:
            if missing is not None:
                raise InvalidRequestError(
                    f"{Option.MERGE} {PARTIAL_UPDATE} and {Option.MISSING} {missing} contradict each other: the "
                    "first keeps the table's values of missing columns"
                )
            own = self.null_overwrites
            return Needs(columns=own, key=self.key, sequence=self.sequence) if own else None
        if missing is not None or self.merge == FIRST_ROW:
            return None
        kinds = () if self.changes_column is None else WRITTEN
        return Needs(
            key=self.key, sequence=self.sequence, kinds=self.changes_column, whole_kinds=kinds
        )

    def _check_changes(self) -> None:
        if self.deletes not in {POSITION, COPY_ON_WRITE}:
            raise InvalidRequestError(
                f"{Option.CHANGES_COLUMN} needs {Option.DELETES} {POSITION} or {COPY_ON_WRITE} if the table's rows "
                "are read"
            )
        if self.merge != DEDUPLICATE or self.order_by:
            option = Option.ORDER_BY if self.order_by else Option.MERGE
            raise InvalidRequestError(
                f"{Option.CHANGES_COLUMN} and {option} contradict each other: the changes of a key are applied in "
                "their order"
            )

    def _check_partial_update(self) -> None:
        if self.repair_duplicates:
            raise InvalidRequestError(
                f"{Option.MERGE} {PARTIAL_UPDATE} and {Option.REPAIR_DUPLICATES} contradict each other: "
                "of several rows with one key, none is known to have the values to keep"
            )
        if self.deletes == EQUALITY:
            raise InvalidRequestError(
                f"{Option.MERGE} {PARTIAL_UPDATE} and {Option.DELETES} {EQUALITY} contradict each other: equality "
                "deletes are written without reading the table's rows",
                hint=f"use {Option.DELETES} {POSITION} or {COPY_ON_WRITE}",
            )

    def _check_first_row(self) -> None:
        given = {
            Option.DELETES: self.deletes,
            Option.SEQUENCE: self.sequence,
            Option.REPAIR_DUPLICATES: self.repair_duplicates,
        }
        for option, value in given.items():
            if value:
                raise InvalidRequestError(
                    f"{Option.MERGE} {FIRST_ROW} and {option} contradict each other: no row of the table is replaced"
                )


def deletes_of(properties: Mapping[str, str], requested: str | None) -> str:
    """Return how an upsert deletes old rows: as requested, else as the table's properties say.

    Raises:
        InvalidRequestError: the property has a value that is not allowed.
    """
    if requested is not None:
        return requested
    return COPY_ON_WRITE if MERGE_MODE.of(properties) == COPY_ON_WRITE else POSITION


def unwanted_deletes(properties: Mapping[str, str], deletes: str) -> str | None:
    """Return a warning if delete files are written although the table's properties request copy-on-write."""
    if deletes in {COPY_ON_WRITE, NONE} or MERGE_MODE.of(properties) != COPY_ON_WRITE:
        return None
    return f"the table property {MERGE_MODE.name} is {COPY_ON_WRITE}, but this command writes {deletes} deletes"


def key_ids(schema: Schema, names: Sequence[str], option: Option = Option.UPSERT) -> list[int]:
    """Return the ids of the key's columns: the named ones, or the schema's identifier fields.

    Raises:
        InvalidRequestError: there are no names and no identifier fields.
        NotFoundError: there is no such column.
        BadInputError: a column cannot be part of a key.
    """
    ids = column_ids(schema, names) if names else sorted(schema.identifier_field_ids)
    if not ids:
        raise InvalidRequestError(
            f"{option} requires {Option.KEY}: the table's schema has no identifier fields",
            hint=f"name the columns that identify a row; {listed_columns([one.name for one in schema.fields])}",
        )
    for column in ids:
        name, type_ = schema.find_column_name(column), schema.find_type(column)
        if not type_.is_primitive or field_path(schema, column) is None:
            raise BadInputError(
                f"column {name} has type {type_text(type_)}, which cannot be part of a key"
            )
    return ids


def sequence_id(schema: Schema, name: str) -> int:
    """Return the id of the column by which rows with one key are ordered.

    Raises:
        NotFoundError: there is no such column.
        InvalidRequestError: it is in a struct, or its values have no order.
    """
    (column,) = column_ids(schema, [name])
    if column not in {field.field_id for field in schema.fields}:
        raise InvalidRequestError(f"{Option.SEQUENCE} {name}: the column is part of another column")
    type_ = schema.find_type(column)
    if not isinstance(type_, _ORDERED):
        raise InvalidRequestError(
            f"{Option.SEQUENCE} {name}: rows cannot be ordered by a column of type {type_}"
        )
    return column


def column_ids(schema: Schema, names: Sequence[str]) -> list[int]:
    """Return the ids of columns.

    Raises:
        NotFoundError: there is no such column.
    """
    ids = []
    for name in names:
        try:
            ids.append(schema.find_field(name).field_id)
        except ValueError as error:
            raise unknown_column(name, [field.name for field in schema.fields]) from error
    return ids


def check_mode(
    mode: str, *, format_version: int, schema: Schema, spec: PartitionSpec, key: Sequence[int]
) -> None:
    """Refuse a mode that cannot delete the table's old rows.

    Raises:
        RefusedError: the format version has no delete files, or an equality delete would miss old rows.
    """
    if format_version < 2 and mode not in {COPY_ON_WRITE, NONE}:  # noqa: PLR2004 - the format's number
        raise RefusedError(
            "a table with format version 1 cannot have delete files",
            hint=f"use {Option.DELETES} copy-on-write",
        )
    if mode != EQUALITY:
        return
    hint = f"{Option.DELETES} {POSITION}"
    check_columns(schema, key, hint=f"use {hint}")
    check_partitions(schema, spec, key, hint=hint)
