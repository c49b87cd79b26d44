"""`lake maintain` through the command line, on tables that each have one ill."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    files_below,
    inject,
    make_table,
    named_rows,
    pyiceberg_catalog,
    refused_with,
)
from support.tables.neglected_tables import (
    MENDED_BY,
    NAMES,
    Warehouse,
    append,
    rows_of,
    run,
)

from lake.cli.main import main
from lake.core.base.clock import SystemClock
from lake.core.base.errors import EngineError, StorageError
from lake.core.base.settings import Settings
from lake.core.engine import selection
from lake.core.engine.inline import InlineEngine
from lake.core.maintain.compaction.concurrency import rhythm
from lake.core.maintain.rounds import facts
from lake.core.maintain.rounds import round as rounds
from lake.core.maintain.run_log.run_log import RunLog, default_path
from lake.core.table.catalogs import names
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.sql import EmbeddedBackend
from lake.core.transaction.locks.local import HeldLock, take, this_process
from lake.core.transaction.session import Session, open_session

pytestmark = pytest.mark.usefixtures("in_an_object_store")
# All but the search for orphan files, which is due for every table.
_HELD = "another run of lake works on the table"
MEND = ("maintain", "--only", "expire,compact,deletes,manifests,stats")


@pytest.fixture
def lake(neglected: Warehouse) -> CommandLine:
    """`lake` on tables that need maintenance."""
    return neglected.restored()


def actions(result: dict[str, Any], *statuses: str) -> list[tuple[str, str]]:
    """Return the tables and names of the actions with these statuses, in their order."""
    wanted = statuses or ("done",)
    return [(row["table"], row["action"]) for row in result["actions"] if row["status"] in wanted]


def failures(result: dict[str, Any]) -> dict[tuple[str, str | None], str]:
    """Return the kinds of the errors by table and action."""
    return {(row["table"], row["action"]): row["error"]["kind"] for row in result["failed"]}


def reasons(rows: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Return the reasons of decisions by table and action."""
    return {(row["table"], row["action"]): row["reason"] for row in rows}


def state(lake: CommandLine) -> dict[str, tuple[int, int]]:
    """Return the sizes and times of all files of a warehouse."""
    stats = {str(path): path.stat() for path in lake.warehouse.rglob("*") if path.is_file()}
    return {path: (found.st_size, found.st_mtime_ns) for path, found in stats.items()}


def test_each_ill_is_mended_by_its_action_and_the_next_run_changes_no_file(
    lake: CommandLine,
) -> None:
    rows = rows_of(lake)

    code, result = run(lake, "maintain")

    assert code == 0
    assert dict(actions(result)) == MENDED_BY
    assert (result["tables"], result["failed"], result["rest"]) == (len(NAMES), [], [])
    assert rows_of(lake) == rows
    assert {key for key in reasons(result["actions"]) if key[1] == "clean"} == {
        (name, "clean") for name in NAMES
    }
    for row in result["actions"]:
        if row["status"] == "done":
            head = lake.table(row["table"]).current_snapshot().snapshot_id
            assert row["snapshot_ids"] in ([], [str(head)])
            assert row["operation_id"]
            assert row["after"] != row["before"]
            assert row["forecast"]
        else:
            assert (row["status"], row["after"]) == ("nothing-to-do", None)

    before, log = state(lake), Path(default_path()).read_text()
    again = lake.ok("maintain")

    assert again["status"] == "nothing-to-do"
    assert (again["result"]["actions"], again["result"]["rest"]) == ([], [])
    assert state(lake) == before
    assert Path(default_path()).read_text() == log
    assert f"lake maintain: {len(NAMES)} tables: nothing to do" in lake("maintain").stdout


def test_a_dry_run_prints_what_is_due_and_what_is_left_alone_and_changes_nothing(
    lake: CommandLine,
) -> None:
    before = state(lake)

    text = lake("maintain", "--dry-run")
    every = lake("maintain", "--dry-run", "-v")
    document = lake.ok("maintain", "--dry-run")

    assert (text.exit_code, every.exit_code) == (0, 0)
    assert state(lake) == before
    assert not Path(default_path()).exists()
    assert "db.small\tcompact\t20\t1\t" in text.stdout
    assert "\nstats\t7\tthe table has no statistics of columns\n" in text.stdout
    assert "12 actions due on 7; nothing was changed" in text.stderr
    assert "maintain\n" in text.stderr.partition("next: ")[2]
    assert "\ndb.healthy\tcompact\tnothing to do\n" in every.stdout
    plan = document["plan"]
    assert {key: row for key, row in reasons(plan["due"]).items() if key[1] != "clean"}.keys() == (
        set(MENDED_BY.items())
    )
    both = [*reasons(plan["due"]), *reasons(plan["left_alone"])]
    assert len(both) == len(set(both)) == 6 * len(NAMES)


