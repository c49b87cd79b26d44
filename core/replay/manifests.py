"""Temporary manifests: where they lie, and what they hold, of which nothing is believed unchecked.

They carry snapshot id 0 and no sequence numbers, and nothing but their own header says what they are: so they
are never taken into a table as they are, but read, checked and their files added anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core import paths
from lake.core.errors import BadInputError, CorruptFileError
from lake.core.replay.model import TemporaryManifest
from lake.core.replay.names import parse_name
from lake.core.table.avro import Container, read_container
from lake.core.table.delete_scopes import PUFFIN
from lake.core.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES
from lake.core.table.manifest_decode import Opened, decode_entries, open_manifest
from lake.core.table.manifest_schemas import ADDED, ENTRY_COLUMNS
from lake.core.table.spelling import same_name

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalog import Table
    from lake.core.table.storage import Storage, StoredFile

MANIFESTS_LOCATION = "flink.manifests.location"
DELETES = 1
_CONTENT = {b"data": DATA, b"deletes": DELETES}
# Where writers put data files beside a table's own roots; tables may share such a place.
_SHARED_ROOTS = ("write.object-storage.path", "write.folder-storage.path")
_GIVEN_ANEW = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")
_READ = [column for column in ENTRY_COLUMNS if column not in _GIVEN_ANEW]
_FORMATS = pa.array(["PARQUET", "AVRO", "ORC", PUFFIN])
_FETCH_THREADS = 16
_MAX_SPEC_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of reading a temporary manifest.

    Args:
        location: where it lies.
        modified_ms: when it was written, in ms since 1970; None where the storage does not tell.
        manifest: its content; None if it cannot be used.
        problem: why it cannot be used.
        foreign: why it is another table's.
    """

    location: str
    modified_ms: int | None
    manifest: TemporaryManifest | None = None
    problem: str | None = None
    foreign: str | None = None


def manifest_folders(table: Table) -> list[str]:
    """Return the folders in which a sink may have put a table's temporary manifests."""
    named = table.properties.get(MANIFESTS_LOCATION)
    own = (table.metadata_folder, paths.join(table.metadata.location, "metadata"))
    folders = [folder.rstrip("/") for folder in (named, *own) if folder]
    return list({paths.canonical(folder): folder for folder in reversed(folders)}.values())


def find_manifests(table: Table) -> list[StoredFile]:
    """Return the files that are called like temporary manifests, in the table's own folders only."""
    found = [
        file
        for folder in manifest_folders(table)
        for file in table.storage.list_files(folder)
        if parse_name(file.location)
    ]
    return list({paths.canonical(file.location): file for file in found}.values())


