"""Names from the catalog for shell completion: cached, quiet, and safe to put into a command line."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

from lake.cli import suggestions
from lake.cli.suggestions import Request, completed, read_request, refresh, suggest
from lake.core.base.trust import folders
from lake.core.transaction import session

ROOT = Path(__file__).parents[2]
HEAVY = {"pyarrow", "pyiceberg", "pyspark", "pydantic", "typer", "rich", "sqlalchemy"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("LAKE_CACHE_DIR", raising=False)
    monkeypatch.setattr(
        suggestions, "_start_refresh", lambda kind, words, _path: refresh(kind, words)
    )
    return tmp_path / "cache" / "lake"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suggestions")
    lake = CommandLine(folder / "warehouse", engine="inline")
    names = ["id", "name", "two words", "$(touch x)", "a'b"]
    pq.write_table(pa.table({name: [1] for name in names}), folder / "a.parquet")
    lake.ok("ingest", "db.events", folder / "a.parquet", "--create")
    lake.ok("ingest", "db.users", folder / "a.parquet", "--create")
    return folder / "warehouse"


@pytest.mark.parametrize(
    ("kind", "line", "expected"),
    [
        ("tables", "scan db.", ["db.events", "db.users"]),
        ("tables", "scan db.e", ["db.events"]),
        ("tables", "ingest db.events fi", []),
        ("columns", "scan db.events --key ", ["id", "name"]),
        ("columns", "scan db.events --select id,n", ["id,name"]),
        ("columns", "scan db.events --where id>5&&n", ["id>5&&name"]),
        ("branches", "scan db.events --branch ", ["main"]),
        ("refs", "scan db.events --snapshot ma", ["main"]),
        ("columns", "scan db.missing --key ", []),
        ("columns", "scan --key ", []),
    ],
)
def test_words_come_from_the_catalog(
    warehouse: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    line: str,
    expected: list[str],
) -> None:
    words = ["--warehouse", str(warehouse), *line.split(" ")]

    assert suggest(kind, words) == 0
    assert capsys.readouterr() == ("".join(f"{word}\n" for word in expected), "")


def test_a_folder_without_a_catalog_is_not_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.mkdir()

    for folder in (missing, empty):
        suggest("tables", ["--warehouse", str(folder), "scan", ""])

    assert capsys.readouterr() == ("", "")
    assert not missing.exists()
    assert list(empty.iterdir()) == []


def test_catalogs_are_those_that_are_configured_and_the_cache_has_no_secret(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "postgresql://user:canary@127.0.0.1:1/x")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    for kind in ("catalogs", "tables"):
        suggest(kind, ["--catalog", "pr"])

    assert capsys.readouterr() == ("prod\n", "")
    files = list(cache.iterdir())
    # Names of catalogs do not replace names of tables.
    assert len(files) == 2
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "canary" not in file.name + file.read_text()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_fresh_cache_is_used_and_an_old_one_is_refreshed(
    warehouse: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--warehouse", str(warehouse), "scan", "db."]
    suggest("tables", words)
    (file,) = cache.iterdir()
    file.write_text('{"tables": ["db.cached"]}')
    capsys.readouterr()

    suggest("tables", words)
    assert capsys.readouterr().out == "db.cached\n"

    two_minutes_ago = file.stat().st_mtime - 120
    os.utime(file, (two_minutes_ago, two_minutes_ago))
    suggest("tables", words)
    # What is old is shown once more, so that the shell does not wait.
    assert capsys.readouterr().out == "db.cached\n"
    suggest("tables", words)
    assert capsys.readouterr().out == "db.events\ndb.users\n"


@pytest.mark.parametrize("content", ["", "[", "[1]", '{"tables": 5}', "\x00"])
def test_a_damaged_cache_prints_nothing(
    warehouse: Path, cache: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    words = ["--warehouse", str(warehouse), "scan", "zz"]
    suggest("tables", words)
    (file,) = cache.iterdir()
    file.write_text(content)

    assert suggest("tables", words) == 0
    assert capsys.readouterr() == ("", "")


def test_global_options_are_found_anywhere_and_the_table_is_the_first_name_with_a_dot() -> None:
    found = read_request("columns", ["scan", "--catalog=prod", "a.b.c", "x.csv", "--key", "i"])

    assert found == Request("columns", {"catalog": "prod"}, "a.b.c", "i")
    assert list(completed(found, {"columns": ["id", "j"]})) == ["id"]


def test_the_answer_from_a_cache_imports_no_library(warehouse: Path) -> None:
    words = ["--warehouse", str(warehouse), "scan", ""]
    refresh("tables", words)
    program = (
        "import sys; from lake.cli.__main__ import run; run();"
        "print(*sorted(name for name in sys.modules if '.' not in name), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "_LAKE_COMPLETE": "tables"},
    )

    assert done.stdout.split() == ["db.events", "db.users"]
    assert set(done.stderr.split()).isdisjoint(HEAVY)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of other users, with the user's home folder elsewhere."""
    folder, home = tmp_path / "hostile", tmp_path / "own"
    for path in (folder, home):
        path.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("PYICEBERG_HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(folder)
    return folder


def test_the_process_that_looks_names_up_imports_nothing_from_the_working_folder(
    warehouse: Path, cache: Path, hostile: Path
) -> None:
    names = ["lake", "json", "typing", "signal", "pyiceberg", "sitecustomize", "usercustomize"]
    for name in names:
        (hostile / name).mkdir()
        for path in (hostile / f"{name}.py", hostile / name / "__init__.py"):
            path.write_text(f"open({str(hostile / 'ran')!r}, 'w').close()\n")
    program = "from lake.cli.__main__ import run; run()"
    words = ["--warehouse", str(warehouse), "scan", ""]

    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *words],
        capture_output=True,
        check=True,
        env={**os.environ, "_LAKE_COMPLETE": "tables"},
    )
    # The process waits for the other one for a short time only; a busy machine takes long to start it.
    for _ in range(3000):
        if any(file.suffix == ".json" for file in cache.glob("completion-*")):
            break
        time.sleep(0.02)

    (file,) = cache.glob("completion-*.json")
    assert json.loads(file.read_text())["tables"] == ["db.events", "db.users"]
    assert done.stderr == b""
    assert not (hostile / "ran").exists()


