"""Change logs that find old rows by key, from tables, as files arrive, and divided among tables."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.change_logs import Row, shown, write_log
from support.tables.iceberg_tables import files_below, make_table

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType(), required=True),
    NestedField(3, "value", LongType(), required=True),
    identifier_field_ids=[1],
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
BY_VALUE = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "value"))
LOG = ("--changes-column", "op", "--changes-mode", "upsert")
LOOKUP = (*LOG, "--deletes", "position", "--key", "id")
BY_SEQUENCE = (*LOOKUP, "--sequence", "value")


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", engine="inline")


def csv(path: Path, *lines: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(["op,id,part,value", *lines]) + "\n")
    moment = time.time() - 60
    os.utime(path, (moment, moment))
    return path


class Ordered:
    """Rows by key, and changes of them in any order; the column value is their sequence."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sequence = 0
        self.rows: dict[int, Row] = {}

    def log(self, count: int) -> list[Row]:
        """Return changes of which the newest of each key counts."""
        changes = []
        for _ in range(count):
            self._sequence += 1
            kind, key = self._random.choice(["+I", "+U", "+U", "-D"]), self._random.randrange(20)
            row = {"id": key, "part": self._random.choice("xyz"), "value": self._sequence}
            changes.append({"op": kind, **row})
            if kind == "-D":
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self._random.shuffle(changes)
        return changes


# From a table


def test_a_table_of_changes_is_followed_in_the_order_of_a_column(
    lake: CommandLine, tmp_path: Path
) -> None:
    model = Ordered(seed=3)
    follow = ("ingest", "db.t", "--from-table", "db.log", "--follow", "--stream", "s", "--once")
    follow = (*follow, "--create", "--partition-by", "part", *BY_SEQUENCE)
    for _ in range(2):
        for part in "ab":
            log = write_log(tmp_path / f"{part}.parquet", model.log(30))
            lake.ok("ingest", "db.log", "--create", log)
        done = lake.ok(*follow)

        assert shown(lake.rows()) == shown(list(model.rows.values()))
        assert (done["result"]["epochs"], done["result"]["rows_read"]) == (1, 60)
    assert lake.ok(*follow)["status"] == "nothing-to-do"
    table = lake.table()
    assert table.schema().column_names == ["id", "part", "value"]
    summary = table.current_snapshot().summary.additional_properties
    assert summary["total-equality-deletes"] == "0"
    assert int(summary["total-position-deletes"]) > 0

    # A compaction writes the changes of several commits into one file.
    lake.ok("compact", "db.log", "--rewrite-all")
    lake.ok("ingest", "db.u", "--from-table", "db.log", "--create", *BY_SEQUENCE)
    assert shown(lake.rows("db.u")) == shown(list(model.rows.values()))


def test_of_equal_values_the_change_of_the_newest_commit_counts(
    lake: CommandLine, tmp_path: Path
) -> None:
    for number, part in enumerate("xyzx"):
        log = csv(tmp_path / f"{number}.csv", f"+U,1,{part},5", f"+U,{number + 2},{part},5")
        lake.ok("ingest", "db.log", "--create", log)
    lake.ok("ingest", "db.log", csv(tmp_path / "last.csv", "-D,2,x,5"))

    words = ("--from-table", "db.log", "--create", "--partition-by", "part", *BY_SEQUENCE)
    first = lake.ok("ingest", "db.t", *words)
    again = lake.ok("ingest", "db.t", *words)

    expected = [(1, "x"), (3, "y"), (4, "z"), (5, "x")]
    assert sorted((row["id"], row["part"]) for row in lake.rows()) == expected
    assert (first["result"]["rows_read"], first["result"]["rows_inserted"]) == (9, 4)
    assert (again["result"]["rows_updated"], again["result"]["rows_inserted"]) == (4, 0)


