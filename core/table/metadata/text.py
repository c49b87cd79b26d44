"""Table metadata as text: members that lake does not know, or did not change, are written as they were read.

PyIceberg's models drop unknown members. So metadata keeps its source text, and the text written after a commit
copies from it: complete elements that are immutable (snapshots, schemas, specs, sort orders,
statistics), and the unknown members of all others. Elements are matched by their identities. Numbers keep
their digits.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyiceberg.table.update import AddSchemaUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.types import IcebergType, NestedField
from pyiceberg.utils.config import Config

from lake.core.base.clock import SystemIds
from lake.core.base.errors import RefusedError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.metadata.stored_snapshots import SnapshotTexts

Plain = dict[str, Any]

# The attribute for the source. PyIceberg's models do not write attributes with this prefix.
_SOURCE = "_lake_source"
# Members that PyIceberg's models know, at each level; one that is missing from their output was removed.
_TABLE = frozenset(
    {
        *("format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms"),
        *("last-column-id", "schema", "schemas", "current-schema-id", "partition-spec"),
        *("partition-specs", "default-spec-id", "last-partition-id", "properties"),
        *("current-snapshot-id", "snapshots", "snapshot-log", "metadata-log", "sort-orders"),
        *("default-sort-order-id", "refs", "statistics", "partition-statistics", "next-row-id"),
    }
)
_SCHEMA = frozenset({"type", "fields", "schema-id", "identifier-field-ids"})
_FIELD = frozenset({"id", "name", "type", "required", "doc", "initial-default", "write-default"})
_DEFAULTS = ("initial-default", "write-default")
# Of structs, lists and maps; each has some of them.
_NESTED = frozenset(
    {
        *("type", "fields", "element-id", "element", "element-required"),
        *("key-id", "key", "value-id", "value", "value-required"),
    }
)
_INNER = ("element", "key", "value")
_REF = frozenset(
    {"snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"}
)
# Immutable elements of lists, and the members that identify them.
_FIXED: Mapping[str, tuple[str, ...]] = {
    "schemas": ("schema-id",),
    "partition-specs": ("spec-id",),
    "sort-orders": ("order-id",),
    "statistics": ("snapshot-id", "statistics-path"),
    "partition-statistics": ("snapshot-id", "statistics-path"),
}
_LOGS: Mapping[str, str] = {"snapshot-log": "snapshot-id", "metadata-log": "metadata-file"}
# Python would round numbers with fractions: their digits are kept in a text with this prefix until they are written.
# Metadata cannot contain such a text, because the prefix is random.
MARK = f"\x00{SystemIds().uuid()}:"
_ESCAPED = json.dumps(MARK)[:-1].encode()
_MARKED = re.compile(re.escape(_ESCAPED) + b'([^"]*)"')
# What stands for all snapshots until they are written.
_SNAPSHOTS = "snapshots"
_PLACE = _ESCAPED + f'{_SNAPSHOTS}"'.encode()
_SHOWN = 100


class Source(NamedTuple):
    """The text that metadata was read from.

    Args:
        text: the JSON object of the metadata, or of a server's response.
        snapshots: the texts of the snapshots; None if they are in the text.
    """

    text: str
    snapshots: SnapshotTexts | None = None

    def __deepcopy__(self, _: object) -> Source:
        """Return itself: nothing changes it."""
        return self


def keep_source(metadata: TableMetadata, source: Source | None) -> TableMetadata:
    """Attach to metadata the text that it was read from, through copies and changes, and return it."""
    vars(metadata)[_SOURCE] = source
    return metadata


def source_of(metadata: TableMetadata) -> Source | None:
    """Return the text that metadata was read from; None if it was created in this process."""
    source: Source | None = vars(metadata).get(_SOURCE)
    return source


def bytes_of(metadata: TableMetadata) -> bytes:
    """Return the content of a metadata file, in UTF-8, not compressed.

    Raises:
        RefusedError: the content of the file that it was read from cannot be preserved.
    """
    source = source_of(metadata)
    without_none = not Config().get_bool("legacy-current-snapshot-id")
    if source is None:
        return metadata.model_dump_json(exclude_none=without_none).encode()
    with _kept():
        plain = _parsed(source.text)
        snapshots = b",".join(_snapshots(plain, source.snapshots, metadata))
        before, _, after = _encoded(_merged(plain, metadata, without_none=without_none)).partition(
            _PLACE
        )
    return b"".join((_unmarked(before), snapshots, _unmarked(after)))


def _encoded(plain: Plain) -> bytes:
    """Return a JSON value in UTF-8, with its numbers still marked."""
    try:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # An unpaired surrogate can only be written as a JSON escape.
        return json.dumps(plain, separators=(",", ":")).encode()


def _unmarked(data: bytes) -> bytes:
    return _MARKED.sub(rb"\1", data) if _ESCAPED in data else data


@contextmanager
def _kept() -> Iterator[None]:
    """Refuse metadata whose members do not match the specification's structure; PyIceberg accepts some of it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RefusedError(
            "the table's metadata has a structure that lake cannot preserve: "
            f"{type(error).__name__} {str(error)[:_SHOWN]}",
            hint="commit to the table with Iceberg Java, which rewrites it in the standard structure",
        ) from error


