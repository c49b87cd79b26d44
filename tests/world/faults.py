"""Commands with a fault at the n-th call of storage, catalog or clock, then run again without faults.

A faulty run ends with one message and the exit code of the fault, and does not print a secret. A change that it
reports as done is present, one that it reports as failed is not, and one with an unknown outcome is present
completely or not at all. No file of a retained snapshot is deleted, and no file is left behind unreported. The next
run reaches the same state as a run without faults.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol
from unittest.mock import patch

import pyarrow.parquet as pq
from support.cli.command_line import CommandLine, Result

from world import branching, foreign, hooks
from world.catalog_faults import CATALOG_FAULTS, FaultyCatalog
from world.clock_faults import CLOCK, CLOCK_FAULTS, FaultyClock
from world.faulty import CANARY, STORAGE_FAULTS, Call, Fault, Layer
from world.killed import leave_checkpoint
from world.model import ID, Expiry, Operation, adding, replacing, upserting
from world.races import BEHIND, KEPT, REPAIR, STAGED, Races, aging, staged
from world.simulation import DAY_MS, MAIN, TABLE

FAULTS = {**STORAGE_FAULTS, **CATALOG_FAULTS, **CLOCK_FAULTS}
_KEYS = {"command", "table", "branch", "status", "operation_id", "base_snapshot_id"}
_KEYS |= {"snapshot_ids", "plan", "result", "warnings", "seconds"}
_KEYS |= {"started_at", "finished_at", "catalog", "host", "version"}
# These differ from run to run.
_TIMES = {"seconds", "started_at", "finished_at"}
_STATUS = {
    0: {"done", "nothing-to-do", "dry-run"},
    1: {"failed"},
    3: {"refused"},
    4: {"conflict"},
    5: {"unknown"},
    6: {"partial"},
    7: {"failed"},
    9: {"failed"},
    10: {"failed"},
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Command:
    """A command line that does nothing when it is repeated.

    Args:
        verb: its verb.
        arguments: after the table; ``{source}`` represents a file of the rows, ``{numbered}`` one with field ids,
            ``{output}`` a file to write, ``{checkpoint}`` a folder, ``{first}`` and ``{staged}`` snapshots.
        rows: ids that it loads.
        deleted: ids that its change log deletes.
        effect: its effect on the table's rows, given the new ones; None if there is none.
        before: command lines that are run before it.
        checkpoint: whether the rows are those of a Flink job that died before it committed them.
        reads: whether it only reads.
        then: a command line that is run at the end, whose effect is the command's.
        keeps: whether the effect is that of ``then`` alone.
        runs: the number of runs after which another one does nothing.
        ahead: whether it reads ahead, so that a call may occur or not.
        codes: exit codes with which it refuses input that it cannot read.
        again: the exit code of a run after a complete one.
        divided: whether the table is partitioned.
        picks: whether its effect is that of the staged snapshot.
        ref: the branch or tag that it changes.
    """

    verb: str
    arguments: Sequence[str] = ()
    rows: Sequence[int] = ()
    deleted: Sequence[int] = ()
    effect: Callable[[Rows, Sequence[int]], Any] | None = None
    before: Sequence[Sequence[str]] = ()
    checkpoint: bool = False
    reads: bool = False
    then: Sequence[str] = ()
    keeps: bool = False
    runs: int = 1
    ahead: bool = False
    codes: frozenset[int] = frozenset()
    again: int = 0
    divided: bool = False
    picks: bool = False
    ref: str = MAIN


_RUN = ("--run-id", "run-1")
_LOG = ("{source}", "--changes-column", "op", "--key", "id", *_RUN, "--changes-mode")
_UPSERT = ("{source}", "--upsert", "--key", "id", *_RUN, "--deletes")
_STAGE = ("{source}", "--stage", *_RUN)
_REPLAY = ("--job", "run-1", "--completed", "1")
_OLD = ("--older-than", "1d", "--max-share", "100%")


def _add(rows: Rows, _: Sequence[int]) -> Any:
    return adding(rows)


def _age(_rows: Rows, _: Sequence[int]) -> Any:
    return aging(())


def _below(limit: int) -> Callable[[Rows, Sequence[int]], Any]:
    return lambda rows, _: replacing(lambda row: row[ID] < limit, rows)


def _all(rows: Rows, _: Sequence[int]) -> Any:
    return replacing(lambda _row: True, rows)


COMMANDS = {
    "append": Command("ingest", ("{source}", *_RUN), (50, 51, 52), effect=_add),
    "overwrite where": Command(
        "ingest",
        ("{source}", "--overwrite-where", "id < 4", *_RUN),
        (1, 3),
        effect=_below(4),
    ),
    "replace partitions": Command(
        "ingest", ("{source}", "--replace-partitions", *_RUN), (1, 60), effect=_all
    ),
    "delete by position": Command(
        "delete", ("--where", "id < 4", "--deletes", "position", *_RUN), effect=_below(4)
    ),
    "delete by copying": Command(
        "delete", ("--where", "id < 4", "--deletes", "copy-on-write", *_RUN), effect=_below(4)
    ),
    "upsert by position": Command("ingest", (*_UPSERT, "position"), (1, 2, 50), effect=upserting),
    "upsert by key": Command("ingest", (*_UPSERT, "equality"), (1, 2, 50), effect=upserting),
    "upsert by copying": Command(
        "ingest", (*_UPSERT, "copy-on-write"), (1, 2, 50), effect=upserting
    ),
    "change log": Command("ingest", (*_LOG, "upsert"), (1, 50), (2, 12), effect=upserting),
    "change log of retractions": Command(
        "ingest", (*_LOG, "retract"), (70, 71), (2, 12), effect=upserting
    ),
    "stage": Command(
        "ingest", _STAGE, (50, 51), effect=_add, then=("replay", TABLE, *_REPLAY), keeps=True
    ),
    "discard": Command(
        "ingest", ("--discard", "run-1"), (50, 51), before=[("ingest", TABLE, *_STAGE)]
    ),
    "replay": Command(
        "replay",
        _REPLAY,
        (50, 51),
        effect=_add,
        before=[("ingest", TABLE, *_STAGE)],
        codes=frozenset({3}),
    ),
    "replay a checkpoint": Command(
        "replay",
        ("--checkpoint", "{checkpoint}", "--quiet-time", "0s"),
        (50, 51),
        effect=_add,
        checkpoint=True,
        codes=frozenset({3}),
    ),
    "compact": Command("compact", ("--min-input-files", "2", "--delete-file-threshold", "1")),
    "compact with all": Command(
        "compact",
        (
            *("--min-input-files", "2", "--delete-file-threshold", "1", "--verify"),
            *("--partial-progress", "--max-group-files", "2", "--remove-dangling-deletes"),
        ),
        runs=4,
    ),
    "compact sorted": Command(
        "compact",
        (
            *("--strategy", "sort", "--by", "id desc", "--min-input-files", "2"),
            *("--delete-file-threshold", "1", "--verify"),
        ),
    ),
    "expire": Command("expire", ("--older-than", "1d", "--retain-last", "1", "--clean-metadata")),
    "convert deletes": Command("deletes", ("--convert",)),
    "rewrite deletes": Command("deletes", ("--rewrite",)),
    "rewrite manifests": Command("manifests"),
    "repair": Command("check", REPAIR),
    "clean": Command("clean", ("--delete", *_OLD)),
    "clean to the trash": Command("clean", ("--quarantine", *_OLD)),
    "statistics": Command("stats"),
    "partition statistics": Command("stats", ("--partitions",), divided=True),
    "expire partitions": Command(
        "expire-partitions", ("--older-than", "1d", "--by", "part"), effect=_age, divided=True
    ),
    "add files": Command("add-files", ("{numbered}", *_RUN), (50, 51), effect=_add),
    "alter": Command("alter", ("--set", "owner=lake", "--sort-by", "id")),
    "create a branch": Command("ref", ("--branch-create", "more"), ref="more"),
    "move a branch": Command("ref", ("--fast-forward", BEHIND, "--to", MAIN), ref=BEHIND),
    "drop a branch": Command("ref", ("--drop", BEHIND), ref=BEHIND, again=7),
    "move a tag": Command("tag", (KEPT, "--move"), ref=KEPT),
    "roll back": Command("rollback", ("{first}",)),
    "cherry-pick": Command("cherry-pick", ("{staged}",), picks=True, again=3),
    "publish": Command("publish", ("--wap-id", STAGED), picks=True, again=3),
    "scan": Command("scan", ("--output", "{output}"), reads=True),
    "scan where": Command("scan", ("--where", "id > 3", "--limit", "3"), reads=True, ahead=True),
    "scan increment": Command(
        "scan", ("--from-snapshot", "{first}", "--output", "{output}"), reads=True
    ),
    "scan changes": Command(
        "scan",
        ("--changes", "--key", "id", "--from-snapshot", "{first}", "--output", "{output}"),
        reads=True,
    ),
    "scan plan": Command("scan", ("--plan",), reads=True),
    "snapshots": Command("snapshots", ("--all",), reads=True),
}


@dataclass
class Ended:
    """How a run ended, and the faults that occurred."""

    result: Result
    operation: Operation
    calls: list[Call]
    happened: list[tuple[Call, str]]
    output: Any = None

    @property
    def document(self) -> dict[str, Any]:
        return self.result.json()


def base_table(folder: Path, version: int) -> Races:
    """Create a table with deletes, several files and some history."""
    return Races(folder, "serializable", version)


class Faults:
    """One command on one table, with one fault after another."""

    def __init__(self, base: Races, name: str) -> None:
        self.command = COMMANDS[name]
        self.name = name
        (base.restore_divided if self.command.divided else base.restore)()
        self.world = base.world
        self.layer = Layer(self.world.warehouse)
        self.world.scheduler.failure = None
        self.catalog = FaultyCatalog(self.world.catalog, self.layer)
        self._source: Path | None = None
        world = self.world
        world.clock.now += 3 * DAY_MS
        self._rows: Rows = world.new_rows(self.command.rows, "x") if self.command.rows else []
        self._first = world.metadata.snapshots[0].snapshot_id
        source = staged(world)
        assert source is not None
        self._staged = source
        self._checkpoint = world.folder / "checkpoint"
        if self.command.checkpoint:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            leave_checkpoint(world.session().table(TABLE), self._checkpoint, {1: self._rows})
        elif self._rows:
            self._source = self._write_source()
        for line in self.command.before:
            ended = self._run(line, Operation("before"))
            assert ended.result.exit_code == 0, ended.result
        self._restore = world.save()
        self._leftovers = world.leftovers()
        ended = self.run()
        assert ended.result.exit_code == 0, ended.result
        self.calls = Counter(call.kind for call in ended.calls)
        self.output = ended.output
        self._reported = _without_time(ended.document)
        self.after = self._state()
        for _ in range(self.command.runs):
            again = self.run()
        assert again.result.exit_code == self.command.again, again.result
        idle = self.command.reads or self.command.again
        assert idle or again.document["status"] == "nothing-to-do", again.result
        self.final = self._finally()
        self._unneeded = self._outside_the_trash()

    def _outside_the_trash(self) -> set[str]:
        """Return the files under the table that no snapshot needs, except those that a cleaning moved away."""
        return {path for path in self.world.leftovers() if "/.lake-trash/" not in path}

    def _write_source(self) -> Path:
        world, command = self.world, self.command
        if "{numbered}" in command.arguments:
            return foreign.file_elsewhere(world, self._rows)
        if not command.deleted:
            return world.source(self._rows)
        gone: Rows = []
        held = {dict(row)[ID]: dict(row) for row in world.model.rows(world.head()).values()}
        for one in command.deleted:
            row = held[one]
            gone.append({"id": one, "part": row[2], "value": row[3], "op": "-D"})
        return world.source([*({**row, "op": "+I"} for row in self._rows), *gone])

    # Runs

    def run(
        self, plan: Mapping[tuple[str, int], Fault] | None = None, *, as_json: bool = True
    ) -> Ended:
        """Run the command with faults."""
        command = self.command
        effect = command.effect(self._rows, command.deleted) if command.effect else None
        expires = command.verb == "expire"
        operation = Operation(
            self.name,
            None if command.keeps else effect,
            command.ref,
            moves=command.verb == "rollback",
            may_drop=expires,
            expires=Expiry(older_ms=DAY_MS) if expires else None,
        )
        if command.picks:
            operation = branching.picking(self.name, self.world, self._staged, MAIN)
        line = [command.verb, TABLE, *command.arguments]
        return self._run(line, operation, plan or {}, as_json=as_json)

    def _run(
        self,
        line: Sequence[str],
        operation: Operation,
        plan: Mapping[tuple[str, int], Fault] | None = None,
        *,
        as_json: bool = True,
    ) -> Ended:
        world, output = self.world, self.world.folder / "output.parquet"
        output.unlink(missing_ok=True)
        words = [
            word.format(
                source=self._source,
                numbered=self._source,
                output=output,
                first=self._first,
                staged=self._staged.snapshot_id,
                checkpoint=self._checkpoint,
            )
            for word in line
        ]
        lake = CommandLine(world.warehouse, open_session=lambda _: self._session())
        with self._inside(), world.operation(operation):
            self.layer.begin(plan or {})
            result = lake(*(["--json"] if as_json else []), *words)
            calls, happened = self.layer.calls, self.layer.happened
            self.layer.begin({})
        left = list(world.folder.glob("output*"))
        assert left in ([], [output]), left
        rows = pq.read_table(output).to_pylist() if output.exists() else None
        return Ended(result, operation, calls, happened, rows)

    def _session(self) -> Any:
        session = self.world.session()
        session.catalog.__dict__["handle"] = self.catalog
        session.clock = FaultyClock(self.world.clock, self.layer)
        return session

    @contextmanager
    def _inside(self) -> Iterator[None]:
        world = self.world
        with (
            self.layer.inside(),
            hooks.hooked(world._before),
            hooks.seeded_libraries(world.clock.now_ms, world.ids.uuid4),
            patch("lake.core.table.manifests.read.ReadingThreads", hooks._OneByOne),
        ):
            yield

    def plans(self) -> Iterator[tuple[str, int]]:
        """Yield each fault's name with each number of a call at which it can occur."""
        for name, fault in FAULTS.items():
            for number in range(self.calls[fault.kind]):
                yield name, number

    def _plan(self, faults: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Fault]:
        return {(FAULTS[name].kind, number): FAULTS[name] for name, number in faults}

    def fault(self, *faults: tuple[str, int]) -> Counter[str]:
        """Run with faults, check, run without, check; return the counts."""
        self._restore()
        self.world.scheduler.failure = None
        self.world.counts.clear()
        self.world.open_outcomes.clear()
        as_json = sum(number for _, number in faults) % 4 != 3
        before, now = self._state(), self.world.clock.now
        last = self._last_ms()
        ended = self.run(self._plan(faults), as_json=as_json)
        self.world.clock.now = max(self.world.clock.now, now)
        assert self._last_ms() >= last, "time in the table went back"
        reported = self._judge(ended, [FAULTS[name] for name, _ in faults], as_json=as_json)
        failed = ended.result.exit_code not in {0, 6}
        if failed and ended.result.exit_code != 5:
            assert self._state() == before, f"failed, but changed: {ended.result}"
        elif ended.result.exit_code == 0:
            wrong_time = any(FAULTS[name].kind == CLOCK for name, _ in faults)
            # A checkpoint's state has no checksum: a wrong byte in a name makes it another table's.
            told_elsewhere = (
                "are outside the table's folders" in ended.result.stdout + ended.result.stderr
            )
            strange = self.command.checkpoint and told_elsewhere
            assert self._state() in (self.after, before if wrong_time or strange else self.after), (
                f"done, but not all: {ended.result}"
            )
        if self.command.reads and ended.result.exit_code == 0:
            assert ended.output == self.output, "other rows"
            assert not as_json or _without_time(ended.document) == self._reported
        lost = self.world.leftovers() - self._leftovers
        if failed and ended.result.exit_code != 5 and not reported:
            assert not lost, f"left behind: {sorted(lost)[:4]} by {ended.result}"
        for _ in range(self.command.runs):
            again = self.run()
            ended_by = {0, self.command.again}
            assert again.result.exit_code in ended_by, f"the next run: {again.result}"
            idle = again.result.exit_code or again.document["status"] in {"done", "nothing-to-do"}
            assert idle, again.result
        assert self._finally() == self.final, f"the next run reaches something else: {again.result}"
        if self.command.verb == "clean":
            left = self._outside_the_trash() - self._unneeded
            assert not left, f"the next run leaves {sorted(left)[:4]}"
        self.world.check_all()
        code = ended.result.exit_code
        return Counter({f"{name}: {code}": 1 for name, _ in faults} | {f"exit {code}": 1})

    def _state(self) -> Any:
        """The table's content: rows, and the number of snapshots."""
        metadata = self.world.metadata
        return self.world.model.rows(self.world.head()), len(metadata.snapshots)

    def _last_ms(self) -> int:
        """Return the table's latest time; its times must be in order."""
        metadata = self.world.metadata
        moments = [entry.timestamp_ms for entry in metadata.snapshot_log]
        assert moments == sorted(moments), moments
        return metadata.last_updated_ms

    def _finally(self) -> Any:
        command = self.command
        if command.then:
            operation = Operation(
                "then", command.effect(self._rows, ()) if command.effect else None
            )
            ended = self._run(command.then, operation)
            assert ended.result.exit_code == 0, ended.result
        return self._state()

    # Judging

    def _judge(self, ended: Ended, faults: Sequence[Fault], *, as_json: bool) -> bool:
        """Check the output of a run; return whether it reported files left behind."""
        self.world.check()
        result = ended.result
        reached = ended.happened or (self.command.ahead and result.exit_code == 0)
        assert reached, "the fault did not happen"
        spoken = result.stdout + result.stderr
        assert CANARY not in spoken, f"a secret is printed: {spoken}"
        assert "\x1b" not in spoken, f"control codes: {spoken!r}"
        assert "Traceback" not in spoken, f"a trace: {spoken[-1500:]}"
        allowed = {0, 5, 6}.union(*(fault.codes for fault in faults), self.command.codes)
        if not any(fault.kind == "commit" for fault in faults):
            allowed.discard(5)
        assert result.exit_code in allowed, f"exit {result.exit_code}: {spoken[-800:]}"
        failed = result.exit_code not in {0, 6}
        if not as_json:
            lines = result.stderr.splitlines()
            # Each line begins with the time, the command and the table.
            lines = [line.partition(": ")[2] for line in lines]
            errors = [line for line in lines if line.startswith("error: ")]
            assert len(errors) == failed, lines
            known = ("error: ", "hint: ", "warning: ", "operation id: ")
            if failed:
                assert all(line.startswith(known) for line in lines), lines
            return any(line.startswith("warning: ") for line in lines)
        document = ended.document
        assert document.keys() - {"error"} == _KEYS, document
        assert document["status"] in _STATUS[result.exit_code], document
        assert ("error" in document) == failed, document
        if failed:
            message = document["error"]["message"]
            assert message, document
            assert "\n" not in message, document
            # State that existed when a failed run began cannot be its own.
            if result.exit_code != 5:
                assert not ended.operation.swaps, f"failed, but changed: {document}"
        return bool(document["warnings"])


def _without_time(document: Mapping[str, Any]) -> dict[str, Any]:
    text = json.dumps({key: value for key, value in document.items() if key not in _TIMES})
    return dict(json.loads(text))


class Table(Protocol):
    """A command on its own table, and the faults that can occur."""

    @property
    def name(self) -> str: ...

    def plans(self) -> Iterator[tuple[str, int]]:
        """Yield each fault's name with each number of a call at which it can occur."""


def chosen(table: Table, most: int, seed: str) -> list[tuple[str, int]]:
    """Return some of a table's faults, evenly distributed."""
    every = list(table.plans())
    if len(every) <= most:
        return every
    return sorted(Random(f"{seed} {table.name}").sample(every, most))


def several(table: Table, most: int, seed: str) -> list[list[tuple[str, int]]]:
    """Return sets of two or three of a table's faults, at different calls."""
    random = Random(f"{seed} several {table.name}")
    every = list(table.plans())
    found = []
    for _ in range(most):
        drawn = random.sample(every, random.choice([2, 2, 3]))
        found.append(sorted({(FAULTS[name].kind, at): (name, at) for name, at in drawn}.values()))
    return found
