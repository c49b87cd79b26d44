"""Files that were moved away: `<location>/.lake-trash/<run>/`, with a list from which they can be moved back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.core.base import locations
from lake.core.base.clock import UUID_FORM
from lake.core.base.errors import CorruptFileError, LakeError, NotFoundError, StorageError
from lake.core.io.objects.requests import UNTRIED, ShouldContinue
from lake.core.io.storage.moves import are_equal, move
from lake.core.io.storage.storage import MAX_METADATA_BYTES, DeleteOutcome, StoredFile
from lake.core.maintain.orphans.kept_files import is_earlier_metadata
from lake.core.maintain.orphans.listing import trash_folder
from lake.core.table.metadata.files import is_metadata_name
from lake.core.transaction.garbage.nested_tables import NestedTables

if TYPE_CHECKING:
    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_LIST = "files.parquet"
_FILES = "files"
_RUN = re.compile(UUID_FORM)
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("moved_to", pa.string()),
        ("kind", pa.string()),
        ("bytes", pa.int64()),
        ("modified_ms", pa.int64()),
    ]
)
_UUID, _CREATED, _FORMAT = b"lake.table-uuid", b"lake.created-ms", b"lake.format"
_THREADS = 16
_LENGTH = 200
_BATCH_ROWS = 4096
_MAX_SIZE = 2**63


@dataclass(frozen=True, slots=True)
class Trash:
    """The files of one table that were moved away."""

    storage: Storage
    location: str
    name: str
    table_uuid: str | None = None

    @classmethod
    def of(cls, table: Table) -> Trash:
        """Return the trash of a table."""
        metadata = table.metadata
        return cls(table.storage, metadata.location, table.identifier, str(metadata.table_uuid))

    @property
    def folder(self) -> str:
        """The folder of all runs."""
        return trash_folder(self.location)

    def within(self, run_id: str, *names: str) -> str:
        """Return the location of a file of a run."""
        return locations.join(self.folder, run_id, *names)

    def require_no_link(self, run_id: str | None = None) -> None:
        """Check that neither the folder nor that of a run is a link: files elsewhere are not the table's.

        Raises:
            CorruptFileError: one of them is a link.
        """
        for folder in (self.folder, *([self.within(run_id)] if run_id else [])):
            parsed = locations.parse(folder)
            if parsed.is_local and os.path.islink(parsed.path):  # check: trash-is-no-link
                raise CorruptFileError(
                    f"{folder} is a symbolic link, which is not followed",
                    hint="replace the link by the folder, or remove it",
                )

    def list_runs(self) -> list[str]:
        """Return the ids of all runs that have a folder."""
        self.require_no_link()
        found = self.storage.list_folder(self.folder)
        return [name for name, is_folder in found if is_folder and _RUN.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class TrashRun:
    """The files that one run moved away.

    Args:
        run_id: the run's operation id.
        created_ms: when it began, in ms since 1970.
        files: path, moved_to (below the run's folder), kind, bytes, modified_ms.
    """

    run_id: str
    created_ms: int
    files: pa.Table


def write_list(table: Table, run_id: str, files: pa.Table, created_ms: int) -> TrashRun:
    """Write the list of the files that a run is about to move, before it moves the first one.

    Args:
        table: the table.
        run_id: the run's operation id.
        files: path, kind, bytes, modified_ms.
        created_ms: now.
    """
    roots = [locations.canonical(root).rstrip("/") + "/" for root in table.roots]
    moved = _places(files["path"].to_pylist(), roots[0])
    listed = files.add_column(1, "moved_to", pa.array(moved, pa.string())).select(_SCHEMA.names)
    marks = {
        _FORMAT: b"1",
        _UUID: str(table.metadata.table_uuid).encode(),
        _CREATED: str(created_ms).encode(),
    }
    buffer = BytesIO()
    pq.write_table(listed.cast(_SCHEMA).replace_schema_metadata(marks), buffer)
    trash = Trash.of(table)
    trash.require_no_link(run_id)
    table.storage.write(trash.within(run_id, _LIST), buffer.getvalue())
    return TrashRun(run_id, created_ms, listed)


def _places(paths: Sequence[str], root: str) -> list[str]:
    """Return a place below the run's folder for each file: its path below the table, or a number and its name.

    Files of a store whose keys differ by repeated slashes only have one path, which is the place of the first one.
    """
    places: dict[str, None] = {}
    for number, path in enumerate(paths):
        name = locations.canonical(path)
        place = f"{_FILES}/{name.removeprefix(root)}"
        if not name.startswith(root) or place in places:
            place = f"{_FILES}-outside/{number}-{name.rpartition('/')[2]}"
        places[place] = None
    return list(places)


def move_away(
    session: Session,
    table: Table,
    run: TrashRun,
    paths: Sequence[str],
    should_continue: ShouldContinue,
) -> DeleteOutcome:
    """Move files to the run's folder; return what was moved as what was deleted from the table."""
    places = dict(
        zip(run.files["path"].to_pylist(), run.files["moved_to"].to_pylist(), strict=True)
    )

    trash = Trash.of(table)

    def one(path: str) -> str | None:
        if not should_continue():
            return UNTRIED
        try:
            target = trash.within(run.run_id, *places[path].split("/"))
            move(table.storage, path, target, session.ids)
        except LakeError as error:
            return error.message
        return None

    failed = {path: why for path, why in _each(table, one, paths) if why is not None}
    return DeleteOutcome(
        deleted=[path for path in paths if path not in failed],
        failed={path: why for path, why in failed.items() if why != UNTRIED},
        untried=[path for path, why in failed.items() if why == UNTRIED],
    )


def _each(
    table: Table, one: Callable[[str], str | None], paths: Sequence[str]
) -> list[tuple[str, str | None]]:
    """Return each path with the reason why it could not be moved; stores receive several requests at a time."""
    if locations.parse(table.metadata.location).is_local:
        return [(path, one(path)) for path in paths]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(zip(paths, pool.map(one, paths), strict=True))


def find_runs(trash: Trash) -> list[TrashRun]:
    """Return the runs whose files are still away, oldest first; those without a readable list are left out."""
    found = []
    for name in trash.list_runs():
        with suppress(NotFoundError, CorruptFileError):
            found.append(read_list(trash, name))
    return sorted(found, key=lambda run: run.created_ms)


def read_list(trash: Trash, run_id: str) -> TrashRun:
    """Read the list of a run.

    Raises:
        NotFoundError: there is no such run.
        CorruptFileError: the list is damaged, or another table's, or a folder is a link.
    """
    _check_id(run_id)
    trash.require_no_link(run_id)
    location = trash.within(run_id, _LIST)
    try:
        data = trash.storage.read(location)
    except NotFoundError as error:
        raise NotFoundError(
            f"{trash.name} has no files that run {run_id} moved away",
            hint="lake clean TABLE lists the runs",
        ) from error
    try:
        files, marks = _parsed(data)
        created_ms = int(marks[_CREATED])
    except (pa.ArrowException, OSError, KeyError, ValueError, OverflowError) as error:
        text = " ".join(str(error).split())[:_LENGTH]
        raise CorruptFileError(f"{location} is not a list of files: {text}") from error
    if trash.table_uuid is not None and marks.get(_UUID) != trash.table_uuid.encode():
        raise CorruptFileError(f"{location} is another table's list")
    return TrashRun(run_id, created_ms, files)


def _check_id(run_id: str) -> None:
    if not _RUN.fullmatch(run_id):
        raise NotFoundError(f"{run_id!r} is not the id of a run")


def is_over(trash: Trash, run_id: str) -> bool:
    """Whether nothing of a run is left, so that it was restored or purged; its empty folders are removed.

    A restore and a purge remove the list last, and then the folders. A process may be killed in between.

    Raises:
        NotFoundError: this is not the id of a run.
        CorruptFileError: a folder is a link.
    """
    _check_id(run_id)
    trash.require_no_link(run_id)
    if trash.storage.find_files(trash.within(run_id)) or trash.storage.exists(
        trash.within(run_id, _LIST)
    ):
        return False
    _remove_folders(trash, run_id)
    return True


def _parsed(data: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Return the rows of a list, and the members of its schema. A small file may expand to any size.

    Raises:
        ValueError: a value is missing, or the rows are larger than any list.
    """
    file = pq.ParquetFile(BytesIO(data))
    marks = file.schema_arrow.metadata or {}
    parts, size = [_SCHEMA.empty_table()], 0
    for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=_SCHEMA.names):
        size += batch.nbytes
        if size > MAX_METADATA_BYTES:
            raise ValueError(f"its rows have more than {MAX_METADATA_BYTES} bytes")
        part = pa.Table.from_batches([batch]).select(_SCHEMA.names)
        parts.append(part.replace_schema_metadata(None).cast(_SCHEMA))
        # Texts that are not UTF-8.
        parts[-1].validate(full=True)
    files = pa.concat_tables(parts)
    for name in ("path", "moved_to", "bytes"):
        if files[name].null_count:
            raise ValueError(f"{name} is missing")
    if pc.any(pc.less(files["bytes"], 0), min_count=0).as_py():
        raise ValueError("a size is negative")
    # In floating point: the sum of false sizes may not fit into 64 bits.
    if float(pc.sum(pc.cast(files["bytes"], pa.float64(), safe=False)).as_py() or 0) >= _MAX_SIZE:
        raise ValueError("the sizes are too large")
    return files, marks


@dataclass(frozen=True, slots=True)
class Restored:
    """The paths that were moved back, those that exist again, and those that could not be moved."""

    moved: Sequence[str]
    present: Sequence[str]
    failed: Sequence[str]


def restore(session: Session, table: Table, run: TrashRun) -> Restored:
    """Move the files of a run back to where they were, except where another file of that name exists again.

    A store moves a file by copying it: a file that a killed run copied and did not delete is only deleted.
    """
    trash = Trash.of(table)
    rows = list(zip(run.files["path"].to_pylist(), _places_of(trash, run), strict=True))
    _check_paths(table, run, rows)  # check: paths-of-trash-list
    here = {locations.canonical(file.location): file.length for file in _stored(trash, run)}
    waiting = {path: place for path, place in rows if locations.canonical(place) in here}
    there = table.storage.look_up(waiting)

    def is_copy(path: str) -> bool:
        file = there[path]
        place = waiting[path]
        is_equal = file is not None and file.length == here[locations.canonical(place)]
        return is_equal and are_equal(table.storage, path, place)  # check: equal-copy-in-trash

    present = [path for path in waiting if there[path] is not None and not is_copy(path)]
    others = set(present)  # check: files-back-in-place

    def back(path: str) -> str | None:
        try:
            is_copied = there[path] is not None
            move(table.storage, waiting[path], path, session.ids, is_copied=is_copied)
        except LakeError as error:
            return error.message
        return None

    results = _each(table, back, [path for path in waiting if path not in others])
    failed = [path for path, why in results if why is not None]
    # A file that the list does not contain is kept.
    listed = {locations.canonical(place) for place in waiting.values()}
    listed.add(locations.canonical(trash.within(run.run_id, _LIST)))
    if not (failed or present or here.keys() - listed):  # check: files-off-the-list
        remove_unused_list(trash, run)
    return Restored([path for path, why in results if why is None], present, failed)


def _places_of(trash: Trash, run: TrashRun) -> list[str]:
    """Return where the files of a run are, by its list."""
    return [
        trash.within(run.run_id, *name.split("/")) for name in run.files["moved_to"].to_pylist()
    ]


def _stored(trash: Trash, run: TrashRun) -> list[StoredFile]:
    """Return the files of a run's folder; a store may not list all that it has."""
    folder = trash.within(run.run_id)
    found = trash.storage.find_files(folder)
    listed = {locations.canonical(file.location) for file in found}
    unlisted = [
        place
        for place in _places_of(trash, run)
        if locations.deletable(place, [folder]) and locations.canonical(place) not in listed
    ]
    return found + [file for file in trash.storage.look_up(unlisted).values() if file is not None]


def _check_paths(table: Table, run: TrashRun, rows: Sequence[tuple[str, str]]) -> None:
    """Refuse a list that was changed so that it names files outside of the table or of the run's folder."""
    folder = [Trash.of(table).within(run.run_id)]
    nested = NestedTables(table.storage, table.roots)
    for values in zip(*rows, strict=True):
        if len(set(values)) < len(rows):
            raise CorruptFileError(
                f"the list of run {run.run_id} contains a file twice", hint="move its files by hand"
            )
    for path, place in rows:
        if (
            not locations.deletable(place, folder)
            or not locations.deletable(path, table.roots)
            or nested.owns(path)
        ):
            raise CorruptFileError(
                f"the list of run {run.run_id} names {path}, which is outside of the table's folders",
                hint="move this file by hand",
            )
        if is_metadata_name(path) and not is_earlier_metadata(table, path):
            raise CorruptFileError(
                f"the list of run {run.run_id} names {path}, which could become the current metadata",
                hint="move this file by hand",
            )


def remove(trash: Trash, run: TrashRun) -> tuple[DeleteOutcome, int]:
    """Delete all files of a run, and below its folder, the list last.

    Returns:
        The outcome, and the size in bytes of the deleted files; the list is not among them.

    Raises:
        StorageError: the listing of the folder lacks the list, so it is not complete.
    """
    trash.require_no_link(run.run_id)
    last = trash.within(run.run_id, _LIST)
    found = _stored(trash, run)
    sizes = {
        file.location: file.length
        for file in found
        if locations.canonical(file.location) != locations.canonical(last)
    }
    # Another process may have purged the run at the same time.
    if len(sizes) == len(found) and trash.storage.exists(last):
        raise StorageError(f"the storage did not list {last}", hint="run the command again")
    outcome = trash.storage.delete(sizes)
    size = sum(sizes[path] for path in outcome.deleted)
    if outcome.failed:
        return outcome, size
    listed = trash.storage.delete([last])
    _remove_folders(trash, run.run_id)
    return replace(outcome, failed=listed.failed), size


def remove_unused_list(trash: Trash, run: TrashRun) -> None:
    """Delete the list of a run if the run has moved no file."""
    last = trash.within(run.run_id, _LIST)
    found = {locations.canonical(file.location) for file in _stored(trash, run)}
    if found == {locations.canonical(last)}:
        trash.storage.delete([last])
        _remove_folders(trash, run.run_id)


def _remove_folders(trash: Trash, run_id: str) -> None:
    """Remove the folders of a run that are empty, and the folder of all runs if it is."""
    trash.storage.remove_empty_folders(trash.within(run_id))
    parsed = locations.parse(trash.folder)
    if parsed.is_local:
        with suppress(OSError):
            os.rmdir(parsed.path)
