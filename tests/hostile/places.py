"""Locations that lead elsewhere, in every place where a table or a command line names a file."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hostile import edits
from hostile.commands import Commands
from hostile.guard import WrongError
from hostile.tables import BrokenTable, broken_table
from lake.core.io.storage.storage import Storage

_COMMANDS = (
    "scan",
    "expire",
    "compact",
    "upsert",
    "partition-stats",
    "expire-text",
    "purge",
    "check-deep",
    "convert",
)
_EXPIRED = 4
CONTROLS = {chr(code) for code in range(32) if chr(code) not in "\n\t"} | {
    "\x7f",
    "\u202e",
    "\u2066",
}


def odd_names(root: Path, canary: Path) -> dict[str, str]:
    """Return locations that do not belong to a table, or lead out of it; each by what is odd about it."""
    data, victim = f"{root}/data", f"{canary}/a.parquet"
    up = os.path.relpath(victim, data)
    return {
        "dots": f"{data}/{up}",
        "dots with a scheme": f"file://{data}/{up}",
        "dots in the middle": f"{data}/part=even/../{up}",
        "packed dots": f"{data}/{up.replace('..', '%2e%2e')}",
        "half packed dots": f"{data}/{up.replace('..', '.%2E')}",
        "packed slashes": f"{data}/{up.replace('/', '%2F')}",
        "a dot": f"{data}/./x.parquet",
        "doubled slashes": f"file:////{victim}",
        "the canary": victim,
        "the canary with a scheme": f"file://{victim}",
        "the canary with a host": f"file://localhost{victim}",
        "the canary in one slash": f"file:{victim}",
        "the canary in capitals": f"FILE://{victim}",
        "another case": f"{data.upper()}/x.parquet",
        "a fragment": f"{victim}#x",
        "a query": f"{victim}?x",
        "a fragment below": f"{data}/#{up}",
        "back slashes": f"{data}/..\\..\\x.parquet",
        "NUL": f"{data}/a\0b.parquet",
        "NUL behind": f"{victim}\0.parquet",
        "a newline": f"{data}/a\nb.parquet",
        "colours": f"{data}/\x1b[31m\x1b[2J.parquet",
        "markup": f"{data}/[red]x[/][link=http://x]y[/link].parquet",
        "a bell": f"{data}/\x07\x08\r.parquet",
        "right to left": f"{data}/\u202egnp.teuqrap",
        "isolates": f"{data}/\u2066x\u2069.parquet",
        "no UTF-8": f"{data}/\udc80x.parquet",
        "nothing": "",
        "a space": " ",
        "a slash": "/",
        "the root": str(root),
        "the root's parent": str(root.parent),
        "a neighbour": f"{root}2/data/x.parquet",
        "a neighbour with a scheme": f"file://{root}-2/data/x.parquet",
        "a relative name": "canary/a.parquet",
        "a tilde": "~/a.parquet",
        "a variable": "$HOME/a.parquet",
        "a glob": f"{data}/*",
        "an unknown scheme": "gs9://bucket/x.parquet",
        "a scheme only": "s3://",
        "no scheme": "://x/y",
        "data": "data:text/plain,x",
        "4 KiB": f"{data}/{'x' * 4096}",
        "4 KiB of folders": data + "/y" * 2048,
        "300 letters": f"{data}/{'x' * 300}.parquet",
        "a link to a folder": f"{data}/link/a.parquet",
        "a link to a file": f"{data}/link.parquet",
        "a link to nothing": f"{data}/dangling.parquet",
        "a link to itself": f"{data}/circle.parquet",
        "a hard link": f"{data}/hard.parquet",
        "a pipe": f"{data}/pipe.parquet",
        "a device": "/dev/zero",
        "a link to a device": f"{data}/zero.parquet",
        "a socket": f"{data}/socket.parquet",
        "a folder": f"{data}/folder.parquet",
        "a full folder": f"{data}/part=even",
        "memory": "/proc/self/mem",
        "environment": "/proc/self/environ",
        "passwords": "/etc/passwd",
    }


@contextmanager
def traps(root: Path, canary: Path) -> Iterator[None]:
    """Put links, pipes, devices and folders among a table's data."""
    data = root / "data"
    made = [data / name for name in ("link", "link.parquet", "dangling.parquet", "circle.parquet")]
    made += [
        data / name for name in ("hard.parquet", "pipe.parquet", "zero.parquet", "socket.parquet")
    ]
    listener = socket.socket(socket.AF_UNIX)
    try:
        made[0].symlink_to(canary)
        made[1].symlink_to(canary / "a.parquet")
        made[2].symlink_to("/nowhere/at/all")
        made[3].symlink_to(made[3])
        os.link(canary / "hard", made[4])
        os.mkfifo(made[5])
        made[6].symlink_to("/dev/zero")
        listener.bind(str(made[7]))
        (data / "folder.parquet").mkdir()
        yield
    finally:
        listener.close()
        for path in made:
            path.unlink(missing_ok=True)
        shutil.rmtree(data / "folder.parquet", ignore_errors=True)


