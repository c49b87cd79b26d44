"""How a continuous scan hands rows over: epochs, streams, signals, damaged states, metrics."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.iceberg_tables import make_table, pyiceberg_table

from lake.core.base.clock import SystemClock, SystemIds
from lake.core.base.errors import CorruptFileError, StorageError, TimedOutError
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.io.storage.flock import locked
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous import execute
from lake.core.read.continuous.discovery import Discovery
from lake.core.read.continuous.handover import epochs, hand_over
from lake.core.read.continuous.handover.splits_file import SplitsFile, SplitsHeader, write_splits
from lake.core.read.continuous.handover.state import SavedPosition
from lake.core.read.continuous.handover.work import WorkHeader, WorkItem
from lake.core.read.continuous.position import Position


def _build(folder: Path) -> None:
    made = make_table(folder / "warehouse")
    for number in range(3):
        append(made, number)


@pytest.fixture
def warehouse(built_once: BuiltOnce) -> Path:
    """The folder of a catalog with the table db.t: three files in three snapshots."""
    return built_once.folder("table", _build) / "warehouse"


@pytest.fixture
def table(warehouse: Path) -> Any:
    return pyiceberg_table(warehouse)


def append(table: Any, number: int) -> None:
    """Append ids number * 10 and the one after it."""
    ids = [number * 10, number * 10 + 1]
    table.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{id_}" for id_ in ids]}))


class Folders:
    """The state and the output of a follow."""

    def __init__(self, root: Path) -> None:
        self.state, self.out = root / "state", root / "out"

    @property
    def options(self) -> list[object]:
        return ["scan", "db.t", "--follow", "--state", self.state, "--output", self.out]

    def ids(self) -> list[int]:
        return [
            row["id"]
            for file in sorted(self.out.glob("epoch-*/part-*.parquet"))
            for row in pq.read_table(file).to_pylist()
        ]

    def saved(self) -> dict[str, Any]:
        document = json.loads((self.state / "state.json").read_text())
        assert isinstance(document, dict)
        return document


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


ONE_SPLIT = ["--epoch-size", "1B", "--split-open-cost", "128MB"]


def test_an_epoch_has_splits_up_to_its_size_and_says_what_it_contains(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    document = lake.ok(*folders.options, "--once", *ONE_SPLIT)

    assert document["result"]["epochs"] == 3
    facts = [
        json.loads((path / "_epoch.json").read_text()) for path in sorted(folders.out.iterdir())
    ]
    head = str(table.refresh().metadata.current_snapshot_id)
    assert [item["epoch"] for item in facts] == [1, 2, 3]
    assert [item["complete_through"] for item in facts] == [None, None, head]
    assert {item["kind"] for item in facts} == {"table"}
    assert [item["rows"] for item in facts] == [2, 2, 2]
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21]


def test_a_run_ends_after_some_epochs_and_the_next_one_continues(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    first = lake.ok(*folders.options, "--max-epochs", "2", *ONE_SPLIT)
    status = lake.ok(*folders.options, "--status")
    second = lake.ok(*folders.options, "--once", *ONE_SPLIT)

    assert (first["result"]["epochs"], first["result"]["stopped_by"]) == (2, "max-epochs")
    assert (status["result"]["pending_splits"], status["result"]["rows"]) == (1, 4)
    assert (second["result"]["epochs"], second["result"]["rows"]) == (1, 2)
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21]


def test_an_epoch_without_rows_has_no_folder_and_no_number(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    lake.ok(*folders.options, "--once", "--where", "name = 'n10'", *ONE_SPLIT)
    append(table, 5)
    lake.ok(*folders.options, "--once", "--where", "name = 'n10'", *ONE_SPLIT)
    append(table, 1)
    lake.ok(*folders.options, "--once", "--where", "name = 'n10'", *ONE_SPLIT)

    assert sorted(path.name for path in folders.out.iterdir()) == [
        "epoch-0000000001",
        "epoch-0000000002",
    ]
    assert folders.ids() == [10, 10]


def test_a_second_run_with_a_state_ends_or_waits(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    lake.ok(*folders.options, "--once")

    with open(folders.state / "lock") as file, locked(file.fileno()):
        document = lake.ok(*folders.options, "--once")
        waited = lake("--json", *folders.options, "--once", "--wait", "1s")

    assert document["status"] == "already-running"
    running = document["result"]["running"]
    assert (running["command"], running["pid"]) == ("scan", os.getpid())
    assert waited.exit_code == 8
    assert waited.json()["error"]["kind"] == "locked"


@pytest.mark.parametrize("taken", [False, True])
def test_two_runs_without_the_lock_hand_each_row_over_once(
    lake: CommandLine,
    table: Any,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    taken: bool,
) -> None:
    lake.ok(*folders.options, "--once")
    append(table, 3)
    real = epochs.commit_epoch

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(hand_over, "commit_epoch", real)
        (folders.state / "lock").unlink()
        assert lake.ok(*folders.options, "--once")["result"]["rows"] == 2
        if taken:
            shutil.rmtree(folders.out / "epoch-0000000002")
        return real(*arguments)

    monkeypatch.setattr(hand_over, "commit_epoch", overtaken)
    late = lake("--json", *folders.options, "--once")

    assert late.exit_code in {3, 8}
    assert lake.ok(*folders.options, "--once")["status"] == "nothing-to-do"
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21, *([] if taken else [30, 31])]
    assert len(list(folders.out.iterdir())) == 1 + (not taken)


def test_an_output_that_another_state_uses_is_refused(
    lake: CommandLine, table: Any, folders: Folders, tmp_path: Path
) -> None:
    lake.ok(*folders.options, "--once")
    other = ["--state", tmp_path / "other", "--output", folders.out]

    refused = lake("--json", "scan", "db.t", "--follow", *other, "--once")

    assert refused.exit_code == 3
    assert "another state" in refused.json()["error"]["message"]
    assert not (tmp_path / "other" / "state.json").exists()


def test_a_name_that_is_taken_is_not_replaced(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    lake.ok(*folders.options, "--once")
    append(table, 3)
    (folders.out / "epoch-0000000002").mkdir()
    before = folders.saved()["epoch"]

    refused = lake("--json", *folders.options, "--once")

    assert refused.exit_code == 3
    assert folders.saved()["epoch"] == before
    (folders.out / "epoch-0000000002").rmdir()
    lake.ok(*folders.options, "--once")
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21, 30, 31]


def test_an_output_that_is_not_mounted_does_not_lose_the_prepared_epoch(
    lake: CommandLine, table: Any, folders: Folders, tmp_path: Path
) -> None:
    lake.ok(*folders.options, "--once")
    append(table, 3)
    lake.ok(*folders.options, "--once")
    # As a kill between the second and the third step leaves it.
    state = folders.saved()
    hidden = folders.out / f".lake-epoch-{state['state_id']}-2"
    (folders.out / "epoch-0000000002").rename(hidden)
    prepared = {
        "epoch": 2,
        "inode": os.stat(folders.out).st_ino,
        "after": {
            "next": 1,
            "rows": 2,
            "deleted": 0,
            "records": 2,
            "bytes": 1,
            "written": 1,
            "greatest_ms": None,
            "watermark_ms": None,
        },
    }
    pending = {
        "discovery": 2,
        "kind": "append",
        "start": None,
        "end": state["position"],
        "file": "splits-2.jsonl.zst",
        "sha256": "0" * 64,
        "count": 1,
        "rows": 2,
        "bytes": 1,
    }
    state |= {"epoch": 1, "pending": [pending], "prepared": prepared}
    (folders.state / "state.json").write_text(json.dumps(state))
    mounted = tmp_path / "mounted"
    folders.out.rename(mounted)

    missing = lake("--json", *folders.options, "--once")
    folders.out.mkdir()
    empty = lake("--json", *folders.options, "--once")
    folders.out.rmdir()
    mounted.rename(folders.out)
    done = lake.ok(*folders.options, "--once")

    assert (missing.exit_code, empty.exit_code) == (7, 3)
    assert "was prepared" in empty.json()["error"]["message"]
    assert done["result"]["pending_splits"] == 0
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21, 30, 31]


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": 1, "unknown": true}',
    ],
)
def test_a_damaged_state_is_refused_and_not_replaced(
    lake: CommandLine, table: Any, folders: Folders, contents: bytes
) -> None:
    lake.ok(*folders.options, "--once")
    path = folders.state / "state.json"
    path.write_bytes(contents)

    refused = lake("--json", *folders.options, "--once")
    status = lake("--json", *folders.options, "--status")

    assert (refused.exit_code, status.exit_code) == (7, 7)
    assert refused.json()["error"]["kind"] == "corrupt"
    assert path.read_bytes() == contents


@pytest.mark.parametrize("damage", ["missing", "cut", "changed", "other"])
def test_a_damaged_file_of_splits_is_refused(
    lake: CommandLine, table: Any, folders: Folders, tmp_path: Path, damage: str
) -> None:
    lake.ok(*folders.options, "--max-epochs", "1", *ONE_SPLIT)
    path = folders.state / "splits-1.jsonl.zst"
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-20])
    elif damage == "changed":
        path.write_bytes(data[:-30] + bytes(30))
    else:
        other = Folders(tmp_path / "other")
        lake.ok(
            *("scan", "db.t", "--follow", "--state", tmp_path / "s", "--output", tmp_path / "o"),
            *("--max-epochs", "1", *ONE_SPLIT),
        )
        assert other.state != folders.state
        shutil.copy(tmp_path / "s" / "splits-1.jsonl.zst", path)

    refused = lake("--json", *folders.options, "--once", *ONE_SPLIT)

    assert refused.exit_code == 7
    assert refused.json()["error"]["kind"] == "corrupt"
    assert len(folders.ids()) == 2
    path.write_bytes(data)
    lake.ok(*folders.options, "--once", *ONE_SPLIT)
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21]


def test_a_file_that_is_gone_is_a_gap_that_only_the_whole_table_closes(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    lake.ok(*folders.options, "--max-epochs", "1", *ONE_SPLIT)
    lake.ok("compact", "db.t", "--rewrite-all", "--option", "min-input-files=2")
    lake.ok(*("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention"))

    refused = lake("--json", *folders.options, "--once", *ONE_SPLIT)
    skipped = lake("--json", *folders.options, "--once", *ONE_SPLIT, "--on-gap", "skip")
    again = lake("--json", *folders.options, "--once", *ONE_SPLIT, "--on-gap", "table")

    assert (refused.exit_code, skipped.exit_code, again.exit_code) == (7, 7, 6)
    assert refused.json()["error"]["kind"] == "gap"
    assert refused.json()["result"]["kind"] == "files-gone"
    facts = json.loads((folders.out / "epoch-0000000002" / "_epoch.json").read_text())
    assert (facts["replaces"], facts["generation"], facts["kind"]) == (True, 1, "table")
    assert facts["rows"] == 6


def test_a_stream_is_continued_where_it_was_saved_with_markers(
    lake: CommandLine, table: Any, tmp_path: Path
) -> None:
    options = ["scan", "db.t", "--follow", "--state", tmp_path / "s", "--output", "-"]
    options += ["--output-format", "json", "--epoch-markers", *ONE_SPLIT]

    first = lake(*options, "--max-epochs", "1")
    second = lake(*options, "--once")
    third = lake(*options, "--once")

    lines = [json.loads(line) for line in (first.stdout + second.stdout).splitlines()]
    assert sorted(line["id"] for line in lines if "id" in line) == [0, 1, 10, 11, 20, 21]
    assert [line["epoch"] for line in lines if "epoch" in line] == [1, 2, 3]
    assert third.stdout == ""


def test_a_stream_of_csv_ends_before_rows_of_another_schema(
    lake: CommandLine, table: Any, tmp_path: Path
) -> None:
    options = ["scan", "db.t", "--follow", "--state", tmp_path / "s", "--output", "-", *ONE_SPLIT]
    first = lake(*options, "--max-epochs", "1")
    with table.update_schema() as update:
        update.add_column("more", table.schema().find_type("name"))
    rows = {"id": pa.array([50], pa.int64()), "name": ["n50"], "more": ["x"]}
    table.refresh().append(pa.table(rows))

    old = lake(*options, "--once")
    new = lake(*options, "--once")

    assert [result.exit_code for result in (first, old, new)] == [0, 0, 0]
    assert [len(result.stdout.splitlines()) for result in (first, old, new)] == [3, 5, 2]
    assert old.stdout.splitlines()[0] == '"id","name"'
    assert new.stdout.splitlines() == ['"id","name","more"', '50,"n50","x"']


def test_failures_that_may_pass_are_tolerated_up_to_a_number(
    lake: CommandLine, table: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = execute.discover, [0]

    def failing(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] <= 3:
            raise TimedOutError("the storage is too busy")
        return real(*arguments, **named)

    monkeypatch.setattr(execute, "discover", failing)
    options = ["--monitor-interval", "1ms", "--max-epochs", "1"]

    refused = lake("--json", *folders.options, *options, "--max-planning-failures", "1")
    done = lake.ok(*folders.options, *options, "--max-planning-failures", "3")

    assert refused.exit_code == 10
    assert refused.json()["result"]["planning_failures"] == 2
    assert (done["result"]["rows"], done["result"]["planning_failures"]) == (6, 0)


def test_a_run_of_cron_ends_with_the_code_of_its_first_failure(
    lake: CommandLine, table: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any, **__: Any) -> Any:
        raise TimedOutError("the storage is too busy")

    with monkeypatch.context() as patched:
        patched.setattr(execute, "discover", failing)
        assert lake(*folders.options, "--once").exit_code == 10

    assert lake.ok(*folders.options, "--once")["result"]["rows"] == 6


def test_an_epoch_that_fails_is_tried_again_from_what_the_disk_says(
    lake: CommandLine, table: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(["before", "prepared", "renamed"])
    real = epochs._rename

    def failing(output: Any, number: int) -> None:
        step = next(steps, None)
        if step == "renamed":
            real(output, number)
        if step is not None:
            raise StorageError("the disk is full")
        real(output, number)

    monkeypatch.setattr(epochs, "_rename", failing)
    options = ["--monitor-interval", "1ms", "--max-epochs", "2", *ONE_SPLIT]

    lake.ok(*folders.options, *options, "--max-planning-failures", "9")
    lake.ok(*folders.options, "--once", *ONE_SPLIT)

    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21]
    assert len(list(folders.out.iterdir())) == 3


def test_no_discovery_starts_while_enough_splits_wait(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    options = ["--max-pending-splits", "2", "--max-epochs", "1", "--monitor-interval", "1ms"]
    first = lake.ok(*folders.options, *options, *ONE_SPLIT)
    append(table, 3)
    second = lake.ok(*folders.options, *options, *ONE_SPLIT)
    third = lake.ok(*folders.options, *options, *ONE_SPLIT)

    assert [one["result"]["pending_splits"] for one in (first, second, third)] == [2, 1, 1]
    assert [one["plan"]["snapshots"] for one in (first, second, third)] == [1, 0, 1]


def test_a_discovery_that_starts_elsewhere_is_dropped(
    lake: CommandLine, table: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ok(*folders.options, "--once")
    append(table, 3)
    real = execute.discover

    def other(*arguments: Any, **named: Any) -> Any:
        return replace(real(*arguments, **named), start=Position(1, 1))

    with monkeypatch.context() as patched:
        patched.setattr(execute, "discover", other)
        dropped = lake.ok(*folders.options, "--once")

    assert dropped["result"]["discarded_discoveries"] == 1
    assert "was dropped" in dropped["warnings"][0]
    assert lake.ok(*folders.options, "--once")["result"]["rows"] == 2


def test_an_epoch_that_ends_a_discovery_with_too_few_rows_is_not_handed_over(
    lake: CommandLine, table: Any, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Discovery, "records", property(lambda _: 7))
        refused = lake("--json", *folders.options, "--once", *ONE_SPLIT)

    assert refused.exit_code == 7
    assert refused.json()["error"]["kind"] == "corrupt"
    assert refused.json()["result"]["epochs"] == 2
    assert sorted(path.name for path in folders.out.iterdir()) == [
        "epoch-0000000001",
        "epoch-0000000002",
    ]


@pytest.mark.parametrize(("step", "code", "left"), [("write_parts", 143, 0), ("_rename", 0, 1)])
def test_a_signal_in_an_epoch_removes_it_unless_it_is_prepared(
    lake: CommandLine,
    table: Any,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    code: int,
    left: int,
) -> None:
    real = getattr(epochs, step)

    def stopped(*arguments: Any, **named: Any) -> Any:
        done = real(*arguments, **named)
        os.kill(os.getpid(), signal.SIGTERM)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(epochs, step, stopped)
        ended = lake("--json", *folders.options, *ONE_SPLIT)

    assert ended.exit_code == code
    assert ended.json()["result"]["epochs"] == left
    assert len(list(folders.out.iterdir())) == left
    lake.ok(*folders.options, "--once", *ONE_SPLIT)
    assert sorted(folders.ids()) == [0, 1, 10, 11, 20, 21]


@contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[bytes]]:
    line = [sys.executable, "-m", "lake.cli", *map(str, words)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_waits_ends_a_follow_normally(
    lake: CommandLine, table: Any, folders: Folders, number: int
) -> None:
    words = ["--warehouse", lake.warehouse, "--json", *folders.options, "--monitor-interval", "1h"]
    with running(*words) as process:
        until = time.monotonic() + 60
        while not folders.ids():
            assert time.monotonic() < until
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert json.loads(out)["result"]["stopped_by"] == "signal"
    assert lake.ok(*folders.options, "--once")["status"] == "nothing-to-do"


def test_a_reader_that_leaves_ends_a_follow_normally(lake: CommandLine, table: Any) -> None:
    words = ["--warehouse", lake.warehouse, "scan", "db.t", "--follow", "--start", "table"]
    with running(*words) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b'"id","name"\n'
        process.stdout.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("given", ["{}/lake.prom", "lake.prom"])
def test_metrics_are_replaced_whole_and_their_labels_are_escaped(
    lake: CommandLine, table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / 'a"b'
    metrics = tmp_path / "lake.prom"
    options = ["scan", "db.t", "--follow", "--state", state, "--output", tmp_path / "o"]

    done = lake.ok(*options, "--once", "--metrics-file", given.format(tmp_path))

    assert done["warnings"] == []

    lines = metrics.read_text().splitlines()
    label = f'{{table="db.t",state="{tmp_path}/a\\"b"}}'
    assert f"lake_follow_rows_total{label} 6" in lines
    assert f"lake_follow_lag_snapshots{label} 0" in lines
    assert f"lake_follow_up{label} 1" in lines
    assert sorted(path.name for path in tmp_path.glob("lake.prom*")) == ["lake.prom"]


@pytest.mark.slow
def test_200_000_pending_splits_are_written_once_and_read_in_pieces(tmp_path: Path) -> None:
    folder = StateFolder.at(str(tmp_path), clock=SystemClock(), ids=SystemIds())
    table = make_table(tmp_path / "w")
    settings = ReadSettings(projection=table.schema(), schema=table.schema(), specs=table.specs())
    reading = WorkHeader(kind="append", projection=table.schema(), settings=settings)
    header = SplitsHeader(
        state_id="00000000-0000-4000-8000-000000000000",
        discovery=1,
        kind="append",
        start=None,
        end=SavedPosition.of(Position(1, 1)),
        generation=0,
        replaces=False,
        snapshots=("1",),
        skipped=(),
        gap=None,
        records=200_000,
        schema_id=0,
        reading=reading.to_plain(),
    )
    items = (
        WorkItem(
            files=[
                FileSlice(
                    path=f"file:///w/data/{n}.parquet", size_bytes=9, record_count=1, spec_id=0
                )
            ],
            bytes=9,
            records=1,
        )
        for n in range(200_000)
    )

    pending = write_splits(folder, header, items)

    assert pending is not None
    assert (pending.count, pending.rows, pending.bytes) == (200_000, 200_000, 1_800_000)
    path = folder.file(pending.file)
    assert os.path.getsize(path) < 8_000_000
    file = SplitsFile(path, header.state_id, pending)
    taken = 0
    while items_of_epoch := file.next_epoch(taken, 9_000):
        assert items_of_epoch[0].files[0].path == f"file:///w/data/{taken}.parquet"
        taken += len(items_of_epoch)
    assert taken == 200_000
    assert len(file.next_epoch(199_999, 1)) == 1
    file.close()
    with pytest.raises(CorruptFileError):
        SplitsFile(path, "00000000-0000-4000-8000-000000000001", pending)


@pytest.mark.slow
def test_a_service_prints_a_warning_when_it_occurs(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    lake.ok(*folders.options, "--once")
    table.overwrite(table.scan().to_arrow().slice(1))
    words = ["--warehouse", lake.warehouse, *folders.options]

    with running(*words) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)

    assert b"warning: " in first
    assert first.split(b"warning: ")[1] not in rest


def test_a_lock_file_without_a_valid_owner_names_no_process(
    lake: CommandLine, table: Any, folders: Folders
) -> None:
    lake.ok(*folders.options, "--once")
    for text in ("", "[]", '{"pid": "x"}', "[" * 5000):
        (folders.state / "lock").write_text(text)
        with open(folders.state / "lock") as file, locked(file.fileno()):
            assert lake.ok(*folders.options, "--once")["result"] == {"running": {}}
