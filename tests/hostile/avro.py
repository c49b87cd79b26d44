"""Manifests and manifest lists: cut at every byte, with wrong values, and with bytes changed at random."""

from __future__ import annotations

import random
from pathlib import Path

from hostile import edits
from hostile.commands import READS, WRITES, Commands
from hostile.tables import broken_table

_TURNS = (*READS, *WRITES)
_PICKS = (
    *("cherry-pick", "publish", "forward", "cherry-pick-dry", "publish-dry"),
    *("rollback", "add-files", "purge", "purge-dry", "expire"),
)
_OTHERS = tuple(command for command in _TURNS if command not in {"scan", "plan", "expire"})


class Truncations:
    """The head's manifest list and manifests, then the other lists, each cut before every byte."""

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        head, *lists = self._table.lists()
        files = [head, *self._table.manifests(), *lists]
        self._points = [(path, length) for path in files for length in range(path.stat().st_size)]
        self.count = len(self._points)

    def attempt(self, number: int) -> str:
        path, length = self._points[number]
        data = self._table.original(path)[:length]
        command = _TURNS[number % len(_TURNS)]
        return self._commands.all_judged([command], {path: data})[0]


class WrongValues:
    """A list and manifests of a table with wrong blocks, records, schemas and codecs.

    The list has the lengths of the stored manifests, so that only their contents are wrong. If no rule of the
    format is broken, what the reference reads of the broken table is as correct as the original.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._head = self._table.lists()[0]
        manifests = self._table.manifests()
        self._mutants: list[tuple[Path, str, bytes]] = []
        for path in dict.fromkeys((self._head, manifests[0], manifests[-1])):
            data = path.read_bytes()
            wrong = edits.LIST_EDITS if path == self._head else edits.ENTRY_EDITS
            for found in (
                edits.wrong_blocks(data),
                edits.wrong_records(data, wrong),
                edits.wrong_schemas(data),
                edits.bombs(data) if path != manifests[-1] else {},
            ):
                self._mutants += [(path, name, mutant) for name, mutant in found.items()]
        self.count = len(self._mutants)

    def attempt(self, number: int) -> str:
        path, name, data = self._mutants[number]
        broken = {path: data}
        if path != self._head:
            broken[self._head] = edits.with_length(self._head.read_bytes(), path, len(data))
        commands = ("scan", "plan", "expire", _OTHERS[number % len(_OTHERS)])
        # No reader without limits should look at a bomb.
        believed = "bomb" not in name
        with self._commands.adding(f"{path.name} {name}"):
            return " / ".join(self._commands.all_judged(commands, broken, believed=believed))


class Flips:
    """A list or manifest of a table with bytes changed at random, as its number says."""

    count = 10**9

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._files = [*dict.fromkeys([*self._table.lists()[:2], *self._table.manifests()])]

    def attempt(self, number: int) -> str:
        chance = random.Random(number)
        path = chance.choice(self._files)
        data = edits.flipped(self._table.original(path), chance)
        commands = [("scan", "expire", "plan", *_OTHERS)[number % (3 + len(_OTHERS))]]
        return " / ".join(self._commands.all_judged(commands, {path: data}))


class StagedValues:
    """The list and the manifests of a staged snapshot, wrong as those of `WrongValues` are."""

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._list, *manifests = self._table.staged_files()
        self._mutants: list[tuple[Path, str, bytes]] = []
        for path in (self._list, *manifests):
            data = path.read_bytes()
            wrong = edits.LIST_EDITS if path == self._list else edits.ENTRY_EDITS
            for found in (
                edits.wrong_blocks(data),
                edits.wrong_records(data, {**wrong, **edits.OWN_EDITS}),
                edits.wrong_schemas(data),
            ):
                self._mutants += [(path, name, mutant) for name, mutant in found.items()]
        self.count = len(self._mutants)

    def attempt(self, number: int) -> str:
        path, name, data = self._mutants[number]
        broken = {path: data}
        if path != self._list:
            broken[self._list] = edits.with_length(self._list.read_bytes(), path, len(data))
        with self._commands.adding(f"{path.name} {name}"):
            return " / ".join(self._commands.all_judged(_PICKS, broken, believed=True))


class StagedFlips:
    """The list or a manifest of a staged snapshot with bytes changed at random, as its number says."""

    count = 10**9

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._files = self._table.staged_files()

    def attempt(self, number: int) -> str:
        chance = random.Random(f"staged {number}")
        path = chance.choice(self._files)
        data = edits.flipped(self._table.original(path), chance)
        commands = [_PICKS[number % len(_PICKS)]]
        return " / ".join(self._commands.all_judged(commands, {path: data}))
