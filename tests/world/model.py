"""The expected content of a table: the rows of every snapshot, from the declared effect of each operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.snapshots import Snapshot

from world.reference import Row

# Field ids of the columns that every table of a world has; values are unique.
ID, PART, VALUE = 1, 2, 3
NAMES = {"id": ID, "part": PART, "value": VALUE}
FOREVER_MS = 2**62
# Rows by their values.
State = dict[int, Row]
# An operation's effect on rows, given the ids of columns by name.
Effect = Callable[[State, Mapping[str, int]], State]


@dataclass
class Operation:
    """An operation of an actor on a table, and its result.

    Args:
        name: its name.
        effect: its effect on the rows of a branch; None if it adds no snapshot with other rows.
        branch: the branch.
        floats: whether it may be ordered before concurrent commits (``snapshot`` isolation); otherwise it is ordered
            at its commit.
        keeps: the keys of an operation that drops rows because of the table's rows. For each key, it may be ordered
            before concurrent operations that add no row with such a key: if they delete those rows, they do not
            conflict. What it adds is there afterwards.
        refs: refs that it may move, create or drop.
        moves: whether it may move its branch only from the snapshot where the branch was when it first loaded
            the table.
        may_drop: whether it may drop refs that exceed their maximum age.
        names: columns by name when it began.
        base: the branch's head when it began.
        heads: the snapshots of all refs when it began; if it ``moves``, when it first loaded the table.
        has_loaded: whether it has loaded the table.
        cleans: whether it deletes its files when a conflict is reported, even one with its own commit.
        swaps: the number of its metadata changes; ``snapshots`` are those that it added.
        faulted: whether the catalog gave it a wrong response.
        holds: names of contents of its snapshots that must occur once, e.g. a job's checkpoint.
        choices: the operations that one of its snapshots may be, depending on its time; None for itself.
        lays_down: whether it leaves files for another operation to commit, and changes nothing.
        quiet: whether it must not write or delete anything in the table.
        expires: the snapshots that it may expire; None for none.
        removes_ms: the time before which files were written that it may delete, in ms; None for any.
        began_ms: when it began.
        enters: whether it may change the table's entry in the catalog, or create another table.
        purges: whether it may delete the files of a table that has no entry.
        outcome: the result that it reported.
    """

    name: str
    effect: Effect | None = None
    branch: str = "main"
    floats: bool = False
    keeps: frozenset[int] = frozenset()
    refs: frozenset[str] = frozenset()
    moves: bool = False
    may_drop: bool = False
    names: Mapping[str, int] = field(default_factory=lambda: NAMES)
    base: int | None = None
    heads: Mapping[str, int] = field(default_factory=dict)
    has_loaded: bool = False
    cleans: bool = False
    swaps: int = 0
    snapshots: list[int] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)
    faulted: bool = False
    holds: frozenset[Any] = frozenset()
    choices: Callable[[Snapshot, Model], Iterator[Operation]] | None = None
    lays_down: bool = False
    quiet: bool = False
    expires: Expiry | None = None
    removes_ms: int | None = None
    began_ms: int = 0
    enters: bool = False
    purges: bool = False
    outcome: str | None = None


@dataclass(frozen=True)
class Expiry:
    """The snapshots that an expiry may remove, by independently implemented rules.

    Args:
        older_ms: the minimum age in ms.
        retain_last: the number of snapshots of each branch that are kept.
        snapshots: the snapshots that are named.
        branch: the only branch that loses snapshots.
        keep_checkpoints: how long after its last commit a job must be able to find the commit.
    """

    older_ms: int = 0
    retain_last: int = 1
    snapshots: frozenset[int] = frozenset()
    branch: str | None = None
    keep_checkpoints: int = 7 * 24 * 3_600_000


class Model:
    """The rows of every snapshot that a table ever had."""

    def __init__(self) -> None:
        self._states: dict[int, State] = {}
        self._parents: dict[int, int | None] = {}
        self._by: dict[int, Operation] = {}
        # The `holds` of all committed operations.
        self.ever_held: frozenset[Any] = frozenset()

    def rows(self, snapshot_id: int | None) -> State:
        """Return the rows of a snapshot; empty for an empty table."""
        return self._states[snapshot_id] if snapshot_id is not None else {}

    def knows(self, snapshot_id: int) -> bool:
        return snapshot_id in self._states

    def by(self, snapshot_id: int) -> str:
        """The name of the operation that created a snapshot."""
        return self._by[snapshot_id].name

    def holds(self, snapshot_id: int) -> frozenset[Any]:
        """The `holds` of the operation that created a snapshot."""
        return self._by[snapshot_id].holds

    def saved(self) -> Callable[[], None]:
        """Return a function that restores the current state of the model."""
        known = dict(self._states), dict(self._parents), dict(self._by)
        held = self.ever_held

        def restore() -> None:
            self._states, self._parents, self._by = map(dict, known)
            self.ever_held = held

        return restore

    def candidates(
        self, operation: Operation, parent: int | None, names: Mapping[str, int]
    ) -> Iterator[State]:
        """Yield the possible rows of a new snapshot: what the operation read may be older than its parent."""
        effect = operation.effect or _nothing
        known = {**names, **operation.names}
        yield effect(self.rows(parent), known)
        between = self._between(operation.base, parent)
        for start, first in enumerate(between):
            read = self.rows(self._parents[first])
            if operation.floats:
                state = effect(read, known)
                for snapshot_id in between[start:]:
                    state = self._again(snapshot_id, state, names)
                yield state
            elif operation.keeps and not any(
                self._adds_some(snapshot_id, operation.keeps) for snapshot_id in between[start:]
            ):
                yield _changed(read, effect(read, known), self.rows(parent))

    def _again(self, snapshot_id: int, state: State, names: Mapping[str, int]) -> State:
        """Apply the operation that created a snapshot to other rows, which it may not have read."""
        other = self._by[snapshot_id]
        if not other.keeps:
            return (other.effect or _nothing)(state, {**names, **other.names})
        return _changed(self.rows(self._parents[snapshot_id]), self.rows(snapshot_id), state)

    def _adds_some(self, snapshot_id: int, keys: frozenset[int]) -> bool:
        """Whether a snapshot has a row with one of the keys that its parent does not have."""
        before = self.rows(self._parents[snapshot_id])
        return any(
            dict(row)[ID] in keys
            for value, row in self.rows(snapshot_id).items()
            if before.get(value) != row
        )

    def _between(self, base: int | None, parent: int | None) -> list[int]:
        """Return the snapshots up to a parent that came after a base; after a rollback, after what both have."""
        known: set[int] = set()
        while base is not None:
            known.add(base)
            base = self._parents[base]
        chain: list[int] = []
        while parent is not None and parent not in known:
            chain.append(parent)
            parent = self._parents[parent]
        return chain[::-1]

    def held(self, snapshot_id: int | None) -> frozenset[Any]:
        """Return the `holds` of a snapshot and of its ancestors."""
        found: frozenset[Any] = frozenset()
        while snapshot_id is not None:
            found |= self._by[snapshot_id].holds
            snapshot_id = self._parents[snapshot_id]
        return found

    def times_held(self) -> Counter[Any]:
        """Return how many snapshots, also ones that were rolled back, have each of the `holds`."""
        return Counter(name for operation in self._by.values() for name in operation.holds)

    def parent(self, snapshot_id: int) -> int | None:
        """The parent of a snapshot, whether it is retained or not."""
        return self._parents[snapshot_id]

    def add(self, snapshot_id: int, parent: int | None, operation: Operation, state: State) -> None:
        self._states[snapshot_id] = state
        self._parents[snapshot_id] = parent
        self._by[snapshot_id] = operation
        self.ever_held |= operation.holds


def _nothing(state: State, _: Mapping[str, int]) -> State:
    return state


def _changed(before: State, after: State, state: State) -> State:
    """Make a change of some rows to other rows: an operation that drops rows decides by those that it read."""
    kept = {value: row for value, row in state.items() if value in after or value not in before}
    return {**kept, **{value: row for value, row in after.items() if value not in before}}


def as_row(row: Mapping[str, Any], names: Mapping[str, int]) -> Row:
    """Return a row by field id."""
    return frozenset((names[name], value) for name, value in row.items() if value is not None)


def state_of(rows: Iterable[Row]) -> State:
    """Return rows by value; duplicates are an error."""
    state: State = {}
    for row in rows:
        value = dict(row)[VALUE]
        assert value not in state, f"row {value} is there more than once"
        state[value] = row
    return state


# What operations do


def adding(rows: Sequence[Mapping[str, Any]]) -> Effect:
    def effect(state: State, names: Mapping[str, int]) -> State:
        return {**state, **{row["value"]: as_row(row, names) for row in rows}}

    return effect


def replacing(
    gone: Callable[[dict[int, Any]], bool], rows: Sequence[Mapping[str, Any]] = ()
) -> Effect:
    """Remove rows (by field id) for which a test is true, then add others."""

    def effect(state: State, names: Mapping[str, int]) -> State:
        kept = {value: row for value, row in state.items() if not gone(dict(row))}
        return adding(rows)(kept, names)

    return effect


def upserting(rows: Sequence[Mapping[str, Any]], deleted: Sequence[Any] = ()) -> Effect:
    """Replace the rows of keys, and remove those of other keys."""
    keys = {row["id"] for row in rows} | set(deleted)
    return replacing(lambda row: row.get(ID) in keys, rows)


def merging(rows: Sequence[Mapping[str, Any]]) -> Effect:
    """Replace the values that rows have in the rows of their keys; a row without a partner is added."""

    def effect(state: State, names: Mapping[str, int]) -> State:
        old = {dict(row).get(ID): dict(row) for row in state.values()}
        new = [old.get(row["id"], {}) | dict(as_row(row, names)) for row in rows]
        keys = {row["id"] for row in rows}
        kept = [row for row in state.values() if dict(row).get(ID) not in keys]
        return state_of([*kept, *(frozenset(row.items()) for row in new)])

    return effect


def keeping_first(rows: Sequence[Mapping[str, Any]]) -> Effect:
    """Add the rows whose keys no row has."""

    def effect(state: State, names: Mapping[str, int]) -> State:
        known = {dict(row).get(ID) for row in state.values()}
        return adding([row for row in rows if row["id"] not in known])(state, names)

    return effect


def sequencing(rows: Sequence[Mapping[str, Any]]) -> Effect:
    """Replace the rows of keys by rows whose value is not smaller; a row without a partner is added."""

    def effect(state: State, names: Mapping[str, int]) -> State:
        newest: dict[Any, int] = {}
        for value, row in state.items():
            key = dict(row).get(ID)
            newest[key] = max(value, newest.get(key, value))
        new = [row for row in rows if row["value"] >= newest.get(row["id"], row["value"])]
        return upserting(new)(state, names)

    return effect


def without(values: Iterable[int]) -> Effect:
    """Remove rows by their values."""
    gone = frozenset(values)
    return replacing(lambda row: row[VALUE] in gone)
