"""Conditions of `lake compact --when`, on tables that lake and PyIceberg write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, open_session, pyiceberg_catalog

from lake.core.compaction.triggers import (
    NAMES,
    Evaluation,
    Trigger,
    evaluate_triggers,
    parse_triggers,
)
from lake.core.errors import InvalidRequestError

HOUR_MS = 3_600_000


def add(lake: CommandLine, *ids: int) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n" + "".join(f"{value}\n" for value in ids))
    lake.ok("ingest", "db.t", source, "--create")


def counts(lake: CommandLine, now_ms: int | None = None) -> dict[str, int | None]:
    metadata = open_session(lake.warehouse).table("db.t").metadata
    now_ms = metadata.last_updated_ms if now_ms is None else now_ms
    return dict(evaluate_triggers(metadata, (), branch="main", now_ms=now_ms).values)


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2**40), min_size=1), st.data())
def test_an_expression_is_parsed_as_it_was_written(limits: dict[str, int], data: Any) -> None:
    unit = {"bytes": "B", "age": "ms"}
    operators = {name: data.draw(st.sampled_from([">", ">="])) for name in limits}
    terms = [
        f"{name}{operators[name]} {limit % 10**9 if name == 'age' else limit + 1}{unit.get(name, '')}"
        for name, limit in limits.items()
    ]
    parsed = parse_triggers(data.draw(st.sampled_from([" or ", " OR ", "\nor\t"])).join(terms))

    expected = [
        Trigger(name, (limit % 10**9 if name == "age" else limit + 1) + (operators[name] == ">"))
        for name, limit in limits.items()
    ]
    assert list(parsed) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "files",
        "files >= ",
        "files >= -1",
        "files >= 1.5",
        "files < 3",
        "files >= 1 and rows >= 2",
        "files >= 1 or files >= 2",
        "bytes >= 10 or",
        "age >= 3",
        "bytes >= many",
        "colour >= 3",
    ],
)
def test_another_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_triggers(text)


def test_one_condition_that_holds_is_enough_and_an_unknown_count_holds() -> None:
    triggers = (Trigger("files", 3), Trigger("age", 100))

    assert not Evaluation(triggers, {"files": 2, "age": 99}).is_due
    assert Evaluation(triggers, {"files": 3, "age": 0}).is_due
    assert Evaluation(triggers, {"files": 0, "age": None}).is_due


def test_counts_begin_again_with_a_compaction(lake: CommandLine) -> None:
    add(lake, 1, 2)
    add(lake, 3)
    before = counts(lake)
    assert (before["commits"], before["files"], before["rows"]) == (2, 2, 3)
    assert before["bytes"] == sum(path.stat().st_size for path in lake.warehouse.rglob("*.parquet"))

    assert lake.ok("compact", "db.t", "--rewrite-all")["status"] == "done"
    assert counts(lake) == dict.fromkeys(NAMES, 0)
    add(lake, 4)
    assert counts(lake)["commits"] == 1


def test_deletes_are_counted_by_kind(lake: CommandLine) -> None:
    add(lake, 1, 2, 3)
    source = lake.warehouse.parent / "changed.csv"
    source.write_text("id\n2\n3\n")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id", "--deletes", "position")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id", "--deletes", "equality")

    found = counts(lake)
    assert (found["position-deletes"], found["equality-deletes"]) == (2, 2)


def test_the_age_is_that_of_the_last_compaction_or_of_the_first_snapshot(lake: CommandLine) -> None:
    add(lake, 1)
    first_ms = open_session(lake.warehouse).table("db.t").metadata.snapshots[0].timestamp_ms
    add(lake, 2)
    assert counts(lake, first_ms + HOUR_MS)["age"] == HOUR_MS

    lake.ok("compact", "db.t", "--rewrite-all")
    add(lake, 3)
    compacted = open_session(lake.warehouse).table("db.t").metadata.snapshots[2]
    assert counts(lake, compacted.timestamp_ms + HOUR_MS)["age"] == HOUR_MS


def test_the_age_is_unknown_if_older_snapshots_have_expired(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)
    table = pyiceberg_catalog(lake.warehouse).load_table("db.t")
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()

    assert counts(lake)["age"] is None
    assert counts(lake)["commits"] == 1
    document = lake.ok("compact", "db.t", "--when", "age >= 1000d", "--dry-run")
    assert document["plan"]["triggers"] == {"age": [None, 1000 * 24 * HOUR_MS]}
    assert document["status"] == "dry-run"


def test_a_table_without_snapshots_is_not_due(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)

    document = lake.ok("compact", "db.t", "--when", "commits >= 1 or age >= 1ms")
    assert document["status"] == "nothing-to-do"
    assert document["plan"] == {"triggers": {"commits": [0, 1], "age": [0, 1]}}


def test_a_compaction_that_is_not_due_changes_nothing_and_says_why(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)
    before = open_session(lake.warehouse).table("db.t").metadata_location

    result = lake("compact", "db.t", "--rewrite-all", "--when", "files >= 1000 or bytes >= 10GB")

    assert result.exit_code == 0
    assert "compaction is not due: files 2 of 1,000, bytes " in result.stdout
    assert open_session(lake.warehouse).table("db.t").metadata_location == before


def test_a_compaction_that_is_due_reports_the_counts(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)

    document = lake.ok("compact", "db.t", "--rewrite-all", "--when", "files >= 2")
    assert document["status"] == "done"
    assert document["plan"]["triggers"] == {"files": [2, 2]}
    document = lake.ok("compact", "db.t", "--rewrite-all", "--when", "files >= 2")
    assert (document["status"], document["plan"]["triggers"]) == (
        "nothing-to-do",
        {"files": [0, 2]},
    )
