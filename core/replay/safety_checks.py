"""What forbids a replay, and what the user should know of it: asked before anything is committed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from lake.core.errors import RefusedError
from lake.core.flink.commits import NONE_COMMITTED, job_commit, job_commits, max_committed
from lake.core.flink.manifest_names import parse_name
from lake.core.manifests.data_files import EQUALITY_DELETES
from lake.core.replay.checkpoint_selection import later_checkpoints
from lake.core.replay.classification import Doubt
from lake.core.replay.model import FOREIGN, FoundCheckpoint, PendingJob
from lake.core.replay.staged import is_staged
from lake.core.snapshots.run_ids import OPERATION_ID
from lake.core.snapshots.summary import REPLACE_PARTITIONS
from lake.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table.snapshots import Snapshot

    from lake.core.replay.survey import Look
    from lake.core.session import Session

_SHOWN = 10
# Names of Flink's data files: task, attempt, a UUID of the writer, counter.
_WRITER = re.compile(
    r"/[0-9]{5,}-[0-9]+-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]{5,}[^/]*$"
)
_FOLDERS = 64
_GIVE = "give the job's newest completed checkpoint with --checkpoint"


def check(session: Session, look: Look) -> None:
    """Refuse what may not be committed, and warn of what is left out.

    Raises:
        RefusedError: a safety rule forbids it.
    """
    _warn(session, look)
    _refuse_unfit(look)
    _refuse_expired(look)
    for job in look.jobs:
        # Empty checkpoints move nothing that anyone could miss.
        if any(item.manifests for item in job.checkpoints):
            _refuse_alive(session, look, job)
            _refuse_branch(look, job)
            _refuse_mode(look, job)
            _refuse_gaps(look, job)
    _refuse_twice(look.jobs)


def _warn(session: Session, look: Look) -> None:
    for text in look.given.skipped:
        session.warn(text)
    word = look.options.word
    if word is not None and not any(item.found.job_id == word[0] for item in look.judged):
        session.warn(f"no temporary manifest of job {word[0]} lies there")
    others = [item.found for item in look.asked_for if item.found.state == FOREIGN]
    if others:
        session.warn(f"not committed: {_numbers(others)}: {others[0].reason}")
    unproven = [item.found for item in look.asked_for if item.doubt is Doubt.NUMBER]
    if unproven and not look.options.assume_uncommitted:
        session.warn(
            f"not committed, because unproven: {_numbers(unproven)}; {unproven[0].reason}; "
            "--assume-uncommitted commits such checkpoints"
        )
    elif any(_has_equality_deletes(item) for item in unproven):
        session.warn(
            f"{_numbers(unproven)} came late: their equality deletes also delete rows "
            "of the same keys that were committed since"
        )


def _has_equality_deletes(found: FoundCheckpoint) -> bool:
    return any(
        EQUALITY_DELETES in manifest.entries["content"].to_pylist() for manifest in found.manifests
    )


def _refuse_unfit(look: Look) -> None:
    for item in look.unfit:
        found = item.found
        raise RefusedError(
            f"checkpoint {found.checkpoint_id} of job {found.job_id} is {found.state}: {found.reason}",
            hint="nothing was committed; `lake replay TABLE` lists what lies there and why",
        )


def _refuse_expired(look: Look) -> None:
    expired = [item.found for item in look.asked_for if item.doubt is Doubt.HISTORY]
    if expired and not look.options.assume_uncommitted:
        raise RefusedError(
            f"{_numbers(expired)}: {expired[0].reason}",
            hint="--assume-uncommitted commits them all the same, if you know that they never were",
        )


def _refuse_alive(session: Session, look: Look, job: PendingJob) -> None:
    """Refuse a job that did something of late: its own restart would commit the same."""
    if is_staged(job.operator_id):
        return
    newest = max(
        look.findings.newest_ms.get(job.job_id, 0),
        _last_commit_ms(look, job),
        _last_checkpoint_ms(session, look, job),
        _last_write_ms(look, job),
    )
    age_ms = session.clock.now_ms() - newest
    if age_ms < look.options.quiet_ms:
        raise RefusedError(
            f"job {job.job_id} may still be running: its newest file or commit is "
            f"{format_duration(max(age_ms, 0) / 1000)} old",
            hint="stop it for good, or wait: its own restart commits the same; --quiet-time sets how long",
        )


def _last_commit_ms(look: Look, job: PendingJob) -> int:
    """Return when the job itself last committed, as opposed to a replay in its name."""
    return max(
        (
            item.timestamp_ms
            for item in look.table.metadata.snapshots
            if (commit := job_commit(item))
            and commit.job_id == job.job_id
            and OPERATION_ID not in _summary(item)
        ),
        default=0,
    )


def _last_checkpoint_ms(session: Session, look: Look, job: PendingJob) -> int:
    """Return when the given checkpoint of a job, or the last one beside it, was completed."""
    given = look.given.states.get((job.job_id, job.operator_id))
    if given is None:
        return 0
    checkpoint, storage = given[0], look.table.storage
    later = later_checkpoints(storage, checkpoint)
    if later:
        session.warn(
            f"checkpoint {max(later)} completed after the given {checkpoint.checkpoint_id}: "
            f"{later[max(later)].location}"
        )
    own = storage.look_up([checkpoint.location])[checkpoint.location]
    known = [file.modified_ms or 0 for file in (own, *later.values()) if file]
    # Read a moment ago and gone now: a newer one took its place, so the job runs.
    return max(known, default=session.clock.now_ms())


def _last_write_ms(look: Look, job: PendingJob) -> int:
    """Return when the writers of a job's newest checkpoint last wrote where its files lie."""
    newest = [path for item in job.checkpoints[-1:] for path in item.file_paths]
    writers = {found[1] for path in newest if (found := _WRITER.search(path))}
    folders = list({path.rpartition("/")[0]: None for path in newest})[:_FOLDERS]
    return max(
        (
            file.modified_ms or 0
            for folder in folders
            for file in look.table.storage.list_files(folder)
            if (found := _WRITER.search(file.location)) and found[1] in writers
        ),
        default=0,
    )


