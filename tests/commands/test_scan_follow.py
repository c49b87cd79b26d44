"""`lake scan --follow`: what is read, from the command line, as cron and people run it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, named_rows, pyiceberg_catalog


class Cron:
    """A line of cron that hands over to a folder, and a loader that empties the folder."""

    def __init__(self, lake: CommandLine, folder: Path, *options: object) -> None:
        self.lake, self.out = lake, folder / "out"
        self.line = (
            *("scan", "db.t", "--follow", "--state", folder / "state", "--output", self.out),
            *options,
        )
        self.documents: list[dict[str, Any]] = []

    def run(self, *options: object, code: int = 0) -> dict[str, Any]:
        """Run once; return the document."""
        result = self.lake("--json", *self.line, "--once", *options)
        assert result.exit_code == code, result
        document: dict[str, Any] = result.json()
        self.documents.append(document)
        return document

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of all epochs, in their order, and delete the epochs."""
        read: list[dict[str, Any]] = []
        for epoch in sorted(self.out.glob("epoch-*")):
            described = json.loads((epoch / "_epoch.json").read_text())
            parts = [pq.read_table(epoch / item["name"]) for item in described["files"]]
            assert sum(part.num_rows for part in parts) == described["rows"]
            read += [row for part in parts for row in part.to_pylist()]
            shutil.rmtree(epoch)
        return read

    def ids(self, *options: object, code: int = 0) -> list[int]:
        self.run(*options, code=code)
        return [row["id"] for row in self.rows()]


@pytest.fixture
def cron(lake: CommandLine, tmp_path: Path) -> Cron:
    return Cron(lake, tmp_path)


@pytest.fixture
def table(warehouse: Path) -> Any:
    return make_table(warehouse)


def expire_before(table: Any, count: int) -> None:
    """Expire the oldest snapshots."""
    ids = [item.snapshot_id for item in table.metadata.snapshots[:count]]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


def test_cron_hands_over_each_row_once(cron: Cron, table: Any) -> None:
    table.append(named_rows(1, 2))
    assert sorted(cron.ids()) == [1, 2]
    assert cron.documents[-1]["plan"]["strategy"] == "table"
    assert cron.ids() == []
    assert cron.documents[-1]["status"] == "nothing-to-do"
    table.append(named_rows(3))
    table.append(named_rows(4))
    assert cron.ids() == [3, 4]
    document = cron.documents[-1]
    assert (document["status"], document["result"]["rows"]) == ("done", 2)
    assert document["result"]["lag"] == {"snapshots": 0, "rows": 0, "ms": 0}


def test_a_state_on_an_empty_table_misses_nothing(cron: Cron, table: Any) -> None:
    assert cron.ids() == []
    assert cron.documents[-1]["result"]["position"]["snapshot_id"] is None
    table.append(named_rows(1))
    assert cron.ids() == [1]


