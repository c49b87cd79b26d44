"""Mistakes that people make on the command line, and what the error says to type next."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine, Result


@pytest.fixture
def loaded(lake: CommandLine, tmp_path: Path) -> CommandLine:
    """A table of two rows."""
    source = tmp_path / "a.csv"
    source.write_text("id,zip,ts\n1,01234,2024-01-01T00:00:00Z\n2,01235,2024-01-02T00:00:00Z\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "day(ts), bucket(4, id)")
    return lake


def told(result: Result) -> tuple[int, str, str | None]:
    error = result.json()["error"]
    return result.exit_code, error["message"], error["hint"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scan", "db.t", "--limit", "ten"), "--limit takes a whole number, not 'ten'"),
        (("scan", "db.t", "--limit=1.5"), "--limit takes a whole number, not '1.5'"),
        (("compact", "db.t", "--delete-ratio", "x"), "--delete-ratio takes a number, not 'x'"),
    ],
)
def test_a_value_that_is_not_a_number_is_named(
    lake: CommandLine, words: tuple[str, ...], message: str
) -> None:
    assert told(lake("--json", *words))[:2] == (2, message)


def test_a_misspelt_option_or_command_is_suggested(lake: CommandLine) -> None:
    assert told(lake("--json", "scan", "db.t", "--limt", "3")) == (
        2,
        "no such option: --limt",
        "did you mean --limit?",
    )
    assert told(lake("--json", "expire", "db.t", "--keep", "3"))[2] == "did you mean --retain-last?"
    assert told(lake("--json", "compct", "db.t"))[2] == "did you mean compact?"
    assert lake("version").stdout == lake("--version").stdout


def test_an_age_or_a_time_is_asked_for(lake: CommandLine) -> None:
    assert told(lake("--json", "expire", "db.t", "--older-than", "7 days")) == (
        2,
        "--older-than: '7 days' is neither an age nor a time",
        "use 7d, 12h, or 2026-01-31T12:00Z",
    )


def test_a_time_before_the_first_snapshot_names_the_oldest(loaded: CommandLine) -> None:
    code, message, hint = told(loaded("--json", "scan", "db.t", "--from-snapshot", "@2020-01-01"))

    assert code == 7
    assert message.startswith(
        "the table has no snapshot as old as 2020-01-01: the oldest is from 20"
    )
    assert message.endswith(" UTC")
    assert hint == "give that time or a later one"


def test_an_output_in_a_folder_that_does_not_exist_creates_none(
    loaded: CommandLine, tmp_path: Path
) -> None:
    for name in ("out.csv", "folder"):
        assert told(loaded("--json", "scan", "db.t", "--output", tmp_path / "nope" / name)) == (
            7,
            f"there is no folder {tmp_path}/nope for the output",
            f"mkdir -p {tmp_path}/nope",
        )
    assert not (tmp_path / "nope").exists()


def test_an_empty_folder_is_not_a_missing_file(loaded: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_SUCCESS").touch()

    code, message, hint = told(loaded("--json", "ingest", "db.t", tmp_path / "empty"))

    assert (code, message) == (7, f"the folder {tmp_path}/empty contains no files to load")
    assert hint == "names that begin with _ or . are not read"


def test_a_load_of_nothing_asks_for_files(lake: CommandLine) -> None:
    code, message, hint = told(lake("--json", "ingest", "db.t"))

    assert (code, message, hint) == (2, "nothing to load", "give files, or --from-table")


def test_a_row_outside_of_the_overwrite_is_shown_without_python(
    loaded: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "b.csv"
    source.write_text("id,zip,ts\n1,,2024-01-01T00:00:00Z\n")

    code, message, hint = told(
        loaded("--json", "ingest", "db.t", source, "--overwrite-where", "id = 2")
    )

    assert code == 7
    assert message == (
        f"{source} has a row outside --overwrite-where: "
        "id = 1, zip is NULL, ts = 2024-01-01 00:00:00+00:00"
    )
    assert hint == "remove the row, or widen the filter"


def test_another_partitioning_than_the_tables_is_named(loaded: CommandLine, tmp_path: Path) -> None:
    document = loaded.ok(
        *("ingest", "db.t", tmp_path / "a.csv", "--create", "--partition-by", "id", "--dry-run")
    )

    assert document["warnings"][0] == (
        "db.t already exists and is partitioned by day(ts), bucket(4, id); --partition-by is ignored"
    )


def test_one_skipped_snapshot_is_one(loaded: CommandLine, tmp_path: Path) -> None:
    first = loaded.ok("snapshots", "db.t")["result"]["snapshots"][0]["snapshot_id"]
    loaded.ok("ingest", "db.t", tmp_path / "a.csv", "--overwrite")

    warnings = loaded.ok("scan", "db.t", "--from-snapshot", first)["warnings"]

    assert warnings[0].startswith("skipped 1 snapshot that is not an append (--changes shows ")
