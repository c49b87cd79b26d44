"""Commands on machines whose clocks are wrong: the times in metadata never go back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from support.cli.command_line import CommandLine
from support.faults.store_time import store_time_of_commands
from support.tables.iceberg_tables import FixedClock, files_below
from support.tables.metadata_edits import edit_metadata, java_would_refuse, read_metadata
from support.tiers import examples

from lake.core.base.clock import SystemClock
from lake.core.base.settings import Settings
from lake.core.table.catalogs.selection import open_catalog
from lake.core.table.metadata.commit_times import in_order, is_disordered, latest_ms
from lake.core.table.metadata.parser import parsed
from lake.core.transaction.session import Session

NOW = 1_800_000_000_000
MINUTE = 60_000
HOUR = 60 * MINUTE
# Where the clock stands, in minutes: forward, back, far away, and back again.
STEPS = (0, 5, 0, 4000, 3, -90, 1)


class Machine:
    """A command line whose clock stands where the test puts it."""

    def __init__(self, warehouse: Path, catalog_type: str) -> None:
        self.clock = FixedClock(NOW)
        self.warehouse = warehouse
        self.lake = CommandLine(warehouse, catalog_type=catalog_type, open_session=self._session)
        self._files = 0

    def _session(self, settings: Settings) -> Session:
        session = Session(settings=settings, catalog=open_catalog(settings))
        session.clock = self.clock
        return session

    def at(self, minutes: int) -> None:
        self.clock.now = NOW + minutes * MINUTE

    def ingest(self, *options: str) -> dict[str, Any]:
        path = self.warehouse.parent / f"{self._files}.parquet"
        pq.write_table(pa.table({"id": [self._files]}), path)
        self._files += 1
        return self.lake.ok("ingest", "db.t", path, *options)

    def metadata(self) -> dict[str, Any]:
        plain = read_metadata(self.warehouse)
        assert java_would_refuse(plain) == []
        return plain

    def ids(self) -> list[int]:
        found = self.lake("scan", "db.t", "--output", "-", "--output-format", "json")
        return sorted(json.loads(line)["id"] for line in found.stdout.splitlines())


@pytest.fixture(params=["sql", "hadoop"])
def machine(request: pytest.FixtureRequest, warehouse: Path) -> Iterator[Machine]:
    warehouse.mkdir()
    with store_time_of_commands():
        yield Machine(warehouse, request.param)


def times(plain: dict[str, Any]) -> list[int]:
    """Return all times of a table in the order in which they were written, but the metadata log's."""
    snapshots = [item["timestamp-ms"] for item in plain["snapshots"]]
    log = [item["timestamp-ms"] for item in plain["snapshot-log"]]
    assert log == snapshots[len(snapshots) - len(log) :]
    return [*snapshots, plain["last-updated-ms"]]


def test_times_never_go_back_however_the_clock_steps(machine: Machine) -> None:
    for number, minutes in enumerate(STEPS):
        machine.at(minutes)
        machine.ingest(*(() if number else ("--create",)))
        plain = machine.metadata()
        assert times(plain) == sorted(times(plain))
        logged = [item["timestamp-ms"] for item in plain["metadata-log"]]
        assert logged == sorted(logged)

    machine.at(2)
    machine.lake.ok("compact", "db.t")
    machine.metadata()
    machine.at(-5)
    machine.lake.ok("expire", "db.t", "--retain-last", "1", "--snapshot", first_id(machine))
    machine.metadata()
    machine.at(-7)
    machine.ingest()
    machine.metadata()
    assert machine.ids() == list(range(len(STEPS) + 1))


def first_id(machine: Machine) -> str:
    return str(read_metadata(machine.warehouse)["snapshots"][0]["snapshot-id"])


def test_a_commit_takes_its_time_from_the_clock_that_it_is_given(machine: Machine) -> None:
    machine.ingest("--create")
    assert machine.metadata()["last-updated-ms"] == NOW

    machine.at(60 * 24 * 30)
    machine.lake.ok("expire", "db.t", "--snapshot", second_ingest(machine))
    assert machine.metadata()["last-updated-ms"] == NOW + 30 * 24 * HOUR


def second_ingest(machine: Machine) -> str:
    first = first_id(machine)
    machine.ingest()
    return first


def by_others(plain: dict[str, Any]) -> None:
    """Let logs and the last update be as writers with wrong clocks left them."""
    for name, offsets in (("snapshot-log", (0, 50, 3, 2)), ("metadata-log", (0, 40, -20))):
        for entry, minutes in zip(plain[name], offsets, strict=True):
            entry["timestamp-ms"] = NOW + minutes * MINUTE
    plain["last-updated-ms"] = NOW - HOUR


def test_the_next_commit_heals_a_table_that_java_cannot_load(machine: Machine) -> None:
    machine.ingest("--create")
    for _ in range(3):
        machine.ingest()
    before = edit_metadata(machine.warehouse, by_others)
    assert len(java_would_refuse(before)) == 4

    machine.ingest()

    plain = machine.metadata()
    assert [item["snapshot-id"] for item in plain["snapshot-log"]][:4] == [
        item["snapshot-id"] for item in before["snapshot-log"]
    ]
    # What is right stays: only what went back was raised.
    assert [item["timestamp-ms"] - NOW for item in plain["snapshot-log"]] == [
        minutes * MINUTE for minutes in (0, 50, 50, 50, 50)
    ]
    assert [item["timestamp-ms"] - NOW for item in plain["metadata-log"]] == [
        minutes * MINUTE for minutes in (0, 40, 40, 40)
    ]
    assert plain["last-updated-ms"] == NOW + 50 * MINUTE
    assert machine.ids() == [0, 1, 2, 3, 4]


