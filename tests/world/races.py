"""Every command, while one or two others commit at a named point in it, at both isolation levels.

The result is that of a serial order of them, or the command is refused and has changed nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform, IdentityTransform

from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    LakeError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.outcome import Outcome
from lake.core.table.flink.commits import LAKE_OPERATOR_ID
from lake.core.transaction.commit.operations import AppendFiles, RowDelta
from lake.core.transaction.commit.operations import Operation as TableOperation
from world import branching, entries, foreign
from world.model import (
    ID,
    PART,
    Effect,
    Expiry,
    Operation,
    adding,
    keeping_first,
    merging,
    replacing,
    sequencing,
    upserting,
    without,
)
from world.simulation import DAY_MS, MAIN, TABLE, Config, World

ISOLATIONS = ("serializable", "snapshot")
# The points of a command; one that does not occur comes after its end.
AFTER_PLAN, AFTER_WRITE, BEFORE_COMMIT, AFTER_COMMIT, BEFORE_DELETE = PHASES = (
    "after plan",
    "after write",
    "before commit",
    "after commit",
    "before delete",
)
TOUCHED, UNTOUCHED = 1, 11
PARTITION_STATS, EXPIRED_PARTITIONS = "stats of partitions", "expire partitions"
# They need a partitioned table. Which files a replacement of partitions replaces there, the model does not show.
_PARTITIONED, REPLACEMENT = {PARTITION_STATS, EXPIRED_PARTITIONS}, "replace partitions"
PURGE, ANOTHER, AGAIN = "purge", "another table", "register again"
# The partition that is old by its value, a branch behind main, a tag, and the WAP id of a staged snapshot.
_OLD_PART, BEHIND, KEPT, STAGED = "2000-01-01", "behind", "kept", "staged"


@dataclass(frozen=True)
class Command:
    """A command: its effect on rows, the rows that it loads, and its other arguments."""

    name: str
    verb: str
    arguments: Sequence[str]
    ids: Sequence[int] = ()
    deleted: Sequence[int] = ()
    keyed: bool = False
    effect: Callable[[Sequence[Mapping[str, Any]]], Effect] | None = None
    below: int | None = None
    whole: bool = False
    ref: str = MAIN
    commits: bool = True

    def run(self, world: World) -> object:
        if self.name in _PARTITIONED and world.metadata.spec().is_unpartitioned():
            return None
        done = self._run(world)
        if self.name == PARTITION_STATS and isinstance(done, Outcome):
            assert done.base_snapshot_id is not None
            world.check_partition_statistics(done.base_snapshot_id)
        return done

    def _run(self, world: World) -> object:
        rows = world.new_rows(self.ids, "x")
        if self.effect is merging:
            rows = [{"id": row["id"], "value": row["value"]} for row in rows]
        words: list[object] = list(self.arguments)
        if self.deleted:
            log = [*({**row, "op": "+I"} for row in rows)]
            log += [{**row, "op": "-D"} for row in world.new_rows(self.deleted, "x")]
            words.insert(0, world.source(log))
        elif rows:
            words.insert(0, world.source(rows))
        return world.step(self._operation(world, rows), self.verb, *words)

    def _operation(self, world: World, rows: list[dict[str, object]]) -> Operation:
        effect = adding(rows) if rows else None
        floats = False
        if self.effect is not None:
            effect = self.effect(rows)
        elif self.keyed:
            effect = upserting(rows, self.deleted)
        elif self.below is not None or self.whole:
            limit = self.below
            effect = replacing(lambda row: limit is None or row[ID] < limit, rows)
            floats = world.config.isolation == "snapshot"
        if self.verb != "expire":
            keeps = frozenset(self.ids if self.effect in {keeping_first, sequencing} else ())
            return Operation(
                self.name,
                effect,
                self.ref,
                floats=floats or self.effect is aging,
                keeps=keeps,
                lays_down=not self.commits,
            )
        return Operation(self.name, may_drop=True, expires=Expiry(older_ms=DAY_MS))


def aging(_rows: Sequence[Mapping[str, Any]]) -> Effect:
    """Remove the rows of the old partition."""
    return replacing(lambda row: row.get(PART) == _OLD_PART)


@dataclass(frozen=True)
class Act:
    """A command that is made for the state of the table."""

    run: Callable[[World], object]


def _add_files(world: World) -> object:
    rows = world.new_rows([92], "x")
    path = foreign.file_elsewhere(world, rows)
    return world.step(Operation("add files", adding(rows)), "add-files", path)


def staged(world: World) -> Snapshot | None:
    """Return the snapshot that is staged under a WAP id; None if it has expired."""
    for item in world.metadata.snapshots:
        if item.summary and item.summary.additional_properties.get("wap.id") == STAGED:
            return item
    return None


def _publish(world: World) -> object:
    source = staged(world)
    if source is None:
        return None
    operation = branching.picking("publish", world, source, MAIN)
    return world.step(operation, "publish", "--wap-id", STAGED)


def _pick(world: World) -> object:
    source = staged(world)
    if source is None:
        return None
    operation = branching.picking("cherry-pick", world, source, MAIN)
    return world.step(operation, "cherry-pick", source.snapshot_id)


def _roll_back_by_lake(world: World) -> object:
    snapshot = world.metadata.current_snapshot()
    if snapshot is None or snapshot.parent_snapshot_id is None:
        return None
    operation = Operation("roll back by lake", moves=True)
    return world.step(operation, "rollback", snapshot.parent_snapshot_id)


def _dropped_before(run: Callable[[World], object]) -> Callable[[World], object]:
    """Return a command that runs after the table was dropped; nothing is concurrent to the drop."""

    def work(world: World) -> object:
        watch, world.watch = world.watch, None
        entries.drop(world)
        world.watch = watch
        return run(world)

    return work


_UPSERT = ["--upsert", "--key", "id", "--deletes"]
_DELETE = ["--where", "id < 4", "--deletes"]
REPAIR = ["--yes", "--repair", "dangling-deletes", "--repair", "totals", "--repair", "statistics"]
_IN_PARTS = ["--partial-progress", "--max-commits", "3"]
_CHANGES = ["--changes-column", "op", "--changes-mode", "upsert", "--key", "id"]
COMMANDS: dict[str, Command | Act] = {
    item.name: item
    for item in (
        Command("append", "ingest", [], [90, 91]),
        Command("upsert by position", "ingest", [*_UPSERT, "position"], [1, 2, 50], keyed=True),
        Command("upsert by key", "ingest", [*_UPSERT, "equality"], [1, 2, 50], keyed=True),
        Command("upsert by copying", "ingest", [*_UPSERT, "copy-on-write"], [1, 2, 50], keyed=True),
        Command(
            "partial update",
            "ingest",
            [*_UPSERT, "position", "--merge", "partial-update"],
            [1, 2, 50],
            effect=merging,
        ),
        Command(
            "first row",
            "ingest",
            [*_UPSERT[:-1], "--merge", "first-row"],
            [1, 90],
            effect=keeping_first,
        ),
        Command(
            "sequence",
            "ingest",
            [*_UPSERT, "position", "--sequence", "value"],
            [1, 2, 50],
            effect=sequencing,
        ),
        Command(
            "change log",
            "ingest",
            _CHANGES,
            [1, 50],
            [2, 12],
            keyed=True,
        ),
        Command(
            "change log by position",
            "ingest",
            [*_CHANGES, "--deletes", "position"],
            [1, 50],
            [2, 12],
            keyed=True,
        ),
        Command("overwrite", "ingest", ["--overwrite-where", "id < 4"], [1, 3], below=4),
        Command(REPLACEMENT, "ingest", ["--replace-partitions"], [1, 60], whole=True),
        Command("delete by position", "delete", [*_DELETE, "position"], below=4),
        Command("delete by copying", "delete", [*_DELETE, "copy-on-write"], below=4),
        Command("compact", "compact", ["--rewrite-all", "--remove-dangling-deletes"]),
        Command(
            "compact with new sequence numbers",
            "compact",
            ["--rewrite-all", "--no-starting-sequence-number", "--partial-progress"],
        ),
        Command("convert deletes", "deletes", ["--convert"]),
        Command("rewrite deletes", "deletes", ["--rewrite"]),
        Command("convert deletes in parts", "deletes", ["--convert", *_IN_PARTS]),
        Command("rewrite deletes in parts", "deletes", ["--rewrite", *_IN_PARTS]),
        Command("expire", "expire", ["--older-than", "1d", "--retain-last", "1"]),
        Command("stats", "stats", []),
        Command(PARTITION_STATS, "stats", ["--partitions"]),
        Command("manifests", "manifests", ["--rewrite-all"]),
        Command(
            "clean",
            "clean",
            ["--delete", "--older-than", "1d", "--max-share", "100%"],
            commits=False,
        ),
        Command("repair", "check", REPAIR),
        Command(
            EXPIRED_PARTITIONS,
            "expire-partitions",
            ["--older-than", "1d", "--by", "part"],
            effect=aging,
        ),
        Command("alter", "alter", ["--add-column", "more string", "--sort-by", "id"]),
        Command("move a branch", "ref", ["--fast-forward", BEHIND, "--to", MAIN], ref=BEHIND),
        Command("drop a branch", "ref", ["--drop", BEHIND], ref=BEHIND),
        Command("move a tag", "tag", [KEPT, "--move"], ref=KEPT),
    )
}
COMMANDS |= {
    "add files": Act(_add_files),
    "publish": Act(_publish),
    "cherry-pick": Act(_pick),
    "roll back by lake": Act(_roll_back_by_lake),
    "drop": Act(entries.drop),
    PURGE: Act(entries.purge),
    "rename": Act(entries.rename),
    "register": Act(_dropped_before(entries.register)),
    "create": Act(_dropped_before(entries.create)),
}
# Commands that change the table's entry in the catalog, alone and beside others.
ENTRIES = {"drop", PURGE, "rename", "register", "create"}
OTHER_ENTRIES = {"drop", PURGE, "rename", AGAIN, ANOTHER}
# What shows that a command can be finished: temporary manifests of loads, and journals of expiries.
_UNFINISHED = (LAKE_OPERATOR_ID, "/lake-journal-")
# What a command may say whose table was dropped, purged, renamed or replaced meanwhile.
_WITHOUT_TABLE = (NotFoundError, RefusedError, CommitConflictError)


# What others do


def _append(ids: Sequence[int], part: str) -> Callable[[World], object]:
    def work(world: World) -> object:
        rows = world.new_rows(ids, part)

        def commit() -> None:
            table = world.table()
            added = foreign.data_files(table, rows)
            foreign.commit(world, table, AppendFiles(added=added))

        return world.other_writer(Operation("their append", adding(rows)), commit)

    return work


def _delete_place(wanted: int) -> Callable[[World], object]:
    def work(world: World) -> object:
        table = world.table()
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        found = [
            (entry, place, row)
            for entry, place, row in world.reference.places(table.metadata, snapshot)
            if row[ID] == wanted and entry.spec_id == table.spec.spec_id
        ]
        if not found:
            return None
        entry, place, row = found[0]

        def commit() -> None:
            deletes, replaced = foreign.deletes_of(world, table, entry, [place])
            delta: TableOperation = RowDelta(
                added=[],
                deletes=deletes,
                replaced_deletes=replaced,
                base_snapshot_id=snapshot.snapshot_id,
                isolation=world.config.isolation,
            )
            foreign.commit(world, table, delta)

        return world.other_writer(Operation("their delete", without([row[3]])), commit)

    return work


def _delete_keys(ids: Sequence[int]) -> Callable[[World], object]:
    def work(world: World) -> object:
        table = world.table()
        if not table.spec.is_unpartitioned():
            return None

        def commit() -> None:
            file = foreign.equality_file(table, [{"id": one} for one in ids], ["id"])
            foreign.commit(world, table, RowDelta(added=[], deletes=[file], validates=False))

        effect = replacing(lambda row: row[ID] in ids)
        return world.other_writer(Operation("their key deletes", effect), commit)

    return work


def _by_lake(name: str) -> Callable[[World], object]:
    return COMMANDS[name].run


def _tag(world: World) -> object:
    table = world.table()
    oldest = table.metadata.snapshots[0].snapshot_id
    name = f"tag-{oldest}"
    operation = Operation("tag", refs=frozenset({name}))
    return world.other_writer(
        operation, lambda: table.handle.manage_snapshots().create_tag(oldest, name).commit()
    )


def _commit_to_branch(world: World) -> object:
    table = world.table()
    operation = Operation("branch", refs=frozenset({"side"}))
    head = table.metadata.current_snapshot_id
    assert head is not None
    if "side" not in table.metadata.refs:
        world.other_writer(
            operation, lambda: table.handle.manage_snapshots().create_branch(head, "side").commit()
        )
    rows = world.new_rows([70], "x")
    if "side" not in world.metadata.refs:
        return None
    ours = Operation("to the branch", adding(rows), "side")
    return world.step(ours, "ingest", world.source(rows), "--branch", "side")


def _roll_back(world: World) -> object:
    return foreign.roll_back(world, foreign.First())


def _evolve(world: World) -> object:
    rows = world.new_rows([80], "x", more="new")
    return world.step(Operation("evolve", adding(rows)), "ingest", world.source(rows), "--evolve")


def _respec(world: World) -> object:
    table = world.table()
    if not table.spec.is_unpartitioned():
        return None

    def work() -> None:
        with table.handle.update_spec() as update:
            update.add_field("id", BucketTransform(2), "by_id")

    return world.other_writer(Operation("spec"), work)


OTHERS: dict[str, Callable[[World], object]] = {
    "append elsewhere": _append([100, 101], "y z"),
    "append of the same keys": _append([3, 50, 90], "x"),
    "append to an old partition": _append([102], _OLD_PART),
    "delete of a touched row": _delete_place(TOUCHED),
    "delete of another row": _delete_place(UNTOUCHED),
    "delete by key": _delete_keys((2, 13)),
    "upsert": _by_lake("upsert by copying"),
    "overwrite": _by_lake("overwrite"),
    "compact": _by_lake("compact"),
    "convert deletes": _by_lake("convert deletes"),
    "rewrite deletes": _by_lake("rewrite deletes"),
    "expire": _by_lake("expire"),
    "tag": _tag,
    "commit to a branch": _commit_to_branch,
    "roll back": _roll_back,
    "new column": _evolve,
    "new spec": _respec,
    **{
        name: _by_lake(name)
        for name in (
            *("stats", PARTITION_STATS, EXPIRED_PARTITIONS, "manifests", "clean", "repair"),
            *("add files", "publish", "move a branch", "drop", PURGE, "rename"),
        )
    },
    AGAIN: entries.register_again,
    ANOTHER: entries.replace,
}


class Moment:
    """Calls something once, at a phase of whatever runs."""

    def __init__(self, phase: str, work: Callable[[], object]) -> None:
        self._phase = phase
        self._work = work
        self._landed = False
        self.came = False

    def __call__(self, kind: str, location: str) -> None:
        if self.came:
            return
        if self._is_now(kind, location):
            self.now()
        self._landed = self._landed or kind == "swapped"

    def now(self) -> None:
        self.came = True
        self._work()

    def _is_now(self, kind: str, location: str) -> bool:
        if self._phase == AFTER_PLAN:
            return kind == "create"
        if self._phase == AFTER_WRITE:
            return kind == "create" and "/metadata/" in location
        if self._phase == BEFORE_COMMIT:
            return kind == "commit"
        if self._phase == AFTER_COMMIT:
            return kind == "swapped"
        return kind == "delete" and self._landed


class Races:
    """One table, raced for again and again; from its partitioned state if a command needs that.

    `restore` restores the unpartitioned state, `restore_divided` the partitioned one.
    """

    def __init__(self, folder: Path, isolation: str, version: int) -> None:
        self.world = World(
            folder / f"{isolation}-{version}", "races", Config(version, None, isolation)
        )
        with self.world.inside():
            self._make()
            self.restore = self.world.save()
            self._partition()
            self.restore_divided = self.world.save()

    def _make(self) -> None:
        world = self.world
        world.make_table()
        for ids, part in (((1, 2, 3, 4, 5, 6), "x"), ((11, 12, 13, 14, 15, 16), "y z")):
            world.clock.now += DAY_MS
            _append(ids, part)(world)
        world.clock.now += DAY_MS
        _delete_place(4)(world)
        dangle = self._dangling()
        COMMANDS["upsert by copying"].run(world)
        dangle()
        world.clock.now += 2 * DAY_MS
        # In format version 2, one data file gets two position delete files.
        _delete_place(14)(world)
        _delete_place(16)(world)
        world.clock.now += DAY_MS
        self._stage()
        _delete_keys((6,))(world)
        self._lose_files()
        world.clock.now += DAY_MS

    def _stage(self) -> None:
        """Add a snapshot that no branch has, a branch that main is ahead of, and a tag."""
        world, head = self.world, self.world.head()
        assert head is not None
        branching.stage_by_wap(world, Random("staged"), STAGED)
        for name, create in ((BEHIND, "create_branch"), (KEPT, "create_tag")):
            update = world.table().handle.manage_snapshots()
            operation = Operation(name, refs=frozenset({name}))
            world.other_writer(operation, getattr(update, create)(head, name).commit)

    def _dangling(self) -> Callable[[], object]:
        """Return a function that deletes positions of a data file that a command has replaced meanwhile."""
        world = self.world
        table = world.table()
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        places = world.reference.places(table.metadata, snapshot)
        (entry,) = (entry for entry, _, row in places if row[ID] == TOUCHED)
        if world.config.version == 1:
            return lambda: None
        world.expected_findings.add("V005")

        def commit() -> None:
            table = world.table()
            deletes, _ = foreign.deletes_of(world, table, entry, [0])
            foreign.commit(world, table, RowDelta(added=[], deletes=deletes, validates=False))

        return lambda: world.other_writer(Operation("their dangling delete"), commit)

    def _lose_files(self) -> None:
        """Leave files in the table's folders that nothing references."""
        table = self.world.table()
        for name in ("data/lost.parquet", "metadata/lost-m0.avro"):
            location = f"{table.metadata.location}/{name}"
            table.storage.write(location, b"lost")
            self.world.born(location)

    def _partition(self) -> None:
        """Change the spec, and write some rows in partitions; the others stay where they are."""
        world = self.world
        _respec(world)
        table = world.table()

        def divide() -> None:
            with table.handle.update_spec() as update:
                update.add_field("part", IdentityTransform(), "part")

        world.other_writer(Operation("spec"), divide)
        _append([31, 32], _OLD_PART)(world)
        rows = world.new_rows([11, 12, 21, 22], "x")
        operation = Operation("upsert", upserting(rows))
        world.step(operation, "ingest", world.source(rows), *_UPSERT, "copy-on-write")
        COMMANDS["upsert by copying"].run(world)
        world.clock.now += DAY_MS
        _delete_place(21)(world)
        _append([23, 24], "y z")(world)
        world.clock.now += DAY_MS

    def race(self, command: str, phase: str, others: Sequence[str]) -> Counter[str]:
        """Run one; whatever breaks a rule raises."""
        divided = not _PARTITIONED.isdisjoint((command, *others)) and command != REPLACEMENT
        (self.restore_divided if divided else self.restore)()
        world = self.world
        world.counts.clear()
        before = world.leftovers()

        def work() -> None:
            for other in others:
                if world.catalog.current(TABLE) is not None and not entries.is_there(world):
                    # It would work on another table.
                    return
                try:
                    OTHERS[other](world)
                except NotFoundError:
                    assert not entries.is_there(world), f"{other} does not find the table"

        moment = Moment(phase, work)
        with world.inside():
            world.watch = moment
            try:
                done = COMMANDS[command].run(world)
                if isinstance(done, LakeError) and not entries.is_there(world):
                    known = isinstance(done, _WITHOUT_TABLE) or command in ENTRIES
                    # After a change of the table, a commit is tried again before the table is found to be another.
                    known |= isinstance(done, CommitUnknownError) and world.is_replaced
                    assert known, f"{command} without its table: {done!r}"
                if not moment.came:
                    moment.now()
                world.watch = None
                entries.bring_back(world)
                self._check_left(command, others, world.leftovers(others=False) - before)
            finally:
                world.watch = None
        return world.counts

    def _check_left(self, command: str, others: Sequence[str], left: set[str]) -> None:
        """Check that nothing is left of commands that failed."""
        if ANOTHER in others:
            return
        # Without its table, a load does not know whether another process committed its files, and an expiry does
        # not delete: the next command finishes the one or the other.
        is_alone = command not in ENTRIES and OTHER_ENTRIES.isdisjoint(others)
        if not is_alone and any(mark in name for name in left for mark in _UNFINISHED):
            self.world.counts["left unfinished"] += 1
            return
        assert not left, f"{command} left {sorted(left)[:3]}"