def test_the_documents_have_the_keys_of_their_facts(lake: CommandLine) -> None:
    plan = lake.ok("maintain", "--dry-run")["plan"]
    lake.table("db.healthy").delete("id < 3")
    damage(lake, "db.small")
    result = lake("--json", *MEND).json()["result"]

    for found, kind in (
        (plan, facts.RoundFacts),
        (plan["due"][0], facts.DecisionFacts),
        (result, facts.RoundResult),
        (result["actions"][0], facts.ActionFacts),
        (result["failed"][0], facts.FailureFacts),
    ):
        assert list(found) == [item.name for item in fields(kind)]


def test_tables_that_gain_most_for_each_second_of_work_are_first(lake: CommandLine) -> None:
    planned = [row for row in lake.ok(*MEND, "--dry-run")["plan"]["due"] if row["forecast"]]

    _, result = run(lake, *MEND)

    assert actions(result) == [(row["table"], row["action"]) for row in planned]
    gains = [
        row["forecast"]["seconds"] / (0.2 + row["forecast"]["bytes"] / 50e6) for row in planned
    ]
    assert len(gains) == len(MENDED_BY)
    assert gains == sorted(gains, reverse=True)


def all_ills(lake: CommandLine) -> None:
    """Make a table with small files, delete files, many manifests and old snapshots."""
    unmerged = {"commit__manifest_merge__enabled": "false"}
    made = make_table(lake.warehouse, "ill.t", history__expire__max_snapshot_age_ms="1", **unmerged)
    for number in range(20):
        made.append(named_rows(number))


@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
def test_a_table_gets_its_actions_in_order_and_old_snapshots_of_a_large_one_expire_twice(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    if not is_small:
        monkeypatch.setattr("lake.core.maintain.rounds.tables.INLINE_BYTES", 0)
    all_ills(lake)
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '["ill.*"]\n'
        'expire.when = "snapshots > 1"\n'
        'manifests.when = "manifests > 0"\n'
        "compact.max-files = 18\n"
        "manifests.rewrite-all = true\n"
    )
    rows = rows_of(lake, ["ill.t"])

    code, result = run(lake, "maintain", "ill", "--policy", policy)

    assert [action for _, action in actions(result, "done", "nothing-to-do")] == [
        *(() if is_small else ("expire",)),
        *("compact", "manifests", "expire", "clean"),
    ]
    assert code == 6
    assert reasons(result["rest"]) == {("ill.t", "compact"): "files are left: 2"}
    assert len(lake.table("ill.t").snapshots()) == 1
    assert rows_of(lake, ["ill.t"]) == rows


def test_only_the_actions_that_were_asked_for_are_done(lake: CommandLine) -> None:
    _, result = run(lake, "maintain", "--only", "expire, compact")

    assert actions(result) == [("db.small", "compact"), ("db.snapshots", "expire")]
    assert reasons(result["left_alone"])["db.deletes", "deletes"] == "it was not asked for"
    for text, message in (
        ("compcat", "unknown action 'compcat'"),
        ("", "needs the name"),
        (" , ", "needs the name"),
    ):
        refused = lake("--json", "maintain", "--only", text)
        assert refused.exit_code == 2
        assert message in refused.json()["error"]["message"]


def test_patterns_select_tables_and_one_that_selects_none_ends_with_7(lake: CommandLine) -> None:
    _, result = run(lake, *MEND, "db.s*", "db.keys")

    assert {name for name, _ in actions(result)} == {"db.small", "db.snapshots", "db.keys"}
    assert result["tables"] == 3
    assert lake("maintain", "db", "nope.*").exit_code == 7
    assert lake("maintain", "db.nope").exit_code == 7


