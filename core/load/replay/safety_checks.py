"""The safety rules of a replay and its warnings, evaluated before anything is committed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lake.core.base.clock import UUID_FORM
from lake.core.base.errors import NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.base.units import format_duration
from lake.core.load.replay.checkpoint_selection import later_checkpoints
from lake.core.load.replay.classification import Doubt
from lake.core.load.replay.model import FOREIGN, FoundCheckpoint, PendingJob
from lake.core.load.replay.snapshot_steps import files_of
from lake.core.load.replay.staged import is_staged
from lake.core.table.flink.commits import NONE_COMMITTED, job_commit, job_commits, max_committed
from lake.core.table.flink.manifest_names import parse_name
from lake.core.table.manifests.api import read_manifest_list
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.run_ids import OPERATION_ID, run_ids_of
from lake.core.table.snapshots.summary import REPLACE_PARTITIONS
from lake.core.transaction.commit.operations import EntryTable
from lake.core.transaction.commit.partition_index import LivePartitions
from lake.core.transaction.staging.staged_run import job_and_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake.core.load.replay.survey import Survey
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_SHOWN = 10
# Names of Flink's data files: task, attempt, a UUID of the writer, counter.
_WRITER = re.compile(rf"/[0-9]{{5,}}-[0-9]+-({UUID_FORM})-[0-9]{{5,}}[^/]*$")
_FOLDERS = 64
_GIVE = f"name the job's newest completed checkpoint with {Option.CHECKPOINT}"


def check(session: Session, survey: Survey) -> None:
    """Apply the safety rules, and warn about checkpoints that are not committed.

    Raises:
        NotFoundError: nothing in the table is by the job that was asked for.
        RefusedError: a safety rule forbids the commit.
    """
    _refuse_elsewhere(survey)  # check: checkpoint-of-this-table
    _refuse_unknown(survey)  # check: known-job
    _warn(session, survey)
    _refuse_unfit(survey)  # check: whole-checkpoints
    _refuse_expired(survey)  # check: checkpoint-before-expiry
    for job in survey.jobs:
        # Checkpoints without files change no rows.
        if any(item.manifests for item in job.checkpoints):
            _refuse_running(session, survey, job)
            _refuse_branch(survey, job)
            _refuse_mode(survey, job)  # check: mode-of-checkpoint
            _refuse_other_specs(survey, job)
            refuse_unreached(survey.table, survey.options.branch, job)
            _refuse_gaps(survey, job)  # check: no-missing-manifests
    _refuse_twice(survey.jobs)


def _warn(session: Session, survey: Survey) -> None:
    for text in survey.given.skipped:
        session.warn(text)
    assertion = survey.options.operator_assertion
    if assertion is not None and not any(
        item.found.job_id == assertion[0] for item in survey.classified
    ):
        session.warn(f"found no temporary manifest of job {assertion[0]}")
    others = [item.found for item in survey.asked_for if item.found.state == FOREIGN]
    if others:
        session.warn(f"not committed: {_numbers(others)}: {others[0].reason}")
    unproven = [item.found for item in survey.asked_for if item.doubt is Doubt.NUMBER]
    if unproven and not survey.options.assume_uncommitted:
        session.warn(
            f"not committed, because unproven: {_numbers(unproven)}; {unproven[0].reason}; "
            f"{Option.ASSUME_UNCOMMITTED} commits them"
        )
    elif any(_has_equality_deletes(item) for item in unproven):
        session.warn(
            f"{_numbers(unproven)} is committed late: equality deletes also delete rows "
            "with the same keys that were committed since"
        )


def _refuse_elsewhere(survey: Survey) -> None:
    """Refuse a checkpoint, or a job, of which nothing belongs to the table and branch."""
    for location, reason in survey.given.others.items():
        raise RefusedError(
            f"{location} contains nothing to commit to branch {survey.options.branch} of "
            f"{survey.table.identifier}: {reason}"
        )
    asked = [item.found for item in survey.asked_for]
    if asked and survey.options.operator_assertion and all(item.state == FOREIGN for item in asked):
        raise RefusedError(f"{_numbers(asked)}: {asked[0].reason}")


def _refuse_unknown(survey: Survey) -> None:
    """Refuse a job that the table does not know, or a number above all that it knows of the job.

    A job may complete checkpoints without rows, which leave nothing: their numbers are not needed. Without the whole
    history a repeated command must not fail, because the commit of the first one may have expired.
    """
    assertion = survey.options.operator_assertion
    if assertion is None:
        return
    job_id, completed = assertion
    table = survey.table
    known = _numbers_by_job(survey)
    is_whole = survey.retained_since_ms is None
    if job_id not in known:
        if is_whole:
            raise NotFoundError(
                f"no snapshot and no temporary manifest of {table.identifier} is by job {survey.options.job}",
                hint=_known_jobs(known),
            )
        return
    highest = known[job_id]
    if completed > highest and (is_whole or survey.jobs):
        raise RefusedError(
            f"{Option.COMPLETED} {completed} is above {highest}, the highest checkpoint of job {job_id} that "
            "left anything in the table",
            hint=f"if {highest} or a later checkpoint has completed, give {Option.COMPLETED} {highest}: later ones "
            "without rows leave nothing to commit",
        )


def _numbers_by_job(survey: Survey) -> dict[str, int]:
    """Return the highest checkpoint of each job in temporary manifests and in retained snapshots."""
    numbers: dict[str, int] = {}
    found = [(item.found.job_id, item.found.checkpoint_id) for item in survey.classified]
    for snapshot in survey.table.metadata.snapshots:
        if commit := job_commit(snapshot):
            found.append((commit.job_id, commit.checkpoint_id))
        found += [job_and_checkpoint(run_id) for run_id in run_ids_of(properties_of(snapshot))]
    for job_id, number in found:
        numbers[job_id] = max(number, numbers.get(job_id, number))
    return numbers


def _known_jobs(numbers: Mapping[str, int]) -> str:
    jobs = [f"{job_id} (up to {number})" for job_id, number in numbers.items()]
    return f"jobs of the table: {_first(jobs)}" if jobs else "no job wrote to the table"


def _has_equality_deletes(found: FoundCheckpoint) -> bool:
    return any(
        EQUALITY_DELETES in manifest.entries["content"].to_pylist() for manifest in found.manifests
    )


def _refuse_unfit(survey: Survey) -> None:
    for item in survey.unfit:
        found = item.found
        raise RefusedError(
            f"checkpoint {found.checkpoint_id} of job {found.job_id} is {found.state}: {found.reason}",
            hint="nothing was committed; `lake replay TABLE` lists all checkpoints and their states",
        )


def _refuse_expired(survey: Survey) -> None:
    expired = [item.found for item in survey.asked_for if item.doubt is Doubt.HISTORY]
    if expired and not survey.options.assume_uncommitted:
        raise RefusedError(
            f"{_numbers(expired)}: {expired[0].reason}",
            hint=f"add {Option.ASSUME_UNCOMMITTED} if you know that they were never committed",
        )


def _refuse_running(session: Session, survey: Survey, job: PendingJob) -> None:
    """Refuse a job that was active recently, because its restart would commit the same files."""
    if is_staged(job.operator_id):
        return
    newest = max(
        survey.findings.newest_ms.get(job.job_id, 0),
        _last_commit_ms(survey, job),
        _last_checkpoint_ms(session, survey, job),
        _last_write_ms(survey, job),
    )
    age_ms = session.clock.now_ms() - newest
    if age_ms < survey.options.quiet_time:  # check: quiet-job
        raise RefusedError(
            f"job {job.job_id} may still be running: its newest file or commit is "
            f"{format_duration(max(age_ms, 0) / 1000)} old",
            hint="a restart of the job would commit the same files: stop it permanently, or wait "
            f"({Option.QUIET_TIME})",
        )


def _last_commit_ms(survey: Survey, job: PendingJob) -> int:
    """Return when the job itself last committed; commits of a replay do not count."""
    return max(
        (
            item.timestamp_ms
            for item in survey.table.metadata.snapshots
            if (commit := job_commit(item))
            and commit.job_id == job.job_id
            and OPERATION_ID not in properties_of(item)
        ),
        default=0,
    )


def _last_checkpoint_ms(session: Session, survey: Survey, job: PendingJob) -> int:
    """Return when the given checkpoint of a job, or the newest one in its folder, completed."""
    given = survey.given.states.get((job.job_id, job.operator_id))
    if given is None:
        return 0
    checkpoint, storage = given[0], survey.table.storage
    later = later_checkpoints(storage, checkpoint)
    if later:
        session.warn(
            f"checkpoint {max(later)} completed after the given {checkpoint.checkpoint_id}: "
            f"{later[max(later)].location}"
        )
    own = storage.look_up([checkpoint.location])[checkpoint.location]
    known = [file.modified_ms or 0 for file in (own, *later.values()) if file]
    # If the checkpoint disappeared since it was read, a newer one replaced it, so the job is running.
    return max(known, default=session.clock.now_ms())


def _last_write_ms(survey: Survey, job: PendingJob) -> int:
    """Return when the writers of a job's newest checkpoint last wrote to the folders of its files."""
    newest = [path for item in job.checkpoints[-1:] for path in item.file_paths]
    writers = {found[1] for path in newest if (found := _WRITER.search(path))}
    folders = list({path.rpartition("/")[0]: None for path in newest})[:_FOLDERS]
    return max(
        (
            file.modified_ms or 0
            for folder in folders
            for file in survey.table.storage.list_files(folder)
            if (found := _WRITER.search(file.location)) and found[1] in writers
        ),
        default=0,
    )


