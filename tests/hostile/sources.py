"""Files to load that are not of their format, or expand to any size."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from hostile.commands import Commands
from hostile.guard import WrongError
from hostile.tables import broken_table

_GIB = 2**30


def _packed(piece: bytes, times: int) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as file:
        for _ in range(times):
            file.write(piece)
    return out.getvalue()


def _zstd(piece: bytes, times: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(times):
            stream.write(piece)
    return sink.getvalue().to_pybytes()


def _arrow(rows: int) -> bytes:
    sink = io.BytesIO()
    batch = pa.record_batch({"id": pa.array(range(rows), pa.int64())})
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write(batch)
    return sink.getvalue()


_MIB = b"x" * 2**20
_ROW = b"1,even,5\n" * 10
_MAKERS: dict[str, Callable[[], bytes]] = {
    "empty.csv": lambda: b"",
    "only a header.csv": lambda: b"id,part,value\n",
    "a line without end.csv": lambda: b"id,part,value\n1,even," + b"9" * 2**26,
    "a quote without end.csv": lambda: b'id,part,value\n1,"even,' + _ROW * 100_000,
    "a line of 1 GiB.csv.gz": lambda: _packed(_MIB, 1024),
    "a line of 1 GiB.json.gz": lambda: _packed(_MIB, 1024),
    "a line of 1 GiB.csv.zst": lambda: _zstd(_MIB, 1024),
    "a line of 1 GiB.json.zst": lambda: _zstd(_MIB, 1024),
    "a text of 1 GiB.json.gz": lambda: _packed(b'{"id":1,"part":"', 1) + _packed(_MIB, 1024),
    "spaces of 1 GiB.json.gz": lambda: _packed(b" " * 2**20, 1024),
    "lines of 1 GiB.csv.gz": lambda: _packed(b"\n" * 2**20, 1024),
    "not packed.csv.gz": lambda: b"id,part,value\n1,even,2\n",
    "cut.csv.gz": lambda: gzip.compress(b"id,part,value\n" + _ROW * 1000)[:-30],
    "not packed.json.zst": lambda: b"{}",
    "not packed.csv.bz2": lambda: b"id\n1\n",
    "cut.csv.bz2": lambda: bz2.compress(b"id,part,value\n" + _ROW * 1000)[:-9],
    "NUL.csv": lambda: b"id,part,value\n1,ev\0en,5\n",
    "NULs.csv": lambda: bytes(10_000),
    "no UTF-8.csv": lambda: b"id,part,value\n1,\xff\xfe,5\n",
    "UTF-16.csv": lambda: "id,part,value\n1,even,5\n".encode("utf-16"),
    "no UTF-8.json": lambda: b'{"id":1,"part":"\xff\xfe"}\n',
    "lone surrogates.json": lambda: b'{"id":1,"part":"\\ud800"}\n',
    "a name twice.csv": lambda: b"id,id,part\n1,2,even\n",
    "a name twice.json": lambda: b'{"id":1,"id":2}\n',
    "names by the thousand.csv": (
        ",".join(f"c{n}" for n in range(10**5)) + "\n" + ",".join("1" * 10**5) + "\n"
    ).encode,
    "names by the thousand.json": lambda: json.dumps({f"c{n}": n for n in range(10**5)}).encode(),
    "too many cells.csv": lambda: b"id,part,value\n1,even,5,6,7\n",
    "too few cells.csv": lambda: b"id,part,value\n1\n",
    "too large.csv": lambda: b"id,part,value\n99999999999999999999,even,5\n",
    "too large.json": lambda: b'{"id":99999999999999999999,"part":"even"}\n',
    "digits.csv": lambda: b"id,part,value\n" + b"9" * 100_000 + b",even,5\n",
    "digits.json": lambda: b'{"id":' + b"9" * 100_000 + b"}\n",
    "1e400.json": lambda: b'{"id":1e400}\n',
    "NaN.json": lambda: b'{"id":NaN}\n',
    "a number as text.json": lambda: b'{"id":"x"}\n',
    "deep.json": lambda: b'{"id":' + b"[" * 10**5 + b"]" * 10**5 + b"}\n",
    "deep objects.json": lambda: b'{"id":' * 10**5 + b"1" + b"}" * 10**5 + b"\n",
    "deep and open.json": lambda: b'{"a":[' * 10**5,
    "a list.json": lambda: b"[1,2,3]\n",
    "null.json": lambda: b"null\n",
    "cut.json": lambda: b'{"id":1,"part":"ev',
    "two on a line.json": lambda: b'{"id":1}{"id":2}\n',
    "no arrow.arrow": lambda: b"ARROW1\0\0" + bytes(100),
    "cut.arrow": lambda: _arrow(1000)[:-20],
    "lengths.arrow": lambda: b"\xff\xff\xff\xff\xff\xff\xff\x7f" + _arrow(10),
    "flipped.arrow": lambda: bytes(
        byte ^ (index % 97 == 0) for index, byte in enumerate(_arrow(1000))
    ),
    "no parquet.parquet": lambda: b"PAR1" + bytes(100) + b"PAR1",
    "a csv.parquet": lambda: b"id,part,value\n1,even,5\n",
    "java.csv": lambda: b"\xac\xed\x00\x05sr\x00",
    "pickle.arrow": lambda: b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "no orc.orc": lambda: b"ORC" + bytes(100),
    "no avro.avro": lambda: b"Obj\x01" + b"\xff" * 100,
}


class Sources:
    """Invalid sources: loaded into a table, and read for a new one."""

    def __init__(self, folder: Path) -> None:
        self._table = broken_table(folder, "lake-v2")
        self._commands = Commands(self._table)
        self._folder = folder / "sources"
        self._folder.mkdir()
        self.count = len(_MAKERS)

    def attempt(self, number: int) -> str:
        name = list(_MAKERS)[number]
        path = self._folder / name
        path.write_bytes(_MAKERS[name]())
        ends = []
        try:
            for line in (
                ["ingest", self._table.name, path],
                ["ingest", self._table.name, path, "--upsert", "--key", "id"],
                ["ingest", "db.loaded", path, "--create"],
            ):
                result = self._commands.line("--json", *line)
                if result.exit_code not in {0, 2, 3, 7}:
                    raise WrongError(f"{name}: {line} ended with {result}")
                named = line[1] == self._table.name
                if named and result.exit_code == 7 and name.split(".")[0] not in result.stdout:
                    raise WrongError(f"{name} is not named: {result.stdout}")
                if result.exit_code and line[1] == self._table.name:
                    come, gone = self._table.changes()
                    if come or gone or self._table.has_moved:
                        raise WrongError(f"{name} left {come or gone}")
                ends.append("right" if result.exit_code == 0 else "bad input")
                self._table.restore()
        finally:
            path.unlink()
            self._table.forget("db.loaded")
            self._table.restore()
        return " / ".join(ends)
