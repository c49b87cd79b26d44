"""The interface for Python programs, on real tables; PyIceberg judges the rows."""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, ListType, MapType, NestedField, UUIDType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, named_rows, pyiceberg_table

import lake
from lake.commands import spark
from lake.commands.actions import verb_of
from lake.commands.api import calls
from lake.commands.groups import option_names
from lake.core.engine.spark import session
from lake.core.engine.spark.conf import SparkConf

MANUAL = Path(__file__).parents[2] / "commands/README.md"


@pytest.fixture
def table(warehouse: Path) -> lake.Table:
    made = make_table(warehouse)
    made.append(named_rows(1, 2))
    made.append(named_rows(3))
    return lake.connect(warehouse=str(warehouse)).table("db.t")


def stored(warehouse: Path) -> list[Any]:
    return sorted(pyiceberg_table(warehouse).scan().to_arrow()["id"].to_pylist())


def csv(*ids: int) -> str:
    Path("rows.csv").write_text("id,name\n" + "".join(f"{number},new\n" for number in ids))
    return "rows.csv"


def test_a_scan_has_the_rows_and_the_columns_that_were_asked_for(table: lake.Table) -> None:
    scan = table.scan(where="id >= 2", select=["id"])

    assert sorted(scan.to_arrow()["id"].to_pylist()) == [2, 3]
    assert scan.to_pandas().columns.tolist() == ["id"]
    assert scan.schema.names == ["id"]
    assert (scan.plan.files, list(scan.warnings)) == (2, [])


def test_a_scan_stays_with_its_snapshot(table: lake.Table, warehouse: Path) -> None:
    scan = table.scan()
    pyiceberg_table(warehouse).append(named_rows(4))

    assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert sorted(table.scan(snapshot=scan.snapshot_id).to_arrow()["id"].to_pylist()) == [1, 2, 3]
    after = table.scan(from_snapshot=str(scan.snapshot_id))
    assert after.to_arrow()["id"].to_pylist() == [4]


def test_a_scan_has_at_most_the_rows_of_its_limit(table: lake.Table) -> None:
    assert table.scan(limit=2).to_arrow().num_rows == 2


def test_lists_of_bytes_of_one_length_are_lists_in_a_frame_of_pandas(warehouse: Path) -> None:
    few = FixedType(4)
    made = make_table(
        warehouse,
        schema=Schema(
            NestedField(1, "few", ListType(2, few, element_required=True), required=True),
            NestedField(3, "ids", ListType(4, UUIDType(), element_required=False), required=False),
            NestedField(5, "pairs", MapType(6, few, 7, ListType(8, few)), required=False),
            NestedField(9, "one", few, required=False),
        ),
    )
    numbers = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([None, b"x" * 16], pa.binary(16)))
    columns = {
        "few": pa.array([[b"abcd"], []], pa.list_(pa.binary(4))),
        "ids": pa.ListArray.from_arrays([0, 2, 2], numbers, mask=pa.array([False, True])),
        "pairs": pa.array(
            [[(b"abcd", [b"efgh"])], None], pa.map_(pa.binary(4), pa.list_(pa.binary(4)))
        ),
        "one": pa.array([None, b"abcd"], pa.binary(4)),
    }
    made.append(pa.table(columns).cast(made.schema().as_arrow()))
    frame = lake.connect(warehouse=str(warehouse)).table("db.t").scan().to_pandas()

    assert [list(value) for value in frame["few"]] == [[b"abcd"], []]
    assert (list(frame["ids"][0]), frame["ids"][1]) == ([None, b"x" * 16], None)
    ((key, values),) = frame["pairs"][0]
    assert (key, list(values), frame["pairs"][1]) == (b"abcd", [b"efgh"], None)
    assert frame["one"].tolist() == [None, b"abcd"]


def test_an_empty_table_has_the_columns_of_its_schema(warehouse: Path) -> None:
    made = make_table(warehouse)
    scan = lake.connect(warehouse=str(warehouse)).table("db.t").scan()

    assert scan.to_arrow().schema.names == made.schema().column_names
    assert scan.snapshot_id is None


def test_a_scan_between_snapshots_warns_of_what_it_leaves_out(table: lake.Table) -> None:
    oldest = table.snapshots()[-1].snapshot_id
    table.upsert(csv(1), key=["id"])
    scan = table.scan(from_snapshot=oldest)

    assert "not an append" in scan.warnings[0]


def test_loads_and_upserts_say_what_they_wrote(table: lake.Table, warehouse: Path) -> None:
    loaded = table.ingest(csv(4), run_id="once")
    again = table.ingest(Path(csv(4)), run_id="once")
    replaced = table.upsert(csv(4, 5), key=["id"])

    assert (loaded.status, loaded.result.rows_written) == ("done", 1)
    assert again.status == "nothing-to-do"
    assert (replaced.result.rows_updated, replaced.result.rows_inserted) == (1, 1)
    assert stored(warehouse) == [1, 2, 3, 4, 5]
    assert list(replaced.snapshot_ids) == [
        pyiceberg_table(warehouse).current_snapshot().snapshot_id
    ]


