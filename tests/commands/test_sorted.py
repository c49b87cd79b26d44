"""Files in the order of their table: by `lake ingest` and by `lake compact` with the strategies that sort."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    files_below,
    open_session,
    pyiceberg_table,
)

from lake.core.base.settings import Settings
from lake.core.data.rows import sorted_writer
from lake.core.data.sorting import external_sort, range_partitioning
from lake.core.engine.inline import InlineEngine
from lake.core.load.ingest import plan as planning
from lake.core.maintain.compaction import rewrite
from lake.core.table.snapshots.ancestry import branch_head
from lake.core.table.snapshots.live_files import live_files as live_files_of
from lake.core.transaction.session import Session
from lake.core.transaction.session import open_session as open_real_session

Row = dict[str, Any]
NAMES = ("file_path", "first_row_id")
DISTRIBUTIONS = ["none", "hash", "range"]


def some_rows(count: int, seed: int = 1) -> list[Row]:
    """Return rows in no order; some ids come twice or are NULL."""
    source = random.Random(seed)
    return [
        {
            "id": None if number % 17 == 0 else source.randrange(count),
            "part": f"p{source.randrange(3)}",
            "number": number,
        }
        for number in range(count)
    ]


def write_sources(folder: Path, rows: list[Row], files: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("number", pa.int64())])
    made = []
    for place in range(files):
        made.append(folder / f"{place}.parquet")
        pq.write_table(pa.Table.from_pylist(rows[place::files], schema), made[-1])
    return made


def live_files(warehouse: Path) -> list[tuple[list[Row], int | None]]:
    """Return each live file's rows in their order, and the sort order of its entry."""
    table = pyiceberg_table(warehouse)
    found = table.inspect.data_files().to_pylist()
    return [
        (
            pq.read_table(one["file_path"].removeprefix("file://"), partitioning=None).to_pylist(),
            one["sort_order_id"],
        )
        for one in found
    ]


def all_rows(files: list[tuple[list[Row], int | None]]) -> list[Row]:
    found = [
        {name: row[name] for name in ("id", "part", "number")} for rows, _ in files for row in rows
    ]
    return sorted(found, key=lambda row: row["number"])


def descending(row: Row) -> tuple[bool, int]:
    """Return the sort key of a row by ``id desc nulls last``."""
    return row["id"] is None, -(row["id"] or 0)


def ascending(row: Row) -> tuple[bool, int]:
    """Return the sort key of a row by ``id``."""
    return row["id"] is not None, row["id"] or 0


def are_ranges(files: list[list[Row]], key: Callable[[Row], Any]) -> bool:
    """Return whether files are sorted, and their ranges do not overlap."""
    ends = sorted((key(rows[0]), key(rows[-1])) for rows in files)
    apart = all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    return apart and all(rows == sorted(rows, key=key) for rows in files)


