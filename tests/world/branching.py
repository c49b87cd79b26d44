"""Changes of branches and tags by lake: refs, rollbacks, and picks, which do again what their source did."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from random import Random

from pyiceberg.table.snapshots import Snapshot

from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.branching.facts import TagsFacts
from lake.core.table.flink.commits import LAKE_OPERATOR_ID
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles
from world import foreign
from world.model import Operation, State, adding
from world.simulation import DAY_MS, MAIN, PARTS, World, history_of
from world.time import START_MS

_FRESH = 10_000
_EPOCH = datetime.fromtimestamp(0, UTC)
# The names of the tags of days.
_TAGS = "day-%Y-%m-%d"


def some_branch(world: World, random: Random) -> str:
    """Return main, or sometimes another branch."""
    refs = world.metadata.refs
    others = [name for name, ref in refs.items() if ref.snapshot_ref_type == "branch"]
    return random.choice(sorted(others)) if random.random() < 0.2 else MAIN


def change_ref(world: World, random: Random) -> None:
    """Create, move or drop a branch or tag of the actor's own."""
    metadata = world.metadata
    mine = f"own-{world.scheduler.actor()}-{random.randrange(2)}".replace(" ", "-")
    snapshot = random.choice(metadata.snapshots).snapshot_id
    ref = metadata.refs.get(mine)
    choices: list[tuple[object, ...]]
    if ref is None:
        choices = [
            ("tag", mine, "--at", snapshot),
            ("tag", mine, "--retain", "1d"),
            ("ref", "--branch-create", mine),
            ("ref", "--branch-create", mine, "--at", snapshot, "--retain", "1d"),
        ]
    elif ref.snapshot_ref_type == "tag":
        choices = [
            ("tag", mine, "--at", snapshot, "--move"),
            ("tag", "--drop", mine),
            ("ref", "--drop", mine),
        ]
    else:
        choices = [
            ("ref", "--fast-forward", mine, "--to", MAIN),
            ("rollback", snapshot, "--branch", mine, "--any"),
            ("ref", "--drop", mine),
        ]
    verb, *words = random.choice(choices)
    world.step(Operation("own ref", branch=mine), str(verb), *words)


def tag_periods(world: World, random: Random) -> None:
    """Tag the state at the ends of days, and drop the oldest of these tags."""
    # Other actors let days pass while the command works.
    first, last = (_day(ms) for ms in (START_MS - DAY_MS, world.clock.now + 30 * DAY_MS))
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    ends = {day.strftime(_TAGS): day + timedelta(days=1) for day in days}
    words = ["--auto", "daily", "--format", _TAGS]
    words += random.choice([[], ["--backfill"], ["--keep", "2"], ["--backfill", "--keep", "3"]])
    operation = Operation("tag days", refs=frozenset(ends))
    done = world.step(operation, "tag", *words)
    if isinstance(done, Outcome) and done.status is Status.DONE and done.result:
        by_id = {item.snapshot_id: item for item in world.metadata.snapshots}
        for name in TagsFacts.of(done.result).created:
            # Another actor may have dropped it.
            ref = world.metadata.refs.get(name)
            if ref is not None:
                moment = by_id[ref.snapshot_id].timestamp_ms
                assert _EPOCH + timedelta(milliseconds=moment) < ends[name], f"{name} is of later"


def _day(time_ms: int) -> datetime:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def roll_back(world: World, random: Random) -> None:
    """Set a branch back by one or more snapshots, or to any."""
    branch = some_branch(world, random)
    by_id = {item.snapshot_id: item for item in world.metadata.snapshots}
    at = by_id.get(world.head(branch) or 0)
    for _ in range(random.randint(1, 3)):
        at = by_id.get(at.parent_snapshot_id or 0) if at else None
    words = [at.snapshot_id] if at else [random.choice(sorted(by_id)), "--any"]
    operation = Operation("roll back", branch=branch, moves=True)
    world.step(operation, "rollback", *words, "--branch", branch)


def cherry_pick(world: World, random: Random) -> None:
    """Apply the change of any snapshot."""
    # Lake does not apply the mark of a job's commit to another snapshot, and the job would commit again.
    sources = [item for item in world.metadata.snapshots if not _is_of_a_job(item)]
    if sources:
        branch = some_branch(world, random)
        # Mostly one that is not in the branch's history.
        history = {item.snapshot_id for item in history_of(world.metadata, world.head(branch) or 0)}
        others = [item for item in sources if item.snapshot_id not in history]
        source = random.choice(others if others and random.random() < 0.8 else sources)
        words = [source.snapshot_id, "--branch", branch]
        world.step(picking("pick", world, source, branch), "cherry-pick", *words)


def _is_of_a_job(snapshot: Snapshot) -> bool:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return summary.get("flink.operator-id", LAKE_OPERATOR_ID) != LAKE_OPERATOR_ID


def stage_by_wap(world: World, random: Random, name: str = "") -> None:
    """Let another writer add a snapshot with a WAP id that is on no branch."""
    name = name or f"wap-{random.getrandbits(48)}"
    rows = world.new_rows(random.sample(range(_FRESH), 2), random.choice(PARTS))
    head = world.head()
    creating = Operation("wap branch", branch=name)

    def create() -> None:
        world.table().handle.manage_snapshots().create_branch(head, name).commit()

    def write() -> None:
        table = world.table()
        added = AppendFiles(added=foreign.data_files(table, rows))
        request = CommitRequest(operation_id=str(uuid.uuid4()), branch=name)
        commit_snapshot(world.session(), table, added, request, summary={"wap.id": name})

    def drop() -> None:
        world.table().handle.manage_snapshots().remove_branch(name).commit()

    if world.other_writer(creating, create):
        world.other_writer(Operation("wap", adding(rows), name, holds=frozenset({name})), write)
        world.other_writer(Operation("wap branch", branch=name), drop)


def publish(world: World, random: Random) -> None:
    """Apply a snapshot that was staged under a WAP id, once or again."""
    staged = {
        item.summary.additional_properties["wap.id"]: item
        for item in world.metadata.snapshots
        if item.summary and "wap.id" in item.summary.additional_properties
    }
    if staged:
        name, branch = random.choice(sorted(staged)), some_branch(world, random)
        operation = picking("publish", world, staged[name], branch)
        world.step(operation, "publish", "--wap-id", name, "--branch", branch)


def picking(name: str, world: World, source: Snapshot, branch: str) -> Operation:
    """Return the operation that adds and removes the rows that a snapshot added and removed."""
    before = world.model.rows(source.parent_snapshot_id)
    after = world.model.rows(source.snapshot_id)

    def effect(state: State, _: object) -> State:
        kept = {value: row for value, row in state.items() if value in after or value not in before}
        return {**kept, **{value: row for value, row in after.items() if value not in before}}

    return Operation(name, effect, branch, holds=world.model.holds(source.snapshot_id))
