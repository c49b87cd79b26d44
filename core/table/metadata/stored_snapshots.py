"""Snapshots of a metadata file, each read alone: its summary stays text until it is used.

Snapshots are most of the text of a large file, and PyIceberg's models take several times the memory of it. Here the
text is read in pieces, and what is checked and kept of a snapshot is what the models would hold. Where they could
read something else, or refuse it, nothing is cut out, and they read the whole text.
"""

from __future__ import annotations

import codecs
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from lake.core.table.metadata.summaries import STORED

_BEGIN = re.compile(rb'"snapshots"[ \t\n\r]*:[ \t\n\r]*\[[ \t\n\r]*(?=\{)')
_NEXT = re.compile(r"[ \t\n\r]*(?:,[ \t\n\r]*(?=\{)|(\]))")
# PyIceberg's parser refuses half of a pair, Python's does not.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_WINDOW = 1024 * 1024
_DECODER = json.JSONDecoder()

_KNOWN = frozenset(
    {
        *("snapshot-id", "parent-snapshot-id", "sequence-number", "timestamp-ms", "manifest-list"),
        *("summary", "schema-id", "first-row-id", "added-rows"),
    }
)
_FIELDS = {name.replace("-", "_") for name in _KNOWN}
_NUMBERS = {int, type(None)}
_TEXTS = {str}
_OPERATIONS = {operation.value: operation for operation in Operation}
_SUMMARY_FIELDS = {"operation"}
# The models are frozen.
_set = object.__setattr__
_Model = TypeVar("_Model")


class SnapshotTexts:
    """The texts of snapshots in the bytes of a metadata file.

    Args:
        data: the bytes, not compressed.
    """

    __slots__ = ("_data", "_last", "begins", "ends", "ids")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.begins, self.ends = array("q"), array("q")
        self.ids: list[int] = []
        self._last: tuple[int, dict[str, str]] = -1, {}

    def text(self, number: int) -> bytes:
        """Return a snapshot's JSON object, by the snapshot's index."""
        return self._data[self.begins[number] : self.ends[number]]

    def lacks(self, number: int, name: bytes) -> bool:
        """Whether a snapshot certainly has no member of a name in quotes: no text is it, with or without escapes."""
        place = self.begins[number], self.ends[number]
        return self._data.find(name, *place) < 0 and self._data.find(b"\\", *place) < 0

    def properties(self, number: int) -> dict[str, str]:
        """Return what a snapshot's summary has besides the operation, by the snapshot's index."""
        last, found = self._last
        if last != number:
            found = json.loads(self.text(number))["summary"]
            del found["operation"]
            self._last = number, found
        return found


class StoredProperties(Mapping[str, str]):
    """What a summary has besides the operation; parsed when it is used.

    Args:
        texts: the texts of the snapshots.
        number: the snapshot's index.
    """

    __slots__ = ("_number", "_texts")

    def __init__(self, texts: SnapshotTexts, number: int) -> None:
        self._texts, self._number = texts, number

    def __getitem__(self, name: str) -> str:
        return self._texts.properties(self._number)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts.properties(self._number))

    def __len__(self) -> int:
        return len(self._texts.properties(self._number))

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property: of most snapshots, most of those that are asked for are missing."""
        if self._texts.lacks(self._number, _quoted(name)):
            return default
        return self._texts.properties(self._number).get(name, default)


@lru_cache(256)
def _quoted(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()


class StoredSummary(Summary):
    """A summary whose properties are texts that are parsed when they are used."""

    @property
    def stored(self) -> StoredProperties:
        """The properties."""
        found: StoredProperties = vars(self)[STORED]
        return found

    @property
    def _additional_properties(self) -> Mapping[str, str]:  # type: ignore[override]
        return self.stored

    @property
    def additional_properties(self) -> dict[str, str]:
        """All properties as a dictionary, which PyArrow needs: for PyIceberg and its users."""
        return dict(self.stored)

    def __bool__(self) -> bool:
        return True


class Cut(NamedTuple):
    """A metadata file in two parts.

    Args:
        around: its text with one snapshot in place of all, whose manifest list is the given mark.
        snapshots: the snapshots.
        texts: their texts.
    """

    around: bytes
    snapshots: list[Snapshot]
    texts: SnapshotTexts


class _OtherFormError(Exception):
    """A text that is left to PyIceberg's models."""


