"""`lake clean`: exactly the files that nothing needs go, and they come back."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyiceberg.table.statistics import StatisticsFile
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture
from support.tables.iceberg_tables import ids_in, open_session, pyiceberg_catalog, pyiceberg_table
from support.tables.metadata_edits import edit_metadata
from support.tables.tidy_table import Tidy, of_failed_commit, planted_orphans

from lake.core.base.errors import StorageError
from lake.core.io.storage.storage import Storage
from lake.core.maintain.orphans import execute, trash
from lake.core.maintain.orphans.facts import CleaningResult
from lake.core.maintain.orphans.options import CleanOptions, Mode
from lake.core.maintain.orphans.plan import plan_cleaning

DAY = 24 * 3600


@pytest.fixture
def tidy(tmp_path: Path) -> Tidy:
    return Tidy(tmp_path)


def test_a_list_changes_nothing_and_names_the_files_and_the_next_command(tidy: Tidy) -> None:
    planted = planted_orphans(tidy)
    before = tidy.files()

    listed = tidy.clean()
    shown = tidy.lake("clean", "db.t", "--verbose")

    assert listed["status"] == "dry-run"
    assert listed["plan"]["orphans"] == len(planted)
    assert listed["plan"]["bytes"] == sum(path.stat().st_size for path in planted)
    assert all(path.name in shown.stdout for path in planted)
    assert "clean db.t --quarantine" in shown.stderr
    assert tidy.files() == before


@pytest.mark.parametrize("mode", ["--delete", "--quarantine"])
def test_exactly_the_orphan_files_go(tidy: Tidy, mode: str) -> None:
    before = tidy.files()
    planted = planted_orphans(tidy)

    done = tidy.clean(mode)["result"]

    assert done["deleted" if mode == "--delete" else "quarantined"] == len(planted)
    assert {name for name in tidy.files() if not name.startswith(".lake-trash")} == before
    assert tidy.ids == [1, 2, 3]
    assert tidy.clean(mode)["status"] == "nothing-to-do"


def test_files_that_were_moved_away_come_back_with_their_bytes(tidy: Tidy) -> None:
    planted = planted_orphans(tidy)
    contents = {path: path.read_bytes() for path in planted}
    run = tidy.clean("--quarantine")["result"]["run_id"]
    assert tidy.clean()["plan"]["trash"][0]["run_id"] == run
    planted[0].write_text("written again")

    some = tidy.lake("--json", "clean", "db.t", "--restore", run)
    assert some.exit_code == 6
    assert planted[0].read_text() == "written again"
    planted[0].unlink()
    tidy.lake.ok("clean", "db.t", "--restore", run)

    assert {path: path.read_bytes() for path in planted} == contents
    assert not (tidy.root / ".lake-trash").exists()
    assert tidy.clean("--restore", run)["status"] == "nothing-to-do"


def test_a_file_that_was_copied_back_and_not_yet_deleted_is_restored(tidy: Tidy) -> None:
    """A store moves a file by copying it: a process may be killed before it deletes the first copy."""
    planted = planted_orphans(tidy)
    contents = {path: path.read_bytes() for path in planted}
    run = tidy.clean("--quarantine")["result"]["run_id"]
    planted[0].write_bytes(contents[planted[0]])
    planted[1].write_bytes(bytes(byte ^ 1 for byte in contents[planted[1]]))

    some = tidy.lake("--json", "clean", "db.t", "--restore", run)
    assert some.exit_code == 6
    assert some.json()["result"]["present"] == 1
    planted[1].unlink()
    tidy.lake.ok("clean", "db.t", "--restore", run)

    assert {path: path.read_bytes() for path in planted} == contents
    assert not (tidy.root / ".lake-trash").exists()


def test_a_run_that_fails_before_it_moves_a_file_leaves_no_list(tidy: Tidy) -> None:
    planted_orphans(tidy)
    before = tidy.files()

    with patch.object(execute, "_still_orphans", side_effect=StorageError("no answer")):
        failed = tidy.lake("clean", "db.t", "--max-share", "100%", "--quarantine")

    assert failed.exit_code == 7, failed
    assert tidy.files() == before
    assert not (tidy.root / ".lake-trash").exists()


def test_a_purge_deletes_the_trash_permanently(tidy: Tidy) -> None:
    planted_orphans(tidy)
    run = tidy.clean("--quarantine")["result"]["run_id"]

    assert tidy.clean("--purge-older-than", "1d")["status"] == "nothing-to-do"
    purged = tidy.clean("--purge", run)["result"]

    assert (purged["runs"], purged["failed"]) == (1, 0)
    assert not (tidy.root / ".lake-trash").exists()
    assert tidy.ids == [1, 2, 3]


def test_a_purge_reports_the_bytes_that_it_deleted(tidy: Tidy) -> None:
    planted = planted_orphans(tidy)
    size = sum(path.stat().st_size for path in planted)
    run = tidy.clean("--quarantine")["result"]["run_id"]
    moved = next((tidy.root / ".lake-trash").rglob(planted[0].name))
    real = Storage._delete_one

    def refuse(storage: Storage, location: str, *rest: Any) -> str | None:
        return "refused" if location.endswith(moved.name) else real(storage, location, *rest)

    with patch.object(Storage, "_delete_one", refuse):
        refused = tidy.lake("--json", "clean", "db.t", "--purge", run)
    again = tidy.clean("--purge", run)["result"]

    assert refused.exit_code == 6
    remaining = again["bytes"]
    assert remaining > 0
    assert refused.json()["result"]["bytes"] + remaining == size
    assert again["failed"] == 0


def test_other_unreferenced_files_are_kept_with_their_reason(tidy: Tidy) -> None:
    other = json.loads(newest_metadata(tidy).read_text()) | {"table-uuid": str(uuid.uuid4())}
    kept = {
        "young": [tidy.plant("data/young.parquet", days=1)],
        "hidden": [tidy.plant("data/_tmp/x.parquet"), tidy.plant(".backup/x.parquet")],
        "excluded": [tidy.plant("data/export/x.parquet")],
        "outside": [tidy.plant("copies/x.parquet")],
        "lake": [tidy.plant("metadata/lake-journal-1.json")],
        "metadata": [
            tidy.plant("metadata/version-hint.text"),
            tidy.plant(
                f"metadata/99999-{uuid.uuid4()}.metadata.json",
                text=of_failed_commit(newest_text(tidy)),
            ),
            tidy.plant("nested/metadata/00000-a.metadata.json", text=json.dumps(other)),
        ],
        "other-table": [tidy.plant("data/nested/data/x.parquet")],
    }
    tidy.plant("data/nested/metadata/00000-a.metadata.json", text=json.dumps(other))
    before = tidy.files()

    done = tidy.clean("--delete", "--exclude", "data/export/*")

    counts = {reason: len(paths) for reason, paths in kept.items()}
    counts["metadata"] += 1
    assert done["plan"]["kept"] == dict(sorted({**counts, "lake": counts["lake"] + 1}.items()))
    assert done["status"] == "nothing-to-do"
    assert tidy.files() == before


def newest_metadata(tidy: Tidy) -> Path:
    location = open_session(tidy.warehouse).table("db.t").metadata_location
    return Path(location.removeprefix("file://"))


def newest_text(tidy: Tidy) -> str:
    return newest_metadata(tidy).read_text()


def test_files_of_earlier_metadata_files_are_kept(tidy: Tidy) -> None:
    tidy.lake.ok(
        *("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1"),
        "--keep-files",
    )
    for path in tidy.root.rglob("*"):
        os.utime(path, (0, 0))

    assert tidy.clean()["plan"]["orphans"] == 0


@pytest.mark.parametrize("name", flink_fixtures.names())
def test_files_of_uncommitted_checkpoints_are_kept(
    name: str, flink_lent: Callable[[str], FlinkFixture]
) -> None:
    fixture = flink_lent(name)
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)
    age = ("--older-than", "0s", "--unsafe-retention", "--max-share", "100%")
    before = replay_plan(fixture, lake)

    lake.ok("clean", fixture.table, "--delete", *age)

    assert replay_plan(fixture, lake) == before


def replay_plan(fixture: FlinkFixture, lake: CommandLine) -> dict[str, Any]:
    """Return what a replay of the newest checkpoint would commit, after it has checked all of its files."""
    checkpoint = fixture.truth["replay"].get("from_checkpoint")
    named = ["--checkpoint", fixture.root / checkpoint] if checkpoint else []
    overwrites = ["--replace-partitions"] if named and fixture.name.startswith("f") else []
    return dict(lake.ok("replay", fixture.table, *named, *overwrites, "--dry-run")["plan"])


def test_files_of_a_staged_run_are_kept(tidy: Tidy, tmp_path: Path) -> None:
    file = tmp_path / "4.csv"
    file.write_text("id,name\n4,a\n")
    tidy.lake.ok("ingest", "db.t", file, "--stage", "--run-id", "r")
    for path in tidy.root.rglob("*"):
        os.utime(path, (0, 0))

    assert tidy.clean("--delete")["plan"]["kept"]["checkpoint"] == 2

    tidy.lake.ok("replay", "db.t", "--all-staged")
    assert tidy.ids == [1, 2, 3, 4]


def test_the_list_names_the_staged_run_that_needs_files(tidy: Tidy, tmp_path: Path) -> None:
    file = tmp_path / "4.csv"
    file.write_text("id,name\n4,a\n")
    tidy.lake.ok("ingest", "db.t", file, "--stage", "--run-id", "r")

    shown = tidy.lake("clean", "db.t")

    assert "kept 2 of checkpoints" in shown.stderr + shown.stdout
    assert "uncommitted checkpoints and staged runs need 2 files (checkpoint 1 of job " in (
        shown.stderr + shown.stdout
    )


@pytest.mark.parametrize("mode", [(), ("--quarantine",), ("--delete",)])
@pytest.mark.parametrize("name", ["report.parquet", "report.csv"])
def test_a_report_names_each_file_with_its_reason(
    tidy: Tidy, tmp_path: Path, name: str, mode: Sequence[str]
) -> None:
    orphans = {str(path): path.stat().st_size for path in planted_orphans(tidy)}
    young = tidy.plant("data/young.parquet", days=1)

    tidy.clean(*mode, "--output", tmp_path / name)

    read = pq.read_table if name.endswith("parquet") else csv.read_csv
    rows = read(tmp_path / name).to_pylist()
    found = {row["path"].removeprefix("file://"): row for row in rows}
    assert {path: row["bytes"] for path, row in found.items() if row["reason"] == "orphan"} == (
        orphans
    )
    assert found[str(young)]["reason"] == "young"
    assert {row["kind"] for row in rows} == {
        *("data_files", "manifests", "manifest_lists", "metadata_files", "statistics_files")
    }


def test_a_report_is_a_file_outside_the_table(tidy: Tidy, tmp_path: Path) -> None:
    lost = tidy.plant("data/lost.parquet")
    run = str(uuid.uuid4())
    for code, path, more in (
        (3, tidy.root / "data" / "report.csv", ("--delete",)),
        (2, tmp_path / "folder", ("--delete",)),
        (2, "-", ("--delete",)),
        (2, tmp_path / "report.csv", ("--restore", run)),
    ):
        assert tidy.lake("clean", "db.t", "--output", path, *more).exit_code == code
    assert lost.exists()


def test_an_unreadable_manifest_of_a_checkpoint_stops_the_run(tidy: Tidy) -> None:
    name = f"{'0' * 32}-{'1' * 32}-00000-0-1-00001.avro"
    tidy.plant(f"metadata/{name}", text="not avro")
    lost = tidy.plant("data/lost.parquet")

    failed = tidy.lake("--json", "clean", "db.t", "--delete", "--max-share", "100%")

    assert failed.exit_code == 7
    assert name in failed.json()["error"]["message"]
    assert lost.exists()


@pytest.mark.parametrize("ref", ["main", "tag"])
def test_a_ref_that_names_a_snapshot_that_the_table_lacks_stops_the_run(
    tidy: Tidy, ref: str
) -> None:
    tidy.lake.ok("ref", "db.t", "--tag", "tag")

    def lose(plain: dict[str, Any]) -> None:
        *others, last = plain["snapshots"]
        plain["snapshots"], plain["metadata-log"] = others, []
        if ref == "tag":
            plain["current-snapshot-id"] = others[-1]["snapshot-id"]
            plain["refs"]["main"]["snapshot-id"] = others[-1]["snapshot-id"]
        else:
            plain["refs"]["tag"]["snapshot-id"] = others[-1]["snapshot-id"]
        assert plain["refs"][ref]["snapshot-id"] == last["snapshot-id"]

    edit_metadata(tidy.warehouse, lose)
    before = tidy.files()

    failed = tidy.lake(
        *("--json", "clean", "db.t", "--delete", "--max-share", "100%"),
        *("--older-than", "0s", "--unsafe-retention"),
    )

    assert failed.exit_code == 7, failed
    assert failed.json()["error"]["message"].startswith(f"{ref} points to snapshot")
    assert tidy.files() == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--older-than", "1h"], 3),
        (["--max-share", "5%", "--delete"], 3),
        (["--max-share", "150%"], 2),
        (["--quarantine", "--delete"], 2),
        (["--restore", "x", "--dry-run"], 2),
        (["--restore", "../../../etc"], 7),
        (["--purge", "8f6ef118"], 7),
        (["--prefix-mismatch", "delete"], 2),
        (["--older-than", "soon"], 2),
        (["--equal-schemes", "a://=b"], 2),
        (["--equal-authorities", "a=b", "--equal-authorities", "b=c"], 2),
        (["--inventory", "/nowhere/at/all.parquet"], 7),
        (["--inventory", "/dev"], 7),
    ],
)
def test_what_is_not_allowed_has_its_code(tidy: Tidy, arguments: Sequence[str], code: int) -> None:
    lost = tidy.plant("data/lost.parquet")

    assert tidy.lake("--json", "clean", "db.t", *arguments).exit_code == code
    assert lost.exists()


def test_the_metadata_of_another_table_in_the_folder_stops_the_run(tidy: Tidy) -> None:
    other = json.loads(newest_text(tidy)) | {"table-uuid": str(uuid.uuid4())}
    path = tidy.plant("metadata/00000-x.metadata.json", text=json.dumps(other))
    lost = tidy.plant("data/lost.parquet")

    failed = tidy.lake("--json", "clean", "db.t", "--delete", "--max-share", "100%")

    assert failed.exit_code == 3
    assert path.name in failed.json()["error"]["message"]
    assert lost.exists()


def test_a_further_folder_is_cleaned_unless_it_is_another_tables(
    tidy: Tidy, tmp_path: Path
) -> None:
    old = tmp_path / "old" / "place"
    lost = old / "data" / "lost.parquet"
    lost.parent.mkdir(parents=True)
    lost.write_text("x")
    os.utime(lost, (0, 0))
    other = tidy.warehouse / "db" / "u"
    file = tmp_path / "1.csv"
    tidy.lake.ok("ingest", "db.u", file, "--create")
    for path in other.rglob("*"):
        os.utime(path, (0, 0))

    refused = tidy.lake("--json", "clean", "db.t", "--delete", "--location", str(other))
    done = tidy.clean("--quarantine", "--location", str(old))

    assert refused.exit_code == 3
    assert done["result"]["quarantined"] == 1
    assert not lost.exists()
    assert sorted(ids_in(tidy.warehouse, "db.u")) == [1]


@pytest.mark.parametrize("folder", ["/", ".", "warehouse", "warehouse/db/../", "/tmp", "file:///"])
def test_a_further_folder_that_contains_the_table_is_refused(
    tidy: Tidy, tmp_path: Path, folder: str
) -> None:
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0))
    before = set(tmp_path.rglob("*"))

    refused = tidy.lake(
        *("--json", "clean", "db.t", "--delete", "--max-share", "100%", "--location", folder)
    )

    assert refused.exit_code == 3, refused
    assert "--location" in refused.json()["error"]["message"]
    assert before <= set(tmp_path.rglob("*"))


def test_a_table_without_snapshots_keeps_its_files(tmp_path: Path) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    catalog = pyiceberg_catalog(tmp_path / "warehouse")
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    folder = Path(made.location().removeprefix("file://")) / "data"
    folder.mkdir(parents=True)
    lost = folder / "lost.parquet"
    lost.write_text("x")
    os.utime(lost, (0, 0))

    assert lake("--json", "clean", "db.t", "--delete", "--max-share", "100%").exit_code == 3
    assert lost.exists()


def test_a_file_that_becomes_referenced_meanwhile_stays(tidy: Tidy) -> None:
    """A writer commits an old file, as the addition of existing files does, after the plan was made."""
    data = next((tidy.root / "data").glob("*.parquet"))
    old = tidy.plant("data/old.parquet")
    old.write_bytes(data.read_bytes())
    os.utime(old, (0, 0))
    lost = tidy.plant("data/lost.parquet")
    session = open_session(tidy.warehouse)
    options = CleanOptions(
        older_than=session.clock.now_ms() - 7 * DAY * 1000, mode=Mode.DELETE, max_share=1.0
    )
    plan = plan_cleaning(session, session.table("db.t"), options)
    assert plan.files.num_rows == 2
    pyiceberg_table(tidy.warehouse).add_files([f"file://{old}"])

    done = execute.execute(session, plan, session.ids.uuid())

    assert CleaningResult.of(done.result).deleted == 1
    assert old.exists()
    assert not lost.exists()


def test_an_earlier_metadata_file_that_a_commit_removes_meanwhile_is_not_damage(
    tidy: Tidy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables with `write.metadata.delete-after-commit.enabled` lose such a file at each commit."""
    lost = tidy.plant("data/lost.parquet")
    oldest = min((tidy.root / "metadata").glob("*.metadata.json"))
    read = Storage.read

    def removed(self: Storage, location: str, **named: Any) -> bytes:
        if location.endswith(oldest.name):
            oldest.unlink()
        return read(self, location, **named)

    monkeypatch.setattr(Storage, "read", removed)
    assert tidy.clean("--delete")["result"]["deleted"] == 1
    assert not oldest.exists()
    assert not lost.exists()
    assert tidy.ids == [1, 2, 3]


