"""The part of a metadata file that shows of which table and of which history it is, read without its schemas.

Other programs and versions write such files too, so no more of them is understood here than is needed. Source:
"Table Metadata Fields" of the Iceberg specification.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lake.core.base.errors import CorruptFileError, NotFoundError
from lake.core.io.storage.storage import Storage
from lake.core.table.metadata.files import MAX_TEXT_BYTES, text_of


@dataclass(frozen=True, slots=True)
class StateOfTable:
    """A state of a table.

    Args:
        table_uuid: the table's UUID, in lower case.
        updated_ms: the time of the commit, in milliseconds since 1970; 0 if it is not there.
        log: the locations of earlier metadata files, the oldest first.
        newest_list: the manifest list of its newest snapshot; empty if it has no snapshots, None if the snapshot has
            another form.
    """

    table_uuid: str
    updated_ms: int
    log: tuple[str, ...]
    newest_list: str | None


def find_document(storage: Storage, location: str) -> dict[str, Any] | None:
    """Return the JSON object in a metadata file; None if the file does not exist.

    Raises:
        CorruptFileError: it is longer than any metadata, or not a JSON object.
    """
    try:
        data = storage.read(location, limit=MAX_TEXT_BYTES)
    except NotFoundError:
        return None
    try:
        document = json.loads(text_of(data, location))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{location} is not table metadata: {error}") from error
    if not isinstance(document, dict):
        raise CorruptFileError(f"{location} is not table metadata: it is not a JSON object")
    return document


def state_in(document: dict[str, Any]) -> StateOfTable | None:
    """Return the state in a metadata file; None if it has no UUID, as that of a table which is not known."""
    uuid = document.get("table-uuid")
    if not isinstance(uuid, str):
        return None
    updated = document.get("last-updated-ms")
    log = [
        entry.get("metadata-file")
        for entry in _list(document.get("metadata-log"))
        if isinstance(entry, dict)
    ]
    return StateOfTable(
        table_uuid=uuid.lower(),
        updated_ms=updated if isinstance(updated, int) else 0,
        log=tuple(item for item in log if isinstance(item, str)),
        newest_list=_newest_list(_list(document.get("snapshots"))),
    )


def _newest_list(snapshots: list[Any]) -> str | None:
    """Return the manifest list of the newest snapshot: writers append snapshots, with rising sequence numbers."""
    if not snapshots:
        return ""
    if not all(isinstance(item, dict) for item in snapshots):
        return None
    numbers = [item.get("sequence-number") for item in snapshots]
    ranked = [number if isinstance(number, int) else 0 for number in numbers]
    newest = max(range(len(snapshots)), key=lambda place: (ranked[place], place))
    found = snapshots[newest].get("manifest-list")
    return found if isinstance(found, str) else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
