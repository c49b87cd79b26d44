"""What `-q` prints: what is wrong, and what was asked for; never progress, and never that all is well."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table

from lake.cli.app import VERBS

ROWS = 123


@pytest.fixture
def table(lake: CommandLine) -> Path:
    """A table of 123 rows in one file with a tag; returns its folder."""
    made = make_table(lake.warehouse)
    ids = range(ROWS)
    made.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{id_}" for id_ in ids]}))
    lake.ok("tag", "db.t", "first")
    return lake.warehouse / "db" / "t"


# Commands that change nothing, and what their results contain.
LISTINGS = [
    (("scan", "db.t"), "122\tn122"),
    (("scan", "db.t", "--changes"), "insert"),
    (("tables",), "db.t\tv2\t123"),
    (("health",), "db.t\tgood"),
    (("show", "db.t"), "long"),
    (("inspect", "db.t", "refs"), "first\tTAG"),
    (("snapshots", "db.t"), "append"),
    (("partitions", "db.t"), "123"),
    (("ref", "db.t"), "main"),
    (("tag", "db.t"), "first"),
    (("catalogs",), "yes"),
    (("config",), "warehouse"),
    (("clean", "db.t"), "stray.parquet"),
    (("compact", "db.t", "--rewrite-all", "--dry-run"), ""),
    (("maintain", "--dry-run"), "clean"),
]
# Commands that do something, or that find nothing wrong.
SILENT = [
    ("check", "db.t", "--files"),
    ("deletes", "db.t"),
    ("consumers", "db.t"),
    ("replay", "db.t"),
    ("runs", "--log", "none.jsonl"),
    ("create", "db.new", "id long"),
    ("alter", "db.t", "--add-column", "x long"),
    ("ref", "db.t", "--branch-create", "b"),
    ("tag", "db.t", "second"),
    ("rollback", "db.t", "main"),
    ("compact", "db.t", "--rewrite-all"),
    ("compact", "db.*", "--rewrite-all"),
    ("check", "*"),
    ("manifests", "db.t"),
    ("stats", "db.t"),
    ("maintain", "--only", "compact"),
    ("expire", "db.t"),
    ("rename", "db.t", "db.other"),
    ("drop", "db.t"),
]


@pytest.mark.parametrize(("command", "shown"), LISTINGS, ids=lambda item: " ".join(item)[:30])
def test_quiet_prints_what_was_asked_for_without_a_sentence(
    lake: CommandLine, table: Path, command: tuple[str, ...], shown: str
) -> None:
    stray = table / "data" / "stray.parquet"
    stray.write_bytes(b"x")
    os.utime(stray, (1_700_000_000, 1_700_000_000))

    quiet, loud = lake("-q", *command), lake(*command)

    assert (quiet.exit_code, loud.exit_code) == (0, 0), (quiet, loud)
    assert quiet.stderr == ""
    assert shown in quiet.stdout
    assert loud.stderr or loud.stdout.startswith("db.t: ")
    assert "db.t: " not in quiet.stdout


@pytest.mark.parametrize("command", SILENT, ids=lambda item: item[0])
def test_quiet_prints_nothing_if_all_is_well(
    lake: CommandLine, table: Path, command: tuple[str, ...]
) -> None:
    quiet = lake("-q", *command)

    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")


def test_every_verb_keeps_the_rule_of_quiet() -> None:
    tried = {command[0] for command, _ in LISTINGS} | {command[0] for command in SILENT}
    # They need sources of their own: see the tests of these verbs, and those below.
    others = {
        "apply",
        "ingest",
        "add-files",
        "register",
        "cherry-pick",
        "publish",
        "expire-partitions",
    }

    assert tried | others | {"demo"} >= set(VERBS) - {"delete"}


def test_quiet_prints_the_findings_of_a_damaged_table(lake: CommandLine, table: Path) -> None:
    (lost,) = table.glob("data/00000-*.parquet")
    lost.unlink()

    quiet = lake("-q", "check", "db.t", "--files")

    assert quiet.exit_code == 7
    assert lost.name in quiet.stdout
    assert "1 error" in quiet.stderr


def test_quiet_prints_the_tables_that_cannot_be_read(lake: CommandLine, table: Path) -> None:
    lake.ok("create", "db.fine", "id long")
    for path in table.glob("metadata/*.metadata.json"):
        path.write_text("{")

    quiet = lake("-q", "tables")

    assert quiet.exit_code == 6
    assert "db.fine\t" in quiet.stdout
    assert "db.t" in quiet.stderr
    assert "cannot be read" in quiet.stderr


def test_quiet_prints_that_rows_were_rejected(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    source = tmp_path / "in.csv"
    source.write_text("id,name\n" + "".join(f"{n},x\n" for n in range(30)) + "x,y\n")

    quiet = lake("-q", "ingest", "db.t", source, "--rejects", tmp_path / "rejected.csv")

    assert quiet.exit_code == 0
    assert quiet.stdout == ""
    assert "rejected 1 row" in quiet.stderr


# What `scan` and `inspect` write to standard output


def test_a_pipe_gets_all_rows_and_the_summary_goes_to_standard_error(
    lake: CommandLine, table: Path
) -> None:
    result = lake("scan", "db.t")

    header, *rows = result.stdout.splitlines()
    assert header == "id\tname"
    assert sorted(rows, key=len) == [f"{n}\tn{n}" for n in range(ROWS)]
    assert "db.t: 123 rows" in result.stderr
    assert len(lake("scan", "db.t", "--limit", 50).stdout.splitlines()) == 51
    assert len(lake("inspect", "db.t", "files").stdout.splitlines()) == 2


def test_a_file_of_standard_output_can_be_loaded_again(
    lake: CommandLine, table: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.tsv"
    with copy.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", "lake.cli", *lake.arguments("-q", "scan", "db.t")],
            stdout=file,
            check=True,
        )
    lake.ok("ingest", "db.copy", copy, "--create")

    assert lake("scan", "db.copy").stdout == lake("scan", "db.t").stdout


def test_a_format_without_an_output_is_for_standard_output(lake: CommandLine, table: Path) -> None:
    result = lake("scan", "db.t", "--output-format", "json")

    assert len(result.stdout.splitlines()) == ROWS
    assert lake("--json", "scan", "db.t", "--output-format", "json").exit_code == 2


def test_a_terminal_gets_a_preview(lake: CommandLine, table: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lake.cli", *lake.arguments("scan", "db.t")]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as running:
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:
                break
            if not data:
                break
            shown += data
    os.close(ours)

    assert running.returncode == 0
    assert b"20 of 123 rows" in shown
    assert b"n122" not in shown


def test_a_document_contains_the_first_rows_only(lake: CommandLine, table: Path) -> None:
    assert len(lake.ok("scan", "db.t")["result"]["preview"]) == 20
