"""Answers of a REST catalog's server that are wrong, too large, or changed at random."""

from __future__ import annotations

import gzip
import json
import os
import random
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.cli.command_line import CommandLine

from hostile.guard import WrongError
from hostile.metadata import changed_at_random
from hostile.places import CONTROLS
from hostile.tables import ADDED, NAME, broken_table, rows_of

_CATALOG = "hostile"
_EXPIRE = (
    "--older-than",
    "0s",
    "--retain-last",
    "1",
    "--unsafe-retention",
    "--keep-checkpoints",
    "0s",
)
_NOW = ("--older-than", "0s", "--unsafe-retention")
_COMMANDS: dict[str, tuple[str, ...]] = {
    "tables": ("tables",),
    "show": ("show", NAME),
    "plan": ("scan", NAME, "--plan"),
    "inspect": ("inspect", NAME, "files"),
    "check": ("check", NAME),
    "expire": ("expire", NAME, *_EXPIRE),
    "clean": ("clean", NAME, *_NOW, "--max-share", "100%", "--delete"),
    "compact": ("compact", NAME, "--rewrite-all", "--min-input-files", "1"),
    "tag": ("tag", NAME, "more"),
    "alter": ("alter", NAME, "--add-column", "more string"),
    "rollback": ("rollback", NAME, "kept"),
    "forward": ("ref", NAME, "--fast-forward", "main", "--to", "kept"),
    "cherry-pick": ("cherry-pick", NAME, "kept"),
    "publish": ("publish", NAME, "--wap-id", "wap 1"),
    "add-files": ("add-files", NAME, "ADDED"),
    "expire-partitions": ("expire-partitions", NAME, *_NOW, "--strategy", "update-time"),
    "create": ("create", "db.new", "id long"),
    "rename": ("rename", NAME, "db.new"),
    "drop": ("drop", NAME),
    "purge": ("drop", NAME, "--purge", "--yes"),
    "register": ("register", "db.new", "PLACE"),
}
# Commands do not wait long before they ask again whether a commit that never happens has happened.
_QUICK = {
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "5",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.num-retries": "2",
}
_ENDS = {0, 2, 3, 4, 5, 6, 7, 9}
Answer = tuple[int, bytes, dict[str, str]]
Change = Callable[[str, int, Any], Any]


def _bomb() -> bytes:
    return gzip.compress(b" " * 2**29, 1)


