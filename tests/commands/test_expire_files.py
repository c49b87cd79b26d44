"""Which files `lake expire` deletes: statistics with their snapshots, and nothing that another name keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetPartitionStatisticsUpdate, SetStatisticsUpdate
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    ids_in,
    inject,
    make_table,
    open_session,
    pyiceberg_table,
)

from lake.core.maintain.expiration.execute import execute
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions

EXPIRE = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")


def append(warehouse: Path, *ids: int) -> int:
    """Append rows and return the snapshot's id."""
    table = pyiceberg_table(warehouse)
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{one}" for one in ids]}))
    return int(table.metadata.current_snapshot_id)


def describe(warehouse: Path, snapshot_id: int, name: str, *, partitions: bool = False) -> Path:
    """Write a file of statistics and set it as a snapshot's."""
    table = pyiceberg_table(warehouse)
    path = Path(table.location().removeprefix("file://")) / "metadata" / name
    path.write_bytes(b"x" * 1000)
    fields: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "statistics-path": f"file://{path}",
        "file-size-in-bytes": 1000,
    }
    update: Any
    if partitions:
        update = SetPartitionStatisticsUpdate(
            partition_statistics=PartitionStatisticsFile(**fields)
        )
    else:
        fields |= {"file-footer-size-in-bytes": 10, "blob-metadata": []}
        update = SetStatisticsUpdate(statistics=StatisticsFile(**fields))
    table.catalog.commit_table(table, (), (update,))
    return path


def test_statistics_files_go_with_their_snapshots(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)
    first, second = append(warehouse, 1), append(warehouse, 2)
    gone = [
        describe(warehouse, first, "first.stats"),
        describe(warehouse, second, "second.stats"),
        describe(warehouse, first, "first-partitions.parquet", partitions=True),
    ]
    third = append(warehouse, 3)
    kept = [
        describe(warehouse, third, "third.stats"),
        describe(warehouse, third, "third-partitions.parquet", partitions=True),
    ]

    promised = lake.ok(*EXPIRE, "--dry-run")["plan"]
    document = lake.ok(*EXPIRE)

    assert promised["statistics_files"] == 3
    assert document["plan"] == promised
    assert document["result"] == {**promised, "failed_deletes": 0}
    assert not document["warnings"]
    assert [path.exists() for path in (*gone, *kept)] == [False, False, False, True, True]
    assert ids_in(warehouse) == [1, 2, 3]


def test_a_statistics_file_that_another_entry_names_stays(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse)
    first, second = append(warehouse, 1), append(warehouse, 2)
    shared = [describe(warehouse, one, "shared.stats") for one in (first, second)]

    document = lake.ok(*EXPIRE)

    assert document["result"]["statistics_files"] == document["plan"]["statistics_files"] == 0
    assert shared[0].exists()


def test_a_statistics_file_that_the_catalog_still_names_stays(warehouse: Path) -> None:
    make_table(warehouse)
    first = append(warehouse, 1)
    kept = describe(warehouse, first, "kept.stats")
    append(warehouse, 2)
    session = open_session(warehouse)
    plan = plan_expiration(
        session,
        session.table("db.t"),
        RetentionOptions(older_than=session.clock.now_ms(), unsafe_retention=True),
    )
    # As a server does that removes snapshots and leaves the entries of their statistics.
    statistics = plan.table.metadata.statistics
    catalog = session.catalog.handle
    real = catalog.commit_table

    def commit(table: Any, requirements: Any, updates: Any) -> Any:
        again = [SetStatisticsUpdate(statistics=item) for item in statistics]
        return real(table, requirements, (*updates, *again))

    catalog.commit_table = commit  # type: ignore[method-assign]

    outcome = execute(session, plan)

    assert kept.exists()
    assert ExpirationFacts.of(outcome.plan).statistics_files == 1
    assert ExpirationFacts.of(outcome.result).statistics_files == 0
    assert "1 files are referenced by the table again" in " ".join(session.warnings)


def test_files_outside_are_not_counted_as_going(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse)
    append(warehouse, 1)
    table = pyiceberg_table(warehouse)
    [task] = table.scan().plan_files()
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(Path(task.file.file_path.removeprefix("file://")).read_bytes())
    table.add_files([f"file://{outside}"])
    table.overwrite(pa.table({"id": pa.array([2], pa.int64()), "name": ["n2"]}))

    promised = lake.ok(*EXPIRE, "--dry-run")
    document = lake.ok(*EXPIRE)

    assert promised["plan"]["data_files"] == 1
    assert document["result"] == {**promised["plan"], "failed_deletes": 0}
    assert "are outside the table's folders" in " ".join(promised["warnings"])
    assert promised["warnings"] == document["warnings"]
    assert outside.exists()


