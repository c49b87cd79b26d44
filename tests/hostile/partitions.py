"""`lake expire-partitions` on partition values, types and bounds that are wrong: only what is old goes."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.cli.command_line import CommandLine
from support.tables.damage import lists_of
from support.tables.iceberg_tables import pyiceberg_table
from world.reference import Reference, local

from hostile import edits
from hostile.guard import WrongError

_LIMIT = "2025-01-01T00:00:00Z"
_OLD, _NEW = "2020-03-04", "2031-05-06"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_END = int((datetime(2025, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
# Partitioning, and the options that say what gives the time.
_TABLES = {
    "day": ("day(ts)", "ts"),
    "hour": ("hour(ts)", "ts"),
    "month": ("month(ts)", "ts"),
    "year": ("year(ts)", "ts"),
    "date": ("d", "d"),
    "time": ("ts", "ts"),
    "text": ("s", "s"),
    "number": ("n", "n --format %Y%m%d"),
    "two": ("day(ts), s", "ts"),
}
_INTS = (0, -1, 1, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), 91_311_000, 19_999_999)
_TEXTS = (
    "",
    "x",
    "0000-00-00",
    "0001-01-01",
    "9999-12-31",
    "2024-02-30",
    "-2020-01-01",
    "2020-01-01\0",
)
_OTHER_TEXTS = ("\u0662020-01-01", " 2020-01-01", "2020-01-01 ", "x" * 10**6, "nan", "1e400")
_OTHERS = (None, 0.5, float("nan"), float("inf"), -float("inf"), True, b"\xff" * 9)
_VALUES = (*_INTS, *_TEXTS, *_OTHER_TEXTS, *_OTHERS)
_TYPES: tuple[Any, ...] = (
    *("int", "long", "string", "double", "float", "boolean", "bytes"),
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True},
    {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False},
    {"type": "fixed", "name": "fx", "size": 4},
    {"type": "array", "items": "int"},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 37},
)


class Values:
    """Partition values, their types, and bounds of files and manifests, changed at random; each table in its turn."""

    count = 10**9

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tables: dict[str, _Table] = {}

    def attempt(self, number: int) -> str:
        """Try one of them."""
        name = list(_TABLES)[number % len(_TABLES)]
        if name not in self._tables:
            folder = self._folder / name
            folder.mkdir()
            self._tables[name] = _Table(folder, name)
        return self._tables[name].attempt(number)


class _Table:
    """A table of two partitions, an old one and a new one."""

    def __init__(self, folder: Path, name: str) -> None:
        spec, by = _TABLES[name]
        self._name, self._by = name, by.split()
        self._lake = CommandLine(folder / "warehouse", engine="inline")
        columns = ("id long", "ts timestamptz", "d date", "s string", "n int")
        self._lake.ok("create", "db.t", *columns, "--partition-by", spec)
        for number, day in enumerate((_OLD, _NEW)):
            source = folder / "in.csv"
            source.write_text(
                f"id,ts,d,s,n\n{number},{day}T07:08:09Z,{day},{day},{day.replace('-', '')}\n"
            )
            self._lake.ok("ingest", "db.t", source)
        self._list = lists_of(self._lake)[-1]
        rows = edits.opened(self._list.read_bytes()).records
        self._files = {path: path.read_bytes() for path in [self._list, *_named(rows)]}
        # A manifest for each load.
        self._by_load = {_day(path): path for path in _named(rows)}
        self._pointer = self._current()

    def _current(self) -> str:
        return str(pyiceberg_table(self._lake.warehouse).metadata_location)

    def attempt(self, number: int) -> str:
        """Change something of one load, and remove what is old."""
        chance = random.Random(f"partition {self._name} {number}")
        load = chance.choice((_OLD, _NEW, _NEW))
        path = self._by_load[load]
        file = edits.opened(self._files[path])
        says_old = {_OLD: True, _NEW: False}
        try:
            what = self._change(file, chance)
            data = edits.written(file)
            says_old[load] = says_old[load] or self._is_old(_written(data, file.records[0]))
        except (TypeError, ValueError, OverflowError, AttributeError, KeyError, struct.error):
            return "cannot be written"
        path.write_bytes(data)
        self._list.write_bytes(
            self._bounds(edits.with_length(self._files[self._list], path, len(data)), chance)
        )
        try:
            return self._judged(f"{what} of {load}", says_old)
        finally:
            for one, content in self._files.items():
                one.write_bytes(content)
            self._point_back()

    def _point_back(self) -> None:
        if self._current() != self._pointer:
            with sqlite3.connect(self._lake.warehouse / "catalog.db") as database:
                database.execute(
                    "UPDATE iceberg_tables SET metadata_location = ?", (self._pointer,)
                )

    def _change(self, file: edits.Opened, chance: random.Random) -> str:
        entry = file.records[0]["data_file"]
        name = chance.choice(list(entry["partition"]))
        done = []
        if chance.random() < 0.4:
            kind = chance.choice(_TYPES)
            field = _partition_field(file.schema, name)
            field["type"] = chance.choice((["null", kind], kind))
            field.pop("default", None)
            done.append(f"type {kind}")
        if done or chance.random() < 0.8:
            value = chance.choice((*_VALUES, chance.randrange(-(2**31), 2**31)))
            entry["partition"][name] = value
            done.append(f"value {str(value)[:30]}")
        if chance.random() < 0.3:
            column = chance.choice((1, 2, 3, 4, 5, 999))
            raw = chance.choice(
                (b"", b"\0" * 4, b"\xff" * 8, b"\0" * 8, struct.pack("<d", float("nan")))
            )
            for bounds in ("lower_bounds", "upper_bounds"):
                entry[bounds] = [{"key": column, "value": raw}]
            done.append(f"bounds {raw!r} of {column}")
        if chance.random() < 0.1:
            entry["record_count"] = chance.choice((0, -1, 2**62))
            done.append(f"records {entry['record_count']}")
        return ", ".join(done) or "nothing"

    def _bounds(self, data: bytes, chance: random.Random) -> bytes:
        if chance.random() < 0.7:
            return data
        file = edits.opened(data)
        for row in file.records:
            for summary in row["partitions"] or ():
                raw = chance.choice((None, b"", b"\0" * 4, b"\xff" * 4, b"\x7f" * 8, b"x" * 99))
                summary.update({"lower_bound": raw, "upper_bound": raw, "contains_nan": True})
        return edits.written(file)

    def _is_old(self, record: Any) -> bool:
        """Whether an entry's partition ends before the limit, by Python's calendar and great numbers."""
        return any(
            _ends(self._name, value) <= _END for value in record["data_file"]["partition"].values()
        )

    def _judged(self, what: str, says_old: dict[str, bool]) -> str:
        before = set(self._live())
        line = ["expire-partitions", "db.t", "--older-than", _LIMIT, "--by", *self._by]
        result = self._lake("--json", *line)
        if result.exit_code not in {0, 3, 4, 6, 7}:
            raise WrongError(f"{what}: ended with {result.exit_code}: {result}")
        if result.exit_code in {3, 4, 7}:
            if self._current() != self._pointer:
                raise WrongError(f"{what}: failed and committed: {result}")
            return "bad input"
        json.loads(result.stdout)
        gone = before - set(self._live()) if self._current() != self._pointer else set()
        for path in gone:
            load = _OLD if _contains(path, _OLD) else _NEW
            if not says_old[load]:
                raise WrongError(f"{what}: {path} went: {result}")
        return "right"

    def _live(self) -> Iterator[str]:
        metadata = pyiceberg_table(self._lake.warehouse).metadata
        head = metadata.current_snapshot()
        try:
            entries = Reference().contents(metadata, head).entries
        except Exception:
            return
        yield from (entry.path for entry in entries)


def _written(data: bytes, record: Any) -> Any:
    """Return the entry as it is in the file, where a value may have another type; as it was if no one reads it."""
    try:
        return edits.opened(data).records[0]
    except Exception:
        return record


def _contains(path: str, day: str) -> bool:
    return str(pq.read_table(local(path), partitioning=None)["s"][0]) == day


def _named(rows: Any) -> list[Path]:
    return [Path(local(row["manifest_path"])) for row in rows]


def _day(manifest: Path) -> str:
    (record, *_) = edits.opened(manifest.read_bytes()).records
    return _OLD if _contains(record["data_file"]["file_path"], _OLD) else _NEW


def _partition_field(schema: Any, name: str) -> Any:
    outer = next(field for field in schema["fields"] if field["name"] == "data_file")["type"]
    inner = next(field for field in outer["fields"] if field["name"] == "partition")["type"]
    return next(field for field in inner["fields"] if field["name"] == name)


def _ends(name: str, value: Any) -> float:
    """Return the end of a partition in seconds since 1970, at its earliest."""
    never = float("inf")
    if isinstance(value, datetime):
        return (value.replace(tzinfo=UTC) - _EPOCH).total_seconds()
    if isinstance(value, date):
        days = (value - date(1970, 1, 1)).days
        # Avro's type is not the spec's: its number counts microseconds then.
        return days / 1_000_000 if name == "time" else days * 86400
    if isinstance(value, str):
        return _of_text(value, "%Y-%m-%d") if name in {"text"} else never
    if not isinstance(value, int) or isinstance(value, bool):
        return never
    match name:
        case "number":
            return _of_text(str(value), "%Y%m%d")
        case "time":
            return value / 1_000_000
        case "hour":
            return (value + 1) * 3600
        case "month":
            return value * 28 * 86400 + 86400
        case "year":
            return value * 365 * 86400
    return (value + 1) * 86400


def _of_text(text: str, form: str) -> float:
    try:
        return (datetime.strptime(text, form).replace(tzinfo=UTC) - _EPOCH).total_seconds()
    except ValueError:
        return float("inf")
