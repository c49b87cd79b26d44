"""Spark's data source for Iceberg tables, without a JAR: what Spark asks of Python, translated for the core.

    import lake.spark

    lake.spark.register(spark)
    frame = spark.read.format("lake").option("warehouse", "warehouse").load("db.events")

Only this package and the engine import PySpark.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lake.commands.spark.distribute import distributed as distributed
    from lake.commands.spark.source import LakeSource as LakeSource
    from lake.commands.spark.upserts import upsert as upsert

__all__ = ["LakeSource", "distributed", "register", "upsert"]

# Each of Spark's processes imports only what it does.
_MODULES = {"LakeSource": "source", "distributed": "distribute", "upsert": "upserts"}


def __getattr__(name: str) -> object:
    """Import what is used of the interface."""
    if name not in _MODULES:
        raise AttributeError(f"module 'lake.spark' has no attribute {name!r}")
    return getattr(import_module(f"lake.commands.spark.{_MODULES[name]}"), name)


def register(spark: SparkSession) -> None:
    """Let a session know the format ``lake``. Spark finds it by itself where its Python has lake.

    Warns if the Python that Spark starts on this machine does not have lake: Spark's own error names only the module.
    """
    from lake.commands.spark.source import LakeSource

    spark.dataSource.register(LakeSource)
    # The session decides: PySpark's variable for a server may be left from another session of this process.
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return
    python = shutil.which(spark.sparkContext.pythonExec)
    if python not in {None, sys.executable} and _lacks_lake(str(python)):
        warnings.warn(
            f"Spark starts {python}, which does not have lake: set the environment variable PYSPARK_PYTHON to "
            f"{sys.executable}, or to a Python with lake, before the session starts",
            stacklevel=2,
        )


def _lacks_lake(python: str) -> bool:
    look = "import importlib.util as u, sys; sys.exit(7 if u.find_spec('lake') is None else 0)"
    try:
        return subprocess.run([python, "-c", look], check=False, timeout=20).returncode == 7  # noqa: PLR2004, S603
    except (OSError, subprocess.TimeoutExpired):
        return False
