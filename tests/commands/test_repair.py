"""`lake check --repair` through the command line, on tables that are damaged by hand; PyIceberg reads the rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from support.cli.command_line import CommandLine, Result
from support.tables.built_once import BuiltOnce
from support.tables.delete_files import (
    commit_deletes,
    commit_equality_delete,
    commit_position_delete,
    position_file,
    vectors,
)
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
    ids_in,
    open_session,
    pyiceberg_table,
    refused_with,
)
from support.tables.metadata_edits import Plain, edit_metadata, metadata_path, read_metadata

from lake.core.base.errors import NotAuthorisedError, StorageError, TimedOutError
from lake.core.io.storage.storage import Storage
from lake.core.maintain.repair import execute as repairing
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

_ERRORS = [(TimedOutError, 10), (NotAuthorisedError, 9), (StorageError, 7)]


class Damaged:
    """A table with the partitions x and y, and three rows in each of them, one a load."""

    def __init__(self, folder: Path) -> None:
        self.warehouse, self.folder = folder / "warehouse", folder
        self.lake = CommandLine(self.warehouse, engine="inline")

    def create(self, version: int, *options: str) -> None:
        create = ("--create", "--property", f"format-version={version}", *options)
        for number in range(3):
            self.load((number, "x"), (10 + number, "y"), more=() if number else create)

    def load(self, *rows: tuple[int, str], more: tuple[str, ...] = ()) -> dict[str, Any]:
        file = self.folder / "rows.csv"
        file.write_text("id,p\n" + "".join(f"{number},{part}\n" for number, part in rows))
        return self.lake.ok("ingest", "db.t", file, *more)

    def upsert(self, *rows: tuple[int, str], deletes: str = "position") -> None:
        self.load(*rows, more=("--upsert", "--key", "id,p", "--deletes", deletes))

    @property
    def table(self) -> Any:
        return pyiceberg_table(self.warehouse)

    @property
    def ids(self) -> list[int]:
        return ids_in(self.warehouse)

    def files(self, content: int = 0) -> dict[int, Path]:
        """Return the live files by the id of their first row; delete files by their number."""
        table, found = self.table, {}
        for manifest in table.current_snapshot().manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                if file.content == content:
                    low = (file.lower_bounds or {}).get(1, b"")
                    number = int.from_bytes(low, "little") if content == 0 else len(found)
                    found[number] = Path(file.file_path.removeprefix("file://"))
        return found

    def repair(self, *names: str, more: tuple[str, ...] = ("--yes",)) -> Result:
        chosen = [text for name in names for text in ("--repair", name)]
        return self.lake("--json", "check", "db.t", *chosen, *more)

    def repaired(self, *names: str, more: tuple[str, ...] = ("--yes",)) -> dict[str, Any]:
        result = self.repair(*names, more=more)
        assert result.exit_code == 0, result
        return result.json()

    def codes(self, *level: str) -> set[str]:
        findings = self.lake("--json", "check", "db.t", *level).json()["result"]["findings"]
        return {item["code"] for item in findings}

    def summary(self) -> dict[str, str]:
        found: dict[str, str] = read_metadata(self.warehouse)["snapshots"][-1]["summary"]
        return found

    def append_again(self, path: Path) -> None:
        """Append a file that the table contains already, if possible by PyIceberg."""
        table = self.table
        (file,) = (
            entry.data_file
            for manifest in table.current_snapshot().manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            if entry.data_file.file_path == f"file://{path}"
        )
        if table.format_version == 3:
            session = open_session(self.warehouse)
            again = DataFile(
                path=file.file_path,
                spec_id=0,
                partition=(file.partition[0].encode(),),
                record_count=file.record_count,
                size_bytes=file.file_size_in_bytes,
            )
            request = CommitRequest(operation_id=session.ids.uuid())
            commit_snapshot(session, session.table("db.t"), AppendFiles(added=[again]), request)
            return
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            append.append_data_file(file)


def in_version(built_once: BuiltOnce, version: int) -> Damaged:
    folder = built_once.folder(
        f"version {version}", lambda folder: Damaged(folder).create(version, "--partition-by", "p")
    )
    return Damaged(folder)


@pytest.fixture
def damaged(built_once: BuiltOnce) -> Damaged:
    return in_version(built_once, 2)


def _state(damaged: Damaged) -> tuple[Path, set[str]]:
    return metadata_path(damaged.warehouse), files_below(damaged.warehouse)


# Missing files


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_rows_of_missing_files_are_shown_first_and_then_dropped(
    built_once: BuiltOnce, version: int
) -> None:
    damaged = in_version(built_once, version)
    damaged.lake.ok("tag", "db.t", "old")
    damaged.load((20, "x"))
    files = damaged.files()
    for number in (0, 1, 11):
        files[number].unlink()
    before = _state(damaged)

    shown = damaged.repaired("missing-files", more=())
    assert _state(damaged) == before
    done = damaged.repaired("F001")

    assert (shown["status"], done["status"]) == ("dry-run", "done")
    (plan,) = shown["plan"]["repairs"]
    assert plan == done["plan"]["repairs"][0] == done["result"]["repairs"][0]
    assert (plan["data_files"], plan["rows"], plan["rows_at_most"]) == (3, 3, 3)
    assert {item["partition"]: item["rows_at_most"] for item in plan["partitions"]} == {
        "p=x": 2,
        "p=y": 1,
    }
    assert plan["other_refs"] == ["tag old"]
    assert plan["snapshots"] == 4
    assert any("tag old" in text for text in done["warnings"])
    assert damaged.ids == [2, 10, 12, 20]
    head = damaged.table.current_snapshot()
    assert [str(head.snapshot_id)] == done["snapshot_ids"]
    assert head.summary.operation.value == "delete"
    assert (head.summary["total-data-files"], head.summary["total-records"]) == ("4", "4")
    damaged.lake.ok("tag", "db.t", "--drop", "old")
    damaged.lake.ok(
        *("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
    )
    assert damaged.codes("--rows") == set()
    assert damaged.ids == [2, 10, 12, 20]


@pytest.mark.parametrize("agreed", [("--dry-run",), ("--yes", "--dry-run"), ()])
def test_nothing_is_changed_without_consent(damaged: Damaged, agreed: tuple[str, ...]) -> None:
    damaged.files()[0].unlink()
    edit_metadata(damaged.warehouse, _total("total-records", "9"))
    before = _state(damaged)

    assert damaged.repaired("missing-files", "totals", more=agreed)["status"] == "dry-run"

    assert _state(damaged) == before


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_applied_to_missing_files_only_go_with_them(
    built_once: BuiltOnce, version: int
) -> None:
    damaged = in_version(built_once, version)
    damaged.load((3, "x"), (4, "x"), (13, "y"), (14, "y"))
    files = damaged.files()
    damaged.upsert((3, "x"), (13, "y"))
    files[3].unlink()

    done = damaged.repaired("missing-files")

    (plan,) = done["result"]["repairs"]
    assert (plan["data_files"], plan["delete_files"], plan["rows"]) == (
        1,
        1,
        1 if version == 3 else None,
    )
    assert damaged.ids == [0, 1, 2, 3, 10, 11, 12, 13, 14]
    assert len(damaged.files(content=1)) == 1


def _lose_position_deletes(damaged: Damaged) -> None:
    damaged.upsert((2, "x"))
    (path,) = damaged.files(content=1).values()
    path.unlink()


def _lose_equality_deletes(damaged: Damaged) -> None:
    damaged.upsert((2, "x"), deletes="equality")
    (path,) = damaged.files(content=2).values()
    path.unlink()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("lose", [_lose_position_deletes, _lose_equality_deletes])
def test_a_missing_delete_file_is_not_dropped_if_deleted_rows_would_come_back(
    built_once: BuiltOnce, version: int, lose: Callable[[Damaged], None]
) -> None:
    damaged = in_version(built_once, version)
    lose(damaged)
    damaged.files()[11].unlink()
    before = _state(damaged)

    for more in ((), ("--yes",)):
        refused = damaged.repair("missing-files", more=more)
        assert (refused.exit_code, refused.json()["status"]) == (3, "refused")
        assert "would come back" in refused.json()["error"]["message"]

    assert _state(damaged) == before


@pytest.mark.parametrize("deletes", ["position", "equality"])
def test_a_missing_delete_file_goes_with_the_last_data_file_that_it_applied_to(
    damaged: Damaged, deletes: str
) -> None:
    old = [damaged.files()[number] for number in (0, 1, 2)]
    damaged.upsert((1, "x"), deletes=deletes)
    damaged.lake.ok("deletes", "db.t")
    for path in (*old, *damaged.files(content=1 if deletes == "position" else 2).values()):
        path.unlink()

    (plan,) = damaged.repaired("F002")["result"]["repairs"]

    assert (plan["data_files"], plan["delete_files"]) == (3, 1)
    assert damaged.ids == [1, 10, 11, 12]


def test_a_missing_delete_file_that_applies_to_nothing_goes_alone(damaged: Damaged) -> None:
    damaged.upsert((1, "x"), deletes="equality")
    damaged.lake.ok(
        *("compact", "db.t", "--rewrite-all", "--no-starting-sequence-number"),
    )
    (path,) = damaged.files(content=2).values()
    path.unlink()

    (plan,) = damaged.repaired("missing-files")["result"]["repairs"]

    assert (plan["data_files"], plan["delete_files"], plan["rows"]) == (0, 1, 0)
    assert damaged.ids == [0, 1, 2, 10, 11, 12]
    assert damaged.table.current_snapshot().summary.operation.value == "replace"


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_what_is_in_the_place_of_a_file_is_not_a_missing_file(damaged: Damaged, kind: str) -> None:
    path = damaged.files()[0]
    moved = path.rename(path.with_suffix(".moved"))
    if kind == "link":
        path.symlink_to(moved)
    else:
        path.mkdir()
    before = metadata_path(damaged.warehouse)

    done = damaged.repaired("missing-files")

    assert done["status"] == "nothing-to-do"
    assert any("links" in text for text in done["warnings"])
    assert metadata_path(damaged.warehouse) == before


@pytest.mark.parametrize(("error", "code"), _ERRORS)
@pytest.mark.parametrize("call", ["_look_up", "open_input"])
def test_a_file_that_cannot_be_asked_for_is_not_missing(
    damaged: Damaged,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    error: type[Exception],
    code: int,
) -> None:
    path = damaged.files()[0]
    path.unlink()
    before = metadata_path(damaged.warehouse)
    real = getattr(Storage, call)

    def failing(self: Storage, location: str, **more: Any) -> Any:
        if location.endswith(path.name):
            raise error("the storage is in trouble")
        return real(self, location, **more)

    monkeypatch.setattr(Storage, call, failing)

    assert damaged.repair("missing-files").exit_code == code
    assert metadata_path(damaged.warehouse) == before


def test_a_file_that_is_missed_once_and_found_then_is_not_missing(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Storage._look_up

    def forgetful(self: Storage, location: str) -> Any:
        return None if location.endswith(".parquet") else real(self, location)

    monkeypatch.setattr(Storage, "_look_up", forgetful)

    assert damaged.repaired("missing-files")["status"] == "nothing-to-do"


def test_files_that_are_all_gone_are_not_believed_to_be_lost(damaged: Damaged) -> None:
    for path in damaged.files().values():
        path.unlink()
    before = metadata_path(damaged.warehouse)

    refused = damaged.repair("missing-files")

    assert refused.exit_code == 3
    assert "mounted" in refused.json()["error"]["message"]
    assert metadata_path(damaged.warehouse) == before


def test_a_file_that_is_back_before_the_commit_stays(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = damaged.files()[0], damaged.files()[11]
    saved = path.read_bytes()
    path.unlink()
    other.unlink()
    real = repairing.commit_snapshots

    def restored(*arguments: Any) -> Any:
        path.write_bytes(saved)
        return real(*arguments)

    monkeypatch.setattr(repairing, "commit_snapshots", restored)

    (plan,) = damaged.repaired("missing-files")["result"]["repairs"]

    assert plan["data_files"] == 1
    assert damaged.ids == [0, 1, 2, 10, 12]


def test_the_files_of_another_branch_are_repaired_there(damaged: Damaged) -> None:
    damaged.lake.ok("ref", "db.t", "--branch-create", "audit")
    damaged.files()[0].unlink()

    done = damaged.repaired("missing-files", more=("--yes", "--branch", "audit"))

    assert done["plan"]["repairs"][0]["other_refs"] == ["branch main"]
    audit = damaged.table.refs()["audit"].snapshot_id
    assert ids_in(damaged.warehouse, snapshot_id=audit) == [1, 2, 10, 11, 12]
    assert damaged.repaired("missing-files")["status"] == "done"


# Races


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize(
    "other",
    [
        lambda damaged: damaged.load((30, "y")),
        lambda damaged: damaged.lake.ok(
            *("compact", "db.t", "--rewrite-all", "--where", "p = 'y'", "--min-input-files", "1")
        ),
        lambda damaged: damaged.lake.ok(
            *("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
        ),
        lambda damaged: damaged.repaired("missing-files"),
    ],
    ids=["append", "compaction", "expiry", "the same repair"],
)
def test_a_repair_is_planned_again_if_others_commit_meanwhile(
    damaged: Damaged, other: Callable[[Damaged], Any]
) -> None:
    damaged.files()[0].unlink()
    racing = damaged.lake.with_faults(after(lambda: other(damaged)))

    done = racing("--json", "check", "db.t", "--repair", "missing-files", "--yes")

    assert done.exit_code == 0, done
    assert [number for number in damaged.ids if number != 30] == [1, 2, 10, 11, 12]
    assert damaged.table.current_snapshot().summary["total-records"] == str(len(damaged.ids))


def test_a_file_that_another_writer_removed_is_not_repaired(damaged: Damaged) -> None:
    damaged.files()[0].unlink()

    def other() -> None:
        with damaged.table.transaction() as change:
            change.delete("p == 'x'")

    racing = damaged.lake.with_faults(after(other))
    done = racing.ok("check", "db.t", "--repair", "missing-files", "--yes")

    assert done["status"] == "nothing-to-do"
    assert damaged.ids == [10, 11, 12]


def test_a_commit_that_is_always_overtaken_is_a_conflict(damaged: Damaged) -> None:
    damaged.files()[0].unlink()
    numbers = iter(range(30, 60))
    faults = [after(lambda: damaged.load((next(numbers), "y")))] * 5

    done = damaged.lake.with_faults(*faults)(
        "--json", "check", "db.t", "--repair", "missing-files", "--yes"
    )

    assert done.exit_code == 4
    assert damaged.repaired("missing-files")["status"] == "done"
    assert damaged.ids == [1, 2, 10, 11, 12, 30, 31, 32, 33, 34]


def test_a_commit_without_an_answer_is_found_or_unknown(damaged: Damaged) -> None:
    damaged.files()[0].unlink()
    line = ("--json", "check", "db.t", "--repair", "missing-files", "--yes")
    before = files_below(damaged.warehouse)

    unknown = damaged.lake.with_faults(refused_with(OSError("no answer")))(*line)
    assert unknown.exit_code == 5
    assert before <= files_below(damaged.warehouse)
    done = damaged.lake.with_faults(applied_then(CommitFailedException("lost")))(*line)

    assert done.json()["status"] == "done"
    assert damaged.ids == [1, 2, 10, 11, 12]


# Totals


def _total(key: str, value: str) -> Callable[[Plain], None]:
    return lambda plain: plain["snapshots"][-1]["summary"].update({key: value})


@pytest.mark.parametrize("version", [1, 2, 3])
def test_totals_are_counted_from_the_manifests(built_once: BuiltOnce, version: int) -> None:
    damaged = in_version(built_once, version)
    if version > 1:
        damaged.upsert((1, "x"), deletes="position")
        if version == 2:
            damaged.upsert((11, "y"), deletes="equality")
    right = {key: value for key, value in damaged.summary().items() if key.startswith("total-")}
    rows = damaged.ids if version != 2 else []
    for key in right:
        # More files than the list names are a sign of a list that was cut.
        edit_metadata(damaged.warehouse, _total(key, "0" if key.endswith("files") else "77"))

    (plan,) = damaged.repaired("T001")["result"]["repairs"]

    wrong = {key: value for key, value in right.items() if value != "0" or "files" not in key}
    assert {key: item["counted"] for key, item in plan["totals"].items()} == wrong
    summary = damaged.summary()
    assert {key: summary[key] for key in right} == right
    assert summary["operation"] == "replace"
    assert summary["manifests-kept"] != "0"
    assert (damaged.ids if version != 2 else []) == rows
    assert damaged.codes() == set()
    damaged.load((40, "x"))
    assert damaged.codes() == set()
    assert damaged.summary()["total-records"] == str(int(right["total-records"]) + 1)


def test_totals_are_not_counted_from_a_list_that_may_be_cut(damaged: Damaged) -> None:
    edit_metadata(
        damaged.warehouse,
        lambda plain: plain["snapshots"][-1].update({"parent-snapshot-id": 7}),
    )
    edit_metadata(damaged.warehouse, _total("total-data-files", "9"))
    before = metadata_path(damaged.warehouse)

    assert damaged.repair("totals").exit_code == 7

    assert metadata_path(damaged.warehouse) == before


# Dangling deletes


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_that_apply_to_nothing_are_removed(
    built_once: BuiltOnce, version: int
) -> None:
    damaged = in_version(built_once, version)
    damaged.upsert((1, "x"), deletes="equality")
    damaged.lake.ok(*("compact", "db.t", "--rewrite-all", "--no-starting-sequence-number"))
    damaged.load((5, "y"), (15, "y"))
    damaged.upsert((15, "y"))
    assert len(damaged.files(content=2)) == 1

    done = damaged.repaired("dangling-deletes")

    (plan,) = done["result"]["repairs"]
    assert plan["delete_files"] == 1
    assert damaged.files(content=2) == {}
    assert len(damaged.files(content=1)) == 1
    assert damaged.ids == [0, 1, 2, 5, 10, 11, 12, 15]
    assert damaged.repaired("dangling-deletes")["status"] == "nothing-to-do"


# Duplicates


@pytest.mark.parametrize("version", [1, 2, 3])
def test_one_of_two_entries_of_a_file_is_dropped_and_the_file_stays(
    built_once: BuiltOnce, version: int
) -> None:
    damaged = in_version(built_once, version)
    path = damaged.files()[1]
    damaged.append_again(path)
    damaged.append_again(damaged.files()[12])
    damaged.load((20, "x"))
    assert damaged.ids == [0, 1, 1, 2, 10, 11, 12, 12, 20]

    (plan,) = damaged.repaired("E001")["result"]["repairs"]

    assert (plan["data_files"], plan["entries"], plan["rows_at_most"]) == (2, 2, 2)
    assert damaged.ids == [0, 1, 2, 10, 11, 12, 20]
    assert damaged.codes("--rows") == set()
    assert damaged.summary()["total-data-files"] == "7"
    damaged.lake.ok(
        *("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
    )
    assert path.exists()
    assert damaged.ids == [0, 1, 2, 10, 11, 12, 20]
    assert damaged.repaired("duplicate-files")["status"] == "nothing-to-do"


def test_no_manifest_marks_a_file_as_deleted_whose_second_entry_was_dropped(
    damaged: Damaged,
) -> None:
    """Iceberg Java's expiry deletes the files of entries that are marked as deleted."""
    damaged.append_again(damaged.files()[1])
    damaged.repaired("duplicate-files")

    table = damaged.table
    status = {
        entry.status.value
        for manifest in table.current_snapshot().manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    }

    assert status == {0, 1}


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_apply_to_the_entry_that_stays(built_once: BuiltOnce, version: int) -> None:
    damaged = in_version(built_once, version)
    damaged.load((3, "x"), (4, "x"))
    path = damaged.files()[3]
    damaged.append_again(path)
    table = open_session(damaged.warehouse).table("db.t")
    rows = [(f"file://{path}", 0)]
    if version == 3:
        commit_deletes(table, *vectors(table, {f"file://{path}": [0]}, partition=(b"x",)))
    else:
        commit_deletes(table, position_file(table, rows, partition=(b"x",)))
    before = damaged.ids

    assert damaged.repaired("duplicate-files")["status"] == "done"

    assert before == [0, 1, 2, 4, 4, 10, 11, 12]
    assert damaged.ids == [0, 1, 2, 4, 10, 11, 12]
    assert damaged.codes() == set()