def cut(data: bytes, mark: str) -> Cut | None:
    """Cut the snapshots out of a text that contains table metadata; None if PyIceberg's models must read them.

    What is cut out may be another list of this name: only if metadata read from the rest has the mark as its
    snapshot, the snapshots are those of the table.
    """
    found = _BEGIN.search(data)
    if found is None:
        return None
    texts = SnapshotTexts(data)
    try:
        snapshots, end = _read(data, found.end(), texts)
    except (_OtherFormError, ValueError, KeyError, RecursionError):
        return None
    one = {"snapshot-id": 0, "timestamp-ms": 0, "manifest-list": mark}
    around = b"".join((data[: found.end()], json.dumps(one).encode(), data[end:]))
    return Cut(around, snapshots, texts)


def _read(data: bytes, place: int, texts: SnapshotTexts) -> tuple[list[Snapshot], int]:
    """Return the snapshots of a list whose first one begins at a place, and the place of the list's bracket."""
    snapshots: list[Snapshot] = []
    size = _WINDOW
    while True:
        is_rest = place + size >= len(data)
        text, _ = codecs.utf_8_decode(data[place : place + size], "strict", is_rest)
        if _SURROGATE.search(text):
            raise _OtherFormError
        is_ascii, at = text.isascii(), 0
        while True:
            try:
                item, end = _DECODER.raw_decode(text, at)
            except ValueError:
                break
            following = _NEXT.match(text, end)
            if following is None:
                break
            snapshots.append(_snapshot(item, texts, len(snapshots)))
            texts.ids.append(item["snapshot-id"])
            texts.begins.append(place)
            place += end - at if is_ascii else len(text[at:end].encode())
            texts.ends.append(place)
            if following[1]:
                return snapshots, place
            place += following.end() - end
            at = following.end()
        # A window ends within a snapshot, which is read again with what follows it.
        if not at and is_rest:
            raise _OtherFormError
        size = _WINDOW if at else 2 * size


def _snapshot(item: Any, texts: SnapshotTexts, number: int) -> Snapshot:
    snapshot_id, timestamp_ms = item["snapshot-id"], item["timestamp-ms"]
    fields = {
        "snapshot_id": snapshot_id,
        "parent_snapshot_id": item.get("parent-snapshot-id"),
        "sequence_number": item.get("sequence-number", 0),
        "timestamp_ms": timestamp_ms,
        "manifest_list": None,
        "summary": None,
        "schema_id": item.get("schema-id"),
        "first_row_id": item.get("first-row-id"),
        "added_rows": item.get("added-rows"),
    }
    if not {*map(type, fields.values())} <= _NUMBERS or snapshot_id is None or timestamp_ms is None:
        raise _OtherFormError
    fields["manifest_list"] = manifest_list = item["manifest-list"]
    if type(manifest_list) is not str:
        raise _OtherFormError
    if not item.keys() <= _KNOWN and not all(map(_is_unread, item.items())):
        raise _OtherFormError
    summary = item.get("summary")
    if summary is not None:
        fields["summary"] = _summary(summary, texts, number)
    return _made(Snapshot, fields, _FIELDS)


def _is_unread(member: tuple[str, Any]) -> bool:
    """Whether PyIceberg's models do not read a member, or read it by its usual name; they know other names too."""
    name, value = member
    return name in _KNOWN or (name not in _FIELDS and type(value) not in (dict, list))


def _summary(given: Any, texts: SnapshotTexts, number: int) -> StoredSummary:
    # Values of another type become text later, and the model cannot take a property with this name.
    if type(given) is not dict or {*map(type, given.values())} != _TEXTS or "self" in given:
        raise _OtherFormError
    operation = _OPERATIONS[given["operation"]]
    return _made(
        StoredSummary,
        {"operation": operation, STORED: StoredProperties(texts, number)},
        _SUMMARY_FIELDS,
    )


def _made(kind: type[_Model], fields: dict[str, Any], names: set[str]) -> _Model:
    """Return a model of checked values, as pydantic makes it, but with one set of names for all."""
    model = kind.__new__(kind)
    _set(model, "__dict__", fields)
    _set(model, "__pydantic_fields_set__", names)
    _set(model, "__pydantic_extra__", None)
    _set(model, "__pydantic_private__", None)
    return model