_LOCATION = "the location"


@contextmanager
def _new_folders(place: str | None) -> Iterator[None]:
    """Remove the folders on the way to a place that are not there yet."""
    path = Path(place) if place and place.startswith("/") and "\0" not in place else None
    new = [one for one in (path, *path.parents) if not os.path.lexists(one)] if path else []
    try:
        yield
    finally:
        if new:
            shutil.rmtree(new[-1], ignore_errors=True)


class Named:
    """Odd locations in the entries, lists, statistics and logs of a table's head and of an expired snapshot."""

    def __init__(self, folder: Path, name: str = "lake-v2") -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._canary = folder / "canary"
        self._odd = list(odd_names(self._table.root, self._canary).items())
        self._places: dict[str, Callable[[str], dict[Path, bytes]]] = {
            "an expired entry": lambda text: self._entry(_EXPIRED, text),
            "an entry": lambda text: self._entry(0, text),
            "an expired manifest": lambda text: self._manifest(_EXPIRED, text),
            "a manifest": lambda text: self._manifest(0, text),
            "an expired list": lambda text: self._metadata("list", text),
            "statistics": lambda text: self._metadata("statistics", text),
            "the log": lambda text: self._metadata("log", text),
            _LOCATION: lambda text: self._metadata("location", text),
            "partition statistics": lambda text: self._metadata("partition statistics", text),
        }
        self.count = len(self._odd) * len(self._places)

    def attempt(self, number: int) -> str:
        """Run every command with one of them."""
        odd, text = self._odd[number % len(self._odd)]
        place, make = list(self._places.items())[number // len(self._odd)]
        with self._commands.adding(f"{odd} in {place}"):
            try:
                broken = make(text)
            except (UnicodeEncodeError, ValueError):
                return "cannot be written"
            # Where the table is, by what it says of itself, it may write.
            own = text if place == _LOCATION else None
            ends = []
            for command in _COMMANDS:
                for path, content in broken.items():
                    self._table.write(path, content)
                try:
                    with (
                        traps(self._table.root, self._canary),
                        _new_folders(own),
                        self._watched(own),
                    ):
                        ends.append(self._end(command, own))
                finally:
                    self._table.restore()
            return " / ".join(ends)

    def _end(self, command: str, own: str | None) -> str:
        result = self._commands.run(command)
        touched = self._table.canary_changed() if own is None else self._table.canary_harmed()
        if touched:
            raise WrongError(f"{command} touched the canary: {result}")
        lost = self._table.changes()[1] & self._table.truth.needed
        if lost and command != "purge":
            raise WrongError(f"{command} deleted {lost}: {result}")
        if result.exit_code not in {0, 3, 4, 6, 7}:
            raise WrongError(f"{command} ended with {result.exit_code}: {result}")
        output = result.stdout + result.stderr
        if bad := CONTROLS & set(output):
            raise WrongError(f"{command} printed {bad}: {output[:1500]!r}")
        return {0: "done", 6: "done in part"}.get(result.exit_code, "typed")

    @contextmanager
    def _watched(self, own: str | None) -> Iterator[None]:
        """Let nothing be written, or deleted, outside the table's own folder and where it says that it is."""
        outside: list[str] = []

        def watching(real: Any) -> Any:
            def call(storage: Storage, location: str, *rest: Any, **named: Any) -> Any:
                inside = _inside(location, self._table.root) or (
                    own and location.startswith(f"{own}/")
                )
                # A run's own files are written where the metadata says that the table is.
                if "/lake-" not in location and not inside:
                    outside.append(location)
                return real(storage, location, *rest, **named)

            return call

        with (
            patch.object(Storage, "_delete_one", watching(Storage._delete_one)),
            patch.object(Storage, "open_output", watching(Storage.open_output)),
        ):
            yield
        if outside:
            raise WrongError(f"outside the table were written or deleted: {outside}")

    def _entry(self, which: int, text: str) -> dict[Path, bytes]:
        listed = self._table.lists()[which]
        manifest = self._table.manifests(which)[0]
        file = edits.opened(self._table.original(manifest))
        file.records[0]["data_file"]["file_path"] = text
        data = edits.written(file)
        found = {manifest: data}
        for one in self._table.lists():
            found[one] = edits.with_length(self._table.original(one), manifest, len(data))
        del listed
        return found

    def _manifest(self, which: int, text: str) -> dict[Path, bytes]:
        path = self._table.lists()[which]
        file = edits.opened(self._table.original(path))
        file.records[0]["manifest_path"] = text
        return {path: edits.written(file)}

    def _metadata(self, what: str, text: str) -> dict[Path, bytes]:
        path = self._table.metadata_path
        document = json.loads(self._table.original(path))
        oldest = document["snapshots"][0]
        if what == "list":
            oldest["manifest-list"] = text
        elif what == "log":
            document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": text}]
        elif what == "location":
            document["location"] = text
        elif what == "partition statistics":
            document["partition-statistics"] = [
                {
                    "snapshot-id": document["current-snapshot-id"],
                    "statistics-path": text,
                    "file-size-in-bytes": 10,
                }
            ]
        else:
            document["statistics"] = [
                {
                    "snapshot-id": oldest["snapshot-id"],
                    "statistics-path": text,
                    "file-size-in-bytes": 10,
                    "file-footer-size-in-bytes": 1,
                    "blob-metadata": [],
                }
            ]
        return {path: json.dumps(document).encode()}


def _inside(location: str, root: Path) -> bool:
    path = location.removeprefix("file://")
    folder = os.path.realpath(os.path.dirname(path))
    return folder == str(root) or folder.startswith(f"{root}/")


class Arguments:
    """Odd locations as sources, outputs, rejects and checkpoints on the command line."""

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._commands = Commands(self._table)
        self._canary = folder / "canary"
        odd = odd_names(self._table.root, self._canary)
        name = self._table.name
        source = str(folder / "upserted.parquet")
        self._lines = [
            (what, [part if part != "ODD" else text for part in line])
            for what, text in odd.items()
            for line in (
                ["ingest", name, "ODD"],
                ["ingest", name, "ODD", "--format", "csv"],
                ["scan", name, "--output", "ODD"],
                ["ingest", name, source, "--upsert", "--key", "id", "--rejects", "ODD"],
                ["replay", name, "--checkpoint", "ODD"],
            )
            # What a user names for output is theirs to write to.
            if "canary" not in what or line[1:3] != ["scan", "--output"]
        ]
        self.count = len(self._lines)

    def attempt(self, number: int) -> str:
        what, line = self._lines[number]
        with traps(self._table.root, self._canary):
            result = self._commands.line("--json", *line)
        self._table.restore()
        description = f"{what}: {line}: {result}"
        if result.exit_code not in {0, 2, 3, 6, 7, 9}:
            raise WrongError(description)
        if bad := CONTROLS & set(result.stdout + result.stderr):
            raise WrongError(f"{bad} printed by {description}")
        return "done" if result.exit_code == 0 else "typed"


_DELETING = ("expire", "purge")


class Nested:
    """A table inside another one's folder: whatever the outer one's expired manifests name, its files stay."""

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._commands = Commands(self._table)
        self._inner = folder / "inner"
        BrokenTable(self._inner, "lake-v3").close()
        self._manifest = self._table.manifests(_EXPIRED)[0]
        self._spots = ["inner", "data/inner", "metadata/inner", "a/b/inner"]
        self.count = 2 * len(_DELETING) * len(self._spots)

    def attempt(self, number: int) -> str:
        """Run a command that deletes files with one of the inner table's files in a manifest."""
        number, which = divmod(number, len(_DELETING))
        root = self._table.root / self._spots[number // 2]
        shutil.copytree(self._inner / "warehouse" / "db" / "t", root)
        victims = sorted((root / ("data" if number % 2 else "metadata")).rglob("*.*"))
        table, file = self._table, edits.opened(self._table.original(self._manifest))
        file.records[0]["data_file"]["file_path"] = str(
            next(one for one in victims if one.is_file())
        )
        data = edits.written(file)
        table.write(self._manifest, data)
        for one in table.lists():
            table.write(one, edits.with_length(table.original(one), self._manifest, len(data)))
        result = self._commands.run(_DELETING[which])
        left = [one for one in victims if one.exists()]
        shutil.rmtree(root)
        table.restore()
        if left != victims:
            raise WrongError(
                f"{_DELETING[which]} deleted {set(victims) - set(left)} of the table in it: {result}"
            )
        return {0: "right", 6: "right", 3: "refused", 7: "bad input"}[result.exit_code]
