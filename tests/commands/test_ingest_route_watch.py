"""`lake ingest --watch --route`: each row of each file is in its table once, whenever a run is killed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from support.cli.command_line import CommandLine, Result
from support.faults.killed_runs import SENDING, SENT, killed
from support.tables.iceberg_tables import pyiceberg_table, refused_with

from lake.core.base.errors import TimedOutError
from lake.core.table.snapshots.streams import STREAM

# Where a run dies: around each write of the state, which notes what is offered, divided and committed.
_NOTING = ("lake.core.load.continuous.state", "StateStore.save", "before")
_BEGINNING = ("lake.core.load.continuous.epochs", "Epochs.begin", "before")
_BEGUN = ("lake.core.load.continuous.epochs", "Epochs.begin", "after")
_SETTLING = ("lake.core.load.continuous.epochs", "Epochs.settle", "before")
_SETTLED = ("lake.core.load.continuous.epochs", "Epochs.settle", "after")
_MOVED = ("lake.core.load.continuous.files.disposal", "move", "after")


class Drop:
    """A folder into which files are dropped, and the stream that divides their rows among tables."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder / "drop", folder / "state"
        self.folder.mkdir()
        self.lake = CommandLine(folder / "warehouse", engine="inline")

    def put(self, name: str, **ids: list[int] | int) -> Path:
        """Write a file with some ids of each kind."""
        rows = [{"kind": kind, "id": one} for kind, found in ids.items() for one in _listed(found)]
        return self.write(name, rows)

    def write(self, name: str, rows: list[dict[str, Any]]) -> Path:
        path = self.folder / name
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        moment = time.time() - 60
        os.utime(path, (moment, moment))
        return path

    def words(self, *more: object) -> list[object]:
        own = ["ingest", "db.{kind}", "--create", "--route", "kind", "--watch", self.folder]
        return [*own, "--stream", "s", "--state", self.state, "--once", *more]

    def load(self, *more: object) -> dict[str, Any]:
        return self.lake.ok(*self.words(*more))

    def fail(self, code: int, *more: object) -> dict[str, Any]:
        result: Result = self.lake("--json", *self.words(*more))
        assert result.exit_code == code, result
        return result.json()

    def table(self, kind: str) -> Any:
        return pyiceberg_table(self.lake.warehouse, f"db.{kind}")

    def ids(self, kind: str) -> list[int]:
        return sorted(self.table(kind).scan().to_arrow().column("id").to_pylist())

    def epochs(self, kind: str) -> list[int]:
        """Return the epochs in the summaries of a table's snapshots."""
        texts = [
            one.summary.additional_properties.get(STREAM)
            for one in self.table(kind).metadata.snapshots
        ]
        return [json.loads(text)["epoch"] for text in texts if text]

    @property
    def saved(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "state.json").read_text())
        return found


def _listed(value: list[int] | int) -> list[int]:
    return value if isinstance(value, list) else [value]


@pytest.fixture
def drop(tmp_path: Path) -> Drop:
    return Drop(tmp_path)


def tables(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["table"]: item for item in document["result"]["tables"]}


def test_files_are_divided_epoch_by_epoch_and_new_tables_are_created_on_the_way(
    drop: Drop,
) -> None:
    drop.put("1.json", a=[1, 2], b=3)
    drop.put("2.json", b=4)
    drop.put("3.json", c=5, a=6)
    shown = drop.lake.ok(*drop.words("--dry-run"))

    first = drop.load("--commit-files", "1")

    assert (shown["plan"]["files"], shown["plan"]["route"]) == (3, "kind")
    found = tables(first)
    assert {name: (item["rows"], item["created"]) for name, item in found.items()} == {
        "db.a": (3, True),
        "db.b": (2, True),
        "db.c": (1, True),
    }
    result = first["result"]
    assert (result["epochs"], result["files_loaded"], result["rows_written"]) == (3, 3, 6)
    assert {kind: (drop.ids(kind), drop.epochs(kind)) for kind in "abc"} == {
        "a": ([1, 2, 6], [1, 3]),
        "b": ([3, 4], [1, 2]),
        "c": ([5], [3]),
    }
    assert found["db.a"]["snapshot_id"] == str(drop.table("a").current_snapshot().snapshot_id)
    again = drop.load()
    assert (again["status"], again["result"]["tables"]) == ("nothing-to-do", [])
    drop.put("4.json", b=7)
    assert drop.load()["result"]["rows_written"] == 1
    assert drop.epochs("b") == [1, 2, 4]


