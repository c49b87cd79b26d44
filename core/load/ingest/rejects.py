"""Set aside the rows that a load does not take: in temporary files of the tasks, then in one file of the user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lake.core.base import locations
from lake.core.base.choices import EXPORT_FORMATS
from lake.core.base.errors import BadInputError, CommitUnknownError, InvalidRequestError, LakeError
from lake.core.base.options import Option, quote_options
from lake.core.base.plain import PlainData
from lake.core.data.sources.acceptance import RejectedRows
from lake.core.io.storage.atomic_files import flush
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest.checksummed_batches import batch_file, batches_in
from lake.core.read.exports.formats import SUFFIXES, writing
from lake.core.spec.types.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_PLACE = (
    ("_file", StringType()),
    ("_line", LongType()),
    ("_reason", StringType()),
    ("_row", StringType()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectSettings(PlainData):
    """How the rows that a load does not take are set aside.

    Args:
        folder: the folder of the temporary files.
        name: how their names begin.
        limit: the largest number of such rows; None for any.
        with_columns: whether the files have the table's columns too.
        recorded: whether files are written; otherwise the rows are only counted.
    """

    folder: str
    name: str
    limit: int | None = None
    with_columns: bool = False
    recorded: bool = True

    def unrecorded(self) -> RejectSettings:
        """Return the settings for reading the rows once more."""
        return replace(self, recorded=False)

    def check(self, count: int, example: str) -> None:
        """Check the number of rows.

        Raises:
            BadInputError: there are more than the limit.
        """
        if self.limit is not None and count > self.limit:
            raise BadInputError(
                f"more than {self.limit:,} rows cannot be loaded, for example: {example}",
                hint=f"correct the source, or raise {Option.MAX_REJECTS}",
            )

    def check_share(self, count: int, rows_read: int, example: str) -> None:
        """Check the number of rows among all: a source that is read with the wrong options loses most of its rows.

        Raises:
            BadInputError: they are more than half of all, and no limit was given.
        """
        if self.limit is None and count * 2 > rows_read:
            raise BadInputError(
                f"{count:,} of {rows_read:,} rows cannot be loaded, for example: {example}",
                hint=f"check the options that say how the source is written; {Option.MAX_REJECTS} {count} loads the "
                "others",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectReport(PlainData):
    """The rows that a task set aside."""

    rows: int = 0
    example: str = ""
    files: Sequence[str] = ()


def rejects_schema(schema: Schema, *, with_columns: bool) -> Schema:
    """Return the columns of rejected rows: the table's, all optional, and where the row is and why it is rejected."""
    kept = [item.model_copy(update={"required": False}) for item in schema.fields if with_columns]
    first = schema.highest_field_id + 1
    place = [
        NestedField(first + index, name, kind, required=False)
        for index, (name, kind) in enumerate(_PLACE)
    ]
    return Schema(*kept, *place)


