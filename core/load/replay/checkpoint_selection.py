"""Select, from the given checkpoints, the committer states of one table's sinks and the manifests they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base import locations as paths
from lake.core.base.errors import TRANSIENT_ERRORS, BadInputError, LakeError
from lake.core.base.options import Option
from lake.core.load.replay.classification import JobKey
from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.checkpoint_files import metadata_below, number_of
from lake.core.table.flink.commits import job_commit
from lake.core.table.snapshots import ancestry
from lake.core.transaction.staging.manifest_files import manifest_roots

if TYPE_CHECKING:
    from lake.core.io.storage.storage import Storage, StoredFile
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.flink.state import (
        Checkpoint,
        CommitterState,
        ManifestReference,
        TakenCheckpoint,
    )


@dataclass(slots=True)
class SelectedCheckpoints:
    """The state of the table in the newest given checkpoint of each job.

    Args:
        branch: the branch that is replayed to.
        states: the checkpoint and the committer's state in it, by job.
        elsewhere: for manifests that belong to another branch, the reason by canonical location.
        skipped: messages about states in the checkpoints that were not selected.
        others: for checkpoints whose states all belong to other tables or branches, the reasons by location.
    """

    branch: str = ancestry.MAIN
    states: dict[JobKey, tuple[Checkpoint, CommitterState]] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)

    def taken(self) -> Iterator[tuple[JobKey, TakenCheckpoint]]:
        """Yield every checkpoint in the states, with its job."""
        for job, (_, state) in self.states.items():
            for taken in state.checkpoints:
                yield job, taken

    def numbers(self) -> dict[JobKey, int]:
        """Return the number of the newest given checkpoint by job."""
        return {job: checkpoint.checkpoint_id for job, (checkpoint, _) in self.states.items()}


def select_checkpoints(
    table: Table, branch: str, checkpoints: Iterable[Checkpoint]
) -> SelectedCheckpoints:
    """Select the committer states of the table and branch; for each job the newest."""
    given = SelectedCheckpoints(branch)
    for checkpoint in sorted(checkpoints, key=lambda item: -item.checkpoint_id):
        reasons = [_elsewhere(table, branch, state) for state in checkpoint.committers]
        if all(reasons):
            given.others[checkpoint.location] = "; ".join(reason for reason in reasons if reason)
        for state, reason in zip(checkpoint.committers, reasons, strict=True):
            if reason is not None:
                given.skipped.append(f"{checkpoint.location}: {reason}")
                if _is_table(table, state):
                    given.elsewhere.update(
                        {paths.canonical(item.path): reason for item in _references(state)}
                    )
            elif _is_idle(table, state):
                given.skipped.append(f"{checkpoint.location}: {_sink(state)} has nothing to commit")
            else:
                given.states.setdefault((state.job_id, state.operator_id), (checkpoint, state))
    return given


def _elsewhere(table: Table, branch: str, state: CommitterState) -> str | None:
    """Return why a committer's state belongs to another table or branch; None if nothing shows that."""
    if state.table is not None and not _is_table(table, state):
        return f"{_sink(state)} writes to {state.table}"
    if state.branch is not None and state.branch != branch:
        return (
            f"{_sink(state)} writes to branch {state.branch}, not to {branch}; "
            f"replay it with {Option.BRANCH} {state.branch}"
        )
    references = list(_references(state))
    roots = manifest_roots(table)
    if references and not any(
        paths.within(item.path, root) for item in references for root in roots
    ):
        return (
            f"the manifests of {_sink(state)} are outside the table's folders: {references[0].path}"
        )
    return None


def _is_idle(table: Table, state: CommitterState) -> bool:
    """Whether a state of an unknown table contains nothing to commit, by a job that never wrote to this table."""
    has_any = next(_references(state), None) is not None
    return not has_any and state.table is None and not _is_known(table, state)


def _sink(state: CommitterState) -> str:
    return f"{state.sink} {state.operator_id} of job {state.job_id}"


def _references(state: CommitterState) -> Iterator[ManifestReference]:
    for taken in state.checkpoints:
        yield from taken.manifests


def _is_table(table: Table, state: CommitterState) -> bool:
    # The name may begin with the catalog's name.
    return state.table is not None and (
        state.table == table.identifier or state.table.endswith(f".{table.identifier}")
    )


def _is_known(table: Table, state: CommitterState) -> bool:
    commits = (job_commit(snapshot) for snapshot in table.metadata.snapshots)
    return any(
        commit is not None and commit.is_by(state.job_id, state.operator_id) for commit in commits
    )


def read_selected(table: Table, locations: Sequence[str]) -> list[Checkpoint]:
    """Read the given checkpoints.

    Raises:
        BadInputError: a checkpoint cannot be read, or has no Iceberg sink.
        RefusedError: a checkpoint may contain state that lake cannot read.
    """
    if not locations:
        return []
    found = []
    for location in dict.fromkeys(locations):
        checkpoint = read_checkpoint(table.storage, location)
        if not checkpoint.committers:
            raise BadInputError(f"{checkpoint.location} contains no Iceberg sink")
        found.append(checkpoint)
    return found


def later_checkpoints(storage: Storage, checkpoint: Checkpoint) -> dict[int, StoredFile]:
    """Return the later completed checkpoints in the same folder by number; empty if access to it is refused.

    Raises:
        StorageError: the storage fails.
        TimedOutError: the storage is too busy or cannot be reached.
    """
    if number_of(checkpoint.location) is None:
        return {}
    folder = checkpoint.location.rpartition("/")[0].rpartition("/")[0]
    try:
        listed = metadata_below(storage, folder)
        later = {
            number: path for number, path in listed.items() if number > checkpoint.checkpoint_id
        }
        files = storage.look_up(later.values())
        return {number: file for number, path in later.items() if (file := files[path])}
    except TRANSIENT_ERRORS:  # check: transient-failure-of-checkpoint
        raise
    except LakeError:
        return {}