@pytest.mark.parametrize("kind", ["equality", "position"])
def test_entries_to_which_different_deletes_apply_are_refused(tmp_path: Path, kind: str) -> None:
    damaged = Damaged(tmp_path)
    damaged.create(2)
    path = damaged.files()[1]
    if kind == "equality":
        commit_equality_delete(damaged.warehouse, [1])
    else:
        commit_position_delete(damaged.warehouse, f"file://{path}", 0)
    damaged.append_again(path)
    before = _state(damaged)

    refused = damaged.repair("duplicate-files")

    assert refused.exit_code == 3, refused
    assert _state(damaged) == before


# Refs and statistics


def _ref(name: str, kind: str = "tag") -> Callable[[Plain], None]:
    return lambda plain: plain["refs"].update({name: {"type": kind, "snapshot-id": 7}})


def test_refs_of_snapshots_that_do_not_exist_are_dropped(damaged: Damaged) -> None:
    damaged.lake.ok("tag", "db.t", "good")
    edit_metadata(damaged.warehouse, _ref("lost"))
    edit_metadata(damaged.warehouse, _ref("gone", "branch"))
    edit_metadata(damaged.warehouse, _ref("lake-consumer-c", "branch"))
    head = damaged.table.current_snapshot().snapshot_id

    done = damaged.repaired("R001")

    assert {item["name"] for item in done["result"]["repairs"][0]["refs"]} == {"lost", "gone"}
    assert any("lake-consumer-c" in text for text in done["warnings"])
    assert set(read_metadata(damaged.warehouse)["refs"]) == {"main", "good", "lake-consumer-c"}
    assert damaged.table.current_snapshot().snapshot_id == head
    assert done["snapshot_ids"] == []
    assert damaged.ids == [0, 1, 2, 10, 11, 12]


