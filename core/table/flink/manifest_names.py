"""Names of the temporary manifests of Flink's sinks.

Source: Iceberg's ManifestOutputFileFactory (FlinkSink and IcebergSink) and DynamicWriteResultAggregator, whose
names end in a random UUID.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The checkpoint id of the commit at the end of a bounded input: Java's Long.MAX_VALUE.
END_OF_INPUT = (1 << 63) - 1
_NAME = re.compile(
    r"([0-9a-f]{32})-([0-9a-f]{32})-([0-9]{5,10})-([0-9]{1,10})-([0-9]{1,19})-([0-9]{5,10})"
    r"(?:-([0-9a-f-]{36}))?\.avro"
)


@dataclass(frozen=True, slots=True, order=True)
class ManifestName:
    """The parts of a temporary manifest's name.

    Args:
        job_id: 32 hexadecimal digits.
        operator_id: 32 hexadecimal digits.
        checkpoint_id: the checkpoint's number.
        attempt: the attempt of the task that wrote it.
        counter: increases over all manifests of one attempt; within a checkpoint, data come before deletes.
        subtask: the task's index.
        suffix: a UUID in names of the dynamic sink.
    """

    job_id: str
    operator_id: str
    checkpoint_id: int
    attempt: int
    counter: int
    subtask: int
    suffix: str | None = None


def parse_name(location: str) -> ManifestName | None:
    """Return the parts of the file name in a location; None if it is not the name of a temporary manifest."""
    found = _NAME.fullmatch(location.rpartition("/")[2])
    if found is None or int(found[5]) > END_OF_INPUT:
        return None
    job, operator, subtask, attempt, checkpoint, counter, suffix = found.groups()
    return ManifestName(
        job, operator, int(checkpoint), int(attempt), int(counter), int(subtask), suffix
    )
