"""Read manifest lists and manifests from storage, many at a time.

A file must have the length that the referring file declares: an Avro file that is cut at the end of a block
is a valid shorter one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.arrow import one_array, release_memory
from lake.core.base.errors import BadInputError, CorruptFileError, RefusedError
from lake.core.io.avro.container import Block, Container, read_container, runs
from lake.core.io.avro.decode import layout_of
from lake.core.io.objects.waits import answer_of
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.io.storage.storage import Storage
from lake.core.io.work_ahead import ReadingThreads, computed
from lake.core.table.manifests.decode import (
    Manifest,
    Opened,
    decode_entries,
    decode_manifest_rows,
    open_manifest,
)
from lake.core.table.manifests.schemas import (
    ENTRY_COLUMNS,
    MANIFEST_SCHEMA,
    unknown_entry_fields,
    unknown_manifest_fields,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

# Manifests are decoded together up to this size; from this total size on, the work is divided among threads.
_WINDOW_BYTES = 8 * 1024 * 1024
_SHARED_BYTES = 1024 * 1024
# Manifests that are fetched and decoded together if their entries are not kept.
_STREAMED_BYTES = 4 * 1024 * 1024
# Entries without metrics have fewer compressed bytes than these, but take as much memory as others of this size.
_ENTRY_BYTES = 100
# Less than the 32-bit offsets of strings in one batch can address.
_DECODED_BYTES = 256 * 1024 * 1024
_COUNTS = tuple(f"{name}_files_count" for name in ("added", "existing", "deleted"))
# Threads that read files ahead: from a store, whose answers take long, and from a disk, where more of them only wait
# for one another.
_FETCH_THREADS, _DISK_THREADS = 64, 4
_LISTS_AT_ONCE = 256
# At most this number of files is read by one thread, if they are on a disk: to start another one takes longer.
_FEW = 16
_SHOWN = 10


def read_manifest_list(storage: Storage, location: str, *, rewritten: bool = False) -> pa.Table:
    """Return a manifest list's rows as `MANIFEST_COLUMNS`.

    Args:
        storage: the storage that contains the list.
        location: the list's location.
        rewritten: its rows will be written again, and nothing else reveals a wrong byte in a name: make sure of its
            bytes.

    Raises:
        CorruptFileError: the file is damaged, or its bytes differ between two reads.
        RefusedError: its rows are to be written again, and have fields that would be lost.
        NotFoundError: the file does not exist.
    """
    found = storage.built_from(location, "list", _list_in, certain=rewritten)
    if rewritten:
        layout = layout_of(found.container.schema_json, frozenset(), name=location)
        _refuse_unknown(location, unknown_manifest_fields(layout.columns))
    if found.rows is None:
        found.rows = _rows_of([found.container])
    return found.rows


@dataclass(slots=True)
class _List:
    """A manifest list with all rows in one block, and the rows once they are decoded."""

    container: Container
    rows: pa.Table | None = None


def _list_of(storage: Storage, location: str, *, is_kept: bool) -> _List:
    if is_kept:
        return storage.built_from(location, "list", _list_in)
    return _list_in(storage.read(location), location)[0]


def _list_in(data: bytes, location: str) -> tuple[_List, int]:
    container = read_container(data, name=location)
    joined = b"".join(block.data for block in container.blocks)
    container = replace(container, blocks=(Block(container.objects, joined),))
    # The rows take about as many bytes as their encoding.
    return _List(container), _header_bytes(container) + 2 * len(joined)


def _header_bytes(container: Container) -> int:
    return sum(map(len, container.metadata.values()))


def _refuse_unknown(location: str, fields: Sequence[str]) -> None:
    if fields:
        raise RefusedError(
            f"{location} has unknown fields, which lake would lose: {', '.join(fields[:_SHOWN])}",
            hint="commit to the table with the engine that wrote them",
        )


class ListAdditions(NamedTuple):
    """What some manifest lists add to the lists before them.

    Args:
        locations: the lists' locations.
        inherited: how many rows each has in common with the list before it: all rows of that list, or 0.
        sizes: how many other rows each has.
        rows: the other rows of all (`MANIFEST_COLUMNS`), concatenated.
    """

    locations: Sequence[str]
    inherited: Sequence[int]
    sizes: Sequence[int]
    rows: pa.Table


def read_list_additions(
    storage: Storage, locations: Sequence[str], unreadable: list[str] | None = None
) -> Iterator[ListAdditions]:
    """Yield what each list adds to the list before it, some lists at a time.

    Most commits write all rows of their parent's list again, before or after their own. Such rows have the same
    bytes in both lists, so they are compared and not decoded: n commits cost n rows, and not n²/2.

    Args:
        storage: the storage that contains the lists.
        locations: their locations, in the order of the commits: in another order more rows are decoded.
        unreadable: receives the locations of lists that cannot be read; None to stop at the first one.

    Raises:
        CorruptFileError: a list is damaged, or names a manifest twice.
        NotFoundError: a list does not exist.
    """
    chain = _Chain()
    with _fetchers(locations) as fetchers:
        for batch in runs(locations, lambda _: 1, _LISTS_AT_ONCE):
            try:
                found = _additions(fetchers, storage, batch, chain)
            except BadInputError:
                if unreadable is None:
                    raise
                chain = _Chain()
                found = _each_alone(storage, batch, unreadable)
            yield found


@dataclass(slots=True)
class _Chain:
    """The last list that was read, and the normalized names of its manifests."""

    last: Container | None = None
    names: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


def _additions(
    fetchers: ReadingThreads, storage: Storage, batch: Sequence[str], chain: _Chain
) -> ListAdditions:
    rests: list[_List] = []
    inherited: list[int] = []
    # A long history would leave no room for manifests among what is kept.
    read = partial(_list_of, storage, is_kept=len(batch) <= _FEW)
    # Long lists inflate to much more memory than what is kept of them.
    for part in runs(batch, lambda _: 1, _FETCH_THREADS):
        lists: Iterable[_List] = (
            answer_of(fetchers.submit(list, map(read, part)))
            if _are_few(part)
            else fetchers.map(read, part)
        )
        for found in lists:
            opened = found.container
            rest = None if chain.last is None else _without_rows_of(chain.last, opened)
            inherited.append(0 if chain.last is None or rest is None else chain.last.objects)
            rests.append(found if rest is None else _List(rest))
            chain.last = opened
    sizes = [item.container.objects for item in rests]
    additions = ListAdditions(batch, inherited, sizes, _decoded_in_order(rests))
    chain.names = _checked_names(additions, chain.names)
    return additions


def _fetchers(places: Sequence[str]) -> ReadingThreads:
    """Return threads that read files of a table, all of which are usually where the first one is."""
    on_disk = bool(places) and locations.parse(places[0]).is_local
    return ReadingThreads(_DISK_THREADS if on_disk else _FETCH_THREADS)


def _are_few(places: Sequence[str]) -> bool:
    """Whether files are so few, and on a disk, that one thread reads them."""
    return len(places) <= _FEW and all(locations.parse(place).is_local for place in places)


def _each_alone(storage: Storage, batch: Sequence[str], unreadable: list[str]) -> ListAdditions:
    """Read lists of which at least one cannot be read, each as if there were no list before it."""
    found: dict[str, pa.Table] = {}
    for location in batch:
        try:
            found[location] = read_manifest_list(storage, location)
        except BadInputError:
            unreadable.append(location)
    rows = pa.concat_tables([MANIFEST_SCHEMA.empty_table(), *found.values()])
    sizes = [table.num_rows for table in found.values()]
    return ListAdditions(list(found), [0] * len(found), sizes, rows)


def _without_rows_of(previous: Container, container: Container) -> Container | None:
    """Return a list without the rows of the one before it; None if it does not begin or end with all of them.

    Both have one block.

    Records have no delimiters. But decoding is deterministic: bytes that are some records of one schema in one list
    are the same records at the beginning of another; and if what precedes them are records too, then they are
    records at the end of it.
    """
    old, new = (bytes(item.blocks[0].data) for item in (previous, container))
    objects = container.objects - previous.objects
    if previous.schema_json != container.schema_json or objects < 0 or not old:
        return None
    if new.startswith(old):
        rest = new[len(old) :]
    elif new.endswith(old):
        rest = new[: -len(old)]
    else:
        return None
    if bool(rest) != bool(objects):
        return None
    return replace(container, blocks=(Block(objects, rest),) if objects else ())


def _decoded_in_order(lists: Sequence[_List]) -> pa.Table:
    """Decode lists, those with the same layout together, and return their rows in the lists' order."""
    alike: dict[bytes, list[int]] = {}
    for number, item in enumerate(lists):
        if item.rows is None:
            alike.setdefault(item.container.schema_json, []).append(number)
    parts: list[pa.Table] = [
        MANIFEST_SCHEMA.empty_table() if item.rows is None else item.rows for item in lists
    ]
    for numbers in alike.values():
        for run in runs(numbers, lambda number: lists[number].container.size, _WINDOW_BYTES):
            remaining = iter(run)
            for sizes, rows in _decoded_lists([lists[number].container for number in run]):
                combined, begin = rows.combine_chunks(), 0
                for size in sizes:
                    parts[next(remaining)] = combined.slice(begin, size)
                    begin += size
    return pa.concat_tables(parts)


