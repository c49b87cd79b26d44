"""Messages of the core name options; the command line shows the flags of the command that ran."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

from lake.cli.app import VERBS, load_verb, root_command
from lake.cli.arguments import option_table
from lake.cli.flags import with_flags
from lake.core.base.errors import RefusedError
from lake.core.base.options import Option, quote_options


def test_an_error_names_options_in_backquotes_for_callers_without_flags() -> None:
    error = RefusedError(f"{Option.ORDER_BY} needs {Option.UPSERT}", hint=f"add {Option.UPSERT}")

    assert str(error) == "`order_by` needs `upsert`"
    assert quote_options(f"{error.hint}") == "add `upsert`"


def test_a_joined_message_still_refers_to_the_options() -> None:
    error = RefusedError(f"{Option.ORDER_BY} needs {Option.UPSERT}")

    assert with_flags(f"stopped: {error.message}", "ingest") == "stopped: --order-by needs --upsert"


@pytest.mark.parametrize("option", Option)
def test_every_option_that_the_core_names_is_a_flag(option: Option) -> None:
    *of, flag = with_flags(f"{option}", None).split()

    assert of[:1] in ([], ["lake"])
    command = load_verb(of[1]) if of else root_command()
    assert flag.startswith("--")
    assert flag in option_table(command)


@pytest.mark.parametrize("verb", VERBS)
def test_a_flag_of_another_command_is_named_with_that_command(verb: str) -> None:
    own = option_table(load_verb(verb)) | option_table(root_command())

    for option in Option:
        shown = with_flags(f"{option}", verb)
        assert shown in own if shown.startswith("--") else shown.split()[1] != verb, shown


@pytest.mark.parametrize(
    "text",
    ["order_by", "`order_by`", "column `order_by`", "\ufdd0ordering\ufdd1", "\ufdd0order_by"],
)
def test_names_of_users_that_equal_an_options_name_stay(text: str) -> None:
    assert with_flags(text, "ingest") == text


def test_people_and_scripts_see_flags_in_messages_and_hints(lake: CommandLine) -> None:
    wanted = ("ingest", "db.t", "a.csv", "--upsert", "--deletes", "some")

    shown = "--deletes 'some' is not one of position, equality, copy-on-write"
    assert shown in lake(*wanted).stderr
    assert lake("--json", *wanted).json()["error"]["message"] == shown


def test_a_hint_names_another_command_once(lake: CommandLine) -> None:
    lake.load("id\n1\n", "--create")
    lake.ok("ref", "db.t", "--branch-create", "audit")
    for options in ((), ("--branch", "audit")):
        lake.load("id\n2\n", *options)

    refused = lake("ref", "db.t", "--fast-forward", "main", "--to", "audit")

    assert refused.exit_code == 3
    assert "lacks; lake rollback --any sets a branch to any snapshot" in refused.stderr


def test_a_hint_of_a_change_of_columns_names_compact_once(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.load("id,a\n1,x\n", "--create")
    pq.write_table(pa.table({"id": [2], "a": ["y"]}), tmp_path / "added.parquet")
    lake.ok("add-files", "db.t", tmp_path / "added.parquet")
    lake.ok("alter", "db.t", "--rename-column", "a=b")

    refused = lake("alter", "db.t", "--add-column", "a string")

    assert refused.exit_code == 3
    assert "have ids, with lake compact --rewrite-all, and then" in refused.stderr
