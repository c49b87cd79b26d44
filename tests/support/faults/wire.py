"""Faults on the real wire: the n-th request of a command to its catalog or its store fails in every way.

The reported result must be true (the n-th answer may be lost, wrong, cut or another's): what succeeded is visible,
what was refused is not, an unknown outcome is wholly there or not at all, and the same command then ends it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError

from lake.core.base.clock import Backoff
from lake.core.io.storage import opening
from support.cli.service_line import Service, csv
from support.faults import faulty_proxy as faults
from support.faults.faulty_proxy import Fault, Proxy
from support.faults.wire_entries import Entries, Planned
from support.servers import maven, s3_server
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3

# The first ones read the whole history, which grows with each action.
ACTIONS = (
    *("add-files", "clean", "append", "upsert", "compact", "expire", "replay"),
    *("manifests", "deletes", "stats", "rollback", "cherry-pick", "publish"),
    *("alter", "tag", "branch-create", "branch-drop", "fast-forward"),
    *("quarantine", "restore", "purge", "partition-stats", "expire-partitions"),
    *("create", "register", "rename", "drop", "drop-purge"),
)
# Those that change rows, or files with rows.
_ROWS = ACTIONS[: ACTIONS.index("publish")]
_OLD = ("--older-than", "0s", "--unsafe-retention")
WIRES = ("catalog", "store")
# Only where something may hang: a busy machine may answer late too.
_LIMITS = {
    "rest.client.connection-timeout-ms": "1500",
    "rest.client.socket-timeout-ms": "1500",
    "s3.connect-timeout": "1.5",
    "s3.request-timeout": "1.5",
}
QUICK = [
    part
    for text in (
        "commit.retry.min-wait-ms=1",
        "commit.retry.max-wait-ms=5",
        "commit.status-check.min-wait-ms=1",
        "commit.status-check.num-retries=2",
    )
    for part in ("--property", text)
]
# Longer than any client tries again.
_STICKY = 60
# A prime.
_STRIDE = 7919


def _named() -> dict[str, Callable[[Proxy], Fault]]:
    found: dict[str, Callable[[Proxy], Fault]] = {
        "reset before": lambda _: faults.reset(done=False),
        "reset after": lambda _: faults.reset(done=True),
        "slow": lambda proxy: proxy.hang,
        "slow after": lambda proxy: proxy.landed_and_hang,
        "cut": lambda _: faults.cut(announced=True),
        "cut unseen": lambda _: faults.cut(announced=False),
        "elsewhere": lambda _: faults.elsewhere,
        "page": lambda _: faults.page,
        "endless": lambda _: faults.endless,
        "throttled": lambda _: faults.throttled(1),
        "twice": lambda _: faults.sent_twice,
    }
    for status in (400, 401, 403, 404, 409, 419, 429, 500, 502, 503, 504):
        found[f"{status}"] = lambda _, status=status: faults.refused(status)
    for status in (400, 404, 409, 500, 502, 503, 504):
        found[f"{status} after"] = lambda _, status=status: faults.landed(status)
    return found


FAULTS = _named()


@dataclass(frozen=True)
class Case:
    """A fault at a request.

    Args:
        action: what runs.
        wire: where the request goes.
        number: of the request there, from 0.
        fault: its name.
        sticky: whether all later ones fail, too.
    """

    action: str
    wire: str
    number: int
    fault: str
    sticky: bool = False


@dataclass
class Wired:
    """A table behind two proxies, and what its rows must be."""

    direct: Service
    behind: Service
    proxies: dict[str, Proxy]
    # A catalog gives no access to the files of a table that it does not have.
    keys: dict[str, str]
    rows: dict[int, str] = field(default_factory=dict)
    step: int = 0

    def prepare(self) -> None:
        """Make the table."""
        first = csv(self.direct.folder, "first.csv", id=[0, 1], name=["a", "b"])
        self._direct("ingest", first, "--create", *QUICK)
        self.rows = {0: "a", 1: "b"}

    def requests(self, action: str) -> dict[str, int]:
        """Return how many requests an action makes on each wire when nothing fails."""
        planned = self._planned(action)
        before = {wire: len(self.proxies[wire].asked) for wire in WIRES}
        code, document = self._run(planned, {})
        assert code == 0, document
        self.rows = planned.rows
        return {wire: len(self.proxies[wire].asked) - before[wire] for wire in WIRES}

    def check(self, case: Case) -> Counter[str]:
        """Let a case happen and judge it."""
        planned = self._planned(case.action)
        before = (self.rows, planned.before)
        after = (planned.rows, planned.after)
        halfway = [(planned.rows, state) for state in planned.halfway]
        proxy = self.proxies[case.wire]
        often = _STICKY if case.sticky else 1
        proxy.fail_from(case.number, FAULTS[case.fault](proxy), often=often)
        code, document = self._run(planned, _LIMITS)
        happened = proxy.heal() < often
        status = document["status"]
        assert code in {0, 3, 4, 5, 6, 7, 9, 10}, document
        found = self._found(planned)
        if code == 0:
            assert found == after, (status, found, after)
        elif code == 6:
            assert found in (after, *halfway), (status, found, after)
        elif code == 5:
            assert found in (before, after, *halfway), (found, before, after)
        else:
            assert found == before, (status, found, before)
        self._unlock(planned.table)
        again, then = self._run(planned, {})
        assert again in planned.again, ("again", then)
        assert self._found(planned) == after or (code == 6 and found in halfway), ("again", then)
        self.rows = planned.rows
        # A retry may have saved the requests up to there.
        kind = "wire faults" if happened else "wire faults that never came"
        return Counter({kind: 1, f"wire exit {code}": 1})

    def _found(self, planned: Planned) -> tuple[dict[int, str], Any]:
        """Return the rows, and what else the command changes."""
        return dict(self.direct.rows()), planned.look()

    def _unlock(self, name: str) -> None:
        """Remove the lock of a command that could not remove it, as if its time had passed."""
        with suppress(FileNotFoundError, NoSuchTableError):
            table = self.direct.catalog().load_table(self.direct.table(name))
            table.io.delete(f"{table.location()}/metadata/lake.lock")

    def _planned(self, action: str) -> Planned:
        """Return a command that can be repeated, and what it changes."""
        if action in _ROWS:
            words, rows = self._planned_rows(action)
            # What was picked is not picked a second time.
            again = frozenset({0, 3} if action == "cherry-pick" else {0})
            return Planned(words, rows, again=again)
        self.step += 1
        entries = Entries(self.direct, self._made, tuple(QUICK))
        return entries.plan(action, f"{action}{self.step}", 100 + self.step, self.rows)

    def _planned_rows(self, action: str) -> tuple[list[Any], dict[int, str]]:
        """Return the words of a command on the rows of the table, and the rows after it."""
        self.step += 1
        name = f"{action}{self.step}"
        if action in {"append", "replay"}:
            key = 100 + self.step
            source = csv(self.direct.folder, "new.csv", id=[key], name=[name])
            after = {**self.rows, key: name}
            if action == "append":
                return ["ingest", source, "--run-id", name], after
            self._direct("ingest", source, "--stage", "--run-id", name)
            return ["replay", "--job", name, "--completed", "1", "--quiet-time", "0s"], after
        if action == "upsert":
            source = csv(self.direct.folder, "new.csv", id=[0], name=[name])
            return ["ingest", source, "--upsert", "--key", "id"], {**self.rows, 0: name}
        if action == "compact":
            return ["compact", "--rewrite-all"], self.rows
        if action in {"cherry-pick", "add-files"}:
            return self._planned_addition(action, name)
        head = self._head()
        for mode in ("position", "position" if action == "deletes" else "copy-on-write"):
            source = csv(self.direct.folder, "new.csv", id=[1], name=[f"{name} {mode}"])
            self._direct("ingest", source, "--upsert", "--key", "id", "--deletes", mode)
        before, self.rows = self.rows, {**self.rows, 1: f"{name} {mode}"}
        words: dict[str, list[Any]] = {
            "expire": ["expire", *_OLD],
            "manifests": ["manifests", "--rewrite-all"],
            "deletes": ["deletes", "--rewrite"],
            "stats": ["stats"],
            "rollback": ["rollback", head],
            "clean": ["clean", "--delete", *_OLD, "--max-share", "100%"],
        }
        return words[action], before if action == "rollback" else self.rows

    def _planned_addition(self, action: str, name: str) -> tuple[list[Any], dict[int, str]]:
        """Return the words of a command that adds a row from a branch or from a file that exists."""
        key = 100 + self.step
        after = {**self.rows, key: name}
        if action == "cherry-pick":
            source = csv(self.direct.folder, "new.csv", id=[key], name=[name])
            self._direct("ref", "--branch-create", name)
            self._direct("ingest", source, "--branch", name)
            return ["cherry-pick", name], after
        table = self.direct.catalog().load_table(self.direct.table())
        path = f"{table.location()}/landing/{name}.parquet"
        with table.io.new_output(path).create() as sink:
            pq.write_table(pa.table({"id": [key], "name": [name]}), sink)
        return ["add-files", path, "--run-id", name], after

    def _head(self) -> int | None:
        """Return the current snapshot."""
        table = self.direct.catalog().load_table(self.direct.table())
        return table.metadata.current_snapshot_id

    def _direct(self, verb: str, *words: object) -> None:
        self._made(verb, "t", *words)

    def _made(self, verb: str, table: str, *words: object) -> dict[str, Any]:
        return self.direct.line("inline").ok(verb, self.direct.table(table), *words)

    def _run(self, planned: Planned, limits: dict[str, str]) -> tuple[int, dict[str, Any]]:
        verb, *rest = planned.words
        keys = self.keys if verb == "register" else {}
        service = replace(self.behind, properties={**self.behind.properties, **limits, **keys})
        line = service.line("inline")
        result = line("--json", verb, self.behind.table(planned.table), *rest)
        return result.exit_code, result.json()


def cases(counts: dict[tuple[str, str], int]) -> Iterator[Case]:
    """Yield every case, given how many requests each action makes on each wire."""
    for (action, wire), count in counts.items():
        for number in range(count):
            for fault in FAULTS:
                for sticky in (False, True):
                    yield Case(action, wire, number, fault, sticky)


def between(server: RestServer, s3: S3, bucket: str, folder: Path, namespace: str) -> Any:
    """Open a table behind proxies; ends with the block."""

    @contextmanager
    def opened() -> Iterator[Wired]:
        properties = {
            "type": "rest",
            "uri": server.uri,
            "s3.endpoint": s3.endpoint,
            "s3.region": s3_server.REGION,
        }

        def files() -> set[str]:
            selector: Any = pafs.FileSelector(bucket, recursive=True)
            infos = s3.files().get_file_info(selector)
            return {info.path for info in infos if info.type == pafs.FileType.File}

        with Proxy(server.uri) as catalog, Proxy(s3.endpoint) as store:
            behind = {**properties, "uri": catalog.uri, "s3.endpoint": store.uri}
            wired = Wired(
                Service("direct", properties, folder, files, namespace),
                Service("behind", behind, folder, files, namespace),
                {"catalog": catalog, "store": store},
                {name: text for name, text in s3.properties().items() if "key" in name},
            )
            with (
                patch.object(Backoff, "wait", lambda *_, **__: None),
                patch.object(opening, "ARROW_TRIES", 3),
            ):
                wired.prepare()
                yield wired

    return opened()


class Wires:
    """Servers of a process's own, and one table after the other behind them; ends with the block."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._tables = 0
        self._open: tuple[Any, Wired] | None = None

    def __enter__(self) -> Self:
        folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="lake-wire-"))
        self._folder = Path(folder)
        self._held.enter_context(patch.dict(os.environ, {"PYICEBERG_HOME": folder}))
        self._s3 = S3("wire key", "wire secret")
        self._held.callback(self._s3.end)
        self._bucket = self._s3.bucket()
        settings = {**self._s3.properties(), "warehouse": f"s3://{self._bucket}/rest"}
        self._server = RestServer(settings)
        self._held.callback(self._server.end)
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        self._held.close()

    def _drop(self) -> None:
        if self._open:
            self._open[0].__exit__(None, None, None)
            self._open = None

    def _table(self) -> Wired:
        if self._open is None:
            self._tables += 1
            name = f"w{self._tables}"
            held = between(self._server, self._s3, self._bucket, self._folder, name)
            self._open = (held, held.__enter__())
        return self._open[1]

    def cases(self) -> list[Case]:
        """Return every case, in an order in which any few are of all kinds."""
        table = self._table()
        counts = {
            (action, wire): count
            for action in ACTIONS
            for wire, count in table.requests(action).items()
        }
        # A table whose history grew long makes every command slower.
        self._drop()
        every = list(cases(counts))
        stride = _STRIDE if len(every) % _STRIDE else 1
        return [every[number * stride % len(every)] for number in range(len(every))]

    def check(self, case: Case) -> Counter[str]:
        """Let a case happen and judge it; after a broken one the next gets a new table."""
        try:
            return self._table().check(case)
        except BaseException:
            self._drop()
            raise


def missing() -> str | None:
    """Return what this machine lacks, or None."""
    return maven.missing() or s3_server.missing()
