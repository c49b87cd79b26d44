"""A follow that is killed, or whose machine loses power, at each of its steps; a loader takes its epochs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from world.killed import rows
from world.mortal import AFTER, BEFORE, End, Mortals
from world.places import LOCAL, TABLE, Place

Point = tuple[int, str]
_APPENDS = 3


class Follows:
    """A table with a few appends, and a follow of it that hands over an epoch for each of them.

    Args:
        folder: the folder of all files.
        mortals: the processes that run the commands.
        kind: the catalog's type.
        options: more options of the follow.
    """

    def __init__(
        self, folder: Path, mortals: Mortals, kind: str = "sql", options: Sequence[str] = ()
    ) -> None:
        self._folder, self._mortals = folder, mortals
        # Everything that a power cut affects is in one folder.
        self._disk = folder / "disk"
        self._disk.mkdir(parents=True)
        self._ledger = folder / "ledger"
        self._place: Place = LOCAL[kind](self._disk)
        self._place.restore("nothing")
        self.state, self.out = self._disk / "state", self._disk / "out"
        self._options = options
        for number in range(_APPENDS):
            self.append(number)
        self.reset()

    def append(self, number: int) -> None:
        """Append four rows."""
        given = rows(*range(number * 4, number * 4 + 4), value=number)
        path = self._folder / f"source-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(given), path)
        create = [] if number else ["--create"]
        ended = self._mortals.run([*self._place.arguments, "ingest", TABLE, path, *create])
        assert ended.code == 0, ended

    def reset(self) -> None:
        """Forget the state and everything that was handed over."""
        for folder in (self.state, self.out, self._ledger):
            shutil.rmtree(folder, ignore_errors=True)
        self._ledger.mkdir()

    def run(
        self, kill: Point | None = None, images: Path | None = None, *, loader: bool = False
    ) -> End:
        """Run the follow; with ``loader``, each epoch is taken as soon as it appears."""
        arguments: list[object] = [*self._place.arguments, "scan", TABLE, "--follow", "--once"]
        arguments += ["--state", self.state, "--output", self.out, *self._options]
        # One split is one file, and one epoch is one split.
        arguments += ["--epoch-size", "1B", "--split-open-cost", "128MB"]
        return self._mortals.run(arguments, kill, images, self._ledger if loader else None)

    def load(self) -> None:
        """Take the epochs that are visible."""
        for folder in sorted(self.out.glob("epoch-*")) if self.out.exists() else ():
            folder.rename(self._ledger / folder.name)

    def points(self, calls: Sequence[str]) -> Iterator[Point]:
        """Yield the points before and after each call."""
        for number in range(len(calls)):
            yield number, BEFORE
            yield number, AFTER

    def bring(self, image: Path) -> None:
        """Replace the disk by what a power cut left."""
        shutil.rmtree(self._disk)
        shutil.copytree(image, self._disk)

    def check(self, note: object, appends: int = _APPENDS) -> None:
        """Check what the loader has: every row once, in the order of the appends, in epochs without a hole."""
        self.load()
        folders = sorted(self._ledger.iterdir())
        facts = [json.loads((folder / "_epoch.json").read_text()) for folder in folders]
        assert [item["epoch"] for item in facts] == [*range(1, len(folders) + 1)], note
        found = [
            [
                row["id"]
                for file in item["files"]
                for row in pq.read_table(folder / file["name"]).to_pylist()
            ]
            for folder, item in zip(folders, facts, strict=True)
        ]
        assert [len(ids) for ids in found] == [item["rows"] for item in facts], note
        every = Counter(number for ids in found for number in ids)
        assert every == Counter(range(appends * 4)), (note, found)
        assert not [path for path in self.out.iterdir() if not path.name.startswith("epoch-")], note
        left = {path.name for path in self.state.iterdir()}
        assert left == {"lock", "state.json"}, (note, left)


def kill_and_continue(follows: Follows, point: Point, *, loader: bool) -> bool:
    """Kill a follow at a point, and run it twice more; return whether it was killed."""
    follows.reset()
    first = follows.run(point, loader=loader)
    if not loader:
        follows.load()
    second = follows.run(loader=loader)
    assert second.code == 0, (point, second)
    third = follows.run(loader=loader)
    assert third.code == 0, (point, third)
    assert third.document, (point, third)
    assert third.document["status"] == "nothing-to-do", (point, third)
    assert third.document["result"]["epochs"] == 0, (point, third)
    follows.check((point, first))
    return first.code is None
