"""The options of a continuous scan: names of strategies, contradictions, and what may change."""

from __future__ import annotations

import io
from typing import Any

import pytest

from lake.core.base.choices import Order, SchemaMode, TimeUnit
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option, quote_options
from lake.core.read.continuous.options import FollowOptions, Until, parse_strategy
from lake.core.read.continuous.position import Start, Strategy
from lake.core.read.exports.destinations import Output, output_folder
from lake.core.read.scan.partner_keys import KeyOptions
from lake.core.read.scan.plan import ScanOptions

FOLDER = Output("parquet", "/out", single=False)
STREAM = Output("csv", stream=io.BytesIO())


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("table", Strategy.TABLE),
        ("Latest-Exclusive", Strategy.LATEST_EXCLUSIVE),
        ("TABLE_SCAN_THEN_INCREMENTAL", Strategy.TABLE),
        ("INCREMENTAL_FROM_LATEST_SNAPSHOT", Strategy.LATEST),
        ("incremental_from_latest_snapshot_exclusive", Strategy.LATEST_EXCLUSIVE),
        ("INCREMENTAL_FROM_EARLIEST_SNAPSHOT", Strategy.EARLIEST),
        ("INCREMENTAL_FROM_SNAPSHOT_ID", Strategy.SNAPSHOT),
        ("INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP", Strategy.TIME),
    ],
)
def test_strategies_have_two_names(text: str, strategy: Strategy) -> None:
    assert parse_strategy(text) is strategy


@pytest.mark.parametrize("text", ["", "snapshot", "time", "newest"])
def test_other_strategies_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="not one of table, latest"):
        parse_strategy(text)


def test_the_default_misses_nothing_with_a_state_and_is_a_tail_without_one() -> None:
    assert FollowOptions(state="/s").first == Start(strategy=Strategy.TABLE)
    assert FollowOptions().first == Start(strategy=Strategy.LATEST_EXCLUSIVE)


def test_upstreams_start_with_an_id_is_inclusive() -> None:
    named = FollowOptions(from_snapshot="5", start=Strategy.SNAPSHOT).first

    assert named == Start(strategy=Strategy.SNAPSHOT, snapshot="5", inclusive=True)
    assert not FollowOptions(from_snapshot="5").first.inclusive
    assert FollowOptions(from_snapshot="5", inclusive=True).first.inclusive


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_planning_snapshots": 0}, "max_planning_snapshots` must be at least 1"),
        ({"max_planning_failures": -2}, "max_planning_failures` must be at least -1"),
        ({"max_pending_splits": 0}, "max_pending_splits"),
        ({"monitor_interval": 0}, "monitor_interval"),
        ({"epoch_size": 0}, "epoch_size"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"from_snapshot": "1", "start": Strategy.TABLE}, "`start` contradicts `from_snapshot`"),
        ({"from_snapshot": "1", "start_at": 5}, "`from_snapshot` contradicts `start_at`"),
        ({"start_at": 5, "start": Strategy.LATEST}, "`start` contradicts `start_at`"),
        ({"start": Strategy.SNAPSHOT}, "needs `from_snapshot`"),
        ({"start": Strategy.TIME}, "needs `start_at`"),
        ({"inclusive": True}, "`inclusive` needs `from_snapshot`"),
        ({"scan": ScanOptions(limit=5)}, "`limit` contradicts `follow`"),
        ({"scan": ScanOptions(snapshot="main")}, "`snapshot` contradicts `follow`"),
        ({"scan": ScanOptions(to_snapshot="main")}, "`to_snapshot` contradicts `follow`"),
        ({"key": ("a",)}, "`key` needs `changes`"),
        ({"order": Order.TIME}, "`order` time needs `watermark_column`"),
        ({"watermark_unit": TimeUnit.SECONDS}, "`watermark_unit` needs `watermark_column`"),
        ({"changes": True, "order": Order.SEQUENCE}, "`order` contradicts `changes`"),
        ({"changes": True, "watermark_column": "a"}, "`watermark_column` contradicts `changes`"),
        ({"state": "s3://bucket/state"}, "must be a folder on this machine"),
        ({"output": FOLDER}, "`output` needs `state`"),
        ({"consumer": "c"}, "`consumer` needs `state`"),
        ({"once": True, "max_epochs": 1}, "`once` contradicts `max_epochs`"),
        ({"once": True, "until": Until(after_ms=1)}, "`once` contradicts `until`"),
        ({"output": STREAM, "epoch_markers": True}, "`epoch_markers` needs a stream of JSON"),
        (
            {"output": FOLDER, "state": "/s", "epoch_markers": True},
            "`epoch_markers` needs a stream of JSON",
        ),
    ],
)
def test_contradictions_are_invalid_requests(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        FollowOptions(**options)

    assert message in quote_options(failure.value.message)


def test_rows_may_go_to_a_stream_without_a_state() -> None:
    json = Output("json", stream=io.BytesIO())

    assert FollowOptions(output=STREAM).state is None
    assert FollowOptions(output=json, epoch_markers=True).epoch_markers


@pytest.mark.parametrize("path", ["s3://bucket/out", "", "/out/rows.parquet", "x.csv"])
def test_a_follower_adds_to_a_folder_of_this_machine(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="output"):
        output_folder(path, None)


def test_a_folder_has_parquet_files_unless_another_format_is_chosen() -> None:
    assert output_folder("/srv/in.new", None) == Output("parquet", "/srv/in.new", single=False)
    assert output_folder("/srv/in", "csv").format == "csv"


@pytest.mark.parametrize(
    ("changed", "option"),
    [
        ({"changes": True}, Option.CHANGES),
        ({"scan": ScanOptions(where="a > 1")}, Option.WHERE),
        ({"scan": ScanOptions(select=["a"])}, Option.SELECT),
        ({"scan": ScanOptions(ignore_case=True)}, Option.IGNORE_CASE),
        ({"scan": ScanOptions(split_lookback=3)}, Option.SPLIT_SIZE),
        ({"order": Order.SEQUENCE}, Option.ORDER),
        ({"watermark_column": "a"}, Option.WATERMARK_COLUMN),
        ({"schema": SchemaMode.PIN}, Option.SCHEMA),
        (
            {"prune_with": KeyOptions(prune_with="db.k", on=[("a", "b")], prune_limit=0)},
            Option.PRUNE_WITH,
        ),
    ],
)
def test_a_changed_choice_is_named(changed: dict[str, Any], option: Option) -> None:
    saved = FollowOptions().pinned_choices()

    assert FollowOptions().changed_choices(saved) == []
    assert FollowOptions(**changed).changed_choices(saved) == [option]


def test_options_that_only_say_when_to_stop_may_always_change() -> None:
    saved = FollowOptions(once=True, max_planning_snapshots=5).pinned_choices()

    assert FollowOptions(max_epochs=3, start=Strategy.TABLE).changed_choices(saved) == []
