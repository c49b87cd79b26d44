"""The committer state of Iceberg's sinks in an operator's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lake.core.base.errors import RefusedError
from lake.core.io.storage.storage import Storage
from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.checkpoint_files import read_state
from lake.core.table.flink.checkpoint_metadata import OperatorState
from lake.core.table.flink.committables import (
    JOB_OR_OPERATOR_ID,
    Committable,
    is_of_iceberg,
    read_collector,
)
from lake.core.table.flink.delta_manifests import read_delta_manifests
from lake.core.table.flink.operator_state import elements, java_string, sorted_map
from lake.core.table.flink.state import (
    DYNAMIC_SINK,
    FLINK_SINK,
    ICEBERG_SINK,
    CommitterState,
    TakenCheckpoint,
)

_JOB_ID_STATE = "iceberg-flink-job-id"
_FILES_STATE = "iceberg-files-committer-state"
_COLLECTOR_STATE = "streaming_committer_raw_states"
# The state names of committers; the last one is used by every SinkV2, of Iceberg or not.
COMMITTER_STATES = frozenset((_JOB_ID_STATE, _FILES_STATE, _COLLECTOR_STATE))


def read_committers(
    storage: Storage, metadata: str, operator: OperatorState
) -> list[CommitterState]:
    """Return the state of Iceberg's committers in an operator; empty if it belongs to another sink.

    Args:
        storage: the storage that contains the checkpoint.
        metadata: the location of its ``_metadata``.
        operator: the operator, with its handles for `COMMITTER_STATES`.

    Raises:
        CorruptFileError: the bytes do not have the format of Flink and Iceberg.
        RefusedError: the state does not have the structure of Iceberg's committers.
    """
    found: dict[str, list[ByteReader]] = {}
    for handle in operator.handles:
        for name, element in elements(handle, read_state(storage, metadata, handle.stream)):
            found.setdefault(name, []).append(element)
    jobs, maps = found.get(_JOB_ID_STATE, []), found.get(_FILES_STATE, [])
    committers = [_flink_sink(metadata, operator, jobs, maps)] if jobs or maps else []
    committers += _by_sink(metadata, _committables(found.get(_COLLECTOR_STATE, [])))
    if committers and (operator.raw or operator.keyed):
        raise RefusedError(
            f"{metadata}: committer {operator.title} has state that Iceberg's sinks do not use"
        )
    return committers


def _flink_sink(
    metadata: str, operator: OperatorState, jobs: list[ByteReader], maps: list[ByteReader]
) -> CommitterState:
    if len(jobs) != 1 or len(maps) != 1:
        raise RefusedError(
            f"{metadata}: committer {operator.title} has {len(jobs)} job ids and"
            f" {len(maps)} lists of checkpoints instead of one each"
        )
    job_id = java_string(jobs[0])
    if not JOB_OR_OPERATOR_ID.fullmatch(job_id):
        raise jobs[0].corrupt(f"invalid job {job_id[:40]!r}")
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


def _committables(collectors: list[ByteReader]) -> Iterator[Committable]:
    for element in collectors:
        collector = element.reader(element.count(1))
        element.expect_end()
        if is_of_iceberg(collector.rest()):
            yield from read_collector(collector)


def _by_sink(metadata: str, committables: Iterable[Committable]) -> list[CommitterState]:
    """Group committables by the target and the labels of their commits."""
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
    """Return one entry per checkpoint.

    DynamicIcebergSink commits several committables of one checkpoint together (releases before 1.11 created one for
    each way of writing to a table); IcebergSink creates only one, and would drop any others.
    """
    found: dict[int, TakenCheckpoint] = {}
    for item in sorted(items, key=lambda item: item.checkpoint_id):
        number = item.checkpoint_id
        if number in found and not merge:
            raise RefusedError(f"{metadata}: checkpoint {number} of job {item.job_id} occurs twice")
        before = found[number].manifests if number in found else ()
        found[number] = TakenCheckpoint(
            checkpoint_id=number,
            manifests=tuple(sorted((*before, *item.manifests), key=lambda each: each.content)),
            blank=item.blank,
        )
    return tuple(found.values())