def _refuse_branch(look: Look, job: PendingJob) -> None:
    """Refuse to commit to a branch what the job commits to another."""
    metadata, branch = look.table.metadata, look.options.branch
    places = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"]
    holding = [
        name
        for name in places
        if max_committed(metadata, name, job.job_id, job.operator_id) != NONE_COMMITTED
    ]
    if holding and branch not in holding:
        raise RefusedError(
            f"job {job.job_id} commits to branch {holding[0]}, not to {branch}",
            hint=f"--branch {holding[0]} commits its checkpoints there",
        )


def _refuse_gaps(look: Look, job: PendingJob) -> None:
    """Refuse, where only file names tell what a checkpoint wrote, a series of manifests with one missing."""
    if look.options.word is None:
        return
    names = [
        name
        for item in job.checkpoints
        for manifest in item.manifests
        if (name := parse_name(manifest.path)) and name.suffix is None
    ]
    counters: dict[int, list[int]] = {}
    for name in names:
        counters.setdefault(name.attempt, []).append(name.counter)
    for found in map(sorted, counters.values()):
        for one, following in pairwise(found):
            if following > one + 1:
                raise RefusedError(
                    f"of the manifests of job {job.job_id}, number {one + 1} is missing", hint=_GIVE
                )


def _refuse_mode(look: Look, job: PendingJob) -> None:
    """Refuse what does not fit how the job's earlier snapshots were made."""
    summaries = [
        _summary(commit.snapshot)
        for commit in job_commits(look.table.metadata, look.options.branch)
        if commit.is_by(job.job_id, job.operator_id)
    ]
    earlier = {
        summary.get(REPLACE_PARTITIONS) == "true"
        for summary in summaries
        if "added-data-files" in summary
    }
    replaces = look.options.replace_partitions
    if True in earlier and not replaces:
        raise RefusedError(
            f"job {job.job_id} replaced partitions in its earlier snapshots",
            hint="--replace-partitions commits its checkpoints in the same way",
        )
    if replaces and earlier == {False}:
        raise RefusedError(
            f"job {job.job_id} did not replace partitions in its earlier snapshots",
            hint="leave --replace-partitions out",
        )
    if replaces and any(item.delete_files for item in job.checkpoints):
        raise RefusedError(
            f"checkpoints of job {job.job_id} hold delete files, which cannot replace partitions",
            hint="leave --replace-partitions out",
        )
    if replaces and look.options.word is not None and len(job.checkpoints) > 1:
        raise RefusedError(
            f"job {job.job_id} has several checkpoints to replace partitions with: "
            "which rows stay depends on the sink, which only a checkpoint tells",
            hint=_GIVE,
        )


def _refuse_twice(jobs: Iterable[PendingJob]) -> None:
    """Refuse a file, or a number of one job, that comes twice."""
    seen: set[str] = set()
    for job in jobs:
        numbers = [item.checkpoint_id for item in job.checkpoints]
        if len(set(numbers)) < len(numbers):
            raise RefusedError(
                f"two attempts wrote the same checkpoint: {_numbers(job.checkpoints)}", hint=_GIVE
            )
        for manifest in (manifest for item in job.checkpoints for manifest in item.manifests):
            files = set(manifest.file_paths)
            if files & seen:
                raise RefusedError(f"{min(files & seen)} is in two temporary manifests")
            seen |= files


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _numbers(found: Iterable[FoundCheckpoint]) -> str:
    items = list(found)
    numbers = ", ".join(str(item.checkpoint_id) for item in items[:_SHOWN])
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return f"checkpoint{'s' * (len(items) > 1)} {numbers}{more} of job {items[0].job_id}"