def test_options_of_the_start_count_for_a_new_state_only(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    assert cron.ids("--start", "latest-exclusive") == []
    table.append(named_rows(2))
    assert cron.ids("--start", "table") == [2]
    assert cron.ids("--from-snapshot", "12345") == []


def test_an_increment_says_which_snapshots_it_passed(cron: Cron, table: Any) -> None:
    table.append(named_rows(1, 2))
    cron.ids()
    table.delete("id = 1")
    table.append(named_rows(3))

    assert cron.ids() == [3]
    document = cron.documents[-1]
    assert document["result"]["skipped_snapshots"] == 1
    assert "skipped 1 snapshot that is not an append (--changes shows" in document["warnings"][0]


def test_a_snapshot_that_is_not_an_append_ends_the_run_if_asked_for(cron: Cron, table: Any) -> None:
    table.append(named_rows(1, 2))
    cron.ids()
    table.append(named_rows(3))
    table.delete("id = 1")
    table.append(named_rows(4))

    assert cron.ids("--non-append", "fail", code=3) == [3]
    error = cron.documents[-1]["error"]
    assert "--non-append skip passes it" in error["hint"]
    assert cron.documents[-1]["result"]["rows"] == 1
    assert cron.ids("--non-append", "fail", code=3) == []
    assert cron.ids() == [4]


def test_changes_of_a_table_with_updates_lead_to_its_rows(
    lake: CommandLine, tmp_path: Path, table: Any
) -> None:
    cron = Cron(lake, tmp_path, "--changes", "--key", "id")
    table.append(named_rows(1, 2, 3))
    seen = {row["id"]: row["name"] for row in (cron.run(), cron.rows())[1]}
    changed = tmp_path / "changed.csv"
    changed.write_text("id,name\n2,new\n4,n4\n")
    lake.ok("ingest", "db.t", changed, "--upsert", "--key", "id")
    table.refresh()
    table.delete("id = 3")

    cron.run()
    log = cron.rows()
    for row in log:
        if row["_change_type"] in {"delete", "update_before"}:
            assert seen.pop(row["id"]) == row["name"]
        else:
            seen[row["id"]] = row["name"]
    assert seen == {1: "n1", 2: "new", 4: "n4"}
    assert {row["_change_ordinal"] for row in log} == {0, 1}
    table.refresh()
    table.append(named_rows(5))
    cron.run()
    assert [row["_change_ordinal"] for row in cron.rows()] == [2]


def test_a_gap_ends_the_run_and_is_described(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    cron.ids()
    position = cron.documents[-1]["result"]["position"]
    for number in (2, 3, 4):
        table.append(named_rows(number))
    expire_before(table, 3)

    for _ in range(2):
        document = cron.run(code=7)
        assert document["error"]["kind"] == "gap"
        result = document["result"]
        assert (result["kind"], result["position"]) == ("expired", position)
        head = str(table.metadata.current_snapshot_id)
        assert (result["oldest_retained"], result["head"]) == (head, head)
    assert "--on-gap table reads the whole table again" in document["error"]["hint"]
    assert cron.rows() == []
    status = cron.lake("--json", *cron.line[:5], "--status")
    found = status.json()["result"]
    assert status.exit_code == 6
    assert found["gap"]["kind"] == "expired"
    assert found["lag"]["snapshots"] is None
    assert found["lag"]["rows"] is None
    assert found["lag"]["ms"] > 0
    assert "gap in db.t" in status.json()["warnings"][0]


def test_a_gap_can_be_skipped_and_the_run_says_so(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    cron.ids()
    for number in (2, 3, 4):
        table.append(named_rows(number))
    expire_before(table, 3)

    assert cron.ids("--on-gap", "skip", code=6) == [4]
    document = cron.documents[-1]
    assert document["status"] == "partial"
    assert [gap["kind"] for gap in document["result"]["gaps"]] == ["expired"]
    assert "rows of expired snapshots are missing" in document["warnings"][0]
    assert cron.ids("--on-gap", "skip") == []


def test_rows_that_were_rolled_back_are_not_called_missing(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    first = table.metadata.current_snapshot_id
    table.append(named_rows(2))
    cron.ids()
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(named_rows(3))

    assert cron.ids("--on-gap", "skip", code=6) == [3]
    assert "too many rows were handed over" in cron.documents[-1]["warnings"][0]
    assert "missing" not in cron.documents[-1]["warnings"][0]


def test_a_rollback_to_history_that_expired_may_leave_rows_out(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    first = table.metadata.current_snapshot_id
    table.append(named_rows(2))
    cron.ids()
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    for number in (3, 4):
        table.append(named_rows(number))
    table.maintenance.expire_snapshots().by_ids(
        [first, table.metadata.snapshots[-2].snapshot_id]
    ).commit()

    assert cron.ids("--on-gap", "skip", code=6) == [4]
    assert "too many rows were handed over" in cron.documents[-1]["warnings"][0]
    assert "rows of expired snapshots are missing" in cron.documents[-1]["warnings"][0]


def test_an_emptied_table_has_no_missing_rows(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    cron.ids()
    table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(ref_name="main"),))

    assert cron.ids("--on-gap", "skip", code=6) == []
    assert "too many rows were handed over" in cron.documents[-1]["warnings"][0]


def test_the_next_step_of_a_scan_does_not_pass_other_gaps(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    cron.ids()
    table.append(named_rows(2))
    table.append(named_rows(3))
    table.append(named_rows(4))
    expire_before(table, 2)

    done = cron.lake(
        *cron.line, "--on-gap", "skip", "--max-epochs", 1, "--max-planning-snapshots", 1
    )

    assert "next: lake" in done.stdout
    assert "--on-gap" not in done.stdout


def test_after_a_gap_the_whole_table_can_replace_what_was_read(cron: Cron, table: Any) -> None:
    table.append(named_rows(1))
    first = table.metadata.current_snapshot_id
    table.append(named_rows(2))
    cron.ids()
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(named_rows(3))

    cron.run("--on-gap", "table", code=6)
    (epoch,) = cron.out.iterdir()
    described = json.loads((epoch / "_epoch.json").read_text())
    assert (described["replaces"], described["generation"]) == (True, 1)
    assert described["gap"]["kind"] == "rolled-back"
    assert sorted(row["id"] for row in cron.rows()) == [1, 3]
    assert cron.ids("--on-gap", "table") == []


def test_a_plan_shows_what_would_be_read_and_moves_nothing(
    lake: CommandLine, cron: Cron, table: Any
) -> None:
    table.append(named_rows(1))
    cron.ids()
    table.append(named_rows(2, 3))
    table.delete("id = 2")

    for _ in range(2):
        document = lake.ok(*cron.line, "--plan")
        plan = document["plan"]
        assert plan["strategy"] is None
        assert plan["position"] == cron.documents[-1]["result"]["position"]
        assert (plan["files"], plan["splits"], plan["records"]) == (1, 1, 2)
        assert (plan["snapshots"], plan["skipped_snapshots"]) == (2, 1)
        assert plan["head"] == str(table.metadata.current_snapshot_id)
    assert cron.ids() == [2, 3]
    assert lake.ok(*cron.line, "--plan")["status"] == "nothing-to-do"


@pytest.mark.parametrize("start", ["latest", "INCREMENTAL_FROM_LATEST_SNAPSHOT"])
def test_a_plan_of_a_new_state_shows_where_it_starts(
    lake: CommandLine, table: Any, start: str
) -> None:
    table.append(named_rows(1))
    first = table.metadata.current_snapshot_id
    table.append(named_rows(2))

    plan = lake.ok("scan", "db.t", "--follow", "--start", start, "--plan")["plan"]

    assert (plan["strategy"], plan["records"]) == ("latest", 1)
    assert plan["position"]["snapshot_id"] == str(first)


def test_a_stream_without_a_state_has_the_rows_of_its_start(lake: CommandLine, table: Any) -> None:
    table.append(named_rows(1))
    table.append(named_rows(2))
    for options, expected in (
        ((), []),
        (("--start", "latest"), [2]),
        (("--start", "table"), [2, 1]),
        (("--from-snapshot", str(table.metadata.snapshots[0].snapshot_id)), [2]),
        (("--start-at", "2020-01-01"), [1, 2]),
    ):
        result = lake("scan", "db.t", "--follow", "--once", "--output-format", "json", *options)

        assert result.exit_code == 0, result
        assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--limit", "5"], "--limit contradicts --follow"),
        (["--snapshot", "main"], "--snapshot contradicts --follow"),
        (["--to-snapshot", "main"], "--to-snapshot contradicts --follow"),
        (["--replace"], "--replace contradicts --follow"),
        (["--state", "s3://b/s"], "--state must be a folder on this machine"),
        (["--output", "out"], "--output needs --state"),
        (["--state", "s", "--output", "x.csv"], "--output must be a folder"),
        (["--max-planning-snapshots", "0"], "--max-planning-snapshots must be at least 1"),
        (["--start", "newest"], "--start is 'newest', not one of table, latest"),
        (["--start", "INCREMENTAL_FROM_SNAPSHOT_ID"], "this --start needs --from-snapshot"),
        (["--start", "table", "--start-at", "2020-01-01"], "--start contradicts --start-at"),
        (["--order", "time"], "--order time needs --watermark-column"),
        (["--order", "best"], "--order is 'best', not one of fifo, sequence, time"),
        (["--epoch-markers"], "--epoch-markers needs a stream of JSON"),
        (["--plan", "--status"], "--plan contradicts --status"),
        (["--status"], "--status needs --state"),
        (["--once", "--until", "5m"], "--once contradicts --until"),
        (["--monitor-interval", "soon"], "not a duration"),
        (["--key", "id"], "--key needs --changes"),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    lake: CommandLine, options: list[str], message: str
) -> None:
    result = lake("scan", "db.t", "--follow", *options)

    assert result.exit_code == 2, result
    assert message in result.stderr


def test_options_that_do_not_fit_the_table_are_refused(lake: CommandLine, table: Any) -> None:
    table.append(named_rows(1))
    for options, message in (
        (["--start-at", "2999-01-01"], "--start-at is in the future"),
        (["--watermark-column", "name"], "--watermark-column name is string"),
        (["--output-format", "parquet"], "parquet cannot be written to a stream"),
    ):
        result = lake("scan", "db.t", "--follow", *options)

        assert result.exit_code == 2, result
        assert message in result.stderr


@pytest.mark.parametrize(
    "options", [["--state", "s"], ["--once"], ["--on-gap", "skip"], ["--status"], ["--wait", "1s"]]
)
def test_options_of_a_follow_need_follow(lake: CommandLine, options: list[str]) -> None:
    result = lake("scan", "db.t", *options)

    assert result.exit_code == 2
    assert f"{options[0]} needs --follow" in result.stderr


def test_a_table_that_was_created_again_is_another_table(
    lake: CommandLine, cron: Cron, table: Any, warehouse: Path
) -> None:
    table.append(named_rows(1))
    cron.ids()
    pyiceberg_catalog(warehouse).drop_table("db.t")
    make_table(warehouse).append(named_rows(2))

    document = cron.run(code=3)
    assert "UUID" in document["error"]["message"]
    assert lake("--json", *cron.line, "--status").exit_code == 3


def test_a_renamed_table_is_followed_under_its_new_name(
    lake: CommandLine, cron: Cron, table: Any
) -> None:
    table.append(named_rows(1))
    cron.ids()
    lake.ok("rename", "db.t", "other.new")
    for words in ((), ("--status",)):
        error = cron.run(*words, code=7)["error"]
        assert "has the name other.new now" in error["message"]
        assert "other.new" in error["hint"]

    cron.line = ("scan", "other.new", *cron.line[2:])
    said = lake(*cron.line, "--once")
    assert (said.exit_code, "table db.t has the name other.new now" in said.stderr) == (0, True)
    lake.table("other.new").append(named_rows(2))
    assert cron.ids() == [2]
    state = json.loads((cron.out.parent / "state" / "state.json").read_text())
    assert state["table"] == "other.new"


def test_a_dropped_branch_ends_the_run(lake: CommandLine, tmp_path: Path, table: Any) -> None:
    cron = Cron(lake, tmp_path, "--branch", "work")
    table.append(named_rows(1))
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, "work").commit()
    assert cron.ids() == [1]
    table.manage_snapshots().remove_branch("work").commit()

    assert "no branch named work" in cron.run(code=7)["error"]["message"]


def test_a_choice_may_change_while_nothing_is_pending(
    cron: Cron, lake: CommandLine, table: Any
) -> None:
    table.append(named_rows(1))
    cron.ids()
    table.append(named_rows(2, 3))

    assert cron.ids("--where", "id > 2") == [3]
    table.append(named_rows(4))
    assert cron.ids("--select", "id") == [4]
    assert "--branch" in cron.run("--branch", "other", code=2)["error"]["message"]
