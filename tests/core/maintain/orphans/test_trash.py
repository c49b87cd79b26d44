"""The list of files that a run moves away: each file has a place of its own, and comes back to where it was."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables.iceberg_tables import make_table, open_session
from support.tiers import examples

from lake.core.base import locations
from lake.core.base.errors import CorruptFileError, NotFoundError
from lake.core.maintain.orphans.trash import (
    Trash,
    find_runs,
    move_away,
    read_list,
    remove,
    restore,
    write_list,
)
from lake.core.table.catalogs.catalog import Table

RUN = "8f6ef118-cd39-4391-b863-bfabac8e4ffe"
PARTS = ("data", "a", "a b", "a%20b", "%2F", "é", "e\u0301", "\U0001f600", "", "100%", "day=1")
# Stores distinguish keys by the number of slashes, so that many of these are of different files.
few = st.lists(st.sampled_from(["a", "", "é"]), max_size=3)
paths = (few | st.lists(st.sampled_from(PARTS), max_size=4)).map(lambda x: "/".join([*x, "f"]))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    warehouse = tmp_path_factory.mktemp("warehouse")
    make_table(warehouse)
    return open_session(warehouse).table("db.t")


def files(wanted: list[str]) -> pa.Table:
    return pa.table(
        {
            "path": pa.array(wanted, pa.string()),
            "kind": pa.array(["data"] * len(wanted), pa.string()),
            "bytes": pa.array([1] * len(wanted), pa.int64()),
            "modified_ms": pa.array([None] * len(wanted), pa.int64()),
        }
    )


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(paths, unique=True, max_size=6), st.lists(paths, unique=True, max_size=2))
def test_each_file_has_a_place_of_its_own_and_the_list_can_be_read(
    table: Table, below: list[str], elsewhere: list[str]
) -> None:
    wanted = [f"{table.metadata.location}/{path}" for path in below]
    wanted += [f"s3://other/root/{path}" for path in elsewhere]

    written = write_list(table, RUN, files(wanted), 5)

    assert written.files["path"].to_pylist() == wanted
    places = [locations.canonical(f"/{place}") for place in written.files["moved_to"].to_pylist()]
    assert len(set(places)) == len(wanted)
    assert all(place.startswith(("file:///files/", "file:///files-outside/")) for place in places)
    read = read_list(Trash.of(table), RUN)
    assert (read.run_id, read.created_ms) == (RUN, 5)
    assert read.files.equals(written.files)
    assert [run.run_id for run in find_runs(Trash.of(table))] == [RUN]
    remove(Trash.of(table), read)
    assert find_runs(Trash.of(table)) == []
    with pytest.raises(NotFoundError, match="has no files that run"):
        read_list(Trash.of(table), RUN)


@settings(max_examples=examples(60), deadline=None)
@given(st.sets(paths.map(lambda path: os.path.normpath(f"x/{path}")), max_size=5))
def test_moved_files_come_back_with_their_bytes(
    table: Table, tmp_path_factory: pytest.TempPathFactory, below: set[str]
) -> None:
    session = open_session(tmp_path_factory.mktemp("other"))
    folder = Path(table.metadata.location.removeprefix("file://"))
    wanted = [f"{table.metadata.location}/{path}" for path in sorted(below)]
    for path in below:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)

    run = write_list(table, RUN, files(wanted), 5)
    moved = move_away(session, table, run, wanted, lambda: True)
    assert moved.deleted == wanted
    assert not [path for path in below if (folder / path).exists()]

    restored = restore(session, table, run)
    assert (restored.moved, restored.present, restored.failed) == (wanted, [], [])
    for path in below:
        assert (folder / path).read_text() == path
        (folder / path).unlink()
    assert find_runs(Trash.of(table)) == []


@pytest.mark.parametrize("name", ["", "..", "../x", "x/y", RUN.upper() + "/..", "files.parquet"])
def test_what_is_not_the_id_of_a_run_is_not_looked_up(table: Table, name: str) -> None:
    with pytest.raises(NotFoundError, match="is not the id of a run"):
        read_list(Trash.of(table), name)


def test_the_list_of_another_table_is_refused(table: Table) -> None:
    written = write_list(table, RUN, files([]), 5)
    other = SimpleNamespace(
        identifier="db.other",
        storage=table.storage,
        metadata=SimpleNamespace(location=table.metadata.location, table_uuid="other"),
    )
    with pytest.raises(CorruptFileError, match="is another table's list"):
        read_list(Trash.of(other), RUN)  # type: ignore[arg-type]
    remove(Trash.of(table), written)
