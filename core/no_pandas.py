"""Keep PyArrow from importing pandas by itself: lake does not use pandas, and the import takes 0.3 s.

PyArrow looks for pandas once, when it first makes an array of Python objects. If it does not find pandas then, it
imports it only where a conversion to pandas is asked for. Source: pandas-shim.pxi and helpers.cc of PyArrow.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa


class _Absent(MetaPathFinder):
    """Reports that pandas is not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def keep_pandas_out() -> None:
    """Let PyArrow look for pandas now, and not find it; where pandas is imported already, do nothing."""
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        # Makes both PyArrow's Python and its C++ part look.
        pa.array([None])
    finally:
        sys.meta_path.remove(absent)