class Answers:
    """Each command against a server that changes one of its answers."""

    count = 10**9

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._added = folder / "added.parquet"
        pq.write_table(rows_of(ADDED), self._added)
        self._document = json.loads(self._table.metadata_path.read_bytes())
        self._document["properties"] |= _QUICK
        self._change: Change = lambda path, status, body: body
        server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_address[1]}"
        os.environ |= {
            f"PYICEBERG_CATALOG__{_CATALOG.upper()}__TYPE": "rest",
            f"PYICEBERG_CATALOG__{_CATALOG.upper()}__URI": uri,
        }
        self._uri = uri
        self._lake = _RestLine(self._table.warehouse, engine="inline")
        self._named = list(self._wrong().items())
        for name in ("tables", "show", "plan", "check"):
            if (result := self._lake("--json", *_COMMANDS[name])).exit_code:
                raise AssertionError(result)

    def attempt(self, number: int) -> str:
        """Run a command: for each named answer every command, then one for answers changed at random."""
        if number < len(self._named):
            what, change = self._named[number]
            return " / ".join(self._ended(what, command, change) for command in _COMMANDS)
        chance = random.Random(f"rest {number}")
        command = list(_COMMANDS)[number % len(_COMMANDS)]
        made: list[str] = []

        def change(path: str, _: int, body: Any) -> Any:
            if isinstance(body, dict) and body and chance.random() < 0.5:
                made.append(f"{path}: {changed_at_random(body, chance)}")
            return body

        return self._ended(made, command, change)

    def _ended(self, what: Any, command: str, change: Change) -> str:
        self._change = change
        words = {"PLACE": self._table.pointer, "ADDED": str(self._added)}
        line = [words.get(part, part) for part in _COMMANDS[command]]
        try:
            result = self._lake("--json", *line)
            said = f"{what}: {command} ended with {result.exit_code}: {result.stdout[-500:]}"[:1000]
            said += result.stderr[-900:]
            if result.exit_code not in _ENDS:
                raise WrongError(said)
            if bad := CONTROLS & set(result.stdout + result.stderr):
                raise WrongError(f"{bad} in {said}")
            gone = {path for path in self._table.changes()[1] if path.suffix != ".crc"}
            # A table may be in any folder that the catalog states: new files beside others harm none.
            if self._table.canary_harmed() or (
                command != "purge" and gone & self._table.truth.needed
            ):
                raise WrongError(f"{gone} went: {said}")
            if gone and result.exit_code in {2, 3, 7} and command != "clean":
                raise WrongError(f"{gone} went: {said}")
            return {0: "right", 6: "in part"}.get(result.exit_code, "typed")
        finally:
            self._change = lambda path, status, body: body
            self._table.restore()

    # The server

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, body, headers = outer._answer(self.command, self.path)
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _answer(self, method: str, path: str) -> Answer:
        status, body = self._plain(method, path.partition("?")[0])
        changed = self._change(path, status, json.loads(json.dumps(body)))
        if isinstance(changed, tuple):
            return changed
        data = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        return status, data, {"Content-Type": "application/json"}

    def _plain(self, method: str, path: str) -> tuple[int, Any]:
        loaded = {
            "metadata-location": self._table.pointer,
            "metadata": self._document,
            "config": {},
        }
        missing = {
            "error": {"message": "no such thing", "type": "NoSuchTableException", "code": 404}
        }
        match method, path.removeprefix("/v1").strip("/").split("/"):
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "GET", ["namespaces"]:
                return 200, {"namespaces": [["db"]]}
            case "GET", ["namespaces", "db"]:
                return 200, {"namespace": ["db"], "properties": {}}
            case "GET", ["namespaces", "db", "tables"]:
                return 200, {"identifiers": [{"namespace": ["db"], "name": "t"}]}
            case "GET", ["namespaces", "db", "tables", "t"]:
                return 200, loaded
            case "POST", ["namespaces", "db", "tables", "t"]:
                # It says that it committed, and did not.
                return 200, loaded
            case ("HEAD", ["namespaces", "db"]) | ("DELETE", [*_]) | ("POST", ["tables", "rename"]):
                return 204, {}
            case "POST", ["namespaces", "db", "register"]:
                return 200, loaded
        return 404, missing

    def _wrong(self) -> dict[str, Change]:
        """Return changes of all answers, or of those about tables."""

        def all_as(status: int, data: bytes, **headers: str) -> Change:
            named = {key.replace("_", "-"): value for key, value in headers.items()}
            return lambda path, _, body: body if "config" in path else (status, data, named)

        def loaded(change: Callable[[Any], Any]) -> Change:
            def changed(path: str, _: int, body: Any) -> Any:
                if isinstance(body, dict) and "metadata" in body:
                    change(body)
                return body

            return changed

        def config(**overrides: Any) -> Change:
            return lambda path, _, body: (
                {**body, "overrides": overrides} if "config" in path else body
            )

        deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
        root, canary = self._table.root, self._table.folder / "canary"
        found: dict[str, Change] = {
            "as it should be": lambda path, _, body: body,
            "nothing": all_as(200, b""),
            "no JSON": all_as(200, b"<html>\x1b[2J</html>"),
            "null": all_as(200, b"null"),
            "a list": all_as(200, b"[1]"),
            "a number": all_as(200, b"5"),
            "no UTF-8": all_as(200, b"\xff\xfe"),
            "deep": all_as(200, deep),
            "digits": all_as(200, b'{"a":' + b"9" * 10**5 + b"}"),
            "a bomb": all_as(200, _bomb(), Content_Encoding="gzip"),
            "no gzip": all_as(200, b"{}", Content_Encoding="gzip"),
            "a redirect to a file": all_as(302, b"", Location="file:///etc/passwd"),
            "a circle of redirects": all_as(302, b"", Location=self._uri + "/v1/x"),
            "no content": all_as(204, b""),
            "a refusal": all_as(403, b'{"error":{"message":"\\u001b[2J","type":"x","code":403}}'),
            "a refusal of 1 MiB": all_as(400, b'{"error":{"message":"%s"}}' % (b"x" * 2**20)),
            "an error without JSON": all_as(400, b"\x1b[31m\x07"),
            "a conflict": all_as(409, b"{}"),
            "a prefix with dots": config(prefix="../../x"),
            "a prefix of colours": config(prefix="\x1b[2J"),
            "code": config(**{"py-io-impl": "os.system", "py-catalog-impl": "os.system"}),
            "another server": config(uri="http://127.0.0.1:1"),
            "config as a list": lambda path, _, body: [] if "config" in path else body,
            "names with dots": lambda path, _, body: _names(body, ["..", "db"], "../t"),
            "names of colours": lambda path, _, body: _names(body, ["\x1b[2J"], "\x07\n"),
            "100,000 names": lambda path, _, body: _many(body),
            "numbers as names": lambda path, _, body: _names(body, [5], 5),
            "no location": loaded(lambda one: one.pop("metadata-location")),
            "code from a table": loaded(
                lambda one: one.update(config={"py-io-impl": "os.system", "s3.signer": "x"})
            ),
            "a config of lists": loaded(lambda one: one.update(config=[1])),
            "no metadata": loaded(lambda one: one.update(metadata=None)),
        }
        for place in (
            *("", "/", "..", "/dev/zero", "relative", "http://127.0.0.1:1/x", "gs9://x/y", "\0"),
            *(f"file://{canary}/a.parquet", f"{root}/../../canary/b.avro", "\x1b[2J", "x" * 10**5),
            f"file://{canary}/00001-x.metadata.json",
        ):
            # Without this folder, whose name is long and not the same in each run.
            named = place.replace(str(self._table.folder), "HERE")[:40]
            found[f"location {named!r}"] = loaded(
                lambda one, to=place: one.update({"metadata-location": to})
            )
            found[f"table at {named!r}"] = loaded(
                lambda one, to=place: one["metadata"].update(location=to)
            )
        return found


def _names(body: Any, space: list[Any], name: Any) -> Any:
    if isinstance(body, dict) and "namespaces" in body:
        return {"namespaces": [space, ["db"]]}
    if isinstance(body, dict) and "identifiers" in body:
        return {"identifiers": [{"namespace": space, "name": name}, *body["identifiers"]]}
    return body


def _many(body: Any) -> Any:
    if isinstance(body, dict) and "identifiers" in body:
        return {"identifiers": body["identifiers"] * 10**5}
    if isinstance(body, dict) and "namespaces" in body:
        return {"namespaces": body["namespaces"] * 10**5}
    return body


class _RestLine(CommandLine):
    def arguments(self, *arguments: object) -> list[str]:
        """Return the whole command line behind the program's name."""
        start = ["--catalog", _CATALOG, "--engine", self.engine]
        return [*start, *(str(argument) for argument in arguments)]
