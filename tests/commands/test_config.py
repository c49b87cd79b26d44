"""Defaults of the global options from the environment and the project file, and `lake config`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine, Result

from lake.commands import defaults


@pytest.fixture
def plain(lake: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CommandLine:
    """Lake without options of the harness, in a folder of its own below a project's folder."""
    lake.arguments = lambda *words: [str(word) for word in words]  # type: ignore[method-assign]
    folder = tmp_path / "project" / "jobs"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in defaults.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return lake


def write(text: str, name: str = "lake.toml") -> Path:
    """Write a project file into the folder above the working folder."""
    path = Path.cwd().parent / name
    path.write_text(text)
    return path


def belongs_to(monkeypatch: pytest.MonkeyPatch, owner: int, *paths: Path) -> None:
    """Let files or folders belong to another user."""
    numbers = {path.stat().st_ino for path in paths}

    def foreign(real: Any) -> Any:
        def changed(*arguments: Any, **options: Any) -> os.stat_result:
            found = real(*arguments, **options)
            values = list(found)
            values[4] = owner if found.st_ino in numbers else found.st_uid
            return os.stat_result(values)

        return changed

    for name in ("stat", "lstat", "fstat"):
        monkeypatch.setattr(os, name, foreign(getattr(os, name)))


def shown(result: Result) -> dict[str, tuple[Any, str]]:
    assert result.exit_code == 0, result
    settings = result.json()["result"]["settings"]
    return {item["name"]: (item["value"], item["source"]) for item in settings}


def test_without_a_file_and_variables_the_defaults_are_shown(plain: CommandLine) -> None:
    found = shown(plain("config", "--json"))

    assert found["catalog"] == (None, "default")
    assert found["engine"] == ("auto", "default")
    assert all(source == "default" for _, source in found.values())


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    plain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write('warehouse = "data"\nengine = "inline"\n[spark-conf]\n"spark.cores.max" = "4"\n')

    found = shown(plain("--json", "config"))
    assert found["warehouse"] == (str(path.parent / "data"), str(path))
    assert found["spark-conf"] == ({"spark.cores.max": "4"}, str(path))
    monkeypatch.setenv("LAKE_WAREHOUSE", "/other")
    assert shown(plain("--json", "config"))["warehouse"] == ("/other", "LAKE_WAREHOUSE")
    found = shown(plain("--json", "--warehouse", "third", "config", "--engine", "auto"))
    assert found["warehouse"] == ("third", "--warehouse")
    assert found["engine"] == ("auto", "--engine")


def test_a_catalog_is_not_searched_for_in_the_warehouse_of_a_less_important_source(
    plain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write('warehouse = "data"\ncatalog-type = "hadoop"\n')
    monkeypatch.setenv("LAKE_CATALOG", "prod")

    found = shown(plain("--json", "config"))

    assert found["catalog"] == ("prod", "LAKE_CATALOG")
    assert found["warehouse"] == (None, "default")
    assert found["catalog-type"] == ("sql", "default")


def test_commands_use_the_file_of_a_folder_above(plain: CommandLine) -> None:
    (Path.cwd() / "a.csv").write_text("id\n1\n")
    write('[tool.lake]\nwarehouse = "data"\n', "pyproject.toml")

    result = plain("ingest", "db.t", "a.csv", "--create")

    assert result.exit_code == 0, result
    assert (Path.cwd().parent / "data" / "catalog.db").is_file()
    assert plain("snapshots", "db.t").exit_code == 0


def test_the_nearest_file_counts_and_other_programs_files_do_not(plain: CommandLine) -> None:
    above = write('catalog = "above"\n')
    assert shown(plain("--json", "config"))["catalog"] == ("above", str(above))
    Path("pyproject.toml").write_text("[project]\nname = 'lake'\n")
    assert shown(plain("--json", "config"))["catalog"] == ("above", str(above))
    Path("pyproject.toml").write_text('[tool.lake]\ncatalog = "here"\n')
    here = str(Path.cwd() / "pyproject.toml")
    assert shown(plain("--json", "config"))["catalog"] == ("here", here)


@pytest.mark.parametrize(
    ("text", "code", "message", "hint"),
    [
        ('warehous = "x"', 2, "contains the unknown setting warehous", "did you mean warehouse?"),
        ('xyz = "x"', 2, "contains the unknown setting xyz", "known are: catalog, "),
        ('engine = "duck"', 2, "is 'duck', not one of auto, spark, inline", None),
        ("engine = 1", 2, "must be text", None),
        ('master = "local"\nremote = "sc://x"', 2, "contradict each other", None),
        ("spark-conf = 4", 2, "must be a table of texts", None),
        ('[spark-conf]\n"spark.ssl.keyPassword" = "canary"', 3, "contains a secret", None),
        ('remote = "sc://x;token=canary"', 3, "contains a secret", None),
        ("engine = ", 7, "cannot be read", None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_project_file_that_is_not_valid_is_an_error_that_names_it(
    plain: CommandLine, text: str, code: int, message: str, hint: str | None
) -> None:
    path = write(text)

    result = plain("--json", "config")

    error = result.json()["error"]
    assert (result.exit_code, message in error["message"]) == (code, True), error
    assert str(path) in error["message"]
    assert hint is None or error["hint"].startswith(hint)
    assert "canary" not in result.stdout + result.stderr
    assert plain("config", "--help").exit_code == 0


def test_a_file_that_every_user_can_change_is_refused(plain: CommandLine) -> None:
    path = write('catalog = "x"\n')
    path.chmod(0o666)

    assert plain("config").exit_code == 3


def test_a_file_of_a_stranger_in_a_folder_above_is_refused(
    plain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write('catalog = "x"\n')
    belongs_to(monkeypatch, 4711, path)

    assert plain("config").exit_code == 3


def test_catalogs_are_shown_with_their_sources_and_without_secrets(
    plain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml")
    file.write_text(
        "catalog:\n  prod:\n    uri: postgresql://lake:canary-word@db/iceberg\n"
        "    auth:\n      type: basic\n      basic:\n        password: canary-word\n"
    )
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__CREDENTIAL", "id:canary-secret")

    for words in (
        ("--json", "config"),
        ("config",),
        ("config", "--spark-conf", "a.token=canary-x"),
    ):
        result = plain(*words)
        assert result.exit_code == 0
        assert "canary" not in result.stdout + result.stderr
    result = plain("--json", "config")
    found = shown(result)
    assert found["catalog.prod.uri"] == ("postgresql://***@db/iceberg", str(file))
    assert found["catalog.prod.auth.basic.password"] == ("***", str(file))
    assert found["catalog.prod.credential"] == ("***", "PYICEBERG_CATALOG__PROD__CREDENTIAL")
    document = json.loads(result.stdout)["result"]
    assert (document["catalog"], document["pyiceberg_file"]) == ("prod", str(file))


def test_several_catalogs_without_a_choice_are_shown_with_a_note(
    plain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ONE", "TWO"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__TYPE", "sql")

    result = plain("config")

    assert result.exit_code == 0
    assert "several catalogs are configured" in result.stderr
    assert plain("--json", "config").json()["result"]["catalog"] is None
    monkeypatch.setenv("LAKE_CATALOG", "two")
    assert plain("--json", "config").json()["result"]["catalog"] == "two"
