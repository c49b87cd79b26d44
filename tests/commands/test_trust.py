"""Files in the working folder choose no code, and no address for the secrets of more trusted sources."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine, Result

from lake.core.base.trust import folders

STRANGER = 4711


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working folder, with a home folder elsewhere and a module that records that it was imported."""
    home, folder, modules = tmp_path / "own", tmp_path / "shared" / "work", tmp_path / "modules"
    for path in (home, folder, modules):
        path.mkdir(parents=True)
    for name in ("PYICEBERG_HOME", "XDG_CONFIG_HOME", "LAKE_CATALOG", "LAKE_WAREHOUSE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith(("AWS_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(folder)
    (modules / "canary_code.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass Chosen: pass\n"
    )
    monkeypatch.syspath_prepend(modules)
    return folder


@pytest.fixture
def plain(lake: CommandLine, here: Path) -> CommandLine:
    """Lake without options of the harness."""
    lake.arguments = lambda *words: [str(word) for word in words]  # type: ignore[method-assign]
    return lake


def catalogs(folder: Path, **properties: str) -> Path:
    """Write a file with one catalog for PyIceberg."""
    lines = [f"    {key.replace('_', '-')}: {value}" for key, value in properties.items()]
    path = folder / ".pyiceberg.yaml"
    path.write_text("\n".join(["catalog:", "  prod:", *lines, ""]))
    return path


def error_of(result: Result) -> tuple[int, str, str]:
    error = result.json()["error"]
    return result.exit_code, error["message"], error["hint"] or ""


def ignored(plain: CommandLine, *words: str) -> list[str]:
    """Return the names of the settings that `lake config` shows as ignored."""
    result = plain("--json", *words, "config")
    assert result.exit_code == 0, result
    return [item["name"] for item in result.json()["result"]["ignored"]]


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Run a server that records requests; yield its address and the secrets and paths that it received."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            got.append(f"{self.path} {self.headers} {self.rfile.read(size).decode()}")
            body = b'{"defaults": {}, "overrides": {}, "access_token": "t", "token_type": "bearer"}'
            self.send_response(200 if "namespaces" not in self.path else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._answer
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        server.server_close()


def as_strangers(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    """Let files or folders belong to another user."""
    numbers = {path.lstat().st_ino for path in paths}

    def foreign(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def changed(*arguments: Any, **options: Any) -> os.stat_result:
            found = real(*arguments, **options)
            values = list(found)
            values[4] = STRANGER if found.st_ino in numbers else found.st_uid
            return os.stat_result(values)

        return changed

    for name in ("stat", "lstat", "fstat"):
        monkeypatch.setattr(os, name, foreign(getattr(os, name)))


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    "properties",
    [
        {"type": "sql", "uri": "sqlite:///x.db", "py-io-impl": "canary_code.Chosen"},
        {"py-catalog-impl": "canary_code.Chosen"},
        {"type": "rest", "uri": "http://127.0.0.1:1", "auth": "\n      type: custom\n      impl: canary_code.Chosen"},
        {"type": "rest", "uri": "http://127.0.0.1:1", "auth": "\n      type: google"},
        {"type": "rest", "uri": "http://127.0.0.1:1", "auth.impl": "canary_code.Chosen"},
        {"type": "sql", "uri": "sqlite:///x.db", "s3.retry-strategy-impl": "canary_code.Chosen"},
        {"type": "sql", "uri": "mssql+pyodbc:///?odbc_connect=DRIVER%3D.%2Fevil.so"},
        {"type": "in-memory", "uri": "mysql+canary_code://x"},
    ],
    ids=lambda value: str(value)[-40:],
)  # fmt: skip
def test_a_found_catalog_never_chooses_code(
    plain: CommandLine, here: Path, tmp_path: Path, properties: dict[str, str], trusted: bool
) -> None:
    catalogs(here, **properties)
    if trusted:
        assert plain("config", "--trust").exit_code == 0

    for words in (("tables",), ("scan", "db.t"), ("--catalog", "prod", "snapshots", "db.t")):
        code, message, hint = error_of(plain("--json", *words))
        assert (code, "chooses code" in message) == (3, True), message
        assert "~/.pyiceberg.yaml" in hint

    assert ignored(plain)
    (tmp_path / "a.csv").write_text("id\n1\n")
    folder = ("--warehouse", str(tmp_path / "w"), "--catalog", "prod")
    assert plain(*folder, "ingest", "db.t", str(tmp_path / "a.csv"), "--create").exit_code == 0
    assert not (tmp_path / "ran").exists()


def test_a_warehouse_folder_gets_nothing_from_the_configuration(
    plain: CommandLine, here: Path, tmp_path: Path
) -> None:
    (here / ".pyiceberg.yaml").write_text(
        "catalog:\n  lake:\n    py-io-impl: canary_code.Chosen\n    uri: sqlite:////nowhere/x.db\n"
    )
    (tmp_path / "a.csv").write_text("id\n1\n")

    result = plain(
        "--warehouse", str(tmp_path / "w"), "ingest", "db.t", str(tmp_path / "a.csv"), "--create"
    )

    assert result.exit_code == 0, result
    assert not (tmp_path / "ran").exists()
    (here / ".pyiceberg.yaml").write_text("catalog: [broken\n")
    assert plain("--warehouse", str(tmp_path / "w"), "tables").exit_code == 0
    (here / ".pyiceberg.yaml").chmod(0o666)
    assert plain("--warehouse", str(tmp_path / "w"), "tables").exit_code == 0


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("CREDENTIAL", "uri"),
        ("TOKEN", "uri"),
        ("HEADER__X_API_KEY", "uri"),
        ("CREDENTIAL", "oauth2-server-uri"),
    ],
)
def test_a_secret_of_the_environment_is_sent_to_no_address_of_a_found_file(
    plain: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name}", "canary:secret-word")
    with listening() as (address, got):
        if key == "uri":
            catalogs(here, type="rest", uri=address)
        else:
            monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "http://127.0.0.1:1")
            catalogs(here, type="rest", oauth2_server_uri=address)
        code, message, hint = error_of(plain("--json", "tables"))
        assert (code, got) == (3, [])
        assert f"{key} of catalog prod in {here}/.pyiceberg.yaml would receive" in message
        assert "lake config --trust" in hint
        assert "secret-word" not in message + hint
        assert ignored(plain) == [f"{key} of catalog prod"]

        assert plain("config", "--trust").exit_code == 0
        assert ignored(plain) == []
        if key == "uri":
            plain("tables")
            assert any("secret-word" in request for request in got)
        assert plain("config", "--untrust").exit_code == 0
        assert error_of(plain("--json", "tables"))[0] == 3


