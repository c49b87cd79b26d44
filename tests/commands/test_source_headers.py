"""What the names of columns show: a wrong delimiter, a file without a header, a file of another table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine, Result
from support.tables.csv_files import csv


@pytest.fixture(autouse=True)
def _inline(lake: CommandLine) -> None:
    lake.engine = "inline"


def error_of(result: Result) -> dict[str, str]:
    assert result.exit_code == 7, result
    error: dict[str, str] = result.json()["error"]
    return error


@pytest.mark.parametrize("more", [(), ("--rejects", "r.csv"), ("--dry-run",)])
@pytest.mark.parametrize("line", ["Kunde;Datum|Betrag", "Kunde|Datum\tx", "Kunde;Datum\tx"])
def test_a_delimiter_that_is_not_known_creates_no_table(
    lake: CommandLine, tmp_path: Path, line: str, more: tuple[str, ...]
) -> None:
    source = csv(tmp_path / "in.csv", line, line.replace("Kunde", "1"))
    options = [tmp_path / word if word.endswith(".csv") else word for word in more]
    error = error_of(lake("--json", "ingest", "db.t", source, "--create", *options))
    assert "Kunde" in error["message"]
    assert "--delimiter" in error["hint"]


@pytest.mark.parametrize("delimiter", [";", "|", "\t", ","])
def test_a_wrong_delimiter_is_warned_about_even_quietly(
    lake: CommandLine, tmp_path: Path, delimiter: str
) -> None:
    lines = [delimiter.join(cells) for cells in (("Kunde", "Datum", "Betrag"), ("a", "b", "1"))]
    source = csv(tmp_path / "in.csv", *lines)
    warned = lake("-q", "ingest", "db.t", source, "--create", "--delimiter", "~")
    assert warned.exit_code == 0
    assert "its delimiter may be another one" in warned.stderr
    assert lake.ok("ingest", "db.u", source, "--create", "--delimiter", delimiter)["warnings"] == []


def test_most_rows_rejected_is_a_failure_unless_it_is_allowed(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = csv(tmp_path / "in.csv", "a,b", "1,2", "1;2", "3;4")
    rejects = tmp_path / "rejects.csv"
    command = ("ingest", "db.t", source, "--create", "--rejects", rejects)
    error = error_of(lake("--json", *command))
    assert "2 of 3 rows cannot be loaded" in error["message"]
    assert not rejects.exists()
    done = lake.ok(*command, "--max-rejects", "2")
    assert done["result"]["rows_rejected"] == 2
    routed = (
        "ingest",
        "routed.{a}",
        csv(tmp_path / "r.csv", "a,b", "t,1", "-,1", "-,2"),
        "--create",
    )
    routed = (*routed, "--route", "a", "--rejects", tmp_path / "routed.csv")
    assert "2 of 3 rows" in error_of(lake("--json", *routed))["message"]


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_of_different_columns_need_an_option(
    lake: CommandLine, tmp_path: Path, existing: bool, kind: str
) -> None:
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    if kind == "csv":
        csv(first, "id,city", "1,x")
        csv(second, "id,town", "2,y")
    else:
        pq.write_table(pa.table({"id": [1], "city": ["x"]}), first)
        pq.write_table(pa.table({"id": [2], "town": ["y"]}), second)
    if existing:
        lake.ok("ingest", "db.t", csv(tmp_path / "0.csv", "id,city,town", "0,a,b"), "--create")
    command = ("ingest", "db.t", first, second, "--create")
    error = error_of(lake("--json", *command))
    assert all(word in error["message"] for word in ("a." + kind, "b." + kind, "city", "town"))
    assert "--union-columns" in error["hint"]
    lake.ok(*command, "--union-columns")
    assert {"id": 2, "city": None, "town": "y"} in lake.rows()


def test_the_order_of_columns_may_differ(lake: CommandLine, tmp_path: Path) -> None:
    first = csv(tmp_path / "a.csv", "id,city", "1,x")
    lake.ok("ingest", "db.t", first, csv(tmp_path / "b.csv", "city,id", "y,2"), "--create")
    assert len(lake.rows()) == 2


@pytest.mark.parametrize("line", ["2013/02/03,17", "2013-02-03 10:00,x", "4,x", "-1.5e3,x"])
def test_a_part_without_a_header_is_noticed(lake: CommandLine, tmp_path: Path, line: str) -> None:
    whole = csv(tmp_path / "a.csv", "day,n", "2013/02/01,16")
    part = csv(tmp_path / "b.csv", line, "2013/02/04,18")
    assert (
        "--no-header" in error_of(lake("--json", "ingest", "db.t", whole, part, "--create"))["hint"]
    )
    warned = lake("-q", "ingest", "db.t", part, "--create")
    assert warned.exit_code == 0
    assert "may be a row" in warned.stderr


@pytest.mark.parametrize("name", ["in.csv", "in.json"])
def test_a_source_of_another_table_is_not_loaded_by_evolving(
    lake: CommandLine, tmp_path: Path, name: str
) -> None:
    lake.ok("ingest", "db.t", csv(tmp_path / "0.csv", "id,city", "0,a"), "--create")
    source = tmp_path / name
    source.write_text(json.dumps({"k": 1, "v": 2}) if name == "in.json" else "k,v\n1,2\n")
    error = error_of(lake("--json", "ingest", "db.t", source, "--evolve"))
    assert "none of the table's columns" in error["message"]
    assert lake.rows() == [{"id": 0, "city": "a"}]


def test_an_empty_file_is_named_even_quietly(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("ingest", "db.t", csv(tmp_path / "0.csv", "id", "0"), "--create")
    empty = tmp_path / "empty.csv"
    empty.touch()
    result = lake("-q", "ingest", "db.t", empty)
    assert (result.exit_code, "0 bytes" in result.stderr) == (0, True)
    assert str(empty) in result.stderr


@pytest.mark.parametrize("words", [("--json", "ingest"), ("ingest",), ("--json", "drop")])
def test_a_change_that_cannot_be_reported_does_not_ask_to_be_repeated(
    lake: CommandLine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    source = csv(tmp_path / "in.csv", "id", "1")
    lake.ok("ingest", "db.t", source, "--create")
    arguments = [] if "drop" in words else [source]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lake.cli", *lake.arguments(*words, "db.t", *arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )
    assert done.returncode == 6, done
    assert "cannot write to standard output" in done.stderr
    assert "the command did its work" in done.stderr
