"""Flink jobs whose committer is killed and restored, and `lake replay` in their place.

A job takes checkpoints as FlinkSink does: data files, a temporary manifest for each kind of file, then the
uncommitted checkpoints in the state that a completed checkpoint's ``_metadata`` contains. A restored job searches
from the branch's head for its own last commit, and commits the later checkpoints in its state. Each checkpoint's
rows must occur once, whether the job or lake commits it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from support.tables.checkpoint_writer import (
    delta_manifests,
    inline,
    java_string,
    manifest,
    metadata,
    operator,
    operator_bytes,
    operator_handle,
    sorted_map,
    subtask_state,
)
from support.tables.delete_files import equality_file
from support.tables.replay_plans import write_manifest

from lake.core.base.errors import CommitConflictError
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshots
from lake.core.transaction.commit.operations import AppendFiles, RowDelta, SnapshotStep
from lake.core.transaction.commit.operations import Operation as TableOperation
from world import foreign
from world.model import ID, Effect, Model, Operation, State, adding, upserting
from world.simulation import DAY_MS, PARTS, World

# How long a job that is down is remembered, unless an expiry had another setting.
REMEMBERED_MS = 7 * DAY_MS
_FORMAT = 4
_JOB, _OPERATOR, _NUMBER = "flink.job-id", "flink.operator-id", "flink.max-committed-checkpoint-id"
_NEWEST_IDS = 10_000


@dataclass(eq=False)
class Written:
    """The files of a job for one checkpoint.

    Args:
        number: the checkpoint's number.
        operation: the effect of its commit on the table.
        effect: the effect of the commit on rows.
        manifests: its temporary manifests: location, length, spec, content, files and rows of each.
        files: its data and delete files.
    """

    number: int
    operation: TableOperation
    effect: Effect
    manifests: list[tuple[str, int, int, int, int, int]]
    files: list[str]


@dataclass(eq=False)
class Job:
    """A job with one committer.

    Args:
        job_id: the id of the running attempt; a restore may change it.
        state_id: the job id for the commits of the state's checkpoints.
        state: the checkpoints in the newest completed checkpoint.
        taken: the uncommitted checkpoints of the running committer.
        folder: the folder of the newest completed checkpoint.
    """

    job_id: str
    operator_id: str
    state_id: str
    number: int = 0
    attempt: int = 0
    counter: int = 0
    state: list[Written] = field(default_factory=list)
    taken: list[Written] = field(default_factory=list)
    folder: Path | None = None
    completed: int = 0
    alive: bool = True
    seen_ms: int = 0
    over: bool = False


class ForgottenError(CommitConflictError):
    """A job cannot be restored: it is too late, or was rolled back, so its files need not have been kept."""


def flink(world: World, random: Random) -> None:
    """Let the actor's job take a checkpoint and commit it, die in between, or be restored."""
    jobs = world.kept.setdefault("jobs", [])
    mine = f"job of {world.scheduler.actor()}"
    job = world.kept.get(mine)
    if job is None or job.over or _is_forgotten(world, job):
        if job is not None:
            job.over = True
        ids = [uuid.uuid4().hex for _ in range(2)]
        job = world.kept[mine] = Job(*ids, state_id=ids[0], seen_ms=world.clock.now)
        jobs.append(job)
    if not job.alive:
        if random.random() < (0.1 if job in world.kept.get("busy jobs", []) else 0.4):
            world.counts["flink: stays down"] += 1
            return
        if not restore(world, job, new_id=random.random() < 0.5):
            return
    _checkpoint(world, random, job)
    if random.random() < 0.15:
        _die(world, job, "in a checkpoint")
        return
    _complete(world, job)
    if random.random() < (0.6 if world.config.focus == "jobs" else 0.3):
        _die(world, job, "before its commit")
        return
    _commit_taken(world, job, random)


def restore(world: World, job: Job, *, new_id: bool = False) -> bool:
    """Restore a job from its newest completed checkpoint; return whether it runs."""
    job.number, job.attempt = job.completed, job.attempt + 1
    job.taken = list(job.state)
    job.alive = True
    for one in list(job.taken):
        operation = Operation("flink restored", one.effect, holds=_holds(job.state_id, one))
        world.other_writer(
            operation, lambda one=one: _commit(world, job, one, job.state_id, restored=True)
        )
        if operation.outcome != "done":
            job.over = operation.outcome == "ForgottenError"
            _die(world, job, "restoring")
            return False
        _committed(world, job, one)
    if new_id:
        job.job_id = uuid.uuid4().hex
        job.attempt = job.counter = 0
    return True


def _is_forgotten(world: World, job: Job) -> bool:
    return world.clock.now - job.seen_ms > world.kept.get("remembered ms", REMEMBERED_MS)


