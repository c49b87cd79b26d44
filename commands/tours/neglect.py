"""States in which tables are left by the programs that write them, each as a function that makes one.

What is enough to matter follows from the costs of `lake health` on a local disk: some 200 files, 70 manifests or 10
expired snapshots.
"""

from __future__ import annotations

from collections.abc import Callable

from lake.commands.tours.table_maker import TableMaker
from lake.core.transaction.commit.operations import AppendFiles, ReplacePartitions, RowDelta

Make = Callable[[TableMaker], None]
# Each commit leaves manifests of its own, as those of Flink's sink do.
UNMERGED = {"commit.manifest-merge.enabled": "false"}
VECTORS = {"format-version": "3"}
_LATELY = 0.06


def tidy(files: int = 2, rows: int = 2000) -> Make:
    """A few files of the last days."""

    def make(table: TableMaker) -> None:
        operations = [AppendFiles(added=[table.file(rows, 1)]) for _ in range(files)]
        table.commit(*operations, since=3, until=_LATELY)

    return make


def small_files(files: int, *, commits: int, days: int = 1, since: float = 4) -> Make:
    """Many small files: those of a writer that has many tasks, or that commits often."""

    def make(table: TableMaker) -> None:
        written = [table.file(20, 1 + number % days) for number in range(files)]
        each = -(-files // commits)
        operations = [AppendFiles(added=written[at : at + each]) for at in range(0, files, each)]
        table.commit(*operations, since=since, until=_LATELY)

    return make


def streamed_upserts(commits: int, *, since: float) -> Make:
    """The commits of a stream of changes: new versions of rows, and equality deletes of the old ones."""

    def make(table: TableMaker) -> None:
        operations = []
        for _ in range(commits):
            # A third of the keys are those of rows of earlier commits.
            first = max(table.keys - 10, 0)
            keys = range(first, first + 30)
            operations.append(
                RowDelta(
                    added=[table.file_of(keys, 1)],
                    deletes=table.equality_deletes(keys),
                    validates=False,
                )
            )
        table.commit(*operations, since=since, until=_LATELY)

    return make


def many_equality_deletes(deletes: int) -> Make:
    """A large file, and keys that were deleted from it a few at a time."""

    def make(table: TableMaker) -> None:
        table.commit(AppendFiles(added=[table.file(4000, 1)]), since=4, until=4)
        groups = [
            [file for at in range(10) for file in table.equality_deletes([(first + at) * 7])]
            for first in range(0, deletes, 10)
        ]
        operations = [RowDelta(added=[], deletes=group, validates=False) for group in groups]
        table.commit(*operations, since=3, until=_LATELY)

    return make


def many_position_deletes(deletes: int) -> Make:
    """A large file, and rows that were deleted from it a few at a time."""

    def make(table: TableMaker) -> None:
        file = table.file(4000, 1)
        table.commit(AppendFiles(added=[file]), since=4, until=4)
        positions = [(file, [number * 8, number * 8 + 3]) for number in range(deletes)]
        operations = [
            RowDelta(
                added=[],
                deletes=table.position_deletes(positions[at : at + 10]),
                validates=False,
            )
            for at in range(0, deletes, 10)
        ]
        table.commit(*operations, since=3, until=_LATELY)

    return make


def vectors_on_small_files(files: int) -> Make:
    """Small files, each with a deletion vector."""

    def make(table: TableMaker) -> None:
        written = [table.file(40, 1) for _ in range(files)]
        table.commit(AppendFiles(added=written), since=4, until=4)
        deletes = table.position_deletes([(file, range(0, 40, 3)) for file in written])
        table.commit(RowDelta(added=[], deletes=deletes, validates=False), since=2, until=2)

    return make


def nightly_replacement(nights: int) -> Make:
    """A table whose rows are all replaced every night, so that old snapshots keep all old files."""

    def make(table: TableMaker) -> None:
        operations = [
            ReplacePartitions(added=[table.file(1500, 1)], validates=False) for _ in range(nights)
        ]
        table.commit(*operations, since=nights, until=0.3)

    return make


def new_partitioning(files: int, terms: str) -> Make:
    """Small files from before the table was partitioned, and a few after it."""

    def make(table: TableMaker) -> None:
        old = [table.file(20, 1 + number % 6) for number in range(files)]
        table.commit(AppendFiles(added=old), since=20, until=20)
        table.partition_by(terms, 6)
        new = [table.file(200, day) for day in (1, 2, 3)]
        table.commit(AppendFiles(added=new), since=3, until=1)

    return make


def with_orphans(make_rest: Make, orphans: int) -> Make:
    """A table in whose folder a killed job left files that no snapshot references."""

    def make(table: TableMaker) -> None:
        make_rest(table)
        table.leave_orphans(orphans, 40)

    return make


def unreadable(table: TableMaker) -> None:
    """A table with a damaged manifest list."""
    tidy()(table)
    table.cut_manifest_list()


def empty(table: TableMaker) -> None:
    """A table without a snapshot."""
    table.create(since=9)
