"""Columns of the type unknown in staged runs, change logs, rejected rows, overwrites and increments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table

TIME = pa.timestamp("ns")
LOG = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id")


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(one, marks=pytest.mark.slow) for one in ("orc", "avro"))]
)
def test_every_kind_of_load_keeps_the_rows(kind: str, lake: CommandLine, tmp_path: Path) -> None:
    def source(ids: list[int | None], **more: Any) -> Path:
        path = tmp_path / "source.parquet"
        times = pa.array([None if one is None else one * 1000 + 1 for one in ids], TIME)
        columns = {"id": pa.array(ids, pa.int64()), "n": pa.nulls(len(ids)), "t": times}
        pq.write_table(pa.table({**columns, **more}), path)
        return path

    def rows(*options: object) -> dict[int, Any]:
        found = lake.ok("scan", "db.t", *options)["result"]["preview"]
        assert all(row["n"] is None for row in found)
        return {row["id"]: row["t"].rpartition(".")[2] for row in found}

    made = ("--property", "format-version=3", "--property", f"write.format.default={kind}")
    lake.ok("ingest", "db.t", source([1, 2]), "--create", *made)
    lake.ok("ingest", "db.t", source([3]), "--stage", "--run-id", "appended")
    lake.ok("replay", "db.t", "--job", "appended", "--completed", "1")
    rejected = tmp_path / "rejected.parquet"
    upsert = ("--upsert", "--key", "id", "--max-rejects", "99", "--rejects", rejected)
    lake.ok("ingest", "db.t", source([1, None]), *upsert)
    lake.ok("ingest", "db.t", source([2, 5], op=["-D", "+I"]), *LOG)
    staged = ("--stage", "--run-id", "changed")
    lake.ok("ingest", "db.t", source([5, 6], op=["+U", "+I"]), *LOG, *staged)
    lake.ok("replay", "db.t", "--job", "changed", "--completed", "1")
    lake.ok("ingest", "db.t", source([7]), "--overwrite-where", "id = 7 or id = 6")

    expected = {one: f"{one * 1000 + 1:09}" for one in (1, 3, 5, 7)}
    assert rows() == expected
    assert rows("--where", "n is null") == expected
    assert rows("--where", "n is not null") == {}
    assert pq.read_table(rejected)["n"].to_pylist() == [None]
    changes = lake.ok("scan", "db.t", "--changes", "--key", "id")["result"]["preview"]
    assert [row["id"] for row in changes if row["_change_type"] == "delete"] == [2, 6]
    lake.ok("compact", "db.t", "--rewrite-all", "--verify", "--strategy", "sort", "--by", "n,t")
    assert rows() == expected
    refused = lake("ingest", "db.t", source([7]), "--upsert", "--key", "n")
    assert refused.exit_code == 7
    assert "NULL in the key column n" in refused.stderr


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.arrow", "rows.parquet"])
def test_rows_come_back_from_what_a_scan_wrote(
    name: str, lake: CommandLine, tmp_path: Path
) -> None:
    nested = pa.array([{"a": 1, "u": None}, None], pa.struct([("a", pa.int64()), ("u", pa.null())]))
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": [1, 2], "n": pa.nulls(2), "s": nested}), path)
    lake.ok("ingest", "db.t", path, "--create", "--property", "format-version=3")
    before = lake.ok("scan", "db.t")["result"]["preview"]

    lake.ok("scan", "db.t", "--output", tmp_path / name)
    lake.ok("ingest", "db.t", tmp_path / name, "--overwrite")

    assert lake.ok("scan", "db.t")["result"]["preview"] == before


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.csv", "id,n\n1,\n3,x\n"), ("x.json", '{"id": 1}\n{"id": 3, "n": "x"}\n')],
)
def test_a_text_in_an_unknown_column_needs_evolve(
    name: str, text: str, lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"id": [1], "n": pa.nulls(1)}), path)
    lake.ok("ingest", "db.t", path, "--create", "--property", "format-version=3")
    (tmp_path / name).write_text(text)

    refused = lake("ingest", "db.t", tmp_path / name)

    assert refused.exit_code == 7
    assert "column n of" in refused.stderr
    assert "'x' is no" in refused.stderr
    lake.ok("ingest", "db.t", tmp_path / name, "--evolve")
    found = lake.ok("scan", "db.t", "--where", "n is not null")["result"]["preview"]
    assert found == [{"id": 3, "n": "x"}]


def test_evolve_gives_no_type_to_a_column_that_partitions_are_derived_from(
    lake: CommandLine, tmp_path: Path
) -> None:
    def source(name: str, values: Any) -> Path:
        path = tmp_path / name
        pq.write_table(pa.table({"id": [1], "n": values}), path)
        return path

    options = ("--create", "--property", "format-version=3", "--partition-by", "n")
    lake.ok("ingest", "db.t", source("nulls.parquet", pa.nulls(1)), *options)

    refused = lake("ingest", "db.t", source("typed.parquet", pa.array([7])), "--evolve")

    assert refused.exit_code == 3
    assert "cannot give column n a type: the table is partitioned by its values" in refused.stderr
    lake.ok("ingest", "db.t", source("nulls.parquet", pa.nulls(1)), "--evolve")
    assert len(lake.ok("scan", "db.t")["result"]["preview"]) == 2


def test_a_type_is_given_to_an_unknown_column(lake: CommandLine, tmp_path: Path) -> None:
    nested = pa.array([{"a": 1, "u": None}], pa.struct([("a", pa.int64()), ("u", pa.null())]))
    path = tmp_path / "source.parquet"
    columns = {"id": [1], "n": pa.nulls(1), "o": pa.nulls(1), "p": pa.nulls(1), "s": nested}
    pq.write_table(pa.table(columns), path)
    made = ("--property", "format-version=3", "--partition-by", "p")
    lake.ok("ingest", "db.t", path, "--create", *made)

    refused = lake("alter", "db.t", "--widen", "p=int")
    assert refused.exit_code == 3
    assert "cannot give column p a type: the table is partitioned by its values" in refused.stderr
    assert lake("alter", "db.t", "--widen", "n=int not null").exit_code == 2
    types = ("n=int", "o=struct<x: list<date>, y: string not null>", "s.u=decimal(9,2)")
    words = [word for text in types for word in ("--widen", text)]
    plan = lake.ok("alter", "db.t", *words, "--add-column", "q struct<z: int>")["plan"]
    assert (plan["widened_columns"]["n"], plan["widened_columns"]["s.u"]) == (
        "int",
        "decimal(9, 2)",
    )
    (tmp_path / "b.json").write_text(
        '{"id": 2, "n": 7, "o": {"x": ["2026-01-31"], "y": "b"}, "s": {"u": 1.5}, "q": {"z": 3}}'
    )
    lake.ok("ingest", "db.t", tmp_path / "b.json")
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")

    first, second = pyiceberg_table(lake.warehouse).scan().to_arrow().sort_by("id").to_pylist()
    empty = dict.fromkeys(("n", "o", "p", "q"))
    assert first == {"id": 1, "s": {"a": 1, "u": None}, **empty}
    assert (second["n"], str(second["s"]["u"]), second["q"]) == (7, "1.50", {"z": 3})
    assert (str(second["o"]["x"][0]), second["o"]["y"]) == ("2026-01-31", "b")
    assert lake.ok("check", "db.t", "--deep")["result"]["findings"] == []
    ids = pyiceberg_table(lake.warehouse).schema().field_ids
    assert len(ids) == len(set(ids))
