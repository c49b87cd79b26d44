"""`lake ingest` in two phases: what is written waits, is committed once, or goes without a trace."""

from __future__ import annotations

import json
import os
import shlex
import threading
from itertools import product
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.faults.killed_runs import (
    BETWEEN,
    LAYING_DOWN,
    SENDING,
    SENT,
    killed,
    temporary_manifests,
)
from support.tables.built_once import BuiltOnce
from support.tables.change_logs import Model, shown, write_log
from support.tables.iceberg_tables import (
    after,
    files_below,
    inject,
    make_table,
    open_session,
    pyiceberg_table,
    refused_with,
)
from support.tiers import chosen, examples

from lake.core.base.errors import StorageError
from lake.core.load.ingest import recovery
from lake.core.table.flink.commits import LAKE_OPERATOR_ID, job_id_of
from lake.core.transaction.staging import claims, operation_files
from lake.core.transaction.staging.operation_files import Staging
from lake.core.transaction.staging.staged_run import StagedRun

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType(), required=True),
    NestedField(3, "value", LongType(), required=True),
    identifier_field_ids=[1],
)
SPECS = {
    "unpartitioned": (PartitionSpec(), "id"),
    "by part": (PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part")), "id,part"),
    "by bucket": (PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b")), "id"),
}
RUN = "nightly 2026-01-31"
APPEND: tuple[str, ...] = ()
UPSERT = ("--upsert", "--deletes", "equality")
CHANGES = ("--changes-column", "op", "--changes-mode", "upsert")
RETRACT = ("--changes-column", "op", "--changes-mode", "retract")
LOG = [
    {"op": "+I", "id": 1, "part": "x", "value": 10},
    {"op": "+I", "id": 2, "part": "y z", "value": 20},
    {"op": "+U", "id": 1, "part": "x", "value": 11},
    {"op": "-D", "id": 2, "part": "y z", "value": 20},
    {"op": "+I", "id": 3, "part": "é", "value": 30},
]
ROWS = [{"id": 7, "part": "x", "value": 70}, {"id": 8, "part": "é", "value": 80}]


def source(tmp_path: Path, mode: tuple[str, ...], suffix: str = ".parquet") -> Path:
    """A change log for the modes that read one, else plain rows."""
    if mode in {CHANGES, RETRACT}:
        return write_log(tmp_path / f"log{suffix}", LOG)
    path = tmp_path / f"rows{suffix}"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    return path


def _build(folder: Path) -> None:
    made = make_table(folder / "warehouse", schema=SCHEMA)
    rows = [{"id": 1, "part": "x", "value": 0}, {"id": 9, "part": "x", "value": 90}]
    made.append(pa.Table.from_pylist(rows, made.schema().as_arrow()))


@pytest.fixture
def table(built_once: BuiltOnce) -> CommandLine:
    """An unpartitioned table with two rows."""
    return CommandLine(built_once.folder("table", _build) / "warehouse")


def heads(lake: CommandLine) -> list[str]:
    return [row["snapshot_id"] for row in lake.ok("snapshots", "db.t")["result"]["snapshots"]]


# What is laid down


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_staged_run_leaves_what_a_sink_of_flinks_leaves(
    lake: CommandLine, tmp_path: Path, version: str
) -> None:
    made = make_table(lake.warehouse, schema=SCHEMA, format_version=version)
    mode = APPEND if version == "1" else CHANGES
    before = files_below(lake.warehouse)

    document = lake.ok("ingest", "db.t", source(tmp_path, mode), *mode, "--stage", "--run-id", RUN)

    result = document["result"]
    assert (document["status"], document["snapshot_ids"]) == ("done", [])
    assert (result["job_id"], result["checkpoint_id"]) == (job_id_of(RUN), "1")
    assert lake.table().current_snapshot() is None
    found = temporary_manifests(lake.warehouse)
    name = f"{job_id_of(RUN)}-{LAKE_OPERATOR_ID}-00000-0-1"
    kinds = ["data", "deletes"] if result["delete_files"] else ["data"]
    assert [path.name for path in found] == [
        f"{name}-{n:05}.avro" for n in range(1, len(kinds) + 1)
    ]
    assert {path.parent for path in found} == {
        Path(made.metadata_location.removeprefix("file://")).parent
    }
    listed = []
    for path, kind in zip(found, kinds, strict=True):
        with path.open("rb") as stream:
            reader = fastavro.reader(stream)
            header = reader.metadata
            entries = list(reader)
        assert header["format-version"] == version
        assert header.get("content") == (None if version == "1" else kind)
        assert header["lake.run-id"] == RUN
        assert json.loads(header["schema"])["fields"]
        assert (header["partition-spec-id"], header["partition-spec"]) == ("0", "[]")
        for entry in entries:
            assert (entry["status"], entry["snapshot_id"]) == (1, 0)
            assert entry.get("sequence_number") is entry.get("file_sequence_number") is None
            listed.append(entry["data_file"]["file_path"])
    written = files_below(lake.warehouse) - before
    assert {path.removeprefix(f"file://{lake.warehouse}/") for path in listed} == {
        path for path in written if not path.endswith(".avro")
    }


def test_manifests_are_written_where_flinks_would_be(lake: CommandLine, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    make_table(lake.warehouse, schema=SCHEMA, flink__manifests__location=f"file://{place}/")
    before = files_below(lake.warehouse)

    lake.ok("ingest", "db.t", source(tmp_path, APPEND), "--stage", "--run-id", RUN)

    assert len(temporary_manifests(place)) == 1
    lake.ok("ingest", "db.t", "--discard", RUN)
    assert list(place.iterdir()) == []
    assert files_below(lake.warehouse) == before


def test_a_run_without_an_id_gets_one_that_finds_it(table: CommandLine, tmp_path: Path) -> None:
    before = files_below(table.warehouse)
    path = source(tmp_path, APPEND)
    one, two = (table.ok("ingest", "db.t", path, "--stage")["result"] for _ in range(2))

    assert one["job_id"] == one["run_id"].replace("-", "") != two["job_id"]
    table.ok("ingest", "db.t", "--discard", one["job_id"])
    table.ok("ingest", "db.t", "--discard", two["run_id"])
    assert files_below(table.warehouse) == before


def test_the_text_output_shows_the_names_of_a_staged_run(
    table: CommandLine, tmp_path: Path
) -> None:
    shown_to_people = table("ingest", "db.t", source(tmp_path, APPEND), "--stage", "--run-id", RUN)

    assert f"--job {job_id_of(RUN)} --completed 1" in shown_to_people.stdout


def test_the_command_that_is_shown_commits_a_run_to_its_branch(
    table: CommandLine, tmp_path: Path
) -> None:
    table.ok("ref", "db.t", "--branch-create", "side")
    path = source(tmp_path, APPEND)
    staged = table("ingest", "db.t", path, "--stage", "--run-id", RUN, "--branch", "side")
    (line,) = [text for text in staged.stdout.splitlines() if text.startswith("next: lake ")]

    done = table(*shlex.split(line)[2:])

    assert done.exit_code == 0, done
    assert len(table.scanned("--branch", "side")) == 4
    assert len(table.scanned()) == 2


def test_a_source_without_rows_leaves_nothing(table: CommandLine, tmp_path: Path) -> None:
    path, before = tmp_path / "empty.csv", files_below(table.warehouse)
    path.write_text("id,part,value\n")

    document = table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)

    assert document["status"] == "nothing-to-do"
    assert files_below(table.warehouse) == before


@pytest.mark.parametrize(
    "options",
    [
        ("--overwrite",),
        ("--overwrite-where", "id > 1"),
        ("--replace-partitions",),
        ("--create",),
        ("--upsert", "--key", "id"),
        ("--upsert", "--key", "id", "--deletes", "copy-on-write"),
        ("--evolve",),
    ],
    ids=str,
)
def test_what_needs_the_table_as_it_is_cannot_be_staged(
    table: CommandLine, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path, before = tmp_path / "rows.parquet", files_below(table.warehouse)
    pq.write_table(pa.Table.from_pylist([{**row, "extra": 1} for row in ROWS]), path)

    result = table("--json", "ingest", "db.t", path, "--stage", *options)

    assert result.exit_code == 2, result
    assert "--stage" in result.json()["error"]["message"]
    assert files_below(table.warehouse) == before


def test_evolve_without_new_columns_can_be_staged(table: CommandLine, tmp_path: Path) -> None:
    document = table.ok("ingest", "db.t", source(tmp_path, APPEND), "--stage", "--evolve")

    assert document["result"]["data_files"] == 1


# Finished


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("by bucket", "3"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in chosen(
                [("unpartitioned", "2"), ("by part", "2")],
                [one for one in product(SPECS, ("2", "3")) if one != ("by bucket", "3")],
            )
        ),
    ],
)
@pytest.mark.parametrize(
    "mode", [APPEND, UPSERT, CHANGES, RETRACT], ids=lambda mode: "".join(mode[-1:])
)
def test_a_staged_run_that_is_finished_or_replayed_leaves_what_an_ingest_does(
    lake: CommandLine, tmp_path: Path, mode: tuple[str, ...], spec: str, version: str
) -> None:
    partitions, key = SPECS[spec]
    keyed = ("--key", key) if mode else ()
    model = Model(key.split(","), seed=3)
    log = model.retractions if mode == RETRACT else model.upserts
    paths = [
        write_log(tmp_path / f"log{n}{s}", log(40)) for n, s in enumerate([".csv", ".parquet"])
    ]
    if mode in {APPEND, UPSERT}:
        for path in paths:
            rows = [dict(row, op=None) for row in model.retractions(30) if row["op"] != "-D"]
            columns = pa.Table.from_pylist(rows).drop_columns(["op"])
            _write(path, columns)
    names = ("db.plain", "db.t", "db.replayed")
    for name in names:
        make_table(lake.warehouse, name, schema=SCHEMA, spec=partitions, format_version=version)

    for path in paths:
        lake.ok("ingest", "db.plain", path, *mode, *keyed)
        lake.ok("ingest", "db.t", path, *mode, *keyed, "--stage", "--run-id", path.name)
        staged = lake.ok("ingest", "db.replayed", path, *mode, *keyed, "--stage")["result"]
        path.unlink()
        word = ("--job", staged["job_id"], "--completed", "1")
        assert lake.ok("replay", "db.replayed", *word)["result"]["committed_checkpoints"] == 1
        done = lake.ok("ingest", "db.t", path, *mode, *keyed, "--run-id", path.name)
        assert done["status"] == "done"
        assert "not read again" in done["warnings"][0]

    assert temporary_manifests(lake.warehouse) == []
    plain, finished, replayed = (_rows(lake, tmp_path, name) for name in names)
    assert finished == replayed == plain != []
    summaries = [_summaries(lake, name) for name in names]
    assert summaries[0] == summaries[1] == summaries[2]


def _write(path: Path, rows: pa.Table) -> None:
    if path.suffix == ".csv":
        pa.csv.write_csv(rows, path)
    else:
        pq.write_table(rows, path)


def _rows(lake: CommandLine, tmp_path: Path, name: str) -> list[str]:
    out = tmp_path / "rows.json"
    lake.ok("scan", name, "--output", out, "--output-format", "json", "--replace")
    return shown([json.loads(line) for line in out.read_text().splitlines()])


def _summaries(lake: CommandLine, name: str) -> list[dict[str, str]]:
    """Return the summaries of snapshots without ids and without sizes of files, which depend on names."""
    found = []
    for snapshot in lake.table(name).snapshots():
        assert snapshot.summary
        summary = snapshot.summary.additional_properties
        kept = {
            key: value
            for key, value in summary.items()
            if "size" not in key and not key.startswith(("lake.", "flink."))
        }
        found.append({"operation": snapshot.summary.operation.value, **kept})
    return found


def test_version_one_can_only_stage_rows(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA, format_version="1")
    path = source(tmp_path, APPEND)

    lake.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    document = lake.ok("ingest", "db.t", path, "--run-id", RUN)

    assert (document["status"], document["result"]["rows_written"]) == ("done", 2)
    assert shown(lake.scanned()) == shown(ROWS)


def test_staging_a_run_twice_writes_it_once(table: CommandLine, tmp_path: Path) -> None:
    path = source(tmp_path, APPEND)
    one = table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    before = files_below(table.warehouse)

    two = table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)

    assert (two["status"], two["result"]["job_id"]) == ("nothing-to-do", one["result"]["job_id"])
    assert files_below(table.warehouse) == before


