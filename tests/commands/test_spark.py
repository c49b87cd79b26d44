"""Spark's data source in a notebook, on real tables; PyIceberg judges the rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from support.cli.command_line import CommandLine
from support.peers.notebook import Notebook
from support.tables.iceberg_tables import (
    make_table,
    named_rows,
    pyiceberg_catalog,
    pyiceberg_table,
)

import lake as interface
from lake.commands.spark.redacted import reported
from lake.commands.spark.splits import Split

pytestmark = pytest.mark.spark

MANUAL = Path(__file__).parents[2] / "commands/README.md"
FRAME = "frame = spark.read.format('lake').options(warehouse=warehouse, **options).load('db.t')\n"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    peer = Notebook(tmp_path_factory.mktemp("notebook"))
    yield peer
    peer.close()


@pytest.fixture
def table(warehouse: Path) -> Any:
    made = make_table(warehouse)
    made.append(named_rows(*range(1, 51)))
    made.append(named_rows(*range(51, 101)))
    return made


class Frames:
    """Frames of a warehouse's table in the notebook."""

    def __init__(self, notebook: Notebook, warehouse: Path) -> None:
        self._notebook = notebook
        self._warehouse = str(warehouse)

    def run(self, cell: str, **options: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in options.items()}
        return self._notebook.run(cell, warehouse=self._warehouse, options=named)

    def ids(self, **options: str) -> Any:
        return self.run(FRAME + "answer = sorted(row.id for row in frame.collect())", **options)


@pytest.fixture
def frames(notebook: Notebook, warehouse: Path) -> Frames:
    return Frames(notebook, warehouse)


def test_a_frame_has_the_rows_that_are_not_deleted(
    frames: Frames, lake: CommandLine, warehouse: Path
) -> None:
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    made = make_table(warehouse, spec=by_name, write__delete__mode="merge-on-read")
    for first in (0, 10, 20):
        made.append(pa.table({"id": range(first, first + 10), "name": ["a", "b"] * 5}))
    lake.ok("delete", "db.t", "--where", "id = 13")
    assert frames.ids() == sorted(pyiceberg_table(warehouse).scan().to_arrow()["id"].to_pylist())

    changes = warehouse.parent / "changes.csv"
    changes.write_text("id,name\n5,b\n31,c\n")
    # By equality deletes, which PyIceberg does not read.
    lake.ok("ingest", "db.t", str(changes), "--upsert", "--key", "id,name", "--deletes", "equality")
    assert frames.ids() == [*range(13), *range(14, 30), 31]


def test_a_filter_of_one_query_is_not_that_of_another(frames: Frames, table: Any) -> None:
    # A source to which Spark may push filters gives 11 both times.
    cell = "answer = [frame.where('id >= 90').count(), frame.count()]"

    assert frames.run(FRAME + cell) == [11, 100]


def test_a_frame_stays_with_its_snapshot(frames: Frames, table: Any) -> None:
    assert frames.run(FRAME + "answer = frame.count()") == 100
    table.append(named_rows(101))

    joined = "frame.join(frame.withColumnRenamed('name', 'other'), 'id').count()"
    assert frames.run(f"answer = [frame.count(), {joined}]") == [100, 100]
    assert frames.ids()[-1] == 101


def test_a_frame_keeps_the_columns_that_it_was_loaded_with(frames: Frames, table: Any) -> None:
    frames.run(FRAME)
    with table.update_schema() as change:
        change.rename_column("name", "title")
    with table.update_schema() as change:
        change.add_column("more", types.LongType())

    assert frames.run(
        "names = sorted(row.name for row in frame.collect()); answer = [frame.columns, names[:2]]"
    ) == [["id", "name"], ["n1", "n10"]]
    assert frames.run(FRAME + "answer = frame.columns") == ["id", "title", "more"]


def test_options_choose_rows_columns_and_snapshots(frames: Frames, table: Any) -> None:
    first, second = (str(item.snapshot_id) for item in table.snapshots())
    columns = frames.run(FRAME + "answer = frame.columns", select="name,id")

    assert columns == ["name", "id"]
    assert frames.ids(where="id > 98", select="id") == [99, 100]
    assert frames.ids(where="ID > 98", ignore_case="true") == [99, 100]
    assert frames.ids(snapshot=first) == [*range(1, 51)]
    assert frames.ids(snapshot="main~1") == [*range(1, 51)]
    assert frames.ids(from_snapshot=first) == [*range(51, 101)]
    assert frames.ids(from_snapshot=first, inclusive="true", to_snapshot=second) == [*range(1, 101)]


