"""Runs lake's commands on a broken table and judges how each ends."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
from command_line import CommandLine, Result

from hostile.guard import WrongError
from hostile.tables import TAG, UPSERTED, BrokenTable, rows_of
from lake.cli import app
from lake.core.session import Session
from lake.core.settings import Settings
from lake.core.table.catalog import open_catalog

READS = ("plan", "scan", "snapshots", "compact-dry", "expire-dry", "replay")
WRITES = ("expire", "compact", "upsert")
# Refused by a rule, bad input; a conflict is what a plan that does not hold looks like to a commit.
_TYPED = {3: "refused", 4: "conflict", 7: "bad input"}
_PARTIAL = 6
_EXPIRE = [
    "--older-than",
    "0s",
    "--retain-last",
    "1",
    "--unsafe-retention",
    "--keep-checkpoints",
    "0s",
]
_COMPACT = ["--rewrite-all", "--min-input-files", "1"]


class Commands:
    """lake's commands on one table, in this process."""

    def __init__(self, table: BrokenTable) -> None:
        self.table = table
        self._stack = ExitStack()
        self._stack.enter_context(patch.object(app, "load_verb", functools.cache(app.load_verb)))
        self._catalog: Any = None
        self._lake = CommandLine(
            table.warehouse,
            engine="inline",
            catalog_type=table.catalog_type,
            open_session=self._session,
        )
        self._source = table.folder / "upserted.parquet"
        self._out = table.folder / "out.parquet"
        ids = list(UPSERTED)
        rows = rows_of(ids)
        pq.write_table(rows.set_column(2, "value", [list(UPSERTED.values())]), self._source)
        self.facts = self._ok("plan")["plan"]
        self.snapshots = self._ok("snapshots")["result"]["snapshots"]

    def _session(self, settings: Settings) -> Session:
        # Opening SQLite anew takes longer than most commands.
        if self._catalog is None:
            self._catalog = open_catalog(settings)
        return Session(settings=settings, catalog=self._catalog)

    def arguments(self, command: str) -> list[str]:
        """Return a command's line."""
        name = self.table.name
        return {
            "plan": ["scan", name, "--plan"],
            "scan": ["scan", name, "--output", str(self._out), "--replace"],
            "snapshots": ["snapshots", name],
            "compact-dry": ["compact", name, *_COMPACT, "--dry-run"],
            "compact": ["compact", name, *_COMPACT],
            "expire-dry": ["expire", name, *_EXPIRE, "--dry-run"],
            "expire": ["expire", name, *_EXPIRE],
            "replay": ["replay", name],
            "upsert": ["ingest", name, str(self._source), "--upsert", "--key", "id"],
        }[command]

    def _ok(self, command: str) -> dict[str, Any]:
        return self._lake.ok(*self.arguments(command))

    def run(self, command: str) -> Result:
        """Run a command."""
        return self._lake("--json", *self.arguments(command))

    def all_judged(self, commands: Sequence[str], path: Path, data: bytes) -> list[str]:
        """Run commands, each on the table with one file broken; return how they ended."""
        original = self.table.original(path)
        ends = []
        for command in commands:
            self.table.write(path, data)
            try:
                ends.append(self.judged(command, {path: original}))
            finally:
                self.table.restore()
        return ends

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Say what was broken where something is wrong."""
        try:
            yield
        except WrongError as error:
            raise WrongError(f"{what}: {error}") from error

    def judged(self, command: str, broken: dict[Path, bytes]) -> str:
        """Run a command and return how it ended.

        Args:
            command: which.
            broken: the files that are broken now, as they were: put back before rows are read.

        Raises:
            WrongError: it ended neither in a typed error that changed nothing nor in what is right.
        """
        result = self.run(command)
        code = result.exit_code
        self._untouched(command, result, broken)
        if code in _TYPED:
            self._nothing_changed(command, result)
            return _TYPED[code]
        if code not in {0, _PARTIAL} or (code == _PARTIAL and command != "expire"):
            raise WrongError(
                f"{command} ended with {code}: {result.stdout[-800:]} {result.stderr[-1200:]}"
            )
        document = result.json()
        check = getattr(self, f"_{command.replace('-', '_')}_is_right", None)
        if check is not None:
            for path, data in broken.items():
                if path.exists() or command != "expire":
                    path.write_bytes(data)
            check(document)
        return "right" if code == 0 else "right, in part"

    def _untouched(self, command: str, result: Result, broken: dict[Path, bytes]) -> None:
        """Check that nothing that is needed, and nothing outside, went."""
        if self.table.canary_changed():
            raise WrongError(f"{command} touched what lies beside the warehouse: {result}")
        _, gone = self.table.changes()
        needed = set().union(*self.table.held.values())
        lost = gone & needed
        if lost:
            raise WrongError(f"{command} deleted live files {lost}: {result.stdout[-800:]}")
        if gone and command != "expire":
            raise WrongError(f"{command} deleted {gone}: {result.stdout[-800:]}")

    def _nothing_changed(self, command: str, result: Result) -> None:
        come, gone = self.table.changes()
        if come or gone or self.table.has_moved:
            told = [path.name for path in (*come, *gone)]
            raise WrongError(f"{command} failed and changed {told}: {result.stdout[-800:]}")

    def _plan_is_right(self, document: dict[str, Any]) -> None:
        told = ("files", "delete_files", "records", "snapshots")
        found = {key: document["plan"][key] for key in told}
        if found != {key: self.facts[key] for key in told}:
            if document["warnings"]:
                return
            raise WrongError(f"scan --plan tells {found}, there are {self.facts}")

    def _scan_is_right(self, document: dict[str, Any]) -> None:
        rows = pq.read_table(self._out)
        found = Counter(
            frozenset(
                (number, value)
                for number, value in zip(self._ids, row.values(), strict=True)
                if value is not None
            )
            for row in rows.to_pylist()
        )
        if found != self.table.rows and not document["warnings"]:
            raise WrongError(f"scan gave {_difference(found, self.table.rows)}")

    @functools.cached_property
    def _ids(self) -> list[int]:
        return [field.field_id for field in self.table.metadata.schema().fields]

    def _snapshots_is_right(self, document: dict[str, Any]) -> None:
        if document["result"]["snapshots"] != self.snapshots:
            raise WrongError(f"snapshots tells {document['result']}")

    def _compact_is_right(self, _document: dict[str, Any]) -> None:
        self._rows_are(self.table.rows, "compact")

    def _upsert_is_right(self, _document: dict[str, Any]) -> None:
        kept = Counter(
            {row: count for row, count in self.table.rows.items() if dict(row)[1] not in UPSERTED}
        )
        new = Counter(
            frozenset([(1, number), (2, "even" if number % 2 == 0 else "odd"), (3, value)])
            for number, value in UPSERTED.items()
        )
        self._rows_are(kept + new, "upsert")

    def _expire_is_right(self, _document: dict[str, Any]) -> None:
        # What was kept is there, or `_untouched` had told; all else may stay or go.
        self._rows_are(self.table.rows, "expire")
        if set(self.table.metadata.refs) != set(self.table.held):
            raise WrongError(f"expire left the refs {set(self.table.metadata.refs)}")

    def _rows_are(self, expected: Counter[Any], command: str) -> None:
        found = self.table.rows_now()
        if found != expected:
            raise WrongError(f"after {command} there are {_difference(found, expected)}")


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    lost, more = expected - found, found - expected
    return f"{lost.total()} rows too few and {more.total()} too many: {[*lost][:2]} {[*more][:2]}"


__all__ = ["READS", "TAG", "WRITES", "Commands"]
