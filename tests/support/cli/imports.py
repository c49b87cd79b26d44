"""Import once what commands import when they run: each process would do it again, for most of its time."""

from __future__ import annotations

import importlib
import pkgutil

import lake.commands
import lake.core

_SPARK = ("lake.core.engine.spark", "lake.core.engine.jvm")
_LIBRARIES = (
    *("lake.cli.main", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "datafusion"),
    *("pyarrow.dataset", "pyarrow.parquet", "sqlalchemy.dialects.sqlite"),
)


def import_all() -> None:
    """Import lake, but for Spark, and the libraries that it imports late."""
    for package in (lake.core, lake.commands):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(_SPARK):
                importlib.import_module(module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)
