"""Plans whose manifests tasks read are those that this process makes alone, to the byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.iceberg_tables import pyiceberg_table

from lake.core.base.errors import EngineError
from lake.core.base.settings import Settings
from lake.core.engine.inline import InlineEngine
from lake.core.engine.tasks import Engine
from lake.core.maintain.compaction.options import compaction_options
from lake.core.maintain.compaction.plan import plan_compaction
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.table.manifests import batches
from lake.core.table.snapshots.pruning import FILTER_COLUMNS
from lake.core.transaction import session as sessions
from lake.core.transaction.session import Session, open_session

# Version 1 has no deletes, version 3 deletion vectors.
VERSIONS = (1, 2, 3)
FILTERS = (
    "part = 'b' and id > 4",
    "id in (3, 14, 33) or value is null",
    "not (value >= 20) and part like 'a%'",
    "extra is not null",
    "id > 1000",
)
COMPACTIONS = (
    ("--rewrite-all",),
    ("--min-input-files", "2", "--where", "part = 'a' or id > 20"),
    ("--delete-file-threshold", "1", "--idle", "1s"),
    ("--strategy", "sort", "--by", "id", "--where-overlap", "0"),
    ("--branch", "work", "--rewrite-all"),
    ("--rewrite-all", "--spec-id", "0"),
)


def planned(lake: CommandLine, *command: object) -> tuple[int, dict[str, Any]]:
    """Return a command's exit code and its document without the times."""
    result = lake("--json", *command)
    times = {"seconds", "started_at", "finished_at"}
    return result.exit_code, {
        key: value for key, value in result.json().items() if key not in times
    }


def rows(first: int, last: int, **more: list[Any]) -> pa.Table:
    ids = list(range(first, last))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "part": ["ab"[number % 2] for number in ids],
            "value": pa.array([None if n % 7 == 0 else float(n) for n in ids], pa.float64()),
            **more,
        }
    )


def build(folder: Path, version: int) -> None:
    """Make ``db.t``: files of two writers, specs, branches and kinds of deletes, none of which has many rows."""
    lake = CommandLine(folder / "warehouse")
    source = folder / "source.parquet"

    def ingest(found: pa.Table, *options: str) -> None:
        pq.write_table(found, source)
        lake.ok("ingest", "db.t", source, *options)

    def by_pyiceberg(first: int, last: int) -> None:
        # The manifests of two writers differ in their layout.
        pyiceberg_table(lake.warehouse).append(rows(first, last))

    # Each commit leaves its manifest.
    properties = ("format-version=1", "commit.manifest-merge.enabled=false")
    asked = [text for each in properties for text in ("--property", each)]
    ingest(rows(0, 10), "--create", "--partition-by", "part", *asked)
    by_pyiceberg(10, 14)
    ingest(rows(14, 18))
    by_pyiceberg(18, 22)
    if version > 1:
        lake.ok("alter", "db.t", "--format-version", "2")
        ingest(rows(2, 5), "--upsert", "--key", "id,part", "--deletes", "position")
        ingest(rows(7, 9), "--upsert", "--key", "id,part", "--deletes", "equality")
        pyiceberg_table(lake.warehouse).delete(EqualTo("id", 16))
    lake.ok("ref", "db.t", "--branch-create", "work")
    ingest(rows(22, 24), "--branch", "work")
    lake.ok("alter", "db.t", "--partition-by", "part, bucket(2, id)", "--add-column", "extra long")
    ingest(rows(30, 36, extra=[1, 2, 3, 4, None, None]))
    ingest(rows(36, 38))
    if version > 2:
        lake.ok("alter", "db.t", "--format-version", "3")
        ingest(rows(31, 34, extra=[7, 8, 9]), "--upsert", "--key", "id,part")
        ingest(rows(40, 44, extra=[1] * 4))
        # A type that only this version has.
        lake.ok("alter", "db.t", "--add-column", "at timestamp_ns")


@pytest.fixture(params=VERSIONS)
def warehouse(request: pytest.FixtureRequest, built_once: BuiltOnce) -> Path:
    """The folder of the table of each format version."""
    version: int = request.param
    return built_once.folder(f"v{version}", lambda folder: build(folder, version)) / "warehouse"


@pytest.fixture
def alone(warehouse: Path) -> CommandLine:
    """`lake` that reads manifests in this process."""
    return CommandLine(warehouse, engine="inline")


