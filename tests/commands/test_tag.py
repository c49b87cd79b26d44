"""`lake tag` through the command line; PyIceberg reads the refs."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.faults.store_time import store_time_of_commands
from support.tables.iceberg_tables import (
    FixedClock,
    open_session,
)
from support.tables.metadata_edits import edit_metadata, metadata_path

from lake.core.base.errors import InvalidRequestError
from lake.core.table.refs.periods import FORMATS, Calendar
from lake.core.transaction.session import Session

UTC = dt.UTC
NOW = dt.datetime(2026, 3, 10, 12, 30, tzinfo=UTC)


def ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)


def refs(lake: CommandLine) -> dict[str, int]:
    found = lake.table().metadata.refs
    return {name: ref.snapshot_id for name, ref in found.items() if name != "main"}


@pytest.fixture
def at_noon(warehouse: Path) -> Iterator[CommandLine]:
    """The command line on a machine whose clock stands at `NOW`."""

    def opened(settings: Any) -> Session:
        session = open_session(warehouse, FixedClock(ms(NOW)))
        session.settings = settings
        return session

    with store_time_of_commands():
        yield CommandLine(warehouse, open_session=opened)


def history(lake: CommandLine, *moments: dt.datetime) -> list[int]:
    """Append a row at each of some times, and return the snapshots."""
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n1\n")
    for _ in moments:
        lake.ok("ingest", "db.t", source, "--create")

    def change(plain: dict[str, Any]) -> None:
        times = {
            item["snapshot-id"]: ms(moment)
            for item, moment in zip(plain["snapshots"], moments, strict=True)
        }
        for item in (*plain["snapshots"], *plain["snapshot-log"]):
            item["timestamp-ms"] = times[item["snapshot-id"]]
        plain["last-updated-ms"] = ms(moments[-1])
        plain["metadata-log"] = []

    plain = edit_metadata(lake.warehouse, change)
    # The history that the log no longer has would be that of another catalog.
    current = metadata_path(lake.warehouse)
    for path in current.parent.glob("*.metadata.json"):
        if path != current:
            path.unlink()
    return [item["snapshot-id"] for item in plain["snapshots"]]


def test_a_tag_is_set_moved_and_dropped(lake: CommandLine) -> None:
    first, second = history(lake, NOW - dt.timedelta(2), NOW - dt.timedelta(1))

    assert lake.ok("tag", "db.t", "a", "--dry-run")["plan"] == {"created": ["a"], "removed": []}
    assert refs(lake) == {}
    done = lake.ok("tag", "db.t", "a", "--retain", "30d")
    assert done["result"]["created"] == ["a"]
    assert done["result"]["tags"][0]["max_ref_age_ms"] == 30 * 86_400_000
    assert refs(lake) == {"a": second}
    assert lake.ok("tag", "db.t", "a")["status"] == "nothing-to-do"
    assert lake("tag", "db.t", "a", "--at", first).exit_code == 3
    moved = lake.ok("tag", "db.t", "a", "--at", first, "--move")["result"]["tags"][0]
    assert (moved["snapshot_id"], moved["max_ref_age_ms"]) == (str(first), 30 * 86_400_000)
    assert "a\t" in lake("tag", "db.t").stdout
    assert lake.ok("tag", "db.t", "--drop", "a")["result"]["removed"] == ["a"]
    assert refs(lake) == {}
    assert lake("tag", "db.t", "--drop", "a").exit_code == 7


def test_a_new_retention_changes_an_existing_tag(lake: CommandLine) -> None:
    history(lake, NOW)
    lake.ok("tag", "db.t", "a")
    done = lake.ok("tag", "db.t", "a", "--retain", "2d")
    assert done["result"]["tags"][0]["max_ref_age_ms"] == 2 * 86_400_000
    assert lake.ok("tag", "db.t", "a", "--retain", "2d")["status"] == "nothing-to-do"


def test_expiry_keeps_what_a_tag_names(lake: CommandLine) -> None:
    first, *_ = history(lake, *(NOW - dt.timedelta(days) for days in (400, 300, 200)))
    lake.ok("tag", "db.t", "year-end", "--at", first)
    lake.ok("expire", "db.t", "--older-than", "24h", "--retain-last", "1")
    table = lake.table()
    assert table.snapshots()[0].snapshot_id == first
    assert table.scan(snapshot_id=first).to_arrow().num_rows == 1


def test_the_state_at_the_end_of_a_day_is_tagged_once_the_delay_has_passed(
    at_noon: CommandLine,
) -> None:
    days = [
        NOW.replace(day=number, hour=hour) for number, hour in ((8, 3), (9, 1), (9, 23), (10, 2))
    ]
    ids = history(at_noon, *days)

    wanted = ("tag", "db.t", "--auto", "daily")
    at_noon.ok(*wanted, "--delay", "13h")
    assert refs(at_noon) == {"2026-03-08": ids[0]}
    at_noon.ok(*wanted, "--delay", "10m")
    assert refs(at_noon) == {"2026-03-08": ids[0], "2026-03-09": ids[2]}
    assert at_noon.ok(*wanted)["status"] == "nothing-to-do"


def test_a_backfill_tags_all_retained_periods_and_keep_drops_the_oldest_of_its_own(
    at_noon: CommandLine,
) -> None:
    days = [NOW.replace(day=number) for number in (3, 5, 6, 9)]
    ids = history(at_noon, *days)
    at_noon.ok("tag", "db.t", "release", "--at", ids[0])

    wanted = ("tag", "db.t", "--auto", "daily", "--format", "eod-%Y%m%d")
    at_noon.ok(*wanted, "--backfill", "--retain", "90d")
    of_day = {
        f"eod-202603{number:02}": ids[place]
        for number, place in ((3, 0), (4, 0), (5, 1), (6, 2), (7, 2), (8, 2), (9, 3))
    }
    assert refs(at_noon) == {"release": ids[0], **of_day}
    assert at_noon.ok(*wanted, "--backfill")["status"] == "nothing-to-do"
    done = at_noon.ok(*wanted, "--keep", "2")
    assert done["result"]["removed"] == [f"eod-2026030{number}" for number in range(3, 8)]
    assert refs(at_noon) == {
        "release": ids[0],
        "eod-20260308": ids[2],
        "eod-20260309": ids[3],
    }
    # A backfill with a limit does not set again what the limit dropped.
    assert at_noon.ok(*wanted, "--keep", "2", "--backfill")["status"] == "nothing-to-do"


def test_history_that_expired_is_not_tagged(at_noon: CommandLine) -> None:
    ids = history(at_noon, *(NOW.replace(day=number) for number in (3, 5, 9)))
    at_noon.ok("expire", "db.t", "--snapshot", ids[0])
    at_noon.ok("tag", "db.t", "--auto", "daily", "--backfill")
    assert min(refs(at_noon)) == "2026-03-05"


def test_a_snapshot_that_expires_before_it_is_tagged_is_a_conflict(
    lake: CommandLine, warehouse: Path
) -> None:
    first, _ = history(lake, NOW - dt.timedelta(9), NOW - dt.timedelta(8))

    def expiring(real: Any) -> Any:
        lake.ok("expire", "db.t", "--snapshot", first)
        return real()

    result = lake.with_faults(expiring)("tag", "db.t", "a", "--at", first)

    assert (result.exit_code, "expired meanwhile" in result.stderr) == (4, True)
    assert refs(lake) == {}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("main",), 2),
        (("1234567890",), 2),
        (("@now",), 2),
        (("lake-consumer-x",), 2),
        (("a", "--drop", "b"), 2),
        (("--at", "main"), 2),
        (("--zone", "UTC"), 2),
        (("--retain", "1d"), 2),
        (("--dry-run",), 2),
        (("--auto", "yearly"), 2),
        (("--auto", "daily", "--zone", "Nowhere/Never"), 2),
        (("--auto", "daily", "--format", "%Y-%m"), 2),
        (("--auto", "hourly", "--format", "%Y-%m-%d %I"), 2),
        (("--auto", "daily", "--keep", "0"), 2),
        (("a", "--at", "none"), 7),
        (("audit",), 3),
    ],
)
def test_what_cannot_be_right_is_refused(
    lake: CommandLine, arguments: tuple[str, ...], code: int
) -> None:
    (only,) = history(lake, NOW)
    table = lake.table()
    table.manage_snapshots().create_branch(only, "audit").commit()
    assert lake("tag", "db.t", *arguments).exit_code == code
    assert refs(lake) == {"audit": only}


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe")


@given(
    kind=st.sampled_from(sorted(FORMATS)),
    zone=st.sampled_from(ZONES),
    until=st.datetimes(dt.datetime(1970, 2, 1), dt.datetime(2037, 1, 1), timezones=st.just(UTC)),
    hours=st.integers(1, 24 * 40),
)
def test_periods_follow_one_another_without_gaps(
    kind: str, zone: str, until: dt.datetime, hours: int
) -> None:
    calendar = Calendar(kind, zone)
    since = until - dt.timedelta(hours=hours)
    found = list(calendar.ended(ms(until), ms(since)))

    ends = [item.end_ms for item in found]
    assert ends == sorted(set(ends), reverse=True)
    assert all(ms(since) < end <= ms(until) for end in ends)
    for item in found:
        end = dt.datetime.fromtimestamp(item.end_ms / 1000, UTC).astimezone(ZoneInfo(zone))
        last = (end.astimezone(UTC) - dt.timedelta(seconds=1)).astimezone(ZoneInfo(zone))
        assert last.strftime(FORMATS[kind]) == item.name
        assert calendar.is_own(item.name)
        if kind != "hourly":
            # Midnight, or the first moment of a day whose midnight the clock skips.
            assert end.date() - last.date() == dt.timedelta(1)
        if kind == "weekly":
            assert end.weekday() == 0
        if kind == "monthly":
            assert end.day == 1
    lengths = {"hourly": 1, "daily": 25, "weekly": 169, "monthly": 31 * 24 + 1}
    assert all(0 < a - b <= lengths[kind] * 3_600_000 for a, b in itertools.pairwise(ends))
    assert not calendar.is_own("release-1")


def test_a_week_belongs_to_the_year_of_its_thursday() -> None:
    calendar = Calendar("weekly")
    until = dt.datetime(2027, 1, 11, tzinfo=UTC)
    found = calendar.ended(ms(until), ms(until - dt.timedelta(20)))
    assert [item.name for item in found] == ["2027-W01", "2026-W53", "2026-W52"]


def test_a_calendar_refuses_a_format_with_one_name_for_two_periods() -> None:
    with pytest.raises(InvalidRequestError, match="one name"):
        Calendar("daily", format="%m-%d")


def test_the_state_at_the_end_of_a_month_is_tagged(at_noon: CommandLine) -> None:
    days = [NOW.replace(month=month, day=day) for month, day in ((1, 15), (1, 31), (2, 28), (3, 1))]
    ids = history(at_noon, *days)

    at_noon.ok("tag", "db.t", "--auto", "monthly", "--backfill")
    assert refs(at_noon) == {"2026-01": ids[1], "2026-02": ids[2]}
    assert at_noon.ok("tag", "db.t", "--auto", "monthly")["status"] == "nothing-to-do"
    assert at_noon("tag", "db.t", "--auto", "monthly", "--format", "%m").exit_code == 2


@pytest.mark.parametrize(
    ("ref", "place"),
    [("@today", 1), ("@yesterday", 0), ("@90m", 2), ("@1h", 3), ("@11h", 1), ("@1d", 0)],
)
def test_a_time_may_be_an_age_or_the_beginning_of_a_day(
    at_noon: CommandLine, ref: str, place: int
) -> None:
    hours = ((8, 3), (9, 23), (10, 10), (10, 11))
    ids = history(at_noon, *(NOW.replace(day=day, hour=hour) for day, hour in hours))

    at_noon.ok("tag", "db.t", "chosen", "--at", ref)
    assert refs(at_noon) == {"chosen": ids[place]}
    shown = at_noon.ok("scan", "db.t", "--snapshot", ref, "--plan")
    assert shown["base_snapshot_id"] == str(ids[place])
