"""The command line as tests use it: in this process, or as a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.cli.main import main
from lake.core.base.clock import SystemClock
from lake.core.base.settings import Settings
from lake.core.transaction.session import Session
from support.cli.lasting_engine import end_shared_spark, session_on_shared_spark
from support.tables.iceberg_tables import Fault, inject, open_session, pyiceberg_table

_OWN_SPARK = {"--engine", "--master", "--remote", "--spark-conf"}

# A reference to an option that did not become a flag (lake/core/base/options.py); JSON escapes the mark.
_REFERENCE = re.compile(r"(\ufdd0|\\ufdd0)[a-z_]+")


class _Hurried(SystemClock):
    """The machine's clock, which does not wait."""

    def sleep(self, seconds: float) -> None:
        pass


@dataclass(frozen=True)
class Result:
    """What one command left on its streams."""

    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> dict[str, Any]:
        """Return the one JSON document on stdout; more or less than one raises."""
        document = json.loads(self.stdout)
        assert isinstance(document, dict)
        return document


class CommandLine:
    """Calls `lake` on one warehouse; a first argument that is an option stays before the verb."""

    def __init__(
        self,
        warehouse: Path,
        *,
        engine: str = "auto",
        catalog_type: str = "sql",
        open_session: Callable[[Settings], Session] | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.engine = engine
        self.catalog_type = catalog_type
        self.open_session = open_session

    def __call__(self, *arguments: object) -> Result:
        """Run a command in this process."""
        # Commands write bytes to stdout.buffer and text to stdout: both must arrive in order.
        out, err = _stream(), _stream()
        opened = self.open_session or self._sharing(arguments)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(self.arguments(*arguments), open_session=opened)
        result = Result(code, _text(out), _text(err))
        assert not _REFERENCE.search(result.stdout + result.stderr), result
        return result

    def with_faults(self, *faults: Fault | None) -> CommandLine:
        """Return a command line whose next commits run through faults, one a commit; None lets one pass.

        It does not wait before it tries a commit again.
        """
        remaining = list(faults)

        def opened(settings: Settings) -> Session:
            session = open_session(self.warehouse, _Hurried())
            session.settings = settings
            inject(session, remaining)
            return session

        return CommandLine(self.warehouse, engine=self.engine, open_session=opened)

    def _sharing(self, arguments: Sequence[object]) -> Callable[[Settings], Session] | None:
        """Let commands on Spark share one, which takes seconds to start, unless one asks for another."""
        if self.engine != "spark":
            return None
        if not _OWN_SPARK.intersection(map(str, arguments)):
            return session_on_shared_spark
        end_shared_spark()
        return None

    def ok(self, *arguments: object) -> dict[str, Any]:
        """Run a command with ``--json`` that must succeed, and return its document."""
        result = self("--json", *arguments)
        assert result.exit_code == 0, result
        return result.json()

    def load(self, text: str, *options: object, table: str = "db.t") -> dict[str, Any]:
        """Load a CSV file with this text, and return the document."""
        source = self.warehouse.parent / "rows.csv"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        return self.ok("ingest", table, source, *options)

    def scanned(self, *options: object, table: str = "db.t") -> list[dict[str, Any]]:
        """Return the rows that `lake scan` writes."""
        result = self("scan", table, *options, "--output", "-", "--output-format", "json")
        assert result.exit_code == 0, result
        return [json.loads(line) for line in result.stdout.splitlines()]

    def table(self, name: str = "db.t") -> Any:
        """Return a table as PyIceberg reads it."""
        return pyiceberg_table(self.warehouse, name)

    def rows(self, name: str = "db.t", *, by: str | None = None) -> list[dict[str, Any]]:
        """Return a table's rows as PyIceberg reads them, in the order of a column if it is given."""
        found: list[dict[str, Any]] = self.table(name).scan().to_arrow().to_pylist()
        return found if by is None else sorted(found, key=lambda row: row[by])

    def arguments(self, *arguments: object) -> list[str]:
        """Return the whole command line behind the program's name."""
        start = ["--warehouse", str(self.warehouse), "--engine", self.engine]
        start += ["--catalog-type", self.catalog_type] if self.catalog_type != "sql" else []
        return [*start, *(str(argument) for argument in arguments)]

    def process(
        self, *arguments: object, stdin: bytes | None = None, env: dict[str, str] | None = None
    ) -> Result:
        """Run a command as a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "lake.cli", *self.arguments(*arguments)],
            input=stdin,
            capture_output=True,
            check=False,
            env={**os.environ, **(env or {})},
            cwd=self.warehouse.parent,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command as a process of its own; the caller ends it."""
        return subprocess.Popen(
            [sys.executable, "-m", "lake.cli", *self.arguments(*arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.warehouse.parent,
            **options,
        )


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