def test_the_budget_of_bytes_leaves_a_rest_that_the_next_runs_finish(lake: CommandLine) -> None:
    rows = rows_of(lake, ["db.small", "db.deletes"])
    words = (*MEND, "db.small", "db.deletes", "--max-bytes", "10000B")

    code, result = run(lake, *words)

    assert code == 6
    assert reasons(result["rest"]).keys() == {("db.small", "compact"), ("db.deletes", "deletes")}
    (row,) = result["actions"]
    assert (row["action"], row["status"]) == ("compact", "done")
    assert 0 < row["bytes"] <= 10000
    assert "it reads" in reasons(result["rest"])["db.deletes", "deletes"]
    codes = [run(lake, *MEND, "db.small", "--max-bytes", "10000B")[0] for _ in range(3)]
    assert codes[-1] == 0
    assert run(lake, *MEND, "db.deletes", "--max-bytes", "1MB")[0] == 0
    assert rows_of(lake, ["db.small", "db.deletes"]) == rows
    # The rest is not worth another run.
    assert len(lake.table("db.small").inspect.data_files()) < 10


class Jumping(SystemClock):
    """A clock that jumps forward when a test lets it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_the_budget_of_seconds_ends_a_compaction_between_groups(
    lake: CommandLine, tmp_path: Path
) -> None:
    rows = rows_of(lake, ["db.small"])
    clock = Jumping()
    policy = tmp_path / "policy.toml"
    policy.write_text('["*"]\ncompact.max-group-files = 5\n')

    def jump() -> None:
        clock.ahead += 1000

    def opened(settings: Settings) -> Session:
        session = open_session(settings, clock=clock)
        inject(session, [after(jump)])
        return session

    slowly = CommandLine(lake.warehouse, open_session=opened)

    code, result = run(slowly, *MEND, "--policy", policy, "--max-seconds", "15m")

    assert code == 6
    left = reasons(result["rest"])
    assert (
        left.pop(("db.small", "compact")) == "the time has ended, and groups of files are left: 2"
    )
    assert left.keys() == set(MENDED_BY.items()) - {("db.small", "compact")}
    assert set(left.values()) == {"the 15m 00s have passed"}
    # The group in hand when the time has ended is committed.
    assert len(lake.table("db.small").inspect.data_files()) == 12
    (row,) = result["actions"]
    assert (row["action"], row["status"], row["after"]["files"]) == ("compact", "partial", 12)
    assert row["bytes"] > 0
    assert [entry.action for entry in RunLog(default_path()).read().entries] == ["compact"]
    orphans = lake.ok("clean", "db.small", "--older-than", "0s", "--unsafe-retention")
    assert orphans["plan"]["orphans"] == 0
    assert rows_of(lake, ["db.small"]) == rows


def test_tables_are_not_read_again_when_the_time_has_ended(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, read = Jumping(), list[str]()
    load_listed = rounds.load_listed

    def loaded(catalog: Any, name: str) -> Table | None:
        if clock.ahead:
            read.append(name)
        return load_listed(catalog, name)

    def jump() -> None:
        clock.ahead += 1000

    def opened(settings: Settings) -> Session:
        session = open_session(settings, clock=clock)
        inject(session, [after(jump)])
        return session

    monkeypatch.setattr(rounds, "load_listed", loaded)

    _, result = run(CommandLine(lake.warehouse, open_session=opened), *MEND, "--max-seconds", "15m")

    (row,) = result["actions"]
    # What an action left is measured.
    assert read == [row["table"]]
    assert reasons(result["rest"]).keys() == set(MENDED_BY.items()) - {
        (row["table"], row["action"])
    }


def test_the_start_of_the_process_is_a_part_of_the_time(
    lake: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    words = lake.arguments("--json", *MEND, "--max-seconds", "15m")

    code = main(words, since=time.monotonic() - 1000)

    result = json.loads(capsys.readouterr().out)["result"]
    assert (code, result["actions"]) == (6, [])
    assert set(reasons(result["rest"]).values()) == {"the 15m 00s have passed"}


def damage(lake: CommandLine, name: str) -> None:
    """Remove the metadata file of a table."""
    Path(lake.table(name).metadata_location.removeprefix("file://")).unlink()


def test_what_fails_is_a_row_and_the_other_tables_go_on(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake.warehouse, "db.odd", history__expire__max_snapshot_age_ms="soon")
    damage(lake, "db.healthy")
    Path(lake.table("db.keys").metadata_location.removeprefix("file://")).write_text("{")
    head = lake.table("db.deletes").current_snapshot()
    Path(head.manifest_list.removeprefix("file://")).write_bytes(b"Obj\x01 not a list")
    rows = rows_of(lake, ["db.small", "db.snapshots", "db.manifests"])

    code, result = run(lake, *MEND)

    assert code == 6
    assert failures(result) == {
        ("db.healthy", None): "corrupt",
        ("db.keys", None): "corrupt",
        ("db.deletes", None): "corrupt",
    }
    assert {name for name, _ in actions(result)} == {"db.small", "db.snapshots", "db.manifests"}
    assert rows_of(lake, list(rows)) == rows
    text = lake(*MEND)
    assert text.exit_code == 6
    assert "5 tables: 3 failed" in text.stdout + text.stderr
    assert "\ndb.keys: " in text.stdout
    assert "next:" not in text.stdout


def test_a_dry_run_with_a_damaged_table_names_the_run_and_not_itself(lake: CommandLine) -> None:
    damage(lake, "db.healthy")

    found = lake(*MEND, "--dry-run")
    nothing = lake(*MEND, "db.healthy", "db.empty", "--dry-run")

    assert (found.exit_code, nothing.exit_code) == (6, 6)
    assert "dry run: 6 tables: 5 actions due on 5; 1 table could not be read" in found.stderr
    following = found.stderr.rpartition("next: ")[2]
    assert following.endswith("maintain --only expire,compact,deletes,manifests,stats\n")
    assert "next:" not in nothing.stderr + nothing.stdout


def test_the_properties_of_a_table_are_not_called_unreadable(lake: CommandLine) -> None:
    make_table(lake.warehouse, "odd.t", lake__maintain__enabled="nope")

    alone = lake("maintain", "odd.t", "--dry-run")
    both = lake("maintain", "odd.t", "db.small", "--dry-run")

    said = "1 table has a property that is not allowed; nothing was changed"
    assert f"lake maintain: dry run: nothing is due; {said}" in alone.stdout + alone.stderr
    assert said in both.stderr
    assert "could not be read" not in alone.stdout + alone.stderr + both.stderr


def test_a_table_that_is_left_alone_for_one_reason_has_one_row(lake: CommandLine) -> None:
    with lake.table("db.small").transaction() as change:
        change.set_properties({"lake.maintain.enabled": "false"})

    text = lake("maintain", "--dry-run")
    every = lake("maintain", "--dry-run", "-v")

    assert "\nall\t1\tproperty lake.maintain.enabled is false\n" in text.stdout
    assert text.stdout.count("lake.maintain.enabled") == 1
    assert "\ndb.small\tall\tproperty lake.maintain.enabled is false\n" in every.stdout
    assert every.stdout.count("lake.maintain.enabled") == 1


def test_the_refusal_to_remove_many_files_says_where_to_look_and_what_allows_it(
    lake: CommandLine,
) -> None:
    table = lake.table("db.healthy")
    folder = Path(table.location().removeprefix("file://")) / "data"
    for number in range(50):
        path = folder / f"orphan-{number}.parquet"
        path.write_bytes(b"x" * 1_000)
        os.utime(path, (0, 0))

    result = lake("maintain", "db.healthy", "--only", "clean")

    assert result.exit_code == 6
    assert "look at the list first: lake clean db.healthy; " in result.stdout + result.stderr
    assert 'so does clean.max-share = "' in result.stdout + result.stderr


@pytest.mark.parametrize("text", ["60", "60s", "1m"])
def test_a_number_of_seconds_is_a_duration_of_max_seconds(lake: CommandLine, text: str) -> None:
    assert lake("maintain", "db.healthy", "--dry-run", "--max-seconds", text).exit_code == 0


@pytest.mark.parametrize("text", ["1.5", "-1", "x", "", "9" * 5000])
def test_what_is_not_a_duration_is_refused(lake: CommandLine, text: str) -> None:
    refused = lake("maintain", "db.healthy", "--dry-run", f"--max-seconds={text}")

    assert refused.exit_code == 2
    assert lake("maintain", "db.healthy", "--every", "60").exit_code == 2


def test_tables_that_were_dropped_meanwhile_have_no_row(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = list(
        names.namespaces_of(open_session(Settings(warehouse=str(lake.warehouse))).catalog)
    )
    pyiceberg_catalog(lake.warehouse).drop_table("db.small")
    monkeypatch.setattr("lake.core.maintain.health.measure.namespaces_of", lambda *_: iter(spaces))

    def drop() -> None:
        pyiceberg_catalog(lake.warehouse).drop_table("db.manifests")

    # The first commit is that of another table.
    code, result = run(lake.with_faults(after(drop)), *MEND)

    assert (code, result["failed"]) == (0, [])
    assert reasons(result["obsolete"]) == {("db.manifests", "manifests"): "the table is gone"}
    assert {name for name, _ in actions(result)} == {"db.deletes", "db.keys", "db.snapshots"}


def test_a_namespace_that_cannot_be_listed_is_a_failure(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = list(
        names.namespaces_of(open_session(Settings(warehouse=str(lake.warehouse))).catalog)
    )
    spaces.append(names.Namespace("dbx", error=StorageError("the catalog is down")))
    monkeypatch.setattr("lake.core.maintain.health.measure.namespaces_of", lambda *_: iter(spaces))

    code, result = run(lake, *MEND, "db.snapshots", "dbx")

    assert code == 6
    assert failures(result) == {("dbx", None): "storage"}
    assert actions(result) == [("db.snapshots", "expire")]


@pytest.fixture
def held(lake: CommandLine) -> Iterator[HeldLock]:
    """The lock of a table in the hands of another run."""
    path = lake.warehouse / "db" / "small" / "metadata" / "lake.lock"
    lock = take(str(path), this_process("compact", "op-1"))
    assert isinstance(lock, HeldLock)
    yield lock
    lock.release()


def test_statistics_are_left_to_the_other_run(lake: CommandLine, held: HeldLock) -> None:
    """Two runs at the same time would read the same rows, and each would register what it counted."""
    lake.ok("stats", "db.small", "--select", "id")
    lake.table("db.small").append(named_rows(*range(1000, 2000)))

    code, result = run(lake, "maintain", "db.small", "--only", "stats")

    assert (code, result["failed"], result["rest"], result["actions"]) == (0, [], [], [])
    assert reasons(result["left_alone"])["db.small", "stats"] == _HELD


def test_a_table_that_another_run_works_on_is_left_alone(lake: CommandLine, held: HeldLock) -> None:
    code, result = run(lake, "maintain", "db.small", "db.snapshots")

    assert (code, result["failed"], result["rest"]) == (0, [], [])
    assert reasons(result["left_alone"])["db.small", "compact"] == _HELD
    assert ("db.small", "clean") not in reasons(result["actions"])
    assert actions(result) == [("db.snapshots", "expire")]
    assert [row["table"] for row in result["actions"]] == ["db.snapshots", "db.snapshots"]


@pytest.mark.usefixtures("held")
def test_a_user_sees_which_table_was_left_because_of_its_lock(lake: CommandLine) -> None:
    only = ("maintain", "db.small", "--only", "compact")
    quiet, shown = lake("-q", *only), lake(*only)
    document = lake.ok(*only)

    assert document["status"] == "already-running"
    assert document["result"]["tables"] == 1
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")
    assert shown.exit_code == 0
    assert "1 table left to another run" in shown.stderr
    assert "1 table: nothing to do" not in shown.stderr
    assert f"db.small\tcompact\t{_HELD}" in shown.stdout


@pytest.mark.usefixtures("held")
def test_a_lock_that_is_held_for_days_is_a_warning(lake: CommandLine) -> None:
    path = lake.warehouse / "db" / "small" / "metadata" / "lake.lock"
    path.write_text(json.dumps({**json.loads(path.read_text()), "since_ms": 1}))

    quiet = lake("-q", "maintain", "db.small", "--only", "compact")

    assert quiet.exit_code == 0
    assert "another run has held the lock on db.small for " in quiet.stderr


def test_partitions_of_live_writers_are_left_alone_with_the_reason(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rhythm, "_LEAST_SPAN_MS", 0)
    monkeypatch.setattr(rhythm, "_INTERVALS", 1000)
    table = lake.table("db.small")
    rows = table.scan().to_arrow()
    ids = pa.array(range(100_000, 100_012), rows["id"].type)
    table.append(rows.take([0] * 12).set_column(0, rows.schema.field("id"), ids))
    for row in ids.to_pylist()[:10]:
        # Another file with the other rows replaces the file.
        table.delete(f"id = {row}")

    code, result = run(lake, "maintain", "db.small", "--only", "compact")

    assert (code, result["actions"]) == (0, [])
    reason = reasons(result["left_alone"])["db.small", "compact"]
    assert reason.startswith("1 partition is left to a writer without a name (a change of rows")


def test_what_another_run_did_meanwhile_is_not_due_any_more(lake: CommandLine) -> None:
    fault = after(lambda: lake.ok("deletes", "db.deletes", "--rewrite"))

    code, result = run(lake.with_faults(fault), *MEND, "db.small", "db.deletes")

    assert (code, actions(result)) == (0, [("db.small", "compact")])
    assert len(result["actions"]) == 1
    assert reasons(result["left_alone"])["db.deletes", "deletes"] == "nothing to do"


def test_a_conflict_is_a_failure_and_the_other_actions_go_on(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = after(lambda: lake.table("db.small").delete("id >= 0"))

    code, result = run(lake.with_faults(fault), "maintain", "db.small", "db.snapshots")

    assert code == 6
    assert failures(result) == {("db.small", "compact"): "conflict"}
    assert reasons(result["actions"]).keys() == {
        *(("db.small", "compact"), ("db.small", "clean")),
        *(("db.snapshots", "expire"), ("db.snapshots", "clean")),
    }
    assert lake.rows("db.small") == []


def test_after_an_unknown_outcome_nothing_else_is_done_to_the_table(lake: CommandLine) -> None:
    rows = rows_of(lake, ["db.small"])
    lost = lake.with_faults(refused_with(TimeoutError("504 password=hunter2hunter2")))

    result = lost("--json", "maintain", "db.small", "db.snapshots")

    assert result.exit_code == 6
    document = result.json()["result"]
    assert failures(document) == {("db.small", "compact"): "unknown"}
    (row, *others) = document["actions"]
    assert (row["action"], row["status"], row["error"]["kind"]) == ("compact", *["unknown"] * 2)
    assert {row["table"] for row in others} == {"db.snapshots"}
    # The files may belong to a commit that happens later.
    assert any("hunter2" in text for text in (result.stdout, result.stderr)) is False
    log = Path(default_path()).read_text()
    assert "hunter2" not in log
    assert "password=***" in log
    assert "password=***" in result.stdout
    assert rows_of(lake, ["db.small"]) == rows
    assert dict(actions(run(lake, *MEND, "db.small")[1])) == {"db.small": "compact"}
    assert rows_of(lake, ["db.small"]) == rows


def test_secrets_in_errors_of_tables_are_masked(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = EmbeddedBackend.load

    def refusing(backend: EmbeddedBackend, identifier: str) -> Table:
        if identifier == "db.healthy":
            raise StorageError("s3 answers 403 password=hunter2hunter2")
        return load(backend, identifier)

    monkeypatch.setattr(EmbeddedBackend, "load", refusing)
    names = "db.healthy", "db.empty"
    for words in (("--json", *MEND, "--dry-run"), ("--json", *MEND), ("-v", *MEND)):
        result = lake(*words, *names)
        assert result.exit_code == 6
        assert "hunter2" not in result.stdout + result.stderr
        assert "password=***" in result.stdout + result.stderr


def broken(*_arguments: Any, **_options: Any) -> Any:
    """Fail as an engine whose process has ended (a fault)."""
    raise EngineError("the JVM has ended")


def test_an_engine_that_breaks_is_replaced_for_the_next_action(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(InlineEngine):
        run = broken

    tables = ["db.small", "db.deletes"]
    rows, choose = rows_of(lake, tables), selection.choose_engine
    engines: list[InlineEngine] = [Broken(), InlineEngine()]
    monkeypatch.setattr(selection, "choose_engine", lambda *_: engines.pop(0))

    code, result = run(lake, *MEND, *tables)

    assert (code, engines) == (6, [])
    monkeypatch.setattr(selection, "choose_engine", choose)
    assert failures(result) == {("db.small", "compact"): "engine"}
    assert actions(result) == [("db.deletes", "deletes")]
    assert rows_of(lake, tables) == rows


def test_a_stop_ends_the_round_with_what_was_done(lake: CommandLine) -> None:
    tables = ["db.small", "db.deletes"]
    rows = rows_of(lake, tables)

    def stop(commit: Callable[[], Any]) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return commit()

    # The second commit is on its way when the signal comes.
    result = lake.with_faults(None, stop)("--json", *MEND)

    assert result.exit_code == 128 + signal.SIGTERM
    document = result.json()
    assert document["error"]["kind"] == "stopped"
    done = actions(document["result"])
    assert done == [("db.small", "compact"), ("db.deletes", "deletes")]
    logged = RunLog(default_path()).read().entries
    assert [(entry.table, entry.action) for entry in logged] == done
    assert rows_of(lake, tables) == rows
    assert {(row["table"], row["reason"]) for row in document["result"]["rest"]} == {
        (name, "the run was stopped") for name in set(MENDED_BY) - set(tables)
    }
    assert actions(run(lake, *MEND, *tables, "db.manifests")[1]) == [("db.manifests", "manifests")]


def test_a_stopped_run_says_what_was_done_and_what_is_left(
    lake: CommandLine, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    assert lake(*MEND, "--plan", plan).exit_code == 0

    def stop(commit: Callable[[], Any]) -> Any:
        signal.raise_signal(signal.SIGINT)
        return commit()

    for words in (("apply", plan), (*MEND, "db")):
        result = lake.with_faults(stop)(*words)

        assert result.exit_code == 128 + signal.SIGINT
        (first, *_, following) = result.stderr.splitlines()[-2:]
        assert "stopped; no partial change is visible; " in first
        assert "s: 1 action on 1; " in first
        assert " left for the next run · " in first
        assert f"next: lake --warehouse {lake.warehouse} " in following
        assert "error" not in result.stderr
        assert result.stdout == ""


def test_a_run_that_is_stopped_before_it_begins_says_that_nothing_was_done(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("lake.core.maintain.rounds.tables.selected", stop)

    result = lake(*MEND)

    assert result.exit_code == 128 + signal.SIGTERM
    assert "stopped; no partial change is visible; nothing was done · " in result.stderr


def test_a_stop_within_an_action_is_in_the_log_and_no_failure(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopping(InlineEngine):
        def run(self, *arguments: Any, **options: Any) -> Any:
            signal.raise_signal(signal.SIGTERM)
            return super().run(*arguments, **options)

    monkeypatch.setattr(selection, "choose_engine", lambda *_: Stopping())

    result = lake("--json", *MEND)

    assert result.exit_code == 128 + signal.SIGTERM
    (row,) = result.json()["result"]["actions"]
    assert (row["table"], row["error"]["kind"]) == ("db.small", "stopped")
    (entry,) = RunLog(default_path()).read().entries
    assert (entry.table, entry.is_failure) == ("db.small", False)


def test_statistics_are_computed_again_if_a_fifth_of_the_rows_changed(lake: CommandLine) -> None:
    lake.ok("stats", "db.healthy", "--select", "id")
    words = (*MEND, "db.healthy")
    for more, done in ((15, []), (5, [("db.healthy", "stats")]), (5, [])):
        lake.table("db.healthy").append(named_rows(*range(1000, 1000 + more)))
        _, result = run(lake, *words)
        assert actions(result) == done
    described = lake.table("db.healthy").metadata.statistics[-1]
    assert [blob.fields for blob in described.blob_metadata] == [[1]]


def test_statistics_that_expire_with_their_snapshot_are_computed_again(lake: CommandLine) -> None:
    lake.ok("stats", "db.snapshots", "--select", "id")
    append(lake.warehouse, "db.snapshots", 1)

    _, result = run(lake, *MEND, "db.snapshots")

    assert [action for _, action in actions(result)] == ["expire", "stats"]
    (found,) = lake.table("db.snapshots").metadata.statistics
    assert found.snapshot_id == lake.table("db.snapshots").current_snapshot().snapshot_id
    assert [blob.fields for blob in found.blob_metadata] == [[1]]


def test_a_table_with_very_many_files_is_measured_alone(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.maintain.rounds.tables.MOST_ENTRIES", 10)

    planned = lake.ok(*MEND, "--dry-run")["plan"]["due"]
    _, result = run(lake, *MEND)

    assert dict(actions(result)) == MENDED_BY
    assert [(row["table"], row["action"]) for row in planned] == actions(result)


def test_orphan_files_are_moved_to_the_trash_and_looked_for_again_after_a_week(
    lake: CommandLine,
) -> None:
    orphan = lake.warehouse / "db" / "healthy" / "data" / "orphan.parquet"
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (0, 0))
    words = ("maintain", "db.healthy")

    _, result = run(lake, *words)

    assert actions(result) == [("db.healthy", "clean")]
    assert not orphan.exists()
    found = [path for path in files_below(lake.warehouse) if path.endswith("orphan.parquet")]
    assert len(found) == 1
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (0, 0))
    _, result = run(lake, *words)
    assert actions(result) == []
    assert "due every 168h" in reasons(result["left_alone"])["db.healthy", "clean"]
    log = Path(default_path())
    log.write_text(log.read_text().replace('"at": "20', '"at": "19'))
    assert actions(run(lake, *words)[1]) == [("db.healthy", "clean")]


def test_hints_name_the_options_of_the_action_that_failed(lake: CommandLine) -> None:
    orphan = lake.warehouse / "db" / "healthy" / "data" / "orphan.parquet"
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (0, 0))
    Path(lake.table("db.keys").metadata_location.removeprefix("file://")).write_text("{")

    code, result = run(lake, "maintain", "db.healthy")

    assert code == 6
    (failed,) = result["failed"]
    assert "db.keys cannot be read" in failed["error"]["message"]
    # drop has an option of that name, too.
    assert failed["error"]["hint"].endswith("there, --ignore-unreadable goes on without it")
    logged = json.loads(Path(default_path()).read_text())
    assert logged["error"] == failed["error"]


def test_an_action_that_failed_three_times_waits(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(InlineEngine, "run", broken)
        codes = [run(lake, *MEND, "db.small")[0] for _ in range(3)]

    code, result = run(lake, *MEND, "db.small")

    assert (codes, code, actions(result)) == ([6, 6, 6], 0, [])
    assert (
        "it failed 3 times in a row; it is tried again at "
        in (reasons(result["left_alone"])["db.small", "compact"])
    )


def test_a_log_that_cannot_be_written_is_a_warning_and_the_work_goes_on(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = lake("--json", *MEND, "db.snapshots", "--log", tmp_path)
    assert (unreadable.exit_code, unreadable.json()["error"]["kind"]) == (7, "bad-input")

    def full(*_: Any) -> None:
        raise StorageError("the run log cannot be written: no space left on device")

    monkeypatch.setattr(RunLog, "append", full)

    document = lake.ok(*MEND, "db.snapshots", "db.small")

    assert actions(document["result"]) == [("db.small", "compact"), ("db.snapshots", "expire")]
    (warning,) = document["warnings"]
    assert warning.startswith(
        "the run log cannot be written: no space left on device; the next run repeats"
    )
    assert [row["warnings"] for row in document["result"]["actions"]] == [[], []]


def test_the_program_after_a_commit_runs_for_each_action(lake: CommandLine, tmp_path: Path) -> None:
    seen, program = tmp_path / "seen", tmp_path / "program.py"
    program.write_text(
        f"import sys\nwith open({str(seen)!r}, 'a') as file:\n    file.write(sys.stdin.read())\n"
    )

    _, result = run(lake, *MEND, "--on-commit", f"{sys.executable} {program}")

    documents = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [(document["table"], document["command"]) for document in documents] == actions(result)


def test_names_of_tables_are_one_line_of_printable_text(lake: CommandLine) -> None:
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute(
            "UPDATE iceberg_tables SET table_name = ? WHERE table_name = 'small'",
            ("a\x1b[31mb\nc",),
        )

    for words in (("maintain", "--dry-run", "-v"), MEND):
        result = lake(*words)
        assert result.exit_code in {0, 6}
        assert "\x1b" not in result.stdout + result.stderr
        assert "\nc" not in result.stdout + result.stderr


def test_checkpoints_that_were_never_committed_are_reported(
    flink_lent: Callable[[str], Any],
) -> None:
    fixture = flink_lent("b-append-pending")
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)
    pending = lake.ok("replay", fixture.table)["plan"]["checkpoints"]
    count = sum(item["state"] == "pending" for item in pending)

    document = lake.ok(*MEND, "--dry-run")

    assert count
    assert document["plan"]["pending"] == [{"table": fixture.table, "checkpoints": count}]
    assert f"lake replay {fixture.table}" in lake(*MEND, "--dry-run").stderr


def test_the_reasons_of_a_dry_run_are_counted_with_their_times(lake: CommandLine) -> None:
    assert lake("maintain", "--only", "clean").exit_code == 0

    shown = lake("maintain", "--dry-run", "--only", "clean").stdout

    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.search(rf"^clean\t\d+\tlast done at {time}, due every 168h 00m$", shown, re.MULTILINE)
