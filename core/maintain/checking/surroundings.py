"""Files beside a table's snapshots: earlier metadata files, statistics, and tables in the same folder."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile

from lake.core.base.errors import BadInputError, CorruptFileError, RefusedError
from lake.core.base.plain import PlainData
from lake.core.base.units import format_size
from lake.core.data.deletes.puffin import MAGIC
from lake.core.data.rows.partition_statistics import check_statistics_columns
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.maintain.checking.findings import Finding
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.shared_locations import names_of_table
from lake.core.table.metadata.files import read_metadata
from lake.core.table.metadata.size import heavy_metadata_bytes

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

# Format: https://iceberg.apache.org/puffin-spec/.
_ENDING = struct.Struct("<i4s4s")
_COMPRESSED = 1
_SHOWN = 3


def surrounding_findings(table: Table) -> Iterator[Finding]:
    """Check the size and the history of the metadata file, the table's folder, and statistics files.

    Raises:
        StorageError: the storage does not answer.
    """
    if size := heavy_metadata_bytes(table.metadata_location, table.storage):
        yield Finding("G004", table.metadata_location, f"has {format_size(size)}")
    yield from _log(table)
    yield from _neighbours(table)
    yield from _statistics(table)


@dataclass(frozen=True, slots=True)
class Outside(PlainData):
    """Files that are in no folder of a table: the number of their entries, and the first one."""

    count: int = 0
    first: str = ""

    @classmethod
    def of(cls, paths: pa.ChunkedArray, roots: Sequence[str]) -> Outside:
        """Return those among some locations.

        Args:
            paths: the locations.
            roots: the table's folders (`root_prefixes`).
        """
        normal = normalize_locations(paths)
        outside = normal
        for root in roots:
            outside = outside.filter(pc.invert(pc.starts_with(outside, root)))
        return cls(len(outside), outside[0].as_py() if len(outside) else "")

    def __add__(self, other: Outside) -> Outside:
        return Outside(self.count + other.count, self.first or other.first)

    def findings(self, table: Table) -> Iterator[Finding]:
        """Yield one finding about all of them."""
        if self.count:
            text = f"{self.count:,} entries name files outside the table's folders, the first is {self.first}"
            yield Finding("G006", table.identifier, text)


def root_prefixes(table: Table) -> list[str]:
    """Return a table's folders as prefixes of normalized locations."""
    roots = normalize_locations(pa.array(table.roots, pa.string())).to_pylist()
    return [root.rstrip("/") + "/" for root in roots]


def _log(table: Table) -> Iterator[Finding]:
    """Check that the metadata files of the log exist, and that the newest is of the same table."""
    places = [item.metadata_file for item in table.metadata.metadata_log]
    stored = table.storage.look_up(places)
    for place in dict.fromkeys(places):
        if stored[place] is None:
            yield Finding("G002", place, "does not exist, or is a link; the metadata log names it")
    if not places or stored[places[-1]] is None:
        return
    try:
        with catalog_errors(places[-1], table.catalog):
            before = read_metadata(table.storage, places[-1])
    except (BadInputError, RefusedError) as error:
        text = error.message.removeprefix(f"the metadata of {places[-1]} ")
        yield Finding("G003", places[-1], text)
        return
    own = table.metadata.table_uuid
    if before.table_uuid != own:
        text = f"has the table UUID {before.table_uuid}, the table has {own}"
        yield Finding("G003", places[-1], text)


def _neighbours(table: Table) -> Iterator[Finding]:
    names = names_of_table(
        table.catalog, table.metadata, table.metadata_location, table.storage, table.identifier
    )
    if names:
        shown = ", ".join(names[:_SHOWN])
        yield Finding("G005", table.metadata.location, f"is also the folder of {shown}")


def _statistics(table: Table) -> Iterator[Finding]:
    metadata = table.metadata
    known = {item.snapshot_id for item in metadata.snapshots}
    for item in (*metadata.statistics, *metadata.partition_statistics):
        place = item.statistics_path
        if item.snapshot_id not in known:
            yield Finding("S001", place, f"snapshot {item.snapshot_id} does not exist")
        try:
            size = table.storage.size(place)
        except BadInputError as error:
            yield Finding("S002", place, error.message)
            continue
        if size != item.file_size_in_bytes:
            text = f"has {size} bytes, the metadata declares {item.file_size_in_bytes}"
            yield Finding("S002", place, text)
            continue
        try:
            if isinstance(item, StatisticsFile):
                _check_blobs(table, item)
            elif isinstance(item, PartitionStatisticsFile):
                check_statistics_columns(table.storage, item)
        except (BadInputError, RefusedError) as error:
            yield Finding("S003", place, error.message)


def _check_blobs(table: Table, item: StatisticsFile) -> None:
    """Compare a statistics file's footer with the blobs that the metadata declares.

    Raises:
        CorruptFileError: it is not a Puffin file, or has other blobs.
    """
    footer = _footer(table, item)
    if footer is None:
        return
    blobs = footer.get("blobs") if isinstance(footer, dict) else None
    if not isinstance(blobs, list) or not all(isinstance(blob, dict) for blob in blobs):
        raise CorruptFileError("its footer does not list blobs")
    found = sorted(_identity(blob) for blob in blobs)
    declared = sorted(
        _identity(blob.model_dump(mode="json", by_alias=True)) for blob in item.blob_metadata
    )
    if found != declared:
        raise CorruptFileError(
            f"has {len(found)} blobs, which differ from the {len(declared)} that the metadata declares"
        )
    for blob in blobs:
        start, length = blob.get("offset"), blob.get("length")
        ends = item.file_size_in_bytes - item.file_footer_size_in_bytes
        if not (isinstance(start, int) and isinstance(length, int) and 0 <= start <= ends - length):
            raise CorruptFileError("a blob ends after the footer begins")


def _footer(table: Table, item: StatisticsFile) -> Any:
    """Return a Puffin file's footer; None if it is compressed."""
    size, place = item.file_footer_size_in_bytes, item.statistics_path
    if not _ENDING.size + len(MAGIC) <= size <= item.file_size_in_bytes:
        raise CorruptFileError(f"the metadata declares a footer of {size} bytes")
    data = table.storage.read_part(place, item.file_size_in_bytes - size, size)
    if len(data) != size:
        raise CorruptFileError("ends before its footer")
    length, flags, magic = _ENDING.unpack(data[-_ENDING.size :])
    if magic != MAGIC or not data.startswith(MAGIC):
        raise CorruptFileError("is not a Puffin file, or has a footer of another size")
    if length != size - _ENDING.size - len(MAGIC):
        raise CorruptFileError(f"its footer has {length} bytes, the metadata declares {size}")
    if flags[0] & _COMPRESSED:
        return None
    try:
        return json.loads(data[len(MAGIC) : -_ENDING.size])
    except (ValueError, RecursionError) as error:
        raise CorruptFileError("its footer is not JSON") from error


def _identity(blob: Mapping[str, Any]) -> str:
    keys = ("type", "snapshot-id", "sequence-number", "fields")
    return json.dumps([blob.get(key) for key in keys])
