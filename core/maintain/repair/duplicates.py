"""Data files that a branch contains more than once, and whether one of their entries can go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import RefusedError
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.maintain.repair.facts import DuplicateFilesFacts
from lake.core.spec.types.partition_codes import partition_tuples

if TYPE_CHECKING:
    from lake.core.table.snapshots.live_files import LiveFiles

_COLUMNS = ("file_path", "file_format", "record_count", "file_size_in_bytes")
_SHOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateFiles:
    """The files of which all entries but one go.

    Args:
        paths: the files.
        entries: the number of entries that go.
        rows: the number of rows in them, with rows that deletes delete.
    """

    paths: frozenset[str] = frozenset()
    entries: int = 0
    rows: int = 0

    def __bool__(self) -> bool:
        return bool(self.paths)

    def facts(self) -> DuplicateFilesFacts:
        """Return what is dropped for the outcome."""
        return DuplicateFilesFacts(
            data_files=len(self.paths),
            entries=self.entries,
            rows_at_most=self.rows,
            paths=sorted(self.paths)[:_SHOWN],
        )


def find_duplicates(live: LiveFiles) -> DuplicateFiles:
    """Find data files with several entries.

    Raises:
        RefusedError: entries of one file differ in what readers make of them.
    """
    by_name: dict[str, list[_Entry]] = {}
    names = _names_of_duplicates(live)
    for spec_id, entries in live.by_spec.items() if len(names) else ():
        for name, entry in _entries(live, spec_id, entries, names):
            by_name.setdefault(name, []).append(entry)
    for alike in by_name.values():
        if len(set(alike)) > 1:  # check: equal-duplicates
            raise RefusedError(
                f"the entries of {alike[0].path} differ in their partition, size or deletes: it is not certain which "
                "of them is right",
                hint="roll back to an earlier snapshot, or load the rows again; nothing was changed",
            )
    return DuplicateFiles(
        paths=frozenset(alike[0].path for alike in by_name.values()),
        entries=sum(len(alike) - 1 for alike in by_name.values()),
        rows=sum((len(alike) - 1) * alike[0].records for alike in by_name.values()),
    )


class _Entry(NamedTuple):
    """What readers make of an entry; the sequence number matters only for which deletes apply."""

    path: str
    spec_id: int
    partition: tuple[Any, ...]
    format: str
    records: int
    size: int
    deletes: tuple[int, ...]


def _names_of_duplicates(live: LiveFiles) -> pa.Array:
    """Return the normalized paths that several entries have."""
    names = [normalize_locations(entries["file_path"]) for entries in live.by_spec.values()]
    counted = pc.value_counts(pa.concat_arrays([pa.array([], pa.string()), *names]))
    return counted.filter(pc.greater(counted.field("counts"), 1)).field("values")


def _entries(
    live: LiveFiles, spec_id: int, entries: pa.Table, names: pa.Array
) -> Iterator[tuple[str, _Entry]]:
    """Yield the entries of some files with the files' normalized paths."""
    normal = normalize_locations(entries["file_path"])
    chosen = np.flatnonzero(pc.is_in(normal, value_set=names))
    some = entries.take(pa.array(chosen))
    columns = [some[name].to_pylist() for name in _COLUMNS]
    partitions = partition_tuples(some["partition"])
    for place, number in enumerate(chosen.tolist()):
        path, kind, records, size = (column[place] for column in columns)
        deletes = (
            live.pairs[spec_id].ordinals(np.array([number], np.int64)).tolist()
            if live.delete_manifests.num_rows
            else ()
        )
        entry = _Entry(path, spec_id, partitions[place], kind, records, size, tuple(deletes))
        yield normal[number].as_py(), entry
