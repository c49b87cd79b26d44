"""`lake health` through the command line, on tables with known ills."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.cli.command_line import CommandLine
from support.tables.delete_files import (
    commit_deletes,
    commit_equality_delete,
    position_file,
    vectors,
)
from support.tables.iceberg_tables import (
    make_table,
    named_rows,
    open_session,
    pyiceberg_table,
)
from support.tables.metadata_edits import edit_metadata
from support.tables.neglected_tables import BY_NAME, add_files, append

from lake.core.base.errors import NotAuthorisedError
from lake.core.maintain.health import costs
from lake.core.maintain.health.costs import costs_of
from lake.core.table.catalogs.sql import EmbeddedBackend


def _rows(lake: CommandLine, *arguments: object) -> dict[str, dict[str, Any]]:
    result = lake("--json", "health", *arguments)
    return {row["table"]: row for row in result.json()["result"]["tables"]}


def _forecast(row: dict[str, Any], command: str) -> dict[str, Any]:
    (found,) = [item for item in row["forecasts"] if item["command"] == command]
    return found


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the sizes and times of all files in a folder."""
    stats = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (found.st_size, found.st_mtime_ns) for path, found in stats.items()}


@pytest.fixture(scope="module")
def neglected(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Tables that each have one ill, a healthy one and an empty one; they are not changed."""
    warehouse = tmp_path_factory.mktemp("neglected") / "warehouse"
    unmerged = {"commit__manifest_merge__enabled": "false"}
    make_table(warehouse, "db.healthy")
    pyiceberg_table(warehouse, "db.healthy").append(named_rows(*range(1000)))
    make_table(warehouse, "db.empty")
    make_table(warehouse, "db.small")
    add_files(warehouse, "db.small", 300)
    make_table(warehouse, "db.deletes")
    (path,) = add_files(warehouse, "db.deletes", 1, rows=1000)
    table = open_session(warehouse).table("db.deletes")
    commit_deletes(table, *(position_file(table, [(path, number)]) for number in range(250)))
    make_table(warehouse, "db.snapshots", history__expire__max_snapshot_age_ms="1")
    append(warehouse, "db.snapshots", 12)
    make_table(warehouse, "db.manifests", **unmerged)
    append(warehouse, "db.manifests", 80)
    return CommandLine(warehouse)


def test_each_ill_is_named_and_a_healthy_table_is_good(neglected: CommandLine) -> None:
    before = _state(neglected.warehouse)

    rows = _rows(neglected)

    assert {name: (row["grade"], row["needs"]) for name, row in rows.items()} == {
        "db.small": ("due", ["compact"]),
        "db.deletes": ("due", ["deletes"]),
        "db.snapshots": ("due", ["expire"]),
        "db.manifests": ("due", ["manifests"]),
        "db.healthy": ("good", []),
        "db.empty": ("good", []),
    }
    assert _state(neglected.warehouse) == before


def test_the_counts_are_those_that_pyiceberg_reads(neglected: CommandLine) -> None:
    for name, row in _rows(neglected).items():
        seen = neglected.table(name).inspect
        data, deletes = seen.data_files(), seen.delete_files()
        found = {
            "files": data.num_rows,
            "rows": pc.sum(data["record_count"]).as_py() or 0,
            "bytes": pc.sum(data["file_size_in_bytes"]).as_py() or 0,
            "delete_files": deletes.num_rows,
            "position_delete_files": pc.sum(pc.equal(deletes["content"], 1)).as_py() or 0,
            "equality_delete_files": pc.sum(pc.equal(deletes["content"], 2)).as_py() or 0,
            "manifests": seen.manifests().num_rows,
            "snapshots": seen.snapshots().num_rows,
            "partitions": len(pc.unique(data["spec_id"])) if data.num_rows else 0,
        }
        assert {key: row[key] for key in found} == found, name
        size = Path(neglected.table(name).metadata_location.removeprefix("file://")).stat().st_size
        assert row["metadata_bytes"] == size


def test_a_forecast_is_what_the_command_then_does(neglected: CommandLine) -> None:
    row = _rows(neglected, "db.small")["db.small"]
    forecast = _forecast(row, "compact")
    planned = neglected.ok("compact", "db.small", "--dry-run")["plan"]
    assert (forecast["before"], forecast["after"], forecast["bytes"]) == (
        planned["input_files"],
        planned["expected_output_files"],
        planned["input_bytes"],
    )
    forecast = _forecast(_rows(neglected, "db.m*")["db.manifests"], "manifests")
    planned = neglected.ok("manifests", "db.manifests", "--dry-run")["plan"]
    assert (forecast["before"], forecast["after"]) == (
        planned["rewritten"],
        planned["rewritten_as"],
    )

    forecast = _forecast(_rows(neglected, "db.snapshots")["db.snapshots"], "expire")
    expired = neglected.ok("expire", "db.snapshots", "--dry-run")["plan"]
    assert forecast["before"] - forecast["after"] == expired["snapshots"] == 11


def test_a_table_is_good_after_the_command_that_it_needs(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    add_files(lake.warehouse, "db.t", 300)
    (before,) = _rows(lake).values()

    lake.ok("compact", "db.t", "--engine", "inline")

    (after,) = _rows(lake).values()
    assert (before["needs"], after["needs"]) == (["compact"], [])
    assert (before["grade"], after["grade"]) == ("due", "good")
    assert after["files"] == before["forecasts"][0]["after"] == 1
    assert after["scan"]["seconds"] == pytest.approx(before["scan"]["ideal_seconds"], rel=0.5)


def test_the_catalog_gets_one_load_a_table(
    neglected: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: Counter[str] = Counter()
    real = EmbeddedBackend.load

    def load(backend: EmbeddedBackend, identifier: str) -> Any:
        loads[identifier] += 1
        return real(backend, identifier)

    monkeypatch.setattr(EmbeddedBackend, "load", load)
    assert set(_rows(neglected)) == set(loads)
    assert set(loads.values()) == {1}


def test_a_table_that_cannot_be_read_is_a_row_with_its_error(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("broken", "gone", "new", "secret", "unlisted", "whole")
    for name in names:
        make_table(lake.warehouse, f"db.{name}")
        append(lake.warehouse, f"db.{name}", 1)
    metadata = {name: _metadata_file(lake, f"db.{name}") for name in names}
    metadata["broken"].write_text("{")
    metadata["gone"].unlink()
    newer = json.loads(metadata["new"].read_text())
    metadata["new"].write_text(json.dumps({**newer, "format-version": 4}))
    snapshot = lake.table("db.unlisted").current_snapshot()
    Path(snapshot.manifest_list.removeprefix("file://")).write_bytes(b"Obj\x01 not a list")
    real = EmbeddedBackend.load

    def load(backend: EmbeddedBackend, identifier: str) -> Any:
        if identifier == "db.secret":
            raise NotAuthorisedError("the storage refused the credentials")
        return real(backend, identifier)

    monkeypatch.setattr(EmbeddedBackend, "load", load)

    result = lake("--json", "health")

    assert (result.exit_code, result.json()["status"]) == (6, "partial")
    rows = {row["table"]: row for row in result.json()["result"]["tables"]}
    errors = {name: row["error"] and row["error"]["kind"] for name, row in rows.items()}
    assert errors == {
        "db.broken": "corrupt",
        "db.gone": "corrupt",
        "db.new": "refused",
        "db.secret": "not-authorised",
        "db.unlisted": "corrupt",
        "db.whole": None,
    }
    assert rows["db.whole"]["grade"] == "good"
    assert rows["db.gone"]["grade"] is None
    text = lake("health")
    assert "6 tables: 1 good; 5 could not be read" in text.stderr
    assert lake("--json", "health", "db.secret").exit_code == 6


def test_a_table_that_forbids_expiration_has_a_grade_and_the_reason(lake: CommandLine) -> None:
    make_table(lake.warehouse, "db.kept", gc__enabled="false")
    make_table(lake.warehouse, "db.odd", history__expire__max_snapshot_age_ms="soon")

    rows = _rows(lake)

    (kept,), (odd,) = rows["db.kept"]["unknown"], rows["db.odd"]["unknown"]
    assert (rows["db.kept"]["grade"], "gc.enabled is false" in kept) == ("good", True)
    assert (rows["db.odd"]["grade"], "history.expire.max-snapshot-age-ms" in odd) == ("good", True)
    assert "gc.enabled is false" in lake("health", "--explain").stderr


def _metadata_file(lake: CommandLine, name: str) -> Path:
    return Path(lake.table(name).metadata_location.removeprefix("file://"))


def test_what_deletes_hide_is_exact_only_where_manifests_determine_it(lake: CommandLine) -> None:
    for name in ("vectors", "positions", "keys"):
        make_table(lake.warehouse, f"db.{name}")
        lake.table(f"db.{name}").append(named_rows(*range(20)))
    lake.ok("alter", "db.vectors", "--format-version", "3")
    path = _first_path(lake, "db.vectors")
    table = open_session(lake.warehouse).table("db.vectors")
    commit_deletes(table, *vectors(table, {path: [1, 3, 5]}))
    path = _first_path(lake, "db.positions")
    table = open_session(lake.warehouse).table("db.positions")
    commit_deletes(table, position_file(table, [(path, 2), (path, 4)]))
    commit_equality_delete(lake.warehouse, [1, 2], "db.keys")

    rows = _rows(lake)

    found = {
        name: (row["deleted_rows"], row["deleted_rows_at_most"], row["unknown"])
        for name, row in rows.items()
    }
    assert found == {
        "db.vectors": (3, 3, []),
        "db.positions": (None, 2, ["deleted rows"]),
        "db.keys": (None, 20, ["deleted rows"]),
    }
    assert rows["db.vectors"]["deletion_vectors"] == 1
    assert "20 or less" in lake("health").stdout


def _first_path(lake: CommandLine, name: str) -> str:
    path: str = lake.table(name).inspect.data_files()["file_path"][0].as_py()
    return path


def test_a_scan_of_one_partition_reads_its_share_of_files_and_manifests(lake: CommandLine) -> None:
    make_table(lake.warehouse, spec=BY_NAME, commit__manifest_merge__enabled="false")
    table = lake.table()
    for _ in range(6):
        table.append(pa.table({"id": pa.array(range(4), pa.int64()), "name": list("abcd")}))

    (row,) = _rows(lake).values()

    assert (row["partitions"], row["files"]) == (4, 24)
    # The metadata file, the manifest list, 6 manifests, and two requests for each file.
    assert row["scan"]["requests"] == 2 + 6 + 2 * 24
    assert row["partition_scan"]["requests"] == 2 + 6 + 2 * 6
    assert row["scan"]["ideal_requests"] == 2 + 1 + 2 * 4
    assert row["partition_scan"]["ideal_requests"] == 2 + 1 + 2
    # The assumed costs of a local disk, for the metadata file, the list and the manifests, and the data files.
    lengths = pc.sum(table.inspect.manifests()["length"]).as_py()
    planning = row["metadata_bytes"] / 15e6 + 7 * 1.5e-3 + lengths / 10e6
    data = 24 * 0.5e-3 + row["bytes"] / 150e6
    assert row["scan"]["seconds"] == pytest.approx(planning + data, abs=1e-4)
    assert row["partition_scan"]["seconds"] == pytest.approx(planning + data / 4, abs=1e-4)


def test_rows_are_sorted_as_asked(neglected: CommandLine) -> None:
    assert list(_rows(neglected, "--sort", "name")) == sorted(_rows(neglected))
    for sort, measure in (("files", "files"), ("bytes", "bytes"), ("growth", "growth_bytes")):
        measured = [row[measure] for row in _rows(neglected, "--sort", sort).values()]
        assert measured == sorted(measured, reverse=True)
        assert measured[0] > measured[-1] == 0
    scans = [row["scan"] for row in _rows(neglected).values() if row["grade"] == "due"]
    wasted = [scan["seconds"] - scan["ideal_seconds"] for scan in scans]
    assert wasted == sorted(wasted, reverse=True)


def test_a_grade_that_is_asked_for_fails_the_run(neglected: CommandLine) -> None:
    for arguments, code, status in (
        ((), 0, "done"),
        (("--fail-on", "due"), 6, "suspect"),
        (("--fail-on", "bad"), 0, "done"),
        (("db.healthy", "--fail-on", "due"), 0, "done"),
        (("--fail-on", "worse"), 2, "failed"),
    ):
        result = neglected("--json", "health", *arguments)
        assert (result.exit_code, result.json()["status"]) == (code, status), arguments


def test_small_files_are_worse_in_an_object_store(
    neglected: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert costs_of("s3://bucket/db/t") is costs.OBJECT_STORE
    assert costs_of("file:///lake/db/t") is costs_of("/lake/db/t") is costs.LOCAL
    monkeypatch.setattr("lake.core.maintain.health.measure.costs_of", lambda _: costs.OBJECT_STORE)

    rows = _rows(neglected)

    assert (rows["db.small"]["grade"], rows["db.healthy"]["grade"]) == ("bad", "good")
    assert rows["db.small"]["scan"]["seconds"] > 300 * 2 * 0.1 / 16
    assert neglected("health", "--fail-on", "bad").exit_code == 6
    assert neglected("health", "db.healthy", "--fail-on", "bad").exit_code == 0


def test_patterns_are_globs_namespaces_or_names(lake: CommandLine) -> None:
    for name in ("db.t", "db.u", "db2.t", "other.v"):
        make_table(lake.warehouse, name)

    for patterns, names in (
        ((), ["db.t", "db.u", "db2.t", "other.v"]),
        (("db",), ["db.t", "db.u"]),
        (("db*.t", "other.v"), ["db.t", "db2.t", "other.v"]),
        (("db.u",), ["db.u"]),
        (("db.u", "db.u", "d*.u"), ["db.u"]),
    ):
        assert list(_rows(lake, *patterns)) == names
    for missing in ("nothing*", "db.none"):
        unmatched = lake("--json", "health", "db.t", missing)
        assert (unmatched.exit_code, unmatched.json()["error"]["kind"]) == (7, "not-found")
        assert lake("--json", "health", missing).exit_code == 7


def test_a_report_explains_its_grades_and_says_what_it_did_not_look_at(
    neglected: CommandLine,
) -> None:
    result = neglected("health", "db.small", "--explain")

    assert "300 → 1, saves" in result.stdout
    assert "iceops 0.3 and 0.6" in result.stdout
    assert "not looked for: orphans, pending checkpoints, other branches" in result.stderr
    assert "1 table: 1 due" in result.stderr
    assert "compact db.small --dry-run" in result.stderr
    assert "not worth it" in neglected("health", "db.manifests", "--explain").stdout


def test_names_of_tables_are_one_line_of_printable_text(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET table_name = ?", ("a\x1b[31mb\nc",))

    result = lake("health")

    assert "\x1b" not in result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == 2
    assert result.exit_code == 0


def test_a_table_with_many_snapshots_takes_seconds(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    append(lake.warehouse, "db.t", 2)
    edit_metadata(lake.warehouse, _lengthened(5000))

    (row,) = _rows(lake).values()

    assert row["snapshots"] == 5000
    assert row["needs"] == ["expire"]
    assert _forecast(row, "expire")["after"] < 3


def _lengthened(count: int) -> Callable[[dict[str, Any]], None]:
    """Return a change of metadata that puts many old snapshots before the present ones."""

    def change(document: dict[str, Any]) -> None:
        first, *_, last = document["snapshots"]
        old = [
            {**first, "snapshot-id": number, "timestamp-ms": number, "sequence-number": 1}
            | ({"parent-snapshot-id": number - 1} if number > 1 else {})
            for number in range(1, count)
        ]
        document["snapshots"] = [*old, {**last, "parent-snapshot-id": count - 1}]
        document["snapshot-log"] = [
            {"snapshot-id": item["snapshot-id"], "timestamp-ms": item["timestamp-ms"]}
            for item in document["snapshots"]
        ]

    return change
