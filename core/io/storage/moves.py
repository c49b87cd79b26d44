"""Move a file to another location, also of another disk or store; the target is complete whenever it exists."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import LakeError, StorageError
from lake.core.io.objects.waits import awaited
from lake.core.io.storage.atomic_files import flush
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.storage import read_up_to

if TYPE_CHECKING:
    from lake.core.base.clock import Ids
    from lake.core.io.storage.storage import Storage

_PIECE = 1 << 20


def move(storage: Storage, source: str, target: str, ids: Ids, *, is_copied: bool = False) -> None:
    """Move a file; in a store it is copied and then deleted. A source that does not exist is left out.

    Args:
        storage: where both are.
        source: the file.
        target: its new location.
        ids: those of temporary files.
        is_copied: whether the target is known to be a copy, so that only the source is deleted.

    Raises:
        LakeError: the file could not be moved, or not be deleted after it was copied.
    """
    begin, end = locations.parse(source), locations.parse(target)
    if is_copied or not (begin.is_local and end.is_local):
        if not is_copied:
            _copy(storage, source, target)
        outcome = storage.delete([source])
        if outcome.failed:
            raise StorageError(f"{source} cannot be deleted: {outcome.failed[source]}")
        return
    from_folder, name = os.path.split(os.path.abspath(begin.path))
    to_folder, new_name = os.path.split(os.path.abspath(end.path))
    with ExitStack() as opened:
        with translate_errors(to_folder):
            storage.make_local_folder(to_folder)
            target_folder = opened.enter_context(_opened(storage, to_folder))
        with translate_errors(source):
            try:
                with _opened(storage, from_folder) as source_folder:
                    os.rename(name, new_name, src_dir_fd=source_folder, dst_dir_fd=target_folder)
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _move_to_other_disk(begin.path, end.path, ids)
            flush(to_folder)


def are_equal(storage: Storage, one: str, other: str) -> bool:
    """Whether two files have the same bytes."""
    with (
        translate_errors(one),
        storage.open_input(one) as first,
        storage.open_input(other) as second,
    ):
        while True:
            piece = read_up_to(first, _PIECE)
            if piece != read_up_to(second, _PIECE):
                return False
            if not piece:
                return True


@contextmanager
def _opened(storage: Storage, folder: str) -> Iterator[int]:
    """Open a folder: what replaces it by a link afterwards does not redirect the move."""
    descriptor = storage.open_local_folder(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _move_to_other_disk(source: str, target: str, ids: Ids) -> None:
    temporary = os.path.join(os.path.dirname(target), f".{ids.uuid()}.tmp")
    shutil.copy2(source, temporary)
    flush(temporary)
    os.rename(temporary, target)
    flush(os.path.dirname(target))
    os.unlink(source)


def _copy(storage: Storage, source: str, target: str) -> None:
    if locations.store_of(source) == locations.store_of(target):
        filesystem, begin = storage.resolve(source)
        try:
            # The store copies by itself, up to its limit for one request.
            path = storage.resolve(target)[1]
            awaited(storage.host(target), lambda: filesystem.copy_file(begin, path))
            # Arrow takes any successful answer for that of the store, for example a page of a portal.
            if storage.size(target) == storage.size(source):
                return
        except (OSError, pa.ArrowException, LakeError):
            pass
    try:
        with storage.open_input(source) as begin_stream, storage.open_output(target) as end:
            shutil.copyfileobj(begin_stream, end, _PIECE)
    except OSError as error:
        raise LakeError(f"{source} cannot be copied to {target}: {error}") from error
