"""Which files of a folder or bucket are new and complete, and how they are divided into epochs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lake.core import locations
from lake.core.errors import NotFoundError
from lake.core.plain import PlainData
from lake.core.snapshots.streams import LAST
from lake.core.sources.discovery import list_sources, source_folder
from lake.core.storage.storage import Storage, StoredFile
from lake.core.watch.options import WatchOptions

# Names that programs give to files that they are still writing.
_UNFINISHED = (".tmp", ".partial", ".inprogress", ".crdownload")
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
    """

    path: str
    size: int
    modified_ms: int | None = None

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
        and not any(comparable(file.location).startswith(f"{folder}/") for folder in folders)
    ]


def _is_hidden(file: StoredFile, source: str) -> bool:
    name = file.location.rpartition("/")[2]
    below = file.location.removeprefix(source_folder(source))
    return (
        name.startswith((".", "_"))
        or name.lower().endswith(_UNFINISHED)
        or any(part.startswith(".") for part in below.split("/"))
    )


def comparable(location: str) -> str:
    """Return a location so that one file or folder has one text."""
    parsed = locations.parse(location)
    return os.path.abspath(parsed.path) if parsed.is_local else location.rstrip("/")


def is_watched(source: str, path: str) -> bool:
    """Whether a path is below the folder of what is watched."""
    return comparable(path).startswith(f"{comparable(source_folder(source)).rstrip('/')}/")


def is_settled(file: WatchedFile, now_ms: int, settle_ms: int) -> bool:
    """Whether a file has not changed for a while; a time far in the future comes from another clock."""
    return file.modified_ms is None or abs(now_ms - file.modified_ms) >= settle_ms


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
        if taken and (size > options.commit_bytes or len(taken) + len(unit) > options.commit_files):
            break
        taken += unit
    return taken


def is_full(files: Sequence[WatchedFile], options: WatchOptions) -> bool:
    """Whether files reach a limit of an epoch, so that they are committed at once."""
    return (
        len(files) >= options.commit_files
        or sum(file.size for file in files) >= options.commit_bytes
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
