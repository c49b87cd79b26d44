"""Commands killed before and after each call of storage or catalog, and run again.

The killed run has changed all or nothing. The second run ends it, the third does nothing. Rows are read, and
files looked for, without any of lake's code.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata
from table_support import pyiceberg_catalog

from world.mortal import AFTER, BEFORE, Mortals
from world.reference import Reference, missing

_NAMES = ("id", "part", "value")
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Command:
    """A command line after which a run of the same does nothing.

    Args:
        arguments: behind the warehouse; ``{source}`` stands for a file of the rows.
        rows: what it loads.
        leaves: whether a killed run may leave files that no snapshot holds.
        first: a command line that is run before it.
        then: one that is run at the end, on whose rows all must agree too.
    """

    arguments: Sequence[str]
    rows: Sequence[Mapping[str, Any]] = ()
    leaves: bool = True
    first: Sequence[str] = ()
    then: Sequence[str] = ()


def _rows(*ids: int, value: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": one, "part": "x" if one % 2 else "y", "value": value, **more} for one in ids]


_RUN = ["--run-id", "run-1"]
_STAGE = ["ingest", "db.t", "{source}", "--stage", *_RUN]
_REPLAY = ["replay", "db.t", "--job", "run-1", "--completed", "1"]
COMMANDS = {
    "append": Command(["ingest", "db.t", "{source}", *_RUN], _rows(50, 51, 52, value=9)),
    "upsert by position": Command(
        ["ingest", "db.t", "{source}", "--upsert", "--key", "id", *_RUN],
        _rows(1, 2, 53, value=9),
    ),
    "upsert by copying": Command(
        [
            "ingest",
            "db.t",
            "{source}",
            "--upsert",
            "--key",
            "id",
            "--deletes",
            "copy-on-write",
            *_RUN,
        ],
        _rows(1, 2, 53, value=9),
    ),
    "change log": Command(
        [
            *("ingest", "db.t", "{source}", "--changes-column", "op", "--changes-mode", "upsert"),
            *("--key", "id", *_RUN),
        ],
        [*_rows(1, 54, value=9, op="+I"), *_rows(2, 3, value=9, op="-D")],
    ),
    "overwrite": Command(
        ["ingest", "db.t", "{source}", "--overwrite-where", "id < 4", *_RUN],
        _rows(1, 2, value=9),
    ),
    "compact": Command(
        ["compact", "db.t", "--min-input-files", "2", "--delete-file-threshold", "1"]
    ),
    "stage": Command(_STAGE, _rows(50, 51, value=9), then=_REPLAY),
    "replay": Command(_REPLAY, _rows(50, 51, value=9), first=_STAGE),
    "expire": Command(
        ["expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1"],
        leaves=False,
    ),
}


@dataclass(frozen=True)
class Found:
    """A table as it lies there: rows, snapshots, all files below it, and those that a snapshot needs."""

    rows: Rows
    snapshots: frozenset[int]
    files: frozenset[str]
    held: frozenset[str]


class Crashes:
    """One command on one table, killed again and again."""

    def __init__(self, folder: Path, mortals: Mortals, command: Command, version: int) -> None:
        self._folder = folder
        self._mortals = mortals
        self._warehouse = folder / "warehouse"
        self._saved = folder / "saved"
        self._command = command
        self._make(version)
        self.before = self.look()
        ended = self._run()
        assert ended.code == 0, ended
        self.calls = len(ended.calls)
        self.after = self.look()
        assert self._run().document["status"] == "nothing-to-do"
        self.final = self._finally()

    def _finally(self) -> Rows:
        if self._command.then:
            ended = self._run(None, self._command.then)
            assert ended.code == 0, ended
        return self.look().rows

    def _make(self, version: int) -> None:
        made = ["--create", "--property", f"format-version={version}"]
        for number in range(3):
            rows = _rows(*range(number * 4, number * 4 + 4), value=number)
            self._lake("ingest", "db.t", self._source(f"base-{number}", rows), *made)
            made = []
        upsert = ["--upsert", "--key", "id"]
        self._lake("ingest", "db.t", self._source("more", _rows(0, 4, value=5)), *upsert)
        if self._command.arguments[0] == "expire":
            self._lake("compact", "db.t", "--rewrite-all")
        if self._command.first:
            ended = self._run(None, self._command.first)
            assert ended.code == 0, ended
        shutil.copytree(self._warehouse, self._saved)

    def _lake(self, *arguments: object) -> None:
        ended = self._mortals.run(["--warehouse", self._warehouse, *arguments])
        assert ended.code == 0, ended

    def _source(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
        path = self._folder / f"{name}.parquet"
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
        return path

    def _run(
        self, kill: tuple[int, str] | None = None, arguments: Sequence[str] | None = None
    ) -> Any:
        source = self._source("source", self._command.rows) if self._command.rows else ""
        words = [word.format(source=source) for word in arguments or self._command.arguments]
        return self._mortals.run(["--warehouse", self._warehouse, *words], kill)

    def points(self) -> Iterator[tuple[int, str]]:
        """Yield each moment at which it can be killed."""
        for number in range(self.calls):
            yield number, BEFORE
            yield number, AFTER

    def kill(self, *points: tuple[int, str]) -> None:
        """Kill it at a point (and its second run at the next, …), then let it run, and run again."""
        shutil.rmtree(self._warehouse)
        shutil.copytree(self._saved, self._warehouse)
        for point in points:
            ended = self._run(point)
            if ended.code is not None:
                # What is left to do is less than what was.
                assert ended.code == 0, (point, ended)
            found = self.look()
            assert found.rows in (self.before.rows, self.after.rows), point
        again = self._run()
        assert again.code == 0, (points, again)
        found = self.look()
        assert found.rows == self.after.rows, points
        assert len(found.snapshots) == len(self.after.snapshots), points
        lost = {name for name in found.files - found.held if "metadata.json" not in name}
        assert self._command.leaves or not lost, (points, lost)
        # The claim of a dead process counts for nothing, and goes with the run's manifests.
        own = [name for name in lost if re.search("/metadata/lake(?!-commit-)", name)]
        assert not own, (points, own)
        third = self._run()
        assert third.document["status"] == "nothing-to-do", (points, third)
        assert self.look() == found, points
        assert self._finally() == self.final, points

    def look(self) -> Found:
        """Read the table and look for its files; whatever a retained snapshot needs must be there."""
        reference = Reference()
        metadata = pyiceberg_catalog(self._warehouse).load_table("db.t").metadata
        held: dict[str, int | None] = {}
        for snapshot in metadata.snapshots:
            held |= reference.contents(metadata, snapshot).files
        assert not missing(held)
        root = self._warehouse / "db"
        return Found(
            _read(reference, metadata),
            frozenset(item.snapshot_id for item in metadata.snapshots),
            frozenset(f"file://{path}" for path in root.rglob("*") if path.is_file()),
            frozenset(held),
        )


def _read(reference: Reference, metadata: TableMetadata) -> Rows:
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    ids = [metadata.schema().find_field(name).field_id for name in _NAMES]
    return sorted(tuple(map(dict(row).get, ids)) for row in reference.rows(metadata, snapshot))


def crash(
    folder: Path,
    mortals: Mortals,
    name: str,
    version: int,
    choose: Callable[[list[tuple[int, str]]], Sequence[tuple[int, str]]],
) -> int:
    """Kill a command at chosen points; return how many."""
    crashes = Crashes(folder, mortals, COMMANDS[name], version)
    chosen = choose(list(crashes.points()))
    for point in chosen:
        crashes.kill(point)
    return len(chosen)
