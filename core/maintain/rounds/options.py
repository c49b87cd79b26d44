"""What a round is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lake.core.base.outcome import Outcome
from lake.core.maintain.health.measure import Asked
from lake.core.maintain.policies.policy import Choices, Policy, TablePolicy
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.lanes import require_jobs

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

# More would wait for one another, and each has the entries of a table in memory.


class Call(NamedTuple):
    """A verb, a table, and options by their names with what contains each of them."""

    action: str
    table: str
    options: Mapping[str, Any]


# Runs a verb on a table, with the session of the thread.
RunVerb: TypeAlias = Callable[["Session", Call], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """The options of a round.

    Args:
        patterns: globs, namespaces and names; none for all tables of the catalog.
        policy: the rules in effect.
        choices: the options that policies may set.
        only: the actions to do; empty for all.
        max_ms: the time after which no table is read, and no action and no group of files begins; None for no limit.
        max_bytes: the most bytes of data files to rewrite; None for no limit.
        jobs: how many small tables get their actions at a time; None for `usual_jobs`.
        log: the path of the run log.
        runs_table: the name of the table to which the runs are appended; None for none.
        status: the path of the status file; None for none.
        plan: the path of the plan file; None for none.
        first_policy: the path of the policy that is written; None for none.
        asked: returns what the policy of a table asks the actions to do, at a time in ms since 1970; raises
            `InvalidRequestError` if an option has a value that is not allowed.
        pending: counts the checkpoints of a table that were never committed.
        clean: returns a text without secrets, for the run log.

    Raises:
        InvalidRequestError: the number of jobs is not allowed.
    """

    patterns: Sequence[str] = ()
    policy: Policy
    choices: Choices
    only: Sequence[str] = ()
    max_ms: int | None = None
    max_bytes: int | None = None
    jobs: int | None = None
    log: str
    runs_table: str | None = None
    status: str | None = None
    plan: str | None = None
    first_policy: str | None = None
    asked: Callable[[TablePolicy, int], Asked]
    pending: Callable[[Table], int]
    clean: Callable[[str], str]

    def __post_init__(self) -> None:
        require_jobs(self.jobs)

    @property
    def paths(self) -> list[str]:
        """The files that are written."""
        written = (self.log, self.status, self.plan, self.first_policy)
        return [path for path in written if path is not None]
