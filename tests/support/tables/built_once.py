"""Folders that are built once and put back for each test that takes them.

Metadata contains absolute locations, so a warehouse is put back in the place where it was built. Two tests of a
process never have it at the same time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


class BuiltOnce:
    """Folders by name, each with a copy of what it contained when it was built.

    Args:
        root: an empty folder for all of them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, name: str, build: Callable[[Path], object]) -> Path:
        """Return a folder as `build` left it, whatever the tests before have done to it."""
        folder, kept = self._root / name, self._root / f"{name}, as built"
        if kept.exists():
            shutil.rmtree(folder)
            shutil.copytree(kept, folder, symlinks=True)
        else:
            folder.mkdir()
            build(folder)
            shutil.copytree(folder, kept, symlinks=True)
        return folder
