"""`lake ingest --route`: each row is in the table that its value names, once, or is set aside with its place."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine, Result
from support.faults.killed_runs import SENDING, SENT, killed
from support.tables.iceberg_tables import (
    open_session,
    pyiceberg_catalog,
    refused_with,
    stopped,
)

from lake.core.base.errors import RefusedError
from lake.core.base.settings import Settings
from lake.core.transaction.session import Session

DAY = [
    {"kind": "login", "user": "a", "at": "2026-01-31T10:00:00Z"},
    {"kind": "pay", "user": "b", "amount": 7},
    {"kind": "login", "user": "c"},
    {"kind": "pay", "user": "b", "amount": 1.5},
]
AGAIN = ("--create", "--evolve", "--run-id", "2026-01-31")


def tables_of(lake: CommandLine, namespace: str = "audit") -> list[str]:
    return sorted(name[-1] for name in pyiceberg_catalog(lake.warehouse).list_tables(namespace))


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def route(lake: CommandLine, *words: object) -> Result:
    return lake("--json", "ingest", "audit.{kind}", *words, "--route", "kind")


def routed(lake: CommandLine, *words: object, code: int = 0) -> dict[str, Any]:
    result = route(lake, *words)
    assert result.exit_code == code, result
    return result.json()


def items(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["table"]: item for item in document["result"]["tables"]}


@pytest.fixture
def day(tmp_path: Path) -> Path:
    return write(tmp_path / "day.json", DAY)


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", engine="inline")


def test_each_row_is_loaded_into_the_table_of_its_value(lake: CommandLine, day: Path) -> None:
    document = routed(lake, day, *AGAIN)

    assert lake.rows("audit.pay") == [
        {"kind": "pay", "user": "b", "amount": 7.0},
        {"kind": "pay", "user": "b", "amount": 1.5},
    ]
    login = lake.rows("audit.login")
    assert [(row["kind"], row["user"], row["at"] is None) for row in login] == [
        ("login", "a", False),
        ("login", "c", True),
    ]
    assert document["result"]["tables"] == [
        {
            "table": name,
            "snapshot_id": str(lake.table(name).metadata.current_snapshot_id),
            "rows": 2,
            "created": True,
            "new_columns": [],
            "status": "done",
            "error": None,
        }
        for name in ("audit.login", "audit.pay")
    ]
    counts = [document["result"][f"rows_{what}"] for what in ("read", "written", "rejected")]
    assert counts == [4, 4, 0]


def test_a_repetition_with_the_run_id_loads_nothing(lake: CommandLine, day: Path) -> None:
    first = routed(lake, day, *AGAIN)
    second = routed(lake, day, *AGAIN)

    assert second["status"] == "nothing-to-do"
    assert second["result"]["rows_written"] == 0
    ids = {item["table"]: item["snapshot_id"] for item in first["result"]["tables"]}
    assert {name: item["snapshot_id"] for name, item in items(second).items()} == ids
    assert len(lake.rows("audit.pay")) == 2


def test_a_table_with_the_run_id_of_another_source_stays_as_it_is(
    lake: CommandLine, day: Path, tmp_path: Path
) -> None:
    routed(lake, day, *AGAIN)
    other = write(tmp_path / "other.json", [{"kind": "pay", "n": 9}, {"kind": "new", "n": 1}])

    document = routed(lake, other, *AGAIN)

    statuses = {name: item["status"] for name, item in items(document).items()}
    assert statuses == {"audit.new": "done", "audit.pay": "nothing-to-do"}
    assert len(lake.rows("audit.pay")) == 2


def test_a_table_gets_only_the_new_columns_that_its_rows_have(
    lake: CommandLine, day: Path, tmp_path: Path
) -> None:
    routed(lake, day, "--create")
    more = write(tmp_path / "more.json", [{"kind": "pay", "tax": 2}, {"kind": "login", "ip": "x"}])

    document = routed(lake, more, "--evolve")

    new = {name: item["new_columns"] for name, item in items(document).items()}
    assert new == {"audit.login": ["ip"], "audit.pay": ["tax"]}
    assert set(lake.rows("audit.pay")[0]) == {"kind", "user", "amount", "tax"}


BAD = b"""kind,n,note
ok,1,a
a b,2,b
,3,c

