"""Move or delete files after their commit is known, and set files aside that cannot be loaded.

Each step may be repeated: a file that is gone was moved or deleted before. A file that is not the same any more may
contain rows that were not loaded, and rows that were: the user decides.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from lake.core.base import locations
from lake.core.base.choices import OnRewrite
from lake.core.base.clock import Ids
from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    NotAuthorisedError,
    RefusedError,
    StorageError,
)
from lake.core.base.options import Option
from lake.core.data.sources.discovery import look_up_sources, source_folder
from lake.core.io.long_names import shortened
from lake.core.io.storage.moves import are_equal, move
from lake.core.io.storage.storage import Storage, StoredFile
from lake.core.load.continuous.files.listing import WatchedFile, comparable
from lake.core.load.continuous.options import Done, WatchOptions
from lake.core.transaction.session import Session

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
    same, changed = compared(storage, files)
    if options.on_rewrite is OnRewrite.IGNORE:
        same += changed
    _dispose(session, storage, options, same, epoch)
    if changed and options.on_rewrite is OnRewrite.FAIL:
        raise RefusedError(
            f"{changed[0].path} was changed while epoch {epoch} loaded it, or after that",
            hint=f"compare it with the table, and remove it; or {Option.ON_REWRITE} again loads it once more",
        )


def check_overlap(options: WatchOptions) -> None:
    """Check that the folders of the options do not contain the one that is watched: nothing would be loaded.

    Raises:
        InvalidRequestError: one contains it.
    """
    watched = comparable(source_folder(options.source))
    for option, folder in (
        (Option.DONE, options.done_folder),
        (Option.BAD_FILES, options.bad_files),
        (Option.STATE, options.state),
    ):
        above = None if folder is None else comparable(folder)
        if above is not None and f"{watched}/".startswith(f"{above.rstrip('/')}/"):
            raise InvalidRequestError(
                f"the folder {folder} of {option} contains {watched}, which is watched: files in it are never loaded",
                hint=f"choose a folder below {watched}, or beside it",
            )


def check_places(
    storage: Storage, options: WatchOptions, files: Sequence[WatchedFile], ids: Ids
) -> None:
    """Check that files can be moved or deleted as the options say, before one of them is loaded.

    Raises:
        StorageError: a file cannot be written to a folder, or not be removed from one.
    """
    for folder in options.targets:
        name = locations.join(folder, f".{ids.uuid()}.tmp")
        try:
            storage.write(name, b"", durable=False)
            failed = storage.delete([name]).failed
        except (BadInputError, NotAuthorisedError, StorageError) as error:
            failed = {name: error.message}
        if failed:
            raise StorageError(
                f"files cannot be moved to {folder}: {failed[name]}",
                hint="nothing was loaded; choose a folder in which files can be written and deleted",
            )
    if options.done is Done.KEEP:
        return
    for folder in sorted({os.path.dirname(file.path) for file in files if file.path[:1] == "/"}):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StorageError(
                f"files in {folder} cannot be moved or deleted: no permission to change the folder",
                hint=f"nothing was loaded; {Option.DONE} keep leaves the files where they are",
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
        there = storage.look_up([target])[target]
        is_copied = there is not None and _is_copy(storage, file, there)
        if there is not None and not is_copied:
            target = _of_epoch(target, epoch)
        move(storage, file.path, target, session.ids, is_copied=is_copied)


def _is_copy(storage: Storage, file: WatchedFile, there: StoredFile) -> bool:
    """Whether a file of a store is the copy of a source that a run made and then could not delete."""
    return (
        not locations.parse(there.location).is_local
        and there.length == file.size
        and (there.modified_ms or 0) >= (file.modified_ms or 0)
        and are_equal(storage, file.path, there.location)
    )


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


def compared(
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
