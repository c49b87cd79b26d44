"""Snapshots of a metadata file, read in pieces: their texts are compressed, and a summary is parsed when it is used.

Snapshots are most of the text of a large file, and PyIceberg's models take several times the memory of it. What is
checked and kept of a snapshot here is what the models would hold. Where they could read something else, or refuse it,
nothing is cut out, and they read the whole text. Their parser makes objects of the chosen members only.
"""

from __future__ import annotations

import codecs
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import pyarrow as pa
from pydantic_core import SchemaValidator, core_schema, from_json
from pyiceberg.table.snapshots import (
    INITIAL_SEQUENCE_NUMBER,
    Operation,
    Snapshot,
    SnapshotLogEntry,
    Summary,
)

from lake.core.base.clock import SystemIds
from lake.core.table.metadata.summaries import STORED

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_SPACE = rb"[ \t\n\r]*"
_BEGIN = rb'"%b"' + _SPACE + rb":" + _SPACE + rb"\[" + _SPACE + rb"(?=\{)"
_SNAPSHOTS, _LOG = (re.compile(_BEGIN % name) for name in (b"snapshots", b"snapshot-log"))
# What is between two elements. It may also be within a text or a deeper list: then what is before it is not a list.
_BETWEEN = re.compile(rb"(?<=\})" + _SPACE + rb"," + _SPACE + rb"(?=\{)")
_NEXT = re.compile(r"[ \t\n\r]*(?:,[ \t\n\r]*(?=\{)|(\]))")
# Elements are read together until they have this many bytes. To use one summary, all of its piece are parsed.
_PIECE = 64 * 1024
_DECODER = json.JSONDecoder()
_CODEC = pa.Codec("lz4_raw")

_TEXT = core_schema.str_schema(strict=True)
_INT = core_schema.int_schema(strict=True)
_INT_OR_NULL = core_schema.with_default_schema(core_schema.nullable_schema(_INT), default=None)
# The names and values of members by the name of the model's field.
_Members = Mapping[str, tuple[str, core_schema.CoreSchema]]


def _object(members: _Members) -> core_schema.CoreSchema:
    """Return the form of a JSON object that has only these members; those with a default may be missing."""
    fields = {
        field: core_schema.typed_dict_field(
            kind, validation_alias=name, required=kind["type"] != "default"
        )
        for field, (name, kind) in members.items()
    }
    return core_schema.typed_dict_schema(fields, extra_behavior="forbid")


def _object_with_others(members: _Members) -> core_schema.CoreSchema:
    """Return the form of one that may have others too; it takes longer to read."""
    fields = {
        field: core_schema.model_field(kind, validation_alias=name)
        for field, (name, kind) in members.items()
    }
    return core_schema.model_fields_schema(fields, extra_behavior="allow")


def _reader(item: core_schema.CoreSchema) -> Callable[[bytes], list[Any]]:
    """Return what parses a list; it raises ValueError for any other text."""
    return SchemaValidator(core_schema.list_schema(item)).validate_json


# The model cannot take a property with the name self.
_SUMMARY = core_schema.typed_dict_schema(
    {
        "operation": core_schema.typed_dict_field(
            core_schema.enum_schema(Operation, list(Operation), sub_type="str")
        ),
        "self": core_schema.typed_dict_field(core_schema.any_schema(), required=False),
    },
    extra_behavior="ignore",
)
_ENTRY: _Members = {
    "snapshot_id": ("snapshot-id", _INT),
    "timestamp_ms": ("timestamp-ms", _INT),
}
_SNAPSHOT: _Members = {
    "snapshot_id": ("snapshot-id", _INT),
    "parent_snapshot_id": ("parent-snapshot-id", _INT_OR_NULL),
    "sequence_number": (
        "sequence-number",
        core_schema.with_default_schema(
            core_schema.nullable_schema(_INT), default=INITIAL_SEQUENCE_NUMBER
        ),
    ),
    "timestamp_ms": ("timestamp-ms", _INT),
    "manifest_list": ("manifest-list", _TEXT),
    "summary": (
        "summary",
        core_schema.with_default_schema(core_schema.nullable_schema(_SUMMARY), default=None),
    ),
    "schema_id": ("schema-id", _INT_OR_NULL),
    "first_row_id": ("first-row-id", _INT_OR_NULL),
    "added_rows": ("added-rows", _INT_OR_NULL),
}
_FIELDS, _SUMMARY_FIELDS, _LOG_FIELDS = {*_SNAPSHOT}, {"operation"}, {*_ENTRY}
_read_usual, _read_entries = _reader(_object(_SNAPSHOT)), _reader(_object(_ENTRY))
_read_others = _reader(_object_with_others(_SNAPSHOT))
# The snapshot of the one entry in place of all of the log: a random number of 128 bits, which no log has.
_LOG_MARK = UUID(SystemIds().uuid()).int
# The models are frozen.
_set = object.__setattr__
_Model = TypeVar("_Model")


