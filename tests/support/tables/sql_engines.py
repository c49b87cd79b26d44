"""SQLite catalogs that are faster in tests: they share compiled statements, and do not wait for the disk.

Each command of a test opens its own catalog, and SQLAlchemy compiles all statements for each of them again.
"""

from __future__ import annotations

from typing import Any

import pyiceberg.catalog.sql
import pytest
from sqlalchemy import Engine, create_engine, event

from lake.core.table.catalogs import sql

_UNFLUSHED = "PRAGMA synchronous = OFF"


def share_statements(patched: pytest.MonkeyPatch) -> None:
    """Let all SQLite catalogs of this process use the same compiled statements; each has its own connections."""
    # lake's own statement comes after the one below.
    patched.setitem(sql._FIRST_STATEMENTS, "sqlite", _UNFLUSHED)
    first = create_engine("sqlite://")
    # The first connection asks SQLite what the dialect must know.
    first.connect().close()
    statements: dict[Any, Any] = {}

    def create(address: str, **options: Any) -> Engine:
        engine = create_engine(address, **options)
        if engine.dialect.name == first.dialect.name:
            # Statements are found by their text and by the dialect's identity.
            engine.dialect = first.dialect
            engine.update_execution_options(compiled_cache=statements)
            event.listen(engine, "connect", _do_not_flush)
        return engine

    patched.setattr(pyiceberg.catalog.sql, "create_engine", create)


def _do_not_flush(connection: Any, _: object) -> None:
    connection.execute(_UNFLUSHED)
