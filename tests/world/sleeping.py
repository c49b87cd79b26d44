"""Commands that are stopped at a call while others commit, expire and roll back, and that then continue.

A command that wakes up must not rely on outdated state: the table ends as if the command had run before or
after the others, or not at all, and nothing that a snapshot or a tag needs is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table.update import AssertTableUUID, SetSnapshotRefUpdate
from support.tables.iceberg_tables import pyiceberg_catalog

from lake.core.table.catalogs import pyiceberg_patches
from world.crashes import Crashes, Found, Point, Rows
from world.killed import COMMANDS, GONE, NOTHING, rows
from world.mortal import BEFORE, End, Mortals
from world.places import TABLE

# done, refused, conflict, unknown outcome, partly done, not found
_CODES = {0, 3, 4, 5, 6, 7}
_UNKNOWN = 5
_DONE = {"done", "partial"}
_TAG = "kept"
Act = Callable[[Crashes], None]


def _line(*arguments: str) -> Act:
    def act(crashes: Crashes) -> None:
        # The lock of a process that sleeps longer than the lock is valid.
        for lock in crashes.place.warehouse.rglob("lake.lock"):
            os.utime(lock, (0, 0))
        ended = crashes.run(arguments=arguments)
        # Snapshots that are already expired, or compacted, leave nothing to do.
        assert ended.code == 0, ended
        assert ended.document, ended
        assert ended.document["status"] != "already-running", ended

    return act


def _move(ref: str, kind: str, back: int) -> Act:
    """Set a ref to the ancestor of the head that is ``back`` steps away."""

    def act(crashes: Crashes) -> None:
        pyiceberg_patches.apply()
        catalog = pyiceberg_catalog(crashes.place.warehouse)
        table = catalog.load_table("db.t")
        snapshot = table.current_snapshot()
        for _ in range(back):
            parent = snapshot and snapshot.parent_snapshot_id
            found = table.snapshot_by_id(parent) if parent else None
            snapshot = found or snapshot
        assert snapshot is not None
        update = SetSnapshotRefUpdate(ref_name=ref, type=kind, snapshot_id=snapshot.snapshot_id)
        catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (update,))

    return act


_LATE = _line("ingest", "db.t", "{late}")
_ALL = ("--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
_EXPIRE = _line("expire", "db.t", *_ALL)
_COMPACT = _line("compact", "db.t", "--rewrite-all")
_UPSERT = _line("ingest", "db.t", "{late}", "--upsert", "--key", "id", "--deletes", "copy-on-write")
OTHERS: Mapping[str, Sequence[Act]] = {
    "append": (_LATE,),
    "append and expire": (_LATE, _EXPIRE),
    "compact and expire": (_COMPACT, _EXPIRE),
    "upsert": (_UPSERT,),
    "roll back": (_move("main", "branch", 1),),
    "roll back, append and expire": (_move("main", "branch", 1), _LATE, _EXPIRE),
    "tag an old snapshot": (_move(_TAG, "tag", 2),),
    "tag the head": (_move(_TAG, "tag", 0), _LATE),
}
SLEEPERS = (
    "append, with run id",
    "overwrite where, with run id",
    "upsert by position, with run id",
    "upsert by copying, with run id",
    "commit what is staged",
    "discard",
    "compact",
    "compact in parts",
    "expire",
    "expire one",
    "replay",
    "replay a checkpoint",
    "rewrite manifests",
    "convert deletes",
    "statistics",
    "clean",
    "add files, with run id",
    "cherry-pick",
    "publish",
    "move a tag",
)


@dataclass(frozen=True)
class Orders:
    """The rows after the command ran after the others, before them, and not at all.

    A run that begins on a branch that was rolled back refuses to commit what was staged before; a run that began
    earlier can determine that it was not committed, and adds its rows (``again``). Rolled-back rows may be added
    again (``twice``).
    """

    last: Rows | None
    again: Rows | None
    twice: Rows | None
    first: Rows | None
    none: Rows | None


class Sleepers:
    """One command, and others that run while it sleeps."""

    def __init__(
        self, folder: Path, mortals: Mortals, name: str, others: str, version: int
    ) -> None:
        self.crashes = Crashes(folder, mortals, COMMANDS[name], version)
        self._mortals = mortals
        self._command = COMMANDS[name]
        self._acts = OTHERS[others]
        self.crashes.name_source("late", rows(4, 5, 70, value=7))
        self._orders = self._serial()

    def _serial(self) -> Orders:
        def after(*acts: Callable[[], object]) -> Rows | None:
            self.crashes.restore()
            for act in acts:
                act()
            return self.crashes.look().rows

        return Orders(
            last=after(self._others, self.crashes.run),
            again=after(self._others, self._append if self._adds else self.crashes.run),
            first=after(self.crashes.run, self._others),
            none=after(self._others),
            twice=after(self.crashes.run, self._others, self.crashes.run),
        )

    @property
    def _adds(self) -> bool:
        return self._command is COMMANDS["commit what is staged"]

    def _append(self) -> None:
        assert self.crashes.run(arguments=("ingest", TABLE, "{source}")).code == 0

    def _others(self) -> None:
        for act in self._acts:
            act(self.crashes)

    def points(self) -> list[Point]:
        """Return each point at which it can be stopped, except in SQLite's transaction, which blocks others."""
        calls = self.crashes.calls
        return [
            (number, when)
            for number, when in self.crashes.points()
            if (calls[number].split()[0], when) != ("do_commit", BEFORE)
        ]

    def sleep(self, point: Point) -> int:
        """Stop it at a point, run the others, and wake it up; return whether it reached that point."""
        self.crashes.restore()
        found = self.crashes.stop(point)
        self._others()
        before = self.crashes.look()
        if isinstance(found, End):
            return 0
        ended = self._mortals.wake(found)
        self._judge(point, ended, before, self.crashes.look())
        return 1

    def _judge(self, point: Point, ended: End, before: Found, found: Found) -> None:
        orders, description = self._orders, (point, ended)
        assert ended.code in _CODES, description
        document = ended.document or {}
        committed = document.get("status") in _DONE
        changed = (orders.first, orders.last, orders.again)
        if ended.code == _UNKNOWN:
            allowed: tuple[Rows | None, ...] = (orders.none, *changed)
        elif committed:
            allowed = changed
        else:
            # It may have found its own commit, and another command may have overwritten it.
            allowed = (orders.none, *changed)
        assert found.rows in allowed, (description, found.rows)
        assert before.tags <= found.tags, description
        again = self.crashes.run()
        assert again.code in ({0, 7} if self._command.again == GONE else {0, 3}), (
            description,
            again,
        )
        rest = self.crashes.look()
        assert before.tags <= rest.tags, description
        if self._command.again == NOTHING and again.code == 0:
            assert rest.rows in (*changed, orders.none, orders.twice), (description, rest.rows)
