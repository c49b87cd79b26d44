"""A plan in conflict is made again, and nothing that may be committed is committed again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lake.core.base.errors import CommitConflictError, CommitUnknownError
from lake.core.transaction.replanning import replanned


def failing(first: int, error: Exception, begun: list[int]) -> Callable[[int], str]:
    """Return an attempt that records what it begins with, and fails before a number of attempts were made."""

    def attempt(start: int) -> str:
        begun.append(start)
        if len(begun) <= first:
            raise error
        return f"committed at {start}"

    return attempt


def test_an_attempt_begins_with_what_is_there_after_the_conflict() -> None:
    begun: list[int] = []
    attempt = failing(2, CommitConflictError("changed"), begun)

    assert replanned(attempt, 1, lambda start: 10 * start) == "committed at 100"
    assert begun == [1, 10, 100]


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_the_last_conflict_is_the_result(rounds: int) -> None:
    begun: list[int] = []
    attempt = failing(9, CommitConflictError("changed"), begun)

    with pytest.raises(CommitConflictError, match="changed"):
        replanned(attempt, 0, lambda start: start + 1, rounds=rounds)
    assert begun == list(range(rounds))


def test_a_commit_with_an_unknown_outcome_is_not_repeated() -> None:
    begun: list[int] = []
    attempt = failing(1, CommitUnknownError("no answer"), begun)

    with pytest.raises(CommitUnknownError):
        replanned(attempt, 0, lambda start: start + 1)
    assert begun == [0]


def test_a_conflict_with_what_was_written_ends_all_attempts() -> None:
    begun: list[int] = []
    attempt = failing(1, CommitConflictError("changed"), begun)

    def again(_: int) -> int:
        raise CommitConflictError("what was written does not fit")

    with pytest.raises(CommitConflictError, match="does not fit"):
        replanned(attempt, 0, again)
    assert begun == [0]
