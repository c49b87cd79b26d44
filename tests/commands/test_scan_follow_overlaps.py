"""Two runs of a follow that no lock keeps apart: no row is lost or handed over twice, and the state stays whole.

The lock excludes no process if its file was removed, or on a network file system that grants it on each machine.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.tables.built_once import BuiltOnce
from support.tables.iceberg_tables import make_table, open_session

from lake.core.base.clock import SystemClock
from lake.core.base.errors import LakeError
from lake.core.read.continuous.execute import follow
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Strategy
from lake.core.read.exports.destinations import Output
from lake.core.read.scan.plan import ScanOptions
from lake.core.transaction.session import Session

_CALLS = ("replace", "rename", "mkdir", "unlink", "rmdir", "listdir", "fsync", "ftruncate")
_ROWS = [0, 1, 10, 11, 20, 21]
# A run has about this number of points.
_POINTS = 62


@pytest.fixture
def warehouse(built_once: BuiltOnce) -> Path:
    """The folder of a catalog with the table db.t: three files in three snapshots."""

    def build(folder: Path) -> None:
        made = make_table(folder / "warehouse")
        for number in range(3):
            ids = pa.array([number * 10, number * 10 + 1], pa.int64())
            made.append(pa.table({"id": ids, "name": ["n", "n"]}))

    return built_once.folder("table", build) / "warehouse"


class Killed(BaseException):
    """A run does nothing any more, not even what it does at its end."""


class Overlap(NamedTuple):
    """How two runs overlap.

    Args:
        first: the point at which the first run lets the second one work.
        second: the point at which the second run lets the first one work.
        killed: the run that ends at its point; None for none.
    """

    first: int
    second: int
    killed: int | None = None


class Turns:
    """Two runs of which one works at a time; each lets the other one work once."""

    def __init__(self, overlap: Overlap) -> None:
        self._pauses, self._killed = overlap[:2], overlap.killed
        self._calls = [0, 0]
        self._ended: set[int] = set()
        self._turn = 0
        self._changed = threading.Condition()
        self._own = threading.local()

    def run(self, works: Sequence[Callable[[], object]]) -> list[BaseException | None]:
        """Run them to their ends, and return their errors."""
        errors: list[BaseException | None] = [None] * len(works)

        def run(number: int) -> None:
            self._own.number = number
            self._wait(number)
            try:
                works[number]()
            except BaseException as error:
                errors[number] = error
            self._ended.add(number)
            self.yield_turn()

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "the runs wait for each other"
        return errors

    def point(self) -> None:
        """Let the other run work if this is the point for that; does nothing outside of the runs."""
        number = getattr(self._own, "number", None)
        if number is None or number in self._ended:
            return
        self._calls[number] += 1
        late = self._calls[number] - self._pauses[number]
        if number == self._killed and late >= 0:
            raise Killed
        if not late:
            self.yield_turn()

    def yield_turn(self) -> None:
        """Let the other run work, unless it has ended."""
        number = self._own.number
        other = 1 - number
        with self._changed:
            if other not in self._ended:
                self._turn = other
                self._changed.notify_all()
        if number not in self._ended:
            self._wait(number)

    def _wait(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._turn == number, 60)


class Sharing(SystemClock):
    """A clock whose sleepers let the other run work."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def sleep(self, seconds: float) -> None:
        self._turns.yield_turn()


# The first run removed a file of splits that the second one was about to name, and an epoch that it had prepared; a
# part of an epoch was visible as a whole.
_FOUND = (Overlap(19, 10), Overlap(14, 28, 1), Overlap(35, 13), Overlap(25, 7))


@contextmanager
def _points(turns: Turns) -> Iterator[None]:
    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            turns.point()
            return call(*arguments, **options)

        return called

    with pytest.MonkeyPatch.context() as patched:
        for name in _CALLS:
            patched.setattr(os, name, before(getattr(os, name)))
        yield


class Follows:
    """A state and an output, and runs with them."""

    def __init__(self, warehouse: Path, folder: Path) -> None:
        self._warehouse = warehouse
        self.state, self.out, self._taken = folder / "state", folder / "out", folder / "taken"
        self._taken.mkdir(parents=True)

    def prepared(self, clock: SystemClock) -> Callable[[], None]:
        """Return a run that reads what there is, on a catalog that is open."""
        session = open_session(self._warehouse, clock)
        session.table("db.t")
        return lambda: self.run(session)

    def run(self, session: Session) -> None:
        """Read what there is; remove the lock before, so that it excludes no process."""
        (self.state / "lock").unlink(missing_ok=True)
        options = FollowOptions(
            scan=ScanOptions(split_open_cost=128 << 20),
            start=Strategy.TABLE,
            state=str(self.state),
            output=Output(path=str(self.out), format="parquet"),
            once=True,
            epoch_size=1,
        )
        follow(session, "db.t", options)

    def take(self) -> None:
        """Take the epochs that are visible, as a loader does."""
        for folder in sorted(self.out.glob("epoch-*")) if self.out.exists() else ():
            shutil.move(folder, self._taken)

    def check(self, note: object) -> None:
        """Check that each row was handed over once, in epochs without a hole."""
        self.take()
        folders = sorted(self._taken.iterdir())
        facts = [json.loads((folder / "_epoch.json").read_text()) for folder in folders]
        assert [item["epoch"] for item in facts] == [*range(1, len(folders) + 1)], note
        found = [
            row["id"]
            for folder in folders
            for file in sorted(folder.glob("part-*.parquet"))
            for row in pq.read_table(file).to_pylist()
        ]
        assert sorted(found) == _ROWS, note
        assert not list(self.out.iterdir()), note
        assert {path.name for path in self.state.iterdir()} == {"lock", "state.json"}, note


def _overlap(follows: Follows, overlap: Overlap) -> None:
    turns = Turns(overlap)
    works = [follows.prepared(Sharing(turns)) for _ in range(2)]
    with _points(turns):
        errors = turns.run(works)
    note = (overlap, errors)
    assert all(error is None or isinstance(error, LakeError | Killed) for error in errors), note
    try:
        follows.prepared(SystemClock())()
    except LakeError as error:
        raise AssertionError(note) from error
    follows.check(note)


def _overlap_all(folder: Path, warehouse: Path, overlaps: Sequence[Overlap]) -> None:
    for number, overlap in enumerate(overlaps):
        _overlap(Follows(warehouse, folder / str(number)), overlap)


def test_two_runs_that_no_lock_keeps_apart_hand_over_each_row_once(
    warehouse: Path, tmp_path: Path
) -> None:
    random = Random(1)
    drawn = [
        Overlap(random.randint(1, _POINTS), random.randint(1, _POINTS), killed)
        for killed in (None, 0, 1)
        for _ in range(10)
    ]

    _overlap_all(tmp_path, warehouse, [*_FOUND, *drawn])


@pytest.mark.slow
@pytest.mark.parametrize("killed", [None, 0, 1])
def test_two_runs_hand_over_each_row_once_wherever_they_overlap(
    warehouse: Path, tmp_path: Path, killed: int | None
) -> None:
    points = range(1, _POINTS, 3)

    _overlap_all(
        tmp_path, warehouse, [Overlap(*pauses, killed) for pauses in product(points, points)]
    )
