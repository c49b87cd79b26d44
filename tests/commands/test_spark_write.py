"""Writes of a DataFrame through Spark's data source, on real tables; PyIceberg judges the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import NestedField
from pyspark.sql.types import LongType, StructField, StructType
from support.peers.notebook import Notebook
from support.tables.iceberg_tables import (
    SCHEMA,
    ids_in,
    make_table,
    named_rows,
    pyiceberg_catalog,
    pyiceberg_table,
)

from lake.commands.spark.upserts import upsert
from lake.commands.spark.writer import LakeWriter
from lake.core.base.errors import NotFoundError
from lake.core.table.catalogs.sql import EmbeddedBackend

pytestmark = pytest.mark.spark

FRAME = "frame = spark.range(first, last + 1, 1, 2).selectExpr('id', \"concat('n', id) as name\")\n"
WRITE = (
    "frame.write.format('lake').options(warehouse=warehouse, **options).mode(mode).save('db.t')\n"
)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    peer = Notebook(tmp_path_factory.mktemp("notebook"))
    yield peer
    peer.close()


class Writes:
    """Writes to a warehouse's table from the notebook."""

    def __init__(self, notebook: Notebook, warehouse: Path) -> None:
        self._notebook = notebook
        self._warehouse = str(warehouse)

    def rows(self, first: int, last: int, mode: str = "append", **options: str) -> None:
        self.run(FRAME + WRITE, mode=mode, first=first, last=last, options=options)

    def run(self, cell: str, options: Mapping[str, str] | None = None, **names: Any) -> Any:
        named = {name.replace("_", "-"): value for name, value in (options or {}).items()}
        return self._notebook.run(cell, warehouse=self._warehouse, options=named, **names)


@pytest.fixture
def writes(notebook: Notebook, warehouse: Path) -> Writes:
    return Writes(notebook, warehouse)


def test_a_frame_is_appended_once_for_each_run_id(writes: Writes, warehouse: Path) -> None:
    make_table(warehouse).append(named_rows(1, 2))

    for _ in range(2):
        writes.rows(3, 100, run_id="day-1")

    assert ids_in(warehouse) == [*range(1, 101)]
    second = pyiceberg_table(warehouse).current_snapshot().summary.additional_properties
    assert second["lake.run-id"] == "day-1"
    assert second["added-data-files"] == "2"
    assert len(list(warehouse.rglob("data/**/*.parquet"))) == 3


def test_files_have_the_tables_partitions_and_order(writes: Writes, warehouse: Path) -> None:
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    by_id = SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)
    catalog.create_table(
        "db.t",
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket")),
        sort_order=SortOrder(by_id, order_id=1),
    )

    writes.rows(1, 3000)

    table = pyiceberg_table(warehouse)
    assert ids_in(warehouse) == [*range(1, 3001)]
    files = [task.file for task in table.scan().plan_files()]
    assert {file.partition[0] for file in files} == {0, 1}
    assert {file.sort_order_id for file in files} == {table.sort_order().order_id}
    assert len(files) == 4
    for file in files:
        ids = pa.parquet.read_table(file.file_path.removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)


def test_an_overwrite_replaces_what_its_options_say(writes: Writes, warehouse: Path) -> None:
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    make_table(warehouse, spec=by_name).append(named_rows(1, 2, 3))
    table = pyiceberg_table(warehouse)
    table.append(pa.table({"id": [20, 30], "name": ["n2", "n3"]}))

    writes.rows(2, 2, "overwrite", replace_partitions="true")
    assert ids_in(warehouse) == [1, 2, 3, 30]
    writes.rows(3, 3, "overwrite", overwrite_where="name = 'n3'")
    assert ids_in(warehouse) == [1, 2, 3]
    writes.rows(7, 8, "overwrite")
    assert ids_in(warehouse) == [7, 8]


