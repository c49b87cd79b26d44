"""One table with a session on it, a clock that tests move, and other writers: what most tests of commits need."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.table import Table as IcebergTable

from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles, Operation
from support.tables.iceberg_tables import (
    FixedClock,
    files_below,
    ids_in,
    make_table,
    open_session,
    pyiceberg_table,
    write_file,
)

NAME = "db.t"


class TableHarness:
    """The table ``db.t`` of a warehouse; files of tests add what they need in a subclass.

    Args:
        warehouse: a folder, in which the table is made.
        options: of `make_table`.
    """

    def __init__(self, warehouse: Path, **options: Any) -> None:
        self.warehouse = warehouse
        make_table(warehouse, NAME, **options)
        self.clock = FixedClock()
        self.session = open_session(warehouse, self.clock)

    def load(self) -> Table:
        """Load the table as it is now."""
        return self.session.table(NAME)

    @property
    def pyiceberg(self) -> IcebergTable:
        """The table as PyIceberg reads it, and a writer that is not lake."""
        return pyiceberg_table(self.warehouse, NAME)

    @property
    def ids(self) -> list[int]:
        """The sorted ids of the table's rows, as PyIceberg reads them."""
        return ids_in(self.warehouse)

    def commit_on(
        self,
        table: Table,
        operation: Operation,
        *,
        summary: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Committed:
        """Commit an operation with a new operation id; the options are those of a `CommitRequest`."""
        request = CommitRequest(operation_id=str(uuid.uuid4()), **options)
        return commit_snapshot(self.session, table, operation, request, summary=summary)

    def append_elsewhere(self, *ids: int) -> None:
        """Append a file of rows by another session."""
        other = open_session(self.warehouse, self.clock)
        table = other.table(NAME)
        added = AppendFiles(added=[write_file(table, ids)])
        commit_snapshot(other, table, added, CommitRequest(operation_id=str(uuid.uuid4())))

    def live_paths(self) -> list[str]:
        """Return the sorted locations of the data files of the current snapshot."""
        return sorted(task.file.file_path for task in self.pyiceberg.scan().plan_files())

    def data_files(self) -> set[str]:
        """Return the data files on disk, live or not, relative to the warehouse."""
        return {name for name in files_below(self.warehouse) if name.endswith(".parquet")}