@pytest.mark.parametrize("kind", ["tables", "columns", "refs", "catalogs"])
@pytest.mark.parametrize("source", ["uri", "environment", "warehouse"])
def test_names_are_not_looked_up_at_an_address_of_a_folder_that_is_not_trusted(
    hostile: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    kind: str,
) -> None:
    asked = []
    monkeypatch.setattr(session, "open_session", asked.append)
    if source == "warehouse":
        (hostile / "lake.toml").write_text('warehouse = "s3://b/w"\ncatalog-type = "hadoop"\n')
    else:
        (hostile / ".pyiceberg.yaml").write_text(
            "catalog:\n  prod:\n    type: rest\n    uri: http://127.0.0.1:1\n"
        )
    if source == "environment":
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", "w")
    words = ["scan", "db.t", "--key", ""]

    suggest(kind, words)
    assert asked == []
    assert capsys.readouterr().out == (
        "prod\n" if kind == "catalogs" and source != "warehouse" else ""
    )

    folders.trust(str(hostile))
    refresh(kind, words)
    assert len(asked) == (kind != "catalogs")


def test_columns_of_a_table_on_a_server_are_not_looked_up_for_a_catalog_in_a_folder(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = CommandLine(hostile / "warehouse", engine="inline")
    pq.write_table(pa.table({"id": [1]}), hostile / "a.parquet")
    lake.ok("ingest", "db.t", hostile / "a.parquet", "--create")
    refresh("columns", ["scan", "db.t", "--key", ""])
    suggest("columns", ["scan", "db.t", "--key", ""])
    assert capsys.readouterr().out == "id\n"
    with closing(sqlite3.connect(hostile / "warehouse/catalog.db")) as database, database:
        database.execute(
            "UPDATE iceberg_tables SET metadata_location = 'http://127.0.0.1:1/m.json'"
        )

    with patch.object(session.Session, "table") as load:
        refresh("columns", ["scan", "db.t", "--key", ""])

    assert load.call_count == 0


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A program `lake` that prints what it was asked."""
    program = tmp_path / "programs" / "lake"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$_LAKE_COMPLETE:$*"\n')
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["lake", "--catalog", "p"], "catalogs:--catalog p"),
        (["lake", "scan", "db."], "tables:scan db."),
        (["lake", "scan", "db.t", "--key", "i"], "columns:scan db.t --key i"),
        (["lake", "scan", "db.t", "--where", "i"], "columns:scan db.t --where i"),
        (["lake", "expire", "db.t", "--snapshot", ""], "refs:expire db.t --snapshot "),
        (["lake", "compact", "db.t", "--branch", "m"], "branches:compact db.t --branch m"),
        (["lake", "ingest", "db.t", "--from-table", "d"], "tables:ingest db.t --from-table d"),
        (["lake", "scan", "db.t", "--output", "x"], ""),
    ],
)
def test_bash_asks_for_names_where_the_catalog_has_them(
    stub: Path, words: list[str], asked: str
) -> None:
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _lake;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", code, "bash", str(ROOT / "completions/lake.bash"), *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{stub}{os.pathsep}{os.environ['PATH']}"},
    )

    assert done.stdout == f"{asked}\n"


def test_bash_starts_no_program_of_the_working_folder(stub: Path, hostile: Path) -> None:
    (hostile / "lake").write_text("#!/bin/sh\ntouch ran\n")
    (hostile / "lake").chmod(0o755)
    code = 'source "$1"; COMP_WORDS=(./lake scan db.); COMP_CWORD=2; _lake; echo "${COMPREPLY[@]}"'

    done = subprocess.run(
        ["bash", "-c", code, "bash", str(ROOT / "completions/lake.bash")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{stub}{os.pathsep}{os.environ['PATH']}"},
    )

    assert done.stdout == "tables:scan db.\n"
    assert not (hostile / "ran").exists()


@pytest.mark.parametrize("script", ["_lake", "lake.bash", "lake.fish"])
def test_no_shell_runs_the_words_of_the_line(script: str) -> None:
    """The line may begin with another command: ``rm x; lake scan``."""
    text = (ROOT / "completions" / script).read_text()

    (asking,) = (line for line in text.splitlines() if "_LAKE_COMPLETE=" in line)
    assert re.search(r"_LAKE_COMPLETE=\S+ (command )?lake ", asking)
    assert "LBUFFER" not in text


@pytest.mark.parametrize(
    ("script", "call"),
    [("_lake", "_lake_names"), ("lake.fish", "__lake_names")],
)
def test_zsh_and_fish_ask_for_every_kind_of_name(script: str, call: str) -> None:
    text = (ROOT / "completions" / script).read_text()

    for kind in ("catalogs", "tables", "refs", "branches", "columns"):
        assert f"{call} {kind}" in text