def _refuse_branch(survey: Survey, job: PendingJob) -> None:
    """Refuse a branch to which the job does not commit."""
    metadata, branch = survey.table.metadata, survey.options.branch
    branches = [
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == "branch" and not ancestry.is_consumer(name)
    ]
    holding = [
        name
        for name in branches
        if max_committed(metadata, name, job.job_id, job.operator_id) != NONE_COMMITTED
    ]
    if holding and branch not in holding:
        raise RefusedError(
            f"job {job.job_id} commits to branch {holding[0]}, not to {branch}",
            hint=f"add {Option.BRANCH} {holding[0]}",
        )


def _refuse_gaps(survey: Survey, job: PendingJob) -> None:
    """Refuse a gap in the numbers of manifests, if only file names identify a checkpoint's manifests."""
    if survey.options.operator_assertion is None:
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
        for number, following in pairwise(found):
            if following > number + 1:
                raise RefusedError(
                    f"manifest number {number + 1} of job {job.job_id} is missing", hint=_GIVE
                )


def _refuse_mode(survey: Survey, job: PendingJob) -> None:
    """Refuse a `replace_partitions` that does not match the job's earlier snapshots."""
    summaries = [
        properties_of(commit.snapshot)
        for commit in job_commits(survey.table.metadata, survey.options.branch)
        if commit.is_by(job.job_id, job.operator_id)
    ]
    earlier = {
        summary.get(REPLACE_PARTITIONS) == "true"
        for summary in summaries
        if "added-data-files" in summary
    }
    replaces = survey.options.replace_partitions
    if True in earlier and not replaces:
        raise RefusedError(
            f"job {job.job_id} replaced partitions in its earlier snapshots",
            hint=f"add {Option.REPLACE_PARTITIONS} to commit its checkpoints in the same way",
        )
    if replaces and earlier == {False}:
        raise RefusedError(
            f"job {job.job_id} did not replace partitions in its earlier snapshots",
            hint=f"omit {Option.REPLACE_PARTITIONS}",
        )
    if replaces and any(item.delete_files for item in job.checkpoints):
        raise RefusedError(
            f"checkpoints of job {job.job_id} contain delete files, which cannot replace partitions",
            hint=f"omit {Option.REPLACE_PARTITIONS}",
        )
    if replaces and survey.options.operator_assertion is not None and len(job.checkpoints) > 1:
        raise RefusedError(
            f"job {job.job_id} has several checkpoints that replace partitions: which rows remain depends on "
            "the kind of sink, which only a checkpoint contains",
            hint=_GIVE,
        )


