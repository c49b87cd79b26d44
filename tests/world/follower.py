"""A follower as an actor: a table beside all other actors, and the sum of what it handed over."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata

from lake.core.base.errors import CommitUnknownError, InvalidRequestError, LakeError
from lake.core.base.outcome import Outcome
from world.model import Operation
from world.simulation import CONSUMER, World

_ONCE, _SHORT = ("--once",), ("--max-epochs", 2, "--until", "1s")
# Gaps that a consumer's ref prevents.
_EXPIRED = {"expired", "parent-expired", "truncated"}
_DEFECTS = {LakeError, CommitUnknownError, InvalidRequestError}


class Follower:
    """Follows a table, and compares what is handed over with the model.

    A follower of changes applies them to a copy of the rows. One of appends collects them.

    Args:
        world: the world of the table.
        random: chooses when a run ends early.
        changes: whether it follows changes.
        consumer: whether a ref protects what it has not read.
    """

    def __init__(
        self, world: World, random: Random, *, changes: bool = True, consumer: bool = False
    ) -> None:
        self._world, self._random, self._changes = world, random, changes
        self._name = "changes" if changes else "appends"
        self._consumer = f"{CONSUMER}{self._name}" if consumer else None
        self._state = world.folder / f"state-{self._name}"
        self._out = world.folder / f"out-{self._name}"
        self._rows: Counter[int] = Counter()
        self._generation = 0
        self._epoch = 0
        # The snapshot whose rows were handed over as a whole.
        self._table: int | None = None
        # Whether the consumer's ref existed when the last run began.
        self._has_ref = False
        if self._consumer is not None:
            world.unread[self._consumer] = self._unread

    def actors(self, steps: int) -> Mapping[str, Callable[[], None]]:
        """Return an actor that runs the follower the given number of times."""

        def work() -> None:
            for _ in range(steps):
                self.step(_SHORT if self._random.random() < 0.3 else _ONCE)
                self._world.point("followed")

        return {f"follower of {self._name}": work}

    def step(self, end: tuple[object, ...] = _ONCE) -> None:
        """Run the follower once; if it read everything, compare what it has with the table."""
        refs = frozenset({self._consumer} if self._consumer else ())
        self._has_ref = self._consumer in self._world.metadata.refs
        operation = Operation(f"follow {self._name}", refs=refs)
        with self._world.operation(operation):
            try:
                done: Outcome | LakeError = self._world.run_lake(
                    *("scan", "--follow", *end, "--select", "id,part,value"),
                    *("--on-gap", "table", "--state", self._state, "--output", self._out),
                    *("--epoch-size", "1B", *self._options()),
                )
            except LakeError as error:
                done = error
            status = done.status if isinstance(done, Outcome) else type(done).__name__
            operation.outcome = None if operation.faulted else str(status)
        assert not operation.snapshots, "a follow added a snapshot"
        self._load()
        self._world.counts[f"follow: {status}"] += 1
        assert not isinstance(done, LakeError) or type(done) not in _DEFECTS, repr(done)
        if isinstance(done, Outcome):
            self._compare()

    def _options(self) -> Iterator[object]:
        if self._changes:
            yield "--changes"
        if self._consumer is not None:
            yield from ("--consumer", self._name, "--consumer-ttl", "3650d")

    def _compare(self) -> None:
        saved = self._saved()
        if not saved["pending"]:
            self._check(saved["position"] and saved["position"]["snapshot_id"])

    def _saved(self) -> dict[str, Any]:
        path = self._state / "state.json"
        found: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"position": None}
        )
        return found

    def settle(self) -> None:
        """Run the follower after all faults: then the copy is the table."""
        self.step()
        head = self._world.head()
        self._check(None if head is None else str(head))

    # Consumers

    def _unread(self, metadata: TableMetadata) -> set[int]:
        """Return the snapshots of main that the follower still needs, unless main was rolled back behind its ref."""
        # A run saves its state before it moves the ref.
        saved = self._saved()
        history = list(self._history(metadata.current_snapshot_id))
        ref = metadata.refs.get(self._consumer or "")
        if saved["position"] is None or ref is None or ref.snapshot_id not in history:
            return set()
        first = saved["pending"][0] if saved["pending"] else None
        # A whole table is read at one snapshot, and nothing before it.
        is_table = first is not None and first["kind"] == "table"
        position = first["end" if is_table else "start"] if first else saved["position"]
        last = None if position is None else int(position["snapshot_id"])
        found: set[int] = set()
        for snapshot_id in history:
            if snapshot_id == last:
                needs_last = is_table or not first or self._changes
                return found | {last} if needs_last else found
            found.add(snapshot_id)
        return found if last is None else set()

    def _history(self, snapshot_id: int | None) -> Iterator[int]:
        while snapshot_id is not None:
            yield snapshot_id
            snapshot_id = self._world.model.parent(snapshot_id)

    # Rows

    def _check(self, snapshot_id: str | None) -> None:
        expected = self._expected(None if snapshot_id is None else int(snapshot_id))
        found = {value: count for value, count in self._rows.items() if count}
        assert found == dict.fromkeys(expected, 1), f"the follower has other rows at {snapshot_id}"

    def _expected(self, snapshot_id: int | None) -> set[int]:
        """Return the values of the rows that were to be handed over up to a snapshot."""
        model = self._world.model
        if self._changes or snapshot_id is None:
            return set(model.rows(snapshot_id))
        found: set[int] = set()
        for one in self._history(snapshot_id):
            if one == self._table:
                return found | model.rows(one).keys()
            if self._world.kinds[one] == "append":
                found |= model.rows(one).keys() - model.rows(model.parent(one)).keys()
        raise AssertionError(f"{snapshot_id} does not follow {self._table}")

    def _load(self) -> None:
        """Apply the epochs that are visible, and delete them."""
        for folder in sorted(self._out.glob("epoch-*")) if self._out.exists() else ():
            facts = json.loads((folder / "_epoch.json").read_text())
            self._epoch += 1
            assert facts["epoch"] == self._epoch
            if facts["generation"] > self._generation:
                assert facts["replaces"]
                self._rows, self._generation = Counter(), facts["generation"]
            if facts["kind"] == "table":
                self._table = int(facts["to_snapshot"])
            gap = facts["gap"] and facts["gap"]["kind"]
            assert not (self._is_protected() and gap in _EXPIRED), f"{self._name}: gap {gap}"
            for file in facts["files"]:
                for row in pq.read_table(folder / file["name"]).to_pylist():
                    added = row.get("_change_type", "insert") in {"insert", "update_after"}
                    self._rows[row["value"]] += 1 if added else -1
            shutil.rmtree(folder)

    def _is_protected(self) -> bool:
        """Whether a consumer's ref existed before this run, and nothing was rolled back."""
        rolled_back = (
            self._world.counts["rollback: done"] or "rollback" in self._world.open_outcomes
        )
        return self._has_ref and not rolled_back


def changes(world: World, random: Random) -> Follower:
    """Return a follower of changes."""
    return Follower(world, random)


def consumer(world: World, random: Random) -> Follower:
    """Return a follower of appends whose unread snapshots are protected."""
    return Follower(world, random, changes=False, consumer=True)


def consumer_of_changes(world: World, random: Random) -> Follower:
    """Return a follower of changes whose unread snapshots are protected."""
    return Follower(world, random, consumer=True)
