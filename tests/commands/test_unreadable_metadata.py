"""A metadata file that is missing or damaged: every command names it, and the command that goes back before it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine


@pytest.fixture
def newest(lake: CommandLine, tmp_path: Path) -> Path:
    """The newest metadata file of a table with three snapshots."""
    source = tmp_path / "rows.csv"
    for number in range(3):
        source.write_text(f"id\n{number}\n")
        lake.ok("ingest", "db.t", source, "--create")
    location = lake.table().metadata_location
    return Path(location.removeprefix("file://"))


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "not metadata"])
def test_the_command_that_an_error_names_sets_the_table_back(
    lake: CommandLine, newest: Path, damage: str
) -> None:
    texts = {"empty": "", "garbage": "{", "not metadata": "{}"}
    if damage == "missing":
        newest.unlink()
    else:
        newest.write_text(texts[damage])

    failed = lake("check", "db.t")
    assert failed.exit_code == 7
    assert str(newest) in failed.stderr
    named = re.search("`lake (register [^`]+)`", failed.stderr)
    assert named is not None, failed.stderr

    done = lake.ok(*shlex.split(named[1]))
    assert done["status"] == "done"
    found = lake.ok("scan", "db.t")["result"]["preview"]
    assert sorted(row["id"] for row in found) == [0, 1]
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0


@pytest.mark.parametrize("damage", ["missing", "missing, no hint", "garbage", "the two newest"])
def test_the_commands_that_an_error_names_set_a_table_of_folders_back(
    lake: CommandLine, tmp_path: Path, damage: str
) -> None:
    lake.catalog_type = "hadoop"
    source = tmp_path / "rows.csv"
    for number in range(4):
        source.write_text(f"id\n{number}\n")
        lake.ok("ingest", "db.t", source, "--create")
    folder = lake.warehouse / "db" / "t" / "metadata"
    newest, hint = folder / "v4.metadata.json", folder / "version-hint.text"
    if damage.startswith("missing"):
        newest.unlink()
    else:
        newest.write_text("{")
    if damage == "the two newest":
        (folder / "v3.metadata.json").write_text("{}")
    if damage == "missing, no hint":
        hint.unlink()
        assert len(lake.ok("scan", "db.t")["result"]["preview"]) == 3
        return

    failed = lake("check", "db.t")

    assert failed.exit_code == 7
    assert str(newest) in failed.stderr
    named = re.search("`(cd [^`]+)`", failed.stderr)
    assert named is not None, failed.stderr
    subprocess.run(named[1], shell=True, check=True)
    left = 2 if damage == "the two newest" else 3
    assert len(lake.ok("scan", "db.t")["result"]["preview"]) == left
    lake.ok("ingest", "db.t", source)
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0


def test_a_table_of_folders_without_an_older_version_needs_a_backup(lake: CommandLine) -> None:
    lake.catalog_type = "hadoop"
    lake.ok("create", "db.t", "id int")
    first = lake.warehouse / "db" / "t" / "metadata" / "v1.metadata.json"
    first.write_text("")

    failed = lake("-q", "scan", "db.t")

    assert failed.exit_code == 7
    assert str(first) in failed.stderr
    assert "restore it from a backup" in failed.stderr


@contextmanager
def server_without(missing: str) -> Iterator[str]:
    """Run a REST catalog that answers as Iceberg's own does if a table's metadata file is missing."""
    error = {"type": "NotFoundException", "code": 404, "message": f"Failed to open: {missing}"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_config = self.path.startswith("/v1/config")
            found = {"defaults": {}, "overrides": {}} if is_config else {"error": error}
            body = json.dumps(found).encode()
            self.send_response(200 if is_config else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("found", ["older", "none", "not named"])
def test_a_server_that_misses_a_metadata_file_is_not_a_missing_table(
    lake: CommandLine, newest: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    older = sorted(newest.parent.glob("*.metadata.json"))[-2]
    place = f"file:{newest}"
    for path in [newest] if found == "older" else newest.parent.glob("*.metadata.json"):
        path.unlink()
    lake.arguments = lambda *words: [str(word) for word in words]  # type: ignore[method-assign]
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "rest")
    with server_without("its file" if found == "not named" else place) as address:
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", address)
        failed = lake("--catalog", "prod", "check", "db.t")
    assert failed.exit_code == 7
    text = " ".join(failed.stderr.split())
    if found == "not named":
        assert "table db.t does not exist in catalog prod" in text
        return
    assert "the server of catalog prod cannot read the metadata of table db.t" in text
    assert place in text
    drop, register = "pyiceberg --catalog prod drop table db.t", "lake --catalog prod register db.t"
    command = f"`{drop} && {register} file:{older}` (no file is deleted)"
    assert (command if found == "older" else "restore it from a backup: ") in text


def test_without_an_older_file_a_backup_is_all_that_helps(lake: CommandLine, newest: Path) -> None:
    for path in newest.parent.glob("*.metadata.json"):
        path.unlink()

    failed = lake("-q", "scan", "db.t")

    assert failed.exit_code == 7
    assert f"({newest.as_uri()})" in failed.stderr
    assert "restore it from a backup" in failed.stderr


def test_a_readable_table_is_not_replaced_by_a_registration(
    lake: CommandLine, newest: Path
) -> None:
    older = sorted(newest.parent.glob("*.metadata.json"))[0]

    assert lake("register", "db.t", older).exit_code == 3
    assert len(lake.ok("scan", "db.t")["result"]["preview"]) == 3


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ((), "data files were not looked for (--files)"),
        (("--files",), "data files were not opened (--rows)"),
        (("--rows",), "the values of data files were not read (--deep)"),
    ],
)
def test_a_check_says_what_it_did_not_look_at(
    lake: CommandLine, newest: Path, level: tuple[str, ...], text: str
) -> None:
    assert text in lake("check", "db.t", *level).stdout
    assert "not" not in lake("check", "db.t", "--deep").stdout.replace("nothing", "")