def test_what_another_writer_changed_meanwhile_is_explained(warehouse: Path) -> None:
    make_table(warehouse)
    append(warehouse, 1)
    table = pyiceberg_table(warehouse)
    table.overwrite(pa.table({"id": pa.array([2], pa.int64()), "name": ["n2"]}))
    session = open_session(warehouse)
    plan = plan_expiration(
        session,
        session.table("db.t"),
        RetentionOptions(older_than=session.clock.now_ms(), unsafe_retention=True),
    )
    oldest = plan.table.metadata.snapshots[0].snapshot_id
    tagging = table.manage_snapshots().create_tag(oldest, "kept")
    inject(session, [after(tagging.commit)])

    outcome = execute(session, plan)

    assert ExpirationFacts.of(outcome.result).data_files == 0
    assert "were planned but are still needed" in " ".join(session.warnings)
    assert ids_in(warehouse, snapshot_id=oldest) == [1]


# Live files under a second name


def plain_file(warehouse: Path) -> Path:
    """Write a file among the table's data, as another tool does that then registers it."""
    data = warehouse / "db" / "t" / "data"
    data.mkdir(parents=True, exist_ok=True)
    path = data / "plain.parquet"
    pq.write_table(pa.table({"id": pa.array([7], pa.int64()), "name": ["n7"]}), path)
    return path


def renamed(path: Path, way: str) -> str:
    """Return a second name of a file."""
    folder = path.parent
    if way == "link to the file":
        (folder / "link.parquet").symlink_to(path)
        return f"{folder}/link.parquet"
    if way == "link to the folder":
        (folder.parent / "other").symlink_to(folder)
        return f"file://{folder.parent}/other/{path.name}"
    return {
        "dot": f"{folder}/./{path.name}",
        "dots": f"file://{folder}/../data/{path.name}",
        "dots in the way": f"{folder}/missing/../{path.name}",
        "one slash": f"file:{path}",
        "slashes": f"file:///{folder}//{path.name}",
        "plain": str(path),
    }[way]


@pytest.mark.parametrize(
    "way",
    ["dot", "dots", "one slash", "slashes", "plain", "link to the file", "link to the folder"],
)
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
def test_a_live_file_stays_whatever_name_it_had_in_what_expires(
    lake: CommandLine, warehouse: Path, way: str, swapped: bool
) -> None:
    table = make_table(warehouse)
    path = plain_file(warehouse)
    names = [f"file://{path}", renamed(path, way)]
    old, new = reversed(names) if swapped else names
    table.add_files([old])
    table.overwrite(pa.table({"id": pa.array([1], pa.int64()), "name": ["n1"]}))
    table.add_files([new])

    promised = lake.ok(*EXPIRE, "--dry-run")["plan"]
    document = lake.ok(*EXPIRE)

    assert path.exists()
    assert sorted(ids_in(warehouse)) == [1, 7]
    assert document["result"] == {**promised, "failed_deletes": 0}
    # A link that is unused goes; what it leads to stays.
    assert promised["data_files"] == (1 if swapped and way == "link to the file" else 0)


@pytest.mark.parametrize("first", ["real", "link"])
def test_a_live_file_stays_in_a_warehouse_that_a_link_leads_to(tmp_path: Path, first: str) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    table = make_table(link)
    path = plain_file(real)
    names = {"real": f"file://{path}", "link": f"file://{link}/db/t/data/{path.name}"}
    table.add_files([names.pop(first)])
    table.overwrite(pa.table({"id": pa.array([1], pa.int64()), "name": ["n1"]}))
    table.add_files([*names.values()])
    table.overwrite(pa.table({"id": pa.array([2], pa.int64()), "name": ["n2"]}), "id == 1")

    result = CommandLine(link).ok(*EXPIRE)["result"]

    assert path.exists()
    assert ids_in(link) == [2, 7]
    # What is unused goes through a link as well.
    assert result["data_files"] == 1
    assert result["manifests"] > 0
    assert result["failed_deletes"] == 0
