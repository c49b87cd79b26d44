"""Values whose partition does not fit its field: loads refuse them, `check` reports those that others stored."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session

from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

FAR = 7_826_400_000_000_000_000
MOST = Decimal("99999999999999999999999999999999999999")
LEAST = MOST.copy_negate()

UNFIT = [
    ("timestamp", "hour(x)", pa.array([FAR], pa.timestamp("us")), "249978-"),
    ("timestamptz", "hour(x)", pa.array([-FAR], pa.timestamp("us", "UTC")), "-246"),
    ("int", "truncate(10, x)", pa.array([-(2**31)], pa.int32()), "-2147483648"),
    ("long", "truncate(7, x)", pa.array([-(2**63)], pa.int64()), "-9223372036854775808"),
    ("decimal(38,0)", "truncate(10, x)", pa.array([LEAST], pa.decimal128(38, 0)), str(LEAST)),
    ("decimal(4,2)", "truncate(10, x)", pa.array([Decimal("-99.99")]), "-99.99"),
]
FIT = [
    ("timestamp", "hour(x)", pa.array([2**31 * 3_600_000_000 - 1], pa.timestamp("us"))),
    ("timestamp", "day(x)", pa.array([2**63 - 1, -(2**63)], pa.timestamp("us"))),
    ("timestamp", "month(x)", pa.array([2**63 - 1, -(2**63)], pa.timestamp("us"))),
    ("date", "year(x)", pa.array([2**31 - 1, -(2**31)], pa.int32()).cast(pa.date32())),
    ("int", "truncate(2147483647, x)", pa.array([5, -5, 2**31 - 1], pa.int32())),
    ("decimal(38,0)", "truncate(10, x)", pa.array([MOST], pa.decimal128(38, 0))),
    ("decimal(38,0)", "bucket(8, x)", pa.array([MOST, LEAST], pa.decimal128(38, 0))),
]


@pytest.fixture
def source(lake: CommandLine) -> Path:
    """The name of a file beside the warehouse."""
    return lake.warehouse.parent / "source.parquet"


@pytest.mark.parametrize(("kind", "by", "values", "shown"), UNFIT, ids=str)
def test_a_value_without_a_partition_is_refused_by_each_load(
    lake: CommandLine, source: Path, kind: str, by: str, values: pa.Array, shown: str
) -> None:
    lake.ok("create", "db.t", f"x {kind}", "--partition-by", by)
    pq.write_table(pa.table({"x": values}), source)
    for command in ("ingest", "add-files"):
        found = lake(command, "db.t", source)
        assert found.exit_code == 7, found
        assert f"the value {shown}" in " ".join(found.stderr.split())
        assert "of column x has no partition" in " ".join(found.stderr.split())
    table = lake.table()
    assert table.current_snapshot() is None


@pytest.mark.parametrize(("kind", "by", "values"), FIT, ids=str)
def test_values_at_the_ends_of_their_types_have_the_partitions_that_filters_find(
    lake: CommandLine, source: Path, kind: str, by: str, values: pa.Array
) -> None:
    lake.ok("create", "db.t", f"x {kind}", "--partition-by", by)
    pq.write_table(pa.table({"x": values}), source)
    lake.ok("ingest", "db.t", source)
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0
    partitions = lake.table().inspect.files()["partition"]
    (field,) = partitions.combine_chunks().flatten()
    assert field.null_count == 0


def test_check_reports_rows_whose_partition_other_writers_let_overflow(
    lake: CommandLine, source: Path
) -> None:
    lake.ok("create", "db.t", "x timestamp", "--partition-by", "hour(x)")
    pq.write_table(pa.table({"x": UNFIT[0][2]}), source)
    session = open_session(lake.warehouse)
    table = session.table("db.t")
    # The hours since 1970 in the low 32 bits, as Iceberg Java before 1.5 stores them.
    wrong = (FAR // 3_600_000_000 + 2**31) % 2**32 - 2**31
    stored = DataFile(
        path=str(source),
        spec_id=0,
        partition=(wrong.to_bytes(4, "little", signed=True),),
        record_count=1,
        size_bytes=source.stat().st_size,
    )
    request = CommitRequest(operation_id=session.ids.uuid())
    commit_snapshot(session, table, AppendFiles(added=[stored]), request)

    found = lake("--json", "check", "db.t", "--deep")

    assert found.exit_code == 7
    assert "P001" in [item["code"] for item in found.json()["result"]["findings"]]
