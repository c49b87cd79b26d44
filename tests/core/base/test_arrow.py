"""PyArrow does not import pandas by itself, and still converts to pandas where it is asked to."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import numpy
from lake.core.base.arrow import keep_pandas_out
keep_pandas_out()
import pyarrow as pa, pyarrow.compute, pyarrow.dataset
pa.array(["text", None]); pa.array(numpy.arange(3)); pa.Table.from_pylist([{"a": [1]}])
before = "pandas" in sys.modules
import pandas
print(before, pa.table({"a": [1, 2]}).to_pandas()["a"].tolist())
"""


def test_pandas_is_imported_only_where_it_is_asked_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert done.stdout == "False [1, 2]\n", done.stderr
