"""The files that manifests name, as hashes or as rows: read by this process or by the tasks of an engine."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import BadInputError, EngineError
from lake.core.base.options import Option
from lake.core.base.plain import Codec, PlainData, base64_text
from lake.core.data.sorting.spill_file import BatchSpool
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.file_names import FileNames, local_folders
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.batches import (
    EngineOf,
    PackedTable,
    each_batch,
    in_this_process,
    metadata_of,
)
from lake.core.transaction.garbage.hash_file import HashCollector, Hashes
from lake.core.transaction.garbage.name_set import NameSet, name_hashes

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage

DATA_FILE = "data_files"
POSITION_DELETE = "position_delete_files"
EQUALITY_DELETE = "equality_delete_files"
FILES = pa.schema([("path", pa.string()), ("kind", pa.string()), ("bytes", pa.int64())])
_CONTENT_KINDS = pa.array([DATA_FILE, POSITION_DELETE, EQUALITY_DELETE])
_COLUMNS = ("status", "content", "file_path", "file_size_in_bytes")
# The rows of files that stay in memory.
_FEW_BYTES = 8 * 1024 * 1024
_PREFIX = r"^[a-z][a-z0-9+.-]*://[^/]*"
_HASHES = Codec(
    lambda hashes: base64_text(hashes.tobytes()),
    lambda text: np.frombuffer(base64.b64decode(text), np.uint64),
)


@dataclass(frozen=True, slots=True)
class NamedManifests(PlainData):
    """The payload of a task: manifests, and how the files that they name are compared.

    Args:
        manifests: their rows in the manifest list (`MANIFEST_COLUMNS`).
        schemes: see `FileNames`.
        authorities: see `FileNames`.
    """

    manifests: PackedTable
    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NameHashes(PlainData):
    """Names of files as hashes.

    Args:
        names: of the names (`FileNames.of`).
        paths: of the names in stores, without scheme and authority.
        folders: the folders of those on disks, each once.
        spelled: in a task, the same folders as locations name them, and some may be one folder.
        meant: the folder that each of these is on the machine of the task.
    """

    names: Annotated[Hashes, _HASHES]
    paths: Annotated[Hashes, _HASHES]
    folders: Sequence[str]
    spelled: Sequence[str] = ()
    meant: Sequence[str] = ()

    @classmethod
    def of(cls, names: pa.Array) -> NameHashes:
        """Return names as hashes."""
        stored = names.filter(pc.invert(pc.starts_with(names, "/")))
        folders = local_folders(names).to_pylist()
        return cls(name_hashes(names), name_hashes(without_prefix(stored)), folders)


@dataclass(frozen=True, slots=True)
class NamedFiles(PlainData):
    """The live files of manifests (`FILES`), and the manifests that cannot be read."""

    files: PackedTable
    unreadable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class HeldNames:
    """The names of files that are needed, and of their folders.

    Args:
        names: the names (`FileNames.of`).
        paths: the names in stores, without scheme and authority.
        folders: the `local_folders` of the others.
    """

    names: NameSet
    paths: NameSet
    folders: pa.Array

    @classmethod
    def of(cls, *names: pa.Array) -> HeldNames:
        """Return names with their folders."""
        return cls.collected(map(NameHashes.of, names))

    @classmethod
    def collected(cls, parts: Iterable[NameHashes]) -> HeldNames:
        """Return all names of some parts, of which one at a time is in memory."""
        names, paths, folders = HashCollector(), HashCollector(), dict[str, None]()
        for part in parts:
            names.add(part.names)
            paths.add(part.paths)
            folders.update(dict.fromkeys(part.folders))
        return cls(
            NameSet.of_run(names.run()),
            NameSet.of_run(paths.run()),
            pa.array(folders, pa.string()),
        )

    @classmethod
    def joined(cls, parts: Sequence[HeldNames]) -> HeldNames:
        """Return all names of several sets."""
        folders = [part.folders for part in parts]
        return cls(
            NameSet.joined(part.names for part in parts),
            NameSet.joined(part.paths for part in parts),
            pa.concat_arrays([pa.array([], pa.string()), *folders]).unique(),
        )

    def has_paths(self, names: pa.Array) -> pa.BooleanArray:
        """Return which names are in the set, or are if scheme and authority do not count."""
        paths = without_prefix(names)
        return pc.or_(self.names.has(paths), self.paths.has(paths))


def without_prefix(names: pa.Array) -> pa.Array:
    """Return names without scheme and authority, which differ if a table is read through another address."""
    return pc.replace_substring_regex(names, _PREFIX, "")


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """Reads which files manifests name.

    Args:
        storage: the storage that contains the manifests.
        names: compares locations as files.
        engine_of: returns the engine that reads manifests of some bytes; None for this process.
    """

    storage: Storage
    names: FileNames = field(default_factory=FileNames)
    engine_of: EngineOf = in_this_process

    def held(self, metadata: TableMetadata, manifests: pa.Table) -> HeldNames:
        """Return the names of the live files of manifests.

        Raises:
            CorruptFileError: a manifest cannot be read.
            NotFoundError: one is missing.
        """
        here = partial(_hashes, self.storage, metadata, self.names)
        found = each_batch(
            self.engine_of, self.storage, manifests, metadata, here, hash_names, self._payload
        )
        return HeldNames.collected(map(self._checked, found))

    def _checked(self, found: NameHashes) -> NameHashes:
        """Check that the folders that a task saw are those of this machine: links may differ."""
        here = self.names.of(pa.array(found.spelled, pa.string())).to_pylist()
        for spelled, own, other in zip(found.spelled, here, found.meant, strict=True):
            if own != other:  # check: folders-of-tasks
                raise EngineError(
                    f"{spelled} is {own} on this machine and {other} on one of Spark's",
                    hint=f"read the manifests in this process: {Option.ENGINE} inline",
                )
        return found

    def files(
        self, metadata: TableMetadata, manifests: pa.Table
    ) -> tuple[BatchSpool, tuple[str, ...]]:
        """Return the live files of manifests (batches of `FILES`), and the manifests that cannot be read."""
        here = partial(_files, self.storage, metadata)
        spool = BatchSpool("the files of manifests", few_bytes=_FEW_BYTES)
        unreadable: list[str] = []
        for found in each_batch(
            self.engine_of, self.storage, manifests, metadata, here, list_files, self._payload
        ):
            unreadable += found.unreadable
            for batch in found.files.to_batches():
                spool.write(batch)
        return spool, tuple(unreadable)

    def _payload(self, manifests: pa.Table) -> NamedManifests:
        return NamedManifests(manifests, self.names.schemes, self.names.authorities)


def hash_names(batch: NamedManifests, context: TaskContext) -> Iterator[NameHashes]:
    """Yield the names of the live files of manifests, in a task."""
    names = FileNames(batch.schemes, batch.authorities)
    metadata = metadata_of(context)
    yield from _hashes(context.storage, metadata, names, batch.manifests, threads=1, spelled=True)


def list_files(batch: NamedManifests, context: TaskContext) -> Iterator[NamedFiles]:
    """Yield the live files of manifests, in a task."""
    yield from _files(context.storage, metadata_of(context), batch.manifests, threads=1)


def _hashes(
    storage: Storage,
    metadata: TableMetadata,
    names: FileNames,
    manifests: pa.Table,
    *,
    threads: int | None = None,
    spelled: bool = False,
) -> Iterator[NameHashes]:
    """Hash the paths of live files while they are read: together they take much more memory than their hashes."""
    found: list[NameHashes] = []

    def hashed(_: int, entries: pa.Table) -> pa.Table:
        part = NameHashes.of(names.of(entries["file_path"]))
        if spelled:
            folders = local_folders(normalize_locations(entries["file_path"]))
            meant = names.of(folders).to_pylist()
            part = replace(part, spelled=folders.to_pylist(), meant=meant)
        found.append(part)
        return entries.select([])

    columns = ("status", "file_path")
    read_manifests(
        storage,
        manifests,
        metadata,
        columns=columns,
        live_only=True,
        threads=threads,
        choose=hashed,
    )
    yield from found


def _files(
    storage: Storage, metadata: TableMetadata, manifests: pa.Table, *, threads: int | None = None
) -> Iterator[NamedFiles]:
    try:
        yield NamedFiles(_entries(storage, metadata, manifests, threads))
    except BadInputError:
        # At least one is corrupt: read them one by one.
        for index in range(manifests.num_rows):
            manifest = manifests.slice(index, 1)
            try:
                yield NamedFiles(_entries(storage, metadata, manifest, threads))
            except BadInputError:
                names = manifest["manifest_path"].to_pylist()
                yield NamedFiles(FILES.empty_table(), names)


def _entries(
    storage: Storage, metadata: TableMetadata, manifests: pa.Table, threads: int | None
) -> pa.Table:
    """Return path, kind and bytes of the live files of manifests."""
    by_spec = read_manifests(
        storage, manifests, metadata, columns=_COLUMNS, live_only=True, threads=threads
    )
    parts = [
        pa.table(
            [
                entries["file_path"],
                _CONTENT_KINDS.take(pc.cast(entries["content"], pa.int64()).combine_chunks()),
                entries["file_size_in_bytes"],
            ],
            schema=FILES,
        )
        for entries in by_spec.values()
    ]
    return pa.concat_tables([FILES.empty_table(), *parts])
