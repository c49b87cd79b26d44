"""Removal of orphan files and of old partitions, and repairs, while all others work on the table."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform

from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome
from lake.core.maintain.orphans.facts import CleaningResult
from world import foreign
from world.branching import some_branch
from world.model import PART, VALUE, Model, Operation, adding, without
from world.reference import DATA, Entry
from world.simulation import DAY_MS, PARTS, World
from world.time import START_MS

_FRESH = 10_000
_EPOCH = datetime.fromtimestamp(0, UTC)
# Values of `part` that are days: long past, and around the time at which a world begins.
_DAYS = (
    "2000-01-01",
    *(
        (_EPOCH + timedelta(milliseconds=START_MS + n * DAY_MS)).strftime("%Y-%m-%d")
        for n in (-2, 1)
    ),
)
_RUNS = "runs in the trash"
_REPAIRS = ("dangling-deletes", "totals", "statistics", "refs", "missing-files", "duplicate-files")


# Orphan files


def leave_files(world: World, random: Random) -> None:
    """Let another writer be killed after it wrote data files."""
    rows = world.new_rows(random.sample(range(_FRESH), 2), random.choice(PARTS))
    for file in foreign.data_files(world.table(), rows):
        world.born(file.path)


def clean(world: World, random: Random) -> None:
    """Delete the files that nothing needs, or move them away, but none that a writer may be about to commit."""
    limit_ms = _limit(world, random)
    words = ["--older-than", _time(limit_ms), "--unsafe-retention", "--max-share", "100%"]
    how = random.choice(["--delete", "--quarantine", "--quarantine"])
    operation = Operation(f"clean {how[2:]}", lays_down=True, removes_ms=limit_ms)
    done = world.step(operation, "clean", how, *words)
    result = CleaningResult.of(done.result) if isinstance(done, Outcome) else CleaningResult()
    if result.quarantined:
        world.kept.setdefault(_RUNS, []).append(result.run_id)


def empty_trash(world: World, random: Random) -> None:
    """Move the files of a run back, or delete them; others may do the same with this run at once."""
    runs = world.kept.get(_RUNS, [])
    how = random.choice(["--restore", "--restore", "--purge", "--purge-older-than"])
    if how == "--purge-older-than":
        world.step(Operation("purge", lays_down=True), "clean", how, _time(_limit(world, random)))
    elif runs:
        operation = Operation(f"{how[2:]} a run", lays_down=True)
        world.step(operation, "clean", how, random.choice(runs[-3:]))


def settle(world: World) -> None:
    """Move the files of every second run back to their places, and delete those of the others."""
    trash = world.warehouse / "db" / "t" / ".lake-trash"
    for run in world.kept.get(_RUNS, [])[::2]:
        folder = trash / run / "files"
        away = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
        done = world.step(Operation("restore", lays_down=True), "clean", "--restore", run)
        assert bool(away) <= isinstance(done, Outcome), f"{run} was not restored: {done!r}"
        lost = [name for name in away if not (trash.parent / name).is_file()]
        assert not lost, f"a restore of {run} lost {lost}"
        assert not (trash / run).exists() or isinstance(done, LakeError), f"{run} was restored"
    purge = ["--purge-older-than", _time(world.clock.now + DAY_MS)]
    world.step(Operation("purge", lays_down=True), "clean", *purge)
    left = [path for path in trash.rglob("*") if path.is_file()]
    assert not left, f"left in the trash: {left[:3]}"


def _limit(world: World, random: Random) -> int:
    """Return a time before which no writer began that still works."""
    age_ms = random.choice([0, 0, DAY_MS // 24, DAY_MS])
    return min(world.clock.now - age_ms, world.oldest_writer_ms() - 1)


def _time(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat()


# Repairs


def repair(world: World, random: Random) -> None:
    """Repair the table, which has no damage: rows stay as they are, and so do refs."""
    branch = some_branch(world, random)
    names = random.sample(_REPAIRS, random.randint(1, len(_REPAIRS)))
    words = [word for name in names for word in ("--repair", name)]
    world.step(Operation("repair", branch=branch), "check", *words, "--yes", "--branch", branch)


# Partitions


def append_to_day(world: World, random: Random) -> None:
    """Add rows of a day, which are in a partition of their own if the table is partitioned by it."""
    rows = world.new_rows(random.sample(range(_FRESH), random.randint(1, 3)), random.choice(_DAYS))
    branch = some_branch(world, random)
    operation = Operation("append to a day", adding(rows), branch)
    world.step(operation, "ingest", world.source(rows), "--branch", branch)


def expire_partitions(world: World, random: Random) -> None:
    """Remove the partitions of old days, or those that nothing has changed for long."""
    if random.random() < 0.6:
        append_to_day(world, random)
    branch = some_branch(world, random)
    limit_ms = world.clock.now - random.choice([0, DAY_MS // 24, DAY_MS, 2 * DAY_MS])
    words = ["--older-than", _time(limit_ms), "--unsafe-retention", "--branch", branch]
    by_part = any(
        field.source_id == PART for spec in world.metadata.partition_specs for field in spec.fields
    )
    if by_part and random.random() < 0.7:
        most = random.choice([1, 100])
        words += ["--by", "part", "--max", str(most)]
        choices = _by_value(world, limit_ms, most)
    else:
        words += ["--strategy", "update-time"]
        choices = _by_change(world, limit_ms)
    operation = Operation("expire partitions", branch=branch, choices=choices)
    world.step(operation, "expire-partitions", *words)


def _by_value(world: World, limit_ms: int, most: int) -> Any:
    """Return the operations that remove the given number of old days, the oldest first."""

    def choices(made: Snapshot, _: Model) -> Iterator[Operation]:
        metadata = world.metadata
        before = metadata.snapshot_by_id(made.parent_snapshot_id or 0)
        assert before is not None
        rows = _partitions(world, metadata, before.snapshot_id)
        ends = {}
        # A partition has files also if all of its rows are deleted.
        for entry in world.reference.contents(metadata, before).entries:
            end = _end_ms(metadata, entry) if entry.content == DATA else None
            if end is not None and end <= limit_ms:
                key = entry.spec_id, entry.partition
                ends[key] = end, [value for _, value in rows.get(key, ())]
        assert ends, "no partition is old"
        if len(ends) <= most:
            yield _removal([value for _, values in ends.values() for value in values])
            return
        # Several partitions may have the same day.
        last = sorted(end for end, _ in ends.values())[most - 1]
        first = [values for end, values in ends.values() if end < last]
        equal = [values for end, values in ends.values() if end == last]
        for chosen in itertools.combinations(equal, most - len(first)):
            yield _removal([value for values in (*first, *chosen) for value in values])

    return choices


def _by_change(world: World, limit_ms: int) -> Any:
    """Return the operation that removes the partitions that a snapshot lacks: each is whole, and all its rows old."""

    def choices(made: Snapshot, _: Model) -> Iterator[Operation]:
        metadata = world.metadata
        before = _partitions(world, metadata, made.parent_snapshot_id)
        left = {
            entry.path
            for entry in world.reference.contents(metadata, made).entries
            if entry.content == DATA
        }
        gone: list[int] = []
        for key, entries in before.items():
            stay = {entry.path in left for entry, _ in entries}
            assert len(stay) == 1, f"a part of partition {key} is removed"
            if stay == {False}:
                gone += [value for _, value in entries]
        young = [value for value in gone if world.arrived[value] >= limit_ms]
        assert not young, f"rows {young} are removed, and not old"
        yield _removal(gone)

    return choices


def _removal(values: Sequence[int]) -> Operation:
    return Operation("expire partitions", without(values))


def _partitions(
    world: World, metadata: TableMetadata, snapshot_id: int | None
) -> dict[tuple[Any, ...], list[tuple[Entry, int]]]:
    """Return the values of the rows of a snapshot, with their files, by partition."""
    snapshot = metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    assert snapshot is not None
    found = defaultdict(list)
    for entry, _, row in world.reference.places(metadata, snapshot):
        found[entry.spec_id, entry.partition].append((entry, row[VALUE]))
    return found


def _end_ms(metadata: TableMetadata, entry: Entry) -> int | None:
    """Return the end of the day of a file's partition; None if its partition is not a day."""
    fields = metadata.specs()[entry.spec_id].fields
    for field, value in zip(fields, entry.partition, strict=True):
        if field.source_id == PART and isinstance(field.transform, IdentityTransform) and value:
            try:
                day = datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC)
            except ValueError:
                return None
            return (day - _EPOCH) // timedelta(milliseconds=1) + DAY_MS
    return None