ok,x,"d
e"
../up,5,f
ok,6
other,7,g
\xc3\xa9,8,h
"""
SET_ASIDE = [
    ("3", "a b,2,b", "'a b'"),
    ("4", ",3,c", "NULL"),
    ("6", 'ok,x,"d\ne"', "not a valid long"),
    ("8", "../up,5,f", "'../up'"),
    ("9", "ok,6", "3 columns expected"),
    ("11", "\u00e9,8,h", "'\u00e9'"),
]


def test_rows_without_a_table_are_set_aside_with_their_line(
    lake: CommandLine, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("kind,n,note\nok,0,z\n")
    routed(lake, good, "--create")
    bad.write_bytes(BAD)
    rejects = tmp_path / "rejects.csv"
    words = (bad, "--create", "--max-rejects", "99", "--rejects", rejects, "--run-id", "one")

    document = routed(lake, *words)

    with rejects.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [(row["_line"], row["_row"]) for row in found] == [row[:2] for row in SET_ASIDE]
    assert {row["_file"] for row in found} == {str(bad)}
    for row, (_, _, reason) in zip(found, SET_ASIDE, strict=True):
        assert reason in row["_reason"]
    assert document["result"]["rows_rejected"] == len(SET_ASIDE)
    assert sorted(row["n"] for row in lake.rows("audit.ok")) == [0, 1]
    assert tables_of(lake) == ["ok", "other"]
    # The same command finds the file that it wrote.
    assert routed(lake, *words)["status"] == "nothing-to-do"
    rejects.write_text("of something else\n")
    assert routed(lake, *words, code=2)["error"]["kind"] == "invalid-request"


@pytest.mark.parametrize(
    "value", ["a b", "a.b", "../up", "", None, "a\n", "\u00e9", "x" * 129, "a;b"]
)
@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_value_that_names_no_table_fails_the_load(
    lake: CommandLine, tmp_path: Path, value: str | None, suffix: str
) -> None:
    path = tmp_path / f"rows.{suffix}"
    rows = [{"kind": "fine", "n": 1}, {"kind": value, "n": 2}]
    if suffix == "json":
        write(path, rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)

    document = routed(lake, path, "--create", code=7)

    assert f"{path}, line 2: " in document["error"]["message"]
    assert pyiceberg_catalog(lake.warehouse).list_namespaces() == []


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (pa.array([1, 22, 1], pa.int32()), ["1", "22"]),
        (pa.array([True, False, True]), ["false", "true"]),
        (pa.array(["x", "y", "x"]).dictionary_encode(), ["x", "y"]),
    ],
    ids=["integers", "booleans", "dictionary"],
)
def test_values_of_other_types_name_tables(
    lake: CommandLine, tmp_path: Path, values: pa.Array, names: list[str]
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"kind": values, "id": [b"\1" * 16, None, b"\2" * 16]}), path)

    routed(lake, path, "--create")

    assert tables_of(lake) == names
    assert sum(len(lake.rows(f"audit.{name}")) for name in names) == 3


def test_a_column_of_another_type_is_refused(lake: CommandLine, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.json", [{"kind": 1.5}])
    assert "double" in routed(lake, path, "--create", code=2)["error"]["message"]


def test_cells_of_csv_have_the_type_of_their_table(lake: CommandLine, tmp_path: Path) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("kind,code\na,x\n")
    routed(lake, first, "--create")
    second.write_text("kind,code\na,007\nb,008\nb,9\n007,1\n7,2\n")

    routed(lake, second, "--create")

    assert sorted(row["code"] for row in lake.rows("audit.a")) == ["007", "x"]
    assert sorted(row["code"] for row in lake.rows("audit.b")) in (["008", "9"], [8, 9])
    assert len(lake.rows("audit.7")) == len(lake.rows("audit.007")) == 1


def test_too_many_tables_are_refused_before_anything_is_written(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.json", [{"kind": f"k{number}"} for number in range(1_000)])

    assert routed(lake, path, "--create", code=3)["error"]["kind"] == "refused"
    assert pyiceberg_catalog(lake.warehouse).list_namespaces() == []
    assert routed(lake, path, "--create", "--max-tables", "999", "--dry-run", code=3)["plan"] == {}
    few = write(tmp_path / "few.json", [{"kind": f"k{number}"} for number in range(3)])
    assert routed(lake, few, "--create", "--max-tables", "2", code=3)
    assert len(items(routed(lake, few, "--create", "--max-tables", "3"))) == 3


def test_a_table_that_fails_does_not_stop_the_others(
    lake: CommandLine, day: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"kind": ["pay"], "amount": [{"net": 1}]}), other)
    lake.ok("ingest", "audit.pay", other, "--create")

    document = routed(lake, day, *AGAIN, code=6)

    assert document["status"] == "partial"
    failed = items(document)["audit.pay"]
    assert (failed["snapshot_id"], failed["rows"], failed["error"]["kind"]) == (
        None,
        0,
        "bad-input",
    )
    assert "amount" in failed["error"]["message"]
    assert items(document)["audit.login"]["rows"] == 2
    assert any("audit.pay was not loaded" in warning for warning in document["warnings"])
    # Once the reason is gone, the same command loads the rest.
    pyiceberg_catalog(lake.warehouse).drop_table("audit.pay")
    again = routed(lake, day, *AGAIN)
    assert {name: item["status"] for name, item in items(again).items()} == {
        "audit.login": "nothing-to-do",
        "audit.pay": "done",
    }
    assert len(lake.rows("audit.login")) == len(lake.rows("audit.pay")) == 2


def test_a_row_that_does_not_fit_its_table_is_named_before_anything_is_loaded(
    lake: CommandLine, day: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"kind": ["pay"], "amount": [True]}), other)
    lake.ok("ingest", "audit.pay", other, "--create")

    message = routed(lake, day, *AGAIN, code=7)["error"]["message"]

    assert message == f"audit.pay: column amount of {day}, line 2: '7' is not a valid boolean"
    assert tables_of(lake) == ["pay"]


def test_a_missing_table_fails_alone(lake: CommandLine, day: Path, tmp_path: Path) -> None:
    routed(lake, write(tmp_path / "login.json", DAY[:1]), "--create")

    document = routed(lake, day, "--evolve", code=6)

    error = items(document)["audit.pay"]["error"]
    assert (error["kind"], error["hint"]) == ("not-found", "add --create to create the table")
    assert "audit.pay" in error["message"]
    assert len(lake.rows("audit.login")) == 3
    assert any("has no --run-id" in warning for warning in document["warnings"])
    # A repetition is not suggested: it would load rows twice.
    plain = lake("ingest", "audit.{kind}", day, "--route", "kind", "--evolve")
    named = lake("ingest", "audit.{kind}", day, "--route", "kind", "--evolve", "--run-id", "one")
    assert ["next: lake" in one.stdout + one.stderr for one in (plain, named)] == [False, True]


def test_new_columns_need_evolve(lake: CommandLine, day: Path, tmp_path: Path) -> None:
    routed(lake, day, "--create")
    more = write(
        tmp_path / "more.json", [{"kind": "pay", "tax": 2}, {"kind": "login", "user": "d"}]
    )

    document = routed(lake, more, code=6)

    assert "tax" in items(document)["audit.pay"]["error"]["message"]
    assert len(lake.rows("audit.login")) == 3


@pytest.mark.parametrize(
    ("point", "existing"),
    [
        (SENT, True),
        pytest.param(SENT, False, marks=pytest.mark.slow),
        pytest.param(SENDING, True, marks=pytest.mark.slow),
        pytest.param(SENDING, False, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_killed_run_is_ended_by_its_repetition(
    lake: CommandLine, day: Path, point: tuple[str, str, str], existing: bool
) -> None:
    before = 0
    if existing:
        routed(lake, day, "--create")
        before = 2
    words = ("ingest", "audit.{kind}", day, "--route", "kind", *AGAIN)
    killed(lake, point, *words)
    if point == SENT:
        assert len(lake.rows("audit.login")) == before + 2

    document = routed(lake, day, *AGAIN)

    assert items(document)["audit.pay"]["status"] == "done"
    for name in ("audit.login", "audit.pay"):
        assert len(lake.rows(name)) == before + 2
    assert routed(lake, day, *AGAIN)["status"] == "nothing-to-do"


def test_an_unknown_outcome_is_reported_without_secrets_and_repeated(
    lake: CommandLine, day: Path
) -> None:
    routed(lake, day, "--create")
    shown = route(lake, day, *AGAIN, "--dry-run")
    unanswered = refused_with(TimeoutError("504 password=hunter2hunter2"))
    result = route(lake.with_faults(unanswered), day, *AGAIN)
    words = [*AGAIN[:-1], "another"]
    text = lake.with_faults(unanswered)("ingest", "audit.{kind}", day, "--route", "kind", *words)

    assert (shown.exit_code, result.exit_code) == (0, 6), result
    shown_texts = "".join(part for one in (result, text) for part in (one.stdout, one.stderr))
    assert "hunter2" not in shown_texts
    assert "password=***" in shown_texts
    failed = items(result.json())["audit.login"]
    assert (failed["status"], failed["error"]["kind"]) == ("unknown", "unknown")
    assert routed(lake, day, *AGAIN)["status"] == "done"
    assert [len(lake.rows(f"audit.{name}")) for name in ("login", "pay")] == [4, 6]


def test_a_stopped_run_reports_the_tables_that_were_loaded(lake: CommandLine, day: Path) -> None:
    routed(lake, day, "--create")
    document = routed(lake.with_faults(stopped), day, *AGAIN, code=143)

    assert document["error"]["kind"] == "stopped"
    assert [item["table"] for item in document["result"]["tables"]] == ["audit.login"]
    assert items(routed(lake, day, *AGAIN))["audit.pay"]["rows"] == 2
    assert [len(lake.rows(f"audit.{name}")) for name in ("login", "pay")] == [4, 4]


def test_names_that_a_catalog_folds_to_one_table_are_refused(
    lake: CommandLine, tmp_path: Path
) -> None:
    def opened(_settings: Settings) -> Session:
        session = open_session(lake.warehouse)
        load = session.catalog.load
        session.catalog.load = lambda name: load(name.lower())  # type: ignore[method-assign]
        return session

    path = write(tmp_path / "rows.json", [{"kind": "a", "n": 1}, {"kind": "A", "n": 2}])
    lake.ok("ingest", "audit.a", write(tmp_path / "a.json", [{"kind": "a", "n": 0}]), "--create")
    lake.open_session = opened

    document = routed(lake, path, "--run-id", "one", code=6)

    kinds = [item["error"] and item["error"]["kind"] for item in document["result"]["tables"]]
    assert sorted(map(str, kinds)) == ["None", RefusedError.kind]


def test_rows_replace_those_with_their_key_in_each_table(lake: CommandLine, tmp_path: Path) -> None:
    words = ("--create", "--upsert", "--key", "id")
    first = [{"kind": kind, "id": 1, "v": kind} for kind in ("a", "b")]
    routed(lake, write(tmp_path / "first.json", first), *words)
    second = [
        {"kind": "a", "id": 1, "v": "new"},
        {"kind": "b", "id": 2, "v": "more"},
        {"kind": "b", "v": "no key"},
    ]
    rejects = tmp_path / "rejects.json"

    document = routed(
        lake,
        write(tmp_path / "more.json", second),
        *words,
        "--max-rejects",
        "99",
        "--rejects",
        rejects,
    )

    assert [row["v"] for row in lake.rows("audit.a")] == ["new"]
    assert sorted(row["v"] for row in lake.rows("audit.b")) == ["b", "more"]
    assert document["result"]["rows_rejected"] == 1
    assert json.loads(rejects.read_text())["_line"] == 3


def test_a_dry_run_lists_the_tables_with_their_rows(lake: CommandLine, day: Path) -> None:
    document = routed(lake, day, "--create", "--dry-run")

    assert document["status"] == "dry-run"
    planned = {item["table"]: item for item in document["plan"]["tables"]}
    assert {name: (item["rows"], item["created"]) for name, item in planned.items()} == {
        "audit.login": (2, True),
        "audit.pay": (2, True),
    }
    assert pyiceberg_catalog(lake.warehouse).list_namespaces() == []
    text = lake("ingest", "audit.{kind}", day, "--route", "kind", "--create", "--dry-run")
    assert "would load 4 rows into 2 tables (2 new); nothing was written" in (
        text.stdout + text.stderr
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--overwrite",),
        ("--overwrite-where", "kind = 'a'"),
        ("--replace-partitions",),
        ("--stage",),
        ("--no-header",),
        ("--max-tables", "0"),
        ("--key", "id"),
    ],
    ids=lambda words: str(words[0]),
)
def test_options_that_need_one_table_are_refused(
    lake: CommandLine, day: Path, words: tuple[str, ...]
) -> None:
    assert route(lake, day, *words).exit_code == 2


def test_the_name_must_contain_the_column(lake: CommandLine, day: Path) -> None:
    assert lake("ingest", "audit.t", day, "--route", "kind", "--create").exit_code == 2
    assert lake("ingest", "audit.t", day, "--max-tables", "3", "--create").exit_code == 2
    assert lake("ingest", "audit.{other}", day, "--route", "other", "--create").exit_code == 2
