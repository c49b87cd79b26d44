"""Folders that are built once and put back for each test that takes them.

Metadata contains absolute locations, so a warehouse is put back in the place where it was built. Its database is then
a copy, which lake distinguishes from the first one: a test of other catalogs, or of killed commits, builds its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


class BuiltOnce:
    """Folders by name, each with a copy of what it contained when it was built.

    Args:
        root: an empty folder for all of them.
        kept: an empty folder for the copies, far from the first: lake looks for other catalogs beside a warehouse.
    """

    def __init__(self, root: Path, kept: Path) -> None:
        self._root, self._kept = root, kept

    def folder(self, name: str, build: Callable[[Path], object]) -> Path:
        """Return a folder as `build` left it, whatever the tests before have done to it."""
        folder, kept = self._root / name, self._kept / name
        for earlier in self._root.iterdir():
            shutil.rmtree(earlier)
        if kept.exists():
            shutil.copytree(kept, folder, symlinks=True)
        else:
            folder.mkdir()
            build(folder)
            shutil.copytree(folder, kept, symlinks=True)
        return folder
