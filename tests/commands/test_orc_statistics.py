"""ORC files whose footers lack statistics, as those of Hive 0.11 and 0.12."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import orc
from support.cli.command_line import CommandLine


def _fields(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """Return the number, the encoded content and the whole encoding of each field of a message."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value, at

    found, at = [], 0
    while at < len(data):
        start = at
        key, at = number(at)
        begin = at
        if key & 7 == 2:
            size, begin = number(at)
            at = begin + size
        elif key & 7 == 0:
            _, at = number(at)
        else:
            at += 8 if key & 7 == 1 else 4
        found.append((key >> 3, data[begin:at], data[start:at]))
    return found


def _varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def without_statistics_of_times(data: bytes) -> bytes:
    """Return an ORC file without compression, without the ranges of its times, as Hive 0.11 and 0.12 write it."""
    postscript = data[-1 - data[-1] : -1]
    (size,) = (whole[1:] for kind, _, whole in _fields(postscript) if kind == 1)
    length = sum((byte & 127) << 7 * index for index, byte in enumerate(size))
    end = len(data) - 1 - data[-1]
    footer = b""
    for kind, content, whole in _fields(data[end - length : end]):
        if kind == 7:
            kept = b"".join(inner for number, _, inner in _fields(content) if number != 9)
            footer += b"\x3a" + _varint(len(kept)) + kept
        else:
            footer += whole
    shorter = b"".join(
        b"\x08" + _varint(len(footer)) if kind == 1 else whole
        for kind, _, whole in _fields(postscript)
    )
    return data[: end - length] + footer + shorter + bytes([len(shorter)])


def test_an_orc_file_without_a_range_of_its_times_is_refused_for_that_reason(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "old.orc"
    rows = pa.table({"id": [1, 2], "ts": pa.array([0, 10**9], pa.timestamp("ns"))})
    orc.write_table(rows, path, compression="uncompressed")
    lake.ok("ingest", "db.t", path, "--create")
    path.write_bytes(without_statistics_of_times(path.read_bytes()))

    found = lake("ingest", "db.t", path)

    assert found.exit_code == 3, found
    assert "has times without statistics of their range" in " ".join(found.stderr.split())
