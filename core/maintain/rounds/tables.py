"""All tables of a round: they are looked at together, and each action is decided for one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lake.core.base.errors import LakeError, NotATableError, StorageError
from lake.core.base.progress import Meter, shown
from lake.core.engine.selection import INLINE_BYTES
from lake.core.io.work_ahead import looked_up
from lake.core.maintain.health.measure import selected
from lake.core.maintain.health.past import Past
from lake.core.maintain.health.survey import MOST_ENTRIES
from lake.core.maintain.policies.rule_checks import ineffective
from lake.core.maintain.rounds.budget import READING_OF_LARGE, Budget
from lake.core.maintain.rounds.candidates import Candidate, look
from lake.core.maintain.rounds.decisions import Decision, decide
from lake.core.maintain.rounds.facts import (
    ALL_ACTIONS,
    DecisionFacts,
    FailureFacts,
    PendingFacts,
    RoundFacts,
)
from lake.core.maintain.rounds.plan_file import PlannedAction, planned_action
from lake.core.maintain.run_log.experience import Experiences, future_warning
from lake.core.maintain.run_log.run_log import LoggedRuns, RunLog, without_log
from lake.core.read.exports.destinations import refuse_inside
from lake.core.table.catalogs.names import Answers, require_existing, unaddressable_warnings

if TYPE_CHECKING:
    from lake.core.maintain.health.survey import Survey
    from lake.core.maintain.policies.policy import TablePolicy
    from lake.core.maintain.rounds.options import RoundOptions
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# More would wait for Python's lock, and each has the entries of a table in memory.
_THREADS = 8
# A table is measured again after this time, although it has not changed.
_KNOWN_MS = 3_600_000
# Entries of this number of files stay in memory while a table is worked on.
_FEW_FILES = 10_000
# Snapshots that an action replaced may be old enough for a second expiry.
_ORDER = ("expire", "compact", "deletes", "manifests", "expire", "clean", "stats")


@dataclass(frozen=True, slots=True)
class Known:
    """A table as an earlier round saw it: its metadata file, and when, in ms since 1970."""

    seen: Candidate
    metadata_location: str
    at_ms: int

    def is_of(self, table: Table, now_ms: int) -> bool:
        """Whether the table has not changed since. Snapshots grow old all the same, and partitions become idle."""
        is_young = 0 <= now_ms - self.at_ms < (1 if self.seen.busy else _KNOWN_MS)
        return is_young and self.metadata_location == table.metadata_location


# What one round saw is for the next one, by the names of the tables.
Remembered: TypeAlias = dict[str, Known]


class Preview(NamedTuple):
    """What is due, for the outcome and for a plan file."""

    facts: RoundFacts
    planned: list[PlannedAction]
    names: list[str]


def preview(session: Session, options: RoundOptions) -> Preview:
    """Return what is due, in the order in which it would be done; nothing is changed.

    Decisions use the tables as they are now. A round decides again after each action.

    Raises:
        RefusedError: a file would be written into the folder of a table.
        NotFoundError: a pattern selects nothing, or the catalog does not exist.
        BadInputError: the file of the run log is another file.
        LakeError: the catalog cannot be read.
    """
    found = Tables(session, options)
    candidates = found.ordered(Budget(session.clock, None, None))
    decisions = [(item, found.decide(item, action)) for item, action in _in_order(candidates)]
    facts = RoundFacts(
        tables=len(candidates),
        due=[item.facts() for _, item in decisions if item.is_due],
        left_alone=[
            item.facts(seen.busy if item.is_due else None)
            for seen, item in decisions
            if not item.is_due or (item.action == "compact" and seen.busy)
        ],
        pending=found.pending,
        failed=found.failed,
    )
    planned = [planned_action(seen, item) for seen, item in decisions if item.is_due]
    return Preview(facts, planned, [seen.table for seen in candidates])


def order_of(seen: Candidate) -> Sequence[str]:
    """Return the actions on a table in their order.

    In a small table, snapshots expire once: the other actions take a moment, and what they replace can expire with
    them. A large one may take all the time that a run has, so its snapshots expire before that too.
    """
    is_small = seen.row.reading.bytes is not None and seen.row.reading.bytes <= INLINE_BYTES
    return _ORDER[1:] if is_small else _ORDER


def _in_order(candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, str]]:
    """Yield each action on each table, once."""
    for seen in candidates:
        for action in dict.fromkeys(order_of(seen)):
            yield seen, action


def _unread(table: str, reason: str) -> DecisionFacts:
    return DecisionFacts(table=table, action=ALL_ACTIONS, reason=reason)


class Tables:
    """All tables that were selected, as they were when the round began."""

    def __init__(
        self, session: Session, options: RoundOptions, remembered: Remembered | None = None
    ) -> None:
        self.pending: list[PendingFacts] = []
        self.failed: list[FailureFacts] = []
        # The tables that were not read, because the time is for others.
        self.unread: list[DecisionFacts] = []
        self._session = session
        self._answers = Answers(session.catalog)
        self._options = options
        self._now_ms = session.clock.now_ms()
        self._remembered = {} if remembered is None else remembered
        # What the manifests of the table contain that each thread works on, if that is little.
        self._surveys: dict[int, Survey] = {}
        logged = self._logged()
        self._experiences = Experiences(logged.entries, self._now_ms)
        self._past = Past(logged.entries)

    def _logged(self) -> LoggedRuns:
        """Return the run log; a warning and nothing if it cannot be read, as if it could not be written.

        Raises:
            BadInputError: it is not a run log.
        """
        log = RunLog(self._options.log)
        try:
            log.require_own()
            found = log.read()
        except StorageError as error:
            self._session.warn(f"{error.message}; {without_log('this run')}")
            return LoggedRuns(is_found=False)
        if found.unreadable:
            self._session.warn(
                f"{log.path} contains {found.unreadable:,} lines that are not entries"
            )
        if late := future_warning(found.entries, self._now_ms, log.path):
            self._session.warn(late)
        return found

    def ordered(self, budget: Budget) -> list[Candidate]:
        """Return the tables, those first that gain most for each second of work.

        Args:
            budget: what limits the time; what is not read in time is noted as that.

        Raises:
            RefusedError: a file would be written into the folder of a table.
            NotFoundError: a pattern selects nothing, or the catalog does not exist.
            LakeError: the catalog cannot be read.
        """
        require_existing(self._session.catalog)
        rules = self._options.policy.rules
        names, unlisted, spaces = selected(
            self._session.catalog, self._options.patterns, list_all=bool(rules)
        )
        for text in (
            *ineffective(rules, spaces),
            *unaddressable_warnings(spaces, self._options.patterns),
        ):
            self._session.warn(text)
        self.failed += [
            FailureFacts(table=row.namespace, action=None, error=row.error)
            for row in unlisted
            if row.error
        ]
        if budget.until is not None:
            # Those at the end of the list are read first in some of the runs.
            first = int(self._session.ids.jitter() * len(names))
            names = [*names[first:], *names[:first]]
        candidates = self._read(names, budget)
        self.pending += [
            PendingFacts(table=seen.table, checkpoints=seen.pending)
            for seen in candidates
            if seen.pending
        ]
        self.failed += [
            FailureFacts(table=seen.table, action="replay", error=seen.replay_error)
            for seen in candidates
            if seen.replay_error
        ]
        candidates.sort(key=lambda seen: (-seen.gain_per_second, seen.table))
        return candidates

    def _read(self, names: Sequence[tuple[str, str]], budget: Budget) -> list[Candidate]:
        """Return the tables that can be read in time, each with its grade."""
        clock, candidates = self._session.clock, list[Candidate]()
        begun, taken, work = clock.monotonic(), 0, 0.0

        def in_time() -> Iterator[tuple[str, str]]:
            for number, item in enumerate(names):
                # What is under way takes about as long as the same number of tables before it took.
                under_way = number - taken
                part = under_way / max(taken, under_way, 1)
                if late := budget.too_late_to_read((clock.monotonic() - begun) * part, work):
                    self.unread += [_unread(name, late) for _, name in names[number:]]
                    return
                yield item

        meter = Meter("reading tables", tasks=len(names))
        with shown(self._session.progress, meter):
            for found in looked_up(self._one, in_time(), _THREADS):
                meter.advance(tasks=1)
                taken += 1
                if isinstance(found, FailureFacts):
                    self.failed.append(found)
                elif found is not None:
                    candidates.append(found)
                    work += 0 if budget.until is None else self._work_on(found)
        read = []
        for seen in candidates:
            late = "" if seen.row.grade else budget.too_late_to_read(0, inf, READING_OF_LARGE)
            if late:
                self.unread.append(_unread(seen.table, late))
            elif whole := self._complete(seen):
                read.append(whole)
        return read

    def _work_on(self, seen: Candidate) -> float:
        """Return how many seconds the actions take that are due; what is not measured yet may take any time."""
        if seen.row.grade is None:
            return inf
        return sum(item.work_seconds for item in self.due([seen]))

    def _complete(self, seen: Candidate) -> Candidate | None:
        """Return a table with its grade: one with very many files is measured alone; None if it cannot be read."""
        if seen.row.grade is not None:
            return seen
        found = self._looked_at((seen.namespace, seen.table), None)
        if isinstance(found, FailureFacts):
            self.failed.append(found)
            return None
        return found

    def _one(self, item: tuple[str, str]) -> Candidate | FailureFacts | None:
        return self._looked_at(item, MOST_ENTRIES)

    def _looked_at(
        self, item: tuple[str, str], most_entries: int | None
    ) -> Candidate | FailureFacts | None:
        namespace, name = item
        try:
            table = self._answers.load_listed(name)
        except NotATableError:
            return None
        except LakeError as error:
            return FailureFacts(table=name, action=None, error=error.facts())
        if table is None:
            return None
        for path in self._options.paths:
            refuse_inside(path, table)
        try:
            return self._with_pending(self.known(table, namespace, most_entries), table)
        except LakeError as error:
            return FailureFacts(table=name, action=None, error=error.facts())

    def known(self, table: Table, namespace: str, most_entries: int | None) -> Candidate:
        """Return a table as it was seen before, if it has not changed since; else look at it.

        Raises:
            LakeError: it cannot be read, or a property has a value that is not allowed.
        """
        known = self._remembered.get(table.identifier)
        is_partial = known is not None and known.seen.row.grade is None and most_entries is None
        is_current = (
            known is not None
            and known.is_of(table, self._now_ms)
            # Policy files may have changed since, and with them the forecasts.
            and known.seen.policy == self._policy(table)
        )
        if known is None or is_partial or not is_current:
            seen = self._seen(table, namespace, most_entries)
            known = Known(seen, table.metadata_location, self._now_ms)
            self._remembered[table.identifier] = known
        return known.seen

    def _seen(self, table: Table, namespace: str, most_entries: int | None) -> Candidate:
        policy = self._policy(table)
        asked = self._options.asked(policy, self._now_ms)
        clock = self._session.clock
        begun = clock.monotonic()
        seen, found = look(
            table,
            namespace,
            policy,
            self._now_ms,
            self._past,
            most_entries=most_entries,
            asked=asked,
            earlier=self._surveys.get(get_ident()),
        )
        if most_entries is not None:
            return seen
        if found is not None and len(found.sizes) + found.deletes.files <= _FEW_FILES:
            self._surveys[get_ident()] = found
        # No other table was read at this time.
        return replace(seen, measured_seconds=round(clock.monotonic() - begun, 4))

    def _policy(self, table: Table) -> TablePolicy:
        return self._options.policy.of(table.identifier, table.properties, self._options.choices)

    def _with_pending(self, seen: Candidate, table: Table) -> Candidate:
        try:
            return replace(seen, pending=self._options.pending(table), replay_error=None)
        except LakeError as error:
            return replace(seen, replay_error=error.facts())

    def due(self, candidates: Sequence[Candidate]) -> list[Decision]:
        """Return what is due for tables as they are now, in the order in which it is done."""
        decisions = [self.decide(seen, action) for seen, action in _in_order(candidates)]
        return [item for item in decisions if item.is_due]

    def decide(self, seen: Candidate, action: str) -> Decision:
        """Decide about an action on a table."""
        experience = self._experiences.of(seen.uuid, action)
        now_ms = self._session.clock.now_ms()
        return decide(seen, action, experience, now_ms, only=self._options.only)