def test_a_schema_of_the_user_chooses_columns(frames: Frames, table: Any) -> None:
    cell = "reader = spark.read.format('lake').option('warehouse', warehouse).schema(asked)\n"
    cell += "answer = [row.asDict() for row in reader.load('db.t').where('id = 7').collect()]"

    assert frames.run("asked = 'id bigint'\n" + cell) == [{"id": 7}]
    with pytest.raises(RuntimeError, match="column id is bigint in the table"):
        frames.run("asked = 'id string'\n" + cell)
    with pytest.raises(RuntimeError, match="no column named idd .*did you mean id"):
        frames.run("asked = 'idd bigint'\n" + cell.replace(".where('id = 7')", ""))


def test_spark_has_a_task_for_each_split(frames: Frames, table: Any, warehouse: Path) -> None:
    for size in ("1KB", "1GB"):
        cell = FRAME + "answer = frame.rdd.getNumPartitions()"
        tasks = frames.run(cell, split_size=size, split_open_cost="0")
        opened = interface.connect(warehouse=str(warehouse)).table("db.t")

        assert tasks == opened.scan(split_size=size, split_open_cost="0").plan.splits


def test_an_empty_table_is_an_empty_frame(frames: Frames, warehouse: Path) -> None:
    make_table(warehouse)

    assert frames.ids() == []
    assert frames.ids(where="id = 3") == []


def test_every_type_has_its_values(frames: Frames, warehouse: Path) -> None:
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
        "pairs": types.MapType(31, types.StringType(), 32, types.FixedType(2), value_required=True),
        "inner": types.StructType(
            NestedField(33, "x", types.LongType()),
            NestedField(34, "y", types.ListType(35, types.DateType(), element_required=True)),
        ),
    }
    fields = [NestedField(at, name, kind) for at, (name, kind) in enumerate(kinds.items(), start=1)]
    fields.append(NestedField(40, "number", types.LongType(), required=True))
    made = make_table(warehouse, schema=Schema(*fields))
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
        "pairs": [("a", b"xy")],
        "inner": {"x": 1, "y": [date(2024, 1, 1)]},
        "number": 1,
    }
    nothing = dict.fromkeys(kinds) | {"number": 2}
    made.append(pa.Table.from_pylist([row, nothing], schema=made.schema().as_arrow()))
    cell = FRAME + (
        "found = frame.orderBy('number').toArrow().to_pylist()\n"
        "answer = [[repr(value) for value in row.values()] for row in found]"
    )

    expected = made.scan().to_arrow().sort_by("number").to_pylist()
    for one in expected:
        one["identity"] = one["identity"] and str(one["identity"])
    zone = re.compile(r"zoneinfo.ZoneInfo\(key='[^']*'\)|datetime.timezone.utc|<UTC>")
    shown = [[repr(value) for value in one.values()] for one in expected]
    found = frames.run(cell)
    assert [[zone.sub("Z", text) for text in one] for one in found] == [
        [zone.sub("Z", text) for text in one] for one in shown
    ]


def test_what_cannot_be_read_is_refused_by_its_name(frames: Frames, warehouse: Path) -> None:
    many = types.ListType(3, types.UUIDType())
    make_table(
        warehouse,
        schema=Schema(NestedField(1, "id", types.LongType()), NestedField(2, "all", many)),
    )

    with pytest.raises(RuntimeError, match="column all.element is of the type uuid"):
        frames.ids()
    assert frames.ids(select="id") == []


REFUSALS = {
    "unknown": ({"selekt": "id"}, "selekt is not an option of the format lake"),
    "filter": ({"where": "nope = 1"}, "no column nope .*columns: id, name"),
    "value": ({"split_size": "x"}, "split-size: not a size"),
    "snapshot": ({"snapshot": "nope"}, "no snapshot, tag or branch named nope"),
    "half": ({"to_snapshot": "main"}, "to-snapshot needs from-snapshot"),
    "both": ({"snapshot": "main", "from_snapshot": "main"}, "contradicts"),
    "tables": ({"table": "db.t"}, "name one table"),
}