def _checked_names(found: ListAdditions, names: pa.Array) -> pa.Array:
    """Check that no list names a manifest twice, which may hide that another is missing.

    Args:
        found: what the lists add.
        names: the normalized names of the manifests of the list before the first one.

    Returns:
        the normalized names of the manifests of the last list.
    """
    if found.inherited[0] == 0:
        names = names.slice(0, 0)
    # All lists of a chain, in which each begins or ends with the one before it, must add different names.
    chains = np.cumsum(np.asarray(found.inherited) == 0)
    owners = np.concatenate((np.zeros(len(names), np.int64), np.repeat(chains, found.sizes)))
    spelled = one_array(found.rows["manifest_path"]).dictionary_encode()
    normal = normalize_locations(spelled.dictionary).take(spelled.indices)
    every = pa.concat_arrays([names, normal])
    codes = every.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first = np.unique(owners * (len(every) + 1) + codes, return_index=True)
    if len(first) != len(every):  # check: list-not-repeated
        twice = np.setdiff1d(np.arange(len(every)), first)[0] - len(names)
        number = np.searchsorted(np.cumsum(found.sizes), twice, side="right")
        raise CorruptFileError(f"{found.locations[number]} names a manifest twice")
    return every.filter(pa.array(owners == chains[-1]))