def test_a_ref_that_others_set_meanwhile_stays(damaged: Damaged) -> None:
    edit_metadata(damaged.warehouse, _ref("lost"))
    racing = damaged.lake.with_faults(
        after(lambda: damaged.lake.ok("tag", "db.t", "lost", "--move"))
    )

    done = racing.ok("check", "db.t", "--repair", "refs", "--yes")

    assert done["status"] == "nothing-to-do"
    assert "lost" in damaged.table.refs()


def test_main_is_never_dropped(damaged: Damaged) -> None:
    edit_metadata(damaged.warehouse, _ref("main", "branch"))
    before = metadata_path(damaged.warehouse)

    assert damaged.repair("refs").exit_code in {3, 7}

    assert metadata_path(damaged.warehouse) == before


def _statistics(plain: Plain, name: str, number: int, size: int = 10, key: str = "") -> None:
    entry = {
        "snapshot-id": number,
        "statistics-path": f"{plain['location']}/metadata/{name}",
        "file-size-in-bytes": size,
    }
    more = {"file-footer-size-in-bytes": 5, "blob-metadata": []} if not key else {}
    plain.setdefault(key or "statistics", []).append({**entry, **more})


def test_statistics_that_no_reader_can_use_are_removed(damaged: Damaged) -> None:
    damaged.lake.ok("stats", "db.t")
    first, second, head = (item.snapshot_id for item in damaged.table.snapshots())
    partitions = "partition-statistics"
    folder = metadata_path(damaged.warehouse).parent
    (folder / "short.puffin").write_bytes(b"x")
    for values in (
        ("none.puffin", 7),
        ("none.puffin", first),
        ("short.puffin", second),
        ("gone.puffin", head),
        ("none.parquet", head, 10, partitions),
        ("short.puffin", first, 1, partitions),
    ):
        edit_metadata(damaged.warehouse, lambda plain, values=values: _statistics(plain, *values))

    done = damaged.repaired("statistics")

    assert len(done["result"]["repairs"][0]["files"]) == 5
    plain = read_metadata(damaged.warehouse)
    (kept,) = plain["statistics"]
    assert kept["statistics-path"].endswith(".stats")
    (sound,) = plain[partitions]
    assert sound["snapshot-id"] == first
    assert (folder / "short.puffin").exists()
    assert damaged.codes() == set()


