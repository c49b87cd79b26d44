"""`lake scan --changes`: Flink's tables, outputs, options, and warnings about unknown changes."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine, Result
from support.oracles.history_model import History
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture, canonical_rows
from support.tables.iceberg_tables import make_table

from lake.core.read.changelog.plan import plan_changelog
from lake.core.read.scan.facts import ScanFacts
from lake.core.read.scan.plan import ScanOptions

Flink = Callable[[str], FlinkFixture]
CHANGES = ["_change_type", "_change_ordinal", "_commit_snapshot_id"]


def error_of(result: Result, code: int) -> dict[str, str]:
    assert result.exit_code == code, result
    error: dict[str, str] = result.json()["error"]
    return error


def rows_after(log: pa.Table) -> list[str]:
    """Apply a change log to nothing; return canonical rows."""
    rows: Counter[str] = Counter()
    data = log.drop_columns(CHANGES)
    for number, kind in enumerate(log["_change_type"].to_pylist()):
        (line,) = canonical_rows(data.slice(number, 1))
        rows[line] += 1 if kind in {"insert", "update_after"} else -1
    assert min(rows.values()) >= 0
    return sorted(rows.elements())


@pytest.fixture
def history(warehouse: Path) -> History:
    """Four commits: a base, an upsert by key, a compaction, deletes by position."""
    history = History(warehouse, 2)
    history.append([(n, "old") for n in range(10)])
    history.delete_keys([1, 2, 20], [(1, "new"), (2, "old"), (20, "new")])
    history.compact()
    history.delete_positions(0, {0, 3}, [])
    return history


# Flink's tables


@pytest.mark.parametrize("name", flink_fixtures.names())
def test_changes_of_flinks_tables_lead_to_their_rows(
    flink: Flink, name: str, tmp_path: Path
) -> None:
    fixture, output = flink(name), tmp_path / "log.parquet"
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)

    lake.ok("scan", fixture.table, "--changes", "--key", "id,region", "--output", output)

    assert rows_after(pq.read_table(output)) == fixture.rows()


# What is shown


def test_an_upsert_is_shown_as_inserts_and_updates(lake: CommandLine, history: History) -> None:
    start, end = history.states[0][0], history.states[1][0]

    shown = lake.ok(
        *("scan", "db.t", "--changes", "--key", "id"),
        *("--from-snapshot", start, "--to-snapshot", end),
    )

    assert shown["result"]["preview"] == [
        {
            "id": number,
            "name": name,
            "_change_type": kind,
            "_change_ordinal": 0,
            "_commit_snapshot_id": end,
        }
        for number, name, kind in [
            (1, "old", "update_before"),
            (1, "new", "update_after"),
            (20, "new", "insert"),
        ]
    ]
    assert shown["plan"]["snapshots"] == 1
    assert shown["plan"]["delete_files"] == 1
    assert shown["base_snapshot_id"] == str(end)


def test_compactions_are_not_shown_as_changes(lake: CommandLine, history: History) -> None:
    start, end = history.states[1][0], history.states[2][0]

    shown = lake.ok(
        "scan", "db.t", "--changes", "--from-snapshot", start, "--to-snapshot", end, "--plan"
    )

    assert shown["status"] == "nothing-to-do"
    assert shown["plan"]["snapshots"] == shown["plan"]["files"] == 0


def test_the_whole_history_is_shown_without_a_start(lake: CommandLine, history: History) -> None:
    shown = lake.ok("scan", "db.t", "--changes", "--output", lake.warehouse.parent / "log.csv")

    assert shown["warnings"] == []
    with (lake.warehouse.parent / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ["id", "name", *CHANGES]
    assert [row["_change_ordinal"] for row in rows] == ["0"] * 10 + ["1"] * 3 + ["2"] * 2
    ids = [history.states[number][0] for number in (0, 1, 3)]
    assert [int(row["_commit_snapshot_id"]) for row in rows] == (
        [ids[0]] * 10 + [ids[1]] * 3 + [ids[2]] * 2
    )


def test_a_start_that_is_the_end_shows_no_changes(lake: CommandLine, history: History) -> None:
    shown = lake.ok("scan", "db.t", "--changes", "--from-snapshot", "main", "--output", "-q")

    assert shown["result"]["rows"] == 0


def test_an_inclusive_start_is_shown_too(lake: CommandLine, history: History) -> None:
    start = history.states[3][0]

    shown = lake.ok("scan", "db.t", "--changes", "--from-snapshot", start, "--inclusive")

    assert [row["_change_type"] for row in shown["result"]["preview"]] == ["delete", "delete"]


def test_keys_that_a_commit_changed_twice_are_reported_and_counted(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    history = History(warehouse, 2)
    history.append([(1, "a"), (1, "b"), (2, "a")])
    history.delete_keys([1, 2], [(1, "c"), (2, "c")])

    shown = lake.ok(
        *("scan", "db.t", "--changes", "--key", "id", "--from-snapshot", history.states[0][0]),
        *("--output", tmp_path / "log.json"),
    )

    lines = (tmp_path / "log.json").read_text().splitlines()
    kinds = sorted((row["id"], row["_change_type"]) for row in map(json.loads, lines))
    assert kinds == [
        *[(1, "delete"), (1, "delete"), (1, "insert")],
        *[(2, "update_after"), (2, "update_before")],
    ]
    assert "1 times a commit changed several rows with one key" in shown["warnings"][0]


def test_a_renamed_column_has_its_new_name(lake: CommandLine, history: History) -> None:

    with lake.table().update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("more", StringType())

    shown = lake.ok("scan", "db.t", "--changes", "--key", "id", "--where", "title == 'new'")

    assert [(row["title"], row["more"]) for row in shown["result"]["preview"]] == [
        ("new", None),
        ("new", None),
    ]


# Outputs


@pytest.mark.parametrize("name", ["log.parquet", "log.json", "log.csv", "log.arrow", "folder"])
def test_both_engines_write_the_same_log(
    lake_on: CommandLine, history: History, tmp_path: Path, name: str
) -> None:
    done = lake_on.ok(
        *("scan", "db.t", "--changes", "--key", "id", "--output", tmp_path / name),
        *(("--output-format", "parquet") if name == "folder" else ()),
    )

    assert done["result"]["rows"] == 15
    if name in {"log.parquet", "folder"}:
        log = pq.read_table(tmp_path / name)
        assert log.column_names == ["id", "name", *CHANGES]
        rows = Counter(tuple(json.loads(line)) for line in rows_after(log))
        assert rows == history.rows


def test_a_log_can_be_streamed(lake: CommandLine, history: History) -> None:
    result = lake("scan", "db.t", "--changes", "--output", "-")

    assert len(list(csv.DictReader(io.StringIO(result.stdout)))) == 15


def test_a_limit_cuts_the_log(lake: CommandLine, history: History, tmp_path: Path) -> None:
    lake.ok("scan", "db.t", "--changes", "--limit", "11", "--output", tmp_path / "log.json")

    assert len((tmp_path / "log.json").read_text().splitlines()) == 11


# What cannot be


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--key", "id"], "--key needs --changes"),
        (["--changes", "--snapshot", "main"], "--changes contradicts --snapshot"),
        (["--changes", "--key", "id,,x"], "contains an empty name"),
        (["--changes", "--inclusive"], "--inclusive needs --from-snapshot"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    lake: CommandLine, history: History, options: list[str], message: str
) -> None:
    assert message in error_of(lake("--json", "scan", "db.t", *options), 2)["message"]


def test_a_key_that_is_not_a_column_is_reported_with_the_columns(
    lake: CommandLine, history: History
) -> None:
    error = error_of(lake("--json", "scan", "db.t", "--changes", "--key", "nme"), 7)

    assert error["hint"] == "did you mean name? columns: id, name"


def test_a_column_with_the_name_of_a_logs_column_is_refused(
    lake: CommandLine, warehouse: Path
) -> None:
    fields = (NestedField(1, "id", LongType()), NestedField(2, "_change_type", StringType()))
    make_table(warehouse, schema=Schema(*fields))

    error = error_of(lake("--json", "scan", "db.t", "--changes"), 2)

    assert "_change_type" in error["message"]
    assert lake("scan", "db.t", "--changes", "--select", "id").exit_code == 0


def test_an_end_before_the_start_is_refused(lake: CommandLine, history: History) -> None:
    first, last = history.states[0][0], history.states[3][0]

    error = error_of(
        lake(
            *("--json", "scan", "db.t", "--changes"),
            *("--from-snapshot", last, "--to-snapshot", first),
        ),
        7,
    )

    assert "is not a parent ancestor" in error["message"]


# Expired starts


def expired(history: History, *numbers: int, forgets_parents: bool = False) -> None:
    """Take snapshots out of the table's metadata; some writers clear their children's parents as well."""
    gone = {history.states[number][0] for number in numbers}
    location = history.session.table("db.t").metadata_location
    path = Path(location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for kind in ("snapshots", "snapshot-log"):
        metadata[kind] = [item for item in metadata[kind] if item["snapshot-id"] not in gone]
    for item in metadata["snapshots"]:
        if forgets_parents and item.get("parent-snapshot-id") in gone:
            del item["parent-snapshot-id"]
    path.write_text(json.dumps(metadata))


def test_changes_after_an_expired_start_are_shown(lake: CommandLine, warehouse: Path) -> None:
    history = History(warehouse, 2)
    history.append([(1, "a"), (2, "a"), (3, "a")])
    history.append([(9, "z")])
    history.overwrite(0, [(4, "b")], kept=2)
    start = history.states[1][0]
    before = lake.ok("scan", "db.t", "--changes", "--from-snapshot", start)["result"]["preview"]
    expired(history, 0, 1)

    shown = lake.ok("scan", "db.t", "--changes", "--from-snapshot", start)

    assert shown["result"]["preview"] == before
    assert len(before) >= 2


@pytest.mark.parametrize("forgets_parents", [False, True])
def test_a_history_without_its_beginning_is_shown_from_where_it_begins(
    lake: CommandLine, warehouse: Path, forgets_parents: bool
) -> None:
    history = History(warehouse, 2)
    history.append([(1, "a"), (2, "a"), (3, "a")])
    history.append([(9, "z")])
    history.append([(10, "z")])
    expired(history, 0, forgets_parents=forgets_parents)

    shown = lake.ok("scan", "db.t", "--changes")

    assert [row["id"] for row in shown["result"]["preview"]] == [9, 10]
    assert shown["warnings"] == ["older snapshots have expired: their changes are not in this scan"]


def test_what_deletes_did_after_an_expired_start_is_refused(
    lake: CommandLine, history: History
) -> None:
    start, first = history.states[0][0], history.states[1][0]
    expired(history, 0)

    error = error_of(lake("--json", "scan", "db.t", "--changes", "--from-snapshot", start), 7)

    assert f"cannot determine the rows that snapshot {first} deleted" in error["message"]
    assert error["hint"] == f"start with --from-snapshot {first}"
    assert lake("scan", "db.t", "--changes", "--from-snapshot", first).exit_code == 0


def test_only_files_whose_deletes_changed_are_read(warehouse: Path) -> None:
    history = History(warehouse, 2)
    for start in range(0, 50, 10):
        history.append([(n, "a") for n in range(start, start + 10)])
    history.delete_positions(2, {1}, [])
    history.append([(99, "a")])

    def read(start: int) -> ScanFacts:
        options = ScanOptions(from_snapshot=str(history.states[start][0]))
        return plan_changelog(history.session.table("db.t"), options).facts()

    assert read(4).files == 2
    assert read(5).files == 1


def test_only_row_groups_that_lost_rows_are_read(
    lake: CommandLine, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(warehouse, 2)
    # Row groups of three rows each.
    history.append([(n, "a") for n in range(30)])
    history.delete_positions(0, {4}, [])
    # The check of column chunks opens row groups and reads nothing.
    monkeypatch.setattr(
        "lake.core.data.formats.parquet.chunk_checks.ChunkChecks._describe", lambda *_: None
    )
    read: list[list[int]] = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        pq.ParquetFile,
        "iter_batches",
        lambda self, *rest, row_groups, **named: (
            read.append(row_groups) or real(self, *rest, row_groups=row_groups, **named)
        ),
    )

    shown = lake.ok("scan", "db.t", "--changes", "--from-snapshot", history.states[0][0])

    assert [row["id"] for row in shown["result"]["preview"]] == [4]
    # The delete file's only row group, then the data file's second.
    assert read == [[0], [1]]


def test_row_groups_without_rows_are_not_read_and_count_as_deleted(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    history = History(warehouse, 2)
    history.append([(n, "a") for n in range(30)])
    history.delete_positions(0, {3, 4, 5, 7}, [])

    lake.ok("scan", "db.t", "--output", tmp_path / "rows.json")

    rows = [json.loads(line)["id"] for line in (tmp_path / "rows.json").read_text().splitlines()]
    assert rows == [0, 1, 2, 6, *range(8, 30)]
