"""The actors of a world: functions that make one step each, drawn by weight."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pyarrow.parquet as pq

from lake.core.base.errors import BadInputError
from lake.core.base.outcome import Outcome
from world import branching, flink, foreign, staging, upkeep
from world.branching import some_branch
from world.model import (
    FOREVER_MS,
    ID,
    PART,
    VALUE,
    Effect,
    Expiry,
    Operation,
    adding,
    keeping_first,
    merging,
    replacing,
    sequencing,
    upserting,
)
from world.simulation import DAY_MS, MAIN, PARTS, World

Step = Callable[[World, Random], object]
_FRESH = 10_000
# Other actors add columns, which the rows of these loads do not have.
_BY_KEY = ("--key", "id", "--missing", "default")
_UPSERT = ("--upsert", *_BY_KEY)
_CHANGES = ("--changes-column", "op", *_BY_KEY)


def _ids(world: World, random: Random, branch: str = MAIN) -> list[int]:
    """Return ids of existing rows, and of new ones."""
    state = world.model.rows(world.head(branch))
    known = sorted({dict(row)[ID] for row in state.values()})
    old = random.sample(known, min(len(known), random.randint(0, 4)))
    return list(dict.fromkeys([*old, *random.sample(range(_FRESH), random.randint(1, 3))]))


def append(world: World, random: Random) -> None:
    ids = random.sample(range(_FRESH), random.randint(1, 8))
    rows = world.new_rows(ids, random.choice(PARTS))
    branch = some_branch(world, random)
    operation = Operation("append", adding(rows), branch)
    world.step(operation, "ingest", world.source(rows), "--branch", branch)


def append_with_new_column(world: World, random: Random) -> None:
    name = f"extra_{random.getrandbits(16)}"
    rows = world.new_rows([random.randrange(_FRESH)], random.choice(PARTS), **{name: "new"})
    if len(world.metadata.schema().fields) < 8:
        world.step(Operation("evolve", adding(rows)), "ingest", world.source(rows), "--evolve")


def append_run(world: World, random: Random) -> None:
    """Load the same rows with one run id twice, or until a response arrives."""
    rows = world.new_rows(random.sample(range(_FRESH), 2), random.choice(PARTS))
    source, run = world.source(rows), f"run-{random.getrandbits(48)}"
    for _ in range(2):
        operation = Operation("run", adding(rows), holds=frozenset({run}))
        world.step(operation, "ingest", source, "--run-id", run)


def upsert(world: World, random: Random) -> None:
    branch = some_branch(world, random)
    rows = world.new_rows(_ids(world, random, branch), random.choice(PARTS))
    mode = random.choice(["position", "equality", "copy-on-write"])
    arguments = [*_UPSERT, "--deletes", mode, "--branch", branch]
    operation = Operation(f"upsert {mode}", upserting(rows), branch)
    world.step(operation, "ingest", world.source(rows), *arguments)


def partial_update(world: World, random: Random) -> None:
    """Change the value of rows, and keep their other columns."""
    branch = some_branch(world, random)
    loaded = world.new_rows(_ids(world, random, branch), random.choice(PARTS))
    rows = [{"id": row["id"], "value": row["value"]} for row in loaded]
    mode = random.choice(["position", "copy-on-write"])
    arguments = ["--upsert", "--key", "id", "--merge", "partial-update", "--deletes", mode]
    operation = Operation(f"partial update {mode}", merging(rows), branch)
    world.step(operation, "ingest", world.source(rows), *arguments, "--branch", branch)


def first_row(world: World, random: Random) -> None:
    """Load rows of which only those with new keys are added."""
    branch = some_branch(world, random)
    rows = world.new_rows(_ids(world, random, branch), random.choice(PARTS))
    arguments = ["--upsert", "--key", "id", "--merge", "first-row"]
    keys = frozenset(row["id"] for row in rows)
    operation = Operation("first row", keeping_first(rows), branch, keeps=keys)
    world.step(operation, "ingest", world.source(rows), *arguments, "--branch", branch)


def sequence(world: World, random: Random) -> None:
    """Load rows that are newer than those of their keys, unless others load newer ones meanwhile."""
    branch = some_branch(world, random)
    rows = world.new_rows(_ids(world, random, branch), random.choice(PARTS))
    mode = random.choice(["position", "copy-on-write"])
    arguments = [*_UPSERT, "--sequence", "value", "--deletes", mode]
    keys = frozenset(row["id"] for row in rows)
    operation = Operation(f"sequence {mode}", sequencing(rows), branch, keeps=keys)
    world.step(operation, "ingest", world.source(rows), *arguments, "--branch", branch)


def change_log(world: World, random: Random) -> None:
    branch = some_branch(world, random)
    ids = _ids(world, random, branch)
    cut = random.randint(0, len(ids) - 1)
    rows = world.new_rows(ids[cut:], random.choice(PARTS))
    gone = [{**row, "op": "-D"} for row in world.new_rows(ids[:cut], random.choice(PARTS))]
    log = [*({**row, "op": "+I"} for row in rows), *gone]
    source = world.source(log)
    arguments = [*_CHANGES, "--changes-mode", "upsert"]
    operation = Operation("changes", upserting(rows, ids[:cut]), branch)
    world.step(operation, "ingest", source, *arguments, "--branch", branch)


def look_up(world: World, random: Random) -> None:
    """Load a change log whose old rows are found in all partitions; only the last change of a key has an effect."""
    branch = some_branch(world, random)
    ids = _ids(world, random, branch)
    cut = random.randint(0, len(ids) - 1)
    rows = [row for one in ids[cut:] for row in world.new_rows([one], random.choice(PARTS))]
    # A delete may have the key only.
    gone = [{"id": one, "part": None, "value": None} for one in ids[:cut]]
    early = world.new_rows(random.sample(ids, random.randint(0, len(ids))), random.choice(PARTS))
    log = [{**row, "op": random.choice(["+I", "-U", "+U", "-D"])} for row in early]
    log += [*({**row, "op": "-D"} for row in gone), *({**row, "op": "+U"} for row in rows)]
    mode = random.choice(["position", "copy-on-write"])
    arguments = [*_CHANGES, "--changes-mode", "upsert"]
    arguments += ["--deletes", mode, "--branch", branch]
    operation = Operation(f"look up {mode}", upserting(rows, ids[:cut]), branch)
    world.step(operation, "ingest", world.source(log), *arguments)


def retract(world: World, random: Random) -> None:
    """Load a change log that contains the old rows too: rows that it does not retract are kept."""
    branch = some_branch(world, random)
    metadata = world.metadata
    state = world.model.rows(world.head(branch))
    rows = [dict(row) for row in state.values()]
    old = [
        {"id": row[ID], "part": row.get(PART), "value": row[VALUE]}
        for row in random.sample(rows, min(len(rows), random.randint(0, 3)))
    ]
    kept = {row["id"] for row in old if random.random() < 0.6}
    # Of two new rows of one key, only the later one would be loaded.
    ids = dict.fromkeys([*sorted(kept), *random.sample(range(_FRESH), 2)])
    new = world.new_rows(list(ids), random.choice(PARTS))
    log = [{**row, "op": "-U" if row["id"] in kept else "-D"} for row in old]
    log += [{**row, "op": "+U" if row["id"] in kept else "+I"} for row in new]
    # An old row determines the partition in which it is deleted.
    by_part = any(field.source_id == PART for field in metadata.spec().fields)
    gone = {(row["id"], row["part"]) if by_part else row["id"] for row in old}
    effect = replacing(lambda row: ((row[ID], row.get(PART)) if by_part else row[ID]) in gone, new)
    arguments = [*_CHANGES, "--changes-mode", "retract"]
    operation = Operation("retract", effect, branch)
    world.step(operation, "ingest", world.source(log), *arguments, "--branch", branch)


def overwrite_where(world: World, random: Random) -> None:
    limit = random.choice([500, 3000, _FRESH])
    branch = some_branch(world, random)
    ids = [one for one in _ids(world, random, branch) if one < limit]
    rows = world.new_rows(ids, random.choice(PARTS))
    effect = replacing(lambda row: row[ID] < limit, rows)
    floats = world.config.isolation == "snapshot"
    operation = Operation("overwrite", effect, branch, floats=floats)
    words = [world.source(rows), "--overwrite-where", f"id < {limit}", "--branch", branch]
    world.step(operation, "ingest", *words)


def delete(world: World, random: Random) -> None:
    limit = random.choice([500, 3000])
    branch = some_branch(world, random)
    mode = random.choice(["position", "copy-on-write"])
    effect = replacing(lambda row: row[ID] < limit, [])
    floats = world.config.isolation == "snapshot"
    operation = Operation(f"delete {mode}", effect, branch, floats=floats)
    words = ["--where", f"id < {limit}", "--deletes", mode, "--branch", branch]
    world.step(operation, "delete", *words)


def replace_partitions(world: World, random: Random) -> None:
    part = random.choice(PARTS)
    rows = world.new_rows(_ids(world, random), part)
    metadata = world.metadata
    if world.config.respecs or "bucket" in str(metadata.spec()):
        return
    whole = metadata.spec().is_unpartitioned()
    effect: Effect = replacing(lambda row: whole or row.get(PART) == part, rows)
    operation = Operation("replace", effect, floats=world.config.isolation == "snapshot")
    world.step(operation, "ingest", world.source(rows), "--replace-partitions")


def compact(world: World, random: Random) -> None:
    options = random.choice(
        [
            ["--min-input-files", "2"],
            ["--rewrite-all"],
            ["--rewrite-all", "--verify", "--remove-dangling-deletes"],
            ["--delete-file-threshold", "1", "--no-starting-sequence-number"],
            ["--rewrite-all", "--target-size", "1KB"],
            ["--rewrite-all", "--partial-progress", "--max-group-files", "2"],
            ["--partial-progress", "--max-commits", "2", "--min-input-files", "2"],
            ["--rewrite-all", "--max-files", "3", "--job-order", "files-desc"],
            ["--rewrite-all", "--where", "id < 3000", "--remove-dangling-deletes"],
            ["--rewrite-all", "--spec-id", str(world.metadata.default_spec_id)],
            ["--delete-ratio", "0.1", "--remove-dangling-deletes"],
            ["--strategy", "sort", "--by", "part desc, id", "--rewrite-all"],
            ["--strategy", "sort", "--by", "id", "--rewrite-all", "--target-size", "1KB"],
            ["--strategy", "zorder", "--by", "id, value", "--min-input-files", "2", "--verify"],
        ]
    )
    branch = some_branch(world, random)
    if world.is_attentive:
        options += random.choice([[], ["--idle", "0s"], ["--idle", "auto"], ["--idle", "1m"]])
    world.step(Operation("compact", branch=branch), "compact", *options, "--branch", branch)


def convert(world: World, random: Random) -> None:
    branch = some_branch(world, random)
    kind = random.choice(["--convert", "--rewrite"])
    limits = random.choice(
        [[], ["--max-files", "2"], ["--partial-progress", "--max-commits", "3"]],
    )
    operation = Operation(kind[2:], branch=branch)
    world.step(operation, "deletes", kind, *limits, "--branch", branch)


def manifests(world: World, random: Random) -> None:
    options = random.choice([[], ["--rewrite-all"], ["--rewrite-all", "--target-size", "5KB"]])
    branch = some_branch(world, random)
    operation = Operation("manifests", branch=branch)
    world.step(operation, "manifests", *options, "--branch", branch)


def stats(world: World, random: Random) -> None:
    branch = some_branch(world, random)
    options = random.choice([[], ["--select", "id,part"]])
    world.step(Operation("stats", branch=branch), "stats", *options, "--branch", branch)


def partition_stats(world: World, random: Random) -> None:
    """Describe the partitions of a branch, and compare the file with its manifests."""
    branch = some_branch(world, random)
    operation = Operation("stats --partitions", branch=branch)
    done = world.step(operation, "stats", "--partitions", "--branch", branch)
    if isinstance(done, Outcome) and done.base_snapshot_id is not None:
        world.check_partition_statistics(done.base_snapshot_id)


def alter(world: World, random: Random) -> None:
    """Change the columns that not all rows have, the order of new files, or a property."""
    extra = [name for name in world.metadata.schema().column_names if name.startswith("extra")]
    name = f"extra_{random.getrandbits(24)}"
    choices = [
        ["--sort-by", random.choice(["id", "part desc, id", ""])],
        ["--set", f"commit.manifest.min-count-to-merge={random.choice([2, 100])}"],
        ["--unset", "commit.manifest.min-count-to-merge"],
    ]
    if extra:
        old = random.choice(extra)
        choices += [["--rename-column", f"{old}={name}"], ["--drop-column", old]]
    if len(extra) < 4:
        choices.append(["--add-column", f"{name} string"])
    world.step(Operation("alter"), "alter", *random.choice(choices))


def add_files(world: World, random: Random) -> None:
    """Add a file that another program wrote, also with a run id twice."""
    ids = random.sample(range(_FRESH), random.randint(1, 3))
    rows = world.new_rows(ids, random.choice(PARTS))
    branch, run = some_branch(world, random), f"run-{random.getrandbits(48)}"
    path = foreign.file_elsewhere(world, rows)
    for _ in range(random.randint(1, 2)):
        operation = Operation("add files", adding(rows), branch, holds=frozenset({run}))
        world.step(operation, "add-files", path, "--run-id", run, "--branch", branch)


def expire(world: World, random: Random) -> None:
    ages = {"0s": 0, "1d": DAY_MS, "2d": 2 * DAY_MS}
    age, keep = random.choice(list(ages)), random.choice([1, 1, 3])
    words = ["--older-than", age, "--retain-last", keep]
    expiry = Expiry(older_ms=ages[age], retain_last=keep)
    if age == "0s":
        words.append("--unsafe-retention")
    kind = random.choice(["all", "all", "clean", "branch", "named", "jobs", "metadata", "dry"])
    if kind == "clean":
        words.append("--clean-metadata")
    elif kind == "branch":
        branch = some_branch(world, random)
        words += ["--branch", branch]
        expiry = replace(expiry, branch=branch)
    elif kind == "named":
        named = random.choice(world.metadata.snapshots).snapshot_id
        words = ["--snapshot", named]
        expiry = Expiry(snapshots=frozenset({named}), older_ms=FOREVER_MS)
    elif kind == "jobs":
        # With this option, jobs that are down for longer are not restored.
        words += ["--keep-checkpoints", "12h"]
        expiry = replace(expiry, keep_checkpoints=DAY_MS // 2)
        world.kept["remembered ms"] = DAY_MS // 2
    elif kind == "metadata":
        words.append("--keep-files")
        # Only a search for orphan files removes the files that it leaves.
        world.open_outcomes.add("expire --keep-files")
    elif kind == "dry":
        world.no_change("expire", *words, "--dry-run")
        return
    operation = Operation(f"expire {kind}", may_drop=True, expires=expiry)
    world.step(operation, "expire", *words)


def dry(world: World, random: Random) -> None:
    """Run a command as a dry run."""
    rows = world.new_rows(_ids(world, random), random.choice(PARTS))
    source = world.source(rows)
    world.no_change(
        *random.choice(
            [
                ("compact", "--rewrite-all", "--dry-run"),
                ("ingest", source, "--dry-run"),
                ("ingest", source, "--upsert", "--key", "id", "--dry-run"),
                ("ingest", source, "--overwrite-where", "id < 3000", "--dry-run"),
                ("ingest", source, "--create", "--partition-by", "part", "--dry-run"),
                ("snapshots", "--all"),
                ("show",),
                ("partitions",),
                ("inspect", "files"),
                ("deletes", "--exact"),
                ("deletes", "--convert", "--dry-run"),
                ("manifests", "--rewrite-all", "--dry-run"),
                ("clean", "--older-than", "0s", "--unsafe-retention"),
                ("check", "--repair", "totals", "--repair", "dangling-deletes"),
                (
                    "expire-partitions",
                    "--strategy",
                    "update-time",
                    "--older-than",
                    "1d",
                    "--dry-run",
                ),
            ]
        )
    )


def wait(world: World, random: Random) -> None:
    world.clock.now += random.choice([60_000, 3_600_000, DAY_MS, 3 * DAY_MS])


# Readers


def read(world: World, random: Random) -> None:
    """Read a snapshot while others work; it may fail only if the snapshot has expired when it ends."""
    snapshot = random.choice(world.metadata.snapshots).snapshot_id
    try:
        world.check_scan("--snapshot", snapshot, expected=snapshot)
    except BadInputError:
        assert world.metadata.snapshot_by_id(snapshot) is None
        world.counts["scan: expired"] += 1
    else:
        world.counts["scan: done"] += 1


def check(world: World, random: Random) -> None:
    """Check the table while others work: an expiry may remove what the check is about to read."""
    world.check_by_lake(random.choice(["--files", "--files", "--rows", "--deep"]))


def read_changes(world: World, random: Random) -> None:
    """Read the changes between two snapshots, and compare them with the difference of their rows."""
    metadata = world.metadata
    ids = {item.snapshot_id: item for item in metadata.snapshots}
    end = at = metadata.current_snapshot()
    needed = {metadata.current_snapshot_id}
    for _ in range(random.randint(1, 4)):
        if at is not None and at.parent_snapshot_id in ids:
            at = ids[at.parent_snapshot_id]
            needed.add(at.snapshot_id)
    assert at is not None
    assert end is not None
    path = world.folder / f"changes-{random.getrandbits(64)}.parquet"
    arguments = ["--from-snapshot", at.snapshot_id, "--to-snapshot", end.snapshot_id]
    try:
        world.run_lake(
            "scan", "--changes", *arguments, "--select", "id,part,value", "--output", path
        )
    except BadInputError as error:
        # A snapshot of the range has expired.
        gone = needed - {item.snapshot_id for item in world.metadata.snapshots}
        assert gone, repr(error)
        world.counts["changes: expired"] += 1
        return
    found: Counter[int] = Counter()
    for row in pq.read_table(path).to_pylist():
        found[row["value"]] += 1 if row["_change_type"] == "insert" else -1
    os.unlink(path)
    before, after = world.model.rows(at.snapshot_id), world.model.rows(end.snapshot_id)
    wanted = {**dict.fromkeys(after.keys() - before.keys(), 1)}
    wanted |= dict.fromkeys(before.keys() - after.keys(), -1)
    assert {value: count for value, count in found.items() if count} == wanted
    world.counts["changes: done"] += 1


def read_increment(world: World, random: Random) -> None:
    """Read the appends between two snapshots: the rows that each appending snapshot added."""
    metadata = world.metadata
    ids = {item.snapshot_id: item for item in metadata.snapshots}
    end = at = metadata.current_snapshot()
    chain = []
    for _ in range(random.randint(1, 5)):
        if at is not None:
            chain.append(at)
            at = ids.get(at.parent_snapshot_id or 0)
    start = chain[-1].parent_snapshot_id if chain else None
    if start is None:
        return
    assert end is not None
    path = world.folder / f"increment-{random.getrandbits(64)}.parquet"
    words = ["--from-snapshot", start, "--to-snapshot", end.snapshot_id]
    try:
        world.run_lake("scan", *words, "--select", "id,part,value", "--output", path)
    except BadInputError as error:
        # An expired start is identified by the snapshot after it.
        gone = {item.snapshot_id for item in chain} - {
            item.snapshot_id for item in world.metadata.snapshots
        }
        assert gone, repr(error)
        world.counts["increment: expired"] += 1
        return
    found = sorted(row["value"] for row in pq.read_table(path).to_pylist())
    os.unlink(path)
    appends = [one for one in chain if one.summary and one.summary.operation.value == "append"]
    wanted = sorted(
        value
        for one in appends
        for value in world.model.rows(one.snapshot_id).keys()
        - world.model.rows(one.parent_snapshot_id).keys()
    )
    assert found == wanted, f"the increment {start} to {end.snapshot_id} has other rows"
    world.counts["increment: done"] += 1


STEPS: dict[Step, int] = {
    append: 8,
    append_with_new_column: 1,
    append_run: 2,
    upsert: 6,
    partial_update: 3,
    first_row: 2,
    sequence: 3,
    change_log: 4,
    look_up: 4,
    retract: 3,
    staging.stage: 3,
    staging.end: 5,
    overwrite_where: 3,
    delete: 3,
    replace_partitions: 2,
    compact: 10,
    convert: 4,
    manifests: 3,
    stats: 2,
    partition_stats: 2,
    alter: 2,
    add_files: 3,
    expire: 6,
    wait: 3,
    read: 3,
    check: 2,
    read_changes: 2,
    read_increment: 2,
    dry: 2,
    upkeep.leave_files: 2,
    upkeep.clean: 5,
    upkeep.empty_trash: 3,
    upkeep.repair: 3,
    upkeep.append_to_day: 2,
    upkeep.expire_partitions: 3,
    foreign.append: 3,
    foreign.append_by_pyiceberg: 2,
    foreign.delete_by_position: 6,
    foreign.delete_by_key: 3,
    flink.flink: 8,
    flink.replay: 5,
    foreign.add_column: 1,
    foreign.change_spec: 1,
    foreign.change_order: 1,
    foreign.change_statistics: 2,
    foreign.change_ref: 4,
    foreign.roll_back: 1,
    branching.change_ref: 3,
    branching.tag_periods: 3,
    branching.roll_back: 1,
    branching.cherry_pick: 3,
    branching.stage_by_wap: 2,
    branching.publish: 3,
}


# The actors of worlds that concentrate on one subject.
FOCUS: dict[str, set[Step]] = {
    "all": set(),
    "expiry": {
        *(expire, wait, append, read, check, partition_stats),
        *(foreign.change_ref, foreign.change_statistics, branching.tag_periods),
    },
    "jobs": {flink.flink, flink.replay, wait, expire},
    "history": {expire, wait, append, compact, foreign.roll_back},
    "runs": {staging.stage, staging.end, append_run},
    "deletes": {convert, compact, upsert, change_log, foreign.delete_by_key},
    "upkeep": {
        *(upkeep.clean, upkeep.empty_trash, upkeep.repair, upkeep.leave_files, wait),
        *(upkeep.append_to_day, upkeep.expire_partitions, staging.stage, flink.flink),
    },
}
_MORE = 5


def actor(world: World, random: Random, steps: int) -> Callable[[], None]:
    """Return an actor that makes the given number of steps."""
    more = FOCUS[world.config.focus]
    choices = list(STEPS)
    weights = [weight * (_MORE if step in more else 1) for step, weight in STEPS.items()]

    def work() -> None:
        for _ in range(steps):
            with world.turn():
                random.choices(choices, weights)[0](world, random)
            world.counts["steps"] += 1

    return work
