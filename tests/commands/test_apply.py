"""`lake maintain --plan` and `lake apply`, and the first policy that `lake maintain --init` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, named_rows, pyiceberg_catalog
from support.tables.neglected_tables import MENDED_BY, Warehouse, rows_of

from lake.core.transaction.locks.local import HeldLock, take, this_process

pytestmark = pytest.mark.usefixtures("in_an_object_store")


@pytest.fixture
def lake(neglected: Warehouse) -> CommandLine:
    """`lake` on tables that need maintenance."""
    return neglected.restored()


def planned(lake: CommandLine, path: Path, *words: object) -> dict[str, Any]:
    """Write a plan without the search for orphan files; return it."""
    lake.ok("maintain", *words, "--only", "expire,compact,deletes,manifests", "--plan", path)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_a_plan_is_applied_as_it_was_written_and_then_nothing_is_left(
    lake: CommandLine, tmp_path: Path
) -> None:
    rows, path = rows_of(lake), tmp_path / "plan.json"
    heads = {name: lake.table(name).metadata_location for name in rows}

    plan = planned(lake, path)

    assert {row["table"]: row["action"] for row in plan["actions"]} == MENDED_BY
    assert {name: lake.table(name).metadata_location for name in rows} == heads
    result = lake.ok("apply", path)["result"]
    assert [(row["table"], row["action"], row["status"]) for row in result["actions"]] == [
        (row["table"], row["action"], "done") for row in plan["actions"]
    ]
    assert rows_of(lake) == rows
    assert f"apply {path}\n" in lake("maintain", "--plan", path, "--only", "stats").stderr
    assert planned(lake, path)["actions"] == []
    assert lake.ok("apply", path)["status"] == "nothing-to-do"


def test_a_table_that_has_changed_since_the_plan_is_left_alone(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    planned(lake, path, "db.small", "db.snapshots")
    lake.table("db.small").append(named_rows(1000))

    result = lake("--json", "apply", path)

    document = result.json()["result"]
    assert result.exit_code == 6
    (row,) = document["rest"]
    assert row["table"] == "db.small"
    assert "the table has changed since the plan" in row["reason"]
    assert [row["table"] for row in document["actions"]] == ["db.snapshots"]
    assert lake.ok("apply", path, "--replan")["result"]["actions"][0]["status"] == "done"
    assert len(lake.table("db.small").inspect.data_files()) == 1


def test_what_the_owner_forbids_after_the_plan_is_not_done(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    planned(lake, path, "db.small")
    with lake.table("db.small").transaction() as change:
        change.set_properties({"lake.maintain.enabled": "false"})

    for words in (("apply", path), ("apply", path, "--replan")):
        result = lake("--json", *words)
        assert result.exit_code == 6
        (row,) = result.json()["result"]["obsolete"]
        assert row["reason"] == "property lake.maintain.enabled is false"
        assert result.json()["result"]["rest"] == []
    assert len(lake.table("db.small").inspect.data_files()) == 20


def test_what_no_run_can_do_any_more_has_no_next_command(lake: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned(lake, path, "db.small", "db.snapshots", "db.manifests")
    with lake.table("db.small").transaction() as change:
        change.set_properties({"lake.maintain.enabled": "false"})
    catalog = pyiceberg_catalog(lake.warehouse)
    for name in ("db.snapshots", "db.manifests"):
        catalog.drop_table(name)
    make_table(lake.warehouse, "db.manifests")

    for words in (("apply", path), ("apply", path, "--replan")):
        result = lake(*words)
        assert result.exit_code == 6
        assert "3 tables: 3 actions not possible any more · " in result.stderr
        assert "next:" not in result.stderr
        assert "db.snapshots\texpire\tthe table is gone\n" in result.stdout
        assert (
            "db.manifests\tmanifests\tthe table has changed since the plan: the UUID"
            in result.stdout
        )


def test_a_first_policy_is_written_although_a_table_cannot_be_read(
    lake: CommandLine, tmp_path: Path
) -> None:
    Path(lake.table("db.keys").metadata_location.removeprefix("file://")).write_text("{")
    path = tmp_path / "policy.toml"

    result = lake("maintain", "--init", path)

    assert result.exit_code == 0
    assert path.exists()
    assert "1 table could not be read; nothing was changed" in result.stderr
    assert "db.keys: " in result.stderr
    assert lake("maintain", "--plan", tmp_path / "plan.json").exit_code == 6


def test_a_plan_of_many_actions_can_be_applied(lake: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    document = planned(lake, path, "db.small")
    (action,) = document["actions"]
    others = [
        {**action, "table": f"db.gone_{number}", "reason": "x" * 20_000} for number in range(100)
    ]
    path.write_text(json.dumps({**document, "actions": [action, *others]}, indent=1))

    result = lake("--json", "apply", path)

    assert path.stat().st_size > 1 << 20
    assert result.exit_code == 6
    assert [row["status"] for row in result.json()["result"]["actions"]] == ["done"]
    obsolete = {row["reason"] for row in result.json()["result"]["obsolete"]}
    assert obsolete == {"the table is gone"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.update(action="drop"), "is not a plan"),
        (lambda row: row.update(table=None), "is not a plan"),
        (lambda row: row.update(base=[]), "is not a plan"),
        (lambda row: row["base"].update(schema_id="0"), "is not a plan"),
        (lambda row: row["options"].update({"on-commit": "rm"}), "is not an option of plans"),
        (lambda row: row["options"].update({"branch": "b"}), "is not an option of plans"),
        (lambda row: row["options"].update({"target-size": "many"}), "target-size of compact"),
        (lambda row: row["options"].update({"target-size": None}), "target-size of compact"),
        (lambda row: row["options"].update({"where": {"a": 1}}), "where of compact"),
        (lambda row: row["options"].update({"where": None}), "where of compact"),
    ],
)
def test_a_plan_that_was_changed_by_hand_is_checked(
    lake: CommandLine, tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    path = tmp_path / "plan.json"
    document = planned(lake, path, "db.small")
    change(document["actions"][0])
    path.write_text(json.dumps(document))

    result = lake("--json", "apply", path)

    assert result.exit_code in {2, 7}
    assert message in result.json()["error"]["message"]
    assert len(lake.table("db.small").inspect.data_files()) == 20


def test_hostile_plans_end_with_an_error(lake: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for text in ("", "[]", "{", "[" * 100_000, '{"format": 2}', '{"format": 1, "catalog": "lake"}'):
        path.write_text(text)
        refused = lake("apply", path)
        assert refused.exit_code == 7, text[:40]
    assert "hint: lake maintain --plan FILE writes one\n" in refused.stderr
    path.write_text('{"format": 1, "catalog": "other", "actions": []}')
    other = lake("--json", "apply", path).json()["error"]
    assert "for the catalog 'other'" in other["message"]
    assert other["hint"] == "choose the catalog of the plan by --catalog or --warehouse"
    missing = lake("--json", "apply", tmp_path / "missing.json").json()["error"]
    assert missing["hint"] == "lake maintain --plan FILE writes one"
    path.chmod(0o666)
    assert lake("apply", path).exit_code == 3


def test_the_first_policy_changes_nothing_whatever_the_names_are(
    lake: CommandLine, tmp_path: Path
) -> None:
    catalog = pyiceberg_catalog(lake.warehouse)
    for namespace in ("😀", 'a"b', "c[1]", "d\\e", "f\x7fg"):
        catalog.create_namespace((namespace,))
        make_table(lake.warehouse, f"{namespace}.t")
    path = tmp_path / "policy.toml"
    plain = lake.ok("maintain", "--dry-run")["plan"]

    lake.ok("maintain", "--init", path)

    assert lake.ok("maintain", "--dry-run", "--policy", path)["plan"] == plain
    assert lake("maintain", "--init", path).exit_code == 3
    edited = path.read_text().replace("# runs-table =", "runs-table =")
    path.write_text(edited.replace("# enabled = true", "enabled = false"))
    due = lake.ok("maintain", "--dry-run", "--policy", path)["plan"]["due"]
    assert due == []


def test_a_first_policy_is_not_written_into_the_folder_of_a_table(lake: CommandLine) -> None:
    folder = Path(lake.table("db.small").location().removeprefix("file://"))

    result = lake("maintain", "--init", folder / "policy.toml")

    assert (result.exit_code, "is inside the folder of table" in result.stderr) == (3, True)
    assert not (folder / "policy.toml").exists()


@pytest.mark.parametrize("option", ["--plan", "--init", "--log", "--status", "--policy"])
def test_an_empty_name_as_of_an_unset_variable_is_refused(lake: CommandLine, option: str) -> None:
    result = lake("maintain", option, "")

    assert (result.exit_code, f"{option} needs the name of a file" in result.stderr) == (2, True)


@pytest.mark.parametrize("words", [("maintain", "--plan"), ("health", "--html")])
def test_a_file_in_a_folder_that_does_not_exist_is_refused_with_the_name_of_the_folder(
    lake: CommandLine, tmp_path: Path, words: tuple[str, str]
) -> None:
    result = lake("--json", *words, tmp_path / "none" / "file")

    error = result.json()["error"]
    assert (result.exit_code, error["kind"], error["hint"]) == (7, "not-found", "create the folder")
    assert error["message"].endswith(f"cannot be written: there is no folder {tmp_path / 'none'}")


def test_an_action_on_a_table_of_another_run_is_left(lake: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned(lake, path, "db.small")
    place = lake.warehouse / "db" / "small" / "metadata" / "lake.lock"
    lock = take(str(place), this_process("compact", "op-1"))
    assert isinstance(lock, HeldLock)

    document = json.loads(lake("--json", "apply", path).stdout)

    lock.release()
    assert document["status"] == "partial"
    (left,) = document["result"]["rest"]
    assert (left["action"], left["reason"]) == (
        "compact",
        "another run of lake works on the table",
    )
    assert lake.ok("apply", path)["status"] == "done"