def test_an_expiry_heals_too_and_deletes_nothing_by_a_clock_that_is_behind(
    machine: Machine,
) -> None:
    machine.at(60 * 24 * 100)
    machine.ingest("--create")
    machine.ingest()
    machine.ingest()
    machine.ingest()
    edit_metadata(machine.warehouse, lambda plain: plain.update({"last-updated-ms": NOW}))
    machine.at(60 * 24 * 2)

    aged = machine.lake.ok("expire", "db.t", "--older-than", "7d")
    assert aged["status"] == "nothing-to-do"
    machine.lake.ok("expire", "db.t", "--snapshot", first_id(machine))

    plain = machine.metadata()
    assert len(plain["snapshots"]) == 3
    assert plain["last-updated-ms"] == NOW + 100 * 24 * HOUR


def test_a_time_means_what_was_current_then_on_a_table_with_a_head_of_the_future(
    machine: Machine,
) -> None:
    machine.ingest("--create")
    machine.at(600)
    machine.ingest()
    machine.at(10)
    machine.ingest()

    found = machine.lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert [item["committed_at"] for item in found] == [
        "2027-01-15T18:00:00.000Z",
        "2027-01-15T18:00:00.000Z",
        "2027-01-15T08:00:00.000Z",
    ]
    out = ("--output", "-", "--output-format", "json")
    early = machine.lake("scan", "db.t", "--snapshot", "@2027-01-15T09:00:00Z", *out)
    late = machine.lake("scan", "db.t", "--snapshot", "@2027-01-15T18:00:00Z", *out)
    assert len(early.stdout.splitlines()) == 1
    assert len(late.stdout.splitlines()) == 3


# The rules as an algorithm

MOMENTS = st.integers(NOW - 10 * MINUTE, NOW + 10 * MINUTE)


def metadata(snapshot_log: list[int], metadata_log: list[int], last: int) -> TableMetadata:
    plain = {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:///w/db/t",
        "last-sequence-number": 0,
        "last-updated-ms": last,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "snapshot-log": [
            {"snapshot-id": number, "timestamp-ms": moment}
            for number, moment in enumerate(snapshot_log)
        ],
        "metadata-log": [
            {"metadata-file": str(number), "timestamp-ms": moment}
            for number, moment in enumerate(metadata_log)
        ],
    }
    return parsed(json.dumps(plain).encode())


@given(st.lists(MOMENTS, max_size=6), st.lists(MOMENTS, max_size=6), MOMENTS, MOMENTS)
@example([NOW, NOW + 5 * MINUTE, NOW], [NOW, NOW + 5 * MINUTE], NOW, NOW)
@settings(max_examples=examples(200), deadline=None)
def test_java_accepts_the_times_after_any_change(
    snapshot_log: list[int], metadata_log: list[int], last: int, made: int
) -> None:
    before = metadata(snapshot_log[:-1], metadata_log[:-1], last)
    after = metadata(snapshot_log, metadata_log, last)

    found = in_order(before, after, made)

    plain = json.loads(found.model_dump_json())
    assert java_would_refuse(plain) == []
    assert not is_disordered(found)
    assert found.last_updated_ms >= max(before.last_updated_ms, made)
    assert found.last_updated_ms == latest_ms(found)
    assert is_disordered(after) == bool(java_would_refuse(json.loads(after.model_dump_json())))
    for old, new in (
        (after.snapshot_log, found.snapshot_log),
        (after.metadata_log, found.metadata_log),
    ):
        assert all(
            one.timestamp_ms <= other.timestamp_ms for one, other in zip(old, new, strict=True)
        )


_OLD = ("--older-than", "7d")
_AGING = {
    "clean": ("clean", "db.t", "--delete", "--max-share", "100%"),
    "quarantine": ("clean", "db.t", "--quarantine", "--max-share", "100%"),
    "purge": ("clean", "db.t", "--purge-older-than", "1d"),
    "expire": ("expire", "db.t", "--retain-last", "1", *_OLD),
    "expire by properties": ("expire", "db.t"),
    "expire-partitions": ("expire-partitions", "db.t", "--strategy", "update-time", *_OLD),
    "tag": ("tag", "db.t", "--auto", "daily", "--keep", "1"),
}


@pytest.mark.parametrize("command", _AGING.values(), ids=_AGING)
def test_nothing_is_deleted_for_its_age_on_a_machine_whose_clock_is_ahead_of_the_stores(
    lake: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The file of a running writer, and the snapshots and rows of today, look a week old there."""
    machine = Machine(lake.warehouse, "sql")
    source = tmp_path / "rows.csv"
    source.write_text("id,day\n1,2026-01-01\n")
    for _ in range(3):
        lake.ok("ingest", "db.t", source, "--create", "--partition-by", "id")
    root = lake.warehouse / "db" / "t"
    (root / "data" / "of-a-running-writer.parquet").write_text("not committed yet")
    lake.ok("clean", "db.t", "--quarantine", "--older-than", "0s", "--unsafe-retention")
    (root / "data" / "of-a-running-writer.parquet").write_text("not committed yet")
    before = files_below(lake.warehouse)

    machine.clock.now = SystemClock().now_ms() + 8 * 24 * HOUR
    refused = machine.lake(*command)

    assert refused.exit_code == 3, refused
    assert "ahead of the clock of the store" in refused.stderr
    assert "hint:" in refused.stderr
    assert files_below(lake.warehouse) == before

    for minutes in (2, 0, -8 * 24 * 60):
        machine.clock.now = SystemClock().now_ms() + minutes * MINUTE
        done = machine.lake(*command)
        assert done.exit_code == 0, done
        assert not (root / "metadata" / "lake.clock").exists()
        assert (root / "data" / "of-a-running-writer.parquet").exists()
