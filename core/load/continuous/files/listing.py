"""Which files of a folder or bucket are new and complete, and how they are divided into epochs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lake.core.base import locations
from lake.core.base.errors import NotFoundError
from lake.core.base.plain import PlainData
from lake.core.data.sources.discovery import list_sources, source_folder
from lake.core.io.storage.storage import Storage, StoredFile
from lake.core.load.continuous.options import WatchOptions
from lake.core.table.snapshots.streams import LAST

# Names that programs give to files that they are still writing: browsers, WinSCP, rsync, HDFS, editors.
_UNFINISHED = (
    *(".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".download"),
    *(".opdownload", ".inprogress", ".incomplete", ".uploading", ".writing", "._copying_"),
    *(".swp", ".lock", "~"),
)
_HIDDEN = (".", "_", "~", "#")
# A folder that a continuous scan hands over: its files belong together.
_EPOCH = re.compile(r".*/epoch-[0-9]{10}(?=/)", re.DOTALL)
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class WatchedFile(PlainData):
    """One version of a file.

    Args:
        path: its location.
        size: in bytes.
        modified_ms: its last change, in ms since 1970; None if the storage does not report it.
        tag: what the storage says of its contents (S3's ETag); None if that is not known.
    """

    path: str
    size: int
    modified_ms: int | None = None
    tag: str | None = None

    @property
    def version(self) -> tuple[int, int | None]:
        """What differs after the file was rewritten."""
        return self.size, self.modified_ms


def find_files(
    storage: Storage, options: WatchOptions, excluded: Iterable[str]
) -> list[WatchedFile]:
    """Return the files that the options watch, by name, without those of which the names say they are unfinished.

    Args:
        storage: where they are.
        options: the options.
        excluded: folders whose files are never new, besides those of the options.

    Raises:
        NotFoundError: there is no such folder on this machine; its disk may not be mounted.
    """
    folder = locations.parse(source_folder(options.source))
    if folder.is_local and not os.path.exists(folder.path):
        raise NotFoundError(
            f"there is no folder {folder.path} to watch",
            hint=f"mount its disk, or create it: mkdir -p {folder.path}",
        )
    folders = {comparable(one) for one in (*options.targets, options.state, *excluded)}
    return [
        WatchedFile(file.location, file.length, file.modified_ms)
        for file in list_sources(storage, options.source)
        if not _is_hidden(file, options.source)
        and not any(_text(file.location).startswith(f"{folder}/") for folder in folders)
    ]


def _is_hidden(file: StoredFile, source: str) -> bool:
    name = file.location.rpartition("/")[2]
    below = file.location.removeprefix(source_folder(source))
    return (
        name.startswith(_HIDDEN)
        or name.lower().endswith(_UNFINISHED)
        or any(part.startswith(".") for part in below.split("/"))
    )


def resolved(source: str) -> str:
    """Return what is watched, with the links in the name of its folder resolved."""
    parsed = locations.parse(source)
    if not parsed.is_local:
        return f"{parsed.scheme}://{parsed.authority}{parsed.path}".rstrip("/")
    folder = source_folder(source)
    rest = parsed.path[len(folder) :].rstrip("/")
    if rest or os.path.isdir(folder):
        return f"{os.path.realpath(folder).rstrip('/')}{rest}"
    return resolved_file(folder)


def resolved_file(path: str) -> str:
    """Return the location of a file in its resolved folder; the file itself may be a link."""
    parsed = locations.parse(path)
    if not parsed.is_local:
        return f"{parsed.scheme}://{parsed.authority}{parsed.path}"
    folder, name = os.path.split(parsed.path)
    return os.path.join(os.path.realpath(folder), name)


def comparable(location: str) -> str:
    """Return a location so that one folder has one text."""
    parsed = locations.parse(location)
    return os.path.realpath(parsed.path) if parsed.is_local else _text(location).rstrip("/")


def _text(location: str) -> str:
    """Return the location of a file so that one file of a resolved folder has one text."""
    parsed = locations.parse(location)
    return parsed.path if parsed.is_local else f"{parsed.scheme}://{parsed.authority}{parsed.path}"


def is_watched(source: str, path: str) -> bool:
    """Whether a path is below the folder of what is watched."""
    return comparable(path).startswith(f"{comparable(source_folder(source)).rstrip('/')}/")


@dataclass(frozen=True, slots=True)
class Sighting(PlainData):
    """When a file was first listed as it is."""

    file: WatchedFile
    seen_ms: int


def is_quiescent(file: WatchedFile, now_ms: int, settle_ms: int) -> bool:
    """Whether a file has not changed for a while, by its time."""
    return not settle_ms or file.modified_ms is None or now_ms - file.modified_ms >= settle_ms


def is_ahead(file: WatchedFile, now_ms: int, settle_ms: int) -> bool:
    """Whether a file's time comes from a clock that is ahead of this machine's: it does not show when it changed."""
    return (
        bool(settle_ms) and file.modified_ms is not None and file.modified_ms - now_ms > settle_ms
    )


def units(files: Iterable[WatchedFile]) -> Iterator[list[WatchedFile]]:
    """Yield files that are loaded together: those of one handed-over folder, else one by one."""
    unit: list[WatchedFile] = []
    folder: str | None = None
    for file in files:
        found = _EPOCH.match(file.path)
        own = found[0] if found else None
        if unit and (own is None or own != folder):
            yield unit
            unit = []
        unit.append(file)
        folder = own
    if unit:
        yield unit


def first_epoch(files: Sequence[WatchedFile], options: WatchOptions) -> list[WatchedFile]:
    """Return the first files that make an epoch: as many as its limits allow, but at least one unit."""
    taken: list[WatchedFile] = []
    size = 0
    for unit in units(files):
        size += sum(file.size for file in unit)
        if taken and (size > options.commit_size or len(taken) + len(unit) > options.commit_files):
            break
        taken += unit
    return taken


def is_full(files: Sequence[WatchedFile], options: WatchOptions) -> bool:
    """Whether files reach a limit of an epoch, so that they are committed at once."""
    return (
        len(files) >= options.commit_files
        or sum(file.size for file in files) >= options.commit_size
    )


def offsets_of(files: Sequence[WatchedFile]) -> dict[str, str | int]:
    """Return what an epoch read, for its snapshot: the number of files, the last name, a digest of the list."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.modified_ms}\0".encode())
    return {
        "files": len(files),
        LAST: files[-1].path.rpartition("/")[2],
        "list": digest.hexdigest()[:_DIGEST],
    }