def test_a_finished_run_is_never_loaded_again(table: CommandLine, tmp_path: Path) -> None:
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    statuses = [table.ok("ingest", "db.t", path, "--run-id", RUN)["status"] for _ in range(3)]
    again = table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)

    assert statuses == ["done", "nothing-to-do", "nothing-to-do"]
    assert again["status"] == "nothing-to-do"
    assert len(table.scanned()) == 4


@pytest.mark.parametrize(
    "mode",
    [("--overwrite",), ("--overwrite-where", "part = 'a'"), ("--replace-partitions",)],
    ids=lambda mode: mode[0],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["", "dry"])
def test_a_load_that_replaces_rows_does_not_finish_a_staged_append(
    table: CommandLine, tmp_path: Path, mode: tuple[str, ...], dry: tuple[str, ...]
) -> None:
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    before = files_below(table.warehouse)

    result = table("--json", "ingest", "db.t", path, *mode, *dry, "--run-id", RUN)

    assert (result.exit_code, result.json()["error"]["kind"]) == (3, "refused")
    assert "its rows replace no others" in result.json()["error"]["message"]
    assert files_below(table.warehouse) == before
    table.ok("ingest", "db.t", path, "--run-id", RUN)
    assert [row["id"] for row in table.rows(by="id")] == [1, 7, 8, 9]


