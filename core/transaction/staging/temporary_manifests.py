"""Read and check temporary manifests, whose content is untrusted.

They have snapshot id 0 and no sequence numbers, and only their own header describes them. So a commit never uses
them as they are: it reads and checks them, and adds their files to new manifests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import BadInputError, CorruptFileError
from lake.core.io.avro.container import Container, read_container, runs
from lake.core.io.work_ahead import ReadingThreads
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.decode import Opened, decode_entries, open_manifest
from lake.core.table.manifests.schemas import ENTRY_COLUMNS
from lake.core.transaction.staging.entry_checks import defect, other_schema, outside, schema_of

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage, StoredFile
    from lake.core.table.catalogs.catalog import Table

DELETES = 1
_CONTENT = {b"data": DATA, b"deletes": DELETES}
_ASSIGNED = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
_READ = [column for column in ENTRY_COLUMNS if column not in _ASSIGNED]
_MARK = "lake."
_FETCH_THREADS = 16
# Less than the 32-bit offsets of strings in one batch allow.
_DECODED_BYTES = 256 * 1024 * 1024
_MAX_SPEC_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryManifest:
    """A temporary manifest with its entries.

    Args:
        path: its location.
        length: bytes.
        modified_ms: when it was written, in ms since 1970; None if the storage does not report it.
        content: `files.DATA` (0) or 1 for a manifest of delete files.
        spec_id: the partition spec its entries were written with.
        entries: `ENTRY_COLUMNS` of its added files, without the snapshot ids and sequence numbers in the file.
    """

    path: str
    length: int
    modified_ms: int | None
    content: int
    spec_id: int
    entries: pa.Table

    @property
    def file_paths(self) -> list[str]:
        """The locations of its files, as written in the manifest."""
        paths: list[str] = self.entries["file_path"].to_pylist()
        return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of reading a temporary manifest.

    Args:
        location: its location.
        modified_ms: when it was written, in ms since 1970; None if the storage does not report it.
        manifest: its content; None if it is not usable.
        problem: why it is not usable.
        foreign: why it belongs to another table.
        marks: the header fields that lake writes.
    """

    location: str
    modified_ms: int | None
    manifest: TemporaryManifest | None = None
    problem: str | None = None
    foreign: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)


def read_temporary_manifests(table: Table, files: Sequence[StoredFile]) -> Iterator[Reading]:
    """Read temporary manifests; a manifest that was deleted meanwhile is omitted.

    Args:
        table: the table whose specs and schemas the entries must match.
        files: the manifests.
    """
    with ReadingThreads(_FETCH_THREADS) as pool:
        opened = list(pool.map(lambda file: _open(table.storage, file), files))
    groups: dict[tuple[Any, ...], list[_Opened]] = {}
    for item in opened:
        if isinstance(item, Reading):
            yield item
        elif item is not None:
            groups.setdefault(item.key, []).append(item)
    for group in groups.values():
        for part in runs(group, lambda item: item.inner.container.size, _DECODED_BYTES):
            yield from _read_group(table, part)


