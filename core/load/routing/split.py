"""Read the files of a load once and write the rows of each table to temporary files.

All rows are checked here, where their file and line are known: the loads of the tables read the temporary files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    LakeError,
    NotFoundError,
    RefusedError,
    did_you_mean,
    listed_columns,
)
from lake.core.base.options import Option
from lake.core.base.progress import Meter, shown
from lake.core.data.sources.acceptance import Acceptance, BadRow, RejectedRows, ValuedRows
from lake.core.data.sources.discovery import CSV, JSON, Source, refuse_changed
from lake.core.data.sources.valued_rows import plain_type, valued_rows
from lake.core.load.ingest.options import IngestOptions, LoadRequest, Needs
from lake.core.load.ingest.rejects import RejectReport, RejectSettings, UnitRejects
from lake.core.load.ingest.source_columns import (
    FileColumns,
    columns_of_layout,
    read_file_columns,
    schema_with_columns,
)
from lake.core.load.ingest.tasks import null_check
from lake.core.load.routing.changes import change_check, log_format, with_kinds
from lake.core.load.routing.options import RouteOptions
from lake.core.load.routing.targets import ChangeColumns, KeyColumns, Target
from lake.core.load.upsert.options import UpsertOptions
from lake.core.spec.properties.table_properties import UPSERT_ENABLED
from lake.core.spec.types.type_text import type_text

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The rows of a source, divided among tables."""

    targets: Sequence[Target]
    source: FileColumns
    rows_read: int
    rejects: RejectReport


def split_source(
    session: Session,
    request: LoadRequest,
    route: RouteOptions,
    by_key: UpsertOptions | ChangeOptions | None,
    folder: str,
) -> Split:
    """Divide the rows of files among tables.

    Raises:
        BadInputError: a file cannot be read, or a row cannot be loaded and is not set aside.
        RefusedError: there are too many tables.
        InvalidRequestError: rows cannot be divided by the column.
    """
    source = read_file_columns(session, request)
    division = _Division(session, request, route, by_key, folder, source)
    with shown(session.progress, Meter(f"dividing rows by {route.column}")):
        return division.run()


