"""Compare the files that manifests reference with those in the storage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.io.storage.file_names import FileNames
from lake.core.maintain.checking.findings import Finding
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

_AT_ONCE = 10_000


class StoredFiles:
    """The sizes of a table's files, as the storage reports them.

    In an object store, the table's folders are listed once, because one request lists many objects. Files that the
    listing lacks or shows with another size are looked up one by one: they may be elsewhere, or new. On a local disk,
    each file is looked up.
    """

    def __init__(self, table: Table) -> None:
        """Take the folders of a table; nothing is listed yet."""
        self._storage = table.storage
        self._roots = table.roots
        self._names = FileNames()
        self._listed: pa.Table | None = None

    def findings(self, entries: pa.Table) -> Iterator[Finding]:
        """Yield the files that are missing, or have another size than their entries say.

        Args:
            entries: entries of live files, with the columns `file_path`, `file_size_in_bytes`, `content` and
                `manifest_path`.

        Raises:
            StorageError: the storage does not answer.
        """
        suspects = entries.filter(pc.invert(self._as_listed(entries)))
        for start in range(0, suspects.num_rows, _AT_ONCE):
            yield from self._looked_up(suspects.slice(start, _AT_ONCE))

    def _as_listed(self, entries: pa.Table) -> pa.Array:
        """Return which files were listed with the right size."""
        if all(locations.parse(root).is_local for root in self._roots):
            return pa.array(np.zeros(entries.num_rows, np.bool_))
        if self._listed is None:
            self._listed = self._list()
        own = self._names.of(entries["file_path"])
        at = pc.index_in(own, value_set=self._listed["name"].combine_chunks())
        sizes = self._listed["bytes"].combine_chunks().take(at)
        same = pc.equal(sizes, entries["file_size_in_bytes"].combine_chunks())
        return pc.fill_null(same, fill_value=False)

    def _list(self) -> pa.Table:
        parts = []
        for root in self._roots:
            found = self._storage.find_files(root)
            paths = pa.array([file.location for file in found], pa.string())
            sizes = pa.array([file.length for file in found], pa.int64())
            parts.append(pa.table({"name": self._names.of(paths), "bytes": sizes}))
        return pa.concat_tables(parts)

    def _looked_up(self, suspects: pa.Table) -> Iterator[Finding]:
        rows = suspects.select(["file_path", "file_size_in_bytes", "content", "manifest_path"])
        stored = self._storage.look_up(rows["file_path"].to_pylist())
        for row in rows.to_pylist():
            path, size = row["file_path"], row["file_size_in_bytes"]
            file = stored[path]
            if file is None:
                code = "F001" if row["content"] == DATA else "F002"
                text = f"does not exist, or is a link; {row['manifest_path']} names it"
                yield Finding(code, path, text)
            elif file.length != size:
                text = f"has {file.length} bytes, {row['manifest_path']} says {size}"
                yield Finding("F003", path, text)
