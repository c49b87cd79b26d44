"""Runs in every Python of the tests' cluster: records where its lake came from, and holds a task at a file.

Tests and tasks communicate by files in the folder LAKE_GATE. ``from-PID`` contains the path from which process PID
loaded lake. When a task opens a new file whose name contains the text of ``armed``, the first one takes that file
away, leaves ``held-PID`` and waits for ``released``.
"""

import importlib.abc
import importlib.util
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ.get("LAKE_GATE", "/nonexistent"))
MODULE = "lake.core.io.storage.storage"


class GateFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != MODULE or not FOLDER.is_dir():
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        spec.loader = GatedLoader(spec.loader)
        return spec


class GatedLoader(importlib.abc.Loader):
    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        (FOLDER / f"from-{os.getpid()}").write_text(module.__file__)
        module.Storage.open_output = _held(module.Storage.open_output)


def _held(open_output):
    def held(storage, location):
        file = open_output(storage, location)
        _wait_if_armed(location)
        return file

    return held


def _wait_if_armed(location):
    mark = FOLDER / f"held-{os.getpid()}"
    try:
        if (FOLDER / "armed").read_text() not in location:
            return
        (FOLDER / "armed").rename(mark)
    except FileNotFoundError:
        return
    while not (FOLDER / "released").exists():
        time.sleep(0.02)
    mark.unlink(missing_ok=True)


sys.meta_path.insert(0, GateFinder())