@pytest.mark.parametrize(
    ("point", "location", "loaded"),
    [
        pytest.param(_NOTING, "", "", marks=pytest.mark.slow),
        pytest.param(_BEGINNING, "", "", marks=pytest.mark.slow),
        pytest.param(_BEGUN, "", "", marks=pytest.mark.slow),
        pytest.param(SENDING, "", "", marks=pytest.mark.slow),
        (SENT, "", "a"),
        pytest.param(_SETTLING, "db.a", "a", marks=pytest.mark.slow),
        pytest.param(_SETTLED, "db.a", "a", marks=pytest.mark.slow),
        pytest.param(_SETTLING, "db.b", "ab", marks=pytest.mark.slow),
        pytest.param(_SETTLED, "db.b", "ab", marks=pytest.mark.slow),
        pytest.param(_MOVED, "", "ab", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_killed_epoch_is_repeated_for_the_tables_that_lack_it(
    drop: Drop, point: tuple[str, str, str], location: str, loaded: str
) -> None:
    drop.put("1.json", a=1, b=2)
    done = ("--done", f"move:{drop.folder / 'done'}")
    drop.load(*done)
    drop.put("2.json", a=3, b=4)
    drop.put("3.json", b=5)

    killed(drop.lake, point, *drop.words(*done), location=location)
    is_offered = drop.saved.get("offered") is not None
    reached = "".join(kind for kind in "ab" if drop.epochs(kind) == [1, 2])
    drop.put("0.json", a=6)
    document = drop.load(*done)

    assert reached == loaded
    assert {kind: drop.ids(kind) for kind in "ab"} == {"a": [1, 3, 6], "b": [2, 4, 5]}
    # The file that arrived after the kill is not part of the epoch that was offered.
    assert (drop.epochs("a"), drop.epochs("b")) == ([1, 2, 3][: 2 + is_offered], [1, 2])
    assert document["status"] == "done"
    assert drop.load(*done)["status"] == "nothing-to-do"


def test_a_table_that_fails_keeps_its_epoch_open_and_the_others_get_it_once(drop: Drop) -> None:
    drop.put("1.json", a=1, b=2, c=3)
    drop.load()
    drop.put("2.json", a=4, b=5, c=6)
    drop.put("3.json", a=7)

    lake = drop.lake
    drop.lake = lake.with_faults(None, refused_with(TimeoutError("504")))
    document = drop.fail(6, "--commit-files", "1")
    drop.lake = lake

    assert (document["status"], document["result"]["stopped_by"]) == ("partial", "error")
    statuses = {name: item["status"] for name, item in tables(document).items()}
    assert Counter(statuses.values()) == {"done": 2, "unknown": 1}
    offered = drop.saved["offered"]
    assert (offered["epoch"], len(offered["settled"]), len(offered["tables"])) == (2, 2, 3)
    # The epoch is completed before another one begins.
    assert drop.load()["result"]["epochs"] == 2
    assert {kind: drop.ids(kind) for kind in "abc"} == {"a": [1, 4, 7], "b": [2, 5], "c": [3, 6]}


def test_a_missing_table_stops_the_stream_until_it_exists(drop: Drop) -> None:
    drop.put("1.json", a=1)
    drop.load()
    drop.put("2.json", a=2, b=3)
    drop.put("3.json", a=4)
    words = [word for word in drop.words("--commit-files", "1") if word != "--create"]

    for _ in range(2):
        result = drop.lake("--json", *words)
        assert result.exit_code == 6, result
    assert tables(result.json())["db.b"]["error"]["kind"] == "not-found"
    assert drop.ids("a") == [1, 2]

    drop.load()

    assert (drop.ids("a"), drop.ids("b")) == ([1, 2, 4], [3])


def test_bad_files_are_set_aside_and_rows_without_a_table_are_rejected(
    drop: Drop, tmp_path: Path
) -> None:
    drop.put("1.json", a=1)
    drop.write("2.json", [{"kind": "a", "id": 2}, {"kind": "no table", "id": 3}])
    (drop.folder / "3.parquet").write_text("broken")
    (drop.folder / "4.json").write_text("{broken")
    for name in ("3.parquet", "4.json"):
        os.utime(drop.folder / name, (1, 1))
    bad, rejects = tmp_path / "bad", tmp_path / "rejects.json"

    refused = drop.fail(7)
    done = drop.fail(6, "--bad-files", bad, "--rejects", rejects)

    assert "no table" in refused["error"]["message"]
    assert drop.ids("a") == [1, 2]
    assert (done["result"]["files_set_aside"], done["result"]["rows_rejected"]) == (1, 2)
    assert sorted(path.name for path in bad.iterdir()) == ["3.parquet", "3.parquet.reason.txt"]
    written = sorted(tmp_path.glob("rejects-epoch-*.json"))
    lines = [json.loads(line) for path in written for line in path.read_text().splitlines()]
    assert [(Path(line["_file"]).name, line["_line"]) for line in lines] == [
        ("2.json", 2),
        ("4.json", 1),
    ]
    drop.write("5.json", [{"kind": "no table", "id": 4}])
    drop.write("6.json", [])
    # Rows that are rejected alone change no table, and are not read again.
    drop.load("--rejects", rejects)
    assert len(list(tmp_path.glob("rejects-epoch-*.json"))) == len(written) + 1
    assert drop.load("--rejects", rejects)["status"] == "nothing-to-do"


def test_a_new_column_begins_an_epoch_and_reaches_the_tables_that_need_it(drop: Drop) -> None:
    drop.write("1.json", [{"kind": "a", "id": 1}, {"kind": "b", "id": 2}])
    drop.write("2.json", [{"kind": "a", "id": 3, "more": "x"}, {"kind": "b", "id": 4}])

    document = drop.load("--evolve")

    assert document["result"]["epochs"] == 2
    assert tables(document)["db.a"]["new_columns"] == ["more"]
    assert tables(document)["db.b"]["new_columns"] == []
    assert (drop.ids("a"), drop.ids("b")) == ([1, 3], [2, 4])


def test_a_lost_or_old_state_is_refused_before_any_table_is_changed(
    drop: Drop, tmp_path: Path
) -> None:
    drop.put("1.json", a=1)
    drop.load()
    shutil.copytree(drop.state, tmp_path / "old")
    drop.put("2.json", b=2)
    drop.load()
    shutil.rmtree(drop.state)

    lost = drop.fail(3)
    assert "epoch 2 of stream s" in lost["error"]["message"]
    shutil.copytree(tmp_path / "old", drop.state, dirs_exist_ok=True)
    drop.put("0.json", a=3)

    old = drop.fail(3)

    assert "of another run" in old["error"]["message"]
    assert (drop.ids("a"), drop.ids("b")) == ([1], [2])


def test_a_state_that_is_lost_after_files_were_moved_is_resumed(drop: Drop) -> None:
    done = ("--done", "delete")
    drop.put("1.json", a=1, b=2)
    drop.load(*done)
    shutil.rmtree(drop.state)
    drop.put("2.json", b=3)

    drop.load(*done, "--resume")

    assert (drop.ids("a"), drop.ids("b"), drop.epochs("b")) == ([1], [2, 3], [1, 2])


def test_a_lost_state_is_not_replaced_while_a_namespace_cannot_be_listed(
    drop: Drop, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [str(word).replace("db.{kind}", "{kind}.t") for word in drop.words()]
    drop.put("1.json", a=1, b=2)
    drop.lake.ok(*words)
    shutil.rmtree(drop.state)
    real = SqlCatalog.list_tables

    def list_tables(catalog: SqlCatalog, namespace: Any) -> Any:
        raise TimedOutError("busy")

    monkeypatch.setattr(SqlCatalog, "list_tables", list_tables)
    assert drop.lake(*words).exit_code == 10
    monkeypatch.setattr(SqlCatalog, "list_tables", real)

    assert drop.lake(*words).exit_code == 3


def test_a_file_that_changed_within_a_divided_epoch_is_refused(drop: Drop) -> None:
    drop.put("1.json", a=1, b=2)
    killed(drop.lake, SENT, *drop.words())
    drop.put("1.json", a=[1, 9], b=2)

    document = drop.fail(3, "--on-rewrite", "again")

    assert "some tables" in document["error"]["message"]
    assert drop.ids("a") == [1]
    drop.put("1.json", a=1, b=2)
    offered = drop.saved["offered"]["files"][0]
    os.utime(drop.folder / "1.json", ns=(offered["modified_ms"] * 1_000_000,) * 2)
    drop.load()
    assert (drop.ids("a"), drop.ids("b")) == ([1], [2])


def test_changes_and_upserts_are_divided_too(drop: Drop) -> None:
    drop.write("1.json", [{"op": "+I", "kind": "a", "id": 1}, {"op": "+I", "kind": "b", "id": 1}])
    drop.write("2.json", [{"op": "-D", "kind": "a", "id": 1}, {"op": "+I", "kind": "a", "id": 2}])
    words = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id")

    drop.load(*words, "--commit-files", "1")

    out = drop.folder.parent / "rows.json"
    found = {}
    for kind in "ab":
        drop.lake.ok("scan", f"db.{kind}", "--output", out, "--replace")
        found[kind] = [json.loads(line)["id"] for line in out.read_text().splitlines()]
    assert found == {"a": [2], "b": [1]}


@pytest.mark.parametrize(
    "words",
    [
        ("--from-table", "db.t", "--follow", "--stream", "s"),
        ("--kafka", "topic", "--brokers", "x:1", "--stream", "s"),
        ("--watch", ".", "--stream", "s", "--state", "x", "--then-compact", "files >= 1"),
        ("--watch", ".", "--stream", "s", "--state", "x", "--overwrite"),
    ],
    ids=["table", "topic", "compaction", "overwrite"],
)
def test_what_a_divided_stream_does_not_have_is_refused(drop: Drop, words: tuple[str, ...]) -> None:
    result = drop.lake("--json", "ingest", "db.{kind}", "--route", "kind", *words)

    assert (result.exit_code, "contradict" in result.json()["error"]["message"]) == (2, True)
