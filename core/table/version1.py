"""What the earliest writers of format version 1 left out of metadata, and PyIceberg expects or makes up."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadataUtil

from lake.core.errors import RefusedError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_UUID = "table-uuid"
_parse = TableMetadataUtil.parse_raw


def allow_reading() -> None:
    """Let all metadata files that are read in this process be read so."""
    TableMetadataUtil.parse_raw = staticmethod(_parsed)  # type: ignore[method-assign]


def _parsed(data: str) -> TableMetadata:
    """Parse metadata; a table without a UUID has the same one whenever it is read, till a commit writes it.

    PyIceberg makes up another each time, and no commit can require what it read.

    Raises:
        RefusedError: snapshots name their manifests in the metadata itself.
    """
    try:
        if f'"{_UUID}"' in data:
            return _parse(data)
        plain = json.loads(data)
        if not isinstance(plain, dict) or plain.get("format-version") != 1:
            return _parse(data)
        name = uuid.uuid5(uuid.NAMESPACE_URL, str(plain.get("location")))
        return _parse(json.dumps({**plain, _UUID: str(name)}))
    except ValidationError:
        if _has_listed_manifests(data):
            raise RefusedError(
                "the table has snapshots without manifest lists, as the first writers of format version 1 "
                "made them; lake reads none of these",
                hint="expire them with another tool: newer snapshots have lists",
            ) from None
        raise


def _has_listed_manifests(data: str) -> bool:
    try:
        plain: Any = json.loads(data)
    except ValueError:
        return False
    snapshots = plain.get("snapshots") if isinstance(plain, dict) else None
    return isinstance(snapshots, list) and any(
        isinstance(one, dict) and "manifests" in one and "manifest-list" not in one
        for one in snapshots
    )
