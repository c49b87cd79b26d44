"""Manifests and manifest lists: cut at every byte, with lies in them, and with bytes changed at random."""

from __future__ import annotations

import random
from pathlib import Path

from hostile import edits
from hostile.commands import READS, WRITES, Commands
from hostile.tables import BrokenTable

_OTHERS = ("expire", *READS[1:], *WRITES)


class Truncations:
    """All manifest lists of a table and the head's manifests, each cut before every byte.

    At each point a plan is made and, in turn, another command is run.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._table = BrokenTable(folder, name)
        self._commands = Commands(self._table)
        files = dict.fromkeys([*self._table.lists(), *self._table.manifests()])
        self._points = [(path, length) for path in files for length in range(path.stat().st_size)]
        self.count = len(self._points)

    def attempt(self, number: int) -> str:
        path, length = self._points[number]
        data = self._table.original(path)[:length]
        commands = ("plan", _OTHERS[number % len(_OTHERS)])
        return " / ".join(self._commands.all_judged(commands, path, data))


class Lies:
    """A table's list and manifests, whose blocks, records, schemas and codecs lie: every command meets each."""

    def __init__(self, folder: Path, name: str) -> None:
        self._table = BrokenTable(folder, name)
        self._commands = Commands(self._table)
        head = self._table.lists()[0]
        manifests = self._table.manifests()
        self._mutants: list[tuple[Path, str, bytes]] = []
        for path in (head, manifests[0], manifests[-1]):
            data = path.read_bytes()
            lies = edits.LIST_LIES if path == head else edits.ENTRY_LIES
            for found in (
                edits.block_lies(data),
                edits.record_lies(data, lies),
                edits.schema_lies(data),
                edits.bombs(data) if path != manifests[-1] else {},
            ):
                self._mutants += [(path, name, mutant) for name, mutant in found.items()]
        self.count = len(self._mutants)

    def attempt(self, number: int) -> str:
        path, name, data = self._mutants[number]
        with self._commands.telling(f"{path.name} {name}"):
            return " / ".join(self._commands.all_judged((*READS, *WRITES), path, data))


class Flips:
    """A list or manifest of a table with bytes changed at random, as its number says."""

    count = 10**9

    def __init__(self, folder: Path, name: str) -> None:
        self._table = BrokenTable(folder, name)
        self._commands = Commands(self._table)
        self._files = [*dict.fromkeys([*self._table.lists()[:2], *self._table.manifests()])]

    def attempt(self, number: int) -> str:
        chance = random.Random(number)
        path = chance.choice(self._files)
        data = edits.flipped(self._table.original(path), chance)
        commands = ("scan", _OTHERS[number % len(_OTHERS)])
        return " / ".join(self._commands.all_judged(commands, path, data))