def test_an_address_that_receives_no_foreign_secret_needs_no_trust(
    plain: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These are the storage's, and not sent to the catalog; the credential is the file's own.
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY", "canary-key")
    monkeypatch.setenv("PYICEBERG_CATALOG__OTHER__CREDENTIAL", "canary:other")
    monkeypatch.setenv("LAKE_CATALOG", "prod")
    with listening() as (address, got):
        catalogs(here, type="rest", uri=address, credential="own:secret")
        plain("tables")

    assert any("own" in request for request in got)
    assert not any("canary" in request for request in got)


GLUE = {"type": "glue", "glue.endpoint": "http://127.0.0.1:1"}


@pytest.mark.parametrize(
    ("properties", "variables", "home"),
    [
        ({"s3.endpoint": "http://127.0.0.1:1"}, {"AWS_SECRET_ACCESS_KEY": "x"}, None),
        ({"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "own"}, {}, None),
        ({"s3.proxy-uri": "http://127.0.0.1:1"}, {}, ".aws/credentials"),
        ({"s3.region": "x.evil.example/"}, {}, None),
        ({"s3.profile-name": "production"}, {}, None),
        ({"s3.role-arn": "arn:aws:iam::1:role/x"}, {}, None),
        ({"gcs.service.host": "http://127.0.0.1:1"}, {}, None),
        ({"gcs.service.host": "http://127.0.0.1:1", "gcs.oauth2.token-expires-at": "1"}, {}, None),
        ({"s3.endpoint": "http://127.0.0.1:1", "glue.access-key-id": "a", "glue.secret-access-key": "b"}, {}, None),
        ({"adls.account-host": "127.0.0.1:1", "adls.anonymous": "true"}, {}, None),
        ({"adls.blob-storage-authority": "127.0.0.1:1"}, {}, None),
        ({"hf.endpoint": "http://127.0.0.1:1"}, {"HF_TOKEN": "x"}, None),
        ({"warehouse": "abfss://c@evil.example/w"}, {}, None),
        ({"warehouse": "hdfs://evil.example:8020/w"}, {}, None),
        ({"uri": "postgresql://u@127.0.0.1:1/x"}, {"PGPASSWORD": "x"}, None),
        ({"uri": "postgresql+psycopg2://u@127.0.0.1:1/x"}, {}, ".pgpass"),
        ({"uri": "postgresql://u:p@127.0.0.1:1/x?passfile=/etc/hosts"}, {}, None),
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, {}, ".netrc"),
        ({"type": "rest", "uri": "http://127.0.0.1:1", "rest.sigv4-enabled": "true"}, {}, None),
        ({"type": "rest", "uri": "http://127.0.0.1:1", "lake.allow-plain-http": "true"}, {}, None),
        ({"type": "hive", "uri": "thrift://127.0.0.1:1", "hive.kerberos-authentication": "true"}, {}, None),
        (GLUE, {}, None),
        ({**GLUE, "s3.access-key-id": "a", "s3.secret-access-key": "b"}, {}, None),
        ({**GLUE, "s3.anonymous": "true"}, {}, None),
        ({**GLUE, "glue.anonymous": "true"}, {}, None),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_login_that_a_client_library_finds_is_sent_to_no_address_of_a_found_file(
    plain: CommandLine,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    variables: dict[str, str],
    home: str | None,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if home:
        path = Path(os.environ["HOME"], home)
        path.parent.mkdir(exist_ok=True)
        path.write_text("default login me password canary\n")
        path.chmod(0o600)
    catalogs(here, **{"type": "sql", "uri": "sqlite:///x.db", **properties})

    code, message, hint = error_of(plain("--json", "tables"))

    assert (code, "not trusted" in message) == (3, True), message
    assert "lake config --trust" in hint
    assert plain("config", "--trust").exit_code == 0
    assert ignored(plain) == []


@pytest.mark.parametrize(
    "properties",
    [
        {"s3.endpoint": "http://127.0.0.1:1", "s3.access-key-id": "a", "s3.secret-access-key": "b"},
        {"s3.endpoint": "http://127.0.0.1:1", "s3.anonymous": "true"},
        {"gcs.service.host": "http://127.0.0.1:1", "gcs.oauth2.token": "own"},
        {"adls.account-host": "127.0.0.1:1", "adls.account-key": "b3du"},
        {"s3.region": "eu-central-1", "warehouse": "s3://bucket/w"},
        {"warehouse": "/srv/w"},
        {"uri": "sqlite:///catalog.db?timeout=5"},
        {"uri": "postgresql+psycopg2://u:p@127.0.0.1:1/x?sslmode=require"},
        {"type": "rest", "uri": "http://127.0.0.1:1", "token": "own"},
        {"type": "rest", "uri": "http://127.0.0.1:1", "auth": "\n      type: noop"},
        {"type": "rest", "uri": "http://[::1]:1", "auth": "\n      type: basic\n      basic:\n        username: a"},
        {"type": "hive", "uri": "thrift://127.0.0.1:1"},
        {"type": "glue", "glue.region": "eu-central-1"},
        {**GLUE, "client.access-key-id": "a", "client.secret-access-key": "b"},
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_usual_configuration_of_a_project_needs_no_trust(
    plain: CommandLine, here: Path, properties: dict[str, str]
) -> None:
    catalogs(here, **{"type": "sql", "uri": "sqlite:///x.db", **properties})

    assert ignored(plain) == []


@pytest.mark.parametrize(
    "text",
    [
        '[spark-conf]\n"spark.driver.extraJavaOptions" = "-agentpath:./evil.so"',
        '[spark-conf]\n"spark.driver.extraClassPath" = "evil.jar"',
        '[spark-conf]\n"spark.executor.extraJavaOptions" = "-Xlog:all:file=x"',
        '[spark-conf]\n"spark.jars" = "evil.jar"',
        '[spark-conf]\n"spark.plugins" = "evil.Plugin"',
        '[spark-conf]\n"spark.pyspark.python" = "./evil"',
        '[spark-conf]\n"spark.hadoop.fs.s3a.impl" = "evil.FileSystem"',
        '[spark-conf]\n"spark.master" = "spark://127.0.0.1:1"',
        '[spark-conf]\n"spark.unknown" = "1"',
        '[spark-conf]\n"spark.driver.memory" = "1g -agentpath:./evil.so"',
        '[spark-conf]\n"spark.app.name" = "${env:AWS_SECRET_ACCESS_KEY}"',
        '[spark-conf]\n"spark.eventLog.dir" = "http://127.0.0.1:1"',
        '[spark-conf]\n"spark.driver.host" = "127.0.0.1"',
        'master = "spark://127.0.0.1:1"',
        'master = "k8s://127.0.0.1:1"',
        'master = "yarn"',
        'remote = "sc://127.0.0.1:1"',
    ],
)
@pytest.mark.parametrize("name", ["lake.toml", "pyproject.toml"])
def test_a_project_file_chooses_neither_spark_s_code_nor_a_cluster(
    plain: CommandLine, here: Path, name: str, text: str
) -> None:
    if name == "pyproject.toml":
        text = f"[tool.lake]\n{text}".replace("[tool.lake]\n[spark-conf]", "[tool.lake.spark-conf]")
    # The nearest file counts, also in a folder above.
    (here.parent / name).write_text(text)
    (here / "a.csv").write_text("id\n1\n")

    code, message, hint = error_of(
        plain("--json", "--engine", "spark", "ingest", "db.t", "a.csv", "--create")
    )

    assert code == 3, message
    assert str(here.parent / name) in message
    assert "lake config --trust" in hint or "--spark-conf" in hint
    assert len(ignored(plain)) == 1
    # What starts no Spark works.
    assert plain("--engine", "inline", "ingest", "db.t", "a.csv", "--create").exit_code == 0
    assert plain("snapshots", "db.t").exit_code == 0
    # An option replaces the file's value.
    option = ["--master", "local"] if "[" not in text.splitlines()[-2:][0] else []
    if option and name == "lake.toml":
        assert ignored(plain, *option) == []


def test_a_project_file_chooses_sizes_counts_and_this_machine(
    plain: CommandLine, here: Path
) -> None:
    (here / "lake.toml").write_text(
        'master = "local[2]"\nengine = "auto"\nwarehouse = "data"\n[spark-conf]\n'
        '"spark.cores.max" = "16"\n"spark.driver.memory" = "2g"\n"spark.speculation" = "true"\n'
        '"spark.dynamicAllocation.maxExecutors" = "4"\n"spark.network.timeout" = "300s"\n'
    )

    assert ignored(plain) == []


def test_trust_lets_a_project_file_choose_a_cluster_and_no_code(
    plain: CommandLine, here: Path
) -> None:
    (here.parent / "lake.toml").write_text(
        'master = "spark://127.0.0.1:1"\n[spark-conf]\n"spark.plugins" = "evil"\n'
        '"spark.driver.host" = "127.0.0.1"\n'
    )
    assert len(ignored(plain)) == 3

    result = plain("--json", "config", "--trust")

    assert result.json()["result"]["trusted"] == [str(here), str(here.parent)]
    assert ignored(plain) == ["spark-conf spark.plugins"]


@pytest.mark.parametrize("name", [".pyiceberg.yaml", "lake.toml"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_of_another_user_is_refused_until_its_owner_is_trusted(
    plain: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    path = here / name
    text = {"lake.toml": 'catalog = "prod"\n'}.get(
        name, "catalog:\n  prod:\n    type: sql\n    uri: x\n"
    )
    if kind == "link":
        (here / "own").write_text(text)
        path.symlink_to("own")
    else:
        path.write_text(text)
    as_strangers(monkeypatch, path)

    for words in (("config",), ("tables",)):
        code, message, hint = error_of(plain("--json", *words))
        assert (code, f"{path} belongs to another user" in message) == (3, True), message
        assert "--trust there" in hint
    # The folder is the user's own, so trust in it does not include another user.
    assert plain("config", "--trust").exit_code == 0
    assert plain("config").exit_code == 3
    as_strangers(monkeypatch, path, here)
    assert plain("config").exit_code == 3
    assert plain("config", "--trust").exit_code == 0
    assert plain("config").exit_code == 0


@pytest.mark.parametrize("place", ["here", "home"])
def test_a_configuration_that_every_user_can_change_is_refused(
    plain: CommandLine, here: Path, place: str
) -> None:
    path = catalogs(here if place == "here" else Path(os.environ["HOME"]), type="sql", uri="x")
    path.chmod(0o666)

    code, message, hint = error_of(plain("--json", "tables"))

    assert (code, "can be changed by every user" in message) == (3, True)
    assert "chmod o-w" in hint


def test_trust_ends_when_the_folder_gets_another_owner_or_is_opened_to_all(
    plain: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "lake.toml").write_text('remote = "sc://127.0.0.1:1"\n')
    assert plain("config", "--trust").exit_code == 0
    assert ignored(plain) == []

    here.chmod(0o777)
    assert ignored(plain) == ["remote"]
    assert plain("config", "--trust").exit_code == 3
    here.chmod(0o755)
    assert ignored(plain) == []
    as_strangers(monkeypatch, here)
    assert ignored(plain) == ["remote"]


def test_trust_in_a_folder_does_not_include_another_user_s_folder_above(
    plain: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here.parent / "lake.toml").write_text('remote = "sc://127.0.0.1:1"\n')
    as_strangers(monkeypatch, here.parent)
    assert plain("--json", "config", "--trust").json()["result"]["trusted"] == [str(here)]
    assert ignored(plain) == ["remote"]


def test_nothing_is_trusted_if_a_folder_cannot_be(plain: CommandLine, here: Path) -> None:
    (here.parent / "lake.toml").write_text('remote = "sc://127.0.0.1:1"\n')
    here.parent.chmod(0o777)

    assert plain("config", "--trust").exit_code == 3
    assert plain("--json", "config").json()["result"]["trusted_folders"] == []


def test_trust_is_stored_in_the_home_folder_for_its_user_only(
    plain: CommandLine, here: Path
) -> None:
    link = here.parent / "link"
    link.symlink_to(here)
    os.chdir(link)
    assert plain("--json", "config", "--trust").json()["result"]["trusted"] == [str(here)]

    store = Path(folders.store_path())
    assert store == Path(os.environ["HOME"], ".config/lake/trusted.json")
    assert store.stat().st_mode & 0o777 == 0o600
    owner = here.stat().st_uid
    assert json.loads(store.read_text()) == {"folders": [{"path": str(here), "owner": owner}]}
    assert plain("--json", "config").json()["result"]["trusted_folders"] == [str(here)]

    store.chmod(0o666)
    (here / "lake.toml").write_text('remote = "sc://127.0.0.1:1"\n')
    assert plain("config").exit_code == 3
    store.chmod(0o600)
    store.write_text('{"folders": 5}')
    assert plain("config").exit_code == 7
    store.unlink()
    assert plain("--json", "config", "--untrust").json()["status"] == "nothing-to-do"
    assert plain("config", "--trust", "--untrust").exit_code == 2


def test_secrets_of_ignored_settings_are_not_shown(
    plain: CommandLine, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__CREDENTIAL", "canary-env:canary-secret")
    catalogs(here, type="rest", uri="https://me:canary-password@evil.example/x")

    for words in (("config",), ("--json", "config"), ("tables",), ("--json", "tables")):
        result = plain(*words)
        assert "canary" not in result.stdout + result.stderr
    assert "ignores 1 setting of this folder" in plain("config").stderr