def unknown_members(metadata: TableMetadata, updates: Iterable[TableUpdate]) -> list[str]:
    """Return the names of members that a change replaces and PyIceberg's models do not know, sorted.

    Args:
        metadata: the table before the change.
        updates: the change; its new schemas and the refs that it sets replace something.
    """
    kept = source_of(metadata)
    if kept is None:
        return []
    found: set[str] = set()
    with _kept():
        source = _parsed(kept.text)
        columns = _Columns(_schemas(source, metadata.current_schema_id))
        for update in updates:
            if isinstance(update, AddSchemaUpdate):
                plain = _dumped(update.schema_)
                found.update(_added(plain, columns.merged(plain)))
            elif isinstance(update, SetSnapshotRefUpdate):
                ref = (source.get("refs") or {}).get(update.ref_name) or {}
                found.update(_unknown(ref, _REF))
    return sorted(found)


def _parsed(source: str) -> Plain:
    """Return the JSON value of a source; for a server's response, the metadata in it."""
    plain: Plain = json.loads(source, parse_float=MARK.__add__)
    return plain["metadata"] if "metadata" in plain and "format-version" not in plain else plain


def _dumped(model: Any, **options: Any) -> Plain:
    """Return a model's JSON value, with its numbers marked like those of a source."""
    text: str = model.model_dump_json(**options)
    return _parsed(text)


def _merged(source: Plain, metadata: TableMetadata, *, without_none: bool) -> Plain:
    # Most of the metadata is snapshots, and only the new ones need PyIceberg's slow serialization.
    plain = _dumped(metadata, exclude={"snapshots"}, exclude_none=without_none)
    columns = _Columns(_schemas(source, metadata.current_schema_id))
    plain["snapshots"] = [f"{MARK}{_SNAPSHOTS}"]
    plain["schemas"] = [columns.merged(schema) for schema in plain["schemas"]]
    for name, keys in _FIXED.items():
        old = {_identity(item, keys): item for item in _elements(source, name)}
        plain[name] = [old.get(_identity(item, keys)) or item for item in plain.get(name) or ()]
    for name, key in _LOGS.items():
        plain[name] = _log(source.get(name) or (), plain.get(name) or (), key)
    refs = source.get("refs") or {}
    plain["refs"] = {
        name: {**_unknown(refs.get(name) or {}, _REF), **ref} for name, ref in plain["refs"].items()
    }
    if metadata.format_version == 1:
        # PyIceberg does not update them together with their replacements.
        plain["schema"] = _current(plain["schemas"], "schema-id", metadata.current_schema_id)
        spec = _current(plain["partition-specs"], "spec-id", metadata.default_spec_id)
        plain["partition-spec"] = spec["fields"]
    return {**_unknown(source, _TABLE), **plain}


def _snapshots(
    source: Plain, texts: SnapshotTexts | None, metadata: TableMetadata
) -> Iterator[bytes]:
    """Yield the texts of the snapshots, those that were read as they are."""
    listed = source.get("snapshots") or () if texts is None else ()
    old = {item["snapshot-id"]: item for item in listed}
    known = {} if texts is None else {each: number for number, each in enumerate(texts.ids)}
    numbers = [known.get(snapshot.snapshot_id) for snapshot in metadata.snapshots]
    place = 0
    while place < len(numbers):
        if texts is not None and numbers[place] is not None:
            text, count = texts.run(numbers, place)
            yield text
            place += count
            continue
        snapshot = metadata.snapshots[place]
        place += 1
        plain = old.get(snapshot.snapshot_id)
        if plain is None:
            plain = _dumped(snapshot)
            if metadata.format_version == 1:
                plain.pop("sequence-number", None)
        yield _unmarked(_encoded(plain))


