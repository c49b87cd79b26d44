"""Every ordered pair of commits made on one snapshot: the second holds on top of the first, or is refused.

Rows are judged as sets of ids: what a pair leaves must be what it leaves when one runs after the other, or only
the first's rows, when the second was refused. Nothing comes back, nothing is lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.delete_files import equality_file, position_file, vectors
from support.tables.iceberg_tables import SCHEMA, open_session, pyiceberg_catalog, write_file
from support.tiers import chosen

from lake.core.base.errors import CommitConflictError
from lake.core.spec.types import transform_syntax
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import (
    AppendFiles,
    Operation,
    OverwriteFiles,
    RewriteFiles,
    RowDelta,
)
from lake.core.transaction.session import Session

ISOLATIONS = ("serializable", "snapshot")
FIRST, SECOND, NEW = {0, 1, 2, 3}, {4, 5, 6}, {3, 20}
# A row's id, and whether it was there before both commits.
Row = tuple[int, bool]


@dataclass(frozen=True)
class Base:
    """The snapshot that both commits were made on: two files of ids."""

    table: Table
    first: DataFile
    second: DataFile
    isolation: str

    @property
    def head(self) -> int:
        found = self.table.metadata.current_snapshot_id
        assert found is not None
        return found

    def positions(self, *rows: int) -> list[DataFile]:
        if self.table.metadata.format_version == 3:
            return vectors(self.table, {self.first.path: rows})
        return [position_file(self.table, [(self.first.path, row) for row in rows])]


def append(base: Base) -> Operation:
    return AppendFiles(added=[write_file(base.table, NEW)])


def delete_positions(base: Base) -> Operation:
    return RowDelta(
        added=[],
        deletes=base.positions(1),
        base_snapshot_id=base.head,
        isolation=base.isolation,
    )


def delete_keys(base: Base) -> Operation:
    keys = equality_file(base.table, [{"id": 3}, {"id": 5}], ["id"])
    return RowDelta(added=[], deletes=[keys], base_snapshot_id=base.head, validates=False)


def replace_a_row(base: Base) -> Operation:
    return RowDelta(
        added=[write_file(base.table, [2, 30])],
        deletes=base.positions(2),
        base_snapshot_id=base.head,
        isolation=base.isolation,
    )


def drop_a_file(base: Base) -> Operation:
    return OverwriteFiles(
        added=[],
        removed_paths=[base.second.path],
        base_snapshot_id=base.head,
        isolation=base.isolation,
    )


def overwrite_all(base: Base) -> Operation:
    return OverwriteFiles(
        added=[write_file(base.table, [40])],
        removed_paths=[base.first.path, base.second.path],
        base_snapshot_id=base.head,
        isolation=base.isolation,
    )


def rewrite(base: Base, *, keeps: bool = True) -> Operation:
    snapshot = base.table.metadata.current_snapshot()
    assert snapshot is not None
    return RewriteFiles(
        added=[write_file(base.table, FIRST | SECOND)],
        removed_paths=[base.first.path, base.second.path],
        base_snapshot_id=base.head,
        data_sequence_number=snapshot.sequence_number if keeps else None,
    )


def rewrite_with_new_sequence_number(base: Base) -> Operation:
    return rewrite(base, keeps=False)


def _without(*gone: int, only_old: bool) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [row for row in rows if row[0] not in gone or (only_old and not row[1])]


def _and(*new: int) -> list[Row]:
    return [(number, False) for number in new]


# What each does to the rows, when it runs alone on what it finds. A place in a file is of an old row.
COMMITS: Mapping[str, tuple[Callable[[Base], Operation], Callable[[list[Row]], list[Row]]]] = {
    "append": (append, lambda rows: [*rows, *_and(*NEW)]),
    "delete positions": (delete_positions, _without(1, only_old=True)),
    "delete keys": (delete_keys, _without(3, 5, only_old=False)),
    "replace a row": (
        replace_a_row,
        lambda rows: [*_without(2, only_old=True)(rows), *_and(2, 30)],
    ),
    "drop a file": (drop_a_file, _without(*SECOND, only_old=True)),
    "overwrite all": (
        overwrite_all,
        lambda rows: [*_without(*FIRST, *SECOND, only_old=True)(rows), *_and(40)],
    ),
    "rewrite": (rewrite, lambda rows: rows),
    "rewrite with a new sequence number": (rewrite_with_new_sequence_number, lambda rows: rows),
}


def make_base(session: Session, name: str, version: int, isolation: str) -> Base:
    staged = session.catalog.stage(
        name,
        SCHEMA,
        transform_syntax.partition_spec(None, SCHEMA),
        transform_syntax.sort_order(None, SCHEMA),
        {"format-version": str(version)},
    )
    first, second = write_file(staged, FIRST), write_file(staged, SECOND)
    done = commit_snapshot(
        session,
        staged,
        AppendFiles(added=[first, second]),
        CommitRequest(operation_id=str(uuid.uuid4())),
    )
    return Base(done.table, first, second, isolation)


def read(warehouse: Path, name: str) -> list[int]:
    rows = CommandLine(warehouse).ok("scan", name)["result"]["preview"]
    return sorted(row["id"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "isolation"),
    # Each version and each isolation; the other two combine them otherwise.
    chosen([(3, "serializable"), (2, "snapshot")], list(product((2, 3), ISOLATIONS))),
)
def test_no_pair_of_commits_brings_a_row_back_or_loses_one(
    tmp_path: Path, version: int, isolation: str
) -> None:
    refused = set()
    pyiceberg_catalog(tmp_path).create_namespace("db")
    session = open_session(tmp_path)
    for number, (one, other) in enumerate(product(COMMITS, COMMITS)):
        name = f"db.t{number}"
        base = make_base(session, name, version, isolation)
        (make_one, does_one), (make_other, does_other) = COMMITS[one], COMMITS[other]
        operations = make_one(base), make_other(base)
        expected = does_one([(number, True) for number in (*FIRST, *SECOND)])
        commit_snapshot(
            session, base.table, operations[0], CommitRequest(operation_id=str(uuid.uuid4()))
        )
        try:
            commit_snapshot(
                session, base.table, operations[1], CommitRequest(operation_id=str(uuid.uuid4()))
            )
        except CommitConflictError:
            refused.add((one, other))
        else:
            expected = does_other(expected)

        assert read(tmp_path, name) == sorted(row for row, _ in expected), (one, other)

    # What may always follow anything, and what never may follow a rewrite of its file.
    assert not {pair for pair in refused if pair[1] in {"append", "delete keys"}}
    assert ("rewrite", "delete positions") in refused
    assert ("delete positions", "rewrite") in refused
    assert ("delete keys", "rewrite") not in refused
    assert ("delete keys", "rewrite with a new sequence number") in refused
