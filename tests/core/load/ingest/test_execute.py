"""An ingest commits once or not at all, whatever the catalog answers and whatever else is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from support.tables.delete_files import commit_equality_delete, commit_position_delete
from support.tables.iceberg_tables import (
    FixedClock,
    after,
    applied_then,
    files_below,
    ids_in,
    inject,
    open_session,
    pyiceberg_catalog,
    refused_with,
    request_of,
)
from support.tables.table_harness import TableHarness
from support.tiers import examples

from lake.core.base.errors import CommitConflictError, CommitUnknownError, LakeError, StoppedError
from lake.core.base.outcome import Outcome, Status
from lake.core.engine.inline import InlineEngine
from lake.core.engine.tasks import TaskResult
from lake.core.load.ingest.execute import execute
from lake.core.load.ingest.plan import plan_ingest
from lake.core.transaction.session import Session


class LoadedTable(TableHarness):
    """A table and ways to load ids into it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "warehouse")
        self.folder = folder

    def open(self) -> Session:
        return open_session(self.warehouse, FixedClock())

    def source(self, *ids: int) -> str:
        path = self.folder / f"{'-'.join(str(one) for one in ids)}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        return str(path)

    def ingest(self, *ids: int, session: Session | None = None, **options: Any) -> Outcome:
        session = session or self.session
        plan = plan_ingest(session, "db.t", request_of(self.source(*ids), **options))
        return execute(session, plan)

    def other(self, *ids: int, **options: Any) -> Callable[[], Outcome]:
        return lambda: self.ingest(*ids, session=self.open(), **options)

    def live_files(self) -> set[str]:
        root = f"file://{self.warehouse}/"
        return {path.removeprefix(root) for path in self.live_paths()}


@pytest.fixture
def harness(tmp_path: Path) -> LoadedTable:
    return LoadedTable(tmp_path)


def test_an_answer_lost_after_the_commit_counts_once(harness: LoadedTable) -> None:
    inject(harness.session, [applied_then(CommitFailedException("said no, did yes"))])

    outcome = harness.ingest(1, 2, run_id="r")
    again = harness.ingest(1, 2, session=harness.open(), run_id="r")

    assert (outcome.status, again.status) == (Status.DONE, Status.NOTHING_TO_DO)
    assert harness.ids == [1, 2]


def test_a_racing_run_of_the_same_id_lands_once_and_its_files_go(harness: LoadedTable) -> None:
    inject(harness.session, [after(harness.other(1, 2, run_id="r"))])

    outcome = harness.ingest(1, 2, run_id="r")

    assert outcome.status is Status.NOTHING_TO_DO
    assert harness.ids == [1, 2]
    assert harness.data_files() == harness.live_files()


def test_racing_appends_both_land(harness: LoadedTable) -> None:
    inject(harness.session, [after(harness.other(3)), after(harness.other(4))])

    harness.ingest(1)

    assert harness.ids == [1, 3, 4]


def test_an_unanswered_commit_keeps_every_file_and_the_next_run_settles_it(
    harness: LoadedTable,
) -> None:
    inject(harness.session, [refused_with(TimeoutError("no answer"))])
    with pytest.raises(CommitUnknownError):
        harness.ingest(1, run_id="r")
    kept = harness.data_files()

    outcome = harness.ingest(1, session=harness.open(), run_id="r")

    assert len(kept) == 1
    assert outcome.status is Status.DONE
    assert harness.ids == [1]


@pytest.mark.parametrize(
    "options", [{"mode": "overwrite"}, {"mode": "overwrite-where", "overwrite_where": "id < 5"}]
)
def test_an_overwrite_gives_way_to_rows_that_it_has_not_seen(
    harness: LoadedTable, options: dict[str, Any]
) -> None:
    harness.ingest(1)
    inject(harness.session, [after(harness.other(2))])

    with pytest.raises(CommitConflictError):
        harness.ingest(3, **options)

    assert harness.ids == [1, 2]
    assert harness.data_files() == harness.live_files()


def test_an_overwrite_by_filter_lets_rows_outside_the_filter_in(harness: LoadedTable) -> None:
    harness.ingest(1)
    inject(harness.session, [after(harness.other(7))])

    harness.ingest(3, mode="overwrite-where", overwrite_where="id < 5")

    assert harness.ids == [3, 7]


def test_a_commit_that_is_always_refused_leaves_nothing_of_the_run(harness: LoadedTable) -> None:
    harness.ingest(1)
    before = files_below(harness.warehouse)
    inject(harness.session, [refused_with(CommitFailedException("no"))] * 20)

    with pytest.raises(CommitConflictError):
        harness.ingest(2)

    assert files_below(harness.warehouse) == before