def test_a_dry_run_of_a_staged_run_changes_nothing(table: CommandLine, tmp_path: Path) -> None:
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    before = files_below(table.warehouse)

    load = table.ok("ingest", "db.t", path, "--run-id", RUN, "--dry-run")
    discard = table.ok("ingest", "db.t", "--discard", RUN, "--dry-run")

    assert (load["status"], discard["status"]) == ("dry-run", "dry-run")
    assert discard["plan"]["data_files"] == 1
    assert files_below(table.warehouse) == before


def test_a_run_is_finished_on_the_branch_that_it_was_written_for(
    table: CommandLine, tmp_path: Path
) -> None:
    made = pyiceberg_table(table.warehouse)
    made.manage_snapshots().create_branch(made.current_snapshot().snapshot_id, "side").commit()
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN, "--branch", "side")

    wrong = table("--json", "ingest", "db.t", path, "--run-id", RUN)
    right = table.ok("ingest", "db.t", path, "--run-id", RUN, "--branch", "side")

    assert wrong.exit_code == 2
    assert right["status"] == "done"
    assert len(table.scanned()) == 2


def test_a_run_whose_history_has_expired_is_not_committed(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    for _ in range(3):
        table.ok("ingest", "db.t", path)
    table.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    before = files_below(table.warehouse)

    result = table("--json", "ingest", "db.t", path, "--run-id", RUN)

    assert result.exit_code == 3
    assert "--discard" in result.json()["error"]["hint"]
    assert files_below(table.warehouse) == before


# Killed


@pytest.mark.slow
@pytest.mark.parametrize("mode", [APPEND, UPSERT, CHANGES], ids=lambda mode: "".join(mode[-1:]))
def test_a_run_killed_before_its_commit_is_finished_by_the_next_without_its_source(
    table: CommandLine, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    path, before = source(tmp_path, mode), heads(table)
    killed(table, SENDING, "ingest", "db.t", path, *mode, "--run-id", RUN)
    assert heads(table) == before
    assert len(temporary_manifests(table.warehouse)) == (2 if mode else 1)
    path.unlink()

    document = table.ok("ingest", "db.t", path, *mode, "--run-id", RUN)

    assert document["status"] == "done"
    assert len(heads(table)) == len(before) + 1
    assert _unreachable(table) == set()
    expected = {
        APPEND: {1: 0, 7: 70, 8: 80, 9: 90},
        UPSERT: {1: 0, 7: 70, 8: 80, 9: 90},
        CHANGES: {1: 11, 3: 30, 9: 90},
    }[mode]
    assert {row["id"]: row["value"] for row in table.scanned()} == expected


def _unreachable(lake: CommandLine) -> set[str]:
    """Files that the table's metadata does not reach, by PyIceberg's reading."""
    table = lake.table()
    found = {table.metadata_location, *(log.metadata_file for log in table.metadata.metadata_log)}
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            found.update(entry.data_file.file_path for entry in entries)
    return files_below(lake.warehouse) - {
        path.removeprefix(f"file://{lake.warehouse}/") for path in found
    }


@pytest.mark.slow
@pytest.mark.parametrize("mode", [APPEND, UPSERT, CHANGES], ids=lambda mode: "".join(mode[-1:]))
def test_a_run_killed_after_its_commit_is_tidied_by_the_next(
    table: CommandLine, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    path = source(tmp_path, mode)
    killed(table, SENT, "ingest", "db.t", path, *mode, "--run-id", RUN)
    before, rows = heads(table), table.scanned()
    assert temporary_manifests(table.warehouse) != []

    document = table.ok("ingest", "db.t", path, *mode, "--run-id", RUN)

    assert (document["status"], heads(table)) == ("nothing-to-do", before)
    assert temporary_manifests(table.warehouse) == []
    assert table.scanned() == rows


@pytest.mark.parametrize("trouble", ["expiry", "storage"])
def test_a_run_that_is_finished_is_done_whatever_becomes_of_its_remains(
    table: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    path = source(tmp_path, APPEND)

    def silent(_: Any) -> Any:
        raise ConnectionError("no answer")

    assert table.with_faults(silent)("ingest", "db.t", path, "--run-id", RUN).exit_code == 5
    real = claims.remove_manifests

    def troubled(*arguments: Any) -> list[str]:
        failed = real(*arguments)
        if trouble == "storage":
            raise StorageError("the storage is gone")
        table.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
        return failed

    monkeypatch.setattr(claims, "remove_manifests", troubled)
    document = table.ok("ingest", "db.t", path, "--run-id", RUN)

    assert document["status"] == "done"
    assert ("the storage is gone" in str(document["warnings"])) == (trouble == "storage")
    assert sorted(row["id"] for row in table.scanned()) == [1, 7, 8, 9]
    assert trouble == "storage" or _unreachable(table) == set()


@pytest.mark.parametrize("trouble", ["expiry", "storage"])
@pytest.mark.parametrize("other", ["finishes it", "loads it"])
def test_a_run_that_another_process_commits_is_done_whatever_becomes_of_its_files(
    table: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, trouble: str
) -> None:
    path, rest = source(tmp_path, APPEND), tmp_path / "rest.csv"
    rest.write_text("id,part,value\n5,x,50\n")
    publish, delete = Staging.publish_manifests, operation_files.delete_unreferenced

    def overtaken(staging: Staging, run: StagedRun) -> None:
        monkeypatch.setattr(Staging, "publish_manifests", publish)
        if other == "finishes it":
            staging.publish_manifests(run)
        assert table.ok("ingest", "db.t", path, "--run-id", RUN)["status"] == "done"
        table.ok("ingest", "db.t", rest)
        if other == "loads it":
            staging.publish_manifests(run)

    def troubled(*arguments: Any, **named: Any) -> Any:
        if trouble == "storage":
            raise StorageError("the storage is gone")
        table.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
        return delete(*arguments, **named)

    monkeypatch.setattr(Staging, "publish_manifests", overtaken)
    monkeypatch.setattr(operation_files, "delete_unreferenced", troubled)
    document = table.ok("ingest", "db.t", path, "--run-id", RUN)

    assert document["status"] == "nothing-to-do"
    assert ("the storage is gone" in str(document["warnings"])) == (trouble == "storage")
    assert sorted(row["id"] for row in table.scanned()) == [1, 5, 7, 8, 9]
    assert temporary_manifests(table.warehouse) == []
    assert trouble == "storage" or _unreachable(table) == set()


@pytest.mark.parametrize("trouble", ["files that are held", "files to discard"])
def test_a_run_that_is_committed_is_done_whatever_becomes_of_its_remains(
    table: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    (left,) = temporary_manifests(table.warehouse)
    contents = left.read_bytes()
    table.ok("ingest", "db.t", path, "--run-id", RUN)
    left.write_bytes(contents)

    def gone(*_: Any, **__: Any) -> Any:
        raise StorageError("the storage is gone")

    if trouble == "files to discard":
        monkeypatch.setattr(recovery, "find_referenced", lambda *_: frozenset())
        monkeypatch.setattr(claims, "find_referenced", gone)
    else:
        monkeypatch.setattr(recovery, "find_referenced", gone)
    before, document = heads(table), table.ok("ingest", "db.t", path, "--run-id", RUN)

    assert (document["status"], heads(table)) == ("nothing-to-do", before)
    assert "the storage is gone" in str(document["warnings"])
    assert sorted(row["id"] for row in table.scanned()) == [1, 7, 8, 9]


@pytest.mark.parametrize("finishing", [False, True])
def test_an_unknown_outcome_is_reported_also_if_it_cannot_be_noted(
    table: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, finishing: bool
) -> None:
    path, real = source(tmp_path, APPEND), claims._write
    if finishing:
        table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)

    def write(session: Any, of: Any, location: str, process: str) -> None:
        if not process:
            raise StorageError("the storage is full")
        real(session, of, location, process)

    monkeypatch.setattr(claims, "_write", write)
    silent = table.with_faults(refused_with(ConnectionError("no answer")))
    result = silent("--json", "ingest", "db.t", path, "--run-id", RUN)

    assert result.exit_code == 5, result
    assert "the storage is full" in str(result.json()["warnings"])


@pytest.mark.slow
@pytest.mark.parametrize("point", [LAYING_DOWN, BETWEEN], ids=["before", "between"])
def test_a_run_killed_before_it_was_laid_down_whole_is_loaded_again(
    table: CommandLine, tmp_path: Path, point: tuple[str, str, str]
) -> None:
    path, location = source(tmp_path, CHANGES), "-00002.avro" if point is BETWEEN else ""
    killed(table, point, "ingest", "db.t", path, *CHANGES, "--run-id", RUN, location=location)
    assert len(temporary_manifests(table.warehouse)) == (1 if point is BETWEEN else 0)

    document = table.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    assert document["status"] == "done"
    assert document["result"]["rows_read"] == len(LOG)
    assert bool(document["warnings"]) == (point is BETWEEN)
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert temporary_manifests(table.warehouse) == []


@pytest.mark.slow
def test_a_run_killed_before_its_commit_can_be_discarded_at_once(
    table: CommandLine, tmp_path: Path
) -> None:
    path, before = source(tmp_path, CHANGES), files_below(table.warehouse)
    killed(table, SENDING, "ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    document = table.ok("ingest", "db.t", "--discard", RUN)

    assert document["result"]["removed_files"] == 3
    assert files_below(table.warehouse) == before


@pytest.mark.slow
def test_a_run_without_an_id_that_was_killed_can_be_finished_by_its_job_id(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, APPEND)
    killed(table, SENDING, "ingest", "db.t", path)
    (manifest,) = temporary_manifests(table.warehouse)
    job_id = manifest.name[:32]

    document = table.ok("ingest", "db.t", path, "--run-id", job_id)

    assert document["status"] == "done"
    assert len(table.scanned()) == 4


@pytest.mark.slow
def test_a_run_without_an_id_that_landed_before_it_was_killed_is_not_committed_twice(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, APPEND)
    killed(table, SENT, "ingest", "db.t", path)
    (manifest,) = temporary_manifests(table.warehouse)

    document = table.ok("ingest", "db.t", path, "--run-id", manifest.name[:32])

    assert document["status"] == "nothing-to-do"
    assert len(table.scanned()) == 4
    assert temporary_manifests(table.warehouse) == []


@pytest.mark.slow
def test_a_discard_killed_half_way_is_finished_by_the_next_one(
    table: CommandLine, tmp_path: Path
) -> None:
    path, before = source(tmp_path, CHANGES), files_below(table.warehouse)
    table.ok("ingest", "db.t", path, *CHANGES, "--stage", "--run-id", RUN)
    point = ("lake.core.transaction.staging.claims", "remove_manifests", "before")
    killed(table, point, "ingest", "db.t", "--discard", RUN)
    assert len(temporary_manifests(table.warehouse)) == 2

    document = table.ok("ingest", "db.t", "--discard", RUN)

    assert document["status"] == "done"
    assert files_below(table.warehouse) == before


@pytest.mark.slow
def test_a_run_whose_discard_was_killed_is_loaded_again(table: CommandLine, tmp_path: Path) -> None:
    path = source(tmp_path, APPEND)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    point = ("lake.core.transaction.staging.claims", "find_referenced", "before")
    killed(table, point, "ingest", "db.t", "--discard", RUN)

    document = table.ok("ingest", "db.t", path, "--run-id", RUN)

    assert (document["status"], document["result"]["rows_read"]) == ("done", 2)
    assert len(table.scanned()) == 4
    left = [path for path in files_below(table.warehouse) if "lake-" in path]
    assert left == temporary_manifests(table.warehouse) == []


# Damaged


@settings(max_examples=examples(25), deadline=None)
@given(victim=st.integers(0, 1), part=st.floats(0, 1, exclude_max=True))
def test_a_truncated_manifest_is_not_a_run(
    tmp_path_factory: pytest.TempPathFactory, victim: int, part: float
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    lake = CommandLine(folder / "warehouse")
    make_table(lake.warehouse, schema=SCHEMA)
    path = source(folder, CHANGES)
    lake.ok("ingest", "db.t", path, *CHANGES, "--stage", "--run-id", RUN)
    manifest = temporary_manifests(lake.warehouse)[victim]
    os.truncate(manifest, int(part * manifest.stat().st_size))

    document = lake.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    assert (document["status"], document["result"]["rows_read"]) == ("done", len(LOG))
    assert "loaded again" in document["warnings"][0]
    assert {row["id"] for row in lake.scanned()} == {1, 3}


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_run_with_missing_files_is_loaded_again(
    table: CommandLine, tmp_path: Path, damage: str
) -> None:
    path, before = source(tmp_path, APPEND), files_below(table.warehouse)
    table.ok("ingest", "db.t", path, "--stage", "--run-id", RUN)
    (name,) = (name for name in files_below(table.warehouse) - before if name.endswith(".parquet"))
    if damage == "missing":
        (table.warehouse / name).unlink()
    else:
        os.truncate(table.warehouse / name, 100)

    document = table.ok("ingest", "db.t", path, "--run-id", RUN)

    assert document["result"]["rows_read"] == 2
    assert len(table.scanned()) == 4


# Discarded


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("mode", [APPEND, UPSERT, CHANGES], ids=lambda mode: "".join(mode[-1:]))
def test_a_discarded_run_leaves_the_folder_as_it_was(
    lake: CommandLine, tmp_path: Path, mode: tuple[str, ...], spec: str
) -> None:
    partitions, key = SPECS[spec]
    make_table(lake.warehouse, schema=SCHEMA, spec=partitions)
    path, keyed = source(tmp_path, mode), ("--key", key) if mode else ()
    lake.ok("ingest", "db.t", path, *mode, *keyed)
    before = _contents(lake.warehouse)
    lake.ok("ingest", "db.t", path, *mode, *keyed, "--stage", "--run-id", RUN)

    document = lake.ok("ingest", "db.t", "--discard", RUN)

    assert document["status"] == "done"
    assert document["result"]["removed_files"] > 0
    assert _contents(lake.warehouse) == before
    again = lake.ok("ingest", "db.t", "--discard", RUN)
    assert (again["status"], again["warnings"]) == ("nothing-to-do", [f"no run {RUN} is staged"])


def _contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}


@pytest.mark.slow
def test_a_discard_of_a_committed_run_deletes_no_file_of_it(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, CHANGES)
    killed(table, SENT, "ingest", "db.t", path, *CHANGES, "--run-id", RUN)
    rows = table.scanned()

    document = table.ok("ingest", "db.t", "--discard", RUN)

    assert (document["status"], document["result"]["removed_files"]) == ("nothing-to-do", 0)
    assert "3 files" in document["warnings"][0]
    assert temporary_manifests(table.warehouse) == []
    assert table.scanned() == rows


def test_a_discard_takes_only_an_id(table: CommandLine, tmp_path: Path) -> None:
    path = source(tmp_path, APPEND)

    for options in ([path], ["--stage"], ["--run-id", "x"], ["--from-table", "db.t"]):
        assert table("ingest", "db.t", "--discard", RUN, *options).exit_code == 2
    assert table("ingest", "db.other", "--discard", RUN).exit_code == 7


# Two at once


class Other:
    """A session whose next commit lets another command run first, in the very moment before it."""

    def __init__(self, lake: CommandLine, *arguments: object) -> None:
        self.results: list[Any] = []

        def opened(_: Any) -> Any:
            session = open_session(lake.warehouse)
            inject(session, [after(lambda: self.results.append(lake("--json", *arguments)))])
            return session

        self.lake = CommandLine(lake.warehouse, open_session=opened)


def test_a_run_that_is_about_to_be_committed_cannot_be_discarded(
    table: CommandLine, tmp_path: Path
) -> None:
    other = Other(table, "ingest", "db.t", "--discard", RUN)

    document = other.lake.ok("ingest", "db.t", source(tmp_path, CHANGES), *CHANGES, "--run-id", RUN)

    assert document["status"] == "done"
    assert [result.exit_code for result in other.results] == [3]
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert [path for path in files_below(table.warehouse) if "lake-" in path] == []


def test_a_run_that_is_being_finished_cannot_be_discarded(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, CHANGES)
    table.ok("ingest", "db.t", path, *CHANGES, "--stage", "--run-id", RUN)
    other = Other(table, "ingest", "db.t", "--discard", RUN)

    document = other.lake.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    assert document["status"] == "done"
    assert [result.exit_code for result in other.results] == [3]
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert [path for path in files_below(table.warehouse) if "lake-" in path] == []


def test_a_run_that_is_being_replayed_cannot_be_discarded(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, CHANGES)
    staged = table.ok("ingest", "db.t", path, *CHANGES, "--stage", "--run-id", RUN)["result"]
    other = Other(table, "ingest", "db.t", "--discard", RUN)

    word = ("--job", staged["job_id"], "--completed", "1")
    document = other.lake.ok("replay", "db.t", *word)

    assert document["result"]["committed_checkpoints"] == 1
    assert [result.exit_code for result in other.results] == [3]
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert _unreachable(table) == set()


def test_a_run_that_is_replayed_while_its_writer_commits_is_committed_once(
    table: CommandLine, tmp_path: Path
) -> None:
    path, before = source(tmp_path, CHANGES), heads(table)
    other = Other(table, "replay", "db.t", "--job", RUN, "--completed", "1")

    document = other.lake.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    (theirs,) = other.results
    assert (document["status"], theirs.json()["status"]) == ("nothing-to-do", "done")
    assert len(heads(table)) == len(before) + 1
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert _unreachable(table) == set()


def test_a_run_without_an_id_that_is_replayed_while_its_writer_commits_is_committed_once(
    table: CommandLine, tmp_path: Path
) -> None:
    path, before = source(tmp_path, CHANGES), heads(table)
    results: list[Any] = []

    def replay() -> None:
        (manifest, _) = temporary_manifests(table.warehouse)
        results.append(
            table("--json", "replay", "db.t", "--job", manifest.name[:32], "--completed", "1")
        )

    document = table.with_faults(after(replay)).ok("ingest", "db.t", path, *CHANGES)

    assert (document["status"], results[0].json()["status"]) == ("nothing-to-do", "done")
    assert len(heads(table)) == len(before) + 1
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert _unreachable(table) == set()


def test_a_run_that_another_finishes_meanwhile_keeps_its_files(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, CHANGES)
    other = Other(table, "ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    document = other.lake.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    (theirs,) = other.results
    assert (document["status"], theirs.json()["status"]) == ("nothing-to-do", "done")
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert temporary_manifests(table.warehouse) == []


@pytest.mark.slow
def test_two_processes_with_one_run_id_make_one_commit(table: CommandLine, tmp_path: Path) -> None:
    path, before = source(tmp_path, APPEND), heads(table)
    results: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(
                table.process("--json", "ingest", "db.t", path, "--run-id", RUN)
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [result.exit_code for result in results] == [0, 0, 0], results
    statuses = sorted(result.json()["status"] for result in results)
    assert statuses == ["done", "nothing-to-do", "nothing-to-do"]
    assert len(heads(table)) == len(before) + 1
    assert len(table.scanned()) == 4
    assert temporary_manifests(table.warehouse) == []


def test_a_run_that_another_process_writes_again_meanwhile_is_finished(
    table: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("ingest", "db.t", source(tmp_path, APPEND), "--run-id", RUN)
    table.ok(*words, "--stage")
    claim = recovery.claim_for_commit

    def late(*asked: Any) -> Any:
        monkeypatch.setattr(recovery, "claim_for_commit", claim)
        table.ok("ingest", "db.t", "--discard", RUN)
        table.ok(*words, "--stage")
        return claim(*asked)

    monkeypatch.setattr(recovery, "claim_for_commit", late)

    assert table.ok(*words)["status"] == "done"
    assert table.ok(*words)["status"] == "nothing-to-do"
    assert len(table.scanned()) == 4
    assert temporary_manifests(table.warehouse) == []
    assert _unreachable(table) == set()


# Failed


@pytest.mark.parametrize("mode", [APPEND, UPSERT, CHANGES], ids=lambda mode: "".join(mode[-1:]))
def test_a_run_that_is_refused_leaves_nothing(
    table: CommandLine, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    before = files_below(table.warehouse)
    refusing = table.with_faults(*[refused_with(CommitFailedException("409"))] * 25)

    result = refusing("--json", "ingest", "db.t", source(tmp_path, mode), *mode, "--run-id", RUN)

    assert result.exit_code == 4, result
    assert files_below(table.warehouse) == before


def test_a_run_whose_outcome_is_unknown_is_finished_by_the_next(
    table: CommandLine, tmp_path: Path
) -> None:
    path = source(tmp_path, CHANGES)
    fault = refused_with(TimeoutError("504"))
    unknown = table.with_faults(fault)("--json", "ingest", "db.t", path, *CHANGES, "--run-id", RUN)
    assert unknown.exit_code == 5
    assert len(temporary_manifests(table.warehouse)) == 2
    assert table("ingest", "db.t", "--discard", RUN).exit_code == 3
    path.unlink()

    document = table.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    assert document["status"] == "done"
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
    assert not [path for path in files_below(table.warehouse) if "lake-" in path]


def test_a_commit_that_lands_after_its_run_gave_up_is_not_repeated(
    table: CommandLine, tmp_path: Path
) -> None:
    path, late = source(tmp_path, CHANGES), []

    def delayed(commit: Any) -> None:
        late.append(commit)
        raise TimeoutError("504")

    unknown = table.with_faults(delayed)(
        "--json", "ingest", "db.t", path, *CHANGES, "--run-id", RUN
    )
    assert unknown.exit_code == 5
    late[0]()
    before = heads(table)

    document = table.ok("ingest", "db.t", path, *CHANGES, "--run-id", RUN)

    assert (document["status"], heads(table)) == ("nothing-to-do", before)
    assert _unreachable(table) == set()
    assert {row["id"] for row in table.scanned()} == {1, 3, 9}