def test_every_type_is_written(writes: Writes, warehouse: Path) -> None:
    kinds: dict[str, types.IcebergType] = {
        "flag": types.BooleanType(),
        "small": types.IntegerType(),
        "big": types.LongType(),
        "half": types.FloatType(),
        "real": types.DoubleType(),
        "price": types.DecimalType(9, 2),
        "huge": types.DecimalType(38, 5),
        "day": types.DateType(),
        "clock": types.TimeType(),
        "moment": types.TimestamptzType(),
        "local": types.TimestampType(),
        "word": types.StringType(),
        "raw": types.BinaryType(),
        "fixed": types.FixedType(3),
        "identity": types.UUIDType(),
        "many": types.ListType(30, types.TimestamptzType(), element_required=False),
        "pairs": types.MapType(31, types.StringType(), 32, types.LongType(), value_required=True),
        "inner": types.StructType(
            NestedField(33, "x", types.LongType()),
            NestedField(34, "y", types.ListType(35, types.DateType(), element_required=True)),
        ),
    }
    fields = [NestedField(at, name, kind) for at, (name, kind) in enumerate(kinds.items(), start=1)]
    schema = Schema(*fields, NestedField(40, "number", types.LongType(), required=True))
    source = make_table(warehouse, "db.s", schema)
    make_table(warehouse, "db.t", schema)
    moment, local = datetime(1960, 2, 3, 4, 5, 6, 789, UTC), datetime(2024, 2, 29, 23, 59, 59, 1)
    row = {
        "flag": True,
        "small": -(2**31),
        "big": 2**63 - 1,
        "half": 1.5,
        "real": -0.1,
        "price": Decimal("-12345.67"),
        "huge": Decimal("123456789012345678901234567890123.45678"),
        "day": date(1582, 10, 4),
        "clock": time(23, 59, 59, 999_999),
        "moment": moment,
        "local": local,
        "word": "é\0☃",
        "raw": b"\0\xff",
        "fixed": b"abc",
        "identity": UUID(int=7).bytes,
        "many": [moment, None],
        "pairs": [("a", 1)],
        "inner": {"x": 1, "y": [date(2024, 1, 1)]},
        "number": 1,
    }
    nothing = dict.fromkeys(kinds) | {"number": 2}
    source.append(pa.Table.from_pylist([row, nothing], schema=source.schema().as_arrow()))
    read = "frame = spark.read.format('lake').option('warehouse', warehouse).load('db.s')\n"
    # Spark gives times in the zone of the session.
    zone = "spark.conf.set('spark.sql.session.timeZone', 'America/New_York')\n"
    make_table(warehouse, "db.u", schema)
    upsert = (
        "import lake.spark\nlake.spark.upsert('db.u', key=['number'], warehouse=warehouse)(frame)"
    )

    writes.run(zone + read + WRITE + upsert, mode="append")

    expected, *found = (
        pyiceberg_table(warehouse, name).scan().to_arrow().sort_by("number").to_pylist()
        for name in ("db.s", "db.t", "db.u")
    )
    assert found == [expected, expected]


CASES = """
def tried(act):
    try: act()
    except Exception as error: return str(error)
    return 'done'
frame = spark.range(3).selectExpr('id', 'cast(id as string) as name')
def to(frame=frame, mode='append', **options):
    named = {name.replace('_', '-'): value for name, value in options.items()}
    return frame.write.format('lake').mode(mode).options(warehouse=warehouse, **named)
answer = [tried(case) for case in (CASES)]
"""
REFUSALS = {
    "to(mode='errorifexists').save('db.t')": "error|append",
    "to(mode='ignore').save('db.t')": "ignore|append",
    "to(evolv='true').save('db.t')": "evolv is not an option of the format lake",
    "to(overwrite_where='id = 1').save('db.t')": r"overwrite-where needs mode\('overwrite'\)",
    "to(run_id=' ').save('db.t')": "run-id is empty",
    "to().save('db.none')": "db.none",
    "to(frame.withColumn('more', frame.id)).save('db.t')": "Add evolve to add new columns",
    "to(frame.selectExpr('id', 'interval 1 day as name')).save('db.t')": "column name is interval day",
    "to(frame.selectExpr('id', 'array(id) as name')).save('db.t')": "has column name as list",
    "to(frame.limit(0), mode='overwrite').save('db.t')": r"no rows: nothing was replaced \(allow-empty",
    "to(branch='nope').save('db.t')": "nope",
}


