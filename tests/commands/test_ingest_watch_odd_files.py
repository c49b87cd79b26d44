"""A watch that goes on: files that vanish, change, move or are skipped, and no row is lost or loaded twice."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine, Result
from support.faults.killed_runs import SENDING, killed
from support.tables.iceberg_tables import (
    after,
    inject,
    open_session,
    pyiceberg_table,
)

from lake.core.base.clock import SystemClock
from lake.core.base.errors import NotAuthorisedError, StoppedError
from lake.core.base.settings import Settings
from lake.core.data.sources import discovery
from lake.core.load.continuous.files.listing import WatchedFile, offsets_of
from lake.core.load.continuous.totals import commit_mark
from lake.core.table.snapshots.streams import StreamEpoch
from lake.core.transaction.session import Session

_OFFERED = ("lake.core.load.continuous.epochs", "Epochs._load", "before")


class Drop:
    """A folder into which files are dropped, and the stream that loads them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder / "drop", folder / "state"
        self.folder.mkdir()
        self.lake = CommandLine(folder / "warehouse", engine="inline")

    def put(self, name: str, *ids: object, seconds: float = 60) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("id\n" + "".join(f"{one}\n" for one in ids))
        moment = time.time() - seconds
        os.utime(path, (moment, moment))
        return path

    def words(self, *more: object) -> list[object]:
        own = ["ingest", "db.t", "--create", "--watch", self.folder, "--stream", "s"]
        return [*own, "--state", self.state, "--once", *more]

    def load(self, *more: object) -> dict[str, Any]:
        return self.lake.ok(*self.words(*more))

    def run(self, code: int, *more: object) -> dict[str, Any]:
        result: Result = self.lake("--json", *self.words(*more))
        assert result.exit_code == code, result
        return result.json()

    @property
    def ids(self) -> list[int]:
        table = pyiceberg_table(self.lake.warehouse)
        return sorted(table.scan().to_arrow().column("id").to_pylist())


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    made = Drop(tmp_path)
    made.put("a.csv", 1)
    made.load()
    return made


# The watched folder


def test_another_folder_is_refused_until_the_user_names_it_the_same(drop: Drop) -> None:
    moved = drop.folder.with_name("moved")
    drop.folder.rename(moved)
    drop.folder = moved
    drop.put("b.csv", 2)

    for more in ((), ("--dry-run",)):
        refused = drop.run(3, *more)
        assert "--new-source" in refused["error"]["hint"]
        assert str(drop.folder.with_name("drop")) in refused["error"]["message"]
    assert drop.ids == [1]
    assert drop.load("--new-source")["result"]["files_loaded"] == 1
    assert drop.ids == [1, 2]
    assert drop.load()["status"] == "nothing-to-do"


def test_a_loaded_file_that_was_changed_on_the_way_to_another_folder_is_a_rewrite(
    drop: Drop,
) -> None:
    moved = drop.folder.with_name("moved")
    shutil.copytree(drop.folder, moved)
    drop.folder = moved
    drop.put("a.csv", 1, seconds=30)

    assert drop.run(3, "--new-source")["error"]["message"].endswith("changed after it was loaded")
    assert drop.load("--new-source", "--on-rewrite", "ignore")["status"] == "nothing-to-do"
    assert drop.ids == [1]


def test_files_that_were_moved_away_after_their_load_stay_known_in_a_renamed_folder(
    drop: Drop,
) -> None:
    drop.put("b.csv", 2)
    drop.load("--done", f"move:{drop.folder}/done")
    moved = drop.folder.with_name("moved")
    drop.folder.rename(moved)
    drop.folder = moved

    assert drop.load("--new-source")["status"] == "nothing-to-do"
    assert drop.ids == [1, 2]


@pytest.mark.parametrize("pattern", ["", "/*.csv", "/"])
def test_a_folder_that_is_reached_by_a_link_is_the_same(drop: Drop, pattern: str) -> None:
    link = drop.folder.with_name("link")
    link.symlink_to(drop.folder)

    assert drop.load("--watch", f"{link}{pattern}")["status"] == "nothing-to-do"
    drop.put("b.csv", 2)
    drop.load("--watch", f"{link}{pattern}")
    assert drop.load()["status"] == "nothing-to-do"
    assert drop.ids == [1, 2]