@pytest.fixture(params=["tasks", "spark"])
def tasks(
    request: pytest.FixtureRequest, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """`lake` whose plans read each manifest in a task of its own: in this process, or on Spark."""
    monkeypatch.setattr(batches, "_TASK_BYTES", 1)
    monkeypatch.setattr(sessions, "PLANNED_HERE_BYTES", 0)
    if request.param == "spark":
        return CommandLine(warehouse, engine="spark")
    return CommandLine(warehouse, engine="inline", open_session=with_tasks)


def with_tasks(settings: Settings) -> Session:
    """Open a session whose manifests are read by tasks in this process."""
    session, engine = open_session(settings), InlineEngine(2)

    def manifest_engine(_: int) -> Engine:
        return engine

    session.manifest_engine = manifest_engine  # type: ignore[method-assign]
    return session


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the tasks that read manifests."""
    counted: list[int] = []
    for_tasks = batches.in_tasks

    def counting(*arguments: Any) -> Iterator[Any]:
        for found in for_tasks(*arguments):
            counted.append(1)
            yield found

    monkeypatch.setattr("lake.core.table.snapshots.live_files.in_tasks", counting)
    yield counted
    assert counted


@pytest.mark.parametrize("condition", [None, *FILTERS])
def test_a_scan_has_the_same_plan_and_rows(
    alone: CommandLine, tasks: CommandLine, run: list[int], condition: str | None
) -> None:
    where = () if condition is None else ("--where", condition)

    for options in (
        where,
        (*where, "--branch", "work"),
        (*where, "--to-snapshot", "main"),
        (*where, "--split-size", "1KB", "--split-open-cost", "0"),
    ):
        asked = ("scan", "db.t", "--plan", *options)
        code, document = planned(alone, *asked)
        assert code == 0
        assert document["plan"]["files"] or condition == FILTERS[-1]
        assert planned(tasks, *asked) == (code, document)

    def scanned(lake: CommandLine) -> list[str]:
        return sorted(json.dumps(row, sort_keys=True) for row in lake.scanned(*where))

    assert scanned(tasks) == scanned(alone)


def test_a_scan_with_partners_has_the_same_plan(
    alone: CommandLine, tasks: CommandLine, run: list[int], tmp_path: Path
) -> None:
    keys = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"id": pa.array([3, 31], pa.int64())}), keys)
    asked = ("scan", "db.t", "--plan", "--prune-with", keys, "--on", "id")

    code, document = planned(alone, *asked)

    assert (code, document["plan"]["skipped_files"] > 0) == (0, True)
    assert planned(tasks, *asked) == (code, document)


@pytest.mark.parametrize("options", COMPACTIONS, ids=" ".join)
def test_a_compaction_has_the_same_plan(
    alone: CommandLine, tasks: CommandLine, run: list[int], options: tuple[str, ...]
) -> None:
    asked = ("-v", "compact", "db.t", "--dry-run", "--explain", *options)

    code, document = planned(alone, *asked)

    assert (code, document["plan"]["total_data_files"] > 1) == (0, True)
    assert planned(tasks, *asked) == (code, document)


def test_the_files_and_deletes_of_each_task_are_the_same(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_TASK_BYTES", 1)
    table = open_session(Settings(warehouse=str(warehouse))).table("db.t")
    engine = InlineEngine(2)

    def scanned(**others: Any) -> list[Any]:
        plan = plan_scan(table, ScanOptions(where="id > 2"), **others)
        return [(part.slices, part.deletes, part.numbers.tolist()) for part in plan.reads()]

    def compacted(**others: Any) -> list[Any]:
        options = compaction_options({"rewrite_all": True}, {}, table.properties)
        plan = plan_compaction(table, options, **others).with_statistics()
        return [
            (slices, plan.deletes(group.numbers), group.files.select(FILTER_COLUMNS).to_pylist())
            for group, slices in zip(plan.groups, plan.slices(plan.groups), strict=True)
        ]

    for found in (scanned, compacted):
        expected = found()
        assert any(part[1] for part in expected) is (table.metadata.format_version > 1)
        assert found(engine_of=lambda _: engine) == expected


@pytest.mark.parametrize("warehouse", [2], indirect=True)
@pytest.mark.parametrize("damage", ["cut", "missing", "content"])
def test_a_manifest_that_cannot_be_read_is_the_same_error(
    alone: CommandLine, tasks: CommandLine, warehouse: Path, damage: str
) -> None:
    found = pyiceberg_table(warehouse).inspect.manifests()
    for content in (0, 1):
        of_content = found.filter(pa.compute.equal(found["content"], content))
        path = Path(of_content["path"].to_pylist()[-1].removeprefix("file://"))
        whole = path.read_bytes()
        changed = {"cut": whole[:-1], "content": whole[:-40] + bytes(40)}.get(damage)
        path.unlink()
        if changed is not None:
            path.write_bytes(changed)

        for command in (("scan", "db.t", "--plan"), ("compact", "db.t", "--dry-run")):
            failed = planned(alone, *command)
            assert failed[0] > 1
            assert planned(tasks, *command) == failed

        path.write_bytes(whole)


@pytest.mark.parametrize("warehouse", [3], indirect=True)
@pytest.mark.parametrize("tasks", ["spark"], indirect=True)
def test_a_compaction_planned_on_spark_keeps_every_row(
    tasks: CommandLine, alone: CommandLine, run: list[int]
) -> None:
    before = alone.scanned()

    done = tasks.ok("compact", "db.t", "--rewrite-all", "--verify")

    assert done["result"]["rewritten_files"] > 10
    key = "id"
    assert sorted(alone.scanned(), key=lambda row: row[key]) == sorted(
        before, key=lambda row: row[key]
    )


@pytest.mark.parametrize("warehouse", [2], indirect=True)
@pytest.mark.parametrize("least", [0, None])
def test_a_plan_starts_spark_for_many_manifests_only(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, least: int | None
) -> None:
    if least is not None:
        monkeypatch.setattr(sessions, "PLANNED_HERE_BYTES", least)

    def opened(settings: Settings) -> Session:
        session = open_session(settings)

        def started(_: int) -> Engine:
            raise EngineError("Spark would begin")

        session.started = started  # type: ignore[method-assign]
        return session

    lake = CommandLine(warehouse, engine="spark", open_session=opened)

    for command in (("scan", "db.t", "--plan"), ("compact", "db.t", "--dry-run")):
        assert lake(*command).exit_code == (0 if least is None else 1)
