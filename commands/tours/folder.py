"""The folder of a demonstration, which only contains what a demonstration made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from lake.core.base.errors import RefusedError

# The files of the catalog in the folder.
CATALOG = frozenset({"catalog.db", "catalog.db-journal"})
_SHOWN = 5


def clear_folder(folder: Path, own: Collection[str]) -> None:
    """Delete what an earlier demonstration made, complete or not, and nothing else.

    Args:
        folder: the folder of the demonstration; it may not exist.
        own: what a demonstration makes, as paths in the folder; everything in a folder that is listed is its own too.

    Raises:
        RefusedError: the folder contains something else, or is a link.
    """
    if folder.is_symlink():
        raise RefusedError(
            f"{folder} is a symbolic link", hint="run the demo in another working folder"
        )
    if not folder.exists():
        return
    made = {*own, *CATALOG}
    others = sorted(_others(folder, "", made, {_folder(path) for path in made} - {""}))
    if others:
        raise RefusedError(
            f"{folder} contains files that the demo did not create: {', '.join(others[:_SHOWN])}",
            hint="run the demo in another working folder",
        )
    shutil.rmtree(folder)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _others(
    folder: Path, below: str, own: Collection[str], between: Collection[str]
) -> Iterator[str]:
    """Yield the paths that are not a demonstration's own; the folders between the root and its tables are."""
    for entry in os.scandir(folder):
        path = f"{below}{entry.name}"
        if path in between and entry.is_dir(follow_symlinks=False):
            yield from _others(folder / entry.name, f"{path}/", own, between)
        elif path not in own or entry.is_symlink():
            yield path