@pytest.mark.parametrize(("error", "code"), _ERRORS)
def test_statistics_that_cannot_be_asked_for_stay(
    damaged: Damaged, monkeypatch: pytest.MonkeyPatch, error: type[Exception], code: int
) -> None:
    damaged.lake.ok("stats", "db.t")
    before = metadata_path(damaged.warehouse)

    def failing(_self: Storage, _location: str) -> Any:
        raise error("the storage is in trouble")

    monkeypatch.setattr(Storage, "_look_up", failing)

    assert damaged.repair("statistics").exit_code == code
    assert metadata_path(damaged.warehouse) == before


def test_statistics_that_others_compute_meanwhile_stay(damaged: Damaged) -> None:
    head = damaged.table.current_snapshot().snapshot_id
    edit_metadata(damaged.warehouse, lambda plain: _statistics(plain, "gone.puffin", head))
    racing = damaged.lake.with_faults(after(lambda: damaged.lake.ok("stats", "db.t")))

    done = racing.ok("check", "db.t", "--repair", "statistics", "--yes")

    assert done["status"] == "nothing-to-do"
    (kept,) = read_metadata(damaged.warehouse)["statistics"]
    assert kept["statistics-path"].endswith(".stats")


# The command line


def test_all_repairs_are_made_in_one_commit(damaged: Damaged) -> None:
    files = damaged.files()
    damaged.append_again(files[1])
    damaged.upsert((2, "x"), deletes="position")
    files[2].unlink()
    edit_metadata(damaged.warehouse, _total("total-records", "99"))
    edit_metadata(damaged.warehouse, _ref("lost"))
    edit_metadata(damaged.warehouse, lambda plain: _statistics(plain, "none.puffin", 7))
    log = len(read_metadata(damaged.warehouse)["metadata-log"])
    names = ("refs", "statistics", "totals", "missing-files", "E001", "dangling-deletes")

    done = damaged.repaired(*names)

    assert len(done["snapshot_ids"]) == 3
    plain = read_metadata(damaged.warehouse)
    assert len(plain["metadata-log"]) == log + 1
    assert set(plain["refs"]) == {"main"}
    assert plain.get("statistics", []) == []
    assert damaged.ids == [0, 1, 2, 10, 11, 12]
    assert damaged.summary()["total-records"] == "6"
    assert damaged.codes() == set()
    assert damaged.repaired(*names)["status"] == "nothing-to-do"