def _decoded_lists(group: Sequence[Container]) -> Iterator[tuple[list[int], pa.Table]]:
    try:
        rows = _rows_of(group)
    except BadInputError:
        if len(group) == 1:
            raise
        # One of them is damaged: decode each separately, so that the error names it.
        for container in group:
            yield from _decoded_lists([container])
    else:
        yield [container.objects for container in group], rows


def _rows_of(lists: Sequence[Container]) -> pa.Table:
    """Decode lists with the same layout; a list that names a manifest twice may lack another one."""
    blocks = [block for container in lists for block in container.blocks]
    rows = decode_manifest_rows(lists[0].schema_json, blocks, name=lists[0].name)
    owners = np.repeat(np.arange(len(lists)), [container.objects for container in lists])
    # Many lists contain the same names: each distinct name is checked once.
    names = one_array(rows["manifest_path"]).dictionary_encode()
    spelled = normalize_locations(names.dictionary).dictionary_encode().indices.to_numpy()
    named = owners * (rows.num_rows + 1) + spelled[names.indices.to_numpy()]
    if len(np.unique(named)) != rows.num_rows:  # check: manifest-named-once
        raise CorruptFileError(f"{lists[0].name} names a manifest twice")
    return rows


def read_manifest(
    storage: Storage,
    manifest: Manifest,
    metadata: TableMetadata,
    *,
    columns: Collection[str] | None = None,
    live_only: bool = False,
    rewritten: bool = False,
) -> pa.Table:
    """Return one manifest's entries; see `read_manifests`.

    Args:
        storage: the storage that contains the manifest.
        manifest: its row in the manifest list.
        metadata: the table's metadata, for specs and schemas.
        columns: the `ENTRY_COLUMNS` to decode; None for all.
        live_only: leave out entries of deleted files.
        rewritten: the entries will be written again.
    """
    opened = _open(storage, manifest, rewritten=rewritten)
    return decode_entries([opened], metadata, _wanted(columns), live_only=live_only)


