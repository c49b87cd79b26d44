"""The names that a condition of a policy compares: what `lake health` measures of a table."""

from __future__ import annotations

from collections.abc import Mapping

from lake.core.spec.expressions.conditions import (
    BYTES,
    COUNT,
    MILLISECONDS,
    RATIO,
    Condition,
    Quantity,
    parse_condition,
)

_COUNTS = (
    *("files", "small_files", "rows", "partitions", "delete_files", "position_delete_files"),
    *("equality_delete_files", "deletion_vectors", "manifests", "snapshots"),
)
QUANTITIES: Mapping[str, Quantity] = {
    **dict.fromkeys(_COUNTS, COUNT),
    **dict.fromkeys(("bytes", "metadata_bytes", "growth_bytes"), BYTES),
    # The shares of small files and of rows that are deleted at most, and seconds that a scan wastes.
    **dict.fromkeys(("small_ratio", "delete_ratio", "wasted_seconds"), RATIO),
    # The ages of the oldest snapshot and of the last commit.
    **dict.fromkeys(("oldest_snapshot", "last_commit"), MILLISECONDS),
}


def parse_when(text: str, place: str) -> Condition:
    """Return the condition of a text; sizes and ages have units.

    Raises:
        InvalidRequestError: it is not a condition.
    """
    return parse_condition(
        text, QUANTITIES, option=place, example="small_files > 100 or delete_ratio > 0.1"
    )