def test_a_state_of_an_earlier_version_takes_the_folder_of_its_files(drop: Drop) -> None:
    link = drop.folder.with_name("link")
    link.symlink_to(drop.folder)
    forget_source(drop, str(link))
    other = drop.folder.with_name("other")
    shutil.copytree(drop.folder, other)

    assert drop.run(3, "--watch", other)["error"]["kind"] == "refused"
    assert drop.load()["status"] == "nothing-to-do"
    drop.put("b.csv", 2)
    drop.load("--watch", link)

    assert drop.ids == [1, 2]


def forget_source(drop: Drop, given: str) -> None:
    """Rewrite the state as an earlier version left it, which watched a folder by a given name."""
    import pyarrow as pa

    path = drop.state / "state.json"
    saved = json.loads(path.read_text())
    del saved["source"]
    path.write_text(json.dumps(saved))
    (part,) = saved["ledger"]
    with pa.CompressedInputStream(str(drop.state / part), "zstd") as stream:
        lines = stream.read().decode().replace(str(drop.folder), given)
    with pa.CompressedOutputStream(str(drop.state / part), "zstd") as sink:
        sink.write(lines.encode())


@pytest.mark.parametrize("how", ["moved", "copied", "linked"])
def test_a_loaded_file_in_another_folder_is_named_and_not_loaded(drop: Drop, how: str) -> None:
    target = drop.folder / "archive/a.csv"
    target.parent.mkdir()
    if how == "moved":
        (drop.folder / "a.csv").rename(target)
    elif how == "copied":
        shutil.copy2(drop.folder / "a.csv", target)
    else:
        target.hardlink_to(drop.folder / "a.csv")
    drop.put("b.csv", 2)

    done = drop.run(6)

    assert done["result"]["files_known"] == [str(target)]
    assert str(target) in done["warnings"][0]
    assert "--on-copy" in done["warnings"][0]
    assert drop.ids == [1, 2]
    assert drop.run(6)["result"]["files_known"] == [str(target)]
    assert drop.load("--on-copy", "ignore")["status"] == "nothing-to-do"
    assert drop.load("--on-copy", "load")["result"]["files_loaded"] == 1
    assert drop.load()["status"] == "nothing-to-do"
    assert drop.ids == [1, 1, 2]


def test_a_file_with_other_contents_is_not_taken_for_a_loaded_one(drop: Drop) -> None:
    first = (drop.folder / "a.csv").stat()
    other = drop.put("day/a.csv", 7)
    os.utime(other, ns=(first.st_mtime_ns, first.st_mtime_ns))

    assert drop.load()["result"]["files_loaded"] == 1
    assert drop.ids == [1, 7]


# Files that vanish or change before their commit


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_bad_file_that_was_deleted_does_not_stop_the_stream(
    drop: Drop, *, is_killed: bool
) -> None:
    drop.put("b.csv", "no number")
    if is_killed:
        killed(drop.lake, _OFFERED, *drop.words())
    else:
        drop.run(7)
    (drop.folder / "b.csv").unlink()
    drop.put("c.csv", 3)

    done = drop.load()

    assert "b.csv is gone before epoch 2" in done["warnings"][0]
    assert drop.ids == [1, 3]
    assert drop.load()["status"] == "nothing-to-do"


def test_a_bad_file_that_was_mended_is_loaded_as_it_is_now(drop: Drop) -> None:
    drop.put("b.csv", "no number")
    drop.run(7)
    drop.put("b.csv", 2, seconds=30)

    assert "b.csv was changed before" in drop.load()["warnings"][0]
    assert drop.ids == [1, 2]


