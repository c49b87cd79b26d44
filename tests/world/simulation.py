"""One seeded world: a table, actors that change it at once, and what must hold after each step.

Checked at each change of metadata: the rows of every new snapshot against the model and its summary against
counts, unique paths, growing sequence numbers, refs that only their owners move. After each operation: every
file of every retained snapshot is there with its length; what was acknowledged is visible, what was refused is
not. At each deletion: nothing retained reaches the file. At the end: all again from the disk, what every
command does when it is run twice more, and no file that nothing refers to.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import (
    CommitFailedException,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from lake.cli.app import State, root_command
from lake.cli.progress.displays import NONE
from lake.core.base import locations
from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    LakeError,
    NotFoundError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.base.settings import Settings
from lake.core.engine.inline import InlineEngine
from lake.core.maintain.checking.facts import CheckResult
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.metastores.other import OtherBackend
from lake.core.table.flink.commits import LAKE_OPERATOR_ID
from lake.core.table.snapshots import ancestry
from lake.core.transaction.session import Session
from world import hooks
from world.catalog import LOAD, SimCatalog
from world.model import Expiry, Model, Operation, adding, state_of
from world.processes import Processes
from world.reference import DATA, EQUALITY, POSITIONS, Contents, Reference, local, missing
from world.scheduler import Broken, Scheduler
from world.time import SimClock, SimIds

TABLE = "db.t"
MAIN = "main"
PREVIOUS_VERSIONS = "write.metadata.previous-versions-max"
# A word in the seed of a world with many faults.
HARSH = "harsh"
CONSUMER = "lake-consumer-"
# The folder of files that belong to a user and were added to the table where they are.
ELSEWHERE = "elsewhere"
COLUMNS = {"id": pa.int64(), "part": pa.string(), "value": pa.int64()}
PARTS = ["x", "y z"]
DAY_MS = 24 * 3_600_000
_TABLES_AGE_MS = 5 * DAY_MS  # what a table without properties keeps
# What an operation may have said whose commit lands behind it.
_OPEN = {None, "CommitUnknownError", "ConnectionError", "done", "nothing-to-do"}
# How often a commit that is under way lands at a hook, and how long a catalog may take for one.
_LANDING, _LATEST_MS = 0.02, 60_000
# Other writers' files, and temporary manifests of jobs.
_THEIRS = re.compile(
    r"/other-|-deletes\.(parquet|puffin)$|/metadata/[0-9a-f-]{36}-m\d+\.avro$"
    rf"|/[0-9a-f]{{32}}-(?!{LAKE_OPERATOR_ID})[0-9a-f]{{32}}-\d{{5}}-.*\.avro$"
)
# The counts of a partition in a partition statistics file, as `Reference.partitions` returns them.
_COUNTS = (
    *("data_record_count", "data_file_count", "total_data_file_size_in_bytes"),
    *("position_delete_record_count", "position_delete_file_count"),
    *("equality_delete_record_count", "equality_delete_file_count"),
)
# Verbs that may set a branch to a snapshot that exists.
_MOVING = {"rollback", "cherry-pick", "publish"}
# Verbs that change the entry of a table; a purge drops it before it finds a reason to stop.
_ENTRY_VERBS = {"drop", "rename", "register"}
_NO_CHANGE = {Status.NOTHING_TO_DO, Status.ALREADY_RUNNING, Status.DRY_RUN}


@dataclass(frozen=True)
class Config:
    """What kind of world it is.

    Args:
        version: the table's format version.
        partition_by: its first partition spec.
        isolation: the level of all its commands.
        faults: how often the catalog's answer to a commit is wrong, in [0, 1].
        stay: how likely an actor goes on at a hook.
        properties: more of the table's properties.
        respecs: whether partition specs change; then no command replaces partitions, because which they are
            depends on when it asked.
        focus: what happens more often than all else, so that more of it happens at once.
    """

    version: int = 2
    partition_by: str | None = None
    isolation: str = "serializable"
    faults: float = 0.0
    stay: float = 0.5
    properties: Mapping[str, str] = field(default_factory=dict)
    respecs: bool = False
    focus: str = "all"

    @classmethod
    def drawn(cls, random: Random, version: int | None = None) -> Config:
        """Draw one, of a format version if one is given."""
        properties = {}
        if random.random() < 0.3:
            properties["commit.manifest.min-count-to-merge"] = "2"
        if random.random() < 0.2:
            properties["write.metadata.delete-after-commit.enabled"] = "true"
            properties[PREVIOUS_VERSIONS] = "3"
        if random.random() < 0.3:
            properties["commit.retry.num-retries"] = random.choice(["0", "1"])
        return cls(
            version=version or random.choice([1, 2, 2, 2, 3, 3, 3]),
            partition_by=random.choice([None, None, "part", "part", "bucket(3, id)"]),
            isolation=random.choice(["serializable", "snapshot"]),
            faults=random.choice([0.0, 0.0, 0.0, 0.1, 0.5]),
            stay=random.choice([0.3, 0.7, 0.9]),
            properties=properties,
            respecs=random.random() < 0.5,
            focus=random.choices(
                ["all", "expiry", "jobs", "runs", "deletes", "upkeep"], [5, 1, 1, 1, 1, 1]
            )[0],
        )

    @classmethod
    def of(cls, seed: str) -> Config:
        """Return that of a world; the seeds of harsh ones end with ``harsh`` and a number."""
        config = cls.drawn(Random(f"{seed} config"))
        return config._harsher(Random(f"{seed} faults")) if HARSH in seed.split() else config

    def _harsher(self, random: Random) -> Config:
        """Return it with many wrong answers of the catalog, and often a metadata log that forgets them soon."""
        properties = dict(self.properties)
        if random.random() < 0.5:
            properties["write.metadata.delete-after-commit.enabled"] = "true"
            properties[PREVIOUS_VERSIONS] = random.choice(["1", "2", "3", "5"])
        faults = random.choice([0.1, 0.2, 0.3, 0.5, 0.7])
        return replace(self, faults=faults, properties=properties)


class SimBackend(OtherBackend):
    """A served database of tables that builds metadata in this process."""

    writes_metadata = True
    simulated: SimCatalog

    def metadata_locations(self) -> list[tuple[str, str]]:
        return self.simulated.locations()

    def send(self, *request: Any) -> Any:
        with self.simulated.recorded(self.written_metadata):
            return super().send(*request)

    def _begin(self, *request: Any) -> Any:
        return self.describe(*request)


class World:
    """A table in a folder, with everything around it from one seed."""

    def __init__(self, folder: Path, seed: str, config: Config) -> None:
        self.folder = folder
        self.config = config
        self.random = Random(f"{seed} world")
        # Whether its compactions look at the table as long ones do.
        self.is_attentive = Random(f"{seed} attentive").random() < 0.5
        self.scheduler = Scheduler(Random(f"{seed} turns"), config.stay)
        self.clock = SimClock(lambda: self.point("woken"))
        self.ids = SimIds(Random(f"{seed} names"))
        self.catalog = SimCatalog(
            self._at_catalog,
            self._judged(self._committed),
            self._judged(self._entered),
            self.ids.uuid,
        )
        self.catalog.faults = self._answer
        # A server cannot prevent that an expiry loses a new ref, which the log of metadata files shows if it is long.
        self.catalog.knows_every_requirement = (
            PREVIOUS_VERSIONS in config.properties or Random(f"{seed} catalog").random() < 0.5
        )
        # The world's table, by its UUID, and whether a purge deleted its files.
        self.uuid = ""
        self.purged = False
        self.model = Model()
        self.reference = Reference()
        self.counts: Counter[str] = Counter()
        # The snapshots of refs that expiries removed although they are not old enough.
        self._lost_refs: dict[str, int] = {}
        # The codes of findings of `lake check` that other writers cause.
        self.expected_findings: set[str] = {"S001", "G001"}
        # What several steps of one actor share, e.g. a job's state.
        self.kept: dict[str, Any] = {}
        self.open_outcomes: set[str] = set()
        # Statistics files that others of the same snapshot replaced: only `lake clean` removes them.
        self._replaced: set[str] = set()
        self._operations: dict[str | None, Operation] = {}
        # Since when each actor works on its step.
        self._turns: dict[str | None, int] = {}
        # When a snapshot was last removed.
        self._expired_ms = 0
        # When the row with a value was first in a snapshot.
        self.arrived: dict[int, int] = {}
        self._processes = Processes(self.scheduler.actor)
        # Called at every hook, with what is about to be done and where.
        self.watch: Callable[[str, str], None] | None = None
        self._values = itertools.count()
        self._sources = itertools.count()
        self._reachable: tuple[str, set[str]] = ("", set())
        self._born: dict[str, int] = {}
        # Commits that were sent and not answered: when, of what, and what lands them.
        self._under_way: list[tuple[int, Operation, Callable[[], Any]]] = []
        # Returns files that something outside the table's metadata still needs.
        self.needed: Callable[[], set[str]] = set
        # Return the snapshots that consumers have not read; by consumer.
        self.unread: dict[str, Callable[[TableMetadata], set[int]]] = {}
        # The kinds of all snapshots, expired ones too, as their summaries state them.
        self.kinds: dict[int, str] = {}
        self._faults = Random(f"{seed} faults")
        # Outside of actors, this thread works alone.
        self._thread = threading.current_thread()
        (folder / "sources").mkdir(parents=True)
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir()
        # Where an embedded catalog's database would be: that it exists is all that is asked.

    # What stands around the table

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Let hooks, time and names be this world's."""
        with (
            hooks.hooked(self._before),
            hooks.unlocked(),
            hooks.attentive_compactions(always=self.is_attentive),
            hooks.remembered_decoding(),
            hooks.file_times(self._written_ms),
            hooks.seeded_libraries(self.clock.now_ms, self.ids.uuid4),
            self._processes.inside(),
        ):
            yield

    def point(self, what: str) -> None:
        """A point where another actor may go on."""
        if self.scheduler.failure is not None:
            raise Broken
        if self._is_helper():
            return
        self.clock.now += 7
        if self._under_way:
            self._judged(self._let_land)()
        self.scheduler.point(what)

    def _is_helper(self) -> bool:
        """Whether this is a thread that an actor started: it runs beside its actor, in no order."""
        return self.scheduler.actor() is None and threading.current_thread() is not self._thread

    def _at_catalog(self, what: str) -> None:
        self._notify(what, "")
        self.point(what)
        if what == LOAD:
            self._note_heads()

    def _note_heads(self) -> None:
        """Note the heads that an operation sees which moves a branch: others commit until it loads the table."""
        operation, current = (
            self._operations.get(self.scheduler.actor()),
            self.catalog.current(TABLE),
        )
        if operation and operation.moves and not operation.has_loaded and current:
            operation.has_loaded = True
            operation.heads = {name: ref.snapshot_id for name, ref in current.refs.items()}

    def _notify(self, kind: str, location: str) -> None:
        if self.watch is not None:
            self.watch(kind, location)

    def _before(self, kind: str, location: str) -> None:
        if kind in {"delete", "create"}:
            self._judged(self._check_quiet)(kind, location)
        if kind == "delete":
            self._judged(self._check_deletable)(location)
        elif kind == "create":
            self.born(location)
        self._notify(kind, location)
        self.point(f"{kind} {os.path.basename(location)}")

    def _let_land(self, *, at_once: bool = False) -> None:
        """Let a commit land, now and then, whose sender gave up on it: while it could, it counts as unknown."""
        if not self._under_way or not (at_once or self._faults.random() < _LANDING):
            return
        sent, operation, commit = self._under_way.pop(0)
        if self.clock.now - sent > _LATEST_MS:
            return
        actor, swaps = self.scheduler.actor(), operation.swaps
        outer = self._operations.get(actor)
        self._operations[actor] = operation
        try:
            commit()
        except (CommitFailedException, TableAlreadyExistsError, ValueError):
            # The last: a tag of a snapshot that expired meanwhile.
            self.counts["late: refused"] += 1
        else:
            self.counts["late: landed"] += 1
            refused = operation.outcome not in _OPEN
            assert operation.swaps == swaps or not refused, f"{operation.outcome}, but it landed"
        finally:
            if outer is None:
                self._operations.pop(actor, None)
            else:
                self._operations[actor] = outer

    def _check_quiet(self, kind: str, location: str) -> None:
        operation = self._operations.get(self.scheduler.actor())
        quiet = operation is not None and operation.quiet
        under = locations.canonical(location).startswith(f"file://{self.warehouse}")
        assert not (quiet and under), f"{kind} {location}, which should change nothing"

    def born(self, location: str) -> None:
        """Remember when a file was written: on the disk it has the real time."""
        self._born[locations.canonical(location)] = self.clock.now

    def _written_ms(self, location: str) -> int:
        # A file that other writers wrote is as old as its first listing at most.
        return self._born.setdefault(locations.canonical(location), self.clock.now)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Remember since when the actor works on what it does now: no snapshot may name its files yet."""
        actor = self.scheduler.actor()
        self._turns[actor] = self.clock.now
        try:
            yield
        finally:
            del self._turns[actor]

    def oldest_writer_ms(self) -> int:
        """Return since when the oldest of the others works, or had sent a commit that may still land."""
        actor = self.scheduler.actor()
        began = [since for other, since in self._turns.items() if other != actor]
        began += [one.began_ms for other, one in self._operations.items() if other != actor]
        began += [
            operation.began_ms
            for sent, operation, _ in self._under_way
            if self.clock.now - sent <= _LATEST_MS
        ]
        return min(began, default=self.clock.now)

    def _answer(self, commit: Callable[[], Any]) -> Any:
        """Answer a commit, now and then wrongly."""
        if self._faults.random() >= self.config.faults:
            return commit()
        self._operation.faulted = True
        self.counts["wrong answers"] += 1
        kind = self._faults.choice(
            ["lost", "not sent", "late", "late", "conflict after landing", "conflict"]
        )
        if kind == "conflict after landing" and self._operation.cleans:
            kind = "lost"
        if kind in {"lost", "conflict after landing"}:
            commit()
        if kind == "late":
            self._under_way.append((self.clock.now, self._operation, commit))
        raise CommitFailedException(kind) if "conflict" in kind else ConnectionError(kind)

    def session(self) -> Session:
        """Open a session on the world's catalog."""
        catalog = SimBackend(
            "lake", {"warehouse": f"file://{self.warehouse}"}, self.clock, self.ids
        )
        catalog.__dict__["handle"] = catalog.simulated = self.catalog
        engine = InlineEngine(1, ids=self.ids)
        return Session(
            settings=Settings(), catalog=catalog, clock=self.clock, ids=self.ids, _engine=engine
        )

    def table(self) -> Table:
        """Load the table as another writer does."""
        return self.session().table(TABLE)

    @property
    def metadata(self) -> TableMetadata:
        """The table's metadata now, without a hook; the last one if it has no entry in the catalog."""
        return self.catalog.read(self.location)

    @property
    def location(self) -> str:
        """The location of that metadata."""
        return self.catalog.newest(self.uuid)

    @property
    def names(self) -> list[str]:
        """The names of the table in the catalog."""
        entries = self.catalog.entries()
        return [name for name, found in entries.items() if str(found.table_uuid) == self.uuid]

    def head(self, branch: str = MAIN) -> int | None:
        ref = self.metadata.refs.get(branch)
        return ref.snapshot_id if ref else None

    def source(self, rows: Sequence[Mapping[str, Any]], first: Mapping[str, Any] = {}) -> Path:
        """Write rows to a file."""
        path = self.folder / "sources" / f"{next(self._sources)}.parquet"
        names = {**first, **COLUMNS}
        names |= {name: pa.string() for row in rows for name in row if name not in names}
        table = pa.Table.from_pylist(list(rows), pa.schema(list(names.items())))
        pq.write_table(table, path, write_page_checksum=True)
        return path

    def new_rows(self, ids: Sequence[int], part: str, **more: str) -> list[dict[str, Any]]:
        """Return new rows, one for each id."""
        return [{"id": one, "part": part, "value": next(self._values), **more} for one in ids]

    def run_lake(self, verb: str, *arguments: object, session: Session | None = None) -> Outcome:
        """Run a command; its error is raised as it is."""
        opened = session or self.session()
        with self._processes.one():
            return self._run_in_process(opened, verb, arguments)

    def _run_in_process(self, opened: Session, verb: str, arguments: Sequence[object]) -> Outcome:
        state = State(open_session=lambda _: opened, command=verb, progress=NONE)
        try:
            words = [verb, TABLE, *map(str, arguments)]
            done = root_command().main(words, prog_name="lake", standalone_mode=False, obj=state)
            assert isinstance(done, Outcome)
            return done
        finally:
            state.close()

    # Steps

    @property
    def _operation(self) -> Operation:
        return self._operations[self.scheduler.actor()]

    @contextmanager
    def operation(self, operation: Operation) -> Iterator[Operation]:
        """Let what the actor commits now count as this operation's."""
        actor = self.scheduler.actor()
        operation.began_ms = self.clock.now
        if self.uuid:
            current = self.metadata
            head = current.refs.get(operation.branch)
            operation.base = head.snapshot_id if head else None
            operation.heads = {name: ref.snapshot_id for name, ref in current.refs.items()}
            operation.names = {field.name: field.field_id for field in current.schema().fields}
        outer = self._operations.get(actor)
        self._operations[actor] = operation
        try:
            yield operation
        finally:
            if outer is None:
                del self._operations[actor]
            else:
                self._operations[actor] = outer

    @property
    def is_replaced(self) -> bool:
        """Whether another table has the name of the world's table."""
        return self.catalog.current(TABLE) is not None and TABLE not in self.names

    def step(self, operation: Operation, verb: str, *arguments: object) -> Outcome | LakeError:
        """Run a command as an operation and check what it says of itself."""
        with self.operation(operation):
            try:
                done: Outcome | LakeError = self.run_lake(verb, *arguments)
            except LakeError as error:
                done = error
            status = done.status if isinstance(done, Outcome) else type(done).__name__
            self.counts[f"{operation.name}: {status}"] += 1
            operation.outcome = str(status)
            if isinstance(done, LakeError) and type(done) is LakeError:
                raise AssertionError(f"a defect: {done}") from done
            if isinstance(done, CommitUnknownError):
                # The server refused the commit, but the table that could show it has lost its name, or has removed
                # snapshots that were added since, or the log of metadata files does not reach back.
                hidden = self.is_replaced or self._expired_ms >= operation.began_ms
                hidden = hidden or self.is_log_too_short(done)
                assert operation.faulted or operation.enters or hidden, repr(done.__cause__)
            elif isinstance(done, LakeError) or done.status in _NO_CHANGE:
                # What it gave to a snapshot has expired with it.
                gone = operation.faulted and self._expired_ms >= operation.began_ms
                gone = gone and not operation.snapshots
                assert not operation.swaps or operation.lost or operation.purges or gone, (
                    f"{operation.name}: {done} but changed"
                )
            elif operation.lays_down:
                assert not operation.swaps, f"{operation.name} committed"
            elif operation.enters:
                # Another one may have made the same change.
                assert operation.swaps or verb in _ENTRY_VERBS, (
                    f"{operation.name}: {done} of others"
                )
            elif done.status is Status.DONE and verb != "expire":
                # Of two expiries at once, each may find that all is gone that it wanted gone, of two rollbacks or
                # picks that another one has set the branch to the same snapshot, of two that tag days the same tags.
                head = self.head(operation.branch)
                held = operation.holds <= self.model.held(head)
                is_made = verb in _MOVING and head != operation.base and held
                is_made = is_made or (verb == "tag" and bool(operation.refs))
                assert operation.swaps or is_made, (
                    f"{operation.name}: done, but nothing was committed"
                )
            if not isinstance(done, CommitUnknownError):
                # Where others commit all the time, the next expiry restores what the journal of this one shows.
                is_left = status == Status.PARTIAL and any(self.warehouse.rglob("lake-journal-*"))
                for name, snapshot_id in operation.lost.items():
                    is_there = self.head(name) == snapshot_id
                    assert is_there or is_left, f"{name} was lost: {done!r}"
            if isinstance(done, CommitUnknownError):
                self.open_outcomes.add(operation.name)
        self.check()
        return done

    def no_change(self, verb: str, *arguments: object) -> Outcome | LakeError:
        """Run a command that must not change anything, whatever it finds."""
        operation = Operation(f"{verb} that changes nothing", quiet=True)
        with self.operation(operation):
            try:
                done: Outcome | LakeError = self.run_lake(verb, *arguments)
            except LakeError as error:
                assert type(error) is not LakeError, f"a defect: {error}"
                done = error
        assert not operation.swaps, f"{operation.name} committed"
        return done

    def is_log_too_short(self, error: CommitUnknownError) -> bool:
        """Whether an outcome is unknown because the log of metadata files does not reach back."""
        is_short = PREVIOUS_VERSIONS in self.config.properties
        return is_short and isinstance(error.__cause__, CorruptFileError | NotFoundError)

    def other_writer(self, operation: Operation, work: Callable[[], Any]) -> bool:
        """Let another writer commit; whether it believes that it did."""
        # What it writes is not of the commit in which a race runs it.
        with self.operation(operation), self.catalog.recorded([]):
            try:
                work()
                outcome = "done"
            except (
                *(LakeError, CommitFailedException, ConnectionError, ValueError),
                # The snapshot on which PyIceberg began has expired.
                ValidationException,
            ) as error:
                outcome = type(error).__name__
                if not isinstance(error, CommitConflictError):
                    self.open_outcomes.add(operation.name)
            operation.outcome = outcome
            self.counts[f"{operation.name}: {outcome}"] += 1
        self.check()
        return outcome == "done"

    # What must hold

    def _judged(self, check: Callable[..., None]) -> Callable[..., None]:
        """Return a check whose failure ends the world, whatever the command around it catches."""

        def checked(*arguments: Any, **named: Any) -> None:
            try:
                check(*arguments, **named)
            except Exception as error:
                self.scheduler.fail(error)
                raise Broken from error

        return checked

    def _committed(
        self, before: TableMetadata | None, after: TableMetadata, updates: tuple[Any, ...]
    ) -> None:
        operation = self._operation
        # A run that fails has set the tag of its base, and removes it.
        is_tag = all(ancestry.is_run(getattr(item, "ref_name", "")) for item in updates)
        operation.swaps += not is_tag
        self.counts["swaps"] += 1
        assert before is not None or operation.enters, f"{operation.name} created a table"
        self.uuid = self.uuid or str(after.table_uuid)
        if str(after.table_uuid) != self.uuid:
            assert before is None, f"{operation.name} changed another table"
            return
        self._check_refs(operation, before, after)
        if before is not None:
            self._check_expired(operation, before, after)
            self._replaced |= _replaced_statistics(before, after)
        known = {item.snapshot_id for item in before.snapshots} if before else set()
        last = getattr(before, "last_sequence_number", 0)
        for snapshot in after.snapshots:
            if snapshot.snapshot_id not in known:
                if after.format_version > 1:
                    assert snapshot.sequence_number is not None
                    assert snapshot.sequence_number == last + 1
                    last = snapshot.sequence_number
                if snapshot.summary is not None:
                    self.kinds[snapshot.snapshot_id] = snapshot.summary.operation.value
                if self.model.knows(snapshot.snapshot_id):
                    # An expiry puts back what a race removed.
                    assert operation.lost
                else:
                    operation.snapshots.append(snapshot.snapshot_id)
                    self._check_snapshot(operation, after, snapshot)

    def _entered(self) -> None:
        operation = self._operation
        assert operation.enters, f"{operation.name} changed an entry of the catalog"
        operation.swaps += 1

    def _check_snapshot(
        self, operation: Operation, metadata: TableMetadata, snapshot: Snapshot
    ) -> None:
        self.counts["snapshots"] += 1
        names = {field.name: field.field_id for field in metadata.schema().fields}
        found = self.reference.rows(metadata, snapshot)
        contents = self.reference.contents(metadata, snapshot)
        lost = missing(contents.files)
        assert not lost, f"{operation.name} committed files that are not there: {lost[:3]}"
        state = state_of(found)
        ids = {field.field_id for field in schema_of(metadata, snapshot).fields}
        parent = snapshot.parent_snapshot_id
        first = None
        for choice in self._choices(operation, snapshot):
            assert not choice.holds & self.model.held(parent), f"{choice.holds} come twice"
            for candidate in self.model.candidates(choice, parent, names):
                first = candidate if first is None else first
                if {value: _of(row, ids) for value, row in candidate.items()} == state:
                    self.model.add(snapshot.snapshot_id, parent, choice, candidate)
                    for value in candidate:
                        self.arrived.setdefault(value, snapshot.timestamp_ms)
                    _check_summary(snapshot, contents)
                    return
        raise AssertionError(_difference(operation, first or {}, state))

    def _choices(self, operation: Operation, snapshot: Snapshot) -> Iterator[Operation]:
        if operation.choices is None:
            yield operation
            return
        for choice in operation.choices(snapshot, self.model):
            choice.base, choice.names = operation.base, operation.names
            yield choice

    def _check_refs(
        self, operation: Operation, before: TableMetadata | None, after: TableMetadata
    ) -> None:
        old = {name: ref.snapshot_id for name, ref in before.refs.items()} if before else {}
        new = {name: ref.snapshot_id for name, ref in after.refs.items()}
        assert MAIN in new or MAIN not in old, "main is gone"
        if operation.moves:
            began = operation.heads.get(operation.branch)
            assert old.get(operation.branch) == began, f"{operation.name} hid what others committed"
        for name in old.keys() | new.keys():
            if old.get(name) == new.get(name) or name in operation.refs | {operation.branch}:
                continue
            # A watch may compact after a load.
            if ancestry.is_run(name) and operation.name.startswith(("compact", "watch")):
                continue
            if name not in new and operation.may_drop:
                if before is not None and not self._is_aged(before, name):
                    operation.lost[name] = self._lost_refs[name] = old[name]
            else:
                # The journal of an expiry with an unknown outcome lets the next one restore them.
                lost = operation.lost if operation.expires is None else self._lost_refs
                assert name in new, f"{operation.name} removed {name}"
                assert lost.get(name) == new[name], f"{operation.name} moved {name}"
                operation.lost[name] = new[name]

    def _check_expired(
        self, operation: Operation, before: TableMetadata, after: TableMetadata
    ) -> None:
        """Check that only an expiry forgets snapshots, and only those that it may."""
        kept = {item.snapshot_id for item in after.snapshots}
        gone = [item for item in before.snapshots if item.snapshot_id not in kept]
        if not gone:
            return
        self._expired_ms = self.clock.now
        expiry = operation.expires
        assert expiry is not None, f"{operation.name} forgot snapshots"
        heads = {
            name: history_of(before, ref.snapshot_id)
            for name, ref in before.refs.items()
            if ref.snapshot_ref_type == "branch"
            and name in after.refs
            # The ref of a consumer has ages of its own.
            and not name.startswith(CONSUMER)
        }
        named = {ref.snapshot_id for ref in after.refs.values()}
        own = {item.snapshot_id for item in heads.get(expiry.branch or MAIN, ())}
        # What is asked of one branch is not asked of the others: the table's properties hold there, for what
        # was on them when the expiry began.
        others = {
            name: history_of(before, operation.heads[name])
            for name in heads
            if expiry.branch not in {None, name} and name in operation.heads
        }
        elsewhere = {item.snapshot_id for chain in others.values() for item in chain}
        lasting = {chain[0].snapshot_id for chain in others.values() if chain}
        for name, chain in heads.items():
            if expiry.branch in {None, name}:
                lasting |= {item.snapshot_id for item in chain[: expiry.retain_last]}
        for item in gone:
            one = item.snapshot_id
            assert one not in named, f"{operation.name} forgot {one}, where a ref points"
            assert expiry.branch is None or one in own, f"{one} is not on {expiry.branch}"
            age = self.clock.now - item.timestamp_ms
            needed = max(expiry.older_ms, _TABLES_AGE_MS if one in elsewhere else 0)
            allowed = age >= needed and one not in lasting
            assert allowed or one in expiry.snapshots, (
                f"{operation.name} forgot {one}, {age} ms old"
            )
        for consumer, unread in self.unread.items():
            lost = unread(before) & {item.snapshot_id for item in gone}
            assert not lost, f"{operation.name} forgot {lost}, which {consumer} has not read"
        for name, chain in heads.items():
            self._check_jobs(expiry, chain, history_of(after, after.refs[name].snapshot_id))

    def _check_jobs(
        self, expiry: Expiry, before: Sequence[Snapshot], after: Sequence[Snapshot]
    ) -> None:
        found = _last_commits(after)
        for job, (number, moment) in _last_commits(before).items():
            if self.clock.now - moment <= expiry.keep_checkpoints:
                assert found.get(job, (None, 0))[0] == number, f"{job} would commit {number} again"

    def _is_aged(self, metadata: TableMetadata, name: str) -> bool:
        ref = metadata.refs[name]
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        assert snapshot is not None
        age = self.clock.now - snapshot.timestamp_ms
        return ref.max_ref_age_ms is not None and age > ref.max_ref_age_ms

    def _reachable_files(self) -> set[str]:
        location = self.location
        if self._reachable[0] != location:
            metadata = self.metadata
            found = {locations.canonical(location)}
            for snapshot in metadata.snapshots:
                files = self.reference.contents(metadata, snapshot).files
                found.update(map(locations.canonical, files))
            found.update(map(locations.canonical, _statistics(metadata)))
            self._reachable = location, found
        return self._reachable[1]

    def _check_deletable(self, location: str) -> None:
        self.counts["deletes"] += 1
        path = locations.canonical(location)
        operation = self._operations.get(self.scheduler.actor())
        is_listed = "/.lake-trash/" not in path
        if operation is not None and operation.removes_ms is not None and is_listed:
            is_old = self._written_ms(location) <= operation.removes_ms
            assert is_old, f"{location} is deleted but too young"
        if operation is not None and operation.purges:
            assert not self.names, f"{location} is deleted before the table is dropped"
            self.purged = True
        if path.startswith(f"file://{self.warehouse}") and self.uuid and not self.purged:
            assert path not in self._reachable_files(), f"{location} is deleted but reachable"
            needed = {locations.canonical(one) for one in self.needed()}
            assert path not in needed, f"{location} is deleted but a job's state names it"
        else:
            assert str(self.folder) in path, f"{location} is outside"
            assert f"/{ELSEWHERE}/" not in path, f"{location} does not belong to the table"

    def check(self) -> None:
        """Check that all files of every retained snapshot are there, also of a table that was only dropped."""
        if self.purged:
            return
        metadata = self.metadata
        files: dict[str, int | None] = {}
        for snapshot in metadata.snapshots:
            files |= self.reference.contents(metadata, snapshot).files
        files |= {entry.metadata_file: None for entry in metadata.metadata_log}
        files |= _statistics(metadata)
        lost = missing(files)
        assert not lost, f"{len(lost)} files of retained snapshots: {lost[:3]}"

    def check_partition_statistics(self, snapshot_id: int) -> None:
        """Compare the partition statistics file of a snapshot with what is live; expired snapshots have none."""
        if self.purged:
            return
        metadata = self.metadata
        by_id = {item.snapshot_id: item for item in metadata.snapshots}
        for file in metadata.partition_statistics:
            if file.snapshot_id == snapshot_id in by_id:
                found = pq.read_table(local(file.statistics_path)).to_pylist()
                counted = Counter(
                    (row["spec_id"], *(row[name] for name in _COUNTS))
                    for row in found
                    if any(row[name] for name in _COUNTS)
                )
                live = self.reference.partitions(metadata, by_id[snapshot_id])
                assert counted == live, f"{file.statistics_path} has {counted}, not {live}"

    def check_all(self) -> None:
        """Check every retained snapshot again from the disk, and read and check them by lake."""
        # What is under way would change the table between two of the checks.
        under_way, self._under_way = self._under_way, []
        self._check_whole()
        self._under_way = under_way

    def _check_whole(self) -> None:
        self.check()
        metadata, fresh = self.metadata, self.reference.renewed()
        for snapshot in metadata.snapshots:
            ids = {field.field_id for field in schema_of(metadata, snapshot).fields}
            expected = self.model.rows(snapshot.snapshot_id)
            found = state_of(fresh.rows(metadata, snapshot))
            assert found == {value: _of(row, ids) for value, row in expected.items()}
        self.check_by_lake()
        for branch, ref in metadata.refs.items():
            if ref.snapshot_ref_type == "branch":
                self.check_scan("--branch", branch, expected=ref.snapshot_id)

    def check_by_lake(self, level: str = "--files") -> None:
        """Run `lake check`, which must not report damage: all writers of a world are correct."""
        known = {item.snapshot_id for item in self.metadata.snapshots}
        done = self.no_change("check", level)
        if isinstance(done, CommitConflictError):
            gone = known - {item.snapshot_id for item in self.metadata.snapshots}
            assert gone, repr(done)
            return
        assert isinstance(done.result, CheckResult), repr(done)
        # Another writer may describe a snapshot that has just expired. The simulated catalog does not put times in
        # order if a writer waits for days, as a server might not. Notes are not damage.
        found = [
            row
            for row in done.result.findings
            if row.code not in self.expected_findings and row.severity != "note"
        ]
        assert not found, f"check: {len(found)} findings: {found[:3]}"

    def check_scan(self, *arguments: object, expected: int) -> None:
        """Check what `lake scan` reads against the model, by the columns that all rows have."""
        path = self.folder / f"scan-{uuid.uuid4()}.parquet"
        self.run_lake("scan", *arguments, "--select", "id,part,value", "--output", path)
        found = sorted(map(_common, pq.read_table(path).to_pylist()), key=repr)
        os.unlink(path)
        state = self.model.rows(expected)
        wanted = sorted(
            (tuple(dict(row).get(one) for one in (1, 2, 3)) for row in state.values()), key=repr
        )
        assert found == wanted, f"scan {arguments} of {expected} reads other rows"

    def leftovers(self, *, others: bool = True) -> set[str]:
        """Return the files under the table that no retained snapshot holds, but old metadata.

        Args:
            others: whether those of other writers, and statistics that were replaced, are among them.
        """
        return {
            str(path)
            for path in (self.warehouse / "db" / "t").rglob("*")
            if path.is_file()
            and not path.name.endswith(".metadata.json")
            and f"file://{path}" not in self._reachable_files()
            and (others or not (_THEIRS.search(f"file://{path}") or self._is_replaced(path)))
        }

    def _is_replaced(self, path: Path) -> bool:
        return f"file://{path}" in self._replaced

    # A world's life

    def save(self) -> Callable[[], None]:
        """Return what brings back the table, and what is known of it, as they are now."""
        saved = self.folder / f"saved-{next(self._sources)}"
        shutil.copytree(self.warehouse, saved)
        catalog, model = self.catalog.saved(), self.model.saved()
        now = self.clock.now

        def restore() -> None:
            shutil.rmtree(self.warehouse)
            shutil.copytree(saved, self.warehouse)
            catalog()
            model()
            self.clock.now, self.purged = now, False

        return restore

    def stop_faults(self) -> None:
        """Let the catalog work from now on, and what is under way land or be refused."""
        self.catalog.faults = None
        while self._under_way:
            self._judged(self._let_land)(at_once=True)

    def come_to_rest(self) -> None:
        """Run the maintenance once, then again: the second time changes nothing, and no file is left over."""
        self.stop_faults()
        compact = ["--min-input-files", "2", "--delete-file-threshold", "1", "--idle", "0s"]
        expire = ["--older-than", "0s", "--unsafe-retention", "--keep-checkpoints", "0s"]
        self._compact_until_done(compact)
        for verb, options in (("compact", compact), ("expire", expire), ("expire", expire)):
            self._declare_leftovers()
            before, deletes = self.location, self.counts["deletes"]
            operation = Operation(verb, may_drop=True, expires=Expiry(keep_checkpoints=0))
            again = self.step(operation, verb, *options)
        assert isinstance(again, Outcome), repr(again)
        assert again.status is Status.NOTHING_TO_DO
        assert (before, deletes) == (self.location, self.counts["deletes"])
        if not self.open_outcomes:
            # What other writers wrote and did not commit is their own.
            own = sorted(self.leftovers(others=False))
            assert not own, f"left behind: {own[:5]}"
        self._clean()

    def _declare_leftovers(self) -> None:
        """Record that no other catalog contains the table, if old metadata files may look like those of one.

        A commit without an answer does not delete the file that drops out of the log. Two of them in a row are like
        two commits through another catalog, and are refused.
        """
        if "write.metadata.delete-after-commit.enabled" in self.config.properties:
            done = self.step(Operation("no other catalog"), "alter", "--no-other-catalog")
            assert isinstance(done, Outcome), repr(done)

    def _clean(self) -> None:
        """Delete what nothing needs, once: each deleted file is checked, and `lake check` finds all others."""
        for path in (self.warehouse / "db" / "t").rglob("*"):
            self._written_ms(f"file://{path}")
        words = ["--delete", "--older-than", "0s", "--unsafe-retention", "--max-share", "100%"]
        self._declare_leftovers()
        for _ in range(2):
            deletes = self.counts["deletes"]
            done = self.step(Operation("clean", lays_down=True), "clean", *words)
            assert isinstance(done, Outcome), repr(done)
        assert done.status is Status.NOTHING_TO_DO, f"clean finds files again: {done.result}"
        assert deletes == self.counts["deletes"]

    def _compact_until_done(self, usual: Sequence[object]) -> None:
        """Compact in one way until nothing is left to do, then ask for the same once more."""
        ways = [["--partial-progress"], ["--remove-dangling-deletes"], ["--verify"], []]
        words = [*usual, *self.random.choice(ways)]
        for left in (3, 2, 1, 0):
            before, deletes = self.location, self.counts["deletes"]
            done = self.step(Operation("compact at rest"), "compact", *words)
            assert isinstance(done, Outcome), repr(done)
            if done.status is Status.NOTHING_TO_DO:
                assert before == self.location
                assert deletes == self.counts["deletes"]
                return
            assert left, f"compact {words} finds something to do again and again"

    def make_table(self) -> None:
        """Make the table by the first load."""
        rows = self.new_rows(range(1000, 1012), "x")
        options: list[object] = ["--create"]
        properties = {
            "format-version": str(self.config.version),
            **{
                f"write.{kind}.isolation-level": self.config.isolation
                for kind in ("delete", "update", "merge")
            },
            **self.config.properties,
        }
        for key, value in properties.items():
            options += ["--property", f"{key}={value}"]
        if self.config.partition_by:
            options += ["--partition-by", self.config.partition_by]
        faults, self.catalog.faults = self.catalog.faults, None
        operation = Operation("create", adding(rows), enters=True)
        self.step(operation, "ingest", self.source(rows), *options)
        self.catalog.faults = faults

    def forget(self) -> None:
        """Remove the world's files."""
        shutil.rmtree(self.folder)


