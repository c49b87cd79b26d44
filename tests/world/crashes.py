"""Commands that are killed before and after each call of storage or catalog, and run again.

The killed run has changed everything or nothing. The second run completes it, the third does nothing. Rows are read,
and files are searched for, without any of lake's code.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata

from world.killed import COMMANDS, GONE, LOST, NOTHING, ONCE, REFUSED, SAME, Command, rows
from world.mortal import AFTER, BEFORE, End, Mortals
from world.places import LOCAL, TABLE, Place
from world.reference import Reference, local, missing

_NAMES = ("id", "part", "value")
# The calls that change what others see, in the table or its folders.
_COMMITS = {"commit_table", "drop", "drop_table", "rename_table", "register_table"}
_REMOVALS = {"delete", "move", "remove"}
# The exit code of a command that SIGTERM ended.
_ASKED = 143
# The exit code of a run after a complete one, for commands that do not report that nothing is left to do.
_ENDED = {GONE: 7, REFUSED: 3}
_REFUSED, _PARTLY = 3, 6
# After this time, no server receives a request any more.
_DOUBT_MS = 601_000
_READY = "ready"
_TRASH = re.compile(r"/\.lake-trash/([^/]+)/")
_OLD = re.compile(r"metadata\.json|[/-]version-hint\.text(\.unfinished)?$")
# Temporary manifests, claims, markers, journals and locks.
_OWN = re.compile(r"/metadata/(lake|[0-9a-f]{32}-[0-9a-f]{32}-00000-)")
# Temporary manifests of an ingest without a run id; the last one is written first.
_PENDING = re.compile(r"([0-9a-f]{32})-[0-9a-f]{32}-00000-0-1-0000[12]\.avro")
Rows = list[tuple[Any, ...]]
Point = tuple[int, str]


@dataclass(frozen=True)
class Found:
    """The state of the tables: rows, snapshots, files below them, those that a snapshot needs, tags, and names."""

    rows: Rows | None
    snapshots: frozenset[int]
    files: frozenset[str]
    held: frozenset[str]
    tags: frozenset[str]
    names: frozenset[str]

    @property
    def lost(self) -> set[str]:
        """Files that no snapshot needs, except old metadata, and a version hint that the next commit deletes."""
        return {
            name
            for name in self.files - self.held
            if "metadata.json" not in name
            and not name.endswith(("/version-hint.text", "-version-hint.text.unfinished"))
        }


class Crashes:
    """One command on one table, killed repeatedly.

    Args:
        folder: the folder of all files; initial states in it are reused.
        mortals: the processes that run the commands.
        command: the command.
        version: the table's format version.
        kind: the catalog's type.
        place: the table's location, if it is not the default for that type.
    """

    def __init__(
        self,
        folder: Path,
        mortals: Mortals,
        command: Command,
        version: int,
        kind: str = "sql",
        place: Place | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._mortals = mortals
        self.place = place or LOCAL[kind](folder)
        self._command = command
        self._words: dict[str, object] = {}
        self._make(version)
        self.before = self.look()
        ended = self.run()
        assert ended.code == 0, ended
        self.calls = ended.calls
        self.after = self.look()
        self.final = self._finally()

    def _make(self, version: int) -> None:
        command = self._command
        self._words = {
            "source": self._source("source", command.rows) if command.rows else "",
            "evolving": self._source("evolving", rows(90, value=0, more=1)),
            "checkpoint": self.place.warehouse / "checkpoint",
            "drop": self.place.warehouse / "drop",
            "state": self.place.warehouse / "state",
            "inventory": self.place.warehouse / "inventory.parquet",
            "metadata": "",
        }
        begun = f"{version} {command.table}"
        if not self.place.restore(begun):
            if command.table is not None:
                self._make_table(version, command.table)
            self.place.save(begun)
        if command.rows:
            numbered = self._source("numbered", command.rows, ids=True)
            self._words["numbered"] = self.place.keep(numbered)
        metadata = self.place.metadata()
        self._words["oldest"] = metadata.snapshots[0].snapshot_id if metadata else ""
        for line in command.first:
            self._words["metadata"] = self.place.locations().get(TABLE, "")
            self._ok(*line)
        self._words["metadata"] = self.place.locations().get(TABLE) or self._words["metadata"]
        if command.prepare is not None:
            command.prepare(self.place)
        trashed = (_TRASH.search(file.location) for file in self.place.files())
        self._words["run"] = next((found[1] for found in trashed if found), "")
        self._dropped = sorted(path.name for path in (self.place.warehouse / "drop").glob("*"))
        self.place.save(_READY)

    def _make_table(self, version: int, options: Sequence[str]) -> None:
        made = ["--create", "--property", f"format-version={version}", *options]
        for number in range(3):
            given = rows(*range(number * 4, number * 4 + 4), value=number)
            self._ok("ingest", TABLE, self._source(f"base-{number}", given), *made)
            made = []
        upsert = ["--upsert", "--key", "id"]
        upsert += ["--deletes", "copy-on-write"] if version == 1 else []
        self._ok("ingest", TABLE, self._source("more", rows(0, 4, value=5)), *upsert)

    def _ok(self, *arguments: object) -> None:
        ended = self.run(arguments=arguments)
        assert ended.code == 0, ended

    def _source(self, name: str, given: Sequence[Mapping[str, Any]], *, ids: bool = False) -> Path:
        path = self._folder / f"{name}.parquet"
        table = pa.Table.from_pylist([dict(row) for row in given])
        if ids:
            fields = [
                item.with_metadata({"PARQUET:field_id": str(number)})
                for number, item in enumerate(table.schema, 1)
            ]
            table = table.cast(pa.schema(fields))
        pq.write_table(table, path)
        return path

    def run(
        self,
        kill: Point | None = None,
        arguments: Sequence[object] = (),
        images: Path | None = None,
        later_ms: int = 0,
        ask: Point | None = None,
    ) -> End:
        """Run the command, or another one, up to the point ``kill``; for the others see `Mortals`."""
        return self._mortals.run(self.words(arguments), kill, images, later_ms=later_ms, ask=ask)

    def words(self, arguments: Sequence[object] = ()) -> list[str]:
        """Return the arguments of the command line of the command or another one."""
        words = [str(word).format(**self._words) for word in arguments or self._command.arguments]
        return [*self.place.arguments, *words]

    def stop(self, point: Point) -> int | End:
        """Run the command up to a point and stop it there; return its process, or how it ended before."""
        return self._mortals.stop(self.words(), point)

    def restore(self) -> None:
        """Restore the table to its state before the command."""
        self.place.restore(_READY)

    def name_source(self, name: str, given: Sequence[Mapping[str, Any]]) -> None:
        """Define a word of command lines that represents a file of rows."""
        self._words[name] = self._source(name, given)

    def points(self) -> Iterator[Point]:
        """Yield each point at which it can be killed."""
        for number in range(len(self.calls)):
            yield number, BEFORE
            yield number, AFTER

    def kill(self, *points: Point) -> int:
        """Kill it at a point (and its second run at the next, …), then let it run, and run it again.

        Returns the number of kills: less work remains after a killed run.
        """
        self.restore()
        kills = 0
        for point in points:
            if kills and self._command.again == ONCE and self.look().rows == self.after.rows:
                # It had committed: another run would add its rows again.
                break
            ended = self.run(point)
            kills += ended.code is None
            assert ended.code in self._good or self._is_doubtful(ended), (point, ended)
            assert self._is_whole(), point
        self.end(points)
        return kills

    def ask(self, point: Point) -> int:
        """Ask it at a point to end; let it run, and run it again. Return 1 if it ended early, else 0."""
        self.restore()
        ended = self.run(ask=point)
        document = ended.document or {}
        assert ended.code in {0, _ASKED}, (point, ended)
        if ended.code == _ASKED:
            assert document["error"]["kind"] == "stopped", (point, ended)
        has_stopped = ended.code == _ASKED or document["result"].get("stopped_by") == "signal"
        if has_stopped:
            self._check_stopped(point)
        else:
            self._check_late(point, ended)
        self.end(("asked", point))
        return int(has_stopped)

    def _check_stopped(self, point: Point) -> None:
        """Check that a run that ended early changed everything or nothing, and removed the files it wrote."""
        command = self._command
        assert self._is_whole(), point
        # What runs with several commits, and those that delete, did not get to is left to the next run.
        goes_on = command.parts or "--watch" in command.arguments
        if command.again == NOTHING and command.leaves and not goes_on:
            lost = self.look().lost - self.before.lost - self.after.lost
            assert not {name for name in lost if not _TRASH.search(name)}, (point, lost)

    def _check_late(self, point: Point, ended: End) -> None:
        """Check that a run that went on to its end was asked after its last change."""
        kinds = [call.split()[0] for call in ended.calls]
        done, rest = kinds[: point[0] + 1], kinds[point[0] + 1 :]
        assert _COMMITS.isdisjoint(rest), (point, ended)
        assert not _COMMITS.isdisjoint(done) or _REMOVALS.isdisjoint(rest), (point, ended)
        found = self.look()
        assert (found.rows, found.names) == (self.after.rows, self.after.names), (point, ended)
        assert found.lost <= self.after.lost, (point, found.lost - self.after.lost)

    def cut_power(self) -> int:
        """Cut the power after each of its commits, then let it run, and run it again; return the number of cuts."""
        self.restore()
        images = self._folder / "images"
        shutil.rmtree(images, ignore_errors=True)
        ended = self.run(images=images)
        assert ended.code == 0, ended
        # Data that was only in memory is lost, and deletes after the last commit are not undone.
        found = [*sorted(images.iterdir())] if images.exists() else []
        for image in found:
            self.place.bring(image)
            self._wait()
            assert self._is_whole(), image.name
            self.end(f"power cut {image.name}")
        return len(found)

    def _is_whole(self) -> bool:
        """Whether the tables have all rows and names of the command or none, unless it commits several times."""
        if self._command.breaks:
            return True
        found = self.look()
        if self._command.keeps and not found.files >= self.before.files:
            return False
        if self._command.parts:
            rows = (set(one.rows or ()) for one in (self.before, found, self.after))
            least, now, most = rows
            return least <= now <= most
        states = [(one.rows, one.names) for one in (self.before, self.after)]
        return (found.rows, found.names) in states

    def _check_dropped(self, description: object) -> None:
        """Check that each file that was dropped for a watch is there once, wherever it was moved."""
        folder = self.place.warehouse / "drop"
        if not folder.exists() or "delete" in self._command.arguments:
            return
        found = sorted(path.name for path in folder.rglob("*.parquet"))
        assert found == self._dropped, (description, found)

    def _wait(self) -> None:
        """Let the lock of a run that died with its machine expire."""
        for lock in self.place.warehouse.rglob("lake.lock"):
            os.utime(lock, (0, 0))

    def _is_doubtful(self, ended: End) -> bool:
        """Whether a command left what a server may still commit for a process that is gone."""
        return self.place.is_served and ended.code in {_REFUSED, _PARTLY}

    @property
    def _good(self) -> tuple[int | None, ...]:
        code = _ENDED.get(self._command.again)
        return (None, 0) if code is None else (None, 0, code)

    def end(self, description: object) -> None:
        """Run it to its end from any state, and once more.

        Args:
            description: the description of the run if a rule is broken.
        """
        if self._command.again != ONCE or self.look().rows != self.after.rows:
            ended = self.run()
            if self._is_doubtful(ended):
                ended = self.run(later_ms=_DOUBT_MS)
            assert ended.code in self._good[1:], (description, ended)
            self._resume(ended, description)
        if self._command.again in {ONCE, SAME}:
            self._discard(description)
        found = self.look()
        if self.place.is_served and self._own_of(found):
            # Kept while the server might still commit them; a run after that time removes them.
            self.run(later_ms=_DOUBT_MS)
            found = self.look()
        assert found.rows == self.after.rows, (description, found.rows)
        assert found.names == self.after.names, (description, found.names)
        assert found.tags == self.after.tags, (description, found.tags)
        if self._command.again in {NOTHING, *_ENDED}:
            more = len(found.snapshots) - len(self.after.snapshots)
            assert more == 0 or (more > 0 and self._command.divides), description
        lost = found.lost - self.after.lost
        if TABLE not in found.names:
            # The lock of a process that is gone blocks no process: it belongs to no table now.
            lost = {name for name in lost if not name.endswith("/lake.lock")}
        assert self._command.leaves or not lost, (description, lost)
        # Nothing is left that could be mistaken for uncommitted rows, or that makes others wait.
        own = self._own_of(found) & lost
        assert not own, (description, own)
        self._check_dropped(description)
        self._check_third(found, description)
        assert self._finally() == self.final, description

    def _own_of(self, found: Found) -> set[str]:
        """Return what the command left of its work, besides what it also leaves without a kill."""
        return {name for name in found.lost - self.after.lost if _OWN.search(name)}

    def _resume(self, ended: End, description: object) -> None:
        """End a killed run that the second could not end, because its first step was made."""
        metadata = local(str(self._words["metadata"]))
        exists = any(local(file.location) == metadata for file in self.place.files())
        if ended.code == 0 or not self._command.resume or not exists:
            return
        for line in self._command.resume:
            done = self.run(arguments=line)
            assert done.code == 0, (description, line, done)

    def _discard(self, description: object) -> None:
        """Discard uncommitted runs that killed processes left."""
        found = (_PENDING.search(path) for path in self.look().lost)
        for run in sorted({pending[1] for pending in found if pending}):
            discard = ["ingest", TABLE, "--discard", run]
            if self.place.is_served:
                # The server may still receive the commit of a process that is gone.
                refused = self.run(arguments=discard)
                assert refused.code == _REFUSED, (description, refused)
            ended = self.run(arguments=discard, later_ms=_DOUBT_MS if self.place.is_served else 0)
            assert ended.code == 0, (description, ended)

    def _check_third(self, found: Found, description: object) -> None:
        again = self._command.again
        if again == ONCE:
            return
        third = self.run()
        if again in _ENDED:
            assert third.code == _ENDED[again], (description, third)
        elif again == SAME:
            assert third.code == 0, (description, third)
            assert self.look().rows == found.rows, description
        else:
            assert third.document, (description, third)
            assert third.document["status"] == "nothing-to-do", (description, third)
        if again != SAME:
            assert self.look() == found, description

    def _finally(self) -> Rows | None:
        if self._command.then:
            self._ok(*self._command.then)
        return self.look().rows

    def look(self) -> Found:
        """Read the tables and check that every file of a retained snapshot exists, statistics included."""
        reference = Reference(self.place.local)
        tables = [table for table in self.place.tables() if table.current_snapshot() is not None]
        held: dict[str, int | None] = {}
        for metadata in tables:
            for snapshot in metadata.snapshots:
                held |= reference.contents(metadata, snapshot).files
            held |= _statistics(metadata)
        assert self._command.damages or not missing(held, self.place.local)
        return Found(
            self._rows(reference, tables) if tables else None,
            frozenset(item.snapshot_id for table in tables for item in table.snapshots),
            frozenset(local(file.location) for file in self.place.files()),
            frozenset(local(name) for name in held),
            frozenset(ref for table in tables for ref in table.refs) - {"main"},
            frozenset(self.place.locations()),
        )

    def _rows(self, reference: Reference, tables: Sequence[TableMetadata]) -> Rows | None:
        """Return the rows of the tables; None if a file is missing, which the command repairs."""
        try:
            return sorted(row for table in tables for row in _read(reference, table))
        except FileNotFoundError:
            assert self._command.damages
            return None


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
    choose: Callable[[list[Point]], Sequence[Point]],
    kind: str = "sql",
) -> int:
    """Kill a command at chosen points; return the number of kills."""
    crashes = Crashes(folder, mortals, COMMANDS[name], version, kind)
    return sum(crashes.kill(point) for point in choose(list(crashes.points())))


def _statistics(metadata: TableMetadata) -> dict[str, int | None]:
    """Return the statistics files that a command must keep, with their lengths."""
    return {
        file.statistics_path: file.file_size_in_bytes
        for file in (*metadata.statistics, *metadata.partition_statistics)
        if not file.statistics_path.endswith(f"/{LOST}")
    }
