"""Decide from metadata which files a filter selects whole, and of which files only some rows may match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.expressions import AlwaysFalse

from lake.core.base.arrow import Int64s
from lake.core.data.deletes.writers import check_delete_files
from lake.core.data.rows.live_slices import SPLIT_COLUMNS, slices_at
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.selection import engine_name
from lake.core.maintain.row_deletion.facts import (
    DeletionFacts,
    PartitionDeletionFacts,
)
from lake.core.maintain.row_deletion.options import DeletionOptions, mode_of
from lake.core.spec.expressions.filters import bind_filter, filter_columns
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.properties.table_properties import (
    COPY_ON_WRITE,
    DELETE_ISOLATION,
    Use,
    warnings,
)
from lake.core.spec.types.arrow_schema import moved_schema
from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.spec.types.partition_paths import partition_path
from lake.core.spec.types.unsupported_columns import refuse_unsupported
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles, live_files, no_files
from lake.core.transaction.commit.guards import earlier_run
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.removals import Removals, removals_of, row_bounds

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.data.rows.reader import FileSlice
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


@dataclass(frozen=True, kw_only=True)
class DeletionPlan:
    """What a deletion removes.

    Args:
        table: the table.
        options: the options.
        condition: the filter, bound to the table's schema.
        mode: how rows are deleted from files that contain other rows too.
        head: the branch's head; None if it is empty.
        whole: the data files all of whose rows match.
        partly: the data files of which some rows may match.
        removals: what goes, by partition, as far as metadata shows it.
        already: an earlier run of the same id was committed, so there is nothing to do.
        engine: the name of the engine that will run it.
    """

    table: Table
    options: DeletionOptions
    condition: BooleanExpression
    mode: str
    head: Snapshot | None
    whole: LiveFiles
    partly: LiveFiles
    removals: Removals = field(default_factory=Removals)
    already: bool = False
    engine: str = "inline"

    @property
    def base_snapshot_id(self) -> int | None:
        """The branch's head that all this was decided on."""
        return self.head.snapshot_id if self.head else None

    @property
    def is_empty(self) -> bool:
        """Whether no file can contain a matching row."""
        return not (self.whole.count or self.partly.count)

    @cached_property
    def uncounted(self) -> list[tuple[int, int]]:
        """The numbers of whole files of which metadata does not show how many rows are left, and the most rows."""
        least, most = row_bounds(self.whole)
        found: list[tuple[int, int]] = []
        base = 0
        for spec_id, entries in self.whole.by_spec.items():
            places = np.flatnonzero(least[spec_id] != most[spec_id])
            found += zip((places + base).tolist(), most[spec_id][places].tolist(), strict=True)
            base += entries.num_rows
        return found

    def slices(self, *, whole: bool) -> list[FileSlice]:
        """Return the files that are read; of those that are removed entirely, the ones whose rows must be counted."""
        files = self.whole if whole else self.partly
        return slices_at(files, self.numbers(whole=whole))

    def numbers(self, *, whole: bool) -> Int64s:
        """Return the numbers of the files that are read, ascending."""
        if whole:
            return np.array([number for number, _ in self.uncounted], np.int64)
        return np.arange(self.partly.count)

    @property
    def input_bytes(self) -> int:
        """The size of the files that are read, by which the engine is chosen."""
        return self.partly.bytes + sum(file.size_bytes for file in self.slices(whole=True))

    @property
    def isolation(self) -> str:
        """The table's isolation level for deletes."""
        return DELETE_ISOLATION.of(self.table.properties)

    def partition_of(self, file: FileSlice) -> str:
        """Return the name of a file's partition."""
        spec = self.table.metadata.specs()[file.spec_id]
        return partition_path(spec, self.table.schema, file.partition)

    def facts(self) -> DeletionFacts:
        """Return the plan's figures for the outcome."""
        found = self.removals
        return DeletionFacts(
            deletes=self.mode,
            rows=found.rows,
            rows_at_least=found.rows_at_least,
            rows_at_most=found.rows_at_most,
            data_files_removed=found.files,
            data_files_examined=found.rewritten_files,
            bytes_examined=self.partly.bytes,
            partitions=[
                PartitionDeletionFacts(
                    partition=item.partition,
                    data_files_removed=item.files,
                    data_files_examined=item.rewritten_files,
                    rows_at_most=item.rows + item.rewritten_rows,
                )
                for item in found.partitions
            ],
            engine=self.engine,
            earlier_run=(
                earlier_run(
                    self.options.guard, self.table, self.options.branch, self.options.run_id
                )
                if self.already
                else None
            ),
        )


def plan_deletion(session: Session, table: Table, options: DeletionOptions) -> DeletionPlan:
    """Read the metadata and decide; nothing is written.

    Raises:
        NotFoundError: the filter names a column that the table lacks.
        BadInputError: the filter does not fit the columns.
        RefusedError: the table cannot be written, or not in the requested mode.
    """
    require_writable(table, options.branch)
    condition = bind_filter(parse_filter(options.where), table.schema)
    mode = mode_of(table.properties, table.metadata.format_version, options.deletes)
    head = ancestry.branch_head(table.metadata, options.branch)
    nothing = no_files(table)
    guard = options.guard
    already = guard is not None and guard.is_held(table, options.branch, session.clock.now_ms())
    whole, partly = nothing, nothing
    if head is not None and not already and not isinstance(condition, AlwaysFalse):
        fields = filter_columns(condition)
        found = live_files(table, head, condition, columns=SPLIT_COLUMNS, fields=fields)
        whole, partly = found.split(condition)
    plan = DeletionPlan(
        table=table,
        options=options,
        condition=condition,
        mode=mode,
        head=head,
        whole=whole,
        partly=partly,
        removals=removals_of(whole, partly),
        already=already,
    )
    DELETE_ISOLATION.of(table.properties)
    if partly.count:
        _check_writing(session, plan)
    engine = engine_name(session.settings.engine, plan.input_bytes, session.settings)
    return replace(plan, engine=engine)


def _check_writing(session: Session, plan: DeletionPlan) -> None:
    """Check what the files depend on that the deletion writes; warn about properties that it does not honour."""
    table = plan.table
    settings = WriteSettings.of(table, "")
    if plan.mode == COPY_ON_WRITE:
        # Rows that move to new files would lose their values there.
        refuse_unsupported(table.schema)
        moved_schema(table.schema, table.metadata)
        settings.check_data_files()
        uses: Sequence[Use] = [Use.WRITE]
    elif table.metadata.format_version < DELETION_VECTORS_SINCE:
        check_delete_files(settings)
        uses = [Use.WRITE, Use.DELETE]
    else:
        uses = [Use.WRITE]
    for ignored in warnings(table.properties, uses):
        session.warn(ignored)