class _Piece:
    """Snapshots whose texts follow each other.

    Args:
        first: the index of the first one.
        end: the index after the last one.
        text: their JSON objects, with what is between them.
    """

    __slots__ = ("_lacked", "_some", "_summaries", "_texts", "end", "first", "text")

    def __init__(self, first: int, end: int, text: bytes) -> None:
        self.first, self.end, self.text = first, end, text
        self._summaries: list[dict[str, str]] | None = None
        self._some: tuple[frozenset[str], list[dict[str, str]]] = (frozenset(), [])
        self._texts: list[str] | None = None
        self._lacked: dict[bytes, bool] = {}

    def lacks(self, name: bytes) -> bool:
        """Whether certainly none has a member of a name in quotes: no text is it, with or without escapes."""
        found = self._lacked.get(name)
        if found is None:
            found = self._lacked[name] = name not in self.text and b"\\" not in self.text
        return found

    def properties(self, number: int) -> dict[str, str]:
        """Return what a snapshot's summary has besides the operation, by the snapshot's index."""
        if self._summaries is None:
            items = from_json(b"[%b]" % self.text, cache_strings="keys")
            self._summaries = [_texts(item.get("summary") or {}) for item in items]
        return self._summaries[number - self.first]

    def some(self, number: int, names: frozenset[str]) -> dict[str, str]:
        """Return at least those with some names, by the snapshot's index."""
        if self._some[0] != names:
            try:
                items = _reader_of(names)(b"[%b]" % self.text)
            except ValueError:
                return self.properties(number)
            self._some = names, [item.get("summary") or {} for item in items]
        return self._some[1][number - self.first]

    def alone(self, number: int) -> bytes:
        """Return the text of one snapshot, by the snapshot's index."""
        if self._texts is None:
            text = f"{self.text.decode()}]"
            self._texts = [text[begin:end] for begin, end, _ in _spans(text)]
        return self._texts[number - self.first].encode()


class SnapshotTexts:
    """The texts of snapshots in a metadata file."""

    __slots__ = ("_firsts", "_last", "_packed", "ids")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self._firsts: list[int] = []
        self._packed: list[tuple[bytes, int]] = []
        self._last = _Piece(0, 0, b"")

    def add(self, text: bytes, ids: Sequence[int]) -> None:
        """Add snapshots whose texts follow each other."""
        self._firsts.append(len(self.ids))
        self._packed.append((_CODEC.compress(text, asbytes=True), len(text)))
        self.ids += ids

    def run(self, numbers: Sequence[int | None], place: int) -> tuple[bytes, int]:
        """Return the texts of some snapshots, with commas between them, and of how many.

        Args:
            numbers: the indexes of snapshots; None for others.
            place: where in the numbers the first of them is, which is not None.
        """
        number = numbers[place] or 0
        piece = self._piece(number)
        together = range(number, piece.end)
        if number == piece.first and numbers[place : place + len(together)] == [*together]:
            return piece.text, len(together)
        return piece.alone(number), 1

    def get(self, number: int, name: str, default: Any) -> Any:
        """Return a property of a snapshot, by the snapshot's index: of most, most that are asked for are missing."""
        piece = self._piece(number)
        if piece.lacks(_quoted(name)):
            return default
        return piece.properties(number).get(name, default)

    def properties(self, number: int) -> dict[str, str]:
        """Return what a snapshot's summary has besides the operation, by the snapshot's index."""
        return self._piece(number).properties(number)

    def some(self, number: int, names: frozenset[str]) -> dict[str, str]:
        """Return at least those with some names, by the snapshot's index."""
        return self._piece(number).some(number, names)

    def _piece(self, number: int) -> _Piece:
        """Return the piece that a snapshot is in; most calls are for the one of the call before."""
        last = self._last
        if not last.first <= number < last.end:
            at = bisect_right(self._firsts, number) - 1
            packed, size = self._packed[at]
            first, *after = self._firsts[at : at + 2]
            text = _CODEC.decompress(packed, decompressed_size=size, asbytes=True)
            self._last = last = _Piece(first, after[0] if after else len(self.ids), text)
        return last


