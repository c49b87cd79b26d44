"""Work on Iceberg tables from Python, as the command `lake` does.

import lake

events = lake.connect(warehouse="warehouse").table("db.events")
frame = events.scan(where="id > 5", select=["id", "ts"]).to_pandas()
"""

# Type checkers take it for true. The command line imports this module before it handles signals: nothing is imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from lake.commands import spark as spark
    from lake.commands.api import errors as errors
    from lake.commands.api.catalog import Catalog as Catalog
    from lake.commands.api.catalog import connect as connect
    from lake.commands.api.table import Run as Run
    from lake.commands.api.table import Scan as Scan
    from lake.commands.api.table import Table as Table

_MODULES = {"errors": "api.errors", "spark": "spark"}
_NAMES = {
    "Catalog": "catalog",
    "connect": "catalog",
    "Run": "table",
    "Scan": "table",
    "Table": "table",
}


def __dir__() -> list[str]:
    """Return the names of the interface, which a notebook completes."""
    return sorted([*_MODULES, *_NAMES])


def __getattr__(name: str) -> object:
    """Import what is used of the interface."""
    from importlib import import_module  # noqa: PLC0415 - door: nothing before signals are handled

    if name in _MODULES:
        return import_module(f"lake.commands.{_MODULES[name]}")
    if name not in _NAMES:
        raise AttributeError(f"module 'lake' has no attribute {name!r}")
    return getattr(import_module(f"lake.commands.api.{_NAMES[name]}"), name)
