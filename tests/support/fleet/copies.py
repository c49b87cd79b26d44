"""Copy a table to another folder, as another table: paths in its metadata and in its delete files are changed."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.tables.damage import read_avro, write_avro

_PATH = 2147483546
_PUFFIN_MAGIC = b"PFA1"
_PUFFIN_TAIL = struct.Struct("<i4s4s")


def linked_copy(source: Path, target: Path) -> None:
    """Copy a folder; Parquet files, which are never changed in their place, become links.

    The checksums that Hadoop keeps beside files are left out: they do not fit to files that are changed.
    """
    ignored = shutil.ignore_patterns(".*.crc")
    shutil.copytree(source, target, copy_function=_link_or_copy, ignore=ignored)


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def copy_table(metadata_file: Path, target: Path) -> Path:
    """Copy the table of a metadata file to a new folder; return its copied metadata file.

    The copy has a UUID of its own, and shares no path with the table. Its files are as old as those of the table.
    """
    source = metadata_file.parent.parent
    linked_copy(source, target)
    place = _Place(str(source), str(target))
    metadata = target / "metadata"
    lists, manifests = [], []
    for path in metadata.glob("*.avro"):
        _, schema, _ = read_avro(path)
        names = {field["name"] for field in schema["fields"]}
        (lists if "manifest_path" in names else manifests).append(path)
    for path in manifests:
        _edited(path, place, _entry_of(place))
    for path in lists:
        _edited(path, place, _with_length)
    own = str(uuid.uuid4())
    for path in metadata.glob("*.metadata.json"):
        with _same_time(path):
            document = place.changed(json.loads(path.read_text()))
            path.write_text(json.dumps({**document, "table-uuid": own}))
    return metadata / metadata_file.name


class _Place:
    """Replaces one folder by another one in values of any kind."""

    def __init__(self, source: str, target: str) -> None:
        self.target = target
        self._text = re.compile(re.escape(source) + r"(?=[/\"]|$)")
        self._bytes = re.compile(re.escape(source).encode() + rb"(?=[/\"]|$)")

    def changed(self, value: Any) -> Any:
        """Return a value, a list or a dictionary with the other folder."""
        if isinstance(value, str):
            return self._text.sub(lambda _: self.target, value)
        if isinstance(value, bytes):
            return self._bytes.sub(lambda _: self.target.encode(), value)
        if isinstance(value, list):
            return [self.changed(item) for item in value]
        if isinstance(value, dict):
            return {key: self.changed(item) for key, item in value.items()}
        return value


class _same_time:  # noqa: N801 - a context manager
    """Let a file keep its time while it is changed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        found = self._path.stat()
        self._times = (found.st_atime, found.st_mtime)

    def __exit__(self, *_: object) -> None:
        os.utime(self._path, self._times)


def _edited(path: Path, place: _Place, adjust: Callable[[dict[str, Any]], None]) -> None:
    with _same_time(path):
        rows, schema, header = read_avro(path)
        rows = [place.changed(row) for row in rows]
        for row in rows:
            adjust(row)
        write_avro(path, rows, schema, header)


def _local(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def _with_length(row: dict[str, Any]) -> None:
    path = _local(row["manifest_path"])
    if path.exists():
        row["manifest_length"] = path.stat().st_size


def _entry_of(place: _Place) -> Callable[[dict[str, Any]], None]:
    done: set[Path] = set()

    def adjust(row: dict[str, Any]) -> None:
        file = row["data_file"]
        path = _local(file["file_path"])
        if file.get("content", 0) != 1 or not path.exists():
            return
        if path not in done:
            done.add(path)
            with _same_time(path):
                _change_deletes(path, place)
        file["file_size_in_bytes"] = path.stat().st_size
        for bounds in ("lower_bounds", "upper_bounds"):
            # A bound that was cut does not contain the folder, and cannot be changed.
            file[bounds] = [
                pair
                for pair in file.get(bounds) or []
                if pair["key"] != _PATH or place.target.encode() in pair["value"]
            ] or None

    return adjust


def _change_deletes(path: Path, place: _Place) -> None:
    """Change the paths in a file of positions, Parquet or Puffin."""
    # Flink names these as it names data files.
    if path.read_bytes()[:4] == _PUFFIN_MAGIC:
        _change_puffin(path, place)
        return
    rows = pq.read_table(path)
    at = rows.schema.get_field_index("file_path")
    paths = pa.array([place.changed(text) for text in rows["file_path"].to_pylist()], pa.string())
    path.unlink()
    pq.write_table(rows.set_column(at, rows.schema.field(at), paths), path)


def _change_puffin(path: Path, place: _Place) -> None:
    data = path.read_bytes()
    size, flags, magic = _PUFFIN_TAIL.unpack(data[-_PUFFIN_TAIL.size :])
    assert flags == b"\0\0\0\0", "the footer is compressed"
    begin = len(data) - _PUFFIN_TAIL.size - size
    payload = json.dumps(place.changed(json.loads(data[begin : begin + size]))).encode()
    path.unlink()
    path.write_bytes(data[:begin] + payload + _PUFFIN_TAIL.pack(len(payload), flags, magic))
