"""The options of a load."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.sources.acceptance import NeededColumns
from lake.core.data.sources.text_format import AS_SHOWN, TextFormat
from lake.core.spec.properties.table_properties import DISTRIBUTIONS
from lake.core.spec.types.arrow_schema import field_path, find_id
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles
from lake.core.table.snapshots.streams import QueryEpoch, StreamEpoch
from lake.core.transaction.commit.guards import Guard, QueryGuard, RunGuard, StreamGuard

APPEND, OVERWRITE, OVERWRITE_WHERE, REPLACE, UPSERT = (
    "append",
    "overwrite",
    "overwrite-where",
    "replace-partitions",
    "upsert",
)
REPLACING = frozenset({OVERWRITE, OVERWRITE_WHERE, REPLACE})
# The value of `missing`: NULL, or the column's write default.
DEFAULT = "default"
_MOST_WRITERS = 10_000
_DIGEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Which columns of the table a source must have, because its rows replace rows of the table.

    Args:
        columns: the columns; None for all.
        key: the key's columns, which have errors of their own; empty for the schema's identifier fields.
        sequence: the sequence column, which has too; None for none.
        kinds: the column of a change log that contains the row kind; None if rows are not changes.
        whole_kinds: the row kinds, in lower case, whose rows need the columns.
    """

    columns: Sequence[str] | None = None
    key: Sequence[str] = ()
    sequence: str | None = None
    kinds: str | None = None
    whole_kinds: tuple[str, ...] = ()

    def of(self, schema: Schema) -> NeededColumns:
        """Return the needed columns of a table; a column of the type unknown has no values to lose."""
        fields = [item for item in schema.fields if not isinstance(item.field_type, UnknownType)]
        names = [x.name for x in fields if self.columns is None or x.name in self.columns]
        key = self.key or [
            str(schema.find_column_name(item)) for item in schema.identifier_field_ids
        ]
        ids = [column for name in key if (column := find_id(schema, name)) is not None]
        paths = [field_path(schema, column) for column in ids]
        others = {self.sequence, *(path[0].name for path in paths if path)}
        return NeededColumns(
            names=tuple(name for name in names if name not in others),
            kinds=self.kinds,
            whole_kinds=self.whole_kinds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """The options of a load.

    Args:
        sources: files, globs, folders and URLs; ``-`` for standard input.
        from_table: a table whose rows are loaded instead of files.
        format: the format of the files; None to recognise it by their names.
        create: create the table if it does not exist.
        partition_by: partition transforms of a new table.
        sort_by: sort order of a new table.
        properties: properties of a new table.
        evolve: add new columns of the source to the table.
        mode: append, or what the rows replace: `OVERWRITE`, `OVERWRITE_WHERE`, `REPLACE`, or rows with equal keys.
        overwrite_where: filter of the rows that `OVERWRITE_WHERE` replaces.
        distribution: how rows are distributed among writers; None for the table's property.
        target_size: size of a data file in bytes; None for the table's property.
        run_id: an id by which a repetition of this load is recognised.
        branch: the branch to load into.
        stage: write all files and commit nothing.
        allow_empty: let a source without rows replace the table's rows.
        text: how text files are written.
        rejects: a local path for rows that cannot be loaded; if None, such a row is an error. See
            `LoadRequest.rejects_file`.
        max_rejects: the largest number of such rows; None for any.
        write_parallelism: the number of tasks that write data files; None to choose it by the size of the source.
        no_upsert: append also to a table whose property says that loads replace rows by key.
        missing: what replaced rows have in columns that the source lacks: `DEFAULT`; None to refuse such a source.
        union_columns: whether files may have different columns.

    Raises:
        InvalidRequestError: a value is not allowed or contradicts another.
    """

    sources: Sequence[str] = ()
    from_table: str | None = None
    format: str | None = None
    create: bool = False
    partition_by: str | None = None
    sort_by: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    evolve: bool = False
    mode: str = APPEND
    overwrite_where: str | None = None
    distribution: str | None = None
    target_size: int | None = None
    run_id: str | None = None
    branch: str = ancestry.MAIN
    stage: bool = False
    allow_empty: bool = False
    text: TextFormat = AS_SHOWN
    rejects: str | None = None
    max_rejects: int | None = None
    write_parallelism: int | None = None
    no_upsert: bool = False
    missing: str | None = None
    union_columns: bool = False

    def __post_init__(self) -> None:
        if not self.sources and not self.from_table:
            raise InvalidRequestError("nothing to load", hint=f"give files, or {Option.FROM_TABLE}")
        if self.sources and self.from_table:
            raise InvalidRequestError(f"files and {Option.FROM_TABLE} contradict each other")
        if self.from_table and self.format:
            raise InvalidRequestError(
                f"{Option.FROM_TABLE} and {Option.FORMAT} contradict each other"
            )
        self._check_rejects()
        if self.from_table and self.text != AS_SHOWN:
            raise InvalidRequestError(
                f"{Option.FROM_TABLE} and options of text files contradict each other"
            )
        if (self.partition_by or self.sort_by or self.properties) and not self.create:
            raise InvalidRequestError(
                f"{Option.PARTITION_BY}, {Option.SORT_BY} and {Option.PROPERTIES} need {Option.CREATE}",
                hint="`lake alter` changes those of a table that exists",
            )
        if self.distribution not in {None, *DISTRIBUTIONS}:
            raise InvalidRequestError(
                f"{Option.DISTRIBUTION} {self.distribution!r} is not one of none, hash, range"
            )
        self._check_missing()
        if self.write_parallelism is not None:
            _check_parallelism(self.write_parallelism)
        if self.run_id is not None and not self.run_id.strip():
            raise InvalidRequestError(f"{Option.RUN_ID} is empty")
        if self.allow_empty and self.mode not in {OVERWRITE, OVERWRITE_WHERE}:
            raise InvalidRequestError(
                f"{Option.ALLOW_EMPTY} needs {Option.OVERWRITE} or {Option.OVERWRITE_WHERE}"
            )
        if self.stage and (self.create or self.mode in REPLACING):
            option = Option.CREATE if self.create else Option(self.mode.replace("-", "_"))
            raise InvalidRequestError(
                f"{Option.STAGE} and {option} contradict each other",
                hint=f"{Option.STAGE} supports appends to an existing table, and changes by key that do not read "
                "the table's rows",
            )

    def _check_missing(self) -> None:
        if self.missing not in {None, DEFAULT}:
            raise InvalidRequestError(f"{Option.MISSING} {self.missing!r} is not {DEFAULT}")

    def _check_rejects(self) -> None:
        if self.max_rejects is not None and self.rejects is None:
            raise InvalidRequestError(f"{Option.MAX_REJECTS} needs {Option.REJECTS}")
        if self.max_rejects is not None and self.max_rejects < 0:
            raise InvalidRequestError(f"{Option.MAX_REJECTS} {self.max_rejects} is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Rows that tasks of Spark receive, which lake does not run.

    Args:
        columns: returns the columns of the rows, as a table with a schema takes them.
        written: whether the tasks have run; then the load is decided on `base_snapshot_id`, the head of the branch
            before they did, which is None if the branch was empty.
    """

    columns: Callable[[Schema], pa.Schema]
    written: bool = False
    base_snapshot_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One load: what a user asks for, and what the program adds if it is a part of something.

    Such a whole is a stream, a load of many tables, or a load by key.

    Args:
        options: what a user asks for.
        epoch: the epoch of a stream that this load is, by which a repetition is recognised; None for other loads. It
            has no default, because a load that is not given its epoch adds the rows of a repetition once more.
        query_epoch: the epoch of a streaming query of Spark that this load is; None for other loads.
        frame: the rows, if they come from tasks of Spark.
        table_files: those of its files to load; None for all of its main branch.
        places: for files whose rows come from elsewhere, what rejected rows show as file and as number of a row.
        added: for files that have more columns in a file beside them, that file; see `Source.added`.
        replaced_head: the head that an overwrite was decided for; another one is a conflict. None for any.
        left_out: columns of the files that are not loaded.
        origin: what the history of the table shows as sources, if those are temporary files.
        stdin: a local file with the contents of standard input, if it is a source.
        changes_column: a column of the source that contains the row kind; it is not loaded.
        partial: let the source lack required columns, for rows that are completed from the table.
        needs: the columns that the source must have; None if it may lack any.

    Raises:
        InvalidRequestError: the files have no header, and a column of them is named.
    """

    options: IngestOptions
    epoch: StreamEpoch | None
    query_epoch: QueryEpoch | None = None
    frame: Frame | None = None
    table_files: LiveFiles | None = None
    places: Mapping[str, tuple[str, Sequence[int]]] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    replaced_head: int | None = None
    left_out: Collection[str] = ()
    origin: Sequence[str] = ()
    stdin: str | None = None
    changes_column: str | None = None
    partial: bool = False
    needs: Needs | None = None

    def __post_init__(self) -> None:
        if self.changes_column and not self.options.text.header:
            raise InvalidRequestError(
                f"{Option.CHANGES_COLUMN} needs files with a header: it names a column of the file"
            )

    @property
    def paths(self) -> list[str]:
        """The files, globs, folders and URLs to read."""
        stdin = self.stdin or "-"
        return [stdin if name == "-" else name for name in self.options.sources]

    @property
    def guard(self) -> Guard | None:
        """What shows that the load is committed; None if no repetition of it is recognised."""
        if self.epoch is not None:
            return StreamGuard(self.epoch)
        if self.query_epoch is not None:
            return QueryGuard(self.query_epoch)
        run_id = self.options.run_id
        return None if run_id is None else RunGuard(run_id)

    @property
    def rejects_file(self) -> str | None:
        """The file for rows that cannot be loaded: each epoch of a stream has its own.

        A repetition of an epoch writes the same file. An epoch of the same number with other rows writes another one:
        so no file is replaced that contains rows of a committed epoch.
        """
        path = self.options.rejects
        if path is None or self.epoch is None:
            return path
        stem, suffix = os.path.splitext(path)
        digest = hashlib.sha256(self.epoch.text.encode()).hexdigest()[:_DIGEST]
        return f"{stem}-epoch-{self.epoch.number:010d}-{digest}{suffix}"


def _check_parallelism(number: int) -> None:
    if not 1 <= number <= _MOST_WRITERS:
        raise InvalidRequestError(
            f"{Option.WRITE_PARALLELISM} {number} is not between 1 and {_MOST_WRITERS:,}"
        )
