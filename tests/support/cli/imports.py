"""Import once what commands import when they run: each process would do it again, for most of its time."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import lake.commands
import lake.core
from lake.cli.app import load_verb
from lake.core.table.catalogs import pyiceberg_patches

_SPARK = ("lake.core.engine.spark", "lake.core.engine.jvm", "lake.commands.spark")
_LIBRARIES = (
    *("lake.cli.main", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "datafusion"),
    *("pyarrow.dataset", "pyarrow.parquet", "sqlalchemy.dialects.sqlite"),
)
# Verbs whose options are built once too: those that tests run most often in such processes.
_VERBS = ("ingest", "scan", "compact", "expire")


def import_all() -> None:
    """Import lake, except for Spark, and the libraries that it imports late; do what a process does once."""
    for package in (lake.core, lake.commands):
        for name in _modules(package):
            importlib.import_module(name)
    for name in _LIBRARIES:
        importlib.import_module(name)
    pyiceberg_patches.apply()
    for verb in _VERBS:
        load_verb(verb).make_context(verb, [], resilient_parsing=True)


def _modules(package: ModuleType) -> Iterator[str]:
    """Yield the names of the modules below a package; those for Spark are not imported to find others below them."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if not found.name.startswith(_SPARK):
            yield found.name
            if found.ispkg:
                yield from _modules(importlib.import_module(found.name))
