"""A watch that is killed, stopped, or run twice at once: every row is in the table once."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.faults.killed_runs import SENDING, killed
from support.tables.iceberg_tables import (
    after,
    inject,
    open_session,
    pyiceberg_table,
)

from lake.core.base.settings import Settings
from lake.core.table.flink.commits import CHECKPOINT_ID, JOB_ID, job_id_of
from lake.core.table.snapshots.streams import STREAM
from lake.core.transaction.session import Session
from lake.core.transaction.staging.operation_files import Staging
from lake.core.transaction.staging.staged_run import StagedRun

# Where a watch dies: before and after what it writes itself.
_OFFERED = ("lake.core.load.continuous.epochs", "Epochs._load", "before")
_RECORDING = ("lake.core.load.continuous.epochs", "Epochs._record", "before")
_LEDGER = ("lake.core.load.continuous.state", "StateStore.save", "before")
_MOVED = ("lake.core.load.continuous.files.disposal", "move", "after")


class Drop:
    """A table, a folder into which files are dropped, and the stream that loads them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder / "drop", folder / "state"
        self.folder.mkdir()
        self.lake = CommandLine(folder / "warehouse", engine="inline")

    def put(self, name: str, *ids: int) -> None:
        path = self.folder / name
        path.write_text("id\n" + "".join(f"{one}\n" for one in ids))
        moment = time.time() - 60
        os.utime(path, (moment, moment))

    def words(self, *more: object) -> list[object]:
        own = ["ingest", "db.t", "--create", "--watch", self.folder, "--stream", "s"]
        return [*own, "--state", self.state, "--once", *more]

    def load(self, *more: object) -> dict[str, Any]:
        return self.lake.ok(*self.words(*more))

    def table(self) -> Any:
        return pyiceberg_table(self.lake.warehouse)

    @property
    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow().column("id").to_pylist())


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    made = Drop(tmp_path)
    made.put("a.csv", 1)
    made.load("--done", "move:" + str(made.folder / "done"))
    made.put("b.csv", 2, 3)
    made.put("c.csv", 4)
    return made


@pytest.mark.parametrize(
    "point",
    [
        _RECORDING,
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (_OFFERED, SENDING, _LEDGER, _MOVED)
        ),
    ],
    ids=str,
)
def test_the_next_run_ends_what_a_killed_one_began(drop: Drop, point: tuple[str, str, str]) -> None:
    move = ("--done", f"move:{drop.folder}/done")
    killed(drop.lake, point, *drop.words(*move))
    # A new list of files would differ from the one that was offered.
    drop.put("bb.csv", 5)

    drop.load(*move)

    assert drop.ids == [1, 2, 3, 4, 5]
    assert drop.load(*move)["status"] == "nothing-to-do"
    assert sorted(path.name for path in drop.folder.rglob("*.csv")) == [
        "a.csv",
        "b.csv",
        "bb.csv",
        "c.csv",
    ]
    assert [path.name for path in drop.folder.iterdir()] == ["done"]


def replace_history(drop: Drop) -> None:
    """Let another writer append two rows and expire all snapshots before the last one."""
    drop.table().append(pa.table({"id": pa.array([8], pa.int64())}))
    before = [item.snapshot_id for item in drop.table().metadata.snapshots]
    drop.table().append(pa.table({"id": pa.array([9], pa.int64())}))
    drop.table().maintenance.expire_snapshots().by_ids(before).commit()


def test_an_epoch_whose_base_has_expired_is_loaded_again(drop: Drop) -> None:
    killed(drop.lake, SENDING, *drop.words())
    replace_history(drop)

    done = drop.load()

    assert "the source is loaded again: epoch 2 of stream s" in done["warnings"][0]
    assert drop.ids == [1, 2, 3, 4, 8, 9]
    assert drop.lake.ok("replay", "db.t")["plan"]["checkpoints"] == []
    assert drop.load()["status"] == "nothing-to-do"


def test_an_epoch_whose_own_snapshot_has_expired_is_not_loaded_again(drop: Drop) -> None:
    killed(drop.lake, _RECORDING, *drop.words())
    replace_history(drop)

    drop.load()

    assert drop.ids == [1, 2, 3, 4, 8, 9]


def test_a_killed_epoch_is_shown_and_ended_by_a_replay(drop: Drop) -> None:
    killed(drop.lake, SENDING, *drop.words())

    (found,) = drop.lake.ok("replay", "db.t")["plan"]["checkpoints"]
    assert (found["job_id"], found["checkpoint_id"], found["state"]) == (
        job_id_of("s"),
        "2",
        "pending",
    )
    drop.lake.ok("replay", "db.t", "--job", "s", "--completed", "2")
    assert drop.ids == [1, 2, 3, 4]
    summary = drop.table().current_snapshot().summary.additional_properties
    assert (summary[JOB_ID], summary[CHECKPOINT_ID]) == (job_id_of("s"), "2")
    assert json.loads(summary[STREAM])["offsets"]["last"] == "c.csv"

    done = drop.load()

    assert drop.ids == [1, 2, 3, 4]
    assert done["result"]["files_loaded"] == 2
    assert drop.load()["status"] == "nothing-to-do"


