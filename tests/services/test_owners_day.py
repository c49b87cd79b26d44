"""A day of a table's owner without any other tool, on every kind of catalog; PyIceberg reads the rows.

The owner creates a table, loads it, evolves it, tags it, looks at it, repairs a wrong load, mends what streaming jobs
leave, removes old partitions and snapshots, cleans up, and checks after each part that nothing is damaged.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from support.cli.command_line import CommandLine
from support.cli.service_line import Service, csv

# Kinds of catalogs, each with one format version.
PLACES = [("hadoop", 2), ("sqlite", 3), ("postgres", 3), ("s3", 2), ("rest", 3)]
OLD, NEW = "2020-01-01", dt.date.today().isoformat()
AGE = ("--older-than", "0s", "--unsafe-retention")


@dataclass
class Owner:
    """What the owner of one table works with.

    Args:
        lake: the command line.
        table: the table's name.
        version: the format version of the table.
        rows: returns the rows as PyIceberg reads them, sorted.
        folder: where sources and reports are written.
    """

    lake: CommandLine
    table: str
    version: int
    rows: Callable[[], list[tuple[Any, ...]]]
    folder: Path

    def __call__(self, verb: str, *options: object) -> dict[str, Any]:
        return self.lake.ok(verb, self.table, *options)

    def load(self, file: str, /, *options: object, **columns: list[Any]) -> str:
        """Load rows from a file; return the snapshot's id."""
        return str(self("ingest", csv(self.folder, file, **columns), *options)["snapshot_ids"][-1])

    def check(self) -> None:
        """Check that the table is undamaged, down to each value of its files."""
        found = self("check", "--deep")["result"]["findings"]
        assert [item for item in found if item["severity"] != "note"] == []


@pytest.fixture(params=PLACES, ids=lambda place: f"{place[0]}-{place[1]}")
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> Owner:
    """Each kind of catalog in turn."""
    kind, version = request.param
    if kind in {"hadoop", "sqlite"}:
        return _local(tmp_path, kind, version)
    service: Service = request.getfixturevalue(f"on_{kind}")
    return Owner(service.line(), service.table(), version, service.rows, tmp_path)


def _local(folder: Path, kind: str, version: int) -> Owner:
    warehouse = folder / "warehouse"
    catalog_type = "hadoop" if kind == "hadoop" else "sql"
    lake = CommandLine(warehouse, catalog_type=catalog_type)

    def rows() -> list[tuple[Any, ...]]:
        place = lake.ok("show", "db.t")["result"]["metadata_location"]
        data = StaticTable.from_metadata(place).scan().to_arrow()
        columns = sorted(data.column_names)
        return sorted(zip(*(data[column].to_pylist() for column in columns), strict=True), key=repr)

    return Owner(lake, "db.t", version, rows, folder)


def test_a_day_of_a_tables_owner(owner: Owner) -> None:
    day = dt.date.fromisoformat
    columns = ("id long not null", "day date")
    owner("create", *columns, "--partition-by", "day", "--format-version", owner.version)
    owner.load("1.csv", id=[1, 2], day=[OLD, NEW])
    owner("tag", "morning", "--retain", "30d")
    owner("alter", "--add-column", "name string", "--set", "owner=data team")
    good = owner.load("2.csv", id=[3, 4], day=[NEW, NEW], name=["c", "d"])
    rows = [(day(OLD), 1, None), (day(NEW), 2, None), (day(NEW), 3, "c"), (day(NEW), 4, "d")]
    assert owner.rows() == rows

    # A wrong load leaves the branch; a right one is audited on a branch, and then applied.
    owner.load("wrong.csv", id=[99], day=[NEW], name=["wrong"])
    assert owner("rollback", good)["status"] == "done"
    owner("ref", "--branch-create", "audit")
    owner.load("right.csv", "--branch", "audit", id=[5], day=[NEW], name=["e"])
    owner("ref", "--fast-forward", "main", "--to", "audit")
    owner("ref", "--drop", "audit")
    rows.append((day(NEW), 5, "e"))
    assert owner.rows() == sorted(rows, key=repr)
    owner.check()

    # What a streaming job leaves: equality deletes and small files.
    upserts = ("--upsert", "--key", "id,day", "--deletes", "equality")
    for number, name in enumerate(("x", "y")):
        owner.load(f"u{number}.csv", *upserts, id=[3, 4], day=[NEW, NEW], name=[name, name])
    assert owner("deletes", "--convert")["status"] == "done"
    if owner.version == 2:
        owner("deletes", "--rewrite")
    rows[2:4] = [(day(NEW), 3, "y"), (day(NEW), 4, "y")]
    assert owner.rows() == sorted(rows, key=repr)
    owner.check()
    owner("manifests", "--rewrite-all")
    owner("stats")
    owner("compact", "--rewrite-all", "--verify")
    assert owner.rows() == sorted(rows, key=repr)

    # Every report of the table.
    shown = owner("show")["result"]
    assert (shown["format_version"], shown["sizes"]["rows"]) == (owner.version, 5)
    tables = ["snapshots", "refs", "history", "metadata-log", "files", "entries", "manifests"]
    for name in [*tables, "partitions", "properties", "deletes"]:
        report = owner.folder / f"{name}.parquet"
        listed = owner("inspect", name, "--output", report)
        assert pq.read_metadata(report).num_rows == listed["result"]["rows"]
    days = {item["partition"] for item in owner("partitions")["result"]["partitions"]}
    assert days == {f"day={OLD}", f"day={NEW}"}
    assert owner.table in {item["table"] for item in owner.lake.ok("tables")["result"]["tables"]}

    # The evening: old partitions, snapshots and orphan files go.
    aged = owner("expire-partitions", "--older-than", "365d", "--by", "day")
    assert aged["result"]["partitions"] == 1
    rows.pop(0)
    owner("tag", "--drop", "morning")
    owner("expire", *AGE)
    assert len(owner("inspect", "snapshots")["result"]["preview"]) == 1
    assert owner("clean", *AGE)["plan"]["orphans"] == 0
    assert owner.rows() == sorted(rows, key=repr)
    owner.check()

    dropped = owner("drop", "--purge", "--yes")["result"]
    assert dropped["deleted_files"] == dropped["files"] > 0
    assert owner.lake("scan", owner.table).exit_code == 7