def _die(world: World, job: Job, when: str) -> None:
    job.alive = False
    job.taken = []
    world.counts[f"flink: died {when}"] += 1


def _commit_taken(world: World, job: Job, random: Random) -> None:
    for one in list(job.taken):
        operation = Operation("flink", one.effect, holds=_holds(job.job_id, one))
        if not world.other_writer(operation, lambda one=one: _commit(world, job, one, job.job_id)):
            _die(world, job, "of a commit")
            return
        if random.random() < 0.1:
            _die(world, job, "behind its commit")
            return
        _committed(world, job, one)


def _committed(world: World, job: Job, one: Written) -> None:
    job.seen_ms = world.clock.now
    if one in job.taken:
        job.taken.remove(one)
    for path, *_ in one.manifests:
        _path(path).unlink(missing_ok=True)


def _checkpoint(world: World, random: Random, job: Job) -> None:
    """Write a checkpoint's files and manifests."""
    table = world.table()
    job.number += 1
    by_key = world.config.version > 1 and table.spec.is_unpartitioned() and random.random() < 0.6
    state = world.model.rows(world.head())
    known = sorted(dict(row)[ID] for row in state.values())
    ids = random.sample(known, min(len(known), 2)) if by_key else []
    ids = list(dict.fromkeys([*ids, *random.sample(range(_NEWEST_IDS), 2)]))
    rows = world.new_rows(ids, random.choice(PARTS))
    data = foreign.data_files(table, rows)
    deletes = [equality_file(table, [{"id": row["id"]} for row in rows], ["id"])] if by_key else []
    for file in (*data, *deletes):
        world.born(file.path)
    world.point("flink wrote")
    operation: TableOperation = AppendFiles(added=data)
    if by_key:
        operation = RowDelta(added=data, deletes=deletes, validates=False)
    kinds = [files for files in (data, deletes) if files]
    job.taken.append(
        Written(
            job.number,
            operation,
            upserting(rows) if by_key else adding(rows),
            [_manifest(world, table, job, files) for files in kinds],
            [file.path for file in (*data, *deletes)],
        )
    )
    world.point("flink laid down")


def _manifest(
    world: World, table: Table, job: Job, files: Sequence[DataFile]
) -> tuple[str, int, int, int, int, int]:
    job.counter += 1
    location = write_manifest(
        table,
        files,
        checkpoint_id=job.number,
        counter=job.counter,
        job_id=job.job_id,
        operator_id=job.operator_id,
        attempt=job.attempt,
    )
    world.born(location)
    rows = sum(file.record_count for file in files)
    size = _path(location).stat().st_size
    return location, size, files[0].spec_id, min(files[0].content, 1), len(files), rows


def _complete(world: World, job: Job) -> None:
    """Complete the checkpoint: a restore starts from it."""
    entries: dict[int, bytes | None] = {}
    for one in job.taken:
        found = {
            content: manifest(path, length=size, spec_id=spec, content=content, files=n, rows=rows)
            for path, size, spec, content, n, rows in one.manifests
        }
        entries[one.number] = delta_manifests(found.get(0, b""), found.get(1, b""))
    data, offsets = operator_bytes(
        {
            "iceberg-files-committer-state": (0, [sorted_map(entries)]),
            "iceberg-flink-job-id": (0, [java_string(job.job_id)]),
        }
    )
    subtask = subtask_state(_FORMAT, managed=operator_handle(offsets, inline(data)))
    committer = operator(_FORMAT, job.operator_id, {0: subtask}, name="Committer")
    folder = world.folder / "checkpoints" / job.job_id / f"chk-{job.number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_metadata").write_bytes(metadata(_FORMAT, job.number, [committer]))
    world.born(str(folder / "_metadata"))
    if job.folder is not None:
        # Flink keeps one.
        shutil.rmtree(job.folder, ignore_errors=True)
    job.folder, job.completed = folder, job.number
    job.state, job.state_id = list(job.taken), job.job_id
    world.point("flink completed")


def _commit(world: World, job: Job, one: Written, job_id: str, *, restored: bool = False) -> None:
    marks = {_JOB: job_id, _OPERATOR: job.operator_id, _NUMBER: str(one.number)}

    def decide(table: Table) -> list[SnapshotStep]:
        if restored and _is_forgotten(world, job):
            raise ForgottenError("too late")
        if restored and _last_number(table.metadata, job_id, job.operator_id) >= one.number:
            return []
        needed = [*(path for path, *_ in one.manifests), *one.files]
        gone = [path for path in needed if not _path(path).exists()]
        if gone and _holds(job_id, one) <= world.model.ever_held:
            # It was committed, and a rollback removed the commit.
            raise ForgottenError("rolled back")
        assert not gone, f"a job's pending checkpoint {one.number} lacks {gone}"
        return [SnapshotStep(operation=one.operation, summary=marks)]

    commit_snapshots(
        world.session(), world.table(), decide, CommitRequest(operation_id=str(uuid.uuid4()))
    )


