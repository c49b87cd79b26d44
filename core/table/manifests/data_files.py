"""The description of one data or delete file, as plain values that tasks receive and return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lake.core.base.plain import PlainData

DATA = 0
POSITION_DELETES = 1
EQUALITY_DELETES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile(PlainData):
    """A file of a table with the metrics that a manifest stores for it.

    `partition` has one value per field of the spec, each in Iceberg's binary single-value form (None for
    NULL), which needs no types to be serialised. Metrics are keyed by field id; bounds are single-value
    binaries too. Counts are rows, sizes are bytes.
    Format: https://iceberg.apache.org/spec/#data-file-fields and #binary-single-value-serialization.
    """

    path: str
    format: str = "PARQUET"
    spec_id: int
    partition: tuple[bytes | None, ...] = ()
    record_count: int
    size_bytes: int
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: tuple[int, ...] = ()
    sort_order_id: int | None = None
    content: int = DATA
    equality_ids: tuple[int, ...] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_bytes: int | None = None
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile(PlainData):
    """A delete file with what is needed to apply it; see `DataFile` for fields of the same name.

    `sequence_number` is its data sequence number. `referenced_data_file` is also set if the bounds of a position
    delete file name one data file only. `content_offset` and `content_size_bytes` (bytes) locate a deletion vector
    within a Puffin file.
    """

    path: str
    format: str = "PARQUET"
    content: int
    spec_id: int
    partition: tuple[bytes | None, ...] = ()
    record_count: int
    size_bytes: int
    sequence_number: int
    equality_ids: tuple[int, ...] | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_bytes: int | None = None


def stored_bytes(files: Iterable[DataFile]) -> int:
    """Return the bytes that files occupy; several entries may share one Puffin file."""
    return sum({file.path: file.size_bytes for file in files}.values())