@dataclass(frozen=True, slots=True)
class _Opened:
    """An opened manifest and its schema."""

    file: StoredFile
    inner: Opened
    schema: Schema

    @property
    def content(self) -> int:
        return int(self.inner.manifest["content"])

    @property
    def spec_id(self) -> int:
        return int(self.inner.manifest["partition_spec_id"])

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for manifests that can be decoded together."""
        header = self.inner.container.metadata
        return self.inner.layout.schema_json, self.spec_id, self.content, header["schema"]


def _open(storage: Storage, file: StoredFile) -> _Opened | Reading | None:
    try:
        container = read_container(storage.read(file.location), name=file.location)
        return _Opened(file, open_manifest(_row(container), container), schema_of(container))
    except BadInputError as error:
        if storage.look_up([file.location])[file.location] is None:
            return None
        return _broken(file, error.message)


def _row(container: Container) -> dict[str, Any]:
    """Return the manifest list fields of a manifest from its own header."""
    header = container.metadata
    content = _CONTENT.get(header.get("content", b"data"))
    if content is None:
        raise CorruptFileError(f"{container.name} has an unknown content type in its header")
    spec_id = header.get("partition-spec-id", b"")
    if not spec_id.isdigit() or len(spec_id) > _MAX_SPEC_DIGITS:
        raise CorruptFileError(f"{container.name} has no partition spec id in its header")
    return {
        "content": content,
        "partition_spec_id": int(spec_id),
        "added_snapshot_id": None,
        "sequence_number": 0,
        "first_row_id": None,
    }


def _read_group(table: Table, group: Sequence[_Opened]) -> Iterator[Reading]:
    """Decode manifests of one layout, spec and schema together, or one by one if one is damaged."""
    reason = other_schema(table.metadata, group[0].schema)
    try:
        entries = _decode(table.metadata, group)
    except CorruptFileError as error:
        if len(group) > 1:
            for item in group:
                yield from _read_group(table, [item])
        else:
            # A manifest of another table may have a spec that this table lacks; its file paths show that.
            yield _broken(group[0].file, error.message, reason or _other_places(table, group[0]))
        return
    sound = not (reason or outside(table, entries["file_path"]) or defect(entries))
    start = 0
    for item in group:
        part = entries.slice(start, item.inner.container.objects)
        start += part.num_rows
        # If all entries together are valid, so are those of each manifest.
        yield _sound(item, part) if sound else _reading(table, item, part, reason)


def _reading(table: Table, item: _Opened, entries: pa.Table, reason: str | None) -> Reading:
    file = item.file
    foreign = reason or outside(table, entries["file_path"])
    if problem := defect(entries):
        return _broken(file, f"{file.location} {problem}", foreign)
    return replace(_sound(item, entries), foreign=foreign)


def _sound(item: _Opened, entries: pa.Table) -> Reading:
    file = item.file
    manifest = TemporaryManifest(
        path=file.location,
        length=file.length,
        modified_ms=file.modified_ms,
        content=item.content,
        spec_id=item.spec_id,
        entries=entries,
    )
    marks = {
        key: value.decode(errors="replace")
        for key, value in item.inner.container.metadata.items()
        if key.startswith(_MARK)
    }
    return Reading(
        location=file.location, modified_ms=file.modified_ms, manifest=manifest, marks=marks
    )


def _decode(metadata: TableMetadata, group: Sequence[_Opened]) -> pa.Table:
    """Decode entries as `ENTRY_COLUMNS`, with NULL in the columns that the commit assigns."""
    table = decode_entries([item.inner for item in group], metadata, _READ)
    rows = table.num_rows
    return pa.table(
        {
            column: pa.nulls(rows, arrow_type) if column in _ASSIGNED else table[column]
            for column, arrow_type in ENTRY_COLUMNS.items()
        }
    )


def _broken(file: StoredFile, problem: str, foreign: str | None = None) -> Reading:
    return Reading(
        location=file.location, modified_ms=file.modified_ms, problem=problem, foreign=foreign
    )


def _other_places(table: Table, item: _Opened) -> str | None:
    with suppress(CorruptFileError):
        return outside(
            table, decode_entries([item.inner], table.metadata, ["file_path"])["file_path"]
        )
    return None


def missing_files(
    storage: Storage, manifests: Iterable[TemporaryManifest]
) -> tuple[dict[str, str], dict[str, int]]:
    """Check that the files of manifests exist.

    Returns:
        Messages about files that are missing or shorter than their entries say, and when the others were
        written (ms since 1970, if the storage reports it), each by location.
    """
    needed: dict[str, int] = {}
    for manifest in manifests:
        for location, length in _lengths(manifest.entries):
            needed[location] = max(length, needed.get(location, 0))
    problems, changed = {}, {}
    for location, file in storage.look_up(needed).items():
        if file is None:
            problems[location] = f"{location} is missing"
        elif file.length < needed[location]:
            problems[location] = (
                f"{location} has {file.length} bytes, but its entry says {needed[location]}"
            )
        elif file.modified_ms is not None:
            changed[location] = file.modified_ms
    return problems, changed


def _lengths(entries: pa.Table) -> Iterator[tuple[str, int]]:
    """Yield for each entry the file and its minimum length."""
    end = pc.add(
        pc.fill_null(entries["content_offset"], 0),
        pc.fill_null(entries["content_size_in_bytes"], 0),
    )
    least = pc.max_element_wise(entries["file_size_in_bytes"], end)
    yield from zip(entries["file_path"].to_pylist(), least.to_pylist(), strict=True)