def test_a_new_table_is_not_made_twice(tmp_path: Path) -> None:
    harness = LoadedTable(tmp_path)
    fresh = {"create": True}

    def ingest(session: Session) -> Outcome:
        request = request_of(harness.source(1), **fresh)
        return execute(session, plan_ingest(session, "other.t", request))

    inject(harness.session, [after(lambda: ingest(harness.open()))])
    with pytest.raises(CommitConflictError):
        ingest(harness.session)

    assert ids_in(harness.warehouse, "other.t") == [1]
    files = [name for name in files_below(harness.warehouse) if name.startswith("other/t/data")]
    assert len(files) == 1


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_deleted_rows_of_a_source_table_are_not_loaded(harness: LoadedTable, kind: str) -> None:
    harness.ingest(1, 2)
    if kind == "position":
        path = f"file://{harness.warehouse}/{harness.live_files().pop()}"
        commit_position_delete(harness.warehouse, path, 0)
    else:
        commit_equality_delete(harness.warehouse, [1])

    request = request_of(from_table="db.t", create=True)
    execute(harness.session, plan_ingest(harness.session, "db.copy", request))

    assert ids_in(harness.warehouse, "db.copy") == [2]


class Losing(InlineEngine):
    """An engine that loses what the second reducer wrote."""

    name = "losing"

    def exchange(self, *arguments: Any, **options: Any) -> Any:
        for result in super().exchange(*arguments, **options):
            if result.task == 0:
                yield result
            else:
                yield TaskResult(result.task, replace(result.value, files=[]))


def test_rows_lost_on_the_way_stop_the_commit(
    harness: LoadedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
    path = Path(harness.source(*range(50)))
    half = path.with_name("half.parquet")
    half.write_bytes(path.read_bytes())
    harness.session._engine = Losing(2)
    request = request_of(path, half, create=True, partition_by="bucket(8, id)")
    plan = plan_ingest(harness.session, "db.lossy", request)

    with pytest.raises(LakeError, match="read 100 rows but wrote"):
        execute(harness.session, plan)

    assert not (harness.warehouse / "db" / "lossy").exists()


VALUES = st.one_of(st.none(), st.integers(-3, 3).map(float), st.just(float("nan")))
FILTERS = {
    "x == 1": lambda x: x is not None and x == 1,
    "not x == 1": lambda x: x is not None and x != 1,
    "x is null": lambda x: x is None,
    "x is not null": lambda x: x is not None,
    "x is nan": lambda x: x is not None and x != x,  # noqa: PLR0124 - only NaN differs from itself
    "x < 0 or x is null": lambda x: x is None or x < 0,
    "x in (1, 2)": lambda x: x in {1.0, 2.0},
    "x not in (1, 2)": lambda x: x is not None and x not in {1.0, 2.0},
}


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    files=st.lists(st.lists(VALUES, min_size=1, max_size=5), min_size=1, max_size=3),
    text=st.sampled_from(sorted(FILTERS)),
)
def test_an_overwrite_removes_exactly_the_rows_for_which_its_filter_is_true(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[float | None]], text: str
) -> None:
    folder = tmp_path_factory.mktemp("overwrite")
    session = open_session(folder / "w")
    rows = [(number, x) for number, x in enumerate(x for file in files for x in file)]
    begin = 0
    for number, file in enumerate(files):
        _load(session, folder / f"{number}.parquet", rows[begin : begin + len(file)], create=True)
        begin += len(file)
    true = FILTERS[text]
    new = [(-1, x) for x in (1.0, None, float("nan"), -1.0, 3.0) if true(x)][:1]

    _load(session, folder / "new.parquet", new, mode="overwrite-where", overwrite_where=text)

    kept = [(number, x) for number, x in rows if not true(x)]
    table = pyiceberg_catalog(folder / "w").load_table("db.t").scan().to_arrow()
    found = zip(table["id"].to_pylist(), table["x"].to_pylist(), strict=True)
    assert sorted(map(repr, found)) == sorted(map(repr, [*kept, *new]))


def _load(
    session: Session, path: Path, rows: list[tuple[int, float | None]], **options: Any
) -> None:
    ids, values = zip(*rows, strict=True)
    pq.write_table(
        pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array(values, pa.float64())}), path
    )
    execute(session, plan_ingest(session, "db.t", request_of(path, **options)))


@pytest.mark.parametrize(
    "step",
    [
        "core.transaction.staging.operation_files.publish_manifests",
        "core.load.ingest.plan.find_staged_run",
    ],
)
def test_a_stop_is_not_taken_for_a_failure_that_may_be_passed_over(
    harness: LoadedTable, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def stop(*_: object) -> None:
        raise StoppedError(15)

    with monkeypatch.context() as patched, pytest.raises(StoppedError):
        patched.setattr(f"lake.{step}", stop)
        harness.ingest(1, run_id="r")

    assert harness.ids == []
    assert harness.data_files() == set()