@lru_cache(256)
def _quoted(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()


@cache
def _reader_of(names: frozenset[str]) -> Callable[[bytes], list[Any]]:
    """Return what parses some properties of the summaries of snapshots, if these are texts."""
    member = core_schema.typed_dict_field(_TEXT, required=False)
    summary = core_schema.typed_dict_schema(dict.fromkeys(names, member), extra_behavior="ignore")
    item = core_schema.typed_dict_field(core_schema.nullable_schema(summary), required=False)
    return _reader(core_schema.typed_dict_schema({"summary": item}, extra_behavior="ignore"))


def _texts(summary: dict[str, Any]) -> dict[str, str]:
    """Return the properties of a summary as texts, as some writers have others."""
    summary.pop("operation", None)
    if {*map(type, summary.values())} <= {str}:
        return summary
    return {name: str(value) for name, value in summary.items()}


class StoredProperties(Mapping[str, str]):
    """What a summary has besides the operation; parsed when it is used."""

    __slots__ = ("_number", "_texts")

    def __init__(self, texts: SnapshotTexts, number: int) -> None:
        self._texts, self._number = texts, number

    def __getitem__(self, name: str) -> str:
        return self._texts.properties(self._number)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts.properties(self._number))

    def __len__(self) -> int:
        return len(self._texts.properties(self._number))

    def some(self, names: frozenset[str]) -> dict[str, str]:
        """Return at least those with some names, which the caller does not change."""
        return self._texts.some(self._number, names)

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property."""
        return self._texts.get(self._number, name, default)


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
    """A metadata file in parts.

    Args:
        around: its text with one snapshot in place of all, whose manifest list is the given mark, and one entry in
            place of those of the snapshot log.
        log: the entries of the snapshot log; None if they are in the text.
        snapshots: the snapshots.
        texts: their texts.
    """

    around: bytes
    log: list[SnapshotLogEntry] | None
    snapshots: list[Snapshot]
    texts: SnapshotTexts

    def is_around(self, metadata: TableMetadata, mark: str) -> bool:
        """Whether metadata read from the rest has what is in the places of the snapshots, and of the log."""
        return [item.manifest_list for item in metadata.snapshots] == [mark] and (
            self.log is None or [item.snapshot_id for item in metadata.snapshot_log] == [_LOG_MARK]
        )

    def members(self) -> dict[str, Any]:
        """Return the members of metadata that were cut out."""
        log = {} if self.log is None else {"snapshot_log": self.log}
        return {"snapshots": self.snapshots, **log}


class _OtherFormError(Exception):
    """A text that is left to PyIceberg's models."""


def cut(data: bytes, mark: str) -> Cut | None:
    """Cut the snapshots and their log out of a text that contains table metadata; None if the models must read them.

    What is cut out may be other lists of these names: only if `Cut.is_around` holds, they are those of the table.
    """
    found = _SNAPSHOTS.search(data)
    if found is None:
        return None
    texts, snapshots = SnapshotTexts(), list[Snapshot]()
    begin = end = found.end()
    try:
        for items, place, end in _pieces(data, begin, _read_snapshots):
            first = len(snapshots)
            snapshots += [_snapshot(fields, texts, at) for at, fields in enumerate(items, first)]
            texts.add(data[place:end], [snapshot.snapshot_id for snapshot in snapshots[first:]])
    except (_OtherFormError, ValueError, RecursionError):
        return None
    one = {"snapshot-id": 0, "timestamp-ms": 0, "manifest-list": mark}
    around = b"".join((data[:begin], json.dumps(one).encode(), data[end:]))
    return Cut(*_without_log(around), snapshots, texts)


