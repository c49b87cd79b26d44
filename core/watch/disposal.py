"""Move or delete files after their commit is known, and set files aside that cannot be loaded.

Each step may be repeated: a file that is gone was moved or deleted before. A file that is not the same any more may
contain rows that were not loaded, and rows that were: the user decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from lake.core import locations
from lake.core.clock import Ids
from lake.core.errors import RefusedError, StorageError
from lake.core.options import Option
from lake.core.session import Session
from lake.core.sources.discovery import look_up_sources, source_folder
from lake.core.storage.long_names import shortened
from lake.core.storage.moves import move
from lake.core.storage.storage import Storage
from lake.core.watch.listing import WatchedFile
from lake.core.watch.options import Done, OnRewrite, WatchOptions

_REASON = ".reason.txt"
# Characters, of at most four bytes each.
_KEPT = 50


def dispose(
    session: Session,
    storage: Storage,
    options: WatchOptions,
    files: Sequence[WatchedFile],
    epoch: int,
) -> None:
    """Move or delete the files of a committed epoch, if the options say so.

    Raises:
        RefusedError: a file was changed after it was listed, so that it is not known which of its rows were loaded.
    """
    same, changed = _compared(storage, files)
    if options.on_rewrite is OnRewrite.IGNORE:
        same += changed
    _dispose(session, storage, options, same, epoch)
    if changed and options.on_rewrite is OnRewrite.FAIL:
        raise RefusedError(
            f"{changed[0].path} was changed while epoch {epoch} loaded it, or after that",
            hint=f"compare it with the table, and remove it; or {Option.ON_REWRITE} again loads it once more",
        )


def _dispose(
    session: Session,
    storage: Storage,
    options: WatchOptions,
    same: Sequence[WatchedFile],
    epoch: int,
) -> None:
    if options.done is Done.DELETE:
        outcome = storage.delete(file.path for file in same)
        if outcome.failed:
            location, why = next(iter(outcome.failed.items()))
            raise StorageError(
                f"{location} was loaded and cannot be deleted: {why}",
                hint="make it deletable, and run the command again: it is not loaded twice",
            )
        return
    for file in same if options.done_folder is not None else ():
        below = file.path.removeprefix(source_folder(options.source)).lstrip("/")
        target = locations.join(options.done_folder or "", below)
        if storage.look_up([target])[target] is not None:
            target = _of_epoch(target, epoch)
        move(storage, file.path, target, session.ids)


def set_aside(storage: Storage, file: WatchedFile, folder: str, reason: str, ids: Ids) -> None:
    """Move a file that cannot be loaded to a folder, with a file that says why."""
    name = file.path.rpartition("/")[2]
    target = locations.join(folder, name)
    if storage.look_up([target])[target] is not None or shortened(name, len(_REASON)) != name:
        # The end of a name shows its format.
        target = locations.join(folder, f"{ids.uuid()}-{name[-_KEPT:]}")
    storage.write(f"{target}{_REASON}", f"{file.path}\n{reason}\n".encode())
    move(storage, file.path, target, ids)


def _of_epoch(target: str, epoch: int) -> str:
    """Return another name for a file, before its suffix, because a file of an earlier epoch has this one."""
    folder, slash, name = target.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    end = f"-epoch-{epoch}{dot}{suffix}"
    return f"{folder}{slash}{shortened(stem, len(end.encode()))}{end}"


def _compared(
    storage: Storage, files: Sequence[WatchedFile]
) -> tuple[list[WatchedFile], list[WatchedFile]]:
    """Return the files that are as they were listed, and those that are not; files that are gone are in neither."""
    found = look_up_sources(storage, (file.path for file in files))
    same: list[WatchedFile] = []
    changed: list[WatchedFile] = []
    for file in files:
        now = found[file.path]
        if now is not None:
            is_same = (now.length, now.modified_ms) == file.version
            (same if is_same else changed).append(file)
    return same, changed