def schema_of(metadata: TableMetadata, snapshot: Snapshot) -> Any:
    """Return the schema that a snapshot was made with."""
    found = metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
    return found or metadata.schema()


def _statistics(metadata: TableMetadata) -> dict[str, int | None]:
    """Return the statistics files of retained snapshots, with their lengths."""
    kept = {item.snapshot_id for item in metadata.snapshots}
    files = (*metadata.statistics, *metadata.partition_statistics)
    found: dict[str, int | None] = {
        file.statistics_path: file.file_size_in_bytes for file in files if file.snapshot_id in kept
    }
    return found


def _replaced_statistics(before: TableMetadata, after: TableMetadata) -> set[str]:
    kept = {item.snapshot_id for item in after.snapshots}
    named = {file.statistics_path for file in (*after.statistics, *after.partition_statistics)}
    return {
        file.statistics_path
        for file in (*before.statistics, *before.partition_statistics)
        if file.snapshot_id in kept and file.statistics_path not in named
    }


def history_of(metadata: TableMetadata, snapshot_id: int) -> list[Snapshot]:
    by_id = {item.snapshot_id: item for item in metadata.snapshots}
    found: list[Snapshot] = []
    at: int | None = snapshot_id
    while at in by_id:
        found.append(by_id[at])
        at = by_id[at].parent_snapshot_id
    return found