def read_manifests(  # noqa: PLR0913 - each option is used alone
    storage: Storage,
    manifests: pa.Table,
    metadata: TableMetadata,
    *,
    columns: Collection[str] | None = None,
    live_only: bool = False,
    fields: Collection[int] | None = None,
    rewritten: bool = False,
    threads: int | None = None,
    choose: Callable[[int, pa.Table], pa.Table] | None = None,
    headers: dict[str, Mapping[str, bytes]] | None = None,
) -> dict[int, pa.Table]:
    """Return the entries of many manifests, by partition spec id.

    Every table has the chosen `ENTRY_COLUMNS`, in their order, then ``spec_id`` and
    ``manifest_path``. Snapshot ids, sequence numbers and row ids are inherited as specified.

    Args:
        storage: the storage that contains the manifests.
        manifests: their rows in the manifest list (`MANIFEST_COLUMNS`).
        metadata: the table's metadata, for specs and schemas.
        columns: the `ENTRY_COLUMNS` to decode; None for all.
        live_only: leave out entries of deleted files.
        fields: the ids of the columns whose metrics are returned; None for all.
        rewritten: the entries will be written again.
        threads: the number of threads that decode; None for one per processor. One thread is for callers that read
            manifests in threads of their own, a few at a time: free memory is kept for the next call.
        choose: returns the entries, of some of one spec, that are kept, and may drop columns; called by one thread at
            a time.
        headers: receives the header of each manifest, by location; None to leave them out.

    Raises:
        CorruptFileError: a file is damaged, has another length than the list declares, or other
            numbers of entries or rows.
        NotFoundError: a manifest or a partition spec is missing.
        RefusedError: entries are to be written again, and have fields that would be lost.
    """
    rows = manifests.to_pylist()
    workers = threads or os.cpu_count() or 1
    weights = [weight_of(row) for row in rows]
    # With room for one more: otherwise what remains is read after all others, by one thread.
    share = sum(weights) // workers + max(weights, default=0) + 1
    windows = list(runs(rows, weight_of, min(_WINDOW_BYTES, max(_SHARED_BYTES, share))))
    choosing = Lock()
    wanted = _wanted(columns)

    def read(opened: Sequence[Opened]) -> Iterator[tuple[int, pa.Table]]:
        if headers is not None:
            headers.update((file.path, file.container.metadata) for file in opened)
        found = _read_window(opened, metadata, wanted, live_only=live_only, fields=fields)
        for spec_id, table in found:
            kept = table
            if choose is not None:
                with choosing:
                    kept = choose(spec_id, table)
            yield spec_id, kept

    tables: dict[int, list[pa.Table]] = {}
    # What few entries take is not worth a search of all free memory.
    releases = threads is None and sum(weights) > _SHARED_BYTES
    found = _in_threads(storage, windows, read, workers, rewritten=rewritten, releases=releases)
    for spec_id, table in found:
        tables.setdefault(spec_id, []).append(table)
    return {spec_id: joined_entries(parts) for spec_id, parts in tables.items()}


