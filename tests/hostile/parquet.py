"""Data and delete files: bytes changed at random, wrong footers and contents, invalid vectors."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostile import edits, footer_edits, parquet_edits
from hostile.commands import Commands
from hostile.guard import WrongError
from hostile.tables import NAME, broken_table

_TURNS = ("scan", "compact", "upsert", "source")


class _Files:
    """The files that a table's head needs, by kind."""

    def __init__(self, folder: Path, name: str) -> None:
        self.table = broken_table(folder, name)
        self.commands = Commands(self.table)
        self.data = sorted(path for path in self.table.head_files() if path.suffix == ".parquet")
        self.vectors = sorted(path for path in self.table.head_files() if path.suffix == ".puffin")

    def tried(self, commands: tuple[str, ...], broken: Mapping[Path, bytes], **how: Any) -> str:
        return " / ".join(self.commands.all_judged(commands, broken, **how))


class Flips:
    """A data or delete file with bytes changed at random, as its number says; it is loaded as a source too."""

    count = 10**9

    def __init__(self, folder: Path, name: str) -> None:
        self._files = _Files(folder, name)

    def attempt(self, number: int) -> str:
        chance = random.Random(f"parquet {number}")
        path = chance.choice(self._files.data)
        data = parquet_edits.flipped(self._files.table.original(path), chance)
        turns = _TURNS if self._files.table.name == NAME else ("scan", "compact")
        return self._files.tried((turns[number % len(turns)],), {path: data})


class Footers:
    """A data or delete file with values of its footer changed at random, as its number says."""

    count = 10**9

    def __init__(self, folder: Path, name: str) -> None:
        self._files = _Files(folder, name)
        self._turns: tuple[str, ...] = ("scan", "compact", "check-rows")
        if self._files.table.name == NAME:
            self._turns += ("upsert", "convert", "stats", "source")

    def attempt(self, number: int) -> str:
        chance = random.Random(f"footer {number}")
        path = chance.choice(self._files.data)
        data = footer_edits.mutated(self._files.table.original(path), chance)
        if data is None:
            return "cannot be written"
        turn = self._turns[number % len(self._turns)]
        return self._files.tried((turn,), {path: data}, believed=True)


class WrongValues:
    """Data and delete files whose footers and contents are not what the table's metadata says."""

    def __init__(self, folder: Path, name: str) -> None:
        self._files = _Files(folder, name)
        self._mutants: list[tuple[Path, str, bytes]] = []
        for path in self._files.data:
            data = path.read_bytes()
            wrong = {**parquet_edits.wrong_footers(data), **parquet_edits.wrong_contents(data)}
            if self._mutants:
                # One so large will do: what waits here counts as the commands' memory.
                del wrong[parquet_edits.LARGE]
            self._mutants += [(path, name, mutant) for name, mutant in wrong.items()]
        self.count = len(self._mutants)

    def attempt(self, number: int) -> str:
        path, name, data = self._mutants[number]
        with self._files.commands.adding(f"{path.name} {name}"):
            commands: tuple[str, ...] = ("scan", "compact", "expire")
            if self._files.table.name == NAME:
                commands = (*commands, "upsert")
            return self._files.tried(commands, {path: data}, believed=True)


class Vectors:
    """Deletion vectors with bytes changed at random, and entries that name other places or numbers of them."""

    count = 10**9

    def __init__(self, folder: Path, name: str = "lake-v3") -> None:
        self._files = _Files(folder, name)
        table = self._files.table
        self._list = table.lists()[0]
        self._manifest = next(
            path
            for path in table.manifests()
            if b"referenced_data_file" in path.read_bytes()
            and any(row["data_file"]["content"] for row in edits.opened(path.read_bytes()).records)
        )

    def attempt(self, number: int) -> str:
        chance = random.Random(f"vector {number}")
        commands = (_TURNS[number // 4 % 3],)
        table = self._files.table
        if number % 4:
            path = chance.choice(self._files.vectors)
            data = table.original(path)
            # The blobs are between the magic and the footer, which only people read.
            data = edits.flipped(data, chance) if number % 2 else _in_blob(data, chance)
            return self._files.tried(commands, {path: data})
        file = edits.opened(table.original(self._manifest))
        entry = chance.choice(file.records)["data_file"]
        name = chance.choice(
            ("content_offset", "content_size_in_bytes", "record_count", "referenced_data_file")
        )
        entry[name] = chance.choice(
            (None, "", "/x", *self._files.data)
            if name == "referenced_data_file"
            else (None, 0, 1, 3, 4, 5, -1, 2**31, 2**62, entry[name] + 1, entry[name] - 1)
        )
        entry[name] = str(entry[name]) if isinstance(entry[name], Path) else entry[name]
        try:
            data = edits.written(file)
        except (TypeError, ValueError):
            return "cannot be written"
        broken = {
            self._manifest: data,
            self._list: edits.with_length(table.original(self._list), self._manifest, len(data)),
        }
        with self._files.commands.adding(f"{name} {entry[name]}"):
            return self._files.tried(commands, broken, believed=True)


def _in_blob(data: bytes, chance: random.Random) -> bytes:
    found = bytearray(data)
    end = data.rindex(b"PFA1", 0, len(data) - 4)
    for _ in range(chance.choice((1, 1, 3))):
        found[chance.randrange(4, end)] ^= 1 << chance.randrange(8)
    return bytes(found)


class Bombs:
    """Files of kilobytes whose rows are gigabytes, or whose columns are nested a thousand levels deep, as sources."""

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._commands = Commands(self._table)
        self._path = folder / "bomb.parquet"
        make = parquet_edits
        self._bombs = {
            "a text of 1 MiB 500 times": lambda: make.dictionary_bomb(500, 2**20),
            "a text of 32 MiB 20 times": lambda: make.dictionary_bomb(20, 2**25),
            "a text of 1 KiB 300,000 times": lambda: make.dictionary_bomb(300_000, 2**10),
            **{f"{levels} levels": lambda n=levels: make.deep(n, 10) for levels in (50, 100, 1000)},
        }
        self.count = 4 * len(self._bombs)

    def attempt(self, number: int) -> str:
        name, make = list(self._bombs.items())[number // 4]
        self._path.write_bytes(make())
        line = [
            ["ingest", "db.loaded", self._path, "--create"],
            ["ingest", "db.loaded", self._path, "--create", "--dry-run"],
            ["ingest", NAME, self._path, "--upsert", "--key", "id", "--evolve"],
            ["add-files", NAME, self._path],
        ][number % 4]
        try:
            result = self._commands.line("--json", *line)
        finally:
            self._table.forget("db.loaded")
            self._table.restore()
        if result.exit_code not in {0, 3, 7}:
            raise WrongError(f"{name}: {line} ended with {result}")
        return "right" if result.exit_code == 0 else "bad input"
