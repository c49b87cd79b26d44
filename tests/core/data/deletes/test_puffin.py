"""Puffin files that lake writes, read by PyIceberg; invalid places in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from lake.core.base.errors import CorruptFileError
from lake.core.data.deletes.position_files import read_blob
from lake.core.data.deletes.puffin import PuffinWriter
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.io.storage.storage import Storage
from lake.core.table.manifests.data_files import POSITION_DELETES, DeleteFile

VECTORS = {
    "file:///a.parquet": [0, 5, 2**33],
    "file:///b.parquet": [7],
    "file:///ü.parquet": list(range(100)),
}


def write(path: Path) -> list[DeleteFile]:
    """Write the vectors into one file; return the entries that name them."""
    with PuffinWriter(Storage(), f"file://{path}") as writer:
        places = [
            writer.add_vector(
                RowPositions(np.array(rows)).to_blob(), data_file=name, positions=len(rows)
            )
            for name, rows in VECTORS.items()
        ]
        size = writer.close()
    return [
        DeleteFile(
            path=f"file://{path}",
            format="PUFFIN",
            content=POSITION_DELETES,
            spec_id=0,
            record_count=len(rows),
            size_bytes=size,
            sequence_number=1,
            referenced_data_file=name,
            content_offset=offset,
            content_size_bytes=length,
        )
        for (name, rows), (offset, length) in zip(VECTORS.items(), places, strict=True)
    ]


def test_pyiceberg_reads_the_vectors(tmp_path: Path) -> None:
    write(tmp_path / "x.puffin")

    found = PuffinFile((tmp_path / "x.puffin").read_bytes())

    assert [blob.properties["cardinality"] for blob in found.footer.blobs] == ["3", "1", "100"]
    vectors = deletion_vectors_from_puffin_file(found)
    read = {one.referenced_data_file: one.to_vector().to_pylist() for one in vectors}
    assert read == VECTORS


def test_each_blob_is_found_by_its_entry(tmp_path: Path) -> None:
    for file in write(tmp_path / "x.puffin"):
        found = RowPositions.from_blob(read_blob(Storage(), file), file.path)

        assert found.to_numpy().tolist() == VECTORS[file.referenced_data_file or ""]


@pytest.mark.parametrize(
    ("offset", "size"),
    [(None, 10), (4, None), (-1, 10), (4, 0), (4, -5), (4, 10**12), (10**12, 4)],
)
def test_a_place_that_the_file_does_not_have_is_refused(
    tmp_path: Path, offset: int | None, size: int | None
) -> None:
    file = replace(write(tmp_path / "x.puffin")[0], content_offset=offset, content_size_bytes=size)

    with pytest.raises(CorruptFileError, match=r"x\.puffin"):
        read_blob(Storage(), file)


def test_a_file_shorter_than_its_entry_says_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.puffin")[2]
    path = tmp_path / "x.puffin"
    path.write_bytes(path.read_bytes()[: (file.content_offset or 0) + 3])

    with pytest.raises(CorruptFileError, match="ends before"):
        read_blob(Storage(), file)


def test_an_error_leaves_no_file_and_nothing_to_write_makes_none(tmp_path: Path) -> None:
    path = tmp_path / "x.puffin"
    with pytest.raises(ZeroDivisionError), PuffinWriter(Storage(), f"file://{path}") as writer:
        writer.add_vector(b"x", data_file="a", positions=1)
        raise ZeroDivisionError
    assert not path.exists()

    with PuffinWriter(Storage(), f"file://{path}") as writer:
        assert writer.close() == 0
    assert not path.exists()


def test_a_file_that_was_created_before_the_storage_failed_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.puffin"

    def created(_: Storage, location: str) -> None:
        path.touch()
        raise OSError(f"{location}: the answer did not arrive")

    monkeypatch.setattr(Storage, "open_output", created)
    with (
        pytest.raises(OSError, match="did not arrive"),
        PuffinWriter(Storage(), f"file://{path}") as writer,
    ):
        writer.add_vector(RowPositions().to_blob(), data_file="file:///a.parquet", positions=0)

    assert not path.exists()
