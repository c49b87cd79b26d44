"""A watch as an actor: files arrive in a folder, and two runs of one stream load them beside all other actors."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table.snapshots import Snapshot

from lake.core.base.errors import CommitUnknownError, LakeError, RefusedError
from lake.core.base.outcome import Outcome
from world.model import VALUE, Effect, Model, Operation, State, adding, upserting
from world.simulation import PARTS, World

# Other actors do not append these ids: an upsert refuses a table with two rows of a key.
_FIRST_ID, _MOST_KNOWN = 20_000, 3
_SEVERAL = "several rows"
_LONGEST_PAUSE = 60
_DONE = ("keep", "move", "delete")
Rows = list[dict[str, Any]]


class Watcher:
    """Loads the files of a folder into the table of a world.

    Each file's rows must be in the history of the table once. A file may be moved or deleted only after that.

    Args:
        world: the world of the table.
        random: chooses the options of the watch, and what arrives.
        locked: whether the state's lock excludes a second run; otherwise only the checks of a commit and of the state
            do.
    """

    def __init__(self, world: World, random: Random, *, locked: bool) -> None:
        self._world, self._random, self._locked = world, random, locked
        self._drop, self._gone = world.folder / "drop", world.folder / "loaded"
        self._state = world.folder / "watch"
        self._drop.mkdir()
        self._files: dict[str, Rows] = {}
        self._done = random.choice(_DONE)
        self._upserts = random.random() < 0.5
        self._options = self._drawn()

    def _drawn(self) -> list[object]:
        done = f"move:{self._gone}" if self._done == "move" else self._done
        options: list[object] = ["--done", done, "--commit-files", self._random.choice([1, 2, 10])]
        if self._upserts:
            mode = "copy-on-write" if self._world.config.version == 1 else "position"
            # Other actors add columns, which the files do not have.
            options += ["--upsert", "--key", "id", "--missing", "default", "--deletes", mode]
        if self._random.random() < 0.3:
            options += ["--then-compact", "files >= 2"]
        return options

    def actors(self, steps: int) -> Mapping[str, Callable[[], None]]:
        """Return the actors: what lets files arrive, and two runs of the stream.

        Args:
            steps: how often each of them acts.
        """

        def arrive() -> None:
            for _ in range(steps):
                self._arrive()
                # Others work meanwhile.
                for _ in range(self._random.randrange(_LONGEST_PAUSE)):
                    self._world.point("arrived")

        def load() -> None:
            for _ in range(steps):
                self.step()
                self._world.point("watched")

        return {"arrivals": arrive, "watcher": load, "second watcher": load}

    def _arrive(self) -> None:
        """Let a file arrive, with a name that is anywhere in the order of names."""
        world, random = self._world, self._random
        number = len(self._files)
        ids = [_FIRST_ID + number * 10 + one for one in range(random.randint(1, 3))]
        if self._upserts:
            ids += self._known_ids()
        rows = world.new_rows(ids, random.choice(PARTS))
        name = f"{random.randrange(100):02d}-{number}.parquet"
        self._files[name] = rows
        world.source(rows).rename(self._drop / name)

    def _known_ids(self) -> list[int]:
        """Return some ids of files that are loaded, but not of files that wait: an epoch has each key once."""
        held = self._world.model.ever_held
        ids: dict[bool, set[int]] = {True: set(), False: set()}
        for name, rows in self._files.items():
            ids[name in held].update(row["id"] for row in rows)
        known = sorted(ids[True] - ids[False])
        return self._random.sample(known, min(len(known), _MOST_KNOWN))

    def step(self) -> Outcome | LakeError:
        """Run the watch once."""
        world = self._world
        if not self._locked:
            (self._state / "lock").unlink(missing_ok=True)
        operation = Operation("watch", choices=self._choices)
        with world.operation(operation):
            try:
                done: Outcome | LakeError = world.run_lake(
                    *("ingest", "--watch", self._drop, "--stream", "s", "--state", self._state),
                    *("--once", "--settle", "0s", *self._options),
                )
            except LakeError as error:
                done = error
            status = done.status if isinstance(done, Outcome) else type(done).__name__
            world.counts[f"watch: {status}"] += 1
            # A commit of a compaction that landed late is not known to the run.
            operation.outcome = None if operation.faulted else str(status)
            assert not isinstance(done, LakeError) or type(done) is not LakeError, repr(done)
            if isinstance(done, CommitUnknownError):
                assert operation.faulted or world.is_log_too_short(done), repr(done.__cause__)
            if operation.faulted:
                world.open_outcomes.add(operation.name)
        world.check()
        self._check_files()
        return done

    def _choices(self, snapshot: Snapshot, model: Model) -> Iterator[Operation]:
        """Yield what a snapshot may be: the load of each file from which it has a row, or a compaction."""
        found = self._world.reference.rows(self._world.metadata, snapshot)
        new = {dict(row)[VALUE] for row in found} - model.rows(snapshot.parent_snapshot_id).keys()
        names = sorted(
            name
            for name, rows in self._files.items()
            if not new.isdisjoint(row["value"] for row in rows)
        )
        yield Operation("watch", self._effect(names), holds=frozenset(names))

    def _effect(self, names: list[str]) -> Effect:
        def effect(state: State, columns: Mapping[str, int]) -> State:
            for name in names:
                rows = self._files[name]
                state = (upserting(rows) if self._upserts else adding(rows))(state, columns)
            return state

        return effect

    def _check_files(self) -> None:
        """Check that each file that is not where it was dropped is in the table, and kept if it was moved."""
        for name, rows in self._files.items():
            if (self._drop / name).exists():
                continue
            assert self._done != "keep", f"{name} is gone"
            assert name in self._world.model.ever_held, f"{name} is gone and was never loaded"
            if self._done == "move":
                assert pq.read_table(self._gone / name).num_rows == len(rows)

    def settle(self) -> None:
        """Run the watch after all faults: then each file was loaded once."""
        for _ in range(2):
            done = self.step()
            if isinstance(done, RefusedError) and _SEVERAL in done.message:
                # Another actor added a row with the key of a file.
                return
            assert isinstance(done, Outcome), repr(done)
        world = self._world
        missing = self._files.keys() - world.model.ever_held
        assert not missing, f"{sorted(missing)} were never loaded"
        loaded = world.model.times_held()
        often = [name for name in self._files if loaded[name] > 1]
        assert not often or world.counts["rollback: done"], f"{often} were loaded twice"
        left = {path.name for path in self._drop.iterdir()}
        assert left == (set(self._files) if self._done == "keep" else set()), left
        if self._gone.exists():
            shutil.rmtree(self._gone)


def watcher(world: World, random: Random) -> Watcher:
    """Return a watcher of which one run works at a time."""
    return Watcher(world, random, locked=True)


def unlocked(world: World, random: Random) -> Watcher:
    """Return a watcher of which two runs may work at the same time."""
    return Watcher(world, random, locked=False)