def _refuse_other_specs(survey: Survey, job: PendingJob) -> None:
    """Refuse a `replace_partitions` that would leave old rows; the commit decides it again."""
    table = survey.table
    head = ancestry.branch_head(table.metadata, survey.options.branch)
    if head is not None and survey.options.replace_partitions:
        listed = read_manifest_list(table.storage, head.manifest_list).to_pylist()
        index = LivePartitions(table.storage, {})
        index.refuse_rows_elsewhere(table.metadata, listed, files_of(job.checkpoints, data=True))


def refuse_unreached(table: Table, branch: str, job: PendingJob) -> None:
    """Refuse equality deletes that would leave old rows in files of another partition spec beside the new ones.

    Raises:
        RefusedError: there are files to which the deletes do not apply, with rows of the same partitions.
    """
    head = ancestry.branch_head(table.metadata, branch)
    if head is None or is_staged(job.operator_id) or len(table.metadata.specs()) == 1:
        return
    deletes = [
        EntryTable(part.spec_id, part.entries.filter(is_equality))
        for part in files_of(job.checkpoints, data=False)
        if pc.any(is_equality := pc.equal(part.entries["content"], EQUALITY_DELETES)).as_py()
    ]
    if not deletes:
        return
    listed = read_manifest_list(table.storage, head.manifest_list).to_pylist()
    index = LivePartitions(table.storage, {})
    for part in deletes:
        try:
            index.refuse_rows_elsewhere(table.metadata, listed, [part])
        except RefusedError as error:
            raise RefusedError(
                f"equality deletes of job {job.job_id} do not apply to {error.message}",
                hint=f"`lake compact {table.identifier} {Option.REWRITE_ALL} {Option.SPEC_ID} {part.spec_id}` "
                "writes the rows with the partition spec of the deletes",
            ) from error


def _refuse_twice(jobs: Iterable[PendingJob]) -> None:
    """Refuse a file, or a checkpoint number of one job, that occurs twice."""
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


def _numbers(found: Iterable[FoundCheckpoint]) -> str:
    items = list(found)
    numbers = _first([str(item.checkpoint_id) for item in items])
    return f"checkpoint{'s' * (len(items) > 1)} {numbers} of job {items[0].job_id}"


def _first(texts: Sequence[str]) -> str:
    """Return the first of some texts, and how many more there are."""
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"
