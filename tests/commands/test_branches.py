"""Every command on a branch that has diverged from main: it changes that branch, and sees its history only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.iceberg_tables import (
    after,
    files_below,
    ids_in,
    inject,
    make_table,
    pyiceberg_table,
)
from world.reference import Reference

from lake.core.base.settings import Settings
from lake.core.transaction.session import Session, open_session

Rows = Mapping[int, tuple[str, str]]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", StringType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))

FORK = {number: ("ab"[number % 2], "fork") for number in range(1, 9)}
MAIN = {k: v for k, v in FORK.items() if k != 1} | {100: ("a", "main"), 101: ("b", "main")}
WORK = {k: v for k, v in FORK.items() if k != 2} | {200: ("a", "work"), 201: ("b", "work")}
NEW: Rows = {3: ("b", "new"), 200: ("a", "new"), 300: ("a", "new")}


def arrow(rows: Rows, **more: list[str]) -> pa.Table:
    columns = {
        "id": pa.array(list(rows), pa.int64()),
        "part": pa.array([part for part, _ in rows.values()], pa.string()),
        "value": pa.array([value for _, value in rows.values()], pa.string()),
    }
    return pa.table({**columns, **more})


@dataclass
class Diverged:
    """A table whose branch ``work`` has rows that main lacks, and the other way round."""

    warehouse: Path
    folder: Path
    _numbers: Iterable[int] = field(default_factory=itertools.count)

    @property
    def table(self) -> Table:
        return pyiceberg_table(self.warehouse)

    @property
    def lake(self) -> CommandLine:
        return CommandLine(self.warehouse)

    def make(self, **properties: str) -> Diverged:
        made = make_table(self.warehouse, "db.t", SCHEMA, BY_PART, **properties)
        made.append(arrow({k: v for k, v in FORK.items() if k < 5}))
        made.append(arrow({k: v for k, v in FORK.items() if k >= 5}))
        fork = made.current_snapshot().snapshot_id
        made.manage_snapshots().create_branch(fork, "work").create_tag(fork, "v1").commit()
        made.append(arrow({k: MAIN[k] for k in (100, 101)}))
        made.delete(EqualTo("id", 1))
        made.append(arrow({k: WORK[k] for k in (200, 201)}), branch="work")
        made.delete(EqualTo("id", 2), branch="work")
        return self

    def branch(self, name: str) -> str:
        """Make a branch where ``work`` is."""
        head = self.table.metadata.refs["work"].snapshot_id
        self.table.manage_snapshots().create_branch(head, name).commit()
        return name

    def head(self, name: str) -> int:
        return self.table.metadata.refs[name].snapshot_id

    def source(self, rows: Rows, **more: list[str]) -> Path:
        path = self.folder / f"rows-{next(iter(self._numbers))}.parquet"
        pq.write_table(arrow(rows, **more), path)
        return path

    def rows(self, ref: str) -> dict[int, tuple[str, str]]:
        """Return a ref's rows as PyIceberg reads them, or the reference where it reads no such deletes."""
        metadata = self.table.metadata
        snapshot = metadata.snapshot_by_id(metadata.refs[ref].snapshot_id)
        assert snapshot is not None
        theirs = [dict(row) for row in Reference().rows(metadata, snapshot)]
        found = [(row[1], (row[2], row[3])) for row in theirs]
        entries = Reference().contents(metadata, snapshot).entries
        if all(entry.content != 2 for entry in entries):
            read = self.table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
            assert sorted((row["id"], (row["part"], row["value"])) for row in read) == sorted(found)
        assert len(dict(found)) == len(found)
        return dict(found)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Diverged:
    folder = tmp_path_factory.mktemp("branches")
    return Diverged(folder / "warehouse", folder).make()


@pytest.fixture
def diverged(built_once: BuiltOnce) -> Diverged:
    folder = built_once.folder(
        "diverged", lambda folder: Diverged(folder / "warehouse", folder).make()
    )
    return Diverged(folder / "warehouse", folder)


