"""`lake scan --follow --prune-with`: the keys of each discovery, which are kept until it is handed over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

from lake.core.base.errors import StorageError
from lake.core.read.continuous.handover import hand_over

STORES = "db.stores where country = 'NZ'"


class Follow:
    """A fact of stores, a dimension that says where they are, and a follow of the fact to a folder."""

    def __init__(self, lake: CommandLine, folder: Path) -> None:
        self.lake, self._folder = lake, folder
        self.state, self.out = folder / "state", folder / "out"
        self._files = 0
        self.locate(*((number, "NZ" if number in {1, 2} else "AU") for number in range(10)))
        self.sell(range(20))

    def locate(self, *stores: tuple[int, str]) -> None:
        """Replace the dimension."""
        ids, countries = zip(*stores, strict=True)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "country": countries})
        known = self._files > 0
        mode = ["--overwrite"] if known else ["--create"]
        self.lake.ok("ingest", "db.stores", self.file(rows), *mode)

    def sell(self, ids: range) -> None:
        """Append a row of store ``id % 10`` for each id."""
        rows = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "store": pa.array([number % 10 for number in ids], pa.int64()),
            }
        )
        create = ["--create", "--partition-by", "bucket(4, store)"]
        made = (Path(self.lake.warehouse) / "db" / "fact").exists()
        self.lake.ok("ingest", "db.fact", self.file(rows), *([] if made else create))

    def file(self, rows: pa.Table) -> Path:
        self._files += 1
        path = self._folder / f"source-{self._files}.parquet"
        pq.write_table(rows, path)
        return path

    def line(self, *options: object, keys: object = STORES) -> tuple[object, ...]:
        return (
            *("scan", "db.fact", "--follow", "--once", "--state", self.state, "--output", self.out),
            *("--prune-with", keys, "--on", "store=id", "--matching"),
            *options,
        )

    def run(self, *options: object, keys: object = STORES) -> dict[str, Any]:
        return self.lake.ok(*self.line(*options, keys=keys))

    def epochs(self) -> list[dict[str, Any]]:
        """Return the facts of the epochs with their rows, and delete the epochs."""
        found = []
        for epoch in sorted(self.out.glob("epoch-*")):
            facts = json.loads((epoch / "_epoch.json").read_text())
            parts = [pq.read_table(epoch / item["name"]) for item in facts["files"]]
            facts["ids"] = sorted(row["id"] for part in parts for row in part.to_pylist())
            found.append(facts)
            shutil.rmtree(epoch)
        return found

    def key_files(self) -> list[str]:
        return sorted(path.name for path in self.state.glob("keys-*"))

    def dimension_head(self) -> str:
        snapshot: str = self.lake.ok("scan", "db.stores", "--plan")["base_snapshot_id"]
        return snapshot


@pytest.fixture
def follow(lake: CommandLine, tmp_path: Path) -> Follow:
    return Follow(lake, tmp_path)


def sold(ids: range, *stores: int) -> list[int]:
    return [number for number in ids if number % 10 in stores]


def test_the_dimension_is_read_again_after_it_changed(follow: Follow) -> None:
    before = follow.dimension_head()
    first = follow.run()
    follow.sell(range(20, 40))
    follow.run()
    follow.locate((3, "NZ"), (1, "AU"))
    after = follow.dimension_head()
    follow.sell(range(40, 60))
    follow.run()

    facts = follow.epochs()
    assert [item["ids"] for item in facts] == [
        sold(range(20), 1, 2),
        sold(range(20, 40), 1, 2),
        sold(range(40, 60), 3),
    ]
    assert [item["dimension_snapshot_id"] for item in facts] == [before, before, after]
    assert {item["dimension"] for item in facts} == {"db.stores"}
    assert first["plan"]["pruning"]["status"] == "exact"
    assert first["plan"]["pruning"]["files_before"] > first["plan"]["pruning"]["files_after"]
    assert first["result"]["rows_without_partner"] > 0
    assert not follow.key_files()


@pytest.mark.parametrize("source", ["table", "file"])
@pytest.mark.parametrize("limit", ["8MB", "8B"])
def test_a_repeated_epoch_has_the_keys_of_its_discovery(
    follow: Follow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, limit: str
) -> None:
    keys: object = STORES
    if source == "file":
        keys = tmp_path / "keys.csv"
        keys.write_text("id\n1\n2\n")
    with monkeypatch.context() as broken:

        def fail(*_: object) -> None:
            raise StorageError("the disk is full")

        broken.setattr(hand_over, "write_epoch", fail)
        failed = follow.lake("--json", *follow.line("--prune-limit", limit, keys=keys))
        assert failed.exit_code != 0, failed
    pinned = follow.dimension_head() if source == "table" else None
    assert len(follow.key_files()) == (1 if limit == "8MB" else 2)
    # The dimension changes, and the snapshot that was read expires.
    follow.locate((3, "NZ"))
    follow.lake.ok(
        *("expire", "db.stores", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    )
    if source == "file":
        Path(str(keys)).write_text("id\n3\n")
    follow.sell(range(20, 40))
    follow.run("--prune-limit", limit, keys=keys)

    repeated, later = follow.epochs()
    assert repeated["ids"] == sold(range(20), 1, 2)
    assert repeated["dimension_snapshot_id"] == pinned
    assert later["ids"] == sold(range(20, 40), 3)
    assert not follow.key_files()


def test_damaged_keys_of_pending_splits_are_refused(follow: Follow) -> None:
    follow.sell(range(20))
    options = ("--epoch-size", "1B", "--split-open-cost", "128MB")
    line = [*follow.line("--max-epochs", "1", *options)]
    line.remove("--once")
    follow.lake.ok(*line)
    (name,) = follow.key_files()
    whole = (follow.state / name).read_bytes()
    for damaged in (whole[:-1], bytes([whole[0] ^ 1]) + whole[1:]):
        (follow.state / name).write_bytes(damaged)
        failed = follow.lake(*follow.line(*options))
        assert failed.exit_code == 7, failed
        assert name in failed.stderr
    (follow.state / name).write_bytes(whole)
    follow.run(*options)
    ids = sorted(number for item in follow.epochs() for number in item["ids"])
    assert ids == sorted(2 * sold(range(20), 1, 2))


def test_changes_are_chosen_by_the_keys_of_their_discovery(follow: Follow) -> None:
    follow.run("--changes", "--start", "earliest")
    follow.locate((3, "NZ"))
    follow.lake.ok("ingest", "db.fact", follow.file(pa.table({"id": [3, 21], "store": [3, 1]})))
    follow.run("--changes")

    assert [item["ids"] for item in follow.epochs()] == [sold(range(20), 1, 2), [3]]


def test_a_stream_is_chosen_by_keys(follow: Follow) -> None:
    line = [*follow.line()]
    del line[4:8]
    result = follow.lake(*line, "--start", "table", "--output-format", "json")
    assert result.exit_code == 0, result
    found = sorted(json.loads(row)["id"] for row in result.stdout.splitlines())
    assert found == sold(range(20), 1, 2)


def test_a_plan_shows_what_the_keys_exclude(follow: Follow) -> None:
    plan = follow.run("--plan")["plan"]
    assert plan["pruning"]["dimension_snapshot_id"] == follow.dimension_head()
    assert plan["files"] == plan["pruning"]["files_after"]


def test_other_keys_are_refused_while_splits_wait_and_accepted_later(follow: Follow) -> None:
    follow.sell(range(20))
    options = ("--epoch-size", "1B", "--split-open-cost", "128MB")
    line = [*follow.line("--max-epochs", "1", *options)]
    line.remove("--once")
    follow.lake.ok(*line)
    assert follow.key_files()
    other = follow.lake(*follow.line(*options, keys="db.stores"))
    assert other.exit_code == 2
    assert "--prune-with cannot change while splits are pending" in other.stderr

    follow.run(*options)
    ids = sorted(number for item in follow.epochs() for number in item["ids"])
    assert ids == sorted(2 * sold(range(20), 1, 2))
    follow.run(*options, keys="db.stores")


def test_a_gap_in_the_history_of_the_dimension_stops_the_follow(follow: Follow) -> None:
    pinned = f"db.stores@{follow.dimension_head()} where country = 'NZ'"
    follow.run(keys=pinned)
    follow.locate((3, "NZ"))
    follow.lake.ok(
        *("expire", "db.stores", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    )
    position = json.loads((follow.state / "state.json").read_text())["position"]
    follow.sell(range(20, 40))

    failed = follow.lake(*follow.line(keys=pinned))

    assert failed.exit_code == 7, failed
    assert json.loads((follow.state / "state.json").read_text())["position"] == position