@pytest.mark.parametrize("name", ["missing-files", "totals", "refs", "statistics", "E001"])
def test_a_table_without_damage_stays_as_it_is(damaged: Damaged, name: str) -> None:
    before = _state(damaged)

    assert damaged.repaired(name)["status"] == "nothing-to-do"

    assert _state(damaged) == before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--repair", "D001"), 3, "restore the file"),
        (("--repair", "l003"), 3, "restore the file"),
        (("--repair", "X999"), 2, "the repairs are"),
        (("--repair", "all"), 2, "the repairs are"),
        (("--repair", "refs", "--repair", "V001"), 3, "the repairs are"),
        (("--repair", "refs", "--files"), 2, ""),
        (("--yes",), 2, ""),
        (("--dry-run",), 2, ""),
        (("--branch", "audit"), 2, ""),
        (("--repair", "totals", "--branch", "none"), 7, ""),
    ],
)
def test_what_cannot_be_repaired_has_its_code_and_says_what_mends_it(
    damaged: Damaged, arguments: tuple[str, ...], code: int, text: str
) -> None:
    before = _state(damaged)

    result = damaged.lake("--json", "check", "db.t", *arguments)

    assert result.exit_code == code, result
    assert text in str(result.json()["error"]["hint"])
    assert _state(damaged) == before


