"""`lake ingest --watch`: each file that arrives is loaded once, whatever ends a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from support.cli.command_line import CommandLine, Result
from support.faults.killed_runs import SENDING, SENT, killed
from support.tables.iceberg_tables import open_session, pyiceberg_catalog, pyiceberg_table

from lake.core.base.outcome import Outcome
from lake.core.load.continuous import epochs, state
from lake.core.load.continuous.totals import Totals
from lake.core.table.metadata.snapshot_updates import RemoveSnapshots
from lake.core.table.snapshots.streams import STREAM, STREAMS, newest_epoch

Rows = list[tuple[int, str]]


class Drop:
    """A folder into which files are dropped, and the stream that loads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "drop"
        self.folder.mkdir()
        self.state = folder / "state"
        self.warehouse = folder / "warehouse"
        self.lake = CommandLine(self.warehouse, engine="inline")

    def put(self, name: str, *ids: int, text: str = "a") -> Path:
        """Write a file of rows that has not changed for a while."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("id,name\n" + "".join(f"{one},{text}\n" for one in ids))
        return self.age(path)

    def age(self, path: Path, seconds: float = 60) -> Path:
        moment = path.stat().st_mtime - seconds
        os.utime(path, (moment, moment))
        return path

    def words(self, *more: object) -> list[object]:
        own = ["ingest", "db.t", "--create", "--watch", self.folder, "--stream", "s"]
        return [*own, "--state", self.state, "--once", *more]

    def load(self, *more: object) -> dict[str, Any]:
        return self.lake.ok(*self.words(*more))

    def fail(self, *more: object) -> Result:
        return self.lake("--json", *self.words(*more))

    @property
    def ids(self) -> list[int]:
        return sorted(self.rows.column("id").to_pylist())

    @property
    def rows(self) -> pa.Table:
        return pyiceberg_table(self.warehouse).scan().to_arrow()

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """What the summaries of the snapshots say, oldest first."""
        snapshots = pyiceberg_table(self.warehouse).metadata.snapshots
        texts = [one.summary.additional_properties.get(STREAM) for one in snapshots]
        return [json.loads(text) for text in texts if text]


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    return Drop(tmp_path)


def test_each_file_is_loaded_once_and_the_summary_says_the_epoch(drop: Drop) -> None:
    drop.put("a.csv", 1, 2)
    drop.put("b.csv", 3)
    first = drop.load()
    drop.put("c.csv", 4)
    second = drop.load()
    third = drop.load()

    assert drop.ids == [1, 2, 3, 4]
    assert [first["result"][key] for key in ("epochs", "files_loaded", "rows_written")] == [1, 2, 3]
    assert second["result"]["files_loaded"] == 1
    assert third["status"] == "nothing-to-do"
    assert [(one["id"], one["epoch"], one["offsets"]["last"]) for one in drop.epochs] == [
        ("s", 1, "b.csv"),
        ("s", 2, "c.csv"),
    ]


def test_epochs_have_at_most_the_given_files_and_size(drop: Drop) -> None:
    for number in range(5):
        drop.put(f"{number}.csv", number)

    done = drop.load("--commit-files", 2)

    assert done["result"]["epochs"] == 3
    assert [one["offsets"]["files"] for one in drop.epochs] == [2, 2, 1]
    assert drop.load("--commit-size", "100B")["status"] == "nothing-to-do"


def test_unfinished_files_wait(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.put("b.csv.tmp", 2)
    drop.put("_c.csv", 3)
    drop.put(".d.csv", 4)
    (drop.folder / "e.csv").write_text("id,name\n5,a\n")

    done = drop.load()

    assert drop.ids == [1]
    assert done["result"]["lag_files"] == 1
    assert drop.load("--settle", "0s")["result"]["files_loaded"] == 1
    assert drop.ids == [1, 5]


@pytest.mark.parametrize("done", ["move", "delete"])
def test_loaded_files_go_only_after_their_commit(drop: Drop, done: str) -> None:
    drop.put("day/a.csv", 1)
    drop.put("b.csv", 2)
    how = f"move:{drop.folder}/done" if done == "move" else done

    drop.load("--done", how)
    drop.put("day/a.csv", 3)
    again = drop.load("--done", how)

    assert drop.ids == [1, 2, 3]
    assert again["result"]["files_loaded"] == 1
    left = sorted(str(path.relative_to(drop.folder)) for path in drop.folder.rglob("*.csv"))
    moved = ["done/b.csv", "done/day/a-epoch-2.csv", "done/day/a.csv"]
    assert left == (moved if done == "move" else [])
    assert drop.load("--done", how)["status"] == "nothing-to-do"


@pytest.mark.parametrize(
    "source", [".lake/drop", ".lake/drop/*.csv", "file://{}", "./x/../.lake/drop/"]
)
def test_files_of_a_folder_are_found_and_moved_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    hidden = tmp_path / ".lake"
    hidden.mkdir()
    drop = Drop(hidden)
    drop.put("a.csv", 1)
    monkeypatch.chdir(tmp_path)

    done = drop.load("--watch", source.format(drop.folder), "--done", "move:done")

    assert done["result"]["files_loaded"] == 1
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("a.csv")] == [Path("done/a.csv")]


def test_a_file_that_was_changed_after_its_load(drop: Drop) -> None:
    path = drop.put("a.csv", 1)
    drop.load()
    drop.age(drop.put("a.csv", 1, 2), 30)

    refused = drop.fail()
    assert (refused.exit_code, refused.json()["error"]["kind"]) == (3, "refused")
    assert str(path) in refused.json()["error"]["message"]
    assert drop.load("--on-rewrite", "ignore")["status"] == "nothing-to-do"
    assert drop.load("--on-rewrite", "again")["result"]["rows_written"] == 2
    assert drop.ids == [1, 1, 2]
    assert drop.load()["status"] == "nothing-to-do"


@pytest.mark.parametrize("policy", ["fail", "ignore", "again"])
def test_a_file_that_is_changed_before_it_is_moved_is_not_taken_for_a_new_one(
    drop: Drop, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    drop.put("a.csv", 1)
    drop.put("b.csv", 2)
    real = epochs.dispose
    how = ("--done", f"move:{drop.folder}/done", "--on-rewrite", policy)

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(epochs, "dispose", real)
        drop.age(drop.put("a.csv", 1, 3), 30)
        real(*arguments)

    monkeypatch.setattr(epochs, "dispose", late)
    codes = [drop.lake("--json", *drop.words(*how)).exit_code for _ in range(3)]

    left = {str(path.relative_to(drop.folder)) for path in drop.folder.rglob("*.csv")}
    if policy == "fail":
        # The rows are not known to be loaded, and are not loaded twice: the user decides.
        assert (codes, drop.ids, left) == ([3, 3, 3], [1, 2], {"a.csv", "done/b.csv"})
        (drop.folder / "a.csv").unlink()
        assert drop.load(*how)["status"] == "nothing-to-do"
    elif policy == "ignore":
        assert (codes, drop.ids, left) == ([0, 0, 0], [1, 2], {"done/a.csv", "done/b.csv"})
    else:
        assert (codes, drop.ids) == ([0, 0, 0], [1, 1, 2, 3])


def test_a_bad_file_fails_after_the_files_before_it(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    drop.put("b.csv", 2)
    drop.put("c.csv").write_text("id,name\nnot a number,c\n")
    drop.age(drop.folder / "c.csv")
    drop.put("d.csv", 4)

    failed = drop.fail()

    assert failed.exit_code == 7
    assert failed.json()["result"]["files_loaded"] == 1
    assert drop.ids == [1, 2]
    assert drop.fail().exit_code == 7


def test_a_bad_file_is_set_aside_with_its_reason(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    drop.put("b.csv", 2)
    drop.put("c.csv").write_text("id,name\nnot a number,c\n")
    drop.age(drop.folder / "c.csv")
    drop.put("d.csv", 4)

    bad = drop.folder / "bad"
    done = drop.fail("--bad-files", bad)

    assert (done.exit_code, done.json()["status"]) == (6, "partial")
    assert done.json()["result"]["files_set_aside"] == 1
    assert drop.ids == [1, 2, 4]
    assert sorted(path.name for path in bad.iterdir()) == ["c.csv", "c.csv.reason.txt"]
    assert "not a number" in (bad / "c.csv.reason.txt").read_text()
    assert drop.load("--bad-files", bad)["status"] == "nothing-to-do"


def test_a_lost_state_is_refused_unless_loaded_files_went(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load("--done", "delete")
    (drop.state / "state.json").unlink()
    drop.put("b.csv", 2)

    refused = drop.fail("--done", "delete")
    assert refused.exit_code == 3
    assert "epoch 1 of stream s" in refused.json()["error"]["message"]
    assert drop.fail("--resume").exit_code == 2
    drop.load("--done", "delete", "--resume")

    assert drop.ids == [1, 2]
    assert [one["epoch"] for one in drop.epochs] == [1, 2]


def test_a_state_of_another_table_or_stream_is_refused(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()

    other = drop.lake(*(word if word != "s" else "other" for word in drop.words()))
    assert other.exit_code == 2
    pyiceberg_catalog(drop.warehouse).drop_table("db.t")
    drop.put("b.csv", 2)
    drop.lake.ok("ingest", "db.t", "--create", drop.folder / "b.csv")
    again = drop.fail()
    assert (again.exit_code, "another table" in again.json()["error"]["message"]) == (3, True)


def test_a_renamed_table_is_loaded_under_its_new_name(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    drop.lake.ok("rename", "db.t", "db.u")
    drop.put("b.csv", 2)
    for words in ((), ("--status",), ("--dry-run",)):
        failed = drop.fail(*words)
        assert failed.exit_code == 7
        assert "has the name db.u now" in failed.json()["error"]["message"]

    words = [word if word != "db.t" else "db.u" for word in drop.words()]
    assert drop.lake.ok(*words)["result"]["files_loaded"] == 1
    assert drop.lake.ok(*words)["status"] == "nothing-to-do"
    assert json.loads((drop.state / "state.json").read_text())["table"] == "db.u"
    found = pyiceberg_table(drop.warehouse, "db.u").scan().to_arrow()
    assert sorted(found.column("id").to_pylist()) == [1, 2]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1}', "[" * 100_000])
def test_a_damaged_state_is_never_a_new_one(drop: Drop, text: str) -> None:
    drop.put("a.csv", 1)
    drop.load()
    (drop.state / "state.json").write_text(text)

    failed = drop.fail()

    assert (failed.exit_code, failed.json()["error"]["kind"]) == (7, "corrupt")
    assert drop.ids == [1]


def test_a_missing_part_of_the_ledger_is_noticed(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    for part in drop.state.glob("done-*"):
        part.write_bytes(part.read_bytes()[:-4])

    assert drop.fail().exit_code == 7
    assert drop.ids == [1]


def test_the_ledger_becomes_one_file_from_time_to_time(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "_MOST_PARTS", 2)
    for number in range(4):
        drop.put(f"{number}.csv", number)
    drop.load("--commit-files", 1)

    assert len(list(drop.state.glob("done-*"))) == 2
    assert drop.load()["status"] == "nothing-to-do"
    assert drop.ids == list(range(4))


def _expire_by_pyiceberg(drop: Drop) -> None:
    table = pyiceberg_table(drop.warehouse)
    head = table.metadata.current_snapshot_id
    gone = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
    table.catalog.commit_table(table, (), (RemoveSnapshots(snapshot_ids=gone),))


def _expire_by_lake(drop: Drop) -> None:
    drop.lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")


@pytest.mark.parametrize("expire", [_expire_by_pyiceberg, _expire_by_lake])
def test_an_epoch_counts_after_its_snapshot_expired(
    drop: Drop, expire: Callable[[Drop], None]
) -> None:
    drop.put("a.csv", 1)
    drop.load()
    drop.put("other.csv", 9)
    drop.lake.ok("ingest", "db.t", drop.folder / "other.csv")
    (drop.folder / "other.csv").unlink()
    expire(drop)
    assert drop.epochs == []
    # As if the first run had been killed after its commit.
    saved = json.loads((drop.state / "state.json").read_text())
    path = drop.folder / "a.csv"
    file = {
        "path": str(path),
        "size": path.stat().st_size,
        "modified_ms": path.stat().st_mtime_ns // 1_000_000,
    }
    saved |= {"epoch": 0, "ledger": [], "files": 0, "offered": {"epoch": 1, "files": [file]}}
    (drop.state / "state.json").write_text(json.dumps(saved))

    done = drop.load()

    assert drop.ids == [1, 9]
    assert (done["result"]["files_loaded"], done["result"].get("rows_written", 0)) == (1, 0)
    assert drop.load()["status"] == "nothing-to-do"
    table = open_session(drop.warehouse).table("db.t")
    epoch = newest_epoch(table, "main", "s")
    assert epoch is not None
    assert epoch.number == 1
    assert len(table.properties[STREAMS]) <= 200


@pytest.mark.parametrize("by", ["tag", "cherry-pick"])
def test_a_stream_without_its_state_is_refused_although_its_epoch_left_the_history(
    drop: Drop, by: str
) -> None:
    drop.lake.load("id,name\n8,a\n", "--create")
    drop.put("a.csv", 1)
    now = ("--older-than", "0s", "--unsafe-retention")
    if by == "tag":
        drop.load()
        drop.lake.ok("tag", "db.t", "eod")
        for number in (9, 10):
            drop.lake.load(f"id,name\n{number},a\n")
        drop.lake.ok("expire", "db.t", *now)
    else:
        drop.lake.ok("ref", "db.t", "--branch-create", "audit")
        for number in (9, 10):
            drop.lake.load(f"id,name\n{number},a\n")
        drop.load("--branch", "audit")
        drop.lake.ok("cherry-pick", "db.t", "audit")
        drop.lake.ok("ref", "db.t", "--drop", "audit")
        # The pick is newer, and stays.
        drop.lake.ok("expire", "db.t", *now, "--retain-last", "2")
    shutil.rmtree(drop.state)

    refused = drop.fail()

    assert refused.exit_code == 3
    assert "contains epoch 1 of stream s" in refused.stderr
    assert drop.ids == [1, 8, 9, 10]


def test_two_state_folders_cannot_share_a_stream(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    newer = json.loads((drop.state / "state.json").read_text())
    drop.put("b.csv", 2)
    drop.load()
    # A backup of the state, and another file.
    (drop.state / "state.json").write_text(json.dumps(newer))

    refused = drop.fail()

    assert refused.exit_code == 3
    assert "ends at epoch 1" in refused.json()["error"]["message"]
    assert drop.ids == [1, 2]


def test_upserts_follow_the_order_of_names(drop: Drop) -> None:
    drop.put("a.csv", 1, 2, text="old")
    drop.load("--upsert", "--key", "id")
    drop.put("c.csv", 1, text="newest")
    drop.put("b.csv", 1, 3, text="newer")
    drop.load("--upsert", "--key", "id")

    rows = sorted(
        zip(*(drop.rows.column(name).to_pylist() for name in ("id", "name")), strict=True)
    )
    assert rows == [(1, "newest"), (2, "old"), (3, "newer")]


def test_a_dry_run_writes_nothing(drop: Drop) -> None:
    drop.put("a.csv", 1)

    done = drop.load("--dry-run")

    assert (done["status"], done["plan"]["files"]) == ("dry-run", 1)
    assert not drop.state.exists()
    assert not (drop.warehouse / "db").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("x.csv",),
        ("--overwrite",),
        ("--replace-partitions",),
        ("--run-id", "r"),
        ("--stage",),
        ("--commit-files", "0"),
        ("--done", "burn"),
        ("--done", "move:"),
        ("--on-rewrite", "maybe"),
        ("--then-compact", "files"),
        ("--resume",),
    ],
)
def test_what_contradicts_a_watch_is_a_usage_error(drop: Drop, words: tuple[str, ...]) -> None:
    assert drop.fail(*words).exit_code == 2


@pytest.mark.parametrize("left_out", ["--watch", "--stream", "--state"])
def test_a_watch_needs_its_three_options(drop: Drop, left_out: str) -> None:
    words = drop.words()
    place = words.index(left_out)

    assert drop.lake(*words[:place], *words[place + 2 :]).exit_code == 2


def test_a_folder_that_is_not_there_is_not_an_empty_one(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    drop.folder.rename(drop.folder.with_name("unmounted"))
    missing = drop.fail()
    assert (missing.exit_code, missing.json()["error"]["kind"]) == (7, "not-found")
    drop.folder.with_name("unmounted").rename(drop.folder)
    assert drop.load()["status"] == "nothing-to-do"


def test_a_stream_name_and_a_state_on_this_machine(drop: Drop) -> None:
    assert drop.lake(*(word if word != "s" else "a b" for word in drop.words())).exit_code == 2
    words = [word if word != drop.state else "s3://bucket/state" for word in drop.words()]
    assert drop.lake(*words).exit_code == 2


@pytest.mark.parametrize("compacts", [(), ("--then-compact", "commits >= 1")])
def test_a_stop_right_after_a_commit_ends_the_run_in_order(
    drop: Drop, monkeypatch: pytest.MonkeyPatch, compacts: tuple[str, ...]
) -> None:
    add = Totals.add

    def stopped(totals: Totals, outcome: Outcome, files: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        add(totals, outcome, files)

    drop.put("1.csv", 1)
    drop.put("2.csv", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Totals, "add", stopped)
        document = drop.load("--commit-files", 1, *compacts)

    result = document["result"]
    assert (result["stopped_by"], result["epochs"], result["rows_written"]) == ("signal", 1, 1)
    assert result["compactions"] == 0
    assert drop.load()["result"]["epochs"] == 1
    assert drop.ids == [1, 2]


def test_a_compaction_follows_a_commit_if_it_is_due(drop: Drop) -> None:
    for number in range(6):
        drop.put(f"{number}.csv", number)

    done = drop.load("--commit-files", 1, "--then-compact", "files >= 5")

    assert done["result"]["compactions"] == 1
    assert drop.ids == list(range(6))


def test_a_compaction_that_finds_nothing_to_rewrite_says_why_once(drop: Drop) -> None:
    for number in range(3):
        drop.put(f"{number}.csv", number)

    done = drop.lake(*drop.words("--commit-files", 1, "--then-compact", "commits >= 1"))

    lines = [one for one in done.stderr.splitlines() if "nothing was compacted" in one]
    assert done.exit_code == 0
    assert len(lines) == 2
    assert "--then-compact" in lines[0]
    assert "the only one" in lines[0]
    assert "too few" in lines[1]


def test_a_wrong_condition_of_a_compaction_names_the_option_that_has_it(drop: Drop) -> None:
    refused = drop.fail("--then-compact", "file >= 5")

    assert refused.exit_code == 2
    assert "condition of --then-compact" in refused.json()["error"]["message"]


def test_an_epoch_does_not_mix_schemas(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.put("b.csv", 2)
    for name, id_ in (("c.csv", 3), ("d.csv", 4)):
        drop.age(drop.put(name))
        (drop.folder / name).write_text(f"id,name,more\n{id_},x,{id_}\n")
        drop.age(drop.folder / name)
    drop.put("e.csv", 5)
    drop.load("--evolve", "--commit-files", "1")
    drop.put("f.csv", 6)
    (drop.folder / "g.csv").write_text("id,name,even_more\n7,x,7\n")
    drop.age(drop.folder / "g.csv")
    drop.put("h.csv", 8)

    done = drop.load("--evolve")

    assert drop.ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert done["result"]["epochs"] == 3
    table = pyiceberg_table(drop.warehouse)
    schemas = [one.schema_id for one in table.metadata.snapshots]
    assert [schemas.count(number) for number in sorted(set(schemas))] == [2, 4, 2]


def test_without_evolve_a_new_column_ends_the_epoch_before_it(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load()
    drop.put("b.csv", 2)
    (drop.folder / "c.csv").write_text("id,name,more\n3,x,3\n")
    drop.age(drop.folder / "c.csv")

    failed = drop.fail()

    assert failed.exit_code == 7
    assert drop.ids == [1, 2]
    assert drop.load("--evolve")["result"]["files_loaded"] == 1
    assert drop.ids == [1, 2, 3]


def rejected(drop: Drop) -> list[list[str]]:
    """Return the texts of rejected rows, by file."""
    files = sorted(drop.folder.parent.glob("bad-epoch-*.csv"))
    return [pyarrow.csv.read_csv(file).column("_row").to_pylist() for file in files]


def with_rejects(drop: Drop) -> tuple[object, ...]:
    return "--rejects", drop.folder.parent / "bad.csv"


def test_each_epoch_has_a_file_of_its_rejected_rows(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load(*with_rejects(drop))
    for name, ids in (("b.csv", ("x", 2)), ("c.csv", ("y",)), ("d.csv", ("z", 3))):
        drop.put(name, *ids)  # type: ignore[arg-type]
    done = drop.load(*with_rejects(drop), "--commit-files", 1)

    assert done["result"]["rows_rejected"] == 3
    assert drop.ids == [1, 2, 3]
    assert sorted(rejected(drop)) == [["x,a"], ["y,a"], ["z,a"]]
    assert drop.load(*with_rejects(drop))["status"] == "nothing-to-do"


def test_rejected_rows_are_reported_to_people_and_to_cron(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load(*with_rejects(drop))
    drop.put("b.csv", "x", 2)  # type: ignore[arg-type]
    shown = drop.lake(*drop.words(*with_rejects(drop)))
    drop.put("c.csv", "y", 3)  # type: ignore[arg-type]
    quiet = drop.lake("-q", *drop.words(*with_rejects(drop))).stderr

    assert "rejected 1 row" in shown.stdout + shown.stderr
    assert "epoch 3 of stream s: 1 row was rejected, see" in quiet
    assert "bad-epoch-0000000003" in quiet


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_repeated_epoch_replaces_its_own_rejected_rows(drop: Drop, *, is_committed: bool) -> None:
    drop.put("a.csv", 1)
    drop.load(*with_rejects(drop))
    drop.put("b.csv", "x", 2)  # type: ignore[arg-type]
    killed(drop.lake, SENT if is_committed else SENDING, *drop.words(*with_rejects(drop)))
    assert rejected(drop) == [["x,a"]]

    drop.load(*with_rejects(drop))
    drop.put("c.csv", "y", 3)  # type: ignore[arg-type]
    drop.load(*with_rejects(drop))

    assert drop.ids == [1, 2, 3]
    assert rejected(drop) == [["x,a"], ["y,a"]]


def test_too_many_rejected_rows_of_an_epoch_end_the_run(drop: Drop) -> None:
    drop.put("a.csv", 1)
    drop.load(*with_rejects(drop))
    drop.put("b.csv", "x", "y", 2)  # type: ignore[arg-type]

    assert drop.fail(*with_rejects(drop), "--max-rejects", 1).exit_code == 7
    assert (drop.ids, rejected(drop)) == ([1], [])


def test_rejected_rows_are_not_written_where_files_are_watched(drop: Drop) -> None:
    assert drop.fail("--rejects", drop.folder / "bad.csv").exit_code == 2
    assert drop.fail("--rejects", drop.folder.parent / "bad.txt").exit_code == 2
