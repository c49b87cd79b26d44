"""What must hold before a checkpoint's state is taken at its word, beyond its format."""

from __future__ import annotations

import re
from collections import Counter

from lake.core.errors import RefusedError
from lake.core.flink.checkpoint_files import number_of
from lake.core.flink.checkpoint_metadata import OperatorState
from lake.core.flink.state import FLINK_SINK, Checkpoint, CommitterState
from lake.core.flink.state_handles import InlineState, StateFile
from lake.core.storage.storage import MAX_METADATA_BYTES

# An encoded manifest: its mark, the length of its schema, and the schema's first field.
_MANIFEST = re.compile(rb"\xc2\x01..\{\"type\":\"record\".{0,200}?\"manifest_path\"", re.DOTALL)
# Releases before 1.0 leave out the operator; DynamicIcebergSink puts a UUID behind.
_MANIFEST_NAME = re.compile(
    r"(?P<job>[0-9a-f]{32})-((?P<operator>[0-9a-f]{32})-)?[0-9]{5,}-[0-9]+-"
    r"(?P<checkpoint>[0-9]{1,19})-[0-9]{5,}(-[0-9a-f-]{36})?\.avro"
)
# What Flink and the sinks call what gathers files ("Sink pre-commit aggregator", "Pre Commit"), and what writes them
# ("IcebergStreamWriter", "Sink: Writer"); users only put something before or behind.
_AGGREGATOR = re.compile("commit", re.IGNORECASE)
_BEFORE_COMMITTER = re.compile("commit|writer", re.IGNORECASE)
_UNALIGNED_HINT = "Stop the job with a savepoint, or take an aligned checkpoint, and give that."


def check_size(metadata: str, operators: list[OperatorState]) -> None:
    """Refuse state in files that is too much to hold at once.

    Raises:
        RefusedError: it is.
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
    """Refuse a checkpoint that may hold more of Iceberg's sinks than was read, or contradicts itself.

    Args:
        data: its metadata, whole.
        operators: those with a committer's state or with something on its way.
        checkpoint: what was read of it.

    Raises:
        RefusedError: it does.
    """
    _check_all_was_read(data, operators, checkpoint)
    if checkpoint.committers:
        _check_nothing_on_its_way(checkpoint.location, operators, checkpoint.committers)
    _check_distinct(checkpoint)
    _check_numbers(checkpoint)
    for committer in checkpoint.committers:
        _check_names(checkpoint.location, committer)


def _check_all_was_read(
    data: memoryview, operators: list[OperatorState], checkpoint: Checkpoint
) -> None:
    """Refuse manifests that stand in the metadata, but in no state that is known to hold any."""
    read = sum(
        len(_MANIFEST.findall(handle.stream.reader.rest()))
        for operator in operators
        for handle in operator.handles
        if isinstance(handle.stream, InlineState)
    )
    there = len(_MANIFEST.findall(data))
    if there > read:
        raise RefusedError(
            f"{checkpoint.location} describes {there - read} manifests in state that is no known sink's"
        )


def _check_nothing_on_its_way(
    metadata: str, operators: list[OperatorState], committers: tuple[CommitterState, ...]
) -> None:
    """Refuse an unaligned checkpoint if files may have been on their way from a writer to a committer.

    Between them, the operators of a sink are stateless and known by name alone, which Flink before 2.0 does not
    keep. There, many an operator that has nothing to do with a sink is refused without need.
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
                f" {inputs} pieces of input and {outputs} of output on their way,"
                " which may be files that its committer had not taken yet",
                hint=_UNALIGNED_HINT,
            )


def _may_be(operator: OperatorState, names: re.Pattern[str]) -> bool:
    """Whether an operator may be one of those that have such names and no state."""
    return operator.is_stateless and (not operator.name or bool(names.search(operator.name)))


def _check_distinct(checkpoint: Checkpoint) -> None:
    """Refuse state in which one sink, or one manifest, stands twice."""
    committers = checkpoint.committers
    sinks = [(item.job_id, item.operator_id, item.table, item.branch) for item in committers]
    manifests = [
        manifest.path
        for committer in committers
        for taken in committer.checkpoints
        for manifest in taken.manifests
    ]
    for found, what in ((sinks, "sink"), (manifests, "manifest")):
        again = [item for item, number in Counter(found).items() if number > 1]
        if again:
            raise RefusedError(f"{checkpoint.location}: the {what} {again[0]} is there twice")


def _check_numbers(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that lies in another's folder, or whose sinks are ahead of it."""
    number = number_of(checkpoint.location)
    if number is not None and number != checkpoint.checkpoint_id:
        raise RefusedError(
            f"{checkpoint.location} is of checkpoint {checkpoint.checkpoint_id},"
            f" but lies in the folder chk-{number}"
        )
    for committer in checkpoint.committers:
        last = max((taken.checkpoint_id for taken in committer.checkpoints), default=0)
        if last > checkpoint.checkpoint_id:
            raise RefusedError(
                f"{checkpoint.location} is of checkpoint {checkpoint.checkpoint_id},"
                f" but job {committer.job_id} had already written checkpoint {last}"
            )


def _check_names(metadata: str, committer: CommitterState) -> None:
    """Refuse a manifest whose name says that it is of another job, operator or checkpoint."""
    for taken in committer.checkpoints:
        for manifest in taken.manifests:
            name = _MANIFEST_NAME.fullmatch(manifest.path.rpartition("/")[2])
            if name is None:
                continue
            said = (name["job"], name["operator"] or committer.operator_id, int(name["checkpoint"]))
            if said != (committer.job_id, committer.operator_id, taken.checkpoint_id):
                raise RefusedError(
                    f"{metadata}: manifest {manifest.path} is not of checkpoint {taken.checkpoint_id}"
                    f" of job {committer.job_id} and operator {committer.operator_id}"
                )
