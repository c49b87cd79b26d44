"""The state of a SinkV2 committer: committables of IcebergSink and DynamicIcebergSink.

Source: Flink's CommittableCollectorSerializer (1.x and 2.x), Iceberg's IcebergCommittableSerializer and
DynamicCommittableSerializer (versions 1 and 2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.delta_manifests import read_delta_manifests
from lake.core.table.flink.state import ManifestReference

JOB_OR_OPERATOR_ID = re.compile(r"[0-9a-f]{32}")
_COLLECTOR_MAGIC = -0x46E0DAD4
_COLLECTOR_VERSION = 2
_RECEIVED, _RETRY, _FAILED, _COMMITTED = range(4)
_MAX_COMMITTABLES = 100_000
_OF_ICEBERG = re.compile(rb"\x00\x20[0-9a-f]{32}\x00\x20[0-9a-f]{32}|manifest_path|\"field-id\":")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """The changes of one checkpoint to one table.

    Args:
        job_id: 32 hexadecimal digits.
        operator_id: 32 hexadecimal digits.
        checkpoint_id: its number.
        manifests: in the stored order.
        blank: whether its serialized form is empty.
        table: None for an IcebergSink, whose state does not contain the table.
        branch: None for an IcebergSink.
    """

    job_id: str
    operator_id: str
    checkpoint_id: int
    manifests: tuple[ManifestReference, ...]
    blank: bool
    table: str | None = None
    branch: str | None = None


def is_of_iceberg(data: memoryview) -> bool:
    """Whether a committer's state contains Iceberg's committables; every SinkV2 uses the same outer format."""
    return _OF_ICEBERG.search(data) is not None


def read_collector(source: ByteReader) -> list[Committable]:
    """Read a versioned CommittableCollector and return the uncommitted committables.

    Raises:
        CorruptFileError: the bytes are not a collector.
        RefusedError: they have an unknown version, or the committer had failed to commit one.
    """
    version = source.int32()
    if version != _COLLECTOR_VERSION:
        raise source.refused(f"a committer's state has the unknown version {version}")
    if source.int32() != source.remaining:
        raise source.corrupt("a committer's state does not have its declared length")
    if source.int32() != _COLLECTOR_MAGIC:
        raise source.corrupt("not a committer's state")
    found: list[Committable] = []
    for checkpoint, checkpoint_version in _versioned(source, (0, 1)):
        checkpoint.int64()
        if checkpoint_version:
            checkpoint.int32()
        for subtask, subtask_version in _versioned(checkpoint, (0, 1, 2)):
            found += _subtask(subtask, subtask_version)
            if len(found) > _MAX_COMMITTABLES:
                raise source.refused(f"more than {_MAX_COMMITTABLES} committables")
        checkpoint.expect_end()
    source.expect_end()
    return found


def _versioned(source: ByteReader, known: tuple[int, ...]) -> Iterator[tuple[ByteReader, int]]:
    version = source.int32()
    if version not in known:
        raise source.refused(f"a part of a committer's state has the unknown version {version}")
    for _ in range(source.count(4)):
        yield source.reader(source.count(1)), version


def _subtask(source: ByteReader, version: int) -> list[Committable]:
    if version:
        source.int32()
    requests = [_request(request) for request, _ in _versioned(source, (0,))]
    received = source.int32()
    drained = source.int32() if version < 2 else 0  # noqa: PLR2004 - what Flink 2 dropped
    failed = source.int32()
    source.expect_end()
    if failed:
        raise source.refused(f"the committer had failed to commit {failed} committables")
    if len(requests) + drained != received:
        raise source.corrupt(f"{len(requests)} of {received - drained} committables")
    return [request for request in requests if request is not None]


def _request(source: ByteReader) -> Committable | None:
    version = source.int32()
    committable = _committable(source.reader(source.count(1)), version)
    source.int32()
    state = source.int32()
    source.expect_end()
    if state == _FAILED:
        raise source.refused(
            f"the committer had failed to commit checkpoint {committable.checkpoint_id}"
        )
    if state not in (_RECEIVED, _RETRY, _COMMITTED):
        raise source.corrupt(f"a committable has the unknown state {state}")
    return None if state == _COMMITTED else committable


def _committable(source: ByteReader, version: int) -> Committable:
    first, second = source.text(), source.text()
    if JOB_OR_OPERATOR_ID.fullmatch(first) and JOB_OR_OPERATOR_ID.fullmatch(second):
        return _of_iceberg_sink(source, version, first, second)
    return _of_dynamic_sink(source, version, first, second)


def _of_iceberg_sink(source: ByteReader, version: int, job: str, operator: str) -> Committable:
    if version != 1:
        raise source.refused(f"an IcebergCommittable has the unknown version {version}")
    checkpoint_id = _checkpoint_id(source)
    data = source.reader(source.count(1))
    source.expect_end()
    blank = not data.remaining
    return Committable(
        job_id=job,
        operator_id=operator,
        checkpoint_id=checkpoint_id,
        manifests=() if blank else read_delta_manifests(data),
        blank=blank,
    )


def _of_dynamic_sink(source: ByteReader, version: int, table: str, branch: str) -> Committable:
    if version not in (1, 2):
        raise source.refused(f"a DynamicCommittable has the unknown version {version}")
    if version == 1:
        # Schema id, spec id and the upsert flag; then the equality fields.
        source.take(8)
        source.boolean()
        source.take(4 * source.count(4))
    job, operator = source.text(), source.text()
    if not (JOB_OR_OPERATOR_ID.fullmatch(job) and JOB_OR_OPERATOR_ID.fullmatch(operator)):
        raise source.corrupt(f"invalid job {job[:40]!r} or operator {operator[:40]!r}")
    checkpoint_id = _checkpoint_id(source)
    number = 1 if version == 1 else source.count(4)
    parts = [read_delta_manifests(source.reader(source.count(1))) for _ in range(number)]
    source.expect_end()
    return Committable(
        job_id=job,
        operator_id=operator,
        checkpoint_id=checkpoint_id,
        manifests=tuple(manifest for part in parts for manifest in part),
        blank=False,
        table=table,
        branch=branch,
    )


def _checkpoint_id(source: ByteReader) -> int:
    value = source.int64()
    if value < 0:
        raise source.corrupt(f"invalid checkpoint number {value}")
    return value
