"""Mistakes of a first day: the hint says what to type."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine


@pytest.fixture(autouse=True)
def _table(lake: CommandLine, tmp_path: Path) -> None:
    lake.engine = "inline"
    source = tmp_path / "first.csv"
    source.write_text("carrier,day,at\nAA,2026-01-20,2026-01-20T10:00:00\n")
    lake.ok("ingest", "db.t", source, "--create")


@pytest.mark.parametrize("row", ["AA,20.01.2026,", "AA,01/20/2026,", "AA,,20.01.2026 10:00"])
def test_a_date_in_another_form_has_the_hint_of_its_option(
    lake: CommandLine, tmp_path: Path, row: str
) -> None:
    source = tmp_path / "in.csv"
    source.write_text(f"carrier,day,at\n{row}\n")
    failed = lake("--json", "ingest", "db.t", source)
    assert failed.exit_code == 7
    assert "--date-format" in failed.json()["error"]["hint"]


@pytest.mark.parametrize(
    "words",
    [
        ("scan", "db.t", "--select", "carier"),
        ("scan", "db.t", "--select", "CARRIER"),
        ("alter", "db.t", "--drop-column", "carier"),
        ("ingest", "db.t", "first.csv", "--upsert", "--key", "carier"),
    ],
)
def test_a_column_that_does_not_exist_is_compared_with_those_that_do(
    lake: CommandLine, tmp_path: Path, words: tuple[str, ...]
) -> None:
    found = [str(tmp_path / word) if word == "first.csv" else word for word in words]
    failed = lake("--json", *found)
    assert failed.exit_code == 7, failed
    assert "did you mean carrier?" in failed.json()["error"]["hint"]


@pytest.mark.parametrize(
    "text", ["2026-01-20", "2026-01-20 10:00", "2026-01-20T10:00:00Z", "2026-1-2"]
)
def test_a_time_without_quotes_has_the_hint_to_quote_it(lake: CommandLine, text: str) -> None:
    failed = lake("--json", "scan", "db.t", "--where", f"at >= {text} and carrier = 'x 2020-01-01'")
    assert failed.exit_code == 7
    assert f"'{text}'" in failed.json()["error"]["hint"]