@pytest.fixture
def sending(warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """`lake` on an engine of this process that sends rows from task to task as Spark does."""
    monkeypatch.setattr(planning, "_SMALLEST_TASK_BYTES", 1)
    monkeypatch.setattr(rewrite, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(range_partitioning, "_RANGE_BYTES", 1000)
    engine = InlineEngine(4)
    engine.name = "sending"

    def opened(settings: Settings) -> Session:
        session = open_real_session(settings)
        session._engine = engine
        monkeypatch.setattr(engine, "stop", lambda: None)
        return session

    return CommandLine(warehouse, open_session=opened)


# Ingest


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("place", ["lake", "sending"])
def test_every_file_of_a_sorted_table_is_sorted_and_says_so(
    request: pytest.FixtureRequest, tmp_path: Path, place: str, distribution: str
) -> None:
    lake: CommandLine = request.getfixturevalue(place)
    rows = some_rows(400)
    sources = write_sources(tmp_path / "in", rows, 4)
    order = ["--partition-by", "part", "--sort-by", "id desc nulls last"]

    done = lake.ok("ingest", "db.t", *sources, "--create", *order, "--distribution", distribution)

    assert done["plan"]["distribution"] == distribution
    assert done["plan"]["sorted_by"] == ["part asc nulls first", "id desc nulls last"]
    files = live_files(lake.warehouse)
    assert all_rows(files) == rows
    for found, order_id in files:
        assert order_id == 1
        assert len({row["part"] for row in found}) == 1
        assert found == sorted(found, key=descending)


def test_range_distribution_gives_each_task_a_range_of_the_order(
    sending: CommandLine, tmp_path: Path
) -> None:
    rows = some_rows(3000)
    sources = write_sources(tmp_path / "in", rows, 6)

    sending.ok("ingest", "db.t", *sources, "--create", "--sort-by", "id", "--distribution", "range")

    files = live_files(sending.warehouse)
    assert all_rows(files) == rows
    assert len(files) == 4
    assert are_ranges([found for found, _ in files], ascending)
    assert all(500 < len(found) < 1000 for found, _ in files)
    plan = sending.ok("scan", "db.t", "--plan", "--where", "id < 100")["plan"]
    assert (plan["files"], plan["skipped_files"]) == (1, 3)


def test_range_distribution_of_an_unsorted_table_is_by_its_partitions(
    sending: CommandLine, tmp_path: Path
) -> None:
    rows = some_rows(900)
    sources = write_sources(tmp_path / "in", rows, 3)
    asked = ["--partition-by", "bucket(16, id)", "--property", "write.distribution-mode=range"]

    done = sending.ok("ingest", "db.t", *sources, "--create", *asked)

    assert done["plan"]["distribution"] == "range"
    files = live_files(sending.warehouse)
    assert all_rows(files) == rows
    assert {order_id for _, order_id in files} == {None}
    # 17 partitions with that of NULL: only a partition at a cut is in two files.
    assert 17 <= len(files) <= 17 + 3


def test_a_frequent_value_is_written_by_several_tasks(sending: CommandLine, tmp_path: Path) -> None:
    rows = [{"id": 5 if n % 20 else n, "part": "p", "number": n} for n in range(4000)]
    sources = write_sources(tmp_path / "in", rows, 4)

    sending.ok("ingest", "db.t", *sources, "--create", "--sort-by", "id", "--distribution", "range")

    files = live_files(sending.warehouse)
    assert all_rows(files) == rows
    assert are_ranges([found for found, _ in files], ascending)
    assert max(len(found) for found, _ in files) < 2000


def test_the_order_of_a_table_by_transforms_is_kept(lake: CommandLine, tmp_path: Path) -> None:
    rows = some_rows(300)
    sources = write_sources(tmp_path / "in", rows, 2)
    asked = "truncate(50, id) desc nulls first, number desc"

    lake.ok("ingest", "db.t", *sources, "--create", "--sort-by", asked, "--distribution", "range")

    ((found, order_id),) = live_files(lake.warehouse)
    assert order_id == 1
    assert found == sorted(
        found,
        key=lambda row: (row["id"] is not None, -((row["id"] or 0) // 50), -row["number"]),
    )


def test_what_does_not_fit_in_memory_is_sorted_on_disk(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(external_sort, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(
        sorted_writer, "RowSorter", lambda **more: external_sort.RowSorter(1000, **more)
    )
    rows = some_rows(2000)
    sources = write_sources(tmp_path / "in", rows, 20)

    lake.ok("ingest", "db.t", *sources, "--create", "--sort-by", "id")

    ((found, _),) = files = live_files(lake.warehouse)
    assert all_rows(files) == rows
    assert found == sorted(found, key=ascending)


def test_rows_that_an_overwrite_keeps_are_sorted_too(lake: CommandLine, tmp_path: Path) -> None:
    rows = some_rows(200)
    sources = write_sources(tmp_path / "in", rows, 1)
    lake.ok("ingest", "db.t", *sources, "--create", "--sort-by", "id")
    (new,) = write_sources(tmp_path / "new", [{"id": 3, "part": "p9", "number": -1}], 1)

    lake.ok("ingest", "db.t", new, "--overwrite-where", "id < 5")

    files = live_files(lake.warehouse)
    kept = [row for row in rows if row["id"] is None or row["id"] >= 5]
    assert all_rows(files) == [{"id": 3, "part": "p9", "number": -1}, *kept]
    assert all(found == sorted(found, key=ascending) for found, _ in files)
    assert [order_id for _, order_id in files] == [1, 1]


def test_an_upsert_by_range_is_by_hash_with_a_warning(sending: CommandLine, tmp_path: Path) -> None:
    lake = sending
    rows = [{"id": n, "part": f"p{n % 3}", "number": n} for n in range(50)]
    source = str(tmp_path / "in" / "*.parquet")
    write_sources(tmp_path / "in", rows, 3)
    asked = ["--partition-by", "part", "--sort-by", "id desc"]
    mode = ["--property", "write.distribution-mode=range"]
    lake.ok("ingest", "db.t", source, "--create", *asked, *mode)

    done = lake.ok("ingest", "db.t", source, "--upsert", "--key", "id,part")

    assert done["plan"]["distribution"] == "hash"
    assert any("by hash instead of by range" in warning for warning in done["warnings"])
    scanned = lake.rows()
    assert sorted(scanned, key=lambda row: row["number"]) == rows
    files = live_files(lake.warehouse)
    assert {order_id for _, order_id in files} == {1}
    assert all(found == sorted(found, key=descending) for found, _ in files)


def test_range_distribution_without_an_order_is_refused_for_option_and_property(
    lake: CommandLine, tmp_path: Path
) -> None:
    (source,) = write_sources(tmp_path / "in", some_rows(5), 1)
    lake.ok("ingest", "db.t", source, "--create")
    before = files_below(lake.warehouse)
    asked = lake("--json", "ingest", "db.t", source, "--distribution", "range")
    assert files_below(lake.warehouse) == before

    table = lake.table()
    with table.transaction() as change:
        change.set_properties({"write.distribution-mode": "range"})
    by_table = lake("--json", "ingest", "db.t", source)

    for result in (asked, by_table):
        assert result.exit_code == 2
        assert "needs a sort order or a partition spec" in result.json()["error"]["message"]
    assert lake("ingest", "db.t", source, "--distribution", "none", "--dry-run").exit_code == 0


# Compaction


def unsorted_files(lake: CommandLine, folder: Path, rows: list[Row], *options: str) -> None:
    """Make a table of unsorted rows."""
    lake.ok("ingest", "db.t", *write_sources(folder, rows, 6), "--create", *options)


@pytest.mark.parametrize(
    ("asked", "claimed"),
    [
        ([], 1),
        (["--by", "id"], None),
        (["--by", "id desc"], 1),
        (["--by", "id desc nulls first"], None),
    ],
)
def test_a_sorted_compaction_claims_the_tables_order_only_where_it_is(
    lake: CommandLine, tmp_path: Path, asked: list[str], claimed: int | None
) -> None:
    rows = some_rows(300)
    unsorted_files(lake, tmp_path / "in", rows)
    table = lake.table()
    with table.update_sort_order() as order:
        order.desc("id", IdentityTransform(), NullOrder.NULLS_LAST)

    done = lake.ok("compact", "db.t", "--strategy", "sort", *asked, "--rewrite-all", "--verify")

    assert done["result"]["rows_out"] == 300
    ((found, order_id),) = files = live_files(lake.warehouse)
    assert all_rows(files) == rows
    assert order_id == claimed
    if asked[1:] == ["id desc nulls first"]:
        nulls = sum(row["id"] is None for row in rows)
        assert [row["id"] for row in found[:nulls]] == [None] * nulls
        found = found[nulls:]
    assert found == sorted(found, key=ascending if asked[1:] == ["id"] else descending)


@pytest.mark.parametrize("verify", [[], ["--verify"]])
def test_large_groups_are_sorted_by_ranges(
    sending: CommandLine, tmp_path: Path, verify: list[str]
) -> None:
    rows = some_rows(6000)
    unsorted_files(sending, tmp_path / "in", rows)
    sizes = ["--target-size", "6KB", "--rewrite-all"]

    done = sending.ok("compact", "db.t", "--strategy", "sort", "--by", "id", *sizes, *verify)

    files = live_files(sending.warehouse)
    assert all_rows(files) == rows
    assert done["plan"]["sorted_by"] == ["id asc nulls first"]
    assert len(files) == done["plan"]["expected_output_files"] > 3
    assert are_ranges([found for found, _ in files], ascending)
    plan = sending.ok("scan", "db.t", "--plan", "--where", "id = 77")["plan"]
    assert plan["files"] == 1


def test_equal_rows_keep_their_order_in_a_file_that_is_sorted_in_ranges(
    sending: CommandLine, tmp_path: Path
) -> None:
    rows = [
        {"id": 5 if number % 3 else number % 50, "part": "p", "number": number}
        for number in range(3000)
    ]
    unsorted_files(sending, tmp_path / "in", rows)
    before = [row for found, _ in live_files(sending.warehouse) for row in found]
    assert sum(path.stat().st_size for path in sending.warehouse.rglob("*.parquet")) > 4000

    sending.ok("compact", "db.t", "--strategy", "sort", "--by", "id", "--rewrite-all")

    ((found, _),) = live_files(sending.warehouse)
    assert found == sorted(before, key=ascending)


def test_deleted_rows_go_and_row_ids_stay_when_rows_are_sorted(
    sending: CommandLine, tmp_path: Path
) -> None:
    rows = [{"id": (n * 37) % 1000, "part": f"p{n % 2}", "number": n} for n in range(1000)]
    unsorted_files(sending, tmp_path / "in", rows, "--property", "format-version=3")
    changed = [{"id": n, "part": "new", "number": 1000 + n} for n in range(0, 1000, 10)]
    (source,) = write_sources(tmp_path / "new", changed, 1)
    sending.ok("ingest", "db.t", source, "--upsert", "--key", "id")
    before = row_ids(sending)

    sending.ok("compact", "db.t", "--strategy", "sort", "--by", "id desc", "--rewrite-all")

    files = live_files(sending.warehouse)
    kept = [row for row in rows if row["id"] % 10]
    assert all_rows(files) == [*kept, *changed]
    assert are_ranges([found for found, _ in files], descending)
    found = {row["number"]: row["_row_id"] for rows_in, _ in files for row in rows_in}
    assert found == {number: before[number] for number in found}
    assert len(set(found.values())) == 1000


def row_ids(lake: CommandLine) -> dict[int, int]:
    """Return each row's id: its file's first and its place in it."""
    table = open_session(lake.warehouse).table("db.t")
    (entries,) = live_files_of(table, branch_head(table.metadata, "main")).by_spec.values()
    found = {}
    for path, first in zip(*(entries[name].to_pylist() for name in NAMES), strict=True):
        for place, row in enumerate(pq.read_table(path.removeprefix("file://")).to_pylist()):
            found[row["number"]] = first + place
    return found


def test_rows_go_to_the_partitions_of_another_spec_in_order(
    sending: CommandLine, tmp_path: Path
) -> None:
    rows = some_rows(900)
    unsorted_files(sending, tmp_path / "in", rows)
    table = pyiceberg_table(sending.warehouse)
    with table.update_spec() as spec:
        spec.add_identity("part")

    sending.ok("compact", "db.t", "--strategy", "sort", "--by", "id desc", "--rewrite-all")

    files = live_files(sending.warehouse)
    assert all_rows(files) == rows
    assert [len({row["part"] for row in found}) for found, _ in files] == [1] * len(files)
    assert all(found == sorted(found, key=descending) for found, _ in files)


@pytest.mark.parametrize("curve", ["zorder", "hilbert"])
def test_a_curve_lets_filters_on_each_column_skip_files(
    sending: CommandLine, tmp_path: Path, curve: str
) -> None:
    source = random.Random(3)
    rows = [
        {"id": source.randrange(2**16), "part": "p", "number": source.randrange(2**16)}
        for _ in range(8000)
    ]
    unsorted_files(sending, tmp_path / "in", rows)
    sizes = ["--target-size", "5KB", "--rewrite-all"]

    done = sending.ok("compact", "db.t", "--strategy", curve, "--by", "id, number", *sizes)

    assert done["plan"]["sorted_by"] == [f"{curve}(id, number)"]
    files = live_files(sending.warehouse)
    assert {order_id for _, order_id in files} == {None}
    assert sorted(map(str, all_rows(files))) == sorted(map(str, rows))
    for column in ("id", "number"):
        plan = sending.ok("scan", "db.t", "--plan", "--where", f"{column} < 2000")["plan"]
        # Unsorted, each file holds such a row; where the cuts fall is the sample's choice.
        assert plan["skipped_files"] * 2 >= plan["files"]


@pytest.mark.parametrize("place", ["lake", "sending"])
def test_a_value_that_changes_while_rows_are_sorted_is_found_by_verify(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    lake: CommandLine = request.getfixturevalue(place)
    rows = some_rows(400)
    unsorted_files(lake, tmp_path / "in", rows)
    before = files_below(lake.warehouse)

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows_alone = external_sort.without_keys(batch)
        numbers = rows_alone.column("number")
        # The bounds and the counts are the same as before.
        swapped = numbers.take(pa.array([1, 0, *range(2, len(numbers))][: len(numbers)]))
        return rows_alone.set_column(2, "number", swapped)

    monkeypatch.setattr(sorted_writer, "without_keys", changed)
    sizes = ["--target-size", "3KB", "--rewrite-all"]

    result = lake(
        "--json", "compact", "db.t", "--strategy", "sort", "--by", "id", *sizes, "--verify"
    )

    assert result.exit_code == 1
    assert "content hash" in result.json()["error"]["message"]
    assert files_below(lake.warehouse) == before


def test_a_lost_row_is_found_without_verify(
    sending: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = some_rows(400)
    unsorted_files(sending, tmp_path / "in", rows)
    before = files_below(sending.warehouse)
    monkeypatch.setattr(
        sorted_writer, "without_keys", lambda b: external_sort.without_keys(b.slice(1))
    )

    sorted_by_id = ["--strategy", "sort", "--by", "id", "--rewrite-all"]
    result = sending("--json", "compact", "db.t", *sorted_by_id)

    assert result.exit_code == 1
    assert "but wrote" in result.json()["error"]["message"]
    assert files_below(sending.warehouse) == before


def test_each_partition_is_sorted_alone_and_committed_as_it_ends(
    sending: CommandLine, tmp_path: Path
) -> None:
    rows = some_rows(900)
    unsorted_files(sending, tmp_path / "in", rows, "--partition-by", "part")
    asked = ["--strategy", "sort", "--by", "id", "--rewrite-all", "--partial-progress"]

    done = sending.ok("compact", "db.t", *asked, "--max-commits", "2")

    assert len(done["snapshot_ids"]) == 2
    files = live_files(sending.warehouse)
    assert all_rows(files) == rows
    assert len(files) == 3
    assert all(found == sorted(found, key=ascending) for found, _ in files)


def test_a_column_with_a_dot_in_its_name_orders_rows_in_several_files(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.parquet"
    names = [f"v{number * 7919 % 4001:04}" for number in range(4000)]
    pq.write_table(pa.table({"id": range(4000), "a.b": names}), source)
    lake.ok("ingest", "db.t", source, "--create")

    sort = ("--strategy", "sort", "--by", "a.b", "--rewrite-all", "--target-size", "10KB")
    lake.ok("compact", "db.t", *sort)

    table = lake.table()
    assert sorted(table.scan().to_arrow()["a.b"].to_pylist()) == sorted(names)
    tasks = table.scan().plan_files()
    files = [pq.read_table(task.file.file_path.removeprefix("file://")) for task in tasks]
    values = sorted(file["a.b"].to_pylist() for file in files)
    assert len(values) > 1
    assert list(itertools.chain(*values)) == sorted(names)