def test_late_changes_and_ignored_deletes_of_a_table_are_counted(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    lake.ok("ingest", "db.t", csv(tmp_path / "a.csv", "+I,1,x,5", "+I,2,x,5"), *LOOKUP)
    log = csv(tmp_path / "b.csv", "+U,1,y,4", "-D,2,x,6", "+U,3,y,1", "-U,3,y,1")
    lake.ok("ingest", "db.log", "--create", log)

    done = lake.ok("ingest", "db.t", "--from-table", "db.log", *BY_SEQUENCE, "--ignore-deletes")

    result = done["result"]
    names = ("rows_inserted", "rows_updated", "rows_deleted", "rows_stale", "deletes_ignored")
    assert [result[name] for name in names] == [1, 0, 0, 1, 1]
    assert sorted(row["id"] for row in lake.rows()) == [1, 2, 3]


def test_changes_of_a_table_without_a_key_are_set_aside_with_their_kind(
    lake: CommandLine, tmp_path: Path
) -> None:
    log = csv(tmp_path / "a.csv", "+I,1,x,1", "-D,,x,2", "+U,1,y,3")
    lake.ok("ingest", "db.log", "--create", log)
    words = ("ingest", "db.t", "--from-table", "db.log", "--create", *BY_SEQUENCE)

    refused = lake("--json", *words)
    done = lake.ok(*words, "--max-rejects", "99", "--rejects", tmp_path / "bad.csv")

    assert refused.exit_code == 7
    assert "NULL in the key column id" in refused.json()["error"]["message"]
    assert done["result"]["rows_rejected"] == 1
    assert "-D" in (tmp_path / "bad.csv").read_text()
    assert lake.rows() == [{"id": 1, "part": "y", "value": 3}]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (LOOKUP, 2, "--sequence"),
        ((*LOG, "--key", "id"), 2, "--sequence"),
        ((*LOG[:3], "retract", "--key", "id"), 2, "--sequence"),
        ((*LOG[:1], "kind", *BY_SEQUENCE[2:]), 7, "no column kind"),
        ((*LOG[:1], "value", *BY_SEQUENCE[2:]), 2, "value is a column of the table"),
        ((*LOG[:1], "number", *BY_SEQUENCE[2:]), 7, "number"),
    ],
    ids=[
        "no order",
        "by equality",
        "retract",
        "no kinds",
        "kinds in the table",
        "kinds of a number",
    ],
)
def test_changes_of_a_table_need_an_order_and_their_kinds(
    lake: CommandLine, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    log = tmp_path / "a.json"
    log.write_text('{"op": "+I", "number": 1, "id": 1, "part": "x", "value": 1}\n')
    lake.ok("ingest", "db.log", "--create", log)

    refused = lake("--json", "ingest", "db.t", "--from-table", "db.log", "--evolve", *words)

    assert refused.exit_code == code, refused
    assert message in refused.json()["error"]["message"]
    assert lake.rows() == []


@pytest.mark.slow
def test_a_service_applies_the_changes_that_a_table_gets(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("ingest", "db.log", "--create", csv(tmp_path / "a.csv", "+I,1,x,1", "+I,2,x,1"))
    words = ("ingest", "db.t", "--from-table", "db.log", "--follow", "--stream", "s", "--create")
    words = (*words, "--partition-by", "part", "--commit-interval", "1s", *BY_SEQUENCE)
    process = lake.start("--json", *words)
    _until(lambda: len(lake.rows()) == 2)
    lake.ok("ingest", "db.log", csv(tmp_path / "b.csv", "+U,1,y,3", "-D,2,x,2", "+U,1,z,2"))
    _until(lambda: lake.rows() == [{"id": 1, "part": "y", "value": 3}])
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)

    result = json.loads(out)["result"]
    assert (process.returncode, result["stopped_by"], result["epochs"]) == (0, "signal", 2)


def _until(is_true: Callable[[], bool]) -> None:
    for _ in range(600):
        with suppress(NoSuchTableError):
            if is_true():
                return
        time.sleep(0.1)
    raise AssertionError("it did not become true")


# As files arrive


def test_each_epoch_of_a_watch_moves_rows_and_drops_late_ones(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    drop = tmp_path / "drop"
    csv(drop / "1.csv", "+I,1,x,5", "+I,2,x,5", "+I,3,x,5")
    csv(drop / "2.csv", "+U,1,y,6", "+U,2,y,4", "-D,3,x,9")
    watch = ("ingest", "db.t", "--watch", drop, "--stream", "s", "--state", tmp_path / "state")
    watch = (*watch, "--once", "--commit-files", "1", *BY_SEQUENCE)

    done = lake.ok(*watch, "--ignore-deletes")

    result = done["result"]
    assert (result["epochs"], result["rows_inserted"], result["rows_updated"]) == (2, 3, 1)
    assert {row["id"]: row["part"] for row in lake.rows()} == {1: "y", 2: "x", 3: "x"}
    csv(drop / "3.csv", "-D,3,,9", "-D,2,x,4")
    assert lake.ok(*watch)["result"]["rows_deleted"] == 1
    assert {row["id"]: row["part"] for row in lake.rows()} == {1: "y", 2: "x"}


# Divided among tables


def test_divided_changes_move_rows_between_the_partitions_of_their_table(
    lake: CommandLine, tmp_path: Path
) -> None:
    for part in "xy":
        make_table(lake.warehouse, f"db.{part}", SCHEMA, BY_VALUE)
    route = ("--route", "part", *LOOKUP)
    lake.ok("ingest", "db.{part}", csv(tmp_path / "a.csv", "+I,1,x,1", "+I,1,y,1"), *route)
    log = csv(tmp_path / "b.csv", "+U,1,x,2", "-U,1,x,2", "+U,1,x,3", "-D,1,y,", "-D,9,y,")

    done = lake.ok("ingest", "db.{part}", log, *route, "--run-id", "b")
    again = lake.ok("ingest", "db.{part}", log, *route, "--run-id", "b")

    assert lake.rows("db.x") == [{"id": 1, "part": "x", "value": 3}]
    assert lake.rows("db.y") == []
    assert [(item["table"], item["rows"]) for item in done["result"]["tables"]] == [
        ("db.x", 1),
        ("db.y", 0),
    ]
    assert again["status"] == "nothing-to-do"


def test_divided_changes_are_compared_with_the_rows_of_their_table(
    lake: CommandLine, tmp_path: Path
) -> None:
    route = ("--route", "part", *BY_SEQUENCE, "--ignore-deletes")
    first = csv(tmp_path / "a.csv", "+I,1,x,5", "+I,1,y,5")
    lake.ok("ingest", "db.{part}", first, "--create", *route)
    # A value in one table is not compared with that of another one.
    late = csv(tmp_path / "b.csv", "+U,1,x,4", "+U,1,y,6", "-D,1,y,7", "+I,1,z,1", "-D,1,w,9")

    done = lake.ok("ingest", "db.{part}", late, "--create", *route)

    by_table = {item["table"]: item for item in done["result"]["tables"]}
    assert [by_table[f"db.{part}"]["rows"] for part in "wxyz"] == [0, 0, 1, 1]
    assert {part: lake.rows(f"db.{part}")[0]["value"] for part in "xyz"} == dict(
        zip("xyz", (5, 6, 1), strict=True)
    )


def test_a_divided_row_whose_sequence_is_not_a_number_is_set_aside_with_its_line(
    lake: CommandLine, tmp_path: Path
) -> None:
    schema = Schema(*SCHEMA.fields[:2], NestedField(3, "value", DoubleType()))
    make_table(lake.warehouse, "db.x", schema)
    log = csv(tmp_path / "a.csv", "+I,1,x,1.5", "+I,2,x,nan", "-D,3,x,")
    words = ("ingest", "db.{part}", log, "--route", "part", *BY_SEQUENCE)

    refused = lake("--json", *words)
    done = lake.ok(*words, "--max-rejects", "99", "--rejects", tmp_path / "bad.json")

    assert refused.exit_code == 7
    assert "NaN in the sequence column value" in refused.json()["error"]["message"]
    assert done["result"]["rows_rejected"] == 1
    assert json.loads((tmp_path / "bad.json").read_text())["_line"] == 3
    assert [row["id"] for row in lake.rows("db.x")] == [1]


def test_a_watch_divides_moving_changes(lake: CommandLine, tmp_path: Path) -> None:
    drop = tmp_path / "drop"
    csv(drop / "1.csv", "+I,1,x,1", "+I,2,y,1")
    csv(drop / "2.csv", "+U,1,x,2", "-D,2,y,")
    watch = ("ingest", "db.{part}", "--create", "--partition-by", "value", "--route", "part")
    watch = (*watch, "--watch", drop, "--stream", "s", "--state", tmp_path / "state", "--once")

    done = lake.ok(*watch, "--commit-files", "1", *LOOKUP)

    assert done["result"]["epochs"] == 2
    assert lake.rows("db.x") == [{"id": 1, "part": "x", "value": 2}]
    assert lake.rows("db.y") == []


# Before they are committed


@pytest.mark.parametrize("deletes", ["position", "copy-on-write"])
def test_a_load_that_reads_the_table_is_not_staged_but_can_be_checked_in_a_branch(
    lake: CommandLine, tmp_path: Path, deletes: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    lake.ok("ingest", "db.t", csv(tmp_path / "a.csv", "+I,1,x,1", "+I,2,x,1"), *LOOKUP)
    log = csv(tmp_path / "b.csv", "+U,1,y,2", "-D,2,,")
    words = ("ingest", "db.t", log, *LOG, "--key", "id", "--deletes", deletes)
    before = files_below(lake.warehouse)

    refused = lake("--json", *words, "--stage")

    error = refused.json()["error"]
    assert refused.exit_code == 2
    assert f"--stage and --deletes {deletes} cannot be combined" in error["message"]
    assert "--branch" in error["hint"]
    assert files_below(lake.warehouse) == before
    lake.ok("ref", "db.t", "--branch-create", "check")
    lake.ok(*words, "--branch", "check")
    assert sorted(row["id"] for row in lake.rows()) == [1, 2]
    lake.ok("ref", "db.t", "--fast-forward", "main", "--to", "check")
    assert lake.rows() == [{"id": 1, "part": "y", "value": 2}]
