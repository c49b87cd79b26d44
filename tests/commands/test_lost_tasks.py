"""A task that an engine loses stops its command before anything is committed or written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

from lake.core.engine.thread_stream import Pool

Words = Callable[[Path], list[object]]


class Losses:
    """Takes the last piece away from one batch of an engine's work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self._lost = 0, 0
        spread = Pool.spread

        def losing(
            pool: Pool[Any], count: int, work: Callable[[int], Generator[Any]]
        ) -> Iterator[Any]:
            self.begun += 1
            return spread(pool, count - (self.begun == self._lost), work)

        monkeypatch.setattr(Pool, "spread", losing)

    def lose(self, batch: int) -> None:
        """Take a piece away from the batch with a number, which begins at 1; 0 for none."""
        self.begun, self._lost = 0, batch


def _source(folder: Path, name: str, **columns: list[object]) -> Path:
    path = folder / f"{name}.parquet"
    if not path.exists():
        pq.write_table(pa.table(columns), path)
    return path


def _more(folder: Path) -> Path:
    return _source(folder, "more", id=list(range(3, 9)), part=["a", "b"] * 3, n=[1.5] * 6)


def _changes(folder: Path) -> Path:
    columns = {"id": [1, 9, 2], "part": ["b", "a", "a"], "n": [2.5] * 3, "op": ["+U", "+I", "-D"]}
    return _source(folder, "changes", **columns)


COMMANDS: dict[str, Words] = {
    "append": lambda folder: ["ingest", "db.t", _more(folder)],
    "append by hash": lambda folder: ["ingest", "db.t", _more(folder), "--distribution", "hash"],
    "append by range": lambda folder: ["ingest", "db.t", _more(folder), "--distribution", "range"],
    "overwrite": lambda folder: ["ingest", "db.t", _more(folder), "--overwrite-where", "id > 1"],
    "upsert": lambda folder: [
        *("ingest", "db.t", _more(folder), "--upsert", "--key", "id", "--repair-duplicates"),
    ],
    "upsert by copy-on-write": lambda folder: [
        *("ingest", "db.t", _more(folder), "--upsert", "--key", "id", "--repair-duplicates"),
        *("--deletes", "copy-on-write"),
    ],
    "change log": lambda folder: [
        *("ingest", "db.t", _changes(folder), "--changes-column", "op"),
        *("--changes-mode", "upsert", "--key", "id", "--deletes", "position"),
    ],
    "change log by equality": lambda folder: [
        *("ingest", "db.t", _changes(folder), "--changes-column", "op"),
        *("--changes-mode", "upsert", "--key", "id,part", "--deletes", "equality"),
    ],
    "scan": lambda folder: ["scan", "db.t", "--output", folder / "rows"],
    "changelog": lambda folder: [
        *("scan", "db.t", "--changes", "--from-snapshot", "main~2", "--output", folder / "rows"),
    ],
    "compact": lambda _: ["compact", "db.t", "--rewrite-all"],
    "compact by order": lambda _: [
        *("compact", "db.t", "--rewrite-all", "--strategy", "sort", "--by", "id"),
    ],
    "delete": lambda _: ["delete", "db.t", "--where", "n > 0.5 and id = 1"],
    "statistics": lambda _: ["stats", "db.t"],
    "conversion": lambda _: ["deletes", "db.t", "--convert"],
    "count of deletes": lambda _: ["deletes", "db.t", "--exact"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_lost_task_stops_the_command(
    lake_on: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    first = _source(tmp_path, "first", id=[0, 1, 2, 3], part=["a", "b", "a", "b"], n=[0.5, 1, 2, 3])
    inline = CommandLine(lake_on.warehouse, engine="inline")
    inline.ok("ingest", "db.t", first, "--create", "--partition-by", "part", "--sort-by", "n")
    inline.ok("ingest", "db.t", first)
    changes = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id,part")
    inline.ok("ingest", "db.t", _changes(tmp_path), *changes, "--deletes", "equality")
    words, losses = COMMANDS[name](tmp_path), Losses(monkeypatch)
    before = lake_on.table().metadata_location

    batch = 0
    while True:
        batch += 1
        losses.lose(batch)
        result = lake_on(*words)
        if losses.begun < batch:
            break
        assert result.exit_code not in {0, 6}, (batch, result)
        assert "the engine lost" in result.stderr, (batch, result)
        after = lake_on.table().metadata_location
        assert after == before, (batch, result)
        assert not (tmp_path / "rows").exists()

    assert result.exit_code == 0, result
    assert batch > 1