def _last_commits(chain: Sequence[Snapshot]) -> dict[tuple[str, str], tuple[str, int]]:
    """Return the newest commit of each of Flink's jobs: its number and when."""
    found: dict[tuple[str, str], tuple[str, int]] = {}
    for item in chain:
        summary = item.summary.additional_properties if item.summary else {}
        if "flink.job-id" in summary and summary["flink.operator-id"] != LAKE_OPERATOR_ID:
            job = summary["flink.job-id"], summary["flink.operator-id"]
            number = summary["flink.max-committed-checkpoint-id"]
            found.setdefault(job, (number, item.timestamp_ms))
    return found


def _of(row: frozenset[tuple[int, Any]], ids: set[int]) -> frozenset[tuple[int, Any]]:
    return frozenset(cell for cell in row if cell[0] in ids)


def _common(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["part"], row["value"]


def _difference(operation: Operation, wanted: dict[int, Any], found: dict[int, Any]) -> str:
    back = [sorted(found[value]) for value in found.keys() - wanted.keys()]
    lost = [sorted(wanted[value]) for value in wanted.keys() - found.keys()]
    both = [
        (sorted(wanted[value]), sorted(found[value]))
        for value in found.keys() & wanted.keys()
        if found[value] != wanted[value]
    ]
    return (
        f"{operation.name}: {len(back)} rows too many {back[:5]}, {len(lost)} missing {lost[:5]}, "
        f"{len(both)} others {both[:3]}"
    )


def _check_summary(snapshot: Snapshot, contents: Contents) -> None:
    """Compare the totals of a snapshot's summary with what is counted."""
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    by_content: dict[int, list[Any]] = {DATA: [], POSITIONS: [], EQUALITY: []}
    for entry in contents.entries:
        by_content[entry.content].append(entry)
    counted = {
        "total-data-files": len(by_content[DATA]),
        "total-records": sum(entry.records for entry in by_content[DATA]),
        "total-delete-files": len(by_content[POSITIONS]) + len(by_content[EQUALITY]),
        "total-position-deletes": sum(entry.records for entry in by_content[POSITIONS]),
        "total-equality-deletes": sum(entry.records for entry in by_content[EQUALITY]),
    }
    stated = {key: int(summary[key]) for key in counted if key in summary}
    assert stated == {key: counted[key] for key in stated}, f"{stated} but counted {counted}"