def _is_possible(command: str, phase: str, others: Sequence[str]) -> bool:
    """Whether a result is defined: requests that change an entry have no condition, and neither has a deletion."""
    if phase == BEFORE_COMMIT and ANOTHER in others:
        return command not in {"drop", PURGE, "rename"}
    return not (phase == BEFORE_DELETE and command == PURGE and AGAIN in others)


def _products(*factors: Iterable[str]) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    for isolation, command, phase, *others in itertools.product(
        ISOLATIONS, COMMANDS, PHASES, *factors
    ):
        if _is_possible(command, phase, others):
            yield isolation, command, phase, tuple(others)


def singles() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield isolation, command, phase and the concurrent operation: 12,082."""
    return _products(OTHERS)


def pairs() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same with each ordered pair of concurrent operations: 374,302."""
    return _products(OTHERS, OTHERS)


def windows(seed: str, most: int) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Yield the same with three to six concurrent operations, ``most`` of them, drawn from a seed."""
    for number in range(most):
        random = Random(f"{seed} window {number}")
        while True:
            others = tuple(random.choices(list(OTHERS), k=random.randint(3, 6)))
            isolation, command = random.choice(ISOLATIONS), random.choice(list(COMMANDS))
            phase = random.choice(PHASES)
            if _is_possible(command, phase, others):
                break
        yield isolation, command, phase, others