def read_temporary_manifests(table: Table, files: Sequence[StoredFile]) -> Iterator[Reading]:
    """Read temporary manifests; one that is gone meanwhile is left out.

    Args:
        table: its specs and schemas are what the entries must fit.
        files: the manifests.
    """
    with ThreadPoolExecutor(_FETCH_THREADS) as pool:
        opened = list(pool.map(lambda file: _open(table.storage, file), files))
    groups: dict[tuple[Any, ...], list[_Opened]] = {}
    for item in opened:
        if isinstance(item, Reading):
            yield item
        elif item is not None:
            groups.setdefault(item.key, []).append(item)
    for group in groups.values():
        yield from _read_group(table, group)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A manifest taken apart, and what its header says of it."""

    file: StoredFile
    inner: Opened

    @property
    def header(self) -> Mapping[str, bytes]:
        return self.inner.container.metadata

    @property
    def content(self) -> int:
        return int(self.inner.manifest["content"])

    @property
    def spec_id(self) -> int:
        return int(self.inner.manifest["partition_spec_id"])

    @property
    def key(self) -> tuple[Any, ...]:
        """What those share that are decoded together."""
        return self.inner.layout.schema_json, self.spec_id, self.header.get("schema")


def _open(storage: Storage, file: StoredFile) -> _Opened | Reading | None:
    try:
        container = read_container(storage.read(file.location), name=file.location)
        return _Opened(file, open_manifest(_row(container), container))
    except BadInputError as error:
        if storage.look_up([file.location])[file.location] is None:
            return None
        return _broken(file, error.message)


def _row(container: Container) -> dict[str, Any]:
    """Return what a manifest list would say of a manifest, from its own header."""
    header = container.metadata
    content = _CONTENT.get(header.get("content", b"data"))
    if content is None:
        raise CorruptFileError(f"{container.name} has an unknown content in its header")
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
    """Decode manifests of one layout, spec and schema together, and each alone if one is damaged."""
    reason = _other_schema(table.metadata, group[0].header)
    try:
        entries = _decode(table.metadata, group)
    except CorruptFileError as error:
        if len(group) > 1:
            for item in group:
                yield from _read_group(table, [item])
        else:
            # One of another table may have a spec that this one lacks: its files tell.
            yield _broken(group[0].file, error.message, reason or _other_places(table, group[0]))
        return
    start = 0
    for item in group:
        part = entries.slice(start, item.inner.container.objects)
        start += part.num_rows
        yield _reading(table, item, part, reason)


def _reading(table: Table, item: _Opened, entries: pa.Table, reason: str | None) -> Reading:
    file = item.file
    foreign = reason or _outside(table, entries["file_path"])
    problem = _problem(entries)
    if problem:
        return _broken(file, f"{file.location} {problem}", foreign)
    manifest = TemporaryManifest(
        path=file.location,
        length=file.length,
        modified_ms=file.modified_ms,
        content=item.content,
        spec_id=item.spec_id,
        entries=entries,
    )
    return Reading(
        location=file.location, modified_ms=file.modified_ms, manifest=manifest, foreign=foreign
    )


def _decode(metadata: TableMetadata, group: Sequence[_Opened]) -> pa.Table:
    """Return the entries as `ENTRY_COLUMNS`, without what a commit gives them anew."""
    table = decode_entries([item.inner for item in group], metadata, _READ)
    rows = table.num_rows
    return pa.table(
        {
            column: pa.nulls(rows, kind) if column in _GIVEN_ANEW else table[column]
            for column, kind in ENTRY_COLUMNS.items()
        }
    )


def _problem(entries: pa.Table) -> str | None:
    """Say what is wrong with entries that decode; None if nothing is."""
    vectors = pc.equal(entries["file_format"], PUFFIN)
    equality = pc.equal(entries["content"], EQUALITY_DELETES)
    no_place = pc.or_(
        pc.or_(
            _below_zero(entries["content_offset"]), _below_zero(entries["content_size_in_bytes"])
        ),
        pc.is_null(entries["referenced_data_file"]),
    )
    no_ids = pc.equal(pc.fill_null(pc.list_value_length(entries["equality_ids"]), 0), 0)
    plain = entries.filter(pc.invert(vectors))["file_path"]
    checks = {
        "holds an entry that is not an added file": pc.not_equal(entries["status"], ADDED),
        "holds a file of an unknown format": pc.invert(
            pc.is_in(entries["file_format"], value_set=_FORMATS)
        ),
        "holds an encrypted file, which lake does not read": pc.is_valid(entries["key_metadata"]),
        "holds a deletion vector among other files": pc.and_(
            vectors, pc.not_equal(entries["content"], POSITION_DELETES)
        ),
        "holds a deletion vector without its place": pc.and_(vectors, no_place),
        "holds equality deletes without their columns": pc.and_(equality, no_ids),
        "names a file twice": pa.array([pc.count_distinct(plain).as_py() < len(plain)]),
    }
    return next((what for what, bad in checks.items() if pc.any(bad, min_count=0).as_py()), None)


def _below_zero(column: Any) -> Any:
    return pc.less(pc.fill_null(column, -1), 0)


def _broken(file: StoredFile, problem: str, foreign: str | None = None) -> Reading:
    return Reading(
        location=file.location, modified_ms=file.modified_ms, problem=problem, foreign=foreign
    )


def _other_places(table: Table, item: _Opened) -> str | None:
    with suppress(CorruptFileError):
        return _outside(
            table, decode_entries([item.inner], table.metadata, ["file_path"])["file_path"]
        )
    return None


def _outside(table: Table, locations: Any) -> str | None:
    """Say which file lies outside the table, or is called oddly; None if none does."""
    chosen = (table.properties.get(key) for key in _SHARED_ROOTS)
    roots = same_name(pa.array([*table.roots, *(root for root in chosen if root)], pa.string()))
    folded = same_name(locations)
    inside = pc.equal(folded, "")
    for root in roots.to_pylist():
        inside = pc.or_(inside, pc.starts_with(folded, root.rstrip("/") + "/"))
    inside = pc.and_(inside, pc.invert(pc.match_substring_regex(folded, r"(^|/)\.\.?(/|$)")))
    odd = pc.filter(locations, pc.invert(inside))
    return f"{odd[0].as_py()} lies outside the table" if len(odd) else None


def _other_schema(metadata: TableMetadata, header: Mapping[str, bytes]) -> str | None:
    """Say which column of a manifest's schema the table never had; None if it had them all."""
    from pyiceberg.schema import Schema, index_by_id  # noqa: PLC0415 - loaded by then

    try:
        written = Schema.model_validate_json(header["schema"])
    except (KeyError, ValueError):
        return None
    if written.fields in [schema.fields for schema in metadata.schemas]:
        return None
    known: dict[int, set[str]] = {}
    for schema in metadata.schemas:
        for field_id, field in index_by_id(schema).items():
            known.setdefault(field_id, set()).add(type(field.field_type).__name__)
    for field_id, field in index_by_id(written).items():
        # A column may be gone from every schema that is kept, but never be another one.
        kinds = known.get(field_id)
        if field_id > metadata.last_column_id or (
            kinds and not kinds & _promotions(type(field.field_type).__name__)
        ):
            return f"its column {field.name} ({field.field_type}) was never one of the table"
    return None


def _promotions(kind: str) -> set[str]:
    """Return the type and those to which a column of it may be promoted."""
    wider = {
        "IntegerType": {"LongType"},
        "FloatType": {"DoubleType"},
        "DateType": {"TimestampType"},
    }
    return {kind} | wider.get(kind, set())


def missing_files(
    storage: Storage, manifests: Iterable[TemporaryManifest]
) -> tuple[dict[str, str], dict[str, int]]:
    """Look for the files that manifests name.

    Returns:
        What is wrong with those that are missing or shorter than their entries say, and when the others were
        written (ms since 1970, as far as the storage tells), each by location.
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
                f"{location} has {file.length} bytes, its entry says {needed[location]}"
            )
        elif file.modified_ms is not None:
            changed[location] = file.modified_ms
    return problems, changed


def _lengths(entries: pa.Table) -> Iterator[tuple[str, int]]:
    """Yield for each entry the file and how long it must at least be."""
    end = pc.add(
        pc.fill_null(entries["content_offset"], 0),
        pc.fill_null(entries["content_size_in_bytes"], 0),
    )
    least = pc.max_element_wise(entries["file_size_in_bytes"], end)
    yield from zip(entries["file_path"].to_pylist(), least.to_pylist(), strict=True)
