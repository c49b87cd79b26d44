"""Conditions of `lake compact --when`, on tables that lake and PyIceberg write."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, open_session

from lake.core.base.errors import InvalidRequestError
from lake.core.maintain.compaction.triggers import QUANTITIES, parse_trigger, since_compaction
from lake.core.spec.expressions.conditions import AtLeast, Comparison, Value

HOUR_MS = 3_600_000
NAMES = tuple(QUANTITIES)


def add(lake: CommandLine, *ids: int) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n" + "".join(f"{value}\n" for value in ids))
    lake.ok("ingest", "db.t", source, "--create")


def counts(lake: CommandLine, now_ms: int | None = None) -> dict[str, Value]:
    metadata = open_session(lake.warehouse).table("db.t").metadata
    now_ms = metadata.last_updated_ms if now_ms is None else now_ms
    return since_compaction(metadata, branch="main", now_ms=now_ms)


def test_each_name_has_limits_in_its_unit() -> None:
    limits = dict.fromkeys(NAMES, ("1000", 1000))
    limits |= {"bytes": ("10GB", 10 << 30), "age": ("1.5h", 3 * HOUR_MS // 2)}
    for name, (written, number) in limits.items():
        assert parse_trigger(f"{name} >= {written}") == Comparison(name, ">=", number, written)


@pytest.mark.parametrize(
    "text", ["", "files >= 1.5", "bytes >= 10 or", "age >= 3", "colour >= 3", "age = 1h"]
)
def test_another_expression_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_trigger(text)


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


def test_the_age_is_infinite_and_counts_are_lower_bounds_if_older_snapshots_have_expired(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    add(lake, 2)
    table = lake.table()
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()

    assert counts(lake)["age"] == math.inf
    assert counts(lake)["commits"] == AtLeast(1)
    document = lake.ok("compact", "db.t", "--when", "age >= 1000d", "--dry-run")
    assert document["plan"]["triggers"] == {"age": [None, 1000 * 24 * HOUR_MS]}
    assert document["status"] == "dry-run"
    assert lake.ok("compact", "db.t", "--when", "commits > 0", "--dry-run")["plan"]["is_due"]
    # More may have been committed: whether it was too much is not known, so nothing is done.
    for condition in ("commits >= 9", "commits < 9", "not commits = 9", "age < 1h"):
        assert lake.ok("compact", "db.t", "--when", condition)["status"] == "nothing-to-do"
    result = lake("compact", "db.t", "--when", "commits < 9 or age < 1h")
    assert (
        "compaction is not due: commits 1 or more (needs < 9), age unknown (needs < 1h)"
        in result.stdout
    )


def test_a_table_without_snapshots_is_not_due(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)

    document = lake.ok("compact", "db.t", "--when", "commits >= 1 or age >= 1ms")
    assert document["status"] == "nothing-to-do"
    assert document["plan"] == {
        "triggers": {"commits": [0, 1], "age": [0, 1]},
        "is_due": False,
        "conditions": [
            {"condition": "commits >= 1", "value": 0, "holds": False},
            {"condition": "age >= 1ms", "value": 0, "holds": False},
        ],
    }


def test_a_compaction_that_is_not_due_changes_nothing_and_says_why(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)
    before = open_session(lake.warehouse).table("db.t").metadata_location

    result = lake("compact", "db.t", "--rewrite-all", "--when", "files >= 1000 or bytes >= 10GB")

    assert result.exit_code == 0
    assert "compaction is not due: files 2 (needs >= 1000), bytes " in result.stdout
    assert "(needs >= 10GB) since the last one" in result.stdout
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


def test_conditions_are_combined_and_the_text_says_which_hold(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)
    words = ("compact", "db.t", "--rewrite-all", "--when")

    result = lake(*words, "files >= 2 and not (commits = 2 or age >= 1000d)")
    assert "compaction is not due: commits 2 (needs != 2) since the last one" in result.stdout
    condition = "files > 9 or (files >= 2 and age < 1000d)"
    assert "; due: files 2 (>= 2), age " in lake(*words, condition, "--dry-run").stderr
    document = lake.ok(*words, condition)
    assert document["plan"]["triggers"]["files"] == [2, 9, 2]
    assert [item["holds"] for item in document["plan"]["conditions"]] == [False, True, True]
    assert document["status"] == "done"


def test_a_bad_condition_is_an_error_of_its_option(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)
    result = lake("compact", "db.t", "--when", "files >= 1 and colour >= 2")
    assert result.exit_code == 2
    assert "cannot read the condition of --when at character 16: 'colour >= 2'" in result.stderr
    assert "write it as 'files >= 1000 or bytes >= 10GB or age >= 1h'" in result.stderr
