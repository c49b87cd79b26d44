"""Parse table metadata into PyIceberg's model; unsupported features are refused by name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pydantic
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from lake.core.base.errors import RefusedError
from lake.core.spec.types.format_versions import MAX_FORMAT_VERSION
from lake.core.spec.types.specification_types import is_unsupported
from lake.core.table.metadata.stored_snapshots import Cut, cut
from lake.core.table.metadata.text import MARK, Source, keep_source, source_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_UUID = "table-uuid"
_SHOWN = 80


def parsed(data: bytes) -> TableMetadata:
    """Parse metadata, and complete it where its writer omitted what PyIceberg expects.

    Raises:
        RefusedError: the table uses something that lake does not support.
        ValidationError: the text is not table metadata.
        UnicodeDecodeError: it is not text in UTF-8.
    """
    found = cut(data, MARK)
    if found is not None:
        # The models report what is wrong with the whole text.
        with suppress(ValidationError, RefusedError):
            around = _parsed(found.around.decode())
            if found.is_around(around, MARK):
                return _with_snapshots(around, found)
    return _parsed(data.decode())


def _with_snapshots(around: TableMetadata, found: Cut) -> TableMetadata:
    source = source_of(around)
    text = found.around.decode() if source is None else source.text
    metadata = around.model_copy(update=found.members())
    return keep_source(metadata, Source(text, found.texts))


def _parsed(text: str) -> TableMetadata:
    # Without a UUID PyIceberg generates a new one on each read, and no commit could require the one it read.
    if f'"{_UUID}"' not in text:
        text = _completed(text)
    try:
        return keep_source(_filled(TableMetadataUtil.parse_raw(text)), Source(text))
    except ValidationError:
        completed = _completed(text)
        if completed != text:
            return _parsed(completed)
        if problem := _unsupported(_plain(text)):
            raise problem from None
        raise


def parsed_response(parse: Callable[[str | bytes], Any], text: str) -> Any:
    """Return a catalog server's response that contains table metadata.

    Raises:
        RefusedError: the table uses something that lake does not support.
        pydantic.ValidationError: the text is not such a response.
    """
    found = cut(text.encode(errors="surrogatepass"), MARK)
    if found is not None:
        with suppress(pydantic.ValidationError, ValidationError):
            response = parse(found.around)
            if found.is_around(response.metadata, MARK):
                vars(response)["metadata"] = _with_snapshots(response.metadata, found)
                return response
    try:
        response = parse(text)
    except pydantic.ValidationError:
        if problem := _unsupported(_plain_item(_plain(text), "metadata")):
            raise problem from None
        raise
    keep_source(response.metadata, Source(text))
    return response


def _completed(text: str) -> str:
    """Return metadata of format version 1 with a UUID and a current schema, both of which may be missing.

    The UUID is derived from the location, so it is the same on every read until a commit stores it.
    """
    plain = _plain(text)
    if not isinstance(plain, dict) or plain.get("format-version") != 1:
        return text
    added: dict[str, Any] = {}
    if _UUID not in plain:
        added[_UUID] = str(uuid.uuid5(uuid.NAMESPACE_URL, str(plain.get("location"))))
    schemas = plain.get("schemas")
    if "schema" not in plain and isinstance(schemas, list):
        current = plain.get("current-schema-id", 0)
        found = [schema for schema in schemas if _plain_item(schema, "schema-id") == current]
        if found:
            added["schema"] = found[0]
    return json.dumps({**plain, **added}) if added else text


def _filled(metadata: TableMetadata) -> TableMetadata:
    """Return metadata with fields that are required since version 2; PyIceberg can read without, but not change."""
    added: dict[str, Any] = {}
    if not metadata.sort_orders:
        added["sort_orders"] = [UNSORTED_SORT_ORDER]
    if metadata.last_partition_id is None:
        ids = [field.field_id for spec in metadata.partition_specs for field in spec.fields]
        added["last_partition_id"] = max(ids, default=PARTITION_FIELD_ID_START - 1)
    return metadata.model_copy(update=added) if added else metadata


def _unsupported(plain: object) -> RefusedError | None:
    """Return why lake does not support a table; None if its metadata is invalid."""
    if not isinstance(plain, dict):
        return None
    version = plain.get("format-version")
    if isinstance(version, int) and version > MAX_FORMAT_VERSION:
        return RefusedError(
            f"the table has format version {version}; lake supports the versions 1 to {MAX_FORMAT_VERSION}",
            hint="use a version of lake, or an engine, that supports it",
        )
    for schema in (plain.get("schema"), *_items(plain.get("schemas"))):
        for column, kind in _leaves(schema):
            if is_unsupported(kind):
                return RefusedError(
                    f"column {column} has the type {kind[:_SHOWN]!r}, which lake does not support",
                    hint="use a version of lake, or an engine, that supports it",
                )
    if any(_lists_manifests(snapshot) for snapshot in _items(plain.get("snapshots"))):
        return RefusedError(
            "the table has snapshots without manifest lists, as the first writers of format version 1 "
            "created them; lake does not read these",
            hint="expire them with another tool: newer snapshots have lists",
        )
    return None


def _leaves(schema: object) -> Iterator[tuple[str, str]]:
    """Yield the names of a schema's leaf fields and their types as text, if well-formed."""
    pending: list[tuple[tuple[str, ...], object]] = [((), schema)]
    while pending:
        name, kind = pending.pop()
        if isinstance(kind, str):
            yield ".".join(name)[:_SHOWN], kind
        if not isinstance(kind, dict):
            continue
        match kind.get("type"):
            case "struct":
                fields = [field for field in _items(kind.get("fields")) if isinstance(field, dict)]
                pending += [
                    ((*name, str(field.get("name"))), field.get("type")) for field in fields
                ]
            case "list" | "map":
                pending += [((*name, key), kind.get(key)) for key in ("element", "key", "value")]
            case other if name:
                pending.append((name, other))


def _lists_manifests(snapshot: object) -> bool:
    return (
        isinstance(snapshot, dict) and "manifests" in snapshot and "manifest-list" not in snapshot
    )


def _plain(text: str) -> object:
    """Return the JSON value of a text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _plain_item(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