class _Division:
    def __init__(
        self,
        session: Session,
        request: LoadRequest,
        route: RouteOptions,
        by_key: UpsertOptions | ChangeOptions | None,
        folder: str,
        source: FileColumns,
    ) -> None:
        self._session = session
        self._request = request
        self._options = request.options
        self._route = route
        self._by_key = by_key
        self._log = log_format(by_key)
        self._folder = folder
        self._source = source
        self._targets: dict[str, Target] = {}
        self._rows_read = 0
        # Rows of tables that cannot be loaded.
        self._rows_left = 0
        self._rejects: UnitRejects | None = None

    def run(self) -> Split:
        """Read all files."""
        settings = None
        if self._options.rejects is not None:
            settings = RejectSettings(
                folder=self._folder, name="rejects", limit=self._options.max_rejects
            )
        kinds = [self._kind(file) for file in self._source.files]
        with UnitRejects(self._source.storage, settings, Schema(), place=0, attempt="0") as rejects:
            self._rejects = rejects if settings else None
            for file, kind in zip(self._source.files, kinds, strict=True):
                if kind is not None:
                    self._read(file, kind)
        # A watch has rules of its own for such files.
        if self._request.epoch is None:
            refuse_changed(self._source.files)
        if settings is not None and rejects.count and self._request.epoch is None:
            settings.check_share(rejects.count, self._rows_read, rejects.report().example)
        divided = self._rows_left + rejects.count
        for target in self._targets.values():
            target.close(self._folder)
            divided += target.rows
        if divided != self._rows_read:
            raise LakeError(
                f"read {self._rows_read} rows but divided {divided}: nothing was committed"
            )
        return Split(
            targets=sorted(self._targets.values(), key=lambda target: target.identifier),
            source=self._source,
            rows_read=self._rows_read,
            rejects=rejects.report(),
        )

    def _kind(self, file: Source) -> pa.DataType | None:
        """Return the type as which a file's values of the column are read; None for a file without rows.

        Raises:
            InvalidRequestError: rows cannot be divided by the column.
        """
        column = self._route.column
        found = next((one for one in self._source.columns if one.file is file), None)
        if found is None:
            # No line of a text file can be read; those of a CSV file without a header do not exist.
            return pa.string() if file.format == JSON and self._options.rejects else None
        index = found.columns.get_field_index(column)
        if index < 0:
            raise InvalidRequestError(
                f"{file.path} has no column {column}, which {Option.ROUTE} names",
                hint=did_you_mean(column, found.columns.names, listed_columns(found.columns.names)),
            )
        kinds = self._log.column if self._log else column
        if found.columns.get_field_index(kinds) < 0:
            raise BadInputError(
                f"{file.path} has no column {kinds}, which must contain the row kind"
            )
        if file.format == CSV:
            return pa.string()
        kind = plain_type(found.columns.field(index).type)
        if kind is None:
            raise InvalidRequestError(
                f"column {column} of {file.path} is of type {type_text(found.columns.field(index).type)}: "
                f"{Option.ROUTE} takes a column of text, integers or Booleans"
            )
        return kind

    def _read(self, file: Source, kind: pa.DataType) -> None:
        names = self._source.schema.column_names
        rejects = self._rejects is not None
        for rows in valued_rows(
            self._source.storage, file, self._route.column, kind, names, rejects=rejects
        ):
            self._session.interrupts.checkpoint()
            self._take(rows, file)

    def _take(self, rows: ValuedRows, file: Source) -> None:
        """Give each row to its table, or set it aside."""
        self._rows_read += len(rows.values) + len(rows.unreadable)
        bad = _Bad(list(rows.unreadable))
        groups = _groups(rows.values)
        self._refuse_many(value for value, _ in groups)
        for value, indexes in groups:
            problem = self._route.problem(value)
            if problem is not None:
                bad.rows += [BadRow(int(rows.numbers[index]), problem) for index in indexes]
                continue
            target = self._target(str(value))
            if target.error is None:
                self._accept(rows, indexes, target, bad, file)
            else:
                self._rows_left += len(indexes)
        if bad.rows:
            self._refuse(rows, bad.rows, file)

    def _accept(
        self, rows: ValuedRows, indexes: Sequence[int], target: Target, bad: _Bad, file: Source
    ) -> None:
        raw = rows.part(indexes, target.schema, target.needed)
        acceptance = Acceptance(
            # check: keys-of-routed-rows
            [null_check, *target.checks],
            bad if self._rejects is not None else None,
        )
        try:
            batch = acceptance.accepted(raw, file.path)
        except BadInputError as error:
            raise type(error)(f"{target.identifier}: {error.message}", hint=error.hint) from error
        column = batch.column(batch.schema.get_field_index(self._route.column))
        if column.null_count:
            # A word of a text file that means NULL in a column of the table's type.
            numbers = np.array(raw.numbers)[column.is_null().to_numpy(zero_copy_only=False)]
            problem = self._route.problem(None) or ""
            bad.rows += [BadRow(int(number), problem) for number in numbers]
            batch = batch.filter(column.is_valid())
        if batch.num_rows:
            target.add(batch, self._folder)

    def _refuse(self, rows: ValuedRows, bad: Sequence[BadRow], file: Source) -> None:
        ordered = sorted(bad, key=lambda row: row.number)
        if self._rejects is None:
            ordered = ordered[:1]
        lines, texts = rows.locate([row.number for row in ordered])
        if self._rejects is None:
            place = "" if lines[0] is None else f", line {lines[0]}"
            raise BadInputError(
                f"{file.path}{place}: {ordered[0].reason}",
                hint=f"add {Option.REJECTS} PATH to write such rows to a file",
            )
        empty = pa.RecordBatch.from_pydict({})
        reasons = [row.reason for row in ordered]
        self._rejects.add(RejectedRows(file.path, lines, reasons, texts, empty))

    # Tables

    def _refuse_many(self, values: Iterable[str | None]) -> None:
        """Refuse more tables than allowed, before any of them is looked up."""
        new = {value for value in values if self._route.problem(value) is None}
        if len(new | self._targets.keys()) > self._route.max_tables:  # check: max-tables-of-route
            raise RefusedError(
                f"column {self._route.column} has more than {self._route.max_tables:,} values, so the rows "
                "belong to more tables than one run may load; nothing was written",
                hint=f"check {Option.ROUTE}, or raise {Option.MAX_TABLES}",
            )

    def _target(self, value: str) -> Target:
        if value not in self._targets:
            self._targets[value] = self._found_target(self._route.table(value))
        return self._targets[value]

    def _found_target(self, identifier: str) -> Target:
        number = len(self._targets)
        try:
            table = self._session.table(identifier)
        except NotFoundError as error:
            if self._options.create:
                return self._new_target(identifier, None, self._source.schema)
            missing = NotFoundError(error.message, hint=f"add {Option.CREATE} to create the table")
            return Target(identifier, number, error=missing)
        try:
            schema = self._schema_of(table)
        except (BadInputError, RefusedError) as error:
            return Target(identifier, number, table, error=error)
        return self._new_target(identifier, table, schema)

    def _new_target(self, identifier: str, table: Table | None, schema: Schema) -> Target:
        target = self._checked_target(identifier, table, schema)
        if table is not None and (needs := self._needs(table)) is not None:
            target.needed = needs.of(table.schema)
        return target

    def _needs(self, table: Table) -> Needs | None:
        """Return which columns of a table each row needs because it may replace one."""
        missing = self._options.missing
        if self._by_key is not None:
            return self._by_key.needs(missing)
        return UpsertOptions().needs(missing) if self._key_names(table) else None

    def _checked_target(self, identifier: str, table: Table | None, schema: Schema) -> Target:
        log, key = self._log, self._key(table)
        number = len(self._targets)
        if log is None:
            return Target(identifier, number, table, schema, key)
        target = Target(
            identifier,
            number,
            table,
            with_kinds(schema, log),
            key,
            changes=ChangeColumns(
                log.column, [item.name for item in schema.fields if item.required]
            ),
        )
        target.checks = [*target.checks, change_check(schema, log)]
        return target

    def _schema_of(self, table: Table) -> Schema:
        """Return the source's columns with the types of a table, and new columns with those of the source."""
        columns, names = self._source.columns, set(self._source.schema.column_names)
        full = schema_with_columns(self._session, table, columns, self._request)
        return Schema(*(item for item in full.fields if item.name in names))

    def _key(self, table: Table | None) -> KeyColumns:
        """Return the columns by which rows are compared with those of a table; none for appends."""
        by_key = self._by_key
        sequence = by_key.sequence if isinstance(by_key, UpsertOptions) else None
        return KeyColumns(self._key_names(table), sequence)

    def _key_names(self, table: Table | None) -> Sequence[str]:
        if self._by_key is not None and self._by_key.key:
            return self._by_key.key
        if table is None or (
            self._by_key is None
            and (self._options.no_upsert or not UPSERT_ENABLED.of(table.properties))
        ):
            return []
        schema = table.schema
        ids = sorted(schema.identifier_field_ids)
        return [str(schema.find_column_name(column)) for column in ids]