def stream_manifests(
    storage: Storage,
    manifests: pa.Table,
    metadata: TableMetadata,
    *,
    columns: Collection[str] | None = None,
    live_only: bool = False,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the entries of many manifests in their order, some of one partition spec id at a time.

    Few of them are in memory at once; see `read_manifests` for the columns and errors.

    Args:
        storage: the storage that contains the manifests.
        manifests: their rows in the manifest list (`MANIFEST_COLUMNS`).
        metadata: the table's metadata, for specs and schemas.
        columns: the `ENTRY_COLUMNS` to decode; None for all.
        live_only: leave out entries of deleted files.
    """
    wanted = _wanted(columns)

    def read(opened: Sequence[Opened]) -> Iterator[tuple[int, pa.Table]]:
        return _read_window(opened, metadata, wanted, live_only=live_only, fields=None)

    windows = list(runs(manifests.to_pylist(), weight_of, _STREAMED_BYTES))
    yield from _in_threads(storage, windows, read, os.cpu_count() or 1, releases=False)


def _in_threads(
    storage: Storage,
    windows: Sequence[list[Manifest]],
    read: Callable[[Sequence[Opened]], Iterator[tuple[int, pa.Table]]],
    workers: int,
    *,
    rewritten: bool = False,
    releases: bool = True,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the entries of windows of manifests in their order; threads read and decode some of them ahead."""
    if releases:
        release_memory()
    with _fetchers([row["manifest_path"] for window in windows[:1] for row in window]) as fetchers:

        def work(window: list[Manifest]) -> list[tuple[int, pa.Table]]:
            each = map if _are_few([row["manifest_path"] for row in window]) else fetchers.map
            opened = each(partial(_open, storage, rewritten=rewritten), window)
            found = list(read(list(opened)))
            # The memory of decoding is several times that of its result, and is kept for each thread otherwise.
            if releases:
                release_memory()
            return found

        for found in computed(work, windows, workers):
            yield from found


def weight_of(manifest: Manifest) -> int:
    """Return the bytes of a manifest for the division of work: entries that compress well take as much memory."""
    entries = sum(manifest[name] or 0 for name in _COUNTS)
    return max(int(manifest["manifest_length"]), entries * _ENTRY_BYTES)


def _open(storage: Storage, manifest: Manifest, *, rewritten: bool) -> Opened:
    path = manifest["manifest_path"]
    if manifest.get("key_metadata") is not None:
        raise BadInputError(f"{path} is encrypted, which lake does not read")
    length, container = storage.built_from(path, "manifest", partial(_manifest_in, manifest))
    _require_length(manifest, length)
    opened = open_manifest(manifest, container)
    if rewritten:
        _refuse_unknown(path, unknown_entry_fields(opened.layout.columns))
    return opened


def _manifest_in(
    manifest: Manifest, data: bytes, location: str
) -> tuple[tuple[int, Container], int]:
    _require_length(manifest, len(data))
    container = read_container(data, name=location)
    return (len(data), container), _header_bytes(container) + container.size


def _require_length(manifest: Manifest, length: int) -> None:
    declared = manifest["manifest_length"]
    if length != declared:  # check: manifest-length
        raise CorruptFileError(
            f"{manifest['manifest_path']} has {length} bytes, but the table's metadata declares {declared}"
        )


def _read_window(
    opened: Sequence[Opened],
    metadata: TableMetadata,
    wanted: Sequence[str],
    *,
    live_only: bool,
    fields: Collection[int] | None,
) -> Iterator[tuple[int, pa.Table]]:
    """Decode manifests with the same spec and layout together, so that small ones cost as little as large ones."""
    specs: dict[int, list[Opened]] = {}
    for file in opened:
        specs.setdefault(file.manifest["partition_spec_id"], []).append(file)
    for spec_id, files in specs.items():
        for part in runs(files, lambda file: file.container.size, _DECODED_BYTES):
            layouts: dict[str, list[Opened]] = {}
            for file in part:
                layouts.setdefault(file.layout.schema_json, []).append(file)
            tables = [
                decode_entries(group, metadata, wanted, live_only=live_only, fields=fields)
                for group in layouts.values()
            ]
            yield spec_id, tables[0] if len(tables) == 1 else _in_order(tables, part)


def _in_order(tables: Sequence[pa.Table], files: Sequence[Opened]) -> pa.Table:
    """Return entries in the order of their manifests: plans must not depend on which are decoded together."""
    entries = joined_entries(tables)
    names = pa.array([file.path for file in files], pa.string())
    owners = pc.index_in(entries["manifest_path"].cast(pa.string()), value_set=names)
    return entries.take(pa.array(np.argsort(owners.to_numpy(), kind="stable")))


def _wanted(columns: Collection[str] | None) -> list[str]:
    if columns is None:
        return list(ENTRY_COLUMNS)
    unknown = set(columns) - set(ENTRY_COLUMNS)
    if unknown:
        raise ValueError(f"not columns of manifest entries: {sorted(unknown)}")
    return [column for column in ENTRY_COLUMNS if column in columns]


def joined_entries(tables: Sequence[pa.Table]) -> pa.Table:
    """Return entries of one spec that were read apart from each other."""
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables).unify_dictionaries()


def live_manifests(manifests: pa.Table) -> pa.Table:
    """Return the manifests that may contain live entries."""
    live = pc.add(
        pc.fill_null(manifests["added_files_count"], 1),
        pc.fill_null(manifests["existing_files_count"], 0),
    )
    return manifests.filter(pc.greater(live, 0))
