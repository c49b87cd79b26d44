"""Catalogs whose contents are wrong: rows of a database, version hints and names of metadata files in folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile.commands import Commands
from hostile.guard import WrongError
from hostile.places import CONTROLS, odd_names, traps
from hostile.tables import broken_table

_COMMANDS = (
    *("plan", "tables", "show", "snapshots", "check", "expire", "clean", "compact", "tag"),
    *("rename", "register", "create", "drop", "purge-dry", "purge"),
    *("rollback", "forward", "cherry-pick", "publish", "add-files"),
)
_VALUES: dict[str, Any] = {
    "NULL": None,
    "a number": 5,
    "a fraction": 0.5,
    "bytes": b"\xff\xfe",
    "1 MiB": "x" * 2**20,
    "a null character": "file:///x\0y/metadata/1.metadata.json",
    "a server": "http://127.0.0.1:1/db/t/metadata/1.metadata.json",
}
# Of iceberg_tables.
_CATALOG, _SPACE, _NAME, _PLACE, _PREVIOUS = range(5)
_COLUMNS = {"space": _SPACE, "name": _NAME, "place": _PLACE, "previous": _PREVIOUS}


class _Judged:
    """A table, and the commands that are run on it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.table = broken_table(folder, name)
        self.commands = Commands(self.table)
        self.canary = folder / "canary"

    def ended(self, what: str, command: str) -> str:
        """Run a command; return how it ended."""
        before = self.table.changes()[1]
        with traps(self.table.root, self.canary):
            result = self.commands.run(command)
            touched = self.table.canary_changed()
        if touched:
            raise WrongError(f"{what}: {command} changed the canary: {result}")
        gone = {path for path in self.table.changes()[1] - before if path.suffix != ".crc"}
        if command != "purge" and gone & self.table.truth.needed:
            raise WrongError(f"{what}: {command} deleted {gone}: {result}")
        if gone and (result.exit_code in {2, 3, 7} or command == "purge-dry"):
            raise WrongError(f"{what}: {command} failed and deleted {gone}: {result}")
        if result.exit_code not in {0, 2, 3, 4, 6, 7, 9}:
            raise WrongError(f"{what}: {command} ended with {result.exit_code}: {result}")
        if bad := CONTROLS & set(result.stdout + result.stderr):
            raise WrongError(f"{what}: {command} printed {bad}: {result}")
        return {0: "right", 6: "in part"}.get(result.exit_code, "typed")


class Rows:
    """A value of the table's own row, or of another row beside it, in a database that keeps any value."""

    def __init__(self, folder: Path) -> None:
        self._judged = _Judged(folder, "lake-v2")
        table = self._judged.table
        (self._own,) = table.entries()
        values = {**_VALUES, **odd_names(table.root, self._judged.canary)}
        self._rows = [
            (f"{what} as {column} of {whose} row", self._row(whose, number, value))
            for what, value in values.items()
            if not isinstance(value, str) or _is_text(value)
            for column, number in _COLUMNS.items()
            for whose in ("its own", "another")
            if value is not None or column in {"place", "previous"}
        ]
        other = self._row("another", _PLACE, self._own[_PLACE])
        self._rows.append(("the same file under another name", other))
        self._rows.append(("no row", []))
        self.count = len(self._rows)

    def _row(self, whose: str, column: int, value: Any) -> list[Any]:
        own = list(self._own)
        if whose == "its own":
            own[column] = value
            return [own]
        other = list(own)
        other[_NAME], other[_PLACE] = "other", own[_PLACE].replace("/db/t/", "/db/other/")
        other[column] = value
        return [own, other] if other[:_PLACE] != own[:_PLACE] else [other]

    def attempt(self, number: int) -> str:
        """Run every command on one of them."""
        what, rows = self._rows[number]
        ends = []
        for command in _COMMANDS:
            self._judged.table.enter(*rows)
            try:
                ends.append(self._judged.ended(what, command))
            finally:
                self._judged.table.restore()
        return " / ".join(ends)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Folders:
    """Version hints and metadata files of a hadoop catalog's table that contradict one another."""

    def __init__(self, folder: Path) -> None:
        self._judged = _Judged(folder, "hadoop")
        self._folder = self._judged.table.root / "metadata"
        self._current = self._judged.table.metadata_path
        self._version = int(self._current.name[1:].partition(".")[0])
        self._made = dict(self._changes())
        self.count = len(self._made)

    def attempt(self, number: int) -> str:
        """Run every command on one of them."""
        what, make = list(self._made.items())[number]
        ends = []
        for command in _COMMANDS:
            try:
                make()
                ends.append(self._judged.ended(what, command))
            finally:
                for path in self._folder.iterdir() if self._folder.exists() else ():
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                self._judged.table.restore()
        return " / ".join(ends)

    def _hint(self, data: bytes) -> None:
        (self._folder / "version-hint.text").write_bytes(data)

    def _named(self, name: str) -> None:
        (self._folder / name).write_bytes(self._current.read_bytes())

    def _replaced(self, name: str, make: Callable[[Path], Any]) -> None:
        (self._folder / name).unlink(missing_ok=True)
        make(self._folder / name)

    def _changes(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        version = self._version
        numbers = (0, -1, 1, version - 1, version + 1, 2**31, 2**63, 10**30, -(2**31))
        hints = [str(number).encode() for number in numbers]
        hints += [b"", b" ", b"x", b"\xff", "\u0663".encode(), "\u00b2".encode(), b"1e1", b"0x1"]
        hints += [b"%d\n9" % version, b"+%d" % version, b"0%d" % version, b"../v1", b"9" * 5000]
        for hint in (*hints, b"\0" * 4097, b"1" + b"\0" * 100):
            yield f"hint {hint[:12]!r}", lambda hint=hint: self._hint(hint)
        for name in (
            *(f"v{number}.metadata.json" for number in numbers),
            *("v.metadata.json", "vx.metadata.json", "v\u0663.metadata.json", "v+9.metadata.json"),
            *(
                f"v{version}.gz.metadata.json",
                f"v{version}.metadata.json.gz",
                "00009-x.metadata.json",
            ),
            *(
                f"v{version + 1}.gz.metadata.json",
                f"v0{version + 1}.metadata.json",
                "v\n.metadata.json",
            ),
            *("v9.metadata.json\x1b[2J", ".metadata.json", "v1_000.metadata.json"),
        ):
            yield f"file {name!r}", lambda name=name: self._named(name)
        hint, current, later = (
            "version-hint.text",
            self._current.name,
            f"v{version + 1}.metadata.json",
        )
        kinds: dict[str, Callable[[Path], Any]] = {
            "a folder": Path.mkdir,
            "a pipe": os.mkfifo,
            "a link to nothing": lambda path: path.symlink_to("/nowhere"),
            "a link to itself": lambda path: path.symlink_to(path),
            "a link to a device": lambda path: path.symlink_to("/dev/zero"),
            "a link to passwords": lambda path: path.symlink_to("/etc/passwd"),
            "a link to the canary": lambda path: path.symlink_to(self._judged.canary / "a.parquet"),
            "nothing": lambda path: path.write_bytes(b""),
            "missing": lambda path: None,
        }
        for kind, make in kinds.items():
            for name in (hint, current, later):
                yield f"{kind} as {name}", lambda name=name, make=make: self._replaced(name, make)
