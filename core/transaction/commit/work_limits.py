"""How much of a maintenance command's work is done in one run, and in how many commits."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """The limits of a run; the names are those of Iceberg's rewrite_data_files.

    Args:
        max_files: the most files that the run rewrites; None for all.
        partial_progress: commit parts of the work as they finish.
        max_commits: the most commits with partial progress.

    Raises:
        InvalidRequestError: a number is not positive.
    """

    max_files: int | None = None
    partial_progress: bool = False
    max_commits: int = 10

    def __post_init__(self) -> None:
        for option, value in (
            (Option.MAX_FILES, self.max_files),
            (Option.MAX_COMMITS, self.max_commits),
        ):
            if value is not None and value < 1:
                raise InvalidRequestError(f"{option} is set to {value} but must be > 0")

    @property
    def commits(self) -> int:
        """The most commits of a run."""
        return self.max_commits if self.partial_progress else 1

    def per_commit(self, count: int) -> int:
        """Return how many of ``count`` parts of the work are committed together."""
        return -(-count // self.commits)
