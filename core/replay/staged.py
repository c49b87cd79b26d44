"""Staged runs: manifests that lake's ingests write before they commit, with additional header fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.flink.commits import LAKE_OPERATOR_ID
from lake.core.replay.classification import Evidence
from lake.core.snapshots.run_ids import has_run
from lake.core.staging.staged_run import FILES, MANIFESTS, RunMarks

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.replay.temporary_manifests import Reading


def is_staged(operator_id: str) -> bool:
    """Whether an operator id is lake's."""
    return operator_id == LAKE_OPERATOR_ID


def as_run(item: Evidence, readings: Sequence[Reading], table: Table, branch: str) -> Evidence:
    """Complete the evidence of a staged run with the headers of its manifests.

    Args:
        item: its evidence as a checkpoint.
        readings: all its manifests.
        table: the table.
        branch: the branch that is replayed to.
    """
    marks = RunMarks.of_header(readings[0].marks, item.job_id)
    elsewhere = None
    if marks.branch != branch:
        elsewhere = f"run {marks.run_id} is for branch {marks.branch}"
    return replace(
        item,
        run_id=marks.run_id,
        ran=has_run(table, branch, marks.run_id),
        problem=item.problem or _cut(readings),
        foreign=item.foreign or elsewhere,
    )


def _cut(readings: Sequence[Reading]) -> str | None:
    """Return a message if a run's manifests are incomplete, else None."""
    for reading in readings:
        if reading.marks.get(MANIFESTS) != str(len(readings)):
            return f"{reading.location} does not list all manifests of its run"
        rows = reading.manifest.entries.num_rows if reading.manifest else 0
        if reading.marks.get(FILES) != str(rows):
            return f"{reading.location} is incomplete"
    return None
