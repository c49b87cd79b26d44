"""What `lake` replays, expires and reads of checkpoints, judged by a real Flink that restores them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.flink_peer import FlinkPeer, Job
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture, canonical_rows

pytestmark = pytest.mark.java

Flink = Callable[[str], FlinkFixture]
# Those of which a checkpoint was kept: a job that finished removes its own.
WITH_CHECKPOINT = [
    name for name in flink_fixtures.names() if name not in {"a2-append-fv1", "f-overwrite-bounded"}
]
EXPIRE = ("--older-than", "0s", "--unsafe-retention")


def lake_on(fixture: FlinkFixture) -> CommandLine:
    return CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)


def rows_of(fixture: FlinkFixture, folder: Path) -> list[str]:
    output = folder / "rows.parquet"
    lake_on(fixture).ok("scan", fixture.table, "--output", output, "--replace")
    return canonical_rows(pq.read_table(output))


# The fixtures


@pytest.mark.parametrize("name", ["b-append-pending", "c2-upsert-part", "n-dynamic", "g-leftover"])
def test_the_judge_commits_what_is_pending_and_nothing_else(
    flink_lent: Flink, flink_jobs: FlinkPeer, name: str, tmp_path: Path
) -> None:
    fixture = flink_lent(name)
    assert rows_of(fixture, tmp_path) == fixture.rows()

    flink_jobs.restore(fixture, tmp_path / "checkpoints")

    assert rows_of(fixture, tmp_path) == fixture.rows("full")


@pytest.mark.parametrize("name", WITH_CHECKPOINT)
def test_a_restore_after_a_replay_adds_nothing(
    flink_lent: Flink, flink_jobs: FlinkPeer, name: str, tmp_path: Path
) -> None:
    fixture = flink_lent(name)
    lake = lake_on(fixture)
    checkpoint = fixture.root / fixture.truth["replay"]["from_checkpoint"]
    overwrites = ["--replace-partitions"] if name.startswith("f") else []
    lake.ok("replay", fixture.table, "--checkpoint", checkpoint, *overwrites)
    before = lake.ok("snapshots", fixture.table)["result"]["snapshots"]

    flink_jobs.restore(fixture, tmp_path / "checkpoints")

    assert rows_of(fixture, tmp_path) == fixture.rows("full")
    assert lake.ok("snapshots", fixture.table)["result"]["snapshots"] == before
    assert lake.ok("replay", fixture.table, "--checkpoint", checkpoint, *overwrites)["status"] == (
        "nothing-to-do"
    )


@pytest.mark.parametrize("name", WITH_CHECKPOINT)
def test_a_restore_after_expiry_commits_exactly_what_was_pending(
    flink_lent: Flink, flink_jobs: FlinkPeer, name: str, tmp_path: Path
) -> None:
    fixture = flink_lent(name)
    lake = lake_on(fixture)
    if not name.startswith("j"):  # whose position deletes name files by path
        lake.ok("compact", fixture.table, "--rewrite-all")
    lake.ok("expire", fixture.table, *EXPIRE, "--keep-checkpoints", "9999d")
    assert rows_of(fixture, tmp_path) == fixture.rows()

    flink_jobs.restore(fixture, tmp_path / "checkpoints")

    assert rows_of(fixture, tmp_path) == fixture.rows("full")


def test_flink_commits_no_deletion_vector_once_history_was_cut(
    flink_lent: Flink, flink_jobs: FlinkPeer, tmp_path: Path
) -> None:
    """Why an expiry keeps all of such a table: no checkpoint could be committed any more."""
    fixture = flink_lent("c3-upsert-v3")
    lake = lake_on(fixture)
    lake.ok("compact", fixture.table, "--rewrite-all")
    kept = lake.ok("expire", fixture.table, *EXPIRE, "--keep-checkpoints", "9999d")
    assert (kept["status"], len(kept["warnings"])) == ("nothing-to-do", 1)
    lake.ok("expire", fixture.table, *EXPIRE, "--keep-checkpoints", "0s")

    with pytest.raises(RuntimeError, match="Cannot determine history between starting snapshot"):
        flink_jobs.restore(fixture, tmp_path / "checkpoints")

    assert rows_of(fixture, tmp_path) == fixture.rows()
    checkpoint = fixture.root / fixture.truth["replay"]["from_checkpoint"]
    replay = ("replay", fixture.table, "--checkpoint", checkpoint, "--assume-uncommitted")
    assert lake.ok(*replay)["result"]["committed_checkpoints"] == 3
    assert rows_of(fixture, tmp_path) == fixture.rows("full")


def test_a_restore_after_an_expiry_that_keeps_nothing_commits_twice(
    flink_lent: Flink, flink_jobs: FlinkPeer, tmp_path: Path
) -> None:
    """Why an expiry keeps checkpoints: the state names what is committed already."""
    fixture = flink_lent("g-leftover")
    lake = lake_on(fixture)
    lake.ok("compact", fixture.table, "--rewrite-all")
    lake.ok("expire", fixture.table, *EXPIRE, "--keep-checkpoints", "0s", "--keep-files")

    flink_jobs.restore(fixture, tmp_path / "checkpoints")

    assert len(rows_of(fixture, tmp_path)) > len(fixture.rows("full"))


# Jobs of our own


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("amount", pa.decimal128(20, 4)),
        ("ts", pa.timestamp("us")),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("number", pa.float64()),
        ("flag", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("name", pa.string())])),
    ]
)
TEXTS = ("", "a", "größe/ü", "north yard", "x=1&y", "漢字", "%2F", "é" * 40)


def rows_made(seed: int, count: int, ids: range) -> list[dict[str, Any]]:
    """Return random rows; all but ids, which do not repeat, are NULL at times."""
    made = random.Random(seed)
    zero = dt.datetime(1970, 1, 1)

    def value(number: int) -> dict[str, Any]:
        moment = zero + dt.timedelta(microseconds=made.randrange(-(10**15), 2 * 10**15))
        return {
            "small": made.choice([-(2**31), -1, 0, 7, 2**31 - 1]),
            "text": made.choice(TEXTS),
            "raw": made.randbytes(made.randrange(6)),
            "amount": Decimal(made.randrange(-(10**19), 10**19)).scaleb(-4),
            "ts": moment,
            "at": moment.replace(tzinfo=dt.UTC),
            "day": moment.date(),
            "number": made.choice([0.5, -1e300, float("inf"), 3.0]),
            "flag": made.random() < 0.5,
            "tags": made.choice([[], ["a", None], ["b"]]),
            "place": {"x": made.randrange(5), "name": made.choice(TEXTS)},
            "id": number,
        }

    found = [value(number) for number in made.sample(ids, count)]
    for row in found:
        for name in row:
            if name != "id" and made.random() < 0.1:
                row[name] = None
    return found


CASES = {
    "hours and buckets": ("hadoop", "v1", "append", "2", "hour(ts), bucket(5, text)"),
    "truncated decimals": ("sql", "v2", "append", "3", "truncate(1000, amount), year(day)"),
    "binaries, format 1": ("hadoop", "v2", "append", "1", "bucket(3, raw), small"),
    "no partitions": ("sql", "v1", "append", "1", ""),
    "texts, dynamic": ("sql", "dynamic", "append", "2", "truncate(3, text)"),
    "upserts": ("hadoop", "v1", "upsert", "2", "bucket(4, id)"),
    "upserts, format 3": ("sql", "v2", "upsert", "3", ""),
    "overwrites": ("hadoop", "v1", "overwrite", "2", "flag"),
    "overwrites one by one": ("sql", "v2", "overwrite", "2", "flag"),
}


@pytest.mark.parametrize("case", CASES)
def test_savepoints_of_any_table_are_replayed_once_and_the_job_goes_on(
    flink_jobs: FlinkPeer, tmp_path: Path, case: str
) -> None:
    kind, sink, mode, version, partitions = CASES[case]
    lake = CommandLine(tmp_path / "warehouse", catalog_type=kind)
    batches = [rows_made(seed, 12, range(30)) for seed in range(4)]
    if mode != "upsert":
        for number, batch in enumerate(batches):
            for row in batch:
                row["id"] += 100 * number
    files = [tmp_path / f"{number}.parquet" for number in range(4)]
    for file, batch in zip(files, batches, strict=True):
        pq.write_table(pa.Table.from_pylist(batch, schema=SCHEMA), file)
    lake.ok(
        *("ingest", "db.t", files[0], "--create", "--property", f"format-version={version}"),
        *(["--partition-by", partitions] if partitions else []),
    )
    job = Job(
        catalog="hadoop" if kind == "hadoop" else "jdbc",
        warehouse=f"file://{tmp_path}/warehouse",
        table="db.t",
        checkpoints=str(tmp_path / "checkpoints"),
        sink=sink,
        mode=mode,
        keys=("id",) if mode == "upsert" else (),
        parallelism=2,
        flink={"execution.checkpointing.unaligned.enabled": "false"},
    )

    made = flink_jobs.run(
        job,
        *(("rows", str(files[1])), ("savepoint", str(tmp_path), "CANONICAL")),
        *(("rows", str(files[2])), ("savepoint", str(tmp_path), "NATIVE")),
    )["made"]

    def rows_now() -> list[dict[str, Any]]:
        output = tmp_path / "rows.parquet"
        lake.ok("scan", "db.t", "--output", output, "--replace")
        return sorted(pq.read_table(output).to_pylist(), key=lambda row: row["id"])

    def expected(*steps: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Return the rows after commits of batches."""
        rows: list[dict[str, Any]] = []
        for step in steps:
            new = [row for batch in step for row in batch]
            if mode == "upsert":
                rows = list({row["id"]: row for row in [*rows, *new]}.values())
            elif mode == "overwrite":
                gone = {row["flag"] for row in new}
                rows = [row for row in rows if row["flag"] not in gone] + new
            else:
                rows = rows + new
        return sorted(rows, key=lambda row: row["id"])

    assert rows_now() == expected(batches[:1])
    overwrites = ["--replace-partitions"] if mode == "overwrite" else []
    replay = ("replay", "db.t", "--checkpoint", made[1], "--quiet-time", "0s", *overwrites)
    replayed = lake.ok(*replay)
    merged = [[batches[1], batches[2]]] if sink == "v1" else [[batches[1]], [batches[2]]]
    assert replayed["result"]["committed_checkpoints"] == 2
    assert rows_now() == expected(batches[:1], *merged)
    assert lake.ok(*replay)["status"] == "nothing-to-do"

    flink_jobs.run(job, ("rows", str(files[3])), ("checkpoint",), restore=made[1])

    assert rows_now() == expected(batches[:1], *merged, [batches[3]])
