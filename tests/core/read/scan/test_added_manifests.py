"""Which manifest lists an append scan reads, and that it finds what each snapshot's own list names."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    SCHEMA,
    make_table,
    open_session,
    pyiceberg_table,
    write_file,
)

from lake.core.io.storage.storage import Storage
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


def rows(ids: list[int], names: int = 1) -> pa.Table:
    """Return rows of several partitions."""
    found = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([f"n{each % names}" for each in ids], pa.string()),
    }
    return pa.table(found)


class Reads:
    """Counts the manifest lists that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lists: list[str] = []
        real = Storage.read

        def read(storage: Storage, location: str, *arguments: Any, **options: Any) -> Any:
            if Path(location).name.startswith("snap-"):
                self.lists.append(location)
            return real(storage, location, *arguments, **options)

        monkeypatch.setattr(Storage, "read", read)


def added_paths(warehouse: Path, start: int | None = None) -> tuple[list[str], tuple[str, ...]]:
    """Return the files that lake finds after a snapshot, and its doubts."""
    options = ScanOptions(from_snapshot=str(start)) if start else ScanOptions(to_snapshot="main")
    plan = plan_scan(open_session(warehouse).table("db.t"), options)
    paths = [path for part in plan.found.by_spec.values() for path in part["file_path"].to_pylist()]
    return sorted(paths), plan.found.doubts


def own_paths(warehouse: Path, start: int | None = None) -> list[str]:
    """Return the files that each append after a snapshot added, by its own list, as PyIceberg reads it."""
    table = pyiceberg_table(warehouse)
    found, snapshot = [], table.current_snapshot()
    while snapshot is not None and snapshot.snapshot_id != start:
        if snapshot.summary.operation.value == "append":
            found += [
                entry.data_file.file_path
                for manifest in snapshot.manifests(table.io)
                if manifest.content is ManifestContent.DATA
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                if entry.status is ManifestEntryStatus.ADDED
                and entry.snapshot_id == snapshot.snapshot_id
            ]
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    return sorted(found)


def change_summaries(warehouse: Path, change: Any) -> None:
    """Change the summaries in the table's metadata."""
    location = pyiceberg_table(warehouse).metadata_location
    path = Path(location.removeprefix("file://"))
    document = json.loads(path.read_text())
    for snapshot in document["snapshots"]:
        change(snapshot["summary"])
    path.write_text(json.dumps(document))


def test_the_newest_list_is_enough_for_appends_that_nothing_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    for each in range(12):
        table.append(rows([each]))
    first = table.history()[0].snapshot_id
    reads = Reads(monkeypatch)

    found, doubts = added_paths(tmp_path, first)

    assert (found, doubts) == (own_paths(tmp_path, first), ())
    assert len(found) == 11
    assert reads.lists == [table.current_snapshot().manifest_list]


def test_appends_whose_manifests_were_merged_need_the_lists_before_the_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merging = {
        "commit__manifest_merge__enabled": "true",
        "commit__manifest__min_count_to_merge": "20",
    }
    table = make_table(tmp_path, **merging)
    for each in range(50):
        table.append(rows([each]))
    reads = Reads(monkeypatch)

    found, _ = added_paths(tmp_path)

    assert len(found) == 50
    assert found == own_paths(tmp_path)
    assert len(reads.lists) < 10


def test_all_lists_are_read_if_the_totals_are_not_to_be_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path, lake__ignore_summary_totals="true")
    for each in range(7):
        table.append(rows([each]))
    reads = Reads(monkeypatch)

    found, _ = added_paths(tmp_path)

    assert len(found) == 7
    assert len(set(reads.lists)) == 7


def test_an_append_that_lost_one_of_its_manifests_needs_its_own_list(
    lake: CommandLine, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(warehouse)
    session = open_session(warehouse)
    without = [write_file(session.table("db.t"), [each]) for each in range(3)]
    lake.ok("alter", "db.t", "--partition-by", "name")
    for file in without:
        table = session.table("db.t")
        name = f"n{file.record_count}"
        added = [file, write_file(table, [1], partition=(name.encode(),))]
        commit_snapshot(
            session, table, AppendFiles(added=added), CommitRequest(operation_id=str(uuid.uuid4()))
        )
    lake.ok("manifests", "db.t", "--spec-id", "1")
    reads = Reads(monkeypatch)

    found, _ = added_paths(warehouse)

    assert len(found) == 6
    assert found == own_paths(warehouse)
    assert len(set(reads.lists)) == 3


@pytest.mark.parametrize("counter", ["added-data-files", "added-records"])
@pytest.mark.parametrize("value", [None, "0", "2", "many", "-1"])
def test_a_summary_that_does_not_count_what_was_added_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counter: str, value: str | None
) -> None:
    table = make_table(tmp_path)
    for each in range(5):
        table.append(rows([each]))
    change_summaries(tmp_path, lambda summary: summary.update({counter: value}))
    if value is None:
        change_summaries(tmp_path, lambda summary: summary.pop(counter))
    reads = Reads(monkeypatch)

    found, doubts = added_paths(tmp_path)

    assert found == own_paths(tmp_path)
    assert len(found) == 5
    assert len(set(reads.lists)) == 5
    assert bool(doubts) == ((counter, value) == ("added-data-files", "2"))


@pytest.mark.parametrize("seed", range(6))
def test_an_append_scan_finds_what_each_list_names_whatever_came_after_it(
    lake: CommandLine, warehouse: Path, seed: int
) -> None:
    random = Random(seed)
    properties = {"commit__manifest__min_count_to_merge": str(random.choice([2, 4, 100]))}
    properties["commit__manifest_merge__enabled"] = "true"
    table = make_table(warehouse, spec=BY_NAME, schema=SCHEMA, **properties)
    for each in range(14):
        table.refresh()
        step = random.choice(["append"] * 4 + ["empty", "delete", "compact", "manifests"])
        if step == "append":
            table.append(rows(list(range(each * 4, each * 4 + random.randint(1, 4))), names=3))
        elif step == "empty":
            table.append(rows([]))
        elif step == "delete":
            table.delete(EqualTo("name", f"n{random.randrange(3)}"))
        elif step == "compact":
            lake.ok("compact", "db.t", "--rewrite-all")
        else:
            lake.ok("manifests", "db.t")
    if random.random() < 0.5:
        counter = random.choice(["added-data-files", "added-records", "changed-partition-count"])
        change_summaries(
            warehouse,
            lambda summary: (
                random.random() < 0.5 and summary.update({counter: str(random.randrange(3))})
            ),
        )
    starts = [None, *(item.snapshot_id for item in table.refresh().history())]

    for start in starts:
        assert added_paths(warehouse, start)[0] == own_paths(warehouse, start)
    assert own_paths(warehouse)
