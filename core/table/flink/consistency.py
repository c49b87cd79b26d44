"""Consistency checks of a checkpoint's state, beyond its format, before lake relies on it."""

from __future__ import annotations

import re
from collections import Counter

from lake.core.base.errors import RefusedError
from lake.core.io.storage.storage import MAX_METADATA_BYTES
from lake.core.table.flink.checkpoint_files import number_of
from lake.core.table.flink.checkpoint_metadata import OperatorState
from lake.core.table.flink.state import FLINK_SINK, Checkpoint, CommitterState
from lake.core.table.flink.state_handles import InlineState, StateFile

# An encoded manifest: its magic bytes, the length of its schema, and the schema's first field.
_MANIFEST = re.compile(rb"\xc2\x01..\{\"type\":\"record\".{0,200}?\"manifest_path\"", re.DOTALL)
# Releases before 1.0 omit the operator; DynamicIcebergSink appends a UUID.
_MANIFEST_NAME = re.compile(
    r"(?P<job>[0-9a-f]{32})-((?P<operator>[0-9a-f]{32})-)?[0-9]{5,}-[0-9]+-"
    r"(?P<checkpoint>[0-9]{1,19})-[0-9]{5,}(-[0-9a-f-]{36})?\.avro"
)
# The names in Flink and the sinks of operators that aggregate files ("Sink pre-commit aggregator", "Pre Commit")
# and that write them ("IcebergStreamWriter", "Sink: Writer"); users can only add a prefix or suffix.
_AGGREGATOR = re.compile("commit", re.IGNORECASE)
_BEFORE_COMMITTER = re.compile("commit|writer", re.IGNORECASE)
_UNALIGNED_HINT = "Stop the job with a savepoint, or take an aligned checkpoint, and pass that one."


def check_size(metadata: str, operators: list[OperatorState]) -> None:
    """Refuse state files that are too large to be in memory together.

    Raises:
        RefusedError: they are too large.
    """
    files = [
        handle.stream.size
        for operator in operators
        for handle in operator.handles
        if isinstance(handle.stream, StateFile)
    ]
    if sum(files) > MAX_METADATA_BYTES:
        raise RefusedError(
            f"{metadata}: committers have {sum(files)} bytes of state, more than {MAX_METADATA_BYTES}"
        )


def check_state(data: memoryview, operators: list[OperatorState], checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that may contain more sink state than was read, or that contradicts itself.

    Args:
        data: its complete metadata.
        operators: those with a committer's state or with records in transit.
        checkpoint: the checkpoint as read.

    Raises:
        RefusedError: it may, or does.
    """
    _check_everything_was_read(data, operators, checkpoint)
    if checkpoint.committers:
        _check_nothing_in_transit(checkpoint.location, operators, checkpoint.committers)
    _check_distinct(checkpoint)
    _check_numbers(checkpoint)
    for committer in checkpoint.committers:
        _check_names(checkpoint.location, committer)


def _check_everything_was_read(
    data: memoryview, operators: list[OperatorState], checkpoint: Checkpoint
) -> None:
    """Refuse manifests that occur in the metadata, but not in the state of a known sink."""
    read = sum(
        len(_MANIFEST.findall(handle.stream.reader.rest()))
        for operator in operators
        for handle in operator.handles
        if isinstance(handle.stream, InlineState)
    )
    described = len(_MANIFEST.findall(data))
    if described > read:
        raise RefusedError(
            f"{checkpoint.location} contains {described - read} manifests in state of no known sink"
        )


def _check_nothing_in_transit(
    metadata: str, operators: list[OperatorState], committers: tuple[CommitterState, ...]
) -> None:
    """Refuse an unaligned checkpoint if files may have been in transit from a writer to a committer.

    The operators of a sink between them are stateless and recognised by name alone, which Flink before 2.0 does not
    store. For its checkpoints, operators that have nothing to do with a sink are refused unnecessarily.
    """
    aggregates = any(committer.sink != FLINK_SINK for committer in committers)
    for operator in operators:
        committing = bool(operator.handles)
        inputs = outputs = 0
        if committing or (aggregates and _may_be(operator, _AGGREGATOR)):
            inputs = operator.inputs
        if committing or _may_be(operator, _BEFORE_COMMITTER):
            outputs = operator.outputs
        if inputs or outputs:
            raise RefusedError(
                f"{metadata} is an unaligned checkpoint: operator {operator.title} has"
                f" {inputs} pieces of input and {outputs} of output in transit,"
                " which may be files that its committer had not received",
                hint=_UNALIGNED_HINT,
            )


def _may_be(operator: OperatorState, names: re.Pattern[str]) -> bool:
    """Whether an operator may be a stateless one with a matching name."""
    return operator.is_stateless and (not operator.name or bool(names.search(operator.name)))


def _check_distinct(checkpoint: Checkpoint) -> None:
    """Refuse state in which a sink or a manifest occurs twice."""
    committers = checkpoint.committers
    sinks = [(item.job_id, item.operator_id, item.table, item.branch) for item in committers]
    manifests = [
        manifest.path
        for committer in committers
        for taken in committer.checkpoints
        for manifest in taken.manifests
    ]
    for found, what in ((sinks, "sink"), (manifests, "manifest")):
        repeated = [item for item, number in Counter(found).items() if number > 1]
        if repeated:
            raise RefusedError(f"{checkpoint.location}: the {what} {repeated[0]} occurs twice")


def _check_numbers(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint in another one's folder, or with sinks that are ahead of it."""
    number = number_of(checkpoint.location)
    if number is not None and number != checkpoint.checkpoint_id:
        raise RefusedError(
            f"{checkpoint.location} has the checkpoint number {checkpoint.checkpoint_id},"
            f" but is in the folder chk-{number}"
        )
    for committer in checkpoint.committers:
        last = max((taken.checkpoint_id for taken in committer.checkpoints), default=0)
        if last > checkpoint.checkpoint_id:
            raise RefusedError(
                f"{checkpoint.location} has the checkpoint number {checkpoint.checkpoint_id},"
                f" but job {committer.job_id} had already written checkpoint {last}"
            )


def _check_names(metadata: str, committer: CommitterState) -> None:
    """Refuse a manifest whose name contains another job, operator or checkpoint."""
    for taken in committer.checkpoints:
        for manifest in taken.manifests:
            name = _MANIFEST_NAME.fullmatch(manifest.path.rpartition("/")[2])
            if name is None:
                continue
            named = (
                name["job"],
                name["operator"] or committer.operator_id,
                int(name["checkpoint"]),
            )
            if named != (committer.job_id, committer.operator_id, taken.checkpoint_id):
                raise RefusedError(
                    f"{metadata}: manifest {manifest.path} does not belong to checkpoint {taken.checkpoint_id}"
                    f" of job {committer.job_id} and operator {committer.operator_id}"
                )
