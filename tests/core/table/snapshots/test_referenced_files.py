"""Which files ever occurred in a table: judged by reading every manifest of every snapshot with fastavro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from support.tables.iceberg_tables import (
    make_table,
    named_rows,
    open_session,
    pyiceberg_table,
)

from lake.core.base import locations
from lake.core.base.errors import CorruptFileError, NotFoundError
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots.referenced_files import find_referenced


def everything(table: Any) -> set[str]:
    """Return what fastavro finds in all manifests of all snapshots."""

    def records(location: str) -> list[Any]:
        with Path(location.removeprefix("file://")).open("rb") as file:
            return list(fastavro.reader(file))

    manifests = {
        manifest["manifest_path"]
        for snapshot in table.metadata.snapshots
        for manifest in records(snapshot.manifest_list)
    }
    return {
        locations.canonical(entry["data_file"]["file_path"])
        for manifest in manifests
        for entry in records(manifest)
    }


@pytest.fixture
def made(warehouse: Path) -> Any:
    """A table with appends, a rewrite, a deletion, a branch, and a snapshot that was rolled back."""
    table = make_table(warehouse, format_version="2")
    for number in range(4):
        table.append(named_rows(number, number + 10))
    table.delete("id = 1")
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "side").commit()
    table.append(named_rows(77), branch="side")
    table.delete("id = 12")
    return pyiceberg_table(warehouse)


def loaded(warehouse: Path) -> Table:
    return open_session(warehouse).table("db.t")


def test_whatever_a_snapshot_ever_had_is_found(made: Any, warehouse: Path) -> None:
    table = loaded(warehouse)
    known = everything(made)
    assert len(known) == 7
    strangers = {f"{table.data_location}/stranger-{n}.parquet" for n in range(3)}

    assert find_referenced(table.storage, table.metadata, known | strangers) == known
    assert find_referenced(table.storage, table.metadata, strangers) == frozenset()
    assert find_referenced(table.storage, table.metadata, ()) == frozenset()


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file:///", "/"])
def test_spellings_of_one_file_are_one_file(made: Any, warehouse: Path, prefix: str) -> None:
    table = loaded(warehouse)
    known = everything(made)
    # Flink writes file:/x where PyIceberg writes file:///x.
    spelled = {prefix + path.removeprefix("file://") for path in known}

    assert find_referenced(table.storage, table.metadata, spelled) == known


def test_a_later_look_reads_only_what_came_since(made: Any, warehouse: Path) -> None:
    before = loaded(warehouse)
    old = everything(made)
    made.append(named_rows(99))
    made.delete("id = 2")
    after = loaded(warehouse)
    new = everything(made.refresh()) - old
    assert new

    found = find_referenced(after.storage, after.metadata, old | new, known=before.metadata)

    assert new <= found
    # A rewritten manifest also contains the entries that it takes over; all others are unchanged.
    assert found < old | new
    same = find_referenced(after.storage, after.metadata, old | new, known=after.metadata)
    assert same == frozenset()


def test_a_damaged_or_missing_list_or_manifest_stops_it(made: Any, warehouse: Path) -> None:
    table = loaded(warehouse)
    wanted = everything(made)
    place = Path(made.metadata.snapshots[2].manifest_list.removeprefix("file://"))
    content = place.read_bytes()

    place.write_bytes(content[:-5])
    with pytest.raises(CorruptFileError, match=place.name):
        find_referenced(table.storage, table.metadata, wanted)
    place.unlink()
    with pytest.raises(NotFoundError, match=place.name):
        find_referenced(table.storage, table.metadata, wanted)


@pytest.mark.parametrize(
    "spellings",
    [
        ["/a/b", "file:/a/b", "file:///a/b", "file:////a//b", "/a//b", "FILE:///a/b", "File:/a/b"],
        ["s3://b/k/f", "s3a://b/k/f", "s3n://b/k//f", "S3://b/k/f", "S3A://b/k/f"],
        ["hdfs://nn:9000/a/b", "hdfs://nn:9000//a/b", "HDFS://nn:9000/a/b"],
        ["hdfs:///a/b", "hdfs:/a/b"],
        ["wasbs://c@a.blob.h/k//f", "abfs://c@a.dfs.h/k/f", "wasb://c@a.blob.h/k/f"],
        ["gcs://b/k/f", "gs://b//k/f"],
    ],
)
def test_columns_are_folded_as_single_locations_are(spellings: list[str]) -> None:
    assert len({locations.canonical(text) for text in spellings}) == 1
    assert len(set(normalize_locations(pa.array(spellings)).to_pylist())) == 1
    for text in spellings:
        # A few locations are searched by Python, and many by Arrow.
        few, many = (normalize_locations(pa.array([text, None] * n)) for n in (1, 100))
        assert few.to_pylist() * 100 == many.to_pylist()
