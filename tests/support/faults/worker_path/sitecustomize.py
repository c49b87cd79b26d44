"""Gives Spark's workers the tests' task functions under a name that lake accepts.

A worker is a Python of its own; with this folder on its path it runs this file before anything else.
"""

import importlib.abc
import importlib.util
import sys
from pathlib import Path

NAME = "lake.core.drill"
FILE = Path(__file__).parent.parent / "engine_drill.py"


class DrillFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, FILE) if name == NAME else None


sys.meta_path.append(DrillFinder())
