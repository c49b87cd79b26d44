"""Whether the headers of manifests agree with their lists and with the table.

Format: https://iceberg.apache.org/spec/#manifests; the keys are those of Iceberg Java.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema

from lake.core.maintain.checking.findings import Finding
from lake.core.maintain.checking.table_metadata import incompatible

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

Header = Mapping[str, bytes]
_CONTENTS = ("data", "deletes")
_STATUS = "status"


class ManifestHeaders:
    """Compares headers; equal texts in many headers are parsed once."""

    def __init__(self, metadata: TableMetadata) -> None:
        """Take the table's metadata."""
        self._metadata = metadata
        self._specs = metadata.specs()
        self._parsed = lru_cache(maxsize=64)(_parsed)
        self._conflicts = lru_cache(maxsize=64)(self._schema_conflict)

    def findings(self, row: Mapping[str, Any], header: Header) -> Iterator[Finding]:
        """Check a header."""
        place = row["manifest_path"]
        for text in self._contradictions(row, header):
            yield Finding("M004", place, text)
        if conflict := self._spec_conflict(row["partition_spec_id"], header):
            yield Finding("M005", place, conflict)
        schema = header.get("schema")
        if schema is not None and self._parsed(schema) is None:
            yield Finding("M006", place, "its header does not contain a schema of the table")

    def reused_ids(self, header: Header) -> str | None:
        """Return a message if a column of the table has an id that had another type when the file was written."""
        return self._conflicts(header.get("schema"))

    def _contradictions(self, row: Mapping[str, Any], header: Header) -> Iterator[str]:
        content = _text(header, "content")
        if content is not None and content != _CONTENTS[row["content"]]:
            yield f"its header says that it contains {content}, its list {_CONTENTS[row['content']]}"
        spec_id = _text(header, "partition-spec-id")
        if spec_id is not None and spec_id != str(row["partition_spec_id"]):
            yield f"its header has the partition spec {spec_id}, its list {row['partition_spec_id']}"
        version = _text(header, "format-version")
        if version is not None and not (
            version.isdigit() and int(version) <= self._metadata.format_version
        ):
            yield (
                f"its header has the format version {version}, the table {self._metadata.format_version}"
            )

    def _spec_conflict(self, spec_id: int, header: Header) -> str | None:
        fields = _json(header.get("partition-spec"))
        if isinstance(fields, dict):
            fields = fields.get("fields")
        if not isinstance(fields, list) or spec_id not in self._specs:
            return None
        found = [_field(item) for item in fields]
        declared = [
            (item.field_id, item.source_id, str(item.transform))
            for item in self._specs[spec_id].fields
        ]
        same = len(found) == len(declared) and all(
            one[1:] == other[1:] and one[0] in (None, other[0])
            for one, other in zip(found, declared, strict=True)
        )
        if same:
            return None
        return f"it was written for another partition spec with the id {spec_id}"

    def _schema_conflict(self, text: bytes | None) -> str | None:
        schema = None if text is None else self._parsed(text)
        if schema is None:
            return None
        return next(incompatible(schema, self._metadata.schema()), None)


def _field(item: Any) -> tuple[Any, Any, str]:
    if not isinstance(item, dict):
        return None, None, ""
    return item.get("field-id"), item.get("source-id"), str(item.get("transform"))


def _parsed(text: bytes) -> Schema | None:
    """Return the schema in a header; None for another text, and for the schema of entries that DuckDB once wrote."""
    try:
        schema = Schema.model_validate_json(text)
    except ValueError:
        return None
    names = [item.name for item in schema.fields]
    return None if names[:1] == [_STATUS] and "data_file" in names else schema


def _text(header: Header, key: str) -> str | None:
    value = header.get(key)
    return None if value is None else value.decode(errors="replace")


def _json(text: bytes | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