def test_what_cannot_be_written_is_refused_by_its_name(writes: Writes, warehouse: Path) -> None:
    make_table(warehouse).append(named_rows(1))
    cell = CASES.replace("CASES", "".join(f"lambda: {case}, " for case in REFUSALS))

    shown = writes.run(cell)

    for text, message in zip(REFUSALS.values(), shown, strict=True):
        assert re.search(text, message, re.IGNORECASE), message
    assert ids_in(warehouse) == [1]
    assert len(list(warehouse.rglob("data/**/*.parquet"))) == 1


@pytest.mark.parametrize(
    ("name", "similar"), [("db.nope", ""), ("db.tt", r"did you mean db\.t\? ")]
)
def test_a_write_to_a_missing_table_says_how_to_create_it_and_asks_the_catalog_once(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, name: str, similar: str
) -> None:
    make_table(warehouse)
    asked: list[str] = []
    load = EmbeddedBackend.load

    def counted(self: Any, identifier: str) -> Any:
        asked.append(identifier)
        return load(self, identifier)

    monkeypatch.setattr(EmbeddedBackend, "load", counted)
    options = {"warehouse": str(warehouse), "path": name}
    hint = rf"table {name} does not exist .*\({similar}create it with `lake create {name} 'NAME TYPE' …`"

    with pytest.raises(NotFoundError, match=hint):
        LakeWriter(options, StructType([StructField("id", LongType())]), overwrite=False)
    assert asked == [name]
    with pytest.raises(NotFoundError, match=hint):
        upsert(name, key="id", warehouse=str(warehouse))(frame=None)


def test_a_bad_row_leaves_no_files(writes: Writes, warehouse: Path) -> None:
    required = Schema(
        NestedField(1, "id", types.LongType(), required=True),
        NestedField(2, "name", types.StringType()),
    )
    make_table(warehouse, schema=required)
    frame = "frame = spark.range(0, 10, 1, 1).selectExpr('nullif(id, 7) as id', \"'x' as name\")\n"

    with pytest.raises(RuntimeError, match="NULL in the required column id"):
        writes.run(frame + WRITE, mode="append")

    assert ids_in(warehouse) == []
    assert not list(warehouse.rglob("data/**/*.parquet"))


PLACED = """
import lake.spark
frame = spark.range(0, 1000, 1, 4).selectExpr('id', "concat('n', id) as name")
frame = lake.spark.distributed(frame, 'db.t', warehouse=warehouse, **options)
"""


@pytest.mark.parametrize("kind", ["hash", "range", "none"])
def test_rows_are_placed_as_the_table_wants_them(
    writes: Writes, warehouse: Path, kind: str
) -> None:
    buckets = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "bucket"))
    make_table(warehouse, spec=buckets, write__distribution_mode=kind)

    writes.run(PLACED + WRITE, mode="append")

    files = [task.file for task in pyiceberg_table(warehouse).scan().plan_files()]
    assert ids_in(warehouse) == [*range(1000)]
    assert {file.partition[0] for file in files} == {*range(8)}
    # One of the ranges may end inside a partition.
    assert len(files) in {"hash": [8], "range": [8, 9], "none": [32]}[kind]


def test_rows_without_a_place_stay_where_they_are(writes: Writes, warehouse: Path) -> None:
    make_table(warehouse)
    cell = PLACED + "answer = [frame.columns, frame.rdd.getNumPartitions()]"

    assert writes.run(cell) == [["id", "name"], 4]
    with pytest.raises(RuntimeError, match="needs a sort order or a partition spec"):
        writes.run(PLACED, {"distribution": "range"})
