"""What a round is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from lake.core.base.outcome import Outcome
from lake.core.maintain.policies.policy import Choices, Policy
from lake.core.table.catalogs.catalog import Table


class Call(NamedTuple):
    """A verb, a table, and options by their names with what contains each of them."""

    action: str
    table: str
    options: Mapping[str, Any]


# Runs a verb on a table.
RunVerb: TypeAlias = Callable[[Call], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """The options of a round.

    Args:
        patterns: globs, namespaces and names; none for all tables of the catalog.
        policy: the rules in effect.
        choices: the options that policies may set.
        only: the actions to do; empty for all.
        max_ms: the time after which no action and no group of files begins; None for no limit.
        max_bytes: the most bytes of data files to rewrite; None for no limit.
        log: the path of the run log.
        runs_table: the name of the table to which the runs are appended; None for none.
        status: the path of the status file; None for none.
        plan: the path of the plan file; None for none.
        pending: counts the checkpoints of a table that were never committed.
        clean: returns a text without secrets, for the run log.
    """

    patterns: Sequence[str] = ()
    policy: Policy
    choices: Choices
    only: Sequence[str] = ()
    max_ms: int | None = None
    max_bytes: int | None = None
    log: str
    runs_table: str | None = None
    status: str | None = None
    plan: str | None = None
    pending: Callable[[Table], int]
    clean: Callable[[str], str]

    @property
    def paths(self) -> list[str]:
        """The files that are written."""
        return [path for path in (self.log, self.status, self.plan) if path is not None]
