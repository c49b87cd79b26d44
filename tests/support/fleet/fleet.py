"""Make a fleet: copies of moulds under other names in one catalog, and a record of what is wrong with each table."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from support.cli.command_line import CommandLine
from support.fleet.copies import copy_table, linked_copy
from support.fleet.ills import NOT_MENDABLE, Ill
from support.fleet.moulds import MOULDS, NAMESPACE, Maker, Mould
from support.tables.iceberg_tables import pyiceberg_catalog

_DATABASE = "catalog.db"
# Some tables cannot be read at all; their files are in their own folders. To sort by the order of a table is chosen.
_POLICY = """
["*".clean]
ignore-unreadable = true

["*old_order*".compact]
old-sort-orders = true
"""
# Names of copies; SQL catalogs and folders allow all of these.
_NAMES = ("{}", "{} größe", "o'{}", "{}%2Fx", "{}[1]*", "{};&$x", "-{}", "{}  \N{SNOWMAN}")


@dataclass(frozen=True, kw_only=True)
class Member:
    """A table of a fleet.

    Args:
        table: its full name.
        mould: the mould that it is a copy of; all of its copies have the same rows.
        writer, version, transform, ills, refs: as of the mould.
    """

    table: str
    mould: str
    writer: str
    version: int
    transform: str
    ills: Sequence[Ill]
    refs: Sequence[str]

    @property
    def quoted(self) -> str:
        """The name as Spark's SQL takes it."""
        namespace, _, name = self.table.partition(".")
        return f"{namespace}.`{name}`"

    @property
    def is_mendable(self) -> bool:
        """Whether maintenance can do all that is due for it."""
        return not NOT_MENDABLE.intersection(self.ills)

    @property
    def is_readable(self) -> bool:
        """Whether its rows can be read at all."""
        return self.is_mendable


class Fleet:
    """A warehouse with many tables, which can be restored to the state in which it was made.

    Args:
        folder: where it is made, or was made before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self._saved = folder / "saved"
        self._record = folder / "fleet.json"
        self._policy = folder / "policy.toml"

    def make(self, java: Any, count: int, moulds: Sequence[Mould] = MOULDS) -> None:
        """Make the moulds and the tables.

        Args:
            java: the peer.
            count: the number of tables; there is at least one of each mould.
            moulds: what they are copies of.
        """
        maker = Maker(self.folder / "moulds", java)
        begun, seconds = time.monotonic(), {}
        sources = {}
        for mould in moulds:
            before = time.monotonic()
            sources[mould.name] = mould.make(maker, mould)
            seconds[mould.name] = round(time.monotonic() - before, 2)
        catalog = pyiceberg_catalog(self.warehouse)
        catalog.create_namespace_if_not_exists(NAMESPACE)
        members = []
        for number in range(max(count, len(moulds))):
            mould, round_ = moulds[number % len(moulds)], number // len(moulds)
            # The first copy has the name of the mould; each later one an odder name.
            form = _NAMES[(number + round_) % len(_NAMES)] if round_ else "{}"
            name = form.format(mould.name if round_ == 0 else f"{mould.name}_{round_}")
            copied = copy_table(sources[mould.name], self.warehouse / NAMESPACE / name)
            catalog.register_table((NAMESPACE, name), f"file://{copied}")
            if mould.damage is not None:
                mould.damage(copied)
            members.append(_member(mould, name))
        document = {
            "tables": [asdict(member) for member in members],
            "seconds": {**seconds, "all": round(time.monotonic() - begun, 2)},
        }
        self._record.write_text(json.dumps(document, indent=1))
        self._policy.write_text(_POLICY)
        linked_copy(self.warehouse, self._saved)

    @property
    def is_made(self) -> bool:
        """Whether it was made before."""
        return self._record.exists()

    @property
    def members(self) -> list[Member]:
        """The tables, as the record has them."""
        found = json.loads(self._record.read_text())["tables"]
        return [Member(**{**item, "ills": [Ill(ill) for ill in item["ills"]]}) for item in found]

    @property
    def seconds(self) -> dict[str, float]:
        """How long it took to make each mould, and all."""
        found: dict[str, float] = json.loads(self._record.read_text())["seconds"]
        return found

    def lake(self) -> CommandLine:
        """Return a command line on the warehouse."""
        return CommandLine(self.warehouse)

    def words(self, log: str) -> list[str]:
        """Return the command line that maintains the fleet, with a log that is new or was begun before."""
        return ["maintain", "--policy", str(self._policy), "--log", str(self.log(log))]

    def log(self, name: str) -> Path:
        """Return the path of a run log."""
        return self.folder / f"{name}.jsonl"

    def restored(self) -> CommandLine:
        """Restore the state in which the fleet was made; return a command line.

        The file of the database stays, with other contents: Java has it open.
        """
        shutil.rmtree(self.warehouse / NAMESPACE)
        linked_copy(self._saved / NAMESPACE, self.warehouse / NAMESPACE)
        with (
            closing(sqlite3.connect(self._saved / _DATABASE)) as saved,
            closing(sqlite3.connect(self.warehouse / _DATABASE, timeout=60)) as current,
        ):
            saved.backup(current)
        return self.lake()


def _member(mould: Mould, name: str) -> Member:
    return Member(
        table=f"{NAMESPACE}.{name}",
        mould=mould.name,
        writer=mould.writer,
        version=mould.version,
        transform=mould.transform,
        ills=mould.ills,
        refs=mould.refs,
    )
