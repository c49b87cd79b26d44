"""Tag the snapshots of a table that contain Flink's savepoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base.errors import InvalidRequestError, LakeError, RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.branching.facts import TagsFacts
from lake.core.maintain.branching.tags import execute, plan_tags
from lake.core.table.flink.commits import job_commits
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.refs import TAG

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.maintain.branching.tags import TagChanges
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.flink.state import Checkpoint
    from lake.core.table.refs.facts import TagFacts
    from lake.core.transaction.session import Session

Given = Mapping[tuple[str, str], "Checkpoint"]
"""The newest given savepoint of each job, by job id and operator id."""


def names_of(given: Given) -> list[str]:
    """Return the names of the tags of savepoints.

    Raises:
        InvalidRequestError: there is no savepoint of the table, or two of them have one number.
    """
    if not given:
        raise InvalidRequestError(f"{Option.TAG}: no given checkpoint is of a job of this table")
    locations: dict[str, str] = {}
    for item in given.values():
        if locations.setdefault(_name(item), item.location) != item.location:
            raise InvalidRequestError(
                f"{locations[_name(item)]} and {item.location} are savepoints with the same number, so they would "
                "get the same tag",
                hint="give one of them at a time",
            )
    return sorted(locations)


def refuse_untaggable(
    table: Table, given: Given, pending: Mapping[tuple[str, str], int], *, branch: str
) -> None:
    """Refuse, before the checkpoints are committed, tags that could not be set afterwards.

    Args:
        table: the table before the commit.
        given: the savepoints to tag.
        pending: the largest checkpoint that will be committed, by job id and operator id.
        branch: the branch of the jobs.

    Raises:
        InvalidRequestError: as `names_of`.
        RefusedError: a savepoint is not committed and will not be, its snapshot has expired, or its tag refers to
            another snapshot.
    """
    names_of(given)
    committed = {}
    for job, item in given.items():
        if pending.get(job, -1) < item.checkpoint_id:
            committed[job] = item
        elif (ref := table.metadata.refs.get(_name(item))) is not None:
            kind = "tag" if ref.snapshot_ref_type == TAG else "branch"
            raise RefusedError(
                f"{kind} {_name(item)} exists, but savepoint {item.checkpoint_id} is not committed yet",
                hint="replay without the tag, and give the snapshot another one",
            )
    plan_savepoint_tags(table, committed, branch=branch, retain_ms=None)


def plan_savepoint_tags(
    table: Table, given: Given, *, branch: str, retain_ms: int | None
) -> TagChanges:
    """Plan to tag the first snapshot that contains each savepoint as ``savepoint-N``.

    If several sinks of a savepoint write to the table, it is the first snapshot that contains all their parts.

    Raises:
        NotFoundError: there is no such branch.
        RefusedError: a savepoint is not committed, its snapshot has expired, or its tag refers to another snapshot.
    """
    wanted: dict[str, Snapshot] = {}
    order = {
        item.snapshot_id: number
        for number, item in enumerate(
            ancestry.ancestors(table.metadata, ancestry.head_id(table.metadata, branch))
        )
    }
    for job, item in given.items():
        snapshot = _containing(table.metadata, branch, job, item.checkpoint_id)
        other = wanted.setdefault(_name(item), snapshot)
        wanted[_name(item)] = min(other, snapshot, key=lambda item: order[item.snapshot_id])
    ids = {name: snapshot.snapshot_id for name, snapshot in wanted.items()}
    return plan_tags(table, ids, branch=branch, retain_ms=retain_ms)


def set_savepoint_tags(
    session: Session,
    outcome: Outcome,
    table: Table,
    given: Given,
    *,
    branch: str,
    retain_ms: int | None,
) -> tuple[Outcome, Sequence[TagFacts]]:
    """Set the tags of savepoints after a replay; return its outcome with the status after that, and the tags.

    The checkpoints remain committed if the tags cannot be set: then the outcome is partial, and says why.

    Raises:
        LakeError: the tags could not be set, and the replay committed nothing.
    """
    try:
        changes = plan_savepoint_tags(table.refreshed(), given, branch=branch, retain_ms=retain_ms)
        tagged = execute(session, changes, dry_run=False)
    except LakeError as error:
        if outcome.status is Status.NOTHING_TO_DO:
            raise
        text = (
            f"the checkpoints are committed, but not tagged: {error.message}; run the command again"
        )
        warnings = [*outcome.warnings, text]
        return replace(outcome, status=Status.PARTIAL, warnings=warnings), ()
    names = names_of(given)
    tags = [tag for tag in TagsFacts.of(tagged.result).tags or () if tag.name in names]
    status = tagged.status if outcome.status is Status.NOTHING_TO_DO else outcome.status
    return replace(outcome, status=status), tags


def _name(checkpoint: Checkpoint) -> str:
    return f"savepoint-{checkpoint.checkpoint_id}"


def _containing(
    metadata: TableMetadata, branch: str, job: tuple[str, str], checkpoint_id: int
) -> Snapshot:
    """Return the first snapshot of a branch whose job has committed a checkpoint.

    Raises:
        RefusedError: there is none, or an earlier one may have expired.
    """
    found = None
    for commit in job_commits(metadata, branch):
        if not commit.is_by(*job):
            continue
        if commit.checkpoint_id < checkpoint_id:
            break
        found = commit
    else:
        if found is not None and found.checkpoint_id > checkpoint_id:
            head = ancestry.head_id(metadata, branch)
            if not ancestry.since(metadata, head, None)[1]:
                raise RefusedError(
                    f"the snapshot that committed checkpoint {checkpoint_id} of job {job[0]} may have expired",
                    hint="a later snapshot of the job contains more than this savepoint",
                )
    if found is None:
        raise RefusedError(
            f"checkpoint {checkpoint_id} of job {job[0]} is not committed to branch {branch}",
            hint="a checkpoint without rows is not committed",
        )
    return found.snapshot
