"""The consecutive snapshots of one request, and the files that those committed do not use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table.snapshots import Operation as SummaryOperation
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.snapshots import Snapshot as NewSnapshot

from lake.core.base import locations
from lake.core.io.storage.background_writer import WriteBehind
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.table.manifests.api import ManifestListHeader, encode_manifest_list
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.metadata.commit_times import latest_ms
from lake.core.table.metadata.snapshot_updates import with_snapshot
from lake.core.table.snapshots.row_lineage import next_row_id
from lake.core.table.snapshots.run_ids import OPERATION_ID
from lake.core.table.snapshots.summary import engine_marks
from lake.core.transaction.commit.operations import SnapshotStep
from lake.core.transaction.commit.snapshot_producer import (
    Draft,
    Parent,
    SnapshotProducer,
    next_sequence_number,
)
from lake.core.transaction.run_context import RunContext

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table


@dataclass(slots=True)
class SnapshotSequence:
    """Writes the snapshots of one commit, for one or more attempts.

    Args:
        context: clock and ids.
        storage: the writer in front of the table's storage; it must stop before any written file is deleted.
        operation_id: a UUID that is part of the file names and of the summaries.
        written: the locations of all written files.
    """

    context: RunContext
    storage: WriteBehind
    operation_id: str
    written: list[str] = field(default_factory=list)
    _producers: dict[SnapshotStep, SnapshotProducer] = field(default_factory=dict)
    # The manifests in each manifest list.
    _listed: dict[str, frozenset[str]] = field(default_factory=dict)

    def build(
        self, table: Table, head: Snapshot | None, steps: Sequence[SnapshotStep], schema_id: int
    ) -> list[Snapshot]:
        """Write the manifests of each step on top of the previous step's snapshot.

        Args:
            table: the current table.
            head: the snapshot on which the first step is built; None for an empty branch.
            steps: the steps; one of an earlier attempt keeps its snapshot id and the files written for it.
            schema_id: the schema of all snapshots.

        Raises:
            CommitConflictError: a step does not hold on the head.
        """
        metadata, snapshots = table.metadata, []
        producers = [self._producer(table, step) for step in steps]
        parent = Parent.read(self.storage, metadata, head, producers)
        for step, producer in zip(steps, producers, strict=True):
            draft = producer.draft(metadata, parent)
            location = self._write_list(producer, metadata, parent, draft)
            snapshot = self._snapshot(step, metadata, parent, draft, location, schema_id)
            metadata = with_snapshot(metadata, snapshot)
            parent = replace(parent, snapshot=snapshot, manifests=draft.manifests)
            snapshots.append(snapshot)
        self.storage.settle()
        return snapshots

    def paths_of(self, steps: Iterable[SnapshotStep]) -> list[str]:
        """Return the files that steps add, after they were built."""
        return [path for step in steps for path in self._producers[step].paths]

    def ids_of(self, steps: Iterable[SnapshotStep]) -> list[int]:
        """Return the snapshot ids of steps, after they were built."""
        return [self._producers[step].snapshot_id for step in steps]

    def steps_of(self, snapshot_ids: Iterable[int]) -> list[SnapshotStep]:
        """Return the steps of this commit's snapshots."""
        by_id = {producer.snapshot_id: step for step, producer in self._producers.items()}
        return [by_id[snapshot_id] for snapshot_id in snapshot_ids]

    def unused(self, committed: Iterable[Snapshot]) -> list[str]:
        """Return the written files that the committed snapshots do not use."""
        used: set[str] = set()
        for snapshot in committed:
            used |= {snapshot.manifest_list, *self._listed[snapshot.manifest_list]}
        return [location for location in self.written if location not in used]

    def _producer(self, table: Table, step: SnapshotStep) -> SnapshotProducer:
        if step not in self._producers:
            snapshot_id = self._free_snapshot_id(table)
            self._producers[step] = SnapshotProducer(
                table, self.storage, step.operation, snapshot_id, self.operation_id, self.written
            )
        return self._producers[step]

    def _free_snapshot_id(self, table: Table) -> int:
        taken = {producer.snapshot_id for producer in self._producers.values()}
        while True:
            candidate = self.context.ids.snapshot_id()
            # check: distinct-snapshot-ids
            if candidate not in taken and table.metadata.snapshot_by_id(candidate) is None:
                return candidate

    def _write_list(
        self, producer: SnapshotProducer, metadata: TableMetadata, parent: Parent, draft: Draft
    ) -> str:
        name = f"snap-{producer.snapshot_id}-{len(self.written)}-{self.operation_id}.avro"
        location = locations.join(producer.table.metadata_folder, name)
        self.written.append(location)
        data = encode_manifest_list(
            pa.Table.from_pylist(draft.manifests, schema=MANIFEST_SCHEMA),
            ManifestListHeader(
                format_version=metadata.format_version,
                snapshot_id=producer.snapshot_id,
                parent_snapshot_id=parent.snapshot_id,
                sequence_number=next_sequence_number(metadata),
                first_row_id=_first_row_id(metadata),
            ),
        )
        self.storage.write(location, data)
        self._listed[location] = frozenset(row["manifest_path"] for row in draft.manifests)
        return location

    def _snapshot(
        self,
        step: SnapshotStep,
        metadata: TableMetadata,
        parent: Parent,
        draft: Draft,
        location: str,
        schema_id: int,
    ) -> Snapshot:
        keys = {**step.summary, OPERATION_ID: self.operation_id, **engine_marks()}
        return NewSnapshot(
            snapshot_id=self._producers[step].snapshot_id,
            parent_snapshot_id=parent.snapshot_id,
            sequence_number=next_sequence_number(metadata),
            # If the clock is behind the last writer's, times in the history must not decrease.
            # check: ascending-times
            timestamp_ms=max(self.context.clock.now_ms(), latest_ms(metadata)),
            manifest_list=location,
            summary=Summary(SummaryOperation(draft.operation), **{**draft.summary, **keys}),
            schema_id=schema_id,
            first_row_id=_first_row_id(metadata),
            added_rows=draft.added_rows if metadata.format_version >= ROW_LINEAGE_SINCE else None,
        )


def _first_row_id(metadata: TableMetadata) -> int | None:
    return next_row_id(metadata) if metadata.format_version >= ROW_LINEAGE_SINCE else None
