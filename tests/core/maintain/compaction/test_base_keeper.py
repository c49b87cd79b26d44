"""Compactions that take so long that the history since their plan expires."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, position_file
from support.tables.iceberg_tables import (
    FixedClock,
    after,
    inject,
    named_rows,
    open_session,
    pyiceberg_table,
    refused_with,
)
from support.tables.metadata_edits import edit_metadata
from support.tables.table_harness import TableHarness

from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.compaction.concurrency import base_keeper
from lake.core.maintain.compaction.concurrency.base_keeper import BaseKeeper
from lake.core.maintain.compaction.execute import execute
from lake.core.maintain.compaction.options import compaction_options
from lake.core.maintain.compaction.plan import plan_compaction
from lake.core.table.snapshots import ancestry
from lake.core.transaction.locks.base_tag import BaseTag

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=0)
HOUR_MS = 3_600_000


class LongRun(TableHarness):
    """A table of two partitions, four files each, and a compaction that looks at the table after each task."""

    def __init__(self, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(warehouse, spec=BY_ID)
        for _ in range(4):
            self.pyiceberg.append(named_rows(1, 2))
        self.session.settings = type(self.session.settings)(
            warehouse=str(warehouse), engine="inline"
        )
        self.monkeypatch = monkeypatch
        self.first = int(self.pyiceberg.refresh().metadata.current_snapshot_id or 0)

    def append(self, number: int) -> None:
        self.pyiceberg.refresh().append(named_rows(number))

    def expire(self) -> None:
        """Let an expiry keep only the head, and what refs keep."""
        CommandLine(self.warehouse).ok(
            *("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
        )

    def tags(self) -> dict[str, Any]:
        refs = pyiceberg_table(self.warehouse).metadata.refs
        return {name: ref for name, ref in refs.items() if ancestry.is_run(name)}

    def compact(self, others: Sequence[Callable[[], None]], faults: list[Any]) -> Outcome:
        """Compact, while others act before each look."""
        self.monkeypatch.setattr(base_keeper, "_SECONDS", 0.0)
        look, waiting = BaseKeeper.look, list(others)

        def looking(keeper: BaseKeeper, *_: Any) -> frozenset[str]:
            if waiting:
                waiting.pop(0)()
            now = self.session.table("db.t")
            return look(keeper, now, *_[1:])

        self.monkeypatch.setattr(BaseKeeper, "look", looking)
        options = compaction_options({"min_input_files": 2}, {}, {})
        plan = plan_compaction(self.load(), options)
        inject(self.session, faults)
        return execute(self.session, plan)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LongRun:
    return LongRun(tmp_path, monkeypatch)


def test_a_long_run_does_not_need_the_history_that_it_has_validated(run: LongRun) -> None:
    found = []

    def appended() -> None:
        run.append(8)
        run.append(9)

    def expired() -> None:
        found.append(run.tags())
        run.append(10)
        run.expire()

    # The first commit sets the tag, the second one is that of the compaction.
    done = run.compact([appended], [None, after(expired)])

    assert (done.status, done.result.rewritten_files) == (Status.DONE, 8)
    (tag,) = found[0].values()
    assert (tag.snapshot_id, tag.snapshot_ref_type) == (run.first, "tag")
    assert run.tags() == {}
    assert run.ids == [1] * 4 + [2] * 4 + [8, 9, 10]


def test_rows_that_are_deleted_before_a_look_take_their_group_out_of_the_commit(
    run: LongRun,
) -> None:
    path = next(path for path in run.live_paths() if "id=2" in path)

    def deleted() -> None:
        table = open_session(run.warehouse).table("db.t")
        commit_deletes(table, position_file(table, [(path, 0)], partition=(b"\2" + bytes(7),)))
        run.append(9)

    def expired() -> None:
        run.append(10)
        run.expire()

    done = run.compact([deleted], [None, after(expired)])

    assert (done.status, done.result.failed_groups) == (Status.DONE, 0)
    assert (done.result.rows_dropped_by_deletes, len(done.snapshot_ids)) == (1, 2)
    assert run.ids == [1] * 4 + [2] * 3 + [9, 10]
    assert run.tags() == {}


def test_the_tag_keeps_the_files_of_the_plan(run: LongRun) -> None:
    files = run.live_paths()

    def replaced() -> None:
        other = open_session(run.warehouse, FixedClock())
        chosen = compaction_options({"rewrite_all": True}, {}, {})
        execute(other, plan_compaction(other.table("db.t"), chosen))
        run.expire()
        assert all(Path(path.removeprefix("file://")).exists() for path in files)

    with pytest.raises(Exception, match="no longer in the table"):
        run.compact([lambda: None, replaced], [])

    assert run.tags() == {}
    assert run.ids == [1] * 4 + [2] * 4


def test_a_catalog_that_forbids_tags_is_a_warning(run: LongRun) -> None:
    done = run.compact([], [refused_with(ForbiddenError("no refs here"))])

    assert (done.status, done.result.rewritten_files) == (Status.DONE, 8)
    (warning,) = [text for text in run.session.warnings if "could not be kept by a tag" in text]
    assert "no refs here" in warning


def test_a_short_run_sets_no_tag(run: LongRun) -> None:
    commits: list[str] = []
    options = compaction_options({"min_input_files": 2}, {}, {})
    plan = plan_compaction(run.load(), options)
    inject(run.session, [after(lambda: commits.append("one"))] * 5)

    assert execute(run.session, plan).status is Status.DONE
    assert len(commits) == 1


def test_the_tag_of_a_killed_run_expires_by_itself(run: LongRun) -> None:
    run.append(8)
    session = open_session(run.warehouse)
    table = session.table("db.t")
    first = table.metadata.snapshot_by_id(run.first)
    assert first is not None
    # A snapshot that is older than the tag's hour is kept too.
    age_ms = session.clock.now_ms() - first.timestamp_ms
    BaseTag(session, "0-1").keep(table, first)
    run.append(9)
    lake = CommandLine(run.warehouse)
    ref = run.tags()["lake-run-0-1"]
    assert HOUR_MS <= ref.max_ref_age_ms - age_ms < 2 * HOUR_MS

    options = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
    kept = lake.ok(*options)["plan"]
    assert kept["kept_snapshots"] == {"referenced": 1, "run": 1}
    assert run.tags()

    def aged(plain: dict[str, Any]) -> None:
        for item in (*plain["snapshots"], *plain["snapshot-log"]):
            item["timestamp-ms"] -= 2 * HOUR_MS

    edit_metadata(run.warehouse, aged)
    assert lake.ok(*options)["plan"]["snapshots"] == 1
    assert run.tags() == {}


def test_tags_of_users_do_not_have_the_names_of_runs(run: LongRun) -> None:
    lake = CommandLine(run.warehouse)
    assert lake("tag", "db.t", "lake-run-mine").exit_code == 2
    assert lake("ref", "db.t", "--branch-create", "lake-run-mine").exit_code == 2