def _last_number(found: TableMetadata, job_id: str, operator_id: str) -> int:
    by_id = {item.snapshot_id: item for item in found.snapshots}
    at = found.current_snapshot()
    while at is not None:
        summary: Mapping[str, str] = at.summary.additional_properties if at.summary else {}
        if summary.get(_JOB) == job_id and summary.get(_OPERATOR, operator_id) == operator_id:
            return int(summary[_NUMBER])
        at = by_id.get(at.parent_snapshot_id or 0)
    return -1


# In the job's place


def replay(world: World, random: Random) -> None:
    """Let lake commit the provably uncommitted checkpoints of a job's newest completed one, or only report them."""
    jobs = [job for job in world.kept.get("jobs", []) if job.folder is not None and not job.over]
    if not jobs:
        return
    owed = [job for job in jobs if not job.alive and _is_owed(world, job)]
    job = random.choice(owed if owed and random.random() < 0.8 else jobs)
    # Prefer a job on which another actor is working.
    busy = world.kept.setdefault("busy jobs", [])
    if busy and random.random() < 0.8:
        job = busy[-1]
    busy.append(job)
    try:
        _replay(world, random, job)
    finally:
        busy.remove(job)


def _replay(world: World, random: Random, job: Job) -> None:
    if random.random() < 0.2:
        world.no_change("replay", *random.choice([[], ["--status"], [*_word(job), "--dry-run"]]))
        return
    how = ["--checkpoint", str(job.folder)] if random.random() < 0.6 else _word(job)
    if job.alive:
        # A running job must not be replayed: it commits without reading the table again.
        how += ["--quiet-time", "30d"]
    elif random.random() < 0.8:
        how += ["--quiet-time", "0s"]
    world.step(replaying(job), "replay", *how)


def _is_owed(world: World, job: Job) -> bool:
    return any(not _holds(job.state_id, one) <= world.model.ever_held for one in job.state)


def _word(job: Job) -> list[str]:
    return ["--job", job.state_id, "--completed", str(job.completed)]


def replaying(job: Job) -> Operation:
    """Return the operation of a replay of a job's state as it is now."""
    state, job_id = list(job.state), job.state_id

    def choices(made: Snapshot, model: Model) -> Iterator[Operation]:
        summary: Mapping[str, str] = made.summary.additional_properties if made.summary else {}
        assert summary[_JOB] == job_id
        upto = [one for one in state if one.number <= int(summary[_NUMBER])]
        # Those that a snapshot once held are not committed again behind a rollback.
        for held in (model.held(made.parent_snapshot_id), model.ever_held):
            new = [one for one in upto if not _holds(job_id, one) <= held]
            holds = frozenset[Any]().union(*(_holds(job_id, one) for one in new))
            yield Operation("replay", _one_after_the_other(new), holds=holds)

    return Operation("replay", choices=choices)


def _one_after_the_other(written: Sequence[Written]) -> Effect:
    def effect(state: State, names: Mapping[str, int]) -> State:
        for one in written:
            state = one.effect(state, names)
        return state

    return effect


def _holds(job_id: str, one: Written) -> frozenset[Any]:
    return frozenset({(job_id, one.number)})


def pending(world: World) -> set[str]:
    """Return the files that a job's state names and no snapshot ever held."""
    found: set[str] = set()
    for job in world.kept.get("jobs", []):
        if job.over or _is_forgotten(world, job):
            continue
        for one in job.state:
            if not _holds(job.state_id, one) <= world.model.ever_held:
                found.update(one.files)
                found.update(path for path, *_ in one.manifests)
    return found


def settle(world: World) -> None:
    """Bring every job back a last time: each completed checkpoint was committed, and no replay finds one more."""
    for job in world.kept.get("jobs", []):
        if job.over or _is_forgotten(world, job):
            continue
        if not job.alive:
            restore(world, job)
        else:
            _commit_taken(world, job, Random(0))
        lost = [one for one in job.state if not _holds(job.state_id, one) <= world.model.ever_held]
        assert not lost or not job.alive, f"checkpoints {[one.number for one in lost]} are lost"
        if job.alive and job.folder is not None:
            # A rollback removes what was committed, and nothing commits it again without a request.
            replayed = replaying(job)
            world.step(replayed, "replay", "--checkpoint", str(job.folder), "--quiet-time", "0s")
            assert not replayed.swaps, f"a replay commits once more: {replayed.outcome}"


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
