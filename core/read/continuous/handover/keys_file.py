"""The keys of a discovery, in files that outlive the source that they were read from.

A repetition of an epoch reads its rows by these files, so it has the same rows even if the source has changed or its
snapshot has expired. The name of a file contains the SHA-256 of its contents: a damaged file is refused, and
discoveries with the same keys share a file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from lake.core.base.errors import CorruptFileError
from lake.core.io.storage import atomic_files
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous.handover.state import KEYS_NAME, Saved
from lake.core.read.scan.scan_keys import ScanKeys, with_path

_Name = Annotated[str, Field(pattern=KEYS_NAME)]


class SavedKeys(Saved):
    """The keys of a discovery.

    Args:
        file: the name of the file with what tasks need of them.
        all_keys: the name of the Arrow file with all keys, if rows are tested and the first file does not contain
            all of them.
        dimension: the table or the files that they were read from.
        dimension_snapshot_id: the table's snapshot; None for files, and for a table without snapshots.
    """

    file: _Name
    all_keys: _Name | None
    dimension: str
    dimension_snapshot_id: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the files."""
        return (self.file,) if self.all_keys is None else (self.file, self.all_keys)


def save_keys(folder: StateFolder, keys: ScanKeys) -> SavedKeys:
    """Write keys durably."""
    all_keys = None if keys.path is None else _copied(folder, keys.path)
    # The folder may be moved.
    data = replace(keys, path=all_keys).to_bytes()
    name = f"keys-{hashlib.sha256(data).hexdigest()}.bin"
    if not os.path.exists(folder.file(name)):
        folder.replace(name, data)
    return SavedKeys(
        file=name,
        all_keys=all_keys,
        dimension=keys.source.dimension,
        dimension_snapshot_id=keys.source.dimension_snapshot_id,
    )


def load_keys(folder: StateFolder, saved: SavedKeys) -> bytes:
    """Return what tasks need of saved keys; see `lake.core.read.scan.scan_keys.row_keys`.

    Raises:
        CorruptFileError: a file is missing or damaged.
    """
    for name in saved.names:
        if not os.path.exists(folder.file(name)) or _digest(folder.file(name)) not in name:
            raise _corrupt(folder, name)
    path = folder.file(saved.file)
    with translate_errors(path), open(path, "rb") as file:
        data = file.read()
    return data if saved.all_keys is None else with_path(data, folder.file(saved.all_keys))


def _copied(folder: StateFolder, path: str) -> str:
    """Copy a file into the folder durably, unless it is there; return its name."""
    name = f"keys-{_digest(path)}.arrow"
    target = folder.file(name)
    if os.path.exists(target):
        return name
    draft = folder.draft(name)
    with translate_errors(target):
        try:
            shutil.copyfile(path, draft)
            atomic_files.flush(draft)
            folder.place(draft, name)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    return name


def _digest(path: str) -> str:
    with translate_errors(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _corrupt(folder: StateFolder, name: str) -> CorruptFileError:
    return CorruptFileError(
        f"{folder.file(name)} is missing or damaged: it contains the keys of pending splits",
        hint="restore the state folder from a backup, or start with a new one and decide what to read again",
    )