Change = Callable[[Diverged, str], None]


@dataclass(frozen=True)
class Case:
    """A command line, or several, and what a branch at ``work`` holds afterwards."""

    name: str
    commands: tuple[tuple[object, ...], ...]
    expected: Rows
    snapshots: int = 1


_ALL = (
    Case("append", (("ingest", "db.t", "NEW9"),), WORK | {900: ("a", "x"), 901: ("b", "x")}),
    Case("overwrite", (("ingest", "db.t", "NEW", "--overwrite"),), NEW),
    Case(
        "overwrite a partition by a filter",
        (("ingest", "db.t", "A", "--overwrite-where", "part = 'a'"),),
        {k: v for k, v in WORK.items() if v[0] != "a"} | {300: ("a", "new")},
    ),
    Case(
        "overwrite some rows of files",
        (("ingest", "db.t", "B", "--overwrite-where", "id >= 3 and id < 6"),),
        {k: v for k, v in WORK.items() if not 3 <= k < 6} | {4: ("a", "again")},
    ),
    Case(
        "replace partitions",
        (("ingest", "db.t", "A", "--replace-partitions"),),
        {k: v for k, v in WORK.items() if v[0] != "a"} | {300: ("a", "new")},
    ),
    *(
        Case(
            f"upsert by {mode}",
            (("ingest", "db.t", "NEW", "--upsert", "--key", "id,part", "--deletes", mode),),
            WORK | NEW,
        )
        for mode in ("position", "equality", "copy-on-write")
    ),
    Case(
        "a change log of new rows",
        (
            (
                *("ingest", "db.t", "LOG", "--changes-column", "op", "--changes-mode", "upsert"),
                *("--key", "id,part"),
            ),
        ),
        {k: v for k, v in (WORK | {3: ("b", "new"), 900: ("a", "new")}).items() if k != 200},
    ),
    Case(
        "a change log with old rows",
        (
            (
                *("ingest", "db.t", "OLD", "--changes-column", "op", "--changes-mode", "retract"),
                *("--key", "id,part"),
            ),
        ),
        {k: v for k, v in (WORK | {3: ("b", "new"), 900: ("a", "new")}).items() if k != 200},
    ),
    Case(
        "another table", (("ingest", "db.t", "--from-table", "db.other"),), WORK | {900: ("a", "o")}
    ),
    Case(
        "staged and replayed",
        (
            ("ingest", "db.t", "NEW9", "--stage", "--run-id", "s1"),
            ("replay", "db.t", "--job", "s1", "--completed", 1),
        ),
        WORK | {900: ("a", "x"), 901: ("b", "x")},
    ),
    Case(
        "staged and finished",
        (
            ("ingest", "db.t", "NEW9", "--stage", "--run-id", "s2"),
            ("ingest", "db.t", "NEW9", "--run-id", "s2"),
        ),
        WORK | {900: ("a", "x"), 901: ("b", "x")},
    ),
    Case(
        "staged and discarded",
        (
            ("ingest", "db.t", "NEW9", "--stage", "--run-id", "s3"),
            ("ingest", "db.t", "--discard", "s3"),
        ),
        WORK,
        snapshots=0,
    ),
    Case("compacted", (("compact", "db.t", "--rewrite-all", "--verify"),), WORK),
    Case(
        "compacted group by group",
        (
            (
                *("compact", "db.t", "--rewrite-all", "--partial-progress"),
                *("--max-group-files", 2, "--max-commits", 2),
            ),
        ),
        WORK,
        snapshots=2,
    ),
    Case(
        "compacted in part", (("compact", "db.t", "--rewrite-all", "--where", "part = 'a'"),), WORK
    ),
    Case(
        "deletes compacted away",
        (
            ("ingest", "db.t", "NEW", "--upsert", "--key", "id,part", "--deletes", "position"),
            ("compact", "db.t", "--rewrite-all", "--remove-dangling-deletes"),
        ),
        WORK | NEW,
        snapshots=2,
    ),
)