def test_a_check_names_the_repair_of_what_it_found(damaged: Damaged) -> None:
    edit_metadata(damaged.warehouse, _ref("lost"))

    found = damaged.lake("--json", "check", "db.t").json()["result"]["findings"]
    read = damaged.lake("check", "db.t")

    assert [item["repair"] for item in found] == ["refs"]
    assert "check db.t --repair refs" in read.stdout + read.stderr


def test_people_see_the_rows_and_the_next_command(damaged: Damaged) -> None:
    damaged.files()[0].unlink()

    shown = damaged.lake("check", "db.t", "--repair", "missing-files")
    done = damaged.lake("check", "db.t", "--repair", "missing-files", "--yes")

    assert "p=x\t1\t1" in shown.stdout
    assert "would drop 1 missing data file with 1 row; nothing was changed" in shown.stderr
    assert "check db.t --repair missing-files --yes" in shown.stderr
    assert "dropped 1 missing data file with 1 row" in done.stderr
    assert "check db.t --files" in done.stderr


def _next_command(damaged: Damaged) -> list[str]:
    """Return the arguments of the command that a check prints as the next one."""
    done = damaged.lake("check", "db.t", "--files")
    text = " ".join((done.stdout + done.stderr).split())
    return shlex.split(text.partition("next: lake ")[2])