class _Bad:
    """Collects the rows that cannot be loaded, by their number."""

    def __init__(self, rows: list[BadRow]) -> None:
        self.rows = rows

    def add(self, rejected: RejectedRows) -> None:
        """Add rows, whose lines are their numbers: they are located with those of the other tables."""
        self.rows += [
            BadRow(int(number or 0), reason)
            for number, reason in zip(rejected.lines, rejected.reasons, strict=True)
        ]


def _groups(values: pa.StringArray) -> list[tuple[str | None, Any]]:
    """Return the distinct values, each with the positions of its rows."""
    found = values.dictionary_encode(null_encoding="encode")
    codes = found.indices.to_numpy(zero_copy_only=False)
    return [
        (value, np.flatnonzero(codes == code).tolist())
        for code, value in enumerate(found.dictionary.to_pylist())
    ]


def left_out(target: Target, options: IngestOptions) -> list[str]:
    """Return the columns that a table's load leaves out: no row has a value, and the table does not have them."""
    empty = target.empty_columns()
    if target.table is not None:
        # A column of the type unknown has no values either.
        fields = target.table.schema.fields
        known = {item.name for item in fields if not isinstance(item.field_type, UnknownType)}
    else:
        known = columns_of_layout(options, target.schema)
    return [name for name in empty if name not in known]
