"""Mistakes that people make on the command line, and what the error says to type next."""

from __future__ import annotations

import io
import sys
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


def test_a_text_without_its_quotes_is_shown_with_them(loaded: CommandLine) -> None:
    for text in ("zip = NZ", 'zip = "NZ"'):
        code, message, hint = told(loaded("--json", "scan", "db.t", "--where", text))
        assert (code, hint) == (
            7,
            "text is in single quotes: 'NZ'; two columns cannot be compared",
        )
        assert message.endswith("expected a value")


def test_a_partitioning_that_a_type_does_not_have_lists_those_that_it_has(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id,day\n1,2026-01-30\n")

    def hint(term: str) -> str | None:
        words = ("--json", "ingest", "db.n", source, "--create", "--partition-by", term)
        return told(lake(*words))[2]

    assert hint("month(id)") == "possible: id, bucket(N, id), truncate(W, id)"
    assert hint("hour(day)") == "possible: day, bucket(N, day), year(day), month(day), day(day)"


def test_a_download_is_to_be_piped(loaded: CommandLine) -> None:
    code, message, hint = told(loaded("--json", "ingest", "db.t", "https://localhost:1/a.csv"))

    assert (code, message) == (7, "https:// locations are not supported")
    assert hint is not None
    assert "pipe a download to `lake ingest TABLE -` with --format" in hint


def test_a_command_without_its_table_says_what_lists_them(lake: CommandLine) -> None:
    assert told(lake("--json", "compact")) == (
        2,
        "missing argument 'TABLE'",
        "name a table: lake compact db.events; lake tables lists them",
    )


def test_a_file_that_is_named_twice_is_shown_once(loaded: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "a.csv"

    assert told(loaded("--json", "ingest", "db.t", source, source))[1] == (
        f"{source} is named twice: its rows would be loaded twice"
    )


def test_an_option_of_other_tools_is_suggested_by_its_name_here(lake: CommandLine) -> None:
    for words, meant in (
        (("ingest", "--mode"), "--overwrite"),
        (("scan", "--filter"), "--where"),
        (("compact", "--filter"), "--where"),
        (("compact", "--min-files"), "--min-input-files"),
    ):
        command, option = words
        assert told(lake("--json", command, "db.t", option, "x"))[2] == f"did you mean {meant}?"


def test_a_misspelt_file_is_suggested_and_a_missing_folder_is_named(
    loaded: CommandLine, tmp_path: Path
) -> None:
    for name, hint in (
        ("A.csv", f"did you mean {tmp_path}/a.csv?"),
        ("nope/a.csv", f"there is no folder {tmp_path}/nope"),
        ("something-else", None),
    ):
        assert told(loaded("--json", "ingest", "db.t", tmp_path / name)) == (
            7,
            f"no such file: {tmp_path}/{name}",
            hint,
        )


def test_a_bad_value_says_how_to_set_its_row_aside(loaded: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "bad.csv"
    source.write_text("id,zip,ts\noops,01234,2024-01-01T00:00:00Z\n")

    hint = told(loaded("--json", "ingest", "db.t", source))[2]

    assert hint == "--rejects PATH writes such rows to a file and loads the others"


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("csv", "id,zip,ts\noops,1,\n", "column id of standard input, row 1: 'oops' is not a"),
        (
            "json",
            '{"id":1}\n{"id":2\n',
            "line 2 of standard input cannot be read: Expecting ',' delimiter (character 8)",
        ),
        ("parquet", "no Parquet", "standard input cannot be read: "),
    ],
)
def test_errors_about_standard_input_do_not_name_its_temporary_file(
    loaded: CommandLine, monkeypatch: pytest.MonkeyPatch, kind: str, text: str, message: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    code, told_message, _ = told(loaded("--json", "ingest", "db.t", "-", "--format", kind))

    assert code == 7
    assert told_message.startswith(message)


def test_what_an_upsert_and_a_partitioning_lack_is_named(
    loaded: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "a.csv"
    assert told(loaded("--json", "ingest", "db.t", source, "--upsert"))[2] == (
        "name the columns that identify a row; columns: id, zip, ts"
    )
    assert told(loaded("--json", "ingest", "db.t", source, "--partition-by", "id"))[2] == (
        "`lake alter` changes those of a table that exists"
    )


def test_a_misspelt_word_of_an_option_is_suggested(lake: CommandLine) -> None:
    assert told(lake("--json", "health", "--sort", "byte"))[2] == "did you mean bytes?"
    assert told(lake("--json", "maintain", "--only", "compct"))[2] == "did you mean compact?"
    assert told(lake("--json", "health", "--sort", "xyz"))[2] is None
