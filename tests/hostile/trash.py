"""Lists of files that `lake clean --quarantine` moved away: damaged, or with other files than these."""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hostile.commands import CLEAN, Commands
from hostile.guard import WrongError
from hostile.parquet_edits import flipped
from hostile.places import odd_names, traps
from hostile.tables import broken_table

_ORPHANS = ("data/lost.parquet", "data/part=even/lost.parquet", "metadata/lost-m0.avro")
_TIMES = (0, -1, 2**62, 2**63, 10**40)
Rows = list[dict[str, Any]]


class Lists:
    """`lake clean` lists, restores and purges a run: it moves and deletes only the files that the run moved."""

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._commands = Commands(self._table)
        self._canary = folder / "canary"
        self._root = self._table.root
        for name in _ORPHANS:
            (self._root / name).parent.mkdir(parents=True, exist_ok=True)
            (self._root / name).write_bytes(f"lost {name}".encode())
        result = self._commands.line("clean", self._table.name, *CLEAN, "--quarantine")
        if result.exit_code:
            raise AssertionError(result)
        (self._folder,) = (self._root / ".lake-trash").iterdir()
        self._run = self._folder.name
        self._away = folder / "away"
        shutil.copytree(self._folder, self._away)
        self._moved = {path.read_bytes() for path in self._away.rglob("*lost*")}
        self._list = pq.read_table(self._folder / "files.parquet")
        self._data = (self._folder / "files.parquet").read_bytes()
        self._lines = [
            ["--restore", self._run],
            ["--purge", self._run],
            ["--purge-older-than", "0s"],
            ["--older-than", "0s", "--unsafe-retention"],
        ]
        shutil.rmtree(self._root / ".lake-trash")
        self._made: dict[str, Callable[[], Any]] = dict(self._lists())
        self.count = 10**9

    def attempt(self, number: int) -> str:
        """Run every command with one of them; those beyond the named ones are changed at random."""
        names = list(self._made)
        name = names[number] if number < len(names) else f"random {number}"
        make = self._made.get(name, lambda: flipped(self._data, random.Random(name)))
        ends = []
        for line in self._lines:
            shutil.copytree(self._away, self._folder)
            try:
                with traps(self._root, self._canary):
                    made = make()
                    if isinstance(made, bytes):
                        (self._folder / "files.parquet").write_bytes(made)
                    ends.append(self._ended(f"{name}: {line[0]}", line))
            finally:
                for path in (self._folder, self._root / ".lake-trash"):
                    if path.is_symlink():
                        path.unlink()
                shutil.rmtree(self._root / ".lake-trash", ignore_errors=True)
                self._table.restore()
        return " / ".join(ends)

    def _ended(self, what: str, line: list[str]) -> str:
        result = self._commands.line("--json", "clean", self._table.name, *line)
        if self._table.canary_changed():
            raise WrongError(f"{what} changed the canary: {result}")
        lost = self._table.changes()[1]
        if lost:
            raise WrongError(f"{what} removed {lost}: {result}")
        for path in self._table.truth.needed:
            if path.read_bytes() != self._table.original(path):
                raise WrongError(f"{what} changed {path}: {result}")
        if result.exit_code not in {0, 3, 6, 7}:
            raise WrongError(f"{what} ended with {result.exit_code}: {result}")
        if line[0] == "--restore" or result.exit_code == 7:
            left = set()
            for path in (*self._root.rglob("*"), *self._canary.rglob("*")):
                with suppress(OSError):
                    if path.is_file() and not path.is_symlink() and path.stat().st_size < 100:
                        left.add(path.read_bytes())
            if self._moved - left:
                raise WrongError(f"{what} lost {self._moved - left}: {result}")
        come = {path for path in self._table.changes()[0] if ".lake-trash" not in path.parts}
        if any(".metadata.json" in path.name or "hint" in path.name for path in come):
            raise WrongError(f"{what} made {come}: {result}")
        return {0: "right", 6: "in part"}.get(result.exit_code, "typed")

    def _written(self, change: Callable[[Rows], Any], **marks: str) -> bytes:
        rows = self._list.to_pylist()
        change(rows)
        made = pa.Table.from_pylist(rows, self._list.schema)
        found = {**(self._list.schema.metadata or {}), **{f"lake.{k}": v for k, v in marks.items()}}
        sink = io.BytesIO()
        pq.write_table(made.replace_schema_metadata(found), sink)
        return sink.getvalue()

    def _lists(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        for odd, text in odd_names(self._root, self._canary).items():
            for column in ("path", "moved_to"):

                def make(text: str = text, column: str = column) -> bytes:
                    try:
                        return self._written(lambda rows: rows[0].update({column: text}))
                    except UnicodeEncodeError:
                        return b""

                yield f"{odd} as {column}", make
        run = f"{self._root}/.lake-trash/{self._run}"
        up = os.path.relpath(self._canary / "a.parquet", run)
        live = str(min(self._table.truth.needed))
        for name, change in {
            "no rows": lambda rows: rows.clear(),
            "a row less": lambda rows: rows.pop(),
            "NULL path": lambda rows: rows[0].update(path=None),
            "NULL place": lambda rows: rows[0].update(moved_to=None),
            "only NULL": lambda rows: rows[0].update(dict.fromkeys(rows[0])),
            "a path twice": lambda rows: rows[0].update(path=rows[1]["path"]),
            "a place twice": lambda rows: rows[0].update(moved_to=rows[1]["moved_to"]),
            "the list": lambda rows: rows[0].update(moved_to="files.parquet"),
            "nothing": lambda rows: rows[0].update(moved_to=""),
            "up": lambda rows: rows[0].update(moved_to=up),
            "a live file's place": lambda rows: rows[0].update(
                moved_to=os.path.relpath(live, run), path=f"{self._root}/data/x.parquet"
            ),
            "a live file": lambda rows: rows[0].update(path=live),
            "a live file in other words": lambda rows: rows[0].update(path=f"file:///{live}"),
            "below a file": lambda rows: rows[0].update(path=f"{live}/x.parquet"),
            "below a link": lambda rows: rows[0].update(path=f"{self._root}/data/link/new.parquet"),
            "a folder below a link": lambda rows: rows[0].update(
                path=f"{self._root}/data/link/new/new.parquet"
            ),
            "a version to come": lambda rows: rows[0].update(
                path=f"{self._root}/metadata/v99.metadata.json"
            ),
            "metadata to come": lambda rows: rows[0].update(
                path=f"{self._root}/metadata/99999-x.metadata.json"
            ),
            "a hint": lambda rows: rows[0].update(path=f"{self._root}/metadata/version-hint.text"),
            "another table": lambda rows: rows[0].update(path=f"{self._root.parent}/u/data/x.avro"),
            "great numbers": lambda rows: rows[0].update(bytes=2**63 - 1, modified_ms=-(2**63)),
            "great numbers twice": lambda rows: [row.update(bytes=2**63 - 1) for row in rows],
            "negative": lambda rows: rows[0].update(bytes=-(2**63)),
        }.items():
            yield name, lambda change=change: self._written(change)
        for time in _TIMES:
            yield (
                f"made at {time}",
                lambda time=time: self._written(lambda _: 0, **{"created-ms": str(time)}),
            )
        for mark in ("x", "", "9" * 5000, "1e9", "²"):
            yield (
                f"made at {mark[:9]!r}",
                lambda mark=mark: self._written(lambda _: 0, **{"created-ms": mark}),
            )
        yield (
            "of another table",
            lambda: self._written(lambda _: 0, **{"table-uuid": "x"}),
        )
        yield "a bomb", self._bomb
        yield "numbers as paths", lambda: self._of_types(pa.int64(), [1, 2])
        yield "lists as paths", lambda: self._of_types(pa.list_(pa.string()), [["x"], ["y"]])
        yield "bytes as paths", lambda: self._of_types(pa.binary(), [b"\xff", b"\xfe"])
        yield "empty", lambda: b""
        yield "a link to a file", lambda: self._linked(self._folder / "files.parquet", "a.parquet")
        yield "a link to a folder", self._link_files
        yield "a link to the run", self._link_run
        yield "a link to the trash", self._link_trash
        yield "a pipe", self._pipe

    def _of_types(self, kind: pa.DataType, values: Any) -> bytes:
        count = len(values)
        made = pa.table(
            {
                "path": pa.array(values, kind),
                "moved_to": pa.array(values, kind),
                "kind": ["data_file"] * count,
                "bytes": [1] * count,
                "modified_ms": [1] * count,
            }
        )
        sink = io.BytesIO()
        pq.write_table(made.replace_schema_metadata(self._list.schema.metadata), sink)
        return sink.getvalue()

    def _bomb(self) -> bytes:
        row = self._list.to_pylist()[0]
        rows = {name: pa.array([value] * 2_000) for name, value in row.items()}
        rows["path"] = pa.array([row["path"] + "/x" * 2**14] * 2_000)
        made = pa.table(rows).cast(self._list.schema)
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, made.schema) as writer:
            for _ in range(60):
                writer.write_table(made)
        return sink.getvalue()

    def _linked(self, path: Path, name: str) -> None:
        path.unlink()
        path.symlink_to(self._canary / name)

    def _link_files(self) -> None:
        """The files themselves are in another folder, which a link names."""
        self._elsewhere(self._folder / "files", self._canary / "files")

    def _link_run(self) -> None:
        self._elsewhere(self._folder, self._canary / "run")

    def _link_trash(self) -> None:
        self._elsewhere(self._root / ".lake-trash", self._canary / "trash")

    def _elsewhere(self, path: Path, target: Path) -> None:
        # The canary is looked at as it is then.
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(path, target)
        path.symlink_to(target)
        self._table.look_at_canary()

    def _pipe(self) -> None:
        (self._folder / "files.parquet").unlink()
        os.mkfifo(self._folder / "files.parquet")


__all__ = ["Lists"]