def test_a_path_with_another_authority_stops_the_run(tidy: Tidy) -> None:
    """The table references a file in a store whose path is that of a listed file."""
    lost = tidy.plant("data/lost.parquet")
    table = pyiceberg_table(tidy.warehouse)
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=table.metadata.current_snapshot_id,
                statistics_path=f"s3://bucket{lost}",
                file_size_in_bytes=1,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )

    refused = tidy.lake("--json", "clean", "db.t", "--delete", "--max-share", "100%")
    done = tidy.clean("--delete", "--prefix-mismatch", "ignore")

    assert refused.exit_code == 3
    assert done["plan"]["kept"]["prefix-mismatch"] == 1
    assert lost.exists()


def test_a_run_that_is_stopped_while_it_moves_files_leaves_a_list_of_all(
    tidy: Tidy, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = planted_orphans(tidy)
    contents = {path: path.read_bytes() for path in planted}
    moves = iter(range(3))
    move = trash.move

    def stopped(*arguments: Any) -> None:
        if next(moves, None) is None:
            raise KeyboardInterrupt
        move(*arguments)

    monkeypatch.setattr(trash, "move", stopped)
    tidy.lake("clean", "db.t", "--quarantine", "--max-share", "100%")
    monkeypatch.setattr(trash, "move", move)
    assert sum(path.exists() for path in planted) == len(planted) - 3
    (run,) = tidy.clean()["plan"]["trash"]

    tidy.lake.ok("clean", "db.t", "--restore", run["run_id"])

    assert {path: path.read_bytes() for path in planted} == contents


def test_a_changed_list_moves_nothing_out_of_the_table(tidy: Tidy, tmp_path: Path) -> None:
    tidy.plant("data/lost.parquet")
    run = tidy.clean("--quarantine")["result"]["run_id"]
    file = tidy.root / ".lake-trash" / run / "files.parquet"
    listed = pq.read_table(file)
    index = listed.schema.get_field_index("path")
    changed = listed.set_column(index, "path", [[f"file://{tmp_path}/stolen"]])
    pq.write_table(changed, file)

    assert tidy.lake("--json", "clean", "db.t", "--restore", run).exit_code == 7
    assert not (tmp_path / "stolen").exists()


def test_few_orphan_files_with_most_of_the_bytes_are_refused(tidy: Tidy) -> None:
    large = tidy.plant("data/lost.parquet", text="x" * 1_000_000)
    every = [path for path in tidy.root.rglob("*") if path.is_file()]
    share = large.stat().st_size / sum(path.stat().st_size for path in every)

    refused = tidy.lake("clean", "db.t", "--delete", "--max-share", f"{share * 100 - 1:.3f}%")
    assert refused.exit_code == 3
    assert f"are orphans ({share:.0%} of the files or bytes)" in refused.stderr
    assert large.exists()

    tidy.lake.ok("clean", "db.t", "--delete", "--max-share", f"{share * 100 + 0.01:.3f}%")
    assert not large.exists()


def test_a_listing_without_the_current_metadata_file_stops_the_run(
    tidy: Tidy, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(tidy.warehouse)
    table = session.table("db.t")
    monkeypatch.setattr(type(table.storage), "each_batch", lambda *_, **__: [])
    options = CleanOptions(older_than=0)

    with pytest.raises(StorageError, match="lacks"):
        plan_cleaning(session, table, options)