def test_options_are_checked_when_the_frame_is_loaded(frames: Frames, table: Any) -> None:
    cell = (
        "answer = []\n"
        "for one in cases:\n"
        "    try: spark.read.format('lake').options(warehouse=warehouse, **one).load('db.t')\n"
        "    except Exception as error: answer.append(str(error))\n"
    )
    named = [
        {name.replace("_", "-"): value for name, value in options.items()}
        for options, _ in REFUSALS.values()
    ]
    shown = frames.run(f"cases = {named!r}\n{cell}")

    for (_, text), message in zip(REFUSALS.values(), shown, strict=True):
        assert re.search(text, message), message


def test_an_option_of_streams_names_the_reader_that_takes_it(frames: Frames, table: Any) -> None:
    # Spark asks for the columns of a stream and of a batch in the same way, and then plans the batch.
    frames.run(FRAME, changes="true")

    with pytest.raises(RuntimeError) as caught:
        frames.run("answer = frame.count()")
    assert "changes is an option of spark.readStream only (use spark.readStream" in str(
        caught.value
    )
    assert "availableNow=True" in str(caught.value)


def test_a_frame_of_a_table_that_was_replaced_fails(
    frames: Frames, table: Any, warehouse: Path
) -> None:
    frames.run(FRAME)
    pyiceberg_catalog(warehouse).drop_table("db.t")
    make_table(warehouse).append(named_rows(1))

    with pytest.raises(RuntimeError, match="another table now: load the frame again"):
        frames.run("answer = frame.count()")


def test_a_frame_of_an_expired_snapshot_fails(
    frames: Frames, table: Any, lake: CommandLine
) -> None:
    frames.run(FRAME)
    table.delete(EqualTo("id", 1))
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")

    with pytest.raises(RuntimeError, match="has expired since the frame was loaded"):
        frames.run("answer = frame.count()")


def test_a_damaged_file_fails_the_query(frames: Frames, table: Any, warehouse: Path) -> None:
    for path in warehouse.rglob("data/*.parquet"):
        path.write_bytes(b"PAR1" + path.read_bytes()[4:-8] + b"\0" * 8)

    with pytest.raises(RuntimeError, match="CorruptFileError"):
        frames.ids()


def test_secrets_are_not_shown() -> None:
    with (
        pytest.raises(interface.errors.LakeError) as caught,
        reported(lambda text: text.replace("hunter2", "***")),
    ):
        raise interface.errors.LakeError("no column hunter2", hint="not hunter2")

    assert str(caught.value) == "no column *** (not ***)"
    assert "hunter2" not in repr(Split("[]", "{}", b"hunter2"))


def test_a_session_can_register_the_format(frames: Frames, table: Any) -> None:
    cell = "import lake.spark\nlake.spark.register(spark)\n" + FRAME + "answer = frame.count()"

    assert frames.run(cell) == 100


def test_verbs_work_beside_a_running_spark(frames: Frames, table: Any, warehouse: Path) -> None:
    cell = (
        "import lake\n"
        "run = lake.connect(warehouse=warehouse).table('db.t').compact(rewrite_all=True)\n"
        "answer = [run.status, run.result.added_files, spark.range(3).count()]"
    )

    assert frames.run(cell) == ["done", 1, 3]
    assert pyiceberg_table(warehouse).scan().to_arrow().num_rows == 100


def test_the_manuals_example_works_when_it_is_pasted(notebook: Notebook) -> None:
    section = MANUAL.read_text().split("\n## Spark without a JAR\n")[1].split("\n## ")[0]
    read, write = re.findall(r"```python\n(.*?)```", section, re.S)

    assert notebook.run(f"{read}answer = [row.asDict() for row in frame.collect()]") == [
        {"id": 1, "country": "NZ"}
    ]
    again = "frame = reader.option('where', 'id > 0').load('db.countries')\n"
    found = notebook.run(f"{write}{again}answer = sorted(row.id for row in frame.collect())")
    assert found == [1, 2, 3, 4]