def _lose_rows_of_audit(damaged: Damaged) -> None:
    """Append rows 20 and 21 to the branch audit, and remove the file of row 20."""
    damaged.lake.ok("ref", "db.t", "--branch-create", "audit")
    before = files_below(damaged.warehouse)
    damaged.load((20, "x"), more=("--branch", "audit"))
    (lost,) = (name for name in files_below(damaged.warehouse) - before if "parquet" in name)
    damaged.load((21, "y"), more=("--branch", "audit"))
    Path(damaged.warehouse, lost).unlink()


def test_the_next_command_repairs_the_branch_that_is_damaged(damaged: Damaged) -> None:
    _lose_rows_of_audit(damaged)

    following = _next_command(damaged)
    shown = damaged.lake("--json", *following)

    assert following[-4:] == ["--repair", "missing-files", "--branch", "audit"]
    assert shown.json()["status"] == "dry-run"
    assert damaged.lake("--json", *following, "--yes").json()["status"] == "done"
    audit = damaged.table.refs()["audit"].snapshot_id
    assert ids_in(damaged.warehouse, snapshot_id=audit) == [0, 1, 2, 10, 11, 12, 21]
    # Only an older snapshot needs the file now: no repair mends it.
    assert not _next_command(damaged)


def test_the_next_command_repairs_main_before_other_branches(damaged: Damaged) -> None:
    damaged.files()[0].unlink()
    _lose_rows_of_audit(damaged)

    first = _next_command(damaged)
    damaged.lake.ok(*first, "--yes")
    second = _next_command(damaged)

    assert first[-2:] == ["--repair", "missing-files"]
    assert second[-4:] == ["--repair", "missing-files", "--branch", "audit"]
    assert damaged.lake("--json", *second, "--yes").json()["status"] == "done"
    assert damaged.ids == [1, 2, 10, 11, 12]


def test_the_next_command_drops_the_second_entries_of_a_branch(damaged: Damaged) -> None:
    head = damaged.table.current_snapshot().snapshot_id
    damaged.append_again(damaged.files()[0])
    damaged.lake.ok("ref", "db.t", "--branch-create", "audit")
    damaged.lake.ok("rollback", "db.t", str(head))

    (found,) = (
        item
        for item in damaged.lake("--json", "check", "db.t").json()["result"]["findings"]
        if item["code"] == "E001"
    )

    assert found["branch"] == "audit"
    assert _next_command(damaged)[-4:] == ["--repair", "duplicate-files", "--branch", "audit"]