class UnitRejects:
    """The rejected rows of one unit of the source.

    Args:
        storage: the storage of the temporary files.
        settings: None if no row may be rejected.
        schema: the columns of the source's rows.
        place: the number of the unit.
        attempt: part of the file's name.
    """

    def __init__(
        self,
        storage: Storage,
        settings: RejectSettings | None,
        schema: Schema,
        *,
        place: int,
        attempt: str,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._with_columns = settings is not None and settings.with_columns
        self._columns = schema
        # Files are sorted by their names.
        name = f"{settings.name}-{place:09d}-{attempt}.arrow" if settings else ""
        self._path = locations.join(settings.folder, name) if settings else ""
        self._files = ExitStack()
        self._file: Any = None
        self.count = 0
        self._example = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def add(self, rejected: RejectedRows) -> None:
        """Set rows aside.

        Raises:
            BadInputError: there are too many of them.
        """
        self.count += len(rejected.reasons)
        self._example = self._example or rejected.reasons[0]
        if self._settings is None:
            return
        self._settings.check(self.count, self._example)
        if not self._settings.recorded:
            return
        if self._file is None:
            self._file = self._files.enter_context(batch_file(self._storage, self._path))
        schema = arrow_schema(rejects_schema(self._columns, with_columns=self._with_columns))
        columns = rejected.rows.columns if self._with_columns else []
        files = [rejected.where] * len(rejected.reasons)
        reasons = [quote_options(reason) for reason in rejected.reasons]
        place = [files, rejected.lines, reasons, rejected.texts]
        kinds = schema.types[len(columns) :]
        arrays = [pa.array(values, kind) for values, kind in zip(place, kinds, strict=True)]
        self._file.write_batch(pa.RecordBatch.from_arrays([*columns, *arrays], schema=schema))

    def report(self) -> RejectReport:
        """Return the report for the driver."""
        files = [] if self._file is None else [self._path]
        return RejectReport(rows=self.count, example=self._example, files=files)


def check_rejects(path: str, *, may_exist: bool = False) -> None:
    """Refuse a path that rejected rows cannot be written to.

    Args:
        path: the path.
        may_exist: whether a file that is there is replaced.

    Raises:
        InvalidRequestError: the path already exists, or its suffix is not a known format.
    """
    if locations.has_scheme(path):
        raise InvalidRequestError(f"{Option.REJECTS} must be a path on this machine, not {path!r}")
    if not may_exist and os.path.lexists(path):
        raise InvalidRequestError(
            f"{path} already exists", hint=f"choose a new file for {Option.REJECTS}"
        )
    if _format(path) is None:
        raise InvalidRequestError(
            f"the name of {path} does not show its format",
            hint=f"use the suffix of one of these formats: {', '.join(EXPORT_FORMATS)}",
        )


def remove_rejects(path: str) -> None:
    """Remove what a killed run has written for the same rows, complete or not.

    Raises:
        InvalidRequestError: it cannot be removed.
    """
    try:
        for name in (path, _draft(path)):
            with suppress(FileNotFoundError):
                os.unlink(name)
    except OSError as error:
        raise InvalidRequestError(f"cannot remove {path}: {error.strerror or error}") from error


def _draft(path: str) -> str:
    return f"{path}.part"


def _placed(
    batch: pa.RecordBatch, places: Mapping[str, tuple[str, Sequence[int]]]
) -> pa.RecordBatch:
    """Return rejected rows with the places that the user knows, instead of those in temporary files."""
    if not places:
        return batch
    files, lines = batch.column("_file").to_pylist(), batch.column("_line").to_pylist()
    names, numbers = [], []
    for file, line in zip(files, lines, strict=True):
        name, known = places.get(file, (file, ()))
        names.append(name)
        numbers.append(known[line - 1] if line is not None and 0 < line <= len(known) else None)
    columns = {**dict(zip(batch.schema.names, batch.columns, strict=True))}
    columns |= {"_file": pa.array(names, pa.string()), "_line": pa.array(numbers, pa.int64())}
    arrays = [columns[item.name].cast(item.type) for item in batch.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def write_rejects(
    storage: Storage,
    schema: Schema,
    files: Iterable[str],
    path: str,
    *,
    places: Mapping[str, tuple[str, Sequence[int]]] | None = None,
) -> None:
    """Write the rows that tasks rejected, in the input's order, to one file that appears only when complete.

    Args:
        storage: the storage of the tasks' files.
        schema: the columns of the rows.
        files: the tasks' files.
        path: the file to write.
        places: what to show instead of the names of files and the lines in them.

    Raises:
        InvalidRequestError: it cannot be written.
    """
    draft = _draft(path)
    try:
        with open(draft, "xb") as stream, _removed_unless_renamed(draft):
            with writing(_format(path) or "", stream, schema) as sink:
                for file in sorted(files):
                    for batch in batches_in(storage, file):
                        sink.write(_placed(batch, places or {}))
            # The load commits the other rows next: these must survive a power failure too.
            stream.flush()
            flush(draft)
            os.replace(draft, path)
            flush(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise InvalidRequestError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def _removed_unless_renamed(draft: str) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def temporary_files(session: Session, table: Table, name: str) -> Iterator[None]:
    """Remove the files below a table's data whose names contain ``name``, even if the block fails."""
    try:
        yield
    except BaseException:
        # Close the engine first: a task that still runs would continue to write.
        session.close()
        raise
    finally:
        _remove(session, table, name)


def _remove(session: Session, table: Table, name: str) -> None:
    try:
        failed = table.storage.delete(table.storage.find(table.data_location, name)).failed
    except LakeError as error:
        # An error of the block itself must not be replaced by this one.
        session.warn(f"temporary files {name}… could not be removed: {error.message}")
    else:
        if failed:
            session.warn(
                f"{len(failed)} temporary files could not be removed, e.g. {next(iter(failed))}"
            )


@contextmanager
def removed_on_failure(session: Session, path: str | None) -> Iterator[None]:
    """Remove the file of rejects if the block fails, unless its commit may have succeeded.

    The file did not exist before, or an earlier run of the same epoch wrote it: see `check_rejects`.
    """
    before = len(session.protected_files)
    try:
        yield
    except CommitUnknownError:
        raise
    except BaseException:
        # A snapshot references, or may reference, the rows that were not rejected.
        has_committed = len(session.protected_files) > before
        if path is not None and not has_committed:  # check: rejects-of-commit
            with suppress(FileNotFoundError):
                os.unlink(path)
        raise


def _format(path: str) -> str | None:
    return SUFFIXES.get(os.path.splitext(path)[1][1:].lower())
