"""Planning writes nothing: no file, no namespace, no commit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from support.tables.iceberg_tables import (
    FixedClock,
    open_session,
    pyiceberg_catalog,
    request_of,
)

from lake.core.base.outcome import Status
from lake.core.load.changelog_load.plan import ChangeOptions, plan_changelog_load
from lake.core.load.ingest.execute import execute
from lake.core.load.ingest.options import LoadRequest
from lake.core.load.ingest.plan import IngestPlan, plan_ingest
from lake.core.load.replay.options import ReplayOptions
from lake.core.load.replay.plan import plan_replay
from lake.core.load.upsert.execute import execute_upsert
from lake.core.load.upsert.options import UpsertOptions
from lake.core.load.upsert.plan import UpsertPlan, plan_upsert
from lake.core.maintain.compaction.options import compaction_options
from lake.core.maintain.compaction.plan import plan_compaction
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.read.changelog.plan import plan_changelog
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.table.catalogs.metastores.other import OtherBackend
from lake.core.transaction.session import Session

_WRITES = (
    "commit_table",
    "create_namespace",
    "create_namespace_if_not_exists",
    "create_table",
    "drop_namespace",
    "drop_table",
    "register_table",
    "rename_table",
    "update_namespace_properties",
)


class WatchedTable:
    """A table of several small files, a source, and a session whose catalog counts writes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warehouse = folder / "warehouse"
        self.source = str(folder / "source.parquet")
        self.changes = str(folder / "changes.parquet")
        ids = pa.array([1, 2], pa.int64())
        pq.write_table(pa.table({"id": ids}), self.source)
        pq.write_table(pa.table({"id": ids, "op": ["+I", "-D"]}), self.changes)
        self.warehouse.mkdir()
        for _ in range(6):
            session = self.open()
            request = self.ingest(create=not self.exists(session))
            assert execute(session, plan_ingest(session, "db.t", request)).status is Status.DONE
        self.session = self.open()
        self.table = self.session.table("db.t")
        self.written: list[str] = []
        for name in _WRITES:
            monkeypatch.setattr(SqlCatalog, name, self.counting(name))

    def open(self) -> Session:
        return open_session(self.warehouse, FixedClock())

    @staticmethod
    def exists(session: Session) -> bool:
        return session.catalog.exists("db.t")

    def counting(self, name: str) -> Callable[..., Any]:
        before = getattr(SqlCatalog, name)

        def called(*arguments: Any, **options: Any) -> Any:
            self.written.append(name)
            return before(*arguments, **options)

        return called

    def content(self) -> dict[str, str]:
        """Return the digest of every file, and every folder, below the warehouse and beside it."""
        found = {}
        for folder, _, names in os.walk(self.warehouse.parent):
            found[folder] = ""
            for name in names:
                path = Path(folder, name)
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def ingest(self, **options: Any) -> LoadRequest:
        return request_of(self.source, **options)


_PLANS: dict[str, Callable[[WatchedTable], object]] = {
    "ingest": lambda watched: plan_ingest(watched.session, "db.t", watched.ingest(run_id="r")),
    "ingest that creates a table": lambda watched: plan_ingest(
        watched.session, "db.new", watched.ingest(create=True)
    ),
    "ingest that creates a namespace": lambda watched: plan_ingest(
        watched.session, "new.t", watched.ingest(create=True, partition_by="bucket(2, id)")
    ),
    "ingest from a table": lambda watched: plan_ingest(
        watched.session, "new.copy", request_of(from_table="db.t", create=True)
    ),
    "overwrite": lambda watched: plan_ingest(
        watched.session, "db.t", watched.ingest(mode="overwrite-where", overwrite_where="id = 1")
    ),
    "upsert": lambda watched: plan_upsert(
        watched.session, "db.t", watched.ingest(mode="upsert"), UpsertOptions(key=["id"])
    ),
    "upsert that creates a namespace": lambda watched: plan_upsert(
        watched.session,
        "new.t",
        watched.ingest(mode="upsert", create=True),
        UpsertOptions(key=["id"]),
    ),
    "load of a change log": lambda watched: plan_changelog_load(
        watched.session,
        "db.t",
        request_of(watched.changes),
        ChangeOptions(changes_column="op", changes_mode="upsert", key=["id"]),
    ),
    "scan": lambda watched: plan_scan(watched.table, ScanOptions(where="id = 1")),
    "change log": lambda watched: plan_changelog(watched.table, ScanOptions()),
    "compaction": lambda watched: plan_compaction(
        watched.table, compaction_options({}, {}, watched.table.properties)
    ),
    "expiration": lambda watched: plan_expiration(
        watched.session,
        watched.table,
        RetentionOptions(older_than=2**42, retain_last=1, unsafe_retention=True),
        clean_metadata=True,
    ),
    "replay": lambda watched: plan_replay(watched.session, watched.table, ReplayOptions()),
}


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchedTable:
    return WatchedTable(tmp_path, monkeypatch)


def test_planning_writes_nothing(watched: WatchedTable) -> None:
    for name, plan in _PLANS.items():
        before = watched.content()

        plan(watched)

        assert watched.written == [], name
        assert watched.content() == before, name


@pytest.fixture
def other(watched: WatchedTable) -> WatchedTable:
    """The same database as a catalog of another class, which chooses no location without a namespace."""
    properties = {
        "py-catalog-impl": "pyiceberg.catalog.sql.SqlCatalog",
        "uri": f"sqlite:///{watched.warehouse}/catalog.db",
        "warehouse": f"file://{watched.warehouse}",
    }
    watched.session.catalog = OtherBackend("lake", properties)
    # The catalog's first use of the database is not a part of a plan.
    watched.table = watched.session.table("db.t")
    watched.written.clear()
    return watched


@pytest.mark.parametrize("upsert", [False, True])
def test_a_plan_creates_no_namespace_and_its_execution_does(
    other: WatchedTable, upsert: bool
) -> None:
    mode = "upsert" if upsert else "append"
    request = other.ingest(mode=mode, create=True, partition_by="bucket(2, id)", sort_by="id")
    before = other.content()

    plan: IngestPlan | UpsertPlan
    if upsert:
        plan = plan_upsert(other.session, "new.t", request, UpsertOptions(key=["id"]))
    else:
        plan = plan_ingest(other.session, "new.t", request)

    assert (other.written, other.content()) == ([], before)
    catalog = pyiceberg_catalog(other.warehouse)
    assert not catalog.namespace_exists("new")

    outcome = (
        execute_upsert(other.session, plan)
        if isinstance(plan, UpsertPlan)
        else execute(other.session, plan)
    )

    table = catalog.load_table("new.t")
    assert outcome.status is Status.DONE
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[2]"]
