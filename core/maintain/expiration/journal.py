"""The journal of an expiry: the files to delete, stored until they are deleted.

A killed run leaves its journal behind, and the next run completes it
(`lake.core.maintain.expiration.journal_recovery`). The content of a journal is not trusted: every file in it is
checked again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lake.core.base import locations
from lake.core.base.clock import Ids
from lake.core.base.errors import BadInputError, CorruptFileError
from lake.core.io.storage import atomic_files
from lake.core.io.storage.errors import translate_errors
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.garbage.manifest_files import FILES
from lake.core.transaction.garbage.reachability import KINDS

_PREFIX = "lake-journal-"
ENDING = ".json"
_NAME = re.compile(rf"{_PREFIX}([0-9a-f-]{{36}}){re.escape(ENDING)}")
_MODE = 0o600
MAX_BYTES = 256 * 1024 * 1024
MAX_FILES = 1_000_000
_MAX_NAMES = 100_000
_TRIES = 5


_Rows = Annotated[tuple[tuple[str, int], ...], Field(max_length=MAX_FILES)]
_SnapshotIds = Annotated[
    tuple[Annotated[str, Field(pattern=r"^-?[0-9]{1,19}$")], ...], Field(max_length=MAX_FILES)
]


class _Document(BaseModel):
    """A journal as it is stored: files are pairs of path and bytes, by kind."""

    model_config = ConfigDict(strict=True, alias_generator=lambda name: name.replace("_", "-"))

    format: Literal[1]
    operation_id: str
    table_uuid: str
    created_ms: int
    snapshots: _SnapshotIds
    refs: Annotated[tuple[str, ...], Field(max_length=_MAX_NAMES)]
    files: Mapping[str, _Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The snapshots, refs and files that an expiry removes.

    Args:
        operation_id: the UUID of the expiry, also part of the journal's name.
        table_uuid: the UUID of the table.
        created_ms: when it was written.
        snapshots: snapshots that the commit removes.
        refs: refs that the commit removes.
        files: Arrow table of path, kind and bytes of the files to delete after the commit.
    """

    operation_id: str
    table_uuid: str
    created_ms: int
    snapshots: Sequence[int]
    refs: Sequence[str]
    files: pa.Table


def location_of(table: Table, operation_id: str) -> str:
    """Return the location of an operation's journal."""
    return locations.join(table.metadata_folder, f"{_PREFIX}{operation_id}{ENDING}")


def write(table: Table, journal: Journal, ids: Ids) -> None:
    """Write or replace a journal with the first `MAX_FILES` files; ``ids`` name the unfinished file."""
    files = journal.files.slice(0, MAX_FILES)
    document = {
        "format": 1,
        "operation-id": journal.operation_id,
        "table-uuid": journal.table_uuid,
        "created-ms": journal.created_ms,
        "snapshots": [str(item) for item in journal.snapshots],
        "refs": list(journal.refs),
        "files": {
            kind: list(zip(rows["path"].to_pylist(), rows["bytes"].to_pylist(), strict=True))
            for kind in KINDS
            for rows in (files.filter(pc.equal(files["kind"], kind)),)
        },
    }
    _put(table, location_of(table, journal.operation_id), json.dumps(document).encode(), ids)


def _put(table: Table, location: str, data: bytes, ids: Ids) -> None:
    parsed = locations.parse(location)
    if not parsed.is_local:
        # An object store makes a file visible only when it is complete.
        table.storage.write(location, data)
        return
    for _ in range(_TRIES):
        # Another run may remove the unfinished file, because it looks like a killed run's.
        with translate_errors(location), suppress(FileNotFoundError):
            atomic_files.replace(parsed.path, data, ids=ids, mode=_MODE)
            return
    raise BadInputError(f"cannot write {location}: its folder does not exist")


def remove(table: Table, location: str) -> None:
    """Remove a journal. If that fails, the next run removes it."""
    table.storage.delete([location])


def find(table: Table) -> list[str]:
    """Return the locations of a table's journals, also of incomplete ones, in no order."""
    return [
        location
        for location in table.storage.find(table.metadata_folder, _PREFIX)
        if _PREFIX in location.rsplit("/", 1)[-1]
    ]


def read(table: Table, location: str) -> Journal:
    """Read a journal.

    Raises:
        BadInputError: it is missing, not a journal, or another table's journal.
    """
    named = _NAME.fullmatch(location.rsplit("/", 1)[-1])
    data = table.storage.read(location, limit=MAX_BYTES)
    try:
        journal = _parsed(data)
    except (ValidationError, OverflowError, pa.ArrowException) as error:
        raise CorruptFileError(f"{location} is not the journal of an expiry") from error
    if named is None or journal.operation_id != named.group(1):
        raise CorruptFileError(f"{location} is another operation's journal")
    if journal.table_uuid != str(table.metadata.table_uuid):
        raise BadInputError(f"{location} is another table's journal")
    return journal


def _parsed(data: bytes) -> Journal:
    document = _Document.model_validate_json(data)
    rows = [
        {"path": path, "kind": kind, "bytes": max(0, size)}
        for kind in KINDS
        for path, size in document.files.get(kind, ())
    ]
    return Journal(
        operation_id=document.operation_id,
        table_uuid=document.table_uuid,
        created_ms=document.created_ms,
        snapshots=[int(item) for item in document.snapshots],
        refs=document.refs,
        files=pa.Table.from_pylist(rows, schema=FILES),
    )