def _without_log(around: bytes) -> tuple[bytes, list[SnapshotLogEntry] | None]:
    """Return a text with one entry in place of those of the snapshot log, and these; None if they are left in it."""
    found = _LOG.search(around)
    if found is None:
        return around, None
    entries: list[SnapshotLogEntry] = []
    begin = end = found.end()
    try:
        for items, _, stop in _pieces(around, begin, _read_entries):
            entries += [_made(SnapshotLogEntry, fields, _LOG_FIELDS) for fields in items]
            end = stop
    except (_OtherFormError, ValueError, RecursionError):
        return around, None
    one = {"snapshot-id": _LOG_MARK, "timestamp-ms": 0}
    return b"".join((around[:begin], json.dumps(one).encode(), around[end:])), entries


def _pieces(
    data: bytes, place: int, read: Callable[[bytes], list[Any]]
) -> Iterator[tuple[list[Any], int, int]]:
    """Yield the elements of a list of objects, some at a time, and where their text begins and ends.

    Args:
        data: a text that contains the list.
        place: where its first element begins.
        read: parses a list.

    Raises:
        ValueError: an element is not of the expected form.
    """
    following: int | None = place
    while following is not None:
        place = following
        found = _BETWEEN.search(data, place + _PIECE, place + 4 * _PIECE)
        items = None
        if found is not None:
            # What ends within an element is not a list.
            with suppress(ValueError):
                items = read(b"[%b]" % data[place : found.start()])
        if found is None or items is None:
            end, following = _walked(data, place)
            items = read(b"[%b]" % data[place:end])
        else:
            end, following = found.span()
        yield items, place, end


def _walked(data: bytes, place: int) -> tuple[int, int | None]:
    """Return where the text of some elements ends, each read alone, and where the next one begins; None after all."""
    size = _PIECE
    while True:
        is_rest = place + size >= len(data)
        text, _ = codecs.utf_8_decode(data[place : place + size], "strict", is_rest)
        spans = list(_spans(text))
        if spans:
            end, following = spans[-1][1:]
            after = None if following is None else place + len(text[:following].encode())
            return place + len(text[:end].encode()), after
        if is_rest:
            raise _OtherFormError
        size *= 2


def _spans(text: str) -> Iterator[tuple[int, int, int | None]]:
    """Yield where each element begins and ends, and where the next one begins, until one is not complete."""
    at: int | None = 0
    while at is not None:
        try:
            _, end = _DECODER.raw_decode(text, at)
        except ValueError:
            return
        found = _NEXT.match(text, end)
        if found is None:
            return
        following = None if found[1] else found.end()
        yield at, end, following
        at = following


def _read_snapshots(text: bytes) -> list[dict[str, Any]]:
    """Return the fields of snapshots; the summary has its operation only."""
    with suppress(ValueError):
        return _read_usual(text)
    items = _read_others(text)
    if not all(_is_unread(*member) for _, others, _ in items for member in others.items()):
        raise _OtherFormError
    return [fields for fields, _, _ in items]


def _is_unread(name: str, value: Any) -> bool:
    """Whether PyIceberg's models do not read a member; they know two names of each."""
    return name not in _FIELDS and type(value) not in (dict, list)


def _snapshot(fields: dict[str, Any], texts: SnapshotTexts, number: int) -> Snapshot:
    summary = fields["summary"]
    if summary is not None:
        if len(summary) != 1:
            raise _OtherFormError
        summary[STORED] = StoredProperties(texts, number)
        fields["summary"] = _made(StoredSummary, summary, _SUMMARY_FIELDS)
    return _made(Snapshot, fields, _FIELDS)


def _made(kind: type[_Model], fields: dict[str, Any], names: set[str]) -> _Model:
    """Return a model of checked values, as pydantic makes it, but with one set of names for all."""
    model = kind.__new__(kind)
    _set(model, "__dict__", fields)
    _set(model, "__pydantic_fields_set__", names)
    _set(model, "__pydantic_extra__", None)
    _set(model, "__pydantic_private__", None)
    return model
