"""`lake deletes` through the command line."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.iceberg_tables import open_session
from support.tables.partitioned_tables import add
from support.tiers import examples

import lake.core.read.inspection.deleted_rows as inspection


def change(lake: CommandLine, row: str, kind: str) -> None:
    source = Path(lake.warehouse.parent / "changed.csv")
    source.write_text(f"id,day\n{row}\n")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id,day", "--deletes", kind)


def listed(lake: CommandLine) -> dict[str, Any]:
    result: dict[str, Any] = lake.ok("deletes", "db.t")["result"]
    return result


def test_an_equality_delete_applies_to_the_older_files_of_its_partition_only(
    lake: CommandLine,
) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-02")
    add(lake, "4,2026-01-02")
    change(lake, "2,2026-01-02", "equality")
    add(lake, "5,2026-01-02")

    (row,) = listed(lake)["delete_files"]
    assert (row["kind"], row["partition"]) == ("equality", "day=2026-01-02")
    assert sorted(row["columns"]) == ["day", "id"]
    assert (row["data_files"], row["data_rows"], row["rows"]) == (2, 3, 1)
    assert (row["sequence_number"], row["oldest_data_sequence_number"]) == (3, 1)
    assert "day=2026-01-02" in row["oldest_data_file"]
    assert row["oldest_data_partition"] == "day=2026-01-02"
    assert (row["released_by"], row["deleted_rows_at_most"]) == (["convert", "compact"], 3)
    assert row["dangling"] is False
    shown = lake("deletes", "db.t").stderr
    assert "needed while older data files are live, the oldest in day=2026-01-02" in shown


def test_a_position_delete_applies_to_the_file_that_it_names(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-02")
    add(lake, "4,2026-01-02")
    change(lake, "2,2026-01-02", "position")

    (row,) = listed(lake)["delete_files"]
    assert row["kind"] in ("position", "vector")
    assert (row["data_files"], row["data_rows"], row["columns"]) == (1, 2, None)
    assert row["oldest_data_sequence_number"] == 1
    assert row["data_file"] == row["oldest_data_file"]
    assert (row["released_by"], row["deleted_rows_at_most"]) == (["compact"], 1)


def test_vectors_release_position_delete_files_of_an_upgraded_table(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02")
    change(lake, "2,2026-01-02", "position")
    assert [row["released_by"] for row in listed(lake)["delete_files"]] == [["compact"]]

    lake.ok("alter", "db.t", "--format-version", "3")
    assert [row["released_by"] for row in listed(lake)["delete_files"]] == [["rewrite", "compact"]]
    lake.ok("deletes", "db.t", "--rewrite")
    (row,) = listed(lake)["delete_files"]
    assert (row["kind"], row["released_by"]) == ("vector", ["compact"])


@pytest.mark.parametrize("kind", ["equality", "position"])
def test_a_delete_whose_data_files_were_rewritten_is_dangling_until_it_is_removed(
    lake: CommandLine, kind: str
) -> None:
    add(lake, "1,2026-01-02", "2,2026-01-02")
    change(lake, "2,2026-01-02", kind)
    options = ("--rewrite-all", "--no-starting-sequence-number")
    lake.ok("compact", "db.t", *options)

    found = listed(lake)
    # A position delete file that names one data file is removed with it.
    assert len(found["delete_files"]) == (1 if kind == "equality" else 0)
    for row in found["delete_files"]:
        assert row["dangling"] is True
        assert (row["data_files"], row["oldest_data_sequence_number"]) == (0, None)
        assert (row["oldest_data_file"], row["deleted_rows_at_most"]) == (None, 0)
        assert row["released_by"] == ["compact"]
    assert [group["dangling"] for group in found["groups"]] == [
        group["files"] for group in found["groups"]
    ]
    lake.ok("compact", "db.t", *options, "--remove-dangling-deletes")
    assert listed(lake) == {"groups": [], "delete_files": []}


def test_a_table_without_delete_files_has_none(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01")
    assert listed(lake) == {"groups": [], "delete_files": []}


IDS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)
PLACES = st.lists(st.integers(0, 6), min_size=1, max_size=4)
MOVES = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=4)),
    st.tuples(st.just("equality"), IDS, st.sampled_from("ab")),
    st.tuples(st.just("position"), PLACES),
    st.tuples(st.just("partition"), st.booleans()),
)


@settings(deadline=None, max_examples=examples(5))
@given(st.lists(MOVES, min_size=2, max_size=7), st.booleans(), st.booleans())
def test_the_exact_counts_are_those_of_the_files(
    moves: list[Any], partitioned: bool, upgraded: bool
) -> None:
    with TemporaryDirectory() as folder:
        lake = CommandLine(Path(folder) / "warehouse", engine="inline")
        by = ("--partition-by", "part") if partitioned else ()
        lake.ok("create", "db.t", "id long", "part string", "--format-version", "2", *by)
        source = Path(folder) / "rows.csv"
        for move, *values in [("append", [0, 1, 2]), *moves]:
            if move == "append":
                source.write_text("id,part\n" + "".join(f"{n},{'ab'[n % 2]}\n" for n in values[0]))
                lake.ok("ingest", "db.t", source)
            elif move == "partition":
                partitioned = values[0]
                lake.ok("alter", "db.t", "--partition-by", "part" if partitioned else "")
            elif move == "equality":
                table = open_session(lake.warehouse).table("db.t")
                place = (values[1].encode(),) if partitioned else ()
                keys = [{"id": number} for number in values[0]]
                commit_deletes(table, equality_file(table, keys, ["id"], partition=place))
            else:
                delete_positions(lake, values[0], partitioned=partitioned, beyond=not upgraded)
        if upgraded:
            lake.ok("alter", "db.t", "--format-version", "3")
            source.write_text("id,part\n1,b\n2,a\n")
            lake.ok("ingest", "db.t", source, "--upsert", "--key", "id,part", "--repair-duplicates")

        found = lake.ok("deletes", "db.t", "--exact")["result"]

        assert [row["deleted_rows"] for row in found["delete_files"]] == counted(lake, found)
        total = sum(row["deleted_rows"] for row in found["delete_files"])
        assert sum(group["deleted_rows"] for group in found["groups"]) == total
        assert {row["deleted_rows"] for row in listed(lake)["delete_files"]} <= {None}


def delete_positions(
    lake: CommandLine, places: list[int], *, partitioned: bool, beyond: bool
) -> None:
    """Delete rows of data files, also ``beyond`` their ends, by a file of one partition of the current spec."""
    table = open_session(lake.warehouse).table("db.t")
    files = data_files(lake)
    named = [
        (path, row if beyond else row % len(ids))
        for path, part, _, ids in files
        for row in places
        if part == files[0][1]
    ]
    if (files[0][1] is not None) == partitioned:
        place = (files[0][1].encode(),) if partitioned else ()
        commit_deletes(table, position_file(table, named, partition=place))


def data_files(lake: CommandLine) -> list[tuple[str, str | None, int, list[int]]]:
    """Return the path, the partition, the sequence number and the ids of each data file."""
    handle = lake.table()
    files = []
    for manifest in handle.current_snapshot().manifests(handle.io):
        for entry in manifest.fetch_manifest_entry(handle.io):
            file = entry.data_file
            if file.content == 0:
                path = file.file_path.removeprefix("file://")
                ids = pq.read_table(path, partitioning=None)["id"].to_pylist()
                # The only field of a spec, if it has one that is not void.
                part = file.partition[0] if len(file.partition) else None
                files.append((file.file_path, part, entry.sequence_number, ids))
    return sorted(files)


def counted(lake: CommandLine, found: dict[str, Any]) -> list[int]:
    """Return the numbers of rows that delete files delete, by reading all files with PyArrow."""
    files, counts = data_files(lake), []
    with_vector = {row["data_file"] for row in found["delete_files"] if row["kind"] == "vector"}
    for row in found["delete_files"]:
        part = (row["partition"] or "").removeprefix("part=") or None
        if row["kind"] == "vector":
            counts.append(row["rows"])
            continue
        keys = pq.read_table(row["path"].removeprefix("file://"), partitioning=None).to_pylist()
        count = 0
        for path, place, number, ids in files:
            if row["kind"] == "equality":
                if (part is None or part == place) and number < row["sequence_number"]:
                    count += sum(value in {key["id"] for key in keys} for value in ids)
            elif path not in with_vector and number <= row["sequence_number"]:
                own = {key["pos"] for key in keys if key["file_path"] == path}
                count += sum(position < len(ids) for position in own)
        counts.append(count)
    return counts


@pytest.mark.parametrize("memory", [None, 0, 1200])
def test_the_keys_of_a_data_file_are_read_once_for_all_equality_deletes(
    lake: CommandLine, memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if memory is not None:
        monkeypatch.setattr(inspection, "_LOADED_BYTES", memory)
    lake.ok("create", "db.t", "id long", "part string", "--format-version", "2")
    source = Path(lake.warehouse.parent / "rows.csv")
    for start in (0, 2, 4):
        source.write_text(f"id,part\n{start},a\n{start + 1},b\n7,a\n7,b\n,a\n")
        lake.ok("ingest", "db.t", source)
        table = open_session(lake.warehouse).table("db.t")
        keys = [{"id": 0}, {"id": 7}, {"id": 3}, {"id": 7}]
        table = commit_deletes(table, equality_file(table, keys, ["id"]))
        both = [{"part": "b", "id": 7}, {"part": "a", "id": None}]
        commit_deletes(table, equality_file(table, both, ["part", "id"]))
    real, read = inspection.read_keys, list[str]()

    def noted(storage: Any, file: Any, *rest: Any) -> Any:
        read.append(file.path)
        return real(storage, file, *rest)

    monkeypatch.setattr(inspection, "read_keys", noted)
    found = lake.ok("deletes", "db.t", "--exact")["result"]["delete_files"]

    counts = {(tuple(row["columns"]), row["sequence_number"]): row["deleted_rows"] for row in found}
    expected = {2: 3, 3: 2, 5: 6, 6: 4, 8: 8, 9: 6}
    assert {number: rows for (_, number), rows in counts.items()} == expected
    if memory is None:
        assert len(read) == len(set(read)) == 3


def test_exact_counts_are_refused_with_a_change(lake: CommandLine) -> None:
    add(lake, "1,2026-01-02")
    result = lake("deletes", "db.t", "--exact", "--rewrite")
    assert result.exit_code == 2
    assert "--exact" in result.stderr