def test_a_stream_does_not_replace_a_staged_run_of_its_name(drop: Drop, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n9\n")
    (drop.folder / "done/a.csv").unlink()
    drop.lake.ok("ingest", "db.t", rows, "--stage", "--run-id", "other")
    words = [word if word != "s" else "other" for word in drop.words()]
    words[words.index(drop.state)] = tmp_path / "state-2"

    refused = drop.lake("--json", *words)

    assert refused.exit_code == 3
    assert "run other of db.t is not committed" in refused.json()["error"]["message"]
    drop.lake.ok("replay", "db.t", "--job", "other", "--completed", "1")
    drop.lake.ok(*words)
    assert drop.ids == [1, 2, 3, 4, 9]


@pytest.mark.slow
def test_epochs_of_two_streams_do_not_supersede_one_another(drop: Drop) -> None:
    killed(drop.lake, SENDING, *drop.words())
    other = [word if word != "s" else "other" for word in drop.words()]
    other[other.index(drop.state)] = drop.state.parent / "other"
    drop.lake.ok(*other)

    (found,) = drop.lake.ok("replay", "db.t")["plan"]["checkpoints"]

    assert found["state"] == "pending"


def test_the_guard_alone_holds_if_the_lock_is_deleted(drop: Drop) -> None:
    second = CommandLine(drop.lake.warehouse, engine="inline")

    def race() -> None:
        (drop.state / "lock").unlink()
        second.ok(*drop.words())

    def opened(_settings: Settings) -> Session:
        session = open_session(drop.lake.warehouse)
        inject(session, [after(race)])
        return session

    drop.lake.open_session = opened
    first = drop.lake("--json", *drop.words())

    assert (first.exit_code, first.json()["error"]["kind"]) == (8, "locked")
    assert drop.ids == [1, 2, 3, 4]
    drop.lake.open_session = None
    assert drop.load()["status"] == "nothing-to-do"
    assert drop.ids == [1, 2, 3, 4]


def test_of_two_runs_that_write_the_same_epoch_the_later_one_removes_its_files(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = CommandLine(drop.lake.warehouse, engine="inline")
    real = Staging.publish_manifests

    def publish(staging: Staging, run: StagedRun) -> None:
        # Not sooner: a second run commits the files that the first one has published.
        monkeypatch.undo()
        (drop.state / "lock").unlink()
        second.ok(*drop.words())
        real(staging, run)

    monkeypatch.setattr(Staging, "publish_manifests", publish)
    assert drop.lake("--json", *drop.words()).exit_code == 8

    assert drop.ids == [1, 2, 3, 4]
    files = {path.name for path in (drop.lake.warehouse / "db/t/data").rglob("*.parquet")}
    live = drop.table().inspect.files().column("file_path").to_pylist()
    assert files == {path.rpartition("/")[2] for path in live}


def test_a_second_run_does_nothing_while_one_works(drop: Drop) -> None:
    found: list[Any] = []

    def race() -> None:
        found.append(drop.lake("--json", *drop.words()))
        found.append(drop.lake("--json", *drop.words("--wait", "1s")))

    def opened(_settings: Settings) -> Session:
        drop.lake.open_session = None
        session = open_session(drop.lake.warehouse)
        inject(session, [after(race)])
        return session

    drop.lake.open_session = opened
    drop.load()

    assert [one.exit_code for one in found] == [0, 8]
    assert found[0].json()["status"] == "already-running"
    assert found[0].json()["result"]["running"]["pid"] == os.getpid()
    assert drop.ids == [1, 2, 3, 4]


@pytest.mark.slow
def test_a_service_loads_what_arrives_and_a_signal_ends_it(drop: Drop) -> None:
    words = [word for word in drop.words("--commit-interval", "1s") if word != "--once"]
    process = drop.lake.start("--json", *words)
    _until(lambda: drop.ids == [1, 2, 3, 4])
    drop.put("d.csv", 5)
    _until(lambda: drop.ids == [1, 2, 3, 4, 5])
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert json.loads(out)["result"]["stopped_by"] == "signal"
    assert json.loads(out)["result"]["epochs"] == 2
    assert drop.load()["status"] == "nothing-to-do"


def _until(is_true: Any) -> None:
    for _ in range(600):
        if is_true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not become true")


@pytest.mark.slow
def test_a_file_of_an_offered_epoch_that_is_gone_is_named(drop: Drop) -> None:
    killed(drop.lake, _OFFERED, *drop.words())
    (drop.folder / "b.csv").rename(drop.folder.parent / "b.csv")

    done = drop.load()

    assert "b.csv is gone" in done["warnings"][0]
    assert drop.ids == [1, 4]
    (drop.folder.parent / "b.csv").rename(drop.folder / "b.csv")
    drop.load()
    assert drop.ids == [1, 2, 3, 4]