def test_maintenance_says_what_it_did(table: lake.Table, warehouse: Path) -> None:
    preview = table.compact(rewrite_all=True, dry_run=True)
    compacted = table.compact(rewrite_all=True, min_size="1MB")
    expired = table.expire(retain_last=1, older_than="0s", unsafe_retention=True)

    assert (preview.status, preview.plan.input_files, preview.result.added_files) == (
        "dry-run",
        2,
        0,
    )
    assert (compacted.result.rewritten_files, compacted.result.added_files) == (2, 1)
    assert expired.result.data_files == 2
    assert [item.operation for item in table.snapshots(limit=1)] == ["replace"]
    assert stored(warehouse) == [1, 2, 3]


def test_a_rollback_takes_a_snapshot_or_the_one_before(table: lake.Table, warehouse: Path) -> None:
    newest, oldest = (item.snapshot_id for item in table.snapshots())
    back = table.rollback(last=True)

    assert (back.result.to_snapshot, stored(warehouse)) == (oldest, [1, 2])
    assert table.rollback(int(newest), any=True).status == "done"
    assert stored(warehouse) == [1, 2, 3]


def test_tables_are_graded(table: lake.Table, warehouse: Path) -> None:
    with lake.connect(warehouse=str(warehouse)) as catalog:
        assert [one.table for one in catalog.health().result.tables] == ["db.t"]
    assert [one.table for one in table.health().result.tables] == ["db.t"]


def test_fields_of_results_are_the_keys_of_the_json_document(
    table: lake.Table, lake: CommandLine
) -> None:
    document = lake.ok("snapshots", "db.t")["result"]["snapshots"]

    assert [item.document() for item in table.snapshots()] == document


REFUSALS: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "column": (lambda one: one.scan(where="nope = 1"), lake.errors.NotFoundError, "no column nope"),
    "option": (lambda one: one.compact(min_sizes=1), lake.errors.InvalidRequestError, "min_sizes"),
    "value": (lambda one: one.compact(min_size="x"), lake.errors.InvalidRequestError, "min_size: "),
    "switch": (
        lambda one: one.compact(rewrite_all=3),
        lake.errors.InvalidRequestError,
        "rewrite_all",
    ),
    "program": (
        lambda one: one.compact(on_commit="id"),
        lake.errors.InvalidRequestError,
        "command line",
    ),
    "follow": (lambda one: one.scan(once=True), lake.errors.InvalidRequestError, "command line"),
    "time": (lambda one: one.scan(snapshot="@9d"), lake.errors.NotFoundError, "no snapshot as old"),
    "file": (lambda one: one.ingest("no.csv"), lake.errors.NotFoundError, "no.csv"),
    "safety": (lambda one: one.expire(older_than="1h"), lake.errors.LakeError, "older_than"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_verb_refuses_is_an_error_of_its_class(table: lake.Table, case: str) -> None:
    call, kind, text = REFUSALS[case]

    with pytest.raises(kind, match=text):
        call(table)


def test_columns_may_be_a_text_with_commas_as_in_an_option(
    table: lake.Table, warehouse: Path
) -> None:
    assert table.scan(select="name,id").schema.names == ["name", "id"]
    with pytest.raises(lake.errors.NotFoundError, match="no column named name2"):
        table.upsert(csv(1), key="id,name2")
    table.upsert(csv(1), key="id")
    assert stored(warehouse) == [1, 2, 3]


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda one: one.scan(wher="id = 1"), "did you mean where?"),
        (lambda one: one.compact(rewriteall=True), "did you mean rewrite-all?"),
        (lambda _: spark.upsert("db.t", key="id", orderby="id"), "did you mean order-by?"),
        (lambda one: one.scan(where="id >"), "hint: "),
    ],
)
def test_a_traceback_shows_what_to_do(
    table: lake.Table, call: Callable[[lake.Table], object], hint: str
) -> None:
    with pytest.raises(lake.errors.LakeError) as caught:
        call(table)

    assert hint in "".join(traceback.format_exception(caught.value))


def test_a_notebook_completes_the_names_of_the_interface() -> None:
    assert {"connect", "spark", "errors", "Table"} <= set(dir(lake))


def test_options_of_the_command_line_only_are_options_of_verbs() -> None:
    known = {
        name for verb in ("ingest", "compact", "health") for name in option_names(verb_of(verb))
    }

    assert known >= calls._OF_THE_COMMAND_LINE


def test_errors_and_warnings_contain_no_secret(
    table: lake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", "hunter2hunter2")

    with pytest.raises(lake.errors.LakeError) as caught:
        table.scan(where="hunter2hunter2 = 1")
    assert "hunter2" not in str(caught.value) + caught.value.message


def test_lake_does_not_start_its_spark_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "has_context", lambda: True)

    with pytest.raises(lake.errors.EngineError, match="another Spark"):
        session.start(SparkConf.of(None, {}), session.Attempt(Path.cwd()))


def test_the_import_prints_and_loads_nothing() -> None:
    code = "import sys; before = set(sys.modules); import lake; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert (done.stdout, done.stderr) == ("['lake']\n", "")


def test_the_manuals_example_works_when_it_is_pasted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    section = MANUAL.read_text().split("\n## Python\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    exec(compile(code, "manual", "exec"), {})

    assert capsys.readouterr().out == "2\n"
    assert stored(tmp_path / "warehouse") == [1, 2]