SOURCES: dict[str, tuple[Rows, dict[str, list[str]]]] = {
    "NEW": (NEW, {}),
    "NEW9": ({900: ("a", "x"), 901: ("b", "x")}, {}),
    "A": ({300: ("a", "new")}, {}),
    "B": ({4: ("a", "again")}, {}),
    "LOG": (
        {3: ("b", "new"), 200: ("a", "gone"), 900: ("a", "new")},
        {"op": ["+U", "-D", "+I"]},
    ),
}


def log_with_old_rows() -> pa.Table:
    rows = [(3, *WORK[3]), (3, "b", "new"), (200, *WORK[200]), (900, "a", "new")]
    ids, parts, values = zip(*rows, strict=True)
    return pa.table({"id": ids, "part": parts, "value": values, "op": ["-U", "+U", "-D", "+I"]})


def run(world: Diverged, branch: str, command: tuple[object, ...]) -> dict[str, Any]:
    arguments: list[object] = []
    for argument in command:
        if argument == "OLD":
            path = world.folder / "old.parquet"
            pq.write_table(log_with_old_rows(), path)
            arguments.append(path)
        elif argument in SOURCES:
            rows, more = SOURCES[str(argument)]
            arguments.append(world.source(rows, **more))
        else:
            arguments.append(argument)
    if "--discard" not in arguments:
        arguments += ["--branch", branch]
    return world.lake.ok(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("case", _ALL, ids=lambda case: case.name)
def test_a_command_changes_its_branch_alone(shared: Diverged, case: Case) -> None:
    if "db.other" in case.commands[0]:
        make_table(shared.warehouse, "db.other", SCHEMA).append(arrow({900: ("a", "o")}))
    branch = shared.branch(case.name.replace(" ", "-"))
    before = {name: ref for name, ref in shared.table.metadata.refs.items() if name != branch}
    start = shared.head(branch)

    documents = [run(shared, branch, command) for command in case.commands]

    assert [document["branch"] for document in documents if document["branch"]]
    after = {name: ref for name, ref in shared.table.metadata.refs.items() if name != branch}
    assert after == before
    assert shared.rows(branch) == case.expected
    assert shared.rows("main") == MAIN
    made = shared.lake.ok("snapshots", "db.t", "--branch", branch)["result"]["snapshots"]
    assert [row["snapshot_id"] for row in made].index(str(start)) == case.snapshots
    totals = shared.table.snapshot_by_id(shared.head(branch)).summary  # type: ignore[union-attr]
    entries = (
        Reference()
        .contents(shared.table.metadata, shared.table.snapshot_by_id(shared.head(branch)))
        .entries
    )
    assert totals["total-data-files"] == str(sum(entry.content == 0 for entry in entries))


# Who else writes meanwhile


def writing_between(world: Diverged, other: Callable[[], Any]) -> CommandLine:
    """Return a `lake` before whose next commit another writer commits."""

    def opened(settings: Settings) -> Session:
        session = open_session(settings)
        inject(session, [after(other)])
        return session

    return CommandLine(world.warehouse, open_session=opened)


_CHECKED = (
    ("ingest", "db.t", "A", "--overwrite-where", "part = 'a'"),
    ("ingest", "db.t", "NEW", "--upsert", "--key", "id,part"),
    ("compact", "db.t", "--rewrite-all"),
)


@pytest.mark.parametrize(
    "command",
    [one if "--upsert" in one else pytest.param(one, marks=pytest.mark.slow) for one in _CHECKED],
    ids=lambda command: " ".join(command[3:]),
)
def test_only_what_came_to_the_branch_is_a_conflict(diverged: Diverged, command: Any) -> None:
    arguments = [diverged.source(SOURCES[one][0]) if one in SOURCES else one for one in command]
    mine = diverged.branch("mine")
    diverged.branch("theirs")
    more = arrow({3: ("b", "other"), 200: ("a", "other")})

    def on(branch: str) -> Callable[[], None]:
        def write() -> None:
            # Every row goes that the command looks at, and others of the same keys come.
            diverged.table.overwrite(more, branch=branch)

        return write

    for branch in ("main", "theirs"):
        lake = writing_between(diverged, on(branch))
        lake.ok(*arguments, "--branch", mine)
        mine = diverged.branch(f"after-{branch}")
    found = writing_between(diverged, on(mine))("--json", *arguments, "--branch", mine)

    other = {3: ("b", "other"), 200: ("a", "other")}
    if "--upsert" in command:
        # What an upsert looked for is looked for again.
        assert (found.exit_code, diverged.rows(mine)) == (0, NEW)
    else:
        assert (found.exit_code, found.json()["status"]) == (4, "conflict")
        assert diverged.rows(mine) == other
    assert diverged.rows("main") == diverged.rows("theirs") == other


# Names that are not branches


_WRITING = (
    ("ingest", "NEW"),
    ("ingest", "NEW", "--upsert", "--key", "id,part"),
    ("ingest", "NEW", "--overwrite"),
    ("ingest", "NEW", "--stage", "--run-id", "r"),
    ("compact",),
    ("expire", "--older-than", "30d"),
    ("replay",),
    ("replay", "--status"),
    ("scan",),
    ("scan", "--snapshot", "@2999-01-01"),
    ("scan", "--from-snapshot", "v1"),
    ("scan", "--changes", "--from-snapshot", "v1"),
    ("snapshots",),
)


@pytest.mark.parametrize("command", _WRITING, ids=" ".join)
@pytest.mark.parametrize(
    ("branch", "message"), [("nowhere", "no branch named"), ("v1", "is a tag")]
)
def test_a_branch_must_be_one(
    shared: Diverged, command: tuple[str, ...], branch: str, message: str
) -> None:
    verb, *options = command
    source = shared.source(NEW)
    arguments = [source if option == "NEW" else option for option in options]
    before, refs = files_below(shared.warehouse), shared.table.metadata.refs

    for more in ([], ["--dry-run"]) if verb in {"ingest", "compact", "expire"} else ([],):
        found = shared.lake("--json", verb, "db.t", *arguments, "--branch", branch, *more)

        assert (found.exit_code, found.json()["status"]) == (7, "failed")
        assert message in found.json()["error"]["message"]
    assert (files_below(shared.warehouse), shared.table.metadata.refs) == (before, refs)


# Reading


def shown(world: Diverged, *options: object) -> dict[int, str]:
    done = world.lake.ok("scan", "db.t", *options)
    return {row["id"]: row["value"] for row in done["result"]["preview"]}


def test_a_scan_reads_the_branchs_own_past(shared: Diverged) -> None:
    work = shared.lake.ok("snapshots", "db.t", "--branch", "work")["result"]["snapshots"]
    moment = work[1]["committed_at"]

    assert shown(shared, "--branch", "work") == {k: v for k, (_, v) in WORK.items()}
    assert shown(shared, "--snapshot", "work") == shown(shared, "--branch", "work")
    at = shown(shared, "--branch", "work", "--snapshot", f"@{moment}")
    assert at == {k: v for k, (_, v) in (FORK | {200: ("", "work"), 201: ("", "work")}).items()}
    assert shown(shared, "--branch", "work", "--from-snapshot", "v1") == {200: "work", 201: "work"}
    assert shown(shared, "--from-snapshot", "v1") == {100: "main", 101: "main"}
    changes = shared.lake.ok(
        "scan", "db.t", "--changes", "--from-snapshot", "v1", "--branch", "work"
    )
    assert sorted((row["id"], row["_change_type"]) for row in changes["result"]["preview"]) == [
        (2, "delete"),
        (200, "insert"),
        (201, "insert"),
    ]
    other = shared.head("main")
    found = shared.lake(
        "--json",
        "scan",
        "db.t",
        "--from-snapshot",
        "v1",
        "--to-snapshot",
        other,
        "--branch",
        "work",
    )
    assert found.exit_code == 7


def test_new_columns_come_to_all_branches_and_are_null_on_the_others(diverged: Diverged) -> None:
    source = diverged.source({900: ("a", "x")}, more=["y"])

    diverged.lake.ok("ingest", "db.t", source, "--evolve", "--branch", "work")

    assert diverged.rows("main") == MAIN
    document = diverged.lake.ok("scan", "db.t", "--select", "id,more", "--limit", 100)
    assert {row["id"]: row["more"] for row in document["result"]["preview"]} == dict.fromkeys(MAIN)
    document = diverged.lake.ok("scan", "db.t", "--select", "id,more", "--snapshot", "work")
    assert {row["id"]: row["more"] for row in document["result"]["preview"]} == {
        **dict.fromkeys(WORK),
        900: "y",
    }
    # A tag is read with the schema that it was made with.
    old = diverged.lake("--json", "scan", "db.t", "--select", "more", "--snapshot", "v1")
    assert old.exit_code == 7


# Expiry


_NOW = ("--older-than", "0s", "--unsafe-retention")


def test_expiry_leaves_what_only_a_branch_or_a_tag_reaches(diverged: Diverged) -> None:
    diverged.lake.ok("compact", "db.t", "--rewrite-all", "--branch", "work")
    diverged.lake.ok("ingest", "db.t", diverged.source(NEW), "--overwrite")

    diverged.lake.ok("expire", "db.t", *_NOW)

    assert diverged.rows("main") == NEW
    assert diverged.rows("work") == WORK
    assert diverged.rows("v1") == FORK
    assert len(diverged.table.metadata.snapshots) == 3


def test_expiry_of_a_branch_takes_that_branchs_snapshots_only(diverged: Diverged) -> None:
    main = diverged.lake.ok("snapshots", "db.t")["result"]["snapshots"]
    diverged.lake.ok("compact", "db.t", "--rewrite-all", "--branch", "work")

    done = diverged.lake.ok("expire", "db.t", "--branch", "work", *_NOW)

    assert diverged.lake.ok("snapshots", "db.t")["result"]["snapshots"] == main
    assert (
        diverged.lake.ok("snapshots", "db.t", "--branch", "work")["result"]["snapshots"][1:] == []
    )
    assert (done["branch"], done["result"]["snapshots"]) == ("work", 2)
    assert (diverged.rows("main"), diverged.rows("work")) == (MAIN, WORK)
    assert diverged.rows("v1") == FORK
    wrong = diverged.lake(
        "expire", "db.t", "--branch", "work", "--snapshot", main[1]["snapshot_id"]
    )
    assert wrong.exit_code == 7


# Run ids


def test_a_run_id_counts_once_on_each_branch(diverged: Diverged) -> None:
    source = diverged.source({900: ("a", "x")})
    command = ("ingest", "db.t", source, "--run-id", "r1", "--branch")

    statuses = [diverged.lake.ok(*command, name)["status"] for name in ("work", "main") * 2]

    assert statuses == ["done", "done", "nothing-to-do", "nothing-to-do"]
    assert diverged.rows("work") == WORK | {900: ("a", "x")}
    assert diverged.rows("main") == MAIN | {900: ("a", "x")}
    # A branch created from another has its runs.
    diverged.branch("copy")
    assert diverged.lake.ok(*command, "copy")["status"] == "nothing-to-do"


def test_a_run_comes_to_a_branch_with_the_snapshots_that_do(diverged: Diverged) -> None:
    source = diverged.source({900: ("a", "x")})
    command = ("ingest", "db.t", source, "--run-id", "r1", "--branch")
    fork = diverged.head("main")
    diverged.lake.ok(*command, "work")
    # As a cherry-pick leaves it, except for the files.
    diverged.table.append(
        arrow({900: ("a", "x")}),
        snapshot_properties={"source-snapshot-id": str(diverged.head("work"))},
    )

    assert diverged.lake.ok(*command, "main")["status"] == "nothing-to-do"
    diverged.table.manage_snapshots().rollback_to_snapshot(fork).commit()
    assert diverged.lake.ok(*command, "main")["status"] == "done"
    assert diverged.rows("main") == MAIN | {900: ("a", "x")}


def test_an_expired_run_is_remembered_for_the_branches_that_had_it(diverged: Diverged) -> None:
    source = diverged.source({900: ("a", "x")})
    command = ("ingest", "db.t", source, "--run-id", "r1", "--branch")
    old = diverged.branch("old")
    diverged.lake.ok(*command, "work")
    diverged.branch("early")
    for name in ("work", "early"):
        diverged.lake.ok("ingest", "db.t", diverged.source(NEW), "--overwrite", "--branch", name)
    diverged.lake.ok("expire", "db.t", *_NOW)
    late = diverged.branch("late")
    diverged.lake.ok("ingest", "db.t", diverged.source(NEW), "--overwrite", "--branch", "work")
    # The origin of a branch is known even after the branch it came from has lost their common snapshots.
    diverged.lake.ok("expire", "db.t", *_NOW)

    statuses = {
        name: diverged.lake.ok(*command, name)["status"] for name in ("work", "early", late, old)
    }

    assert statuses == {
        "work": "nothing-to-do",
        "early": "nothing-to-do",
        "late": "nothing-to-do",
        "old": "done",
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("option", ["--tag", "--branch-create"])
def test_a_run_is_remembered_if_a_ref_retains_its_snapshot_and_what_followed_expired(
    lake: CommandLine, version: int, option: str
) -> None:
    lake.load("id\n1\n", "--create", "--property", f"format-version={version}")
    lake.load("id\n2\n", "--run-id", "two")
    lake.ok("ref", "db.t", option, "eod")
    for number in (3, 4):
        lake.load(f"id\n{number}\n")
    # Main keeps its head; the snapshot of the run is not connected with it any more.
    lake.ok("expire", "db.t", *_NOW)

    again = [lake.load("id\n2\n", "--run-id", "two")["status"]]
    lake.load("id\n5\n")
    again.append(lake.load("id\n2\n", "--run-id", "two")["status"])
    # When the ref is gone, too.
    lake.ok("ref", "db.t", "--drop", "eod")
    lake.ok("expire", "db.t", *_NOW)
    again.append(lake.load("id\n2\n", "--run-id", "two")["status"])

    assert again == ["nothing-to-do"] * 3
    assert ids_in(lake.warehouse) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("by", ["lake", "pyiceberg"])
def test_a_run_that_was_rolled_back_is_loaded_again_although_a_tag_retains_its_snapshot(
    lake: CommandLine, by: str
) -> None:
    first = lake.load("id\n1\n", "--create")["snapshot_ids"][0]
    lake.load("id\n2\n", "--run-id", "two")
    lake.ok("ref", "db.t", "--tag", "eod")
    if by == "lake":
        lake.ok("rollback", "db.t", first)
        for number in (3, 4):
            lake.load(f"id\n{number}\n")
        lake.ok("expire", "db.t", *_NOW)
    else:
        # Its commits do not change the notes.
        table = pyiceberg_table(lake.warehouse)
        table.manage_snapshots().rollback_to_snapshot(int(first)).commit()
        for number in (3, 4):
            table.append(pa.table({"id": [number]}))
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone = [item.snapshot_id for item in table.snapshots() if item.snapshot_id not in kept]
        table.maintenance.expire_snapshots().by_ids(gone).commit()

    done = lake.load("id\n2\n", "--run-id", "two")

    assert done["status"] == "done"
    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


def test_a_run_of_another_history_is_loaded_after_a_branch_was_moved_to_a_cut_one(
    lake: CommandLine,
) -> None:
    lake.load("id\n1\n", "--create")
    lake.ok("ref", "db.t", "--branch-create", "work")
    lake.load("id\n2\n", "--run-id", "two")
    for number in (3, 4):
        lake.load(f"id\n{number}\n", "--branch", "work")
    lake.ok("expire", "db.t", *_NOW)
    lake.ok("rollback", "db.t", "work", "--any")

    done = lake.load("id\n2\n", "--run-id", "two")

    assert done["status"] == "done"
    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


@pytest.mark.parametrize("cut", [0, 1], ids=["at once", "after the history was cut again"])
@pytest.mark.parametrize("logged", [True, False], ids=["", "without older metadata files"])
@pytest.mark.parametrize("again", [True, False], ids=["loaded again", "not loaded again"])
def test_a_run_is_remembered_by_a_tag_that_a_branch_is_set_to_after_it_was_rolled_back(
    lake: CommandLine, again: bool, logged: bool, cut: int
) -> None:
    first = lake.load("id\n1\n", "--create")["snapshot_ids"][0]
    lake.load("id\n2\n", "--run-id", "two")
    lake.load("id\n3\n")
    lake.ok("ref", "db.t", "--tag", "eod")
    lake.ok("rollback", "db.t", first)
    # The run is not in the branch any more.
    if again:
        assert lake.load("id\n2\n", "--run-id", "two")["status"] == "done"
    lake.load("id\n4\n")
    lake.ok("expire", "db.t", *_NOW)
    lake.ok("rollback", "db.t", "eod", "--any")
    for _ in range(cut):
        lake.load("id\n5\n")
        lake.ok("ref", "db.t", "--drop", "eod")
        lake.ok("expire", "db.t", *_NOW)
    log = pyiceberg_table(lake.warehouse).metadata.metadata_log
    for entry in () if logged else log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()

    done = lake.load("id\n2\n", "--run-id", "two")

    assert done["status"] == "nothing-to-do"
    assert ids_in(lake.warehouse) == [1, 2, 3, *[5] * cut]


@pytest.mark.parametrize("tagged", [True, False])
def test_a_run_that_was_rolled_back_is_loaded_again_without_older_metadata_files(
    lake: CommandLine, tagged: bool
) -> None:
    first = lake.load("id\n1\n", "--create")["snapshot_ids"][0]
    lake.load("id\n2\n", "--run-id", "two")
    lake.load("id\n3\n")
    if tagged:
        lake.ok("ref", "db.t", "--tag", "eod")
    lake.ok("rollback", "db.t", first)
    for number in (4, 5):
        lake.load(f"id\n{number}\n")
        lake.ok("expire", "db.t", *_NOW)
    for entry in pyiceberg_table(lake.warehouse).metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()

    done = lake.load("id\n2\n", "--run-id", "two")

    assert done["status"] == "done"
    assert ids_in(lake.warehouse) == [1, 2, 4, 5]


def test_a_staged_run_waits_for_its_branch_whatever_another_does(diverged: Diverged) -> None:
    source = diverged.source({900: ("a", "x")})
    command = ("ingest", "db.t", source, "--run-id", "r1")
    diverged.lake.ok(*command, "--branch", "work")
    head = diverged.branch("next")
    other_rows = diverged.source({901: ("b", "y")})
    diverged.lake.ok("ingest", "db.t", other_rows, "--run-id", "r2", "--stage")

    other = diverged.lake("--json", *command[:3], "--run-id", "r2", "--branch", head)
    staged = diverged.lake("--json", *command[:3], "--run-id", "r2", "--branch", head, "--stage")
    done = diverged.lake.ok("ingest", "db.t", source, "--run-id", "r2")

    assert (other.exit_code, staged.exit_code) == (2, 2)
    assert "--branch main" in other.json()["error"]["hint"]
    assert done["status"] == "done"
    assert diverged.rows("main") == MAIN | {901: ("b", "y")}


def test_what_is_staged_for_a_branch_stays_when_another_has_the_run(diverged: Diverged) -> None:
    source = diverged.source({900: ("a", "x")})
    command = ("ingest", "db.t", source, "--run-id", "r1")
    diverged.lake.ok(*command)
    diverged.lake.ok(*command, "--stage", "--branch", "work")

    assert diverged.lake.ok(*command)["status"] == "nothing-to-do"
    assert diverged.lake.ok(*command, "--branch", "work")["status"] == "done"
    assert diverged.rows("work") == WORK | {900: ("a", "x")}
