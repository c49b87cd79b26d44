"""Reading a checkpoint or savepoint: which Iceberg sinks were in it, and what they had yet to commit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from lake.core import paths
from lake.core.checkpoints.byte_reader import ByteReader
from lake.core.checkpoints.committables import (
    JOB_OR_OPERATOR_ID,
    Committable,
    is_of_iceberg,
    read_collector,
)
from lake.core.checkpoints.delta_manifests import read_delta_manifests
from lake.core.checkpoints.metadata import OperatorState, read_metadata
from lake.core.checkpoints.operator_state import java_string, list_states, sorted_map
from lake.core.checkpoints.state import (
    DYNAMIC_SINK,
    FLINK_SINK,
    ICEBERG_SINK,
    Checkpoint,
    CommitterState,
    TakenCheckpoint,
)
from lake.core.checkpoints.state_files import read_state
from lake.core.errors import BadInputError, NotFoundError, RefusedError
from lake.core.table.storage import Storage

METADATA = "_metadata"
_JOB_ID_STATE = "iceberg-flink-job-id"
_FILES_STATE = "iceberg-files-committer-state"
_COLLECTOR_STATE = "streaming_committer_raw_states"
_OF_A_COMMITTER = {_JOB_ID_STATE, _FILES_STATE, _COLLECTOR_STATE}
_CHECKPOINT_FOLDER = re.compile(r"chk-([0-9]{1,19})")
_UNALIGNED_HINT = "Stop the job with a savepoint, or take an aligned checkpoint, and give that."


def read_checkpoint(storage: Storage, location: str) -> Checkpoint:
    """Read what the Iceberg sinks of a checkpoint or savepoint had taken and not committed.

    Args:
        storage: where it lies.
        location: its folder or the ``_metadata`` file in it.

    Raises:
        CorruptFileError: its bytes are not what Flink and Iceberg write.
        NotFoundError: there is no completed checkpoint.
        RefusedError: it may hold more of the sinks than can be read: an unknown version or kind of state, or
            what was on its way to a committer when an unaligned checkpoint was taken.
    """
    metadata = _find_metadata(storage, location)
    source = ByteReader(memoryview(storage.read(metadata)), metadata)
    checkpoint_id, operators = read_metadata(source)
    committers = [
        committer
        for operator in operators
        if _states_of(operator) & _OF_A_COMMITTER
        for committer in _committers(storage, metadata, operator)
    ]
    if committers:
        _check_nothing_on_its_way(metadata, operators, committers)
    _check_distinct(metadata, committers)
    return Checkpoint(location=metadata, checkpoint_id=checkpoint_id, committers=tuple(committers))


def _states_of(operator: OperatorState) -> set[str]:
    return {name for handle in operator.handles for name in handle.states}


def _committers(storage: Storage, metadata: str, operator: OperatorState) -> list[CommitterState]:
    found: dict[str, list[ByteReader]] = {}
    for handle in operator.handles:
        if handle.stream is None or not handle.states.keys() & _OF_A_COMMITTER:
            continue
        source = read_state(storage, metadata, handle.stream)
        for name, elements in list_states(handle, _OF_A_COMMITTER, source).items():
            found.setdefault(name, []).extend(elements)
    jobs, maps = found.get(_JOB_ID_STATE, []), found.get(_FILES_STATE, [])
    committers = [_flink_sink(metadata, operator, jobs, maps)] if jobs or maps else []
    committers += _by_sink(metadata, _committables(found.get(_COLLECTOR_STATE, [])))
    if committers and (operator.raw or operator.keyed):
        raise RefusedError(
            f"{metadata}: committer {operator.title} has state that Iceberg's sinks never have"
        )
    return committers


def _flink_sink(
    metadata: str, operator: OperatorState, jobs: list[ByteReader], maps: list[ByteReader]
) -> CommitterState:
    if len(jobs) != 1 or len(maps) != 1:
        raise RefusedError(
            f"{metadata}: committer {operator.title} has {len(jobs)} job ids and"
            f" {len(maps)} lists of checkpoints, not one of each"
        )
    job_id = java_string(jobs[0])
    if not JOB_OR_OPERATOR_ID.fullmatch(job_id):
        raise jobs[0].corrupt(f"the job {job_id[:40]!r}")
    return CommitterState(
        sink=FLINK_SINK,
        job_id=job_id,
        operator_id=operator.operator_id,
        checkpoints=tuple(
            _taken(number, content) for number, content in sorted_map(maps[0]).items()
        ),
    )


def _taken(checkpoint_id: int, content: ByteReader) -> TakenCheckpoint:
    if not content.remaining:
        return TakenCheckpoint(checkpoint_id=checkpoint_id, blank=True)
    return TakenCheckpoint(checkpoint_id=checkpoint_id, manifests=read_delta_manifests(content))


def _committables(elements: list[ByteReader]) -> Iterator[Committable]:
    for element in elements:
        collector = element.reader(element.count(1))
        element.expect_end()
        if is_of_iceberg(collector.rest()):
            yield from read_collector(collector)


def _by_sink(metadata: str, committables: Iterable[Committable]) -> list[CommitterState]:
    """Group committables by what a commit is labelled with and goes to."""
    groups: dict[tuple[str, str, str | None, str | None], list[Committable]] = {}
    for item in committables:
        key = (item.job_id, item.operator_id, item.table, item.branch)
        groups.setdefault(key, []).append(item)
    return [
        CommitterState(
            sink=ICEBERG_SINK if table is None else DYNAMIC_SINK,
            job_id=job_id,
            operator_id=operator_id,
            checkpoints=_by_checkpoint(metadata, items, merge=table is not None),
            table=table,
            branch=branch,
        )
        for (job_id, operator_id, table, branch), items in groups.items()
    ]


def _by_checkpoint(
    metadata: str, items: list[Committable], *, merge: bool
) -> tuple[TakenCheckpoint, ...]:
    """Return one entry a checkpoint.

    DynamicIcebergSink commits several committables of one checkpoint together (releases before 1.11 made one for
    each way of writing to a table); IcebergSink makes one alone, and would drop all others.
    """
    found: dict[int, TakenCheckpoint] = {}
    for item in sorted(items, key=lambda item: item.checkpoint_id):
        number = item.checkpoint_id
        if number in found and not merge:
            raise RefusedError(
                f"{metadata}: checkpoint {number} of job {item.job_id} is there twice"
            )
        before = found[number].manifests if number in found else ()
        found[number] = TakenCheckpoint(
            checkpoint_id=number,
            manifests=tuple(sorted((*before, *item.manifests), key=lambda each: each.content)),
            blank=item.blank,
        )
    return tuple(found.values())


def _check_nothing_on_its_way(
    metadata: str, operators: list[OperatorState], committers: list[CommitterState]
) -> None:
    """Refuse an unaligned checkpoint if files may have been on their way from a writer to a committer.

    Writers and IcebergSink's aggregator are stateless and not marked in any way; so is many an operator that has
    nothing to do with a sink, which is then refused without need.
    """
    aggregates = any(committer.sink != FLINK_SINK for committer in committers)
    for operator in operators:
        committing = bool(_states_of(operator) & _OF_A_COMMITTER)
        inputs = operator.inputs if committing or (operator.is_stateless and aggregates) else 0
        outputs = operator.outputs if committing or operator.is_stateless else 0
        if inputs or outputs:
            raise RefusedError(
                f"{metadata} is an unaligned checkpoint: operator {operator.title} has"
                f" {inputs} pieces of input and {outputs} of output on their way,"
                " which may be files that its committer had not taken yet",
                hint=_UNALIGNED_HINT,
            )


def _check_distinct(metadata: str, committers: list[CommitterState]) -> None:
    """Refuse state in which one sink, or one manifest, stands twice."""
    sinks = [(item.job_id, item.operator_id, item.table, item.branch) for item in committers]
    manifests = [
        manifest.path
        for committer in committers
        for checkpoint in committer.checkpoints
        for manifest in checkpoint.manifests
    ]
    for found, what in ((sinks, "sink"), (manifests, "manifest")):
        again = [item for item, number in Counter(found).items() if number > 1]
        if again:
            raise RefusedError(f"{metadata}: the {what} {again[0]} is there twice")


def _find_metadata(storage: Storage, location: str) -> str:
    base = location.rstrip("/")
    if base.rpartition("/")[2] == METADATA:
        if storage.exists(base):
            return base
        base = base.rpartition("/")[0]
    elif storage.exists(inside := paths.join(base, METADATA)):
        return inside
    elif storage.exists(base):
        return base
    newest = _newest_below(storage, base)
    if newest is not None:
        raise BadInputError(
            f"{base} holds checkpoints and is none",
            hint=f"Give one of them; the newest is {newest}.",
        )
    raise NotFoundError(
        f"{base} holds no {METADATA}: it is not a completed checkpoint",
        hint="Flink writes that file last; without it the checkpoint failed or is still being taken.",
    )


def _newest_below(storage: Storage, folder: str) -> str | None:
    """Return the completed checkpoint of the largest number right in a job's folder."""
    numbers = [
        int(found.group(1))
        for name, is_folder in storage.list_folder(folder)
        if is_folder and (found := _CHECKPOINT_FOLDER.fullmatch(name))
    ]
    places = (paths.join(folder, f"chk-{number}") for number in sorted(numbers, reverse=True))
    return next((place for place in places if storage.exists(paths.join(place, METADATA))), None)
