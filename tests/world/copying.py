"""A load from table to table that is killed at each of its steps: the target has every row once."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from world.mortal import End, Mortals
from world.places import TABLE, Place

_SOURCE = "db.s"
_APPENDS = 2
# The second row of each append has no number, which the target requires.
_GOOD, _BAD = (0, 2), (1,)


class Copies:
    """A table with two appends, and a load of it into another table that sets rows aside.

    Args:
        folder: the folder of all files.
        mortals: the processes that run the commands.
    """

    def __init__(self, folder: Path, mortals: Mortals) -> None:
        self._folder, self._mortals = folder, mortals
        self._place = Place(folder)
        self._place.restore("nothing")
        self._command("create", TABLE, "id long", "number long not null")
        for number in range(_APPENDS):
            self._append(number)
        self._place.save("begin")

    def _append(self, number: int) -> None:
        path = self._folder / "rows.csv"
        lines = [f"{number * 10 + row},{'' if row in _BAD else row}" for row in (*_GOOD, *_BAD)]
        path.write_text("\n".join(["id,number", *lines, ""]))
        self._command("ingest", _SOURCE, str(path), "--create")

    def _command(self, *words: str) -> None:
        ended = self._mortals.run([*self._place.arguments, *words])
        assert ended.code == 0, ended

    def reset(self) -> None:
        """Restore the target, and remove the rows that were set aside."""
        self._place.restore("begin")
        for path in self._rejects:
            path.unlink()

    @property
    def _rejects(self) -> list[Path]:
        return sorted(self._folder.glob("bad-epoch-*.csv"))

    def run(self, kill: tuple[int, str] | None = None) -> End:
        """Run the load."""
        words = ["ingest", TABLE, "--from-table", _SOURCE, "--follow", "--stream", "c", "--once"]
        rejects = ["--rejects", str(self._folder / "bad.csv"), "--start", "earliest"]
        return self._mortals.run([*self._place.arguments, *words, *rejects], kill)

    def check(self, note: object) -> None:
        """Check that each good row is in the table once, and each bad row is set aside once."""
        warehouse = self._place.warehouse
        catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db")
        found = catalog.load_table(TABLE).scan().to_arrow().column("id").to_pylist()
        assert Counter(found) == Counter(_ids(_GOOD)), note
        rows = [row for path in self._rejects for row in csv.DictReader(path.open())]
        texts = Counter(row["_row"] for row in rows)
        assert texts == Counter(f"id: {number}, number: None" for number in _ids(_BAD)), note


def _ids(rows: tuple[int, ...]) -> list[int]:
    return [number * 10 + row for number in range(_APPENDS) for row in rows]


def kill_and_copy(copies: Copies, point: tuple[int, str]) -> bool:
    """Kill a load at a point, and run it twice more; return whether it was killed."""
    copies.reset()
    first = copies.run(point)
    ends = [copies.run(), copies.run()]
    assert [end.code for end in ends] == [0, 0], (point, ends)
    assert ends[1].document is not None
    assert ends[1].document["status"] == "nothing-to-do", (point, ends)
    copies.check((point, first))
    return first.code is None