@pytest.mark.parametrize("happens", ["deleted", "changed"])
def test_a_file_that_vanishes_or_changes_while_it_is_read_is_left_to_the_next_look(
    drop: Drop, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    drop.put("b.csv", 2)
    path = drop.put("c.csv", 3)
    drop.put("d.csv", 4)
    real = discovery.open_bytes

    def opened(storage: Any, name: str, *more: Any) -> Any:
        if name.endswith("c.csv") and path.exists():
            if happens == "deleted":
                path.unlink()
            else:
                path.write_text("id\n3\nnot a num")
        return real(storage, name, *more)

    monkeypatch.setattr(discovery, "open_bytes", opened)
    done = drop.load()
    monkeypatch.undo()

    assert drop.ids == [1, 2, 4]
    assert (done["result"]["files_loaded"], done["result"]["epochs"]) == (2, 1)
    drop.put("c.csv", 3, 5)
    drop.load()
    assert drop.ids == [1, 2, 3, 4, 5]


def test_rows_that_a_killed_run_has_written_are_committed_without_their_file(drop: Drop) -> None:
    drop.put("b.csv", 2)
    killed(drop.lake, SENDING, *drop.words())
    (drop.folder / "b.csv").unlink()
    drop.put("c.csv", 3)

    drop.load()

    assert drop.ids == [1, 2, 3]
    assert drop.load()["status"] == "nothing-to-do"


@pytest.mark.parametrize("done", ["keep", "delete"])
def test_a_commit_that_arrives_after_its_list_was_given_up_is_known(drop: Drop, done: str) -> None:
    drop.put("b.csv", 2)
    path = drop.put("c.csv", 3)
    killed(drop.lake, _OFFERED, *drop.words("--done", done))
    saved = json.loads((drop.state / "state.json").read_text())["offered"]
    first = [WatchedFile(**file) for file in saved["files"]]
    path.unlink()
    drop.put("d.csv", 4)

    def arrive() -> None:
        session = open_session(drop.lake.warehouse)
        epoch = StreamEpoch("s", 2, offsets_of(first))
        commit_mark(session, session.table("db.t"), "main", epoch)

    def opened(_settings: Settings) -> Session:
        session = open_session(drop.lake.warehouse)
        inject(session, [after(arrive)])
        return session

    drop.lake.open_session = opened
    drop.load("--done", done)
    drop.lake.open_session = None

    # The commit that arrived is that of b.csv and c.csv: here it has no rows.
    assert drop.ids == [1, 4]
    assert drop.load("--done", done)["status"] == "nothing-to-do"
    assert (drop.folder / "b.csv").exists() is (done == "keep")


def test_files_of_a_given_up_list_are_loaded_once_if_its_commit_never_arrives(drop: Drop) -> None:
    drop.put("b.csv", 2)
    path = drop.put("c.csv", 3)
    killed(drop.lake, _OFFERED, *drop.words())
    path.unlink()

    drop.load()

    assert drop.ids == [1, 2]
    assert "given_up" not in json.loads((drop.state / "state.json").read_text())


def test_a_file_that_cannot_be_opened_is_set_aside(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop.put("b.csv", 2)
    drop.put("c.csv", 3)
    real = discovery.open_bytes

    def opened(storage: Any, name: str, *more: Any) -> Any:
        if name.endswith("b.csv"):
            raise NotAuthorisedError(f"no permission for {name}: Permission denied")
        return real(storage, name, *more)

    monkeypatch.setattr(discovery, "open_bytes", opened)
    bad = drop.folder.parent / "bad"
    done = drop.run(6, "--bad-files", bad)

    assert done["result"]["files_set_aside"] == 1
    assert drop.ids == [1, 3]
    assert "no permission" in (bad / "b.csv.reason.txt").read_text()


# Files that are skipped


@pytest.mark.parametrize("name", ["b.csv", "{}/b.csv", "./b.csv"])
def test_a_file_is_skipped_permanently(drop: Drop, name: str) -> None:
    drop.put("b.csv", "no number")
    drop.put("c.csv", 3)
    drop.run(7)

    done = drop.load("--skip", name.format(drop.folder))

    assert done["result"]["files_skipped"] == [str(drop.folder / "b.csv")]
    assert "b.csv is skipped" in " ".join(done["warnings"])
    assert drop.ids == [1, 3]
    assert drop.load()["status"] == "nothing-to-do"
    assert drop.load("--skip", name.format(drop.folder))["status"] == "nothing-to-do"


def test_several_files_are_skipped_and_a_wrong_name_is_reported(drop: Drop) -> None:
    drop.put("b.csv", "x")
    drop.put("day/c.csv", "y")

    done = drop.load("--skip", "b.csv", "--skip", "day/c.csv", "--skip", "d.csv")

    assert len(done["result"]["files_skipped"]) == 2
    assert any("d.csv" in warning for warning in done["warnings"])
    assert drop.load()["status"] == "nothing-to-do"


# Names, times and places


@pytest.mark.parametrize(
    "name",
    [
        *("b.csv.part", "b.csv.filepart", "b.csv.crdownload", "b.csv.tmp", "b.csv.TMP", "b.csv~"),
        *("~$b.csv", "#b.csv#", "b.csv._COPYING_", ".b.csv", "_b.csv", ".day/b.csv", "_day/b.csv"),
    ],
)
def test_a_file_that_is_not_complete_by_its_name_waits(drop: Drop, name: str) -> None:
    drop.put(name, "x")
    drop.put("c.csv", 3)

    drop.load()

    assert drop.ids == [1, 3]


def test_a_file_of_a_clock_that_is_ahead_waits_for_a_second_look(drop: Drop) -> None:
    path = drop.put("b.csv", 2, seconds=-3600)

    first = drop.load()
    path.write_text("id\n2\n3\n")
    os.utime(path, (time.time() + 3601,) * 2)
    wait(drop)
    second, third = drop.load(), drop.load()

    assert [one["result"]["files_loaded"] for one in (first, second, third)] == [0, 0, 0]
    assert all("ahead of this machine's clock" in one["warnings"][0] for one in (first, second))
    assert first["result"]["lag_files"] == 1
    wait(drop)
    assert drop.load()["result"]["files_loaded"] == 1
    assert drop.ids == [1, 2, 3]
    assert drop.load()["status"] == "nothing-to-do"
    assert "ahead" not in json.loads((drop.state / "state.json").read_text())


def wait(drop: Drop) -> None:
    """Let the files that wait have been listed a minute ago."""
    saved = json.loads((drop.state / "state.json").read_text())
    for one in saved["ahead"]:
        one["seen_ms"] -= 60_000
    (drop.state / "state.json").write_text(json.dumps(saved))


@pytest.mark.parametrize("option", ["--done", "--bad-files"])
@pytest.mark.parametrize("place", ["{}/file/done", "/proc/done", "{}/file"])
def test_a_place_to_which_no_file_can_be_moved_is_refused_before_the_load(
    drop: Drop, place: str, option: str
) -> None:
    (drop.folder.parent / "file").write_text("")
    drop.put("b.csv", 2)
    where = place.format(drop.folder.parent)

    failed = drop.run(7, option, f"move:{where}" if option == "--done" else where)

    assert f"files cannot be moved to {where}" in failed["error"]["message"]
    assert "b.csv" not in failed["error"]["message"]
    assert drop.ids == [1]


@pytest.mark.parametrize("option", ["--done", "--bad-files", "--state"])
def test_a_folder_that_contains_what_is_watched_is_refused(drop: Drop, option: str) -> None:
    where = drop.folder if option == "--done" else drop.folder.parent

    failed = drop.run(2, option, f"move:{where}" if option == "--done" else where)

    assert "which is watched" in failed["error"]["message"]


# Monitoring


def test_the_status_names_what_waits_and_what_is_stuck(drop: Drop) -> None:
    metrics = drop.folder.parent / "m.prom"
    drop.put("b.csv", "x")
    drop.run(7, "--metrics-file", metrics)
    drop.put("c.csv", 3, seconds=600)
    before = (drop.state / "state.json").read_bytes()

    found = drop.load("--status")["result"]

    assert (found["epoch"], found["files_total"], found["lag_files"]) == (1, 1, 2)
    assert (found["stuck_epoch"], found["stuck_files"]) == (2, [str(drop.folder / "b.csv")])
    assert found["oldest_file"] == str(drop.folder / "c.csv")
    assert (drop.state / "state.json").read_bytes() == before
    shown = drop.lake(*drop.words("--status"))
    assert "epoch 2 is begun and not committed" in shown.stdout + shown.stderr
    text = metrics.read_text()
    assert 'lake_ingest_stuck_epoch{table="db.t",branch="main",stream="s"} 2' in text
    assert 'lake_ingest_up{table="db.t",branch="main",stream="s"} 0' in text


def test_a_service_prints_a_line_at_its_start_and_after_each_commit(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_clock: SystemClock, _seconds: float) -> None:
        raise StoppedError(15)

    drop.put("b.csv", 2)
    words = [word for word in drop.words() if word != "--once"]
    monkeypatch.setattr(SystemClock, "sleep", stopped)
    shown = drop.lake(*words).stderr
    quiet = drop.lake("-q", *words).stderr

    assert f"watching {drop.folder} as stream s after epoch 1; files waiting: 1" in shown
    assert "epoch 2: files: 1; files waiting: 0" in shown
    assert quiet == ""
    assert drop.ids == [1, 2]


def test_a_status_without_a_state_is_an_error(drop: Drop) -> None:
    assert drop.run(7, "--status", "--state", drop.folder.parent / "other")
    assert not (drop.folder.parent / "other").exists()