def _elements(source: Plain, name: str) -> list[Plain]:
    """Return a list of the metadata; in version 1 also if it is a single element."""
    found: list[Plain] = source.get(name) or []
    if name == "partition-specs" and not found and "partition-spec" in source:
        return [{"spec-id": 0, "fields": source["partition-spec"]}]
    return found


def _log(source: Iterable[Plain], log: Iterable[Plain], key: str) -> list[Plain]:
    """Return a log with the unknown members of its entries; an entry with a corrected time is matched without it."""
    exact: dict[Any, list[Plain]] = defaultdict(list)
    for item in source:
        if len(item) > 2:  # noqa: PLR2004 - what identifies it, and its time
            exact[item[key], item["timestamp-ms"]].append(item)
            exact[item[key]].append(item)
    if not exact:
        return list(log)
    known = frozenset({key, "timestamp-ms"})
    found = []
    for item in log:
        old = exact.get((item[key], item["timestamp-ms"])) or exact.get(item[key]) or [{}]
        found.append({**_unknown(old[0], known), **item})
    return found


class _Columns:
    """The columns in the schemas of a source, by field id.

    Args:
        schemas: the schemas of one table; the first one that contains a column describes it.
    """

    def __init__(self, schemas: Iterable[Plain]) -> None:
        self._schema: Plain = {}
        self._fields: dict[Any, Plain] = {}
        for schema in schemas:
            self._schema = self._schema or schema
            for field in _fields_of(schema):
                self._fields.setdefault(field.get("id"), field)

    def merged(self, schema: Plain) -> Plain:
        """Return a new schema with the unknown members of the fields that it keeps."""
        fields = [self._field(field) for field in schema["fields"]]
        return {**_unknown(self._schema, _SCHEMA), **schema, "fields": fields}

    def _field(self, field: Plain) -> Plain:
        old = self._fields.get(field["id"], {})
        kind = self._type(field["type"], old.get("type"))
        defaults = {}
        if _same_type(old.get("type"), kind):
            kind = old["type"]
            defaults = {name: old[name] for name in _DEFAULTS if name in old}
        return {**_unknown(old, _FIELD), **field, **defaults, "type": kind}

    def _type(self, kind: Any, old: Any) -> Any:
        if not isinstance(kind, dict):
            return kind
        name = kind["type"]
        old = old if isinstance(old, dict) and old.get("type") == name else {}
        inner = {key: self._type(kind[key], old.get(key)) for key in _INNER if key in kind}
        if name == "struct":
            inner["fields"] = [self._field(field) for field in kind["fields"]]
        return {**_unknown(old, _NESTED), **kind, **inner}


def _schemas(source: Plain, current: int) -> list[Plain]:
    """Return the schemas of a source: the current one, then the others from the newest."""
    found = list(source.get("schemas") or ())
    if isinstance(source.get("schema"), dict):
        found.insert(0, source["schema"])
    ids = [schema.get("schema-id", 0) for schema in found]
    order = sorted(range(len(found)), key=lambda at: (ids[at] != current, -ids[at]))
    return [found[at] for at in order]


def _fields_of(kind: Any) -> Iterator[Plain]:
    """Yield the fields of all structs in a type, the outermost first."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from _fields_of(field.get("type"))
    for inner in _INNER:
        yield from _fields_of(kind.get(inner))


def _same_type(left: Any, right: Any) -> bool:
    """Whether two type texts mean the same type; false for nested types, which are merged."""
    if not isinstance(left, str) or not isinstance(right, str):
        return False
    return left == right or _type_named(left) == _type_named(right)


def _type_named(text: str) -> IcebergType:
    return NestedField(1, "any", text).field_type


def _unknown(item: Plain, known: frozenset[str]) -> Plain:
    return {key: value for key, value in item.items() if key not in known}


def _identity(item: Plain, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(key, 0) for key in keys)


def _current(items: Iterable[Plain], key: str, wanted: int) -> Plain:
    return next(item for item in items if item.get(key, 0) == wanted)


def _added(plain: Any, merged: Any) -> Iterator[str]:
    """Yield the names of members that a merge added."""
    if isinstance(merged, dict):
        for key, value in merged.items():
            if key not in plain:
                yield key
            else:
                yield from _added(plain[key], value)
    elif isinstance(merged, list):
        for one, other in zip(plain, merged, strict=True):
            yield from _added(one, other)
