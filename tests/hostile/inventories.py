"""Inventories of a store that are damaged, contradict the store, or name other files than the table's."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq

from hostile.commands import CLEAN, Commands
from hostile.guard import WrongError
from hostile.places import odd_names, traps
from hostile.tables import broken_table

_PAST, _MIB = datetime(2020, 1, 1, tzinfo=UTC), 2**20
_US = pa.timestamp("us", "UTC")
_ORPHANS = ("data/lost.parquet", "data/part=even/lost.parquet", "metadata/lost-m0.avro")


class Inventories:
    """`lake clean --inventory … --delete` deletes only what a listing would delete, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._commands = Commands(self._table)
        self._canary = folder / "canary"
        self._folder = folder / "inventories"
        self._folder.mkdir()
        self._plant()
        self._live = sorted(self._table.truth.needed)
        self._paths = [str(path) for path in sorted(self._table.root.rglob("*")) if path.is_file()]
        self._ended(self._commands.line("clean", self._table.name, *CLEAN, "--delete"), "a listing")
        self._deletable = self._gone()
        self._table.restore()
        self._made = dict(self._inventories())
        self.count = len(self._made)

    def _plant(self) -> None:
        for name in _ORPHANS:
            path = self._table.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"lost")

    def _gone(self) -> set[Path]:
        planted = {self._table.root / name for name in _ORPHANS}
        lost = {path for path in planted if not path.exists()}
        return self._table.changes()[1] | lost

    def attempt(self, number: int) -> str:
        what, (name, make) = list(self._made.items())[number]
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._plant()
        path.write_bytes(make())
        arguments = ["clean", self._table.name, *CLEAN, "--inventory", str(path), "--delete"]
        try:
            with traps(self._table.root, self._canary):
                result = self._commands.line("--json", *arguments)
                touched = self._table.canary_changed()
            gone = self._gone()
            if touched or gone - self._deletable or gone & self._table.truth.needed:
                raise WrongError(f"{what}: {gone - self._deletable} went: {result}")
            end = self._ended(result, what)
            if end == "typed" and gone:
                raise WrongError(f"{what}: {gone} went: {result}")
            return end
        finally:
            path.unlink()
            self._table.restore()

    def _ended(self, result: Any, what: str) -> str:
        if result.exit_code not in {0, 3, 7}:
            raise WrongError(f"{what}: ended with {result.exit_code}: {result}")
        return "typed" if result.exit_code else "right"

    def _rows(self, paths: Any = None, size: Any = 4, time: Any = _PAST) -> dict[str, Any]:
        paths = self._paths if paths is None else paths
        return {
            "path": paths,
            "size": size if isinstance(size, pa.Array) else [size] * len(paths),
            "last_modified": time if isinstance(time, pa.Array) else [time] * len(paths),
        }

    def _inventories(self) -> Iterator[tuple[str, tuple[str, Callable[[], bytes]]]]:
        for what, columns in self._tables():
            yield f"Parquet, {what}", ("i.parquet", lambda columns=columns: _parquet(columns))
        for what, columns in self._tables():
            if "ORC cannot" not in what:
                yield f"ORC, {what}", ("i.orc", lambda columns=columns: _orc(columns))
        for what, text in self._texts():
            yield f"CSV, {what}", ("i.csv", lambda text=text: text)
            yield f"CSV, {what}, packed", ("i.csv.gz", lambda text=text: gzip.compress(text, 1))
        whole = _parquet(pa.table(self._rows()))
        for what, data in {
            "nothing": b"",
            "zeros": bytes(5000),
            "cut": whole[:-30],
            "cut in the middle": whole[: len(whole) // 2],
            "only a footer": whole[-400:],
            "flipped": bytes(byte ^ (at % 97 == 0) for at, byte in enumerate(whole)),
        }.items():
            for ending in ("parquet", "orc", "csv.gz"):
                yield f"{ending}, {what}", (f"i.{ending}", lambda data=data: data)
        yield "a line of 1 GiB", ("i.csv.gz", lambda: _packed(b"x" * _MIB, 1024))
        yield "lines of 1 GiB", ("i.csv.gz", lambda: _packed(b"\n" * _MIB, 1024))
        yield "cells of 1 GiB", ("i.csv.gz", lambda: _packed(b"," * _MIB, 1024))
        yield (
            "a path of 64 MiB",
            ("i.parquet", lambda: _parquet(pa.table(self._rows(["/x" * 2**25])))),
        )
        yield (
            "a long path 70,000 times",
            ("i.parquet", _long_paths),
        )
        for what, document in self._manifests():
            yield f"a manifest, {what}", ("a/manifest.json", lambda document=document: document)

    def _tables(self) -> Iterator[tuple[str, pa.Table]]:
        rows, live, count = self._rows(), [str(path) for path in self._live], len(self._paths)
        yield "as it should be", pa.table(rows)
        for what, odd in odd_names(self._table.root, self._canary).items():
            try:
                odd.encode()
            except UnicodeEncodeError:
                continue
            yield what, pa.table(self._rows([odd, *self._paths]))
        for what, spell in {
            "with a scheme": lambda path: f"file://{path}",
            "with one slash": lambda path: f"file:{path}",
            "doubled slashes": lambda path: path.replace("/", "//"),
            "a dot": lambda path: path.replace("/data/", "/data/./").replace("/meta", "/./meta"),
            "dots": lambda path: path.replace("/data/", "/data/x/../"),
            "packed": lambda path: path.replace("=", "%3D").replace("data", "d%61ta"),
            "capitals": str.upper,
            "a slash at the end": lambda path: f"{path}/",
            "a space at the end": lambda path: f"{path} ",
            "NUL at the end": lambda path: f"{path}\0",
            "by a link": lambda path: path.replace("/data/", "/data/link/"),
            "another bucket": lambda path: f"s3://bucket{path}",
            "a host": lambda path: f"file://localhost{path}",
        }.items():
            yield f"live files, {what}", pa.table(self._rows([*map(spell, live), *self._paths]))
        yield "every file twice", pa.table(self._rows(self._paths * 2))
        yield "no rows", pa.table(self._rows([]), schema=pa.schema(_SCHEMA))
        yield (
            "only the orphans",
            pa.table(self._rows([str(self._table.root / name) for name in _ORPHANS])),
        )
        lacking = pa.table(rows)
        yield "no sizes", lacking.drop_columns(["size"])
        yield "no columns (ORC cannot)", lacking.select([])
        yield (
            "columns twice",
            pa.Table.from_arrays(
                [*lacking.columns, *lacking.columns], ["path", "size", "last_modified"] * 2
            ),
        )
        yield (
            "columns in two spellings",
            pa.Table.from_arrays(
                [*lacking.columns, pa.array(live * count)[:count]],
                ["path", "size", "last_modified", "PATH "],
            ),
        )
        for what, size in {
            "negative": pa.array([-1] * count),
            "huge": pa.array([2**63 - 1] * count),
            "unsigned (ORC cannot)": pa.array([2**64 - 1] * count, pa.uint64()),
            "text": pa.array(["x"] * count),
            "texts of digits": pa.array(["4"] * count),
            "missing": pa.array([None] * count, pa.int64()),
            "null (ORC cannot)": pa.nulls(count),
            "NaN": pa.array([float("nan")] * count),
            "1e300": pa.array([1e300] * count),
            "decimal": pa.array([Decimal("4.5")] * count, pa.decimal128(10, 1)),
            "a list": pa.array([[4]] * count),
            "a struct": pa.array([{"size": 4}] * count),
            "bool": pa.array([True] * count),
        }.items():
            yield f"sizes, {what}", pa.table(self._rows(size=size))
        day = pa.array([date(2020, 1, 1)] * count, pa.date32())
        for what, time in {
            "future": pa.array([datetime(9999, 1, 1)] * count, pa.timestamp("us", "UTC")),
            "the last (ORC cannot)": pa.array([2**63 - 1] * count, pa.timestamp("ms", "UTC")),
            "the first (ORC cannot)": pa.array([-(2**63)] * count, pa.timestamp("ms", "UTC")),
            "milliseconds": pa.array([2**50] * count, pa.timestamp("ms", "UTC")),
            "nanoseconds": pa.array([2**63 - 1] * count, pa.timestamp("ns", "UTC")),
            "without a zone": pa.array([0] * count, pa.timestamp("us")),
            "an odd zone (ORC cannot)": pa.array([0] * count, pa.timestamp("us", "Mars/Base")),
            "missing": pa.array([None] * count, _US),
            "numbers": pa.array([1_600_000_000] * count),
            "text": pa.array(["yesterday"] * count),
            "texts": pa.array(["2020-01-01T00:00:00Z"] * count),
            "texts of no day": pa.array(["2020-02-31T00:00:00Z"] * count),
            "a date": day,
            "a list": pa.array([[_PAST]] * count, pa.list_(_US)),
            "null (ORC cannot)": pa.nulls(count),
        }.items():
            yield f"times, {what}", pa.table(self._rows(time=time))
        for what, paths in {
            "numbers": pa.array(range(count)),
            "missing": pa.array([None, *self._paths[1:]]),
            "bytes": pa.array([path.encode() for path in self._paths], pa.binary()),
            "no UTF-8": pa.array([b"\xff" + path.encode() for path in self._paths], pa.binary()),
            "a list": pa.array([[path] for path in self._paths]),
            "a struct": pa.array([{"path": path} for path in self._paths]),
            "large texts (ORC cannot)": pa.array(self._paths, pa.large_string()),
            "a dictionary (ORC cannot)": pa.array(self._paths).dictionary_encode(),
            "null (ORC cannot)": pa.nulls(count),
        }.items():
            yield f"paths, {what}", pa.table({**rows, "path": paths})

    def _texts(self) -> Iterator[tuple[str, bytes]]:
        head, time = "path,size,last_modified", "2020-01-01T00:00:00Z"
        lines = [f"{path},4,{time}" for path in self._paths]
        whole = "\n".join([head, *lines, ""])
        yield "as it should be", whole.encode()
        yield "only a header", f"{head}\n".encode()
        yield "no header", "\n".join(lines).encode()
        yield "UTF-16", whole.encode("utf-16")
        yield "a byte order mark", whole.encode("utf-8-sig")
        yield "no UTF-8", whole.encode() + b"\xff\xfe,4,2020-01-01T00:00:00Z\n"
        yield "NUL", whole.encode() + f"{self._live[0]}\0.x,4,{time}\n".encode()
        yield "a quote without end", whole.encode() + b'"' + whole.encode()
        yield "a newline in a path", whole.encode() + f'"{self._live[0]}\nx",4,{time}\n'.encode()
        yield "too many cells", whole.encode() + f"{self._live[0]},4,{time},5,6\n".encode()
        yield "too few cells", whole.encode() + f"{self._live[0]}\n".encode()
        yield "a header twice", whole.replace(head, f"{head},path").encode()
        for what, cells in {
            "size 1e3": f"1e3,{time}",
            "size of many digits": f"{'9' * 5000},{time}",
            "size missing": f",{time}",
            "negative size": f"-1,{time}",
            "time of many digits": f"4,{'9' * 5000}",
            "a year to come": "4,9999-12-31T23:59:59Z",
            "a year beyond": "4,+99999-01-01T00:00:00Z",
            "seconds": "4,1600000000",
            "time missing": "4,",
            "another zone": "4,2020-01-01T00:00:00+99:99",
        }.items():
            yield what, "\n".join([head, *(f"{path},{cells}" for path in self._paths)]).encode()

    def _manifests(self) -> Iterator[tuple[str, bytes]]:
        files = [{"key": "x/data/i.parquet", "size": 1, "MD5checksum": "x"}]
        good: dict[str, Any] = {
            "fileFormat": "Parquet",
            "fileSchema": "Bucket, Key, Size, LastModifiedDate",
            "files": files,
        }
        yield "nothing", b""
        yield "null", b"null"
        yield "a list", b"[1]"
        yield "deep", b"[" * 10**5
        yield "deep objects", b'{"files":' * 10**5
        yield "spaces", json.dumps(good).encode() + b" " * 2**27
        yield "digits", b'{"files":' + b"9" * 10**5 + b"}"
        yield "a missing file", json.dumps(good).encode()
        for what, change in {
            "no files": {"files": []},
            "null files": {"files": None},
            "files that are texts": {"files": ["x.parquet"]},
            "a key of a number": {"files": [{"key": 5}]},
            "dots": {"files": [{"key": "../../../etc/passwd.csv"}]},
            "only dots": {"files": [{"key": ".."}]},
            "NUL": {"files": [{"key": "a\0b.csv"}]},
            "an absolute key": {"files": [{"key": f"{self._canary}/a.parquet"}]},
            "a key of 5000 letters": {"files": [{"key": "x" * 5000 + ".csv"}]},
            "a key with another host": {"files": [{"key": "gs9://x/y.csv"}]},
            "another format": {"fileFormat": "x", "files": [{"key": "y.xml"}]},
            "no schema": {"fileSchema": None},
            "columns twice": {"fileFormat": "CSV", "fileSchema": "Key,Key", "files": files},
            "a million files": {"files": [{"key": f"{n}.csv"} for n in range(10**6)]},
        }.items():
            yield what, json.dumps({**good, **change}).encode()


_SCHEMA = {"path": pa.string(), "size": pa.int64(), "last_modified": _US}


def _long_paths() -> bytes:
    """Return a small file of 70,000 paths that have 32 KiB each."""
    sink = io.BytesIO()
    rows = {"path": ["/x" * 2**14] * 1000, "size": [4] * 1000, "last_modified": [_PAST] * 1000}
    table = pa.table(rows)
    with pq.ParquetWriter(sink, table.schema) as writer:
        for _ in range(70):
            writer.write_table(table)
    return sink.getvalue()


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False)
    return sink.getvalue()


def _orc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pyarrow.orc.write_table(table, sink)
    return sink.getvalue()


def _packed(piece: bytes, times: int) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as file:
        for _ in range(times):
            file.write(piece)
    return out.getvalue()
