"""What a check finds in manifests, some at a time: in this process, or in the tasks of an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError, NotFoundError
from lake.core.base.plain import PlainData
from lake.core.engine.tasks import TaskContext
from lake.core.io.avro.container import runs
from lake.core.maintain.checking import entries
from lake.core.maintain.checking.findings import MOST_DESCRIBED, Finding
from lake.core.maintain.checking.manifest_headers import ManifestHeaders
from lake.core.maintain.checking.snapshot_contents import NONE, is_live, live_files
from lake.core.maintain.checking.surroundings import Outside
from lake.core.table.manifests.api import read_manifests, weight_of
from lake.core.table.manifests.batches import PackedTable, metadata_of
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage

_WINDOW_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestBatch(PlainData):
    """The payload of a task.

    Args:
        manifests: manifests that all contain data files, or all delete files, see `ManifestChecks.checked`.
        numbers: see `ManifestChecks`.
        roots: see `ManifestChecks`.
        scopes: see `ManifestChecks`.
    """

    manifests: PackedTable
    numbers: PackedTable
    roots: Sequence[str]
    scopes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedManifests(PlainData):
    """What was found in some manifests; an index is that of a manifest among all.

    Args:
        live: the live files that the table's heads may contain (`live_files`).
        entries: the number of entries.
        outside: files in no folder of the table.
        findings: what is wrong; in a task, the first ones of each code.
        hidden: the number of the others, by code.
        reused: why columns of a manifest have ids of other columns, by its index.
        unread: what is wrong with manifests that cannot be read, by their indices.
    """

    live: PackedTable
    entries: int = 0
    outside: Outside = field(default_factory=Outside)
    findings: Sequence[Finding] = ()
    hidden: Mapping[str, int] = field(default_factory=dict)
    reused: Mapping[int, str] = field(default_factory=dict)
    unread: Mapping[int, Finding] = field(default_factory=dict)


@dataclass(slots=True)
class ManifestChecks:
    """Checks manifests.

    Args:
        storage: the storage that contains them.
        metadata: the table's metadata; in a task, without its snapshots.
        numbers: the sequence numbers of its snapshots (`entries.numbers_of`).
        roots: the table's folders as prefixes of normalized locations.
        scopes: whether partitions are compared, because the table has delete files.
        more: columns to read besides those of the metadata level.
        files: checks the files of live entries of one spec; None to look at none.
        all_live: return live files of all manifests, and not only of those of heads.
        threads: see `read_manifests`.
    """

    storage: Storage
    metadata: TableMetadata
    numbers: pa.Table
    roots: Sequence[str]
    scopes: bool
    more: Sequence[str] = ()
    files: Callable[[pa.Table, int], Iterator[Finding]] | None = None
    all_live: bool = False
    threads: int | None = None
    _entries: entries.EntryChecks = field(init=False)
    _headers: ManifestHeaders = field(init=False)

    def __post_init__(self) -> None:
        self._entries = entries.EntryChecks(self.metadata, self.numbers)
        self._headers = ManifestHeaders(self.metadata)

    def checked(self, manifests: pa.Table) -> Iterator[CheckedManifests]:
        """Yield what is wrong in manifests, for windows of a bounded size.

        Args:
            manifests: their rows in lists (`MANIFEST_COLUMNS`), with `index`, their index among all, and `of_heads`,
                whether the head of a branch or tag has them. All contain data files, or all delete files.
        """
        rows = manifests.to_pylist()
        for window in runs(range(len(rows)), lambda at: weight_of(rows[at]), _WINDOW_BYTES):
            own = rows[window[0] : window[-1] + 1]
            try:
                yield self._read(manifests.slice(window[0], len(own)), own)
            except BadInputError:
                # At least one is damaged: read each separately, so that the finding names it.
                for at in window:
                    yield self._alone(manifests.slice(at, 1), rows[at])

    def _alone(self, manifest: pa.Table, row: Mapping[str, Any]) -> CheckedManifests:
        try:
            return self._read(manifest, [row])
        except BadInputError as error:
            code = "M001" if isinstance(error, NotFoundError) else "M002"
            found = Finding(code, row["manifest_path"], error.message)
            return CheckedManifests(live=NONE, unread={row["index"]: found})

    def _read(self, manifests: pa.Table, rows: Sequence[Mapping[str, Any]]) -> CheckedManifests:
        of_deletes = rows[0]["content"] != DATA
        headers: dict[str, Mapping[str, bytes]] = {}
        read = read_manifests(
            self.storage,
            manifests,
            self.metadata,
            columns=(
                *entries.COLUMNS,
                *(entries.DELETE_COLUMNS if of_deletes else ()),
                *self.more,
            ),
            headers=headers,
            threads=self.threads,
        )
        found: list[Finding] = []
        reused = {}
        for row in rows:
            header = headers[row["manifest_path"]]
            found += self._headers.findings(row, header)
            if message := self._headers.reused_ids(header):
                reused[row["index"]] = message
        parts, outside = list[pa.Table](), Outside()
        names = one_array(manifests["manifest_path"])
        indices, of_heads = (one_array(manifests[name]) for name in ("index", "of_heads"))
        for spec_id, every in read.items():
            live = is_live(every)
            owners = one_array(
                pc.index_in(live["manifest_path"].cast(pa.string()), value_set=names)
            )
            found += self._entries.of_files(live)
            at = owners.to_numpy().astype(np.int64)
            found += self._entries.of_manifests(live, at, rows, spec_id)
            if of_deletes:
                found += self._entries.of_deletes(live)
            outside += Outside.of(live["file_path"], self.roots)
            if self.files is not None:
                found += self._entries.of_partitions(live, spec_id)
                found += self.files(live, spec_id)
            # Old snapshots may have many times the entries of the heads, and a filter copies all columns.
            if not self.all_live and not pc.all(of_heads).as_py():
                is_kept = of_heads.take(owners)
                live, owners = live.filter(is_kept), owners.filter(is_kept)
            numbers = indices.take(owners).to_numpy()
            parts.append(
                live_files(
                    live,
                    numbers,
                    self.metadata,
                    spec_id,
                    of_deletes=of_deletes,
                    scopes=self.scopes,
                )
            )
        return CheckedManifests(
            live=pa.concat_tables(parts).combine_chunks() if parts else NONE,
            entries=sum(every.num_rows for every in read.values()),
            outside=outside,
            findings=found,
            reused=reused,
        )


def check_manifests(batch: ManifestBatch, context: TaskContext) -> Iterator[CheckedManifests]:
    """Yield what is wrong in manifests, in a task."""
    checks = ManifestChecks(
        context.storage,
        metadata_of(context),
        batch.numbers,
        batch.roots,
        batch.scopes,
        threads=1,
    )
    for found in checks.checked(batch.manifests):
        context.check_cancelled()
        described, hidden = [], Counter[str]()
        for item in found.findings:
            hidden[item.code] += 1
            if hidden[item.code] <= MOST_DESCRIBED:
                described.append(item)
        hidden.subtract(item.code for item in described)
        yield replace(found, findings=described, hidden=+hidden)
