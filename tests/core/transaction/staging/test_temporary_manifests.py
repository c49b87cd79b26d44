"""Temporary manifests as read: what fastavro reads of them, and nothing of what cannot be trusted."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture
from support.tables.replay_plans import session_on

from lake.core.io.storage.storage import StoredFile
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.schemas import ENTRY_COLUMNS
from lake.core.transaction.staging.manifest_files import find_manifests, manifest_folders
from lake.core.transaction.staging.temporary_manifests import (
    Reading,
    missing_files,
    read_temporary_manifests,
)

Flink = Callable[[str], FlinkFixture]
_SAME = (
    "file_path",
    "record_count",
    "file_size_in_bytes",
    "content",
    "equality_ids",
    "content_offset",
)


TABLE = "/tmp/lake-fixtures/b-append-pending/warehouse/sales/by_day"


def local(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))


def read_by_fastavro(location: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    with local(location).open("rb") as file:
        reader = fastavro.reader(file)
        return reader.metadata, list(reader)  # type: ignore[return-value]


def reading_of(table: Table, path: Path) -> Reading:
    (found,) = read_temporary_manifests(
        table, [StoredFile(str(path), path.stat().st_size, int(path.stat().st_mtime * 1000))]
    )
    return found


def rewritten(path: Path, change: Callable[[dict[str, Any]], None], **header: str) -> None:
    """Rewrite a manifest by fastavro, with changed records and header."""
    metadata, records = read_by_fastavro(str(path))
    schema = fastavro.parse_schema(__import__("json").loads(metadata["avro.schema"]))
    for record in records:
        change(record)
    kept = {key: value for key, value in metadata.items() if not key.startswith("avro.")}
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, codec="deflate", metadata={**kept, **header})
    path.write_bytes(buffer.getvalue())


@pytest.mark.parametrize("name", flink_fixtures.names())
def test_manifests_hold_what_fastavro_reads_and_no_dummies(flink: Flink, name: str) -> None:
    fixture = flink(name)
    table = session_on(fixture).table(fixture.table)

    readings = list(read_temporary_manifests(table, find_manifests(table)))

    assert len(readings) == len(fixture.truth["temp_manifests"])
    for reading in readings:
        manifest = reading.manifest
        assert (reading.problem, reading.foreign) == (None, None)
        assert manifest is not None
        header, records = read_by_fastavro(manifest.path)
        assert manifest.content == (header.get("content", "data") == "deletes")
        assert manifest.spec_id == int(header["partition-spec-id"])
        assert list(manifest.entries.column_names) == list(ENTRY_COLUMNS)
        rows = manifest.entries.to_pylist()
        files = [record["data_file"] for record in records]
        for column in _SAME:
            absent = 0 if column == "content" else None
            assert [row[column] for row in rows] == [file.get(column, absent) for file in files]
        for column in ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id"):
            assert [row[column] for row in rows] == [None] * len(rows)


@pytest.fixture
def pending(flink_lent: Flink) -> tuple[Table, list[Path]]:
    """The table with three pending checkpoints, and its temporary manifests."""
    fixture = flink_lent("b-append-pending")
    table = session_on(fixture).table(fixture.table)
    return table, [local(file.location) for file in find_manifests(table)]


def test_a_damaged_manifest_leaves_the_others_of_its_kind_readable(
    pending: tuple[Table, list[Path]],
) -> None:
    table, paths = pending
    content = bytearray(paths[1].read_bytes())
    content[-100] ^= 0xFF
    paths[1].write_bytes(content)

    readings = {
        reading.location: reading
        for reading in read_temporary_manifests(table, find_manifests(table))
    }

    assert len(readings) == 3
    assert [bool(readings[str(path)].problem) for path in paths] == [False, True, False]


def test_a_manifest_that_went_meanwhile_is_left_out(pending: tuple[Table, list[Path]]) -> None:
    table, paths = pending
    found = find_manifests(table)
    paths[0].unlink()

    assert len(list(read_temporary_manifests(table, found))) == 2


def _status(record: dict[str, Any]) -> None:
    record["status"] = 0


def _path(location: str) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        record["data_file"]["file_path"] = location

    return change


def _format(record: dict[str, Any]) -> None:
    record["data_file"]["file_format"] = "PUFFIN"


def _nothing(_: dict[str, Any]) -> None:
    return None


@pytest.mark.parametrize(
    ("change", "header", "problem"),
    [
        (_status, {}, "not an added file"),
        (_format, {}, "deletion vector"),
        (
            _path(f"{TABLE}/data/x"),
            {},
            "a file twice",
        ),
        (
            _path(f"{TABLE}/data/" + "x" * 4096),
            {},
            "invalid name",
        ),
        (
            _path(f"{TABLE}/data/\0"),
            {},
            "invalid name",
        ),
        (_nothing, {"content": "deletes"}, "does not match the manifest"),
        (_nothing, {"content": "other"}, "unknown content"),
        (_nothing, {"partition-spec-id": "9"}, "partition spec 9"),
        (_nothing, {"partition-spec-id": "-1"}, "no partition spec id"),
        (_nothing, {"partition-spec-id": "9" * 40}, "no partition spec id"),
        (_nothing, {"schema": "{}"}, "no valid schema"),
        (_nothing, {"schema": "[" * 100_000}, "no valid schema"),
    ],
)
def test_what_no_sink_writes_is_broken(
    pending: tuple[Table, list[Path]],
    change: Callable[[dict[str, Any]], None],
    header: dict[str, str],
    problem: str,
) -> None:
    table, paths = pending
    rewritten(paths[0], change, **header)

    reading = reading_of(table, paths[0])

    assert reading.manifest is None
    assert reading.problem is not None
    assert problem in reading.problem


@pytest.mark.parametrize(
    "location",
    [
        "/tmp/lake-fixtures/b-append-pending/warehouse/sales/other/data/x",
        f"{TABLE}/../other/data/x",
        "s3://elsewhere/data/x",
    ],
)
def test_files_that_are_not_the_tables_are_foreign(
    pending: tuple[Table, list[Path]], location: str
) -> None:
    table, paths = pending

    def change(record: dict[str, Any]) -> None:
        record["data_file"]["file_path"] = f"{location}{record['data_file']['file_path'][-9:]}"

    rewritten(paths[0], change)

    reading = reading_of(table, paths[0])

    assert reading.foreign is not None
    assert location in reading.foreign


@pytest.mark.parametrize(
    "old",
    ['"type":"long"', '"id":1,'],
)
def test_a_schema_that_the_table_never_had_is_foreign(
    pending: tuple[Table, list[Path]], old: str
) -> None:
    table, paths = pending
    schema = read_by_fastavro(str(paths[0]))[0]["schema"]
    new = {'"type":"long"': '"type":"string"', '"id":1,': '"id":1000,'}[old]
    assert old in schema
    rewritten(paths[0], _nothing, schema=schema.replace(old, new, 1))

    assert "the table never had its column" in (reading_of(table, paths[0]).foreign or "")


def test_manifests_cut_and_flipped_are_broken_or_whole_but_never_a_crash(
    flink: Flink, tmp_path: Path
) -> None:
    fixture = flink("c2-upsert-part")
    table = session_on(fixture).table(fixture.table)
    whole = local(find_manifests(table)[1].location)
    content, dice = whole.read_bytes(), random.Random(5)
    target = tmp_path / whole.name
    broken = 0
    for _ in range(600):
        mutant = bytearray(content)
        if dice.random() < 0.5:
            del mutant[dice.randrange(len(mutant)) :]
        else:
            for _ in range(dice.randint(1, 4)):
                mutant[dice.randrange(len(mutant))] ^= 1 << dice.randrange(8)
        target.write_bytes(mutant)

        reading = reading_of(table, target)

        broken += reading.problem is not None
        assert (reading.manifest is None) == (reading.problem is not None)
    assert broken > 400


def test_manifests_are_looked_for_where_the_table_says_and_in_its_own_folder(
    pending: tuple[Table, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, paths = pending
    own = str(paths[0].parent)
    properties: Any = table.properties
    assert manifest_folders(table) == [own]

    monkeypatch.setitem(properties, "flink.manifests.location", f"{own}/")
    assert manifest_folders(table) == [own]
    monkeypatch.setitem(properties, "flink.manifests.location", "s3://bucket/manifests/")
    assert sorted(manifest_folders(table)) == sorted([own, "s3://bucket/manifests"])


def test_a_file_may_be_longer_than_its_entry_but_not_shorter(
    pending: tuple[Table, list[Path]],
) -> None:
    table, paths = pending
    manifest = reading_of(table, paths[0]).manifest
    assert manifest is not None
    first, second, third, fourth = (
        local(path) for path in manifest.entries["file_path"].to_pylist()
    )
    first.write_bytes(first.read_bytes() + b"x")
    second.write_bytes(second.read_bytes()[:-1])
    third.unlink()

    problems, changed = missing_files(table.storage, [manifest])

    assert problems.keys() == {str(second), str(third)}
    assert "bytes, but its entry says" in problems[str(second)]
    assert problems[str(third)].endswith("is missing")
    assert changed.keys() == {str(first), str(fourth)}


def test_a_deletion_vector_must_be_within_its_file(flink_lent: Flink) -> None:
    fixture = flink_lent("c3-upsert-v3")
    table = session_on(fixture).table(fixture.table)
    manifests = [
        item.manifest
        for item in read_temporary_manifests(table, find_manifests(table))
        if item.manifest and item.manifest.content == 1
    ]
    rows = [row for item in manifests for row in item.entries.to_pylist()]
    vector = next(row for row in rows if row["file_format"] == "PUFFIN")
    end = vector["content_offset"] + vector["content_size_in_bytes"]
    path = local(vector["file_path"])
    path.write_bytes(path.read_bytes()[: end - 1])

    problems, _ = missing_files(table.storage, manifests)

    assert list(problems) == [vector["file_path"]]
