"""List the files below a table's folders as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property, reduce
from threading import Event
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.errors import BadInputError, RefusedError, StorageError
from lake.core.data.sorting.spill_file import BatchSpool
from lake.core.io.storage.file_names import FileNames
from lake.core.io.storage.storage import Storage
from lake.core.io.storage.store_listing import LISTING
from lake.core.maintain.orphans.inventory import read_inventory
from lake.core.table.snapshots.summary import declared_totals
from lake.core.transaction.garbage.name_set import NameSet, name_hashes

if TYPE_CHECKING:
    from lake.core.io.objects.waits import Check
    from lake.core.table.catalogs.catalog import Table

# The folder below a table's location to which files are moved.
TRASH = ".lake-trash"
_T = TypeVar("_T")
_HASH = "hash"
# Files whose sizes are looked up at once.
_LOOKED_UP = 1000


def trash_folder(location: str) -> str:
    """Return the folder of the files that were moved away, below a table's location."""
    return locations.join(location, TRASH)


class ListedFiles:
    """The files below a table's folders: on disk, with their names as hashes.

    Args:
        names: compares locations as files.
        storage: looks up the sizes and times that a listing of local folders does not contain.
    """

    def __init__(self, names: FileNames, storage: Storage) -> None:
        self._names = names
        self._storage = storage
        self._spool = BatchSpool("the listed files")
        self._has_sizes: list[bool] = []
        self._bytes = 0
        self.count = 0

    def add(self, files: pa.Table, own: pa.Array) -> None:
        """Add files (`LISTING`) with their names."""
        if not files.num_rows:
            return
        self.count += files.num_rows
        self._bytes += int(pc.sum(files["bytes"]).as_py() or 0)
        self._has_sizes.append(not files["bytes"].null_count)
        hashed = files.append_column(_HASH, pa.array(name_hashes(own)))
        self._spool.write(hashed.combine_chunks().to_batches()[0])

    def bytes_up_to(self, enough: float) -> int:
        """Return the size of all files, or of some of them that have ``enough`` bytes together."""
        total = self._bytes
        for number, has_sizes in enumerate(self._has_sizes):
            paths = [] if has_sizes else self._spool.read(number)["path"].to_pylist()
            for start in range(0, len(paths), _LOOKED_UP):
                if total >= enough:
                    return total
                found = self._storage.look_up(paths[start : start + _LOOKED_UP]).values()
                total += sum(file.length for file in found if file is not None)
        return total

    @cached_property
    def names(self) -> NameSet:
        """The names of the files."""
        return NameSet(batch[_HASH].to_numpy() for batch in self._batches())

    def without(self, held: NameSet) -> pa.Table:
        """Return the files (`LISTING`, and ``name``) whose names are not in a set.

        Local files that are gone since have no size.
        """
        parts = [LISTING.append(pa.field("name", pa.string())).empty_table()]
        for batch, has_sizes in zip(self._batches(), self._has_sizes, strict=True):
            is_loose = ~held.has_hashes(batch[_HASH].to_numpy())
            if is_loose.any():
                loose = pa.Table.from_batches([batch.select(LISTING.names)])
                loose = loose.filter(pa.array(is_loose))
                if not has_sizes:
                    loose = looked_up(self._storage, loose["path"].to_pylist())
                parts.append(loose.append_column("name", self._names.of(loose["path"])))
        return pa.concat_tables(parts).combine_chunks()

    def folders_with(self, held: NameSet) -> set[str]:
        """Return the folders (`locations.canonical`) of the files whose names are in a set."""
        found: set[str] = set()
        for batch in self._batches():
            paths = batch["path"].filter(pa.array(held.has_hashes(batch[_HASH].to_numpy())))
            found.update(pc.replace_substring_regex(paths, r"/[^/]*$", "").unique().to_pylist())
        return {locations.canonical(folder) for folder in found}

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the listed files (`LISTING`) with the hashes of their names."""
        return map(self._spool.read, range(len(self._spool)))

    def close(self) -> None:
        """Free the disk space."""
        self._spool.close()


def list_files(
    table: Table,
    more: Sequence[str],
    names: FileNames,
    inventory: str | None,
    meanwhile: Callable[[], _T],
    check: Check,
) -> tuple[ListedFiles, _T]:
    """Return the files below the table's folders and others, without those that were moved away.

    Args:
        table: the table.
        more: further folders.
        names: compares locations as files.
        inventory: an inventory that contains the folders' files. The metadata folder is listed nevertheless, as
            newer metadata references files that the inventory contains.
        meanwhile: returns what else is needed. It is called while a store is listed, and after local folders are.
        check: called again and again; raises what ends the listing.

    Raises:
        BadInputError: the inventory cannot be read, or contains no file of these folders.
        StorageError: the listing lacks the table's current metadata file, so it is not complete.
        RefusedError: the current metadata file is outside of the table's folders.
        LakeError: what ``check`` raises.
    """
    if not any(locations.within(table.metadata_location, root) for root in table.roots):
        raise RefusedError(
            f"the metadata file of {table.identifier} is outside of the table's folders: {table.metadata_location}",
            hint="the files of such a table may belong to another one; remove orphan files by hand",
        )
    folders = _outermost([*table.roots, *more])
    listed = ListedFiles(names, table.storage)
    away = names.of(pa.array([f"{trash_folder(table.metadata.location)}/"], pa.string()))[0].as_py()
    current = names.of(pa.array([table.metadata_location], pa.string()))[0]
    has_current = False

    def add(files: pa.Table, own: pa.Array) -> None:
        nonlocal has_current
        # Names, not hashes: an incomplete listing must not pass.
        has_current = has_current or bool(pc.any(pc.equal(own, current), min_count=0).as_py())
        # Most files are not even named like one that was moved away.
        if pc.any(pc.match_substring(files["path"], TRASH), min_count=0).as_py():
            stays = pc.invert(pc.starts_with(own, away))
            files, own = files.filter(stays), own.filter(stays)
        listed.add(files, own)

    beside = table.metadata_location.rpartition("/")[0]
    expected = declared_totals(table.metadata.current_snapshot())["files"] or 0
    stopped = Event()

    def list_all() -> None:
        for folder in folders if inventory is None else [beside]:
            for files in table.storage.each_batch(folder, files=expected, check=check):
                if stopped.is_set():
                    return
                check()
                add(files, names.of(files["path"]))
        if inventory is not None:
            _add_inventory(table, inventory, folders, beside, names, add, check)
        if not has_current:  # check: complete-listing
            raise StorageError(
                f"the listing of {folders[0]} lacks {table.metadata_location}",
                hint="the storage did not list all files; nothing was changed",
            )

    with ExitStack() as failed:
        failed.callback(listed.close)
        if inventory is not None or locations.parse(table.metadata_location).is_local:
            list_all()
            found = meanwhile()
        else:
            with ThreadPoolExecutor(1) as pool:
                listing = pool.submit(list_all)
                try:
                    found = meanwhile()
                    listing.result()
                finally:
                    stopped.set()
        failed.pop_all()
    return listed, found


def _outermost(folders: Sequence[str]) -> list[str]:
    """Return the folders that are not below another one, each once."""
    by_name = {locations.canonical(folder).rstrip("/"): folder for folder in reversed(folders)}
    return [
        folder
        for name, folder in by_name.items()
        if not any(name.startswith(f"{other}/") for other in by_name)
    ]


def _add_inventory(
    table: Table,
    inventory: str,
    folders: Sequence[str],
    beside: str,
    names: FileNames,
    add: Callable[[pa.Table, pa.Array], None],
    check: Check,
) -> None:
    """Add the inventory's files below the folders, except those in the metadata folder."""
    found = 0
    for files in read_inventory(table.storage, inventory):
        check()
        own = names.of(files["path"])
        kept = pc.and_not(_is_below(own, folders, names), _is_below(own, [beside], names))
        chosen = files.filter(kept)
        found += chosen.num_rows
        add(chosen, own.filter(kept))
    if not found:
        raise BadInputError(
            f"{inventory} contains no file below {folders[0]}",
            hint="choose the inventory of the bucket that contains the table",
        )


def _is_below(own: pa.Array, folders: Sequence[str], names: FileNames) -> pa.Array:
    prefixes = names.of(pa.array([f"{folder.rstrip('/')}/" for folder in folders], pa.string()))
    return reduce(pc.or_, [pc.starts_with(own, prefix) for prefix in prefixes.to_pylist()])


def looked_up(storage: Storage, paths: Iterable[str]) -> pa.Table:
    """Return files as they are now (`LISTING`); the size and the time of those that are gone are NULL."""
    found = storage.look_up(paths)
    sizes = [file and file.length for file in found.values()]
    times = [file and file.modified_ms for file in found.values()]
    return pa.table([pa.array(found, pa.string()), sizes, times], schema=LISTING)
