"""What a path means as an output, and that it is written whole or not at all."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from support.tables.iceberg_tables import make_table, open_session

from lake.core.base.errors import BadInputError, InvalidRequestError, RefusedError
from lake.core.read.exports.destinations import Output, opened, output_to, refuse_inside, replacing


@pytest.mark.parametrize(
    ("name", "given", "format_name", "single", "compression"),
    [
        ("rows.parquet", None, "parquet", True, None),
        ("rows.CSV", None, "csv", True, None),
        ("rows.ndjson", None, "json", True, None),
        ("rows.arrow", None, "arrow", True, None),
        ("rows.arrows", None, "arrow-stream", True, None),
        ("rows.arrows", "arrow", "arrow-stream", True, None),
        ("rows.csv.gz", None, "csv", True, "gzip"),
        ("rows.zst", "json", "json", True, "zstd"),
        ("rows.txt", "csv", "csv", True, None),
        ("rows.csv", "json", "json", True, None),
        ("rows", None, "parquet", False, None),
        ("rows", "csv", "csv", False, None),
        ("rows.d/", "arrow", "arrow", False, None),
        (".rows", None, "parquet", False, None),
    ],
)
def test_a_name_determines_format_and_shape(
    name: str, given: str | None, format_name: str, single: bool, compression: str | None
) -> None:
    found = output_to(name, given, replace=False)

    assert (found.format, found.single, found.compression) == (format_name, single, compression)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rows.txt", None),
        ("rows.gz", None),
        ("rows.parquet.gz", None),
        ("rows.gz", "arrow"),
        ("s3://bucket/rows.csv", None),
        ("file:///rows.csv", None),
        ("", None),
    ],
)
def test_a_name_without_a_known_format_is_a_usage_error(name: str, given: str | None) -> None:
    with pytest.raises(InvalidRequestError):
        output_to(name, given, replace=False)


def test_a_folder_is_replaced_only_if_a_scan_wrote_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "part-00000.csv").touch()
    (mine / "thesis.tex").touch()

    with pytest.raises(InvalidRequestError, match="already exists"):
        output_to(str(mine), "csv", replace=False)
    with pytest.raises(
        RefusedError, match=r"contains thesis\.tex, which was not written by a scan"
    ):
        output_to(str(mine), "csv", replace=True)
    (mine / "thesis.tex").unlink()
    assert output_to(str(mine), "csv", replace=True).replace


def test_nothing_is_written_among_a_tables_own_files(tmp_path: Path) -> None:
    make_table(tmp_path / "warehouse")
    table = open_session(tmp_path / "warehouse").table("db.t")
    (tmp_path / "link").symlink_to(tmp_path / "warehouse")

    for inside in ("warehouse/db/t", "warehouse/db/t/data/x.parquet", "link/db/t/metadata/x.csv"):
        with pytest.raises(RefusedError, match="is inside the folder"):
            refuse_inside(str(tmp_path / inside), table)
    refuse_inside(str(tmp_path / "warehouse/db/t2"), table)


@pytest.mark.parametrize("before", ["nothing", "file", "folder", "link"])
@pytest.mark.parametrize("after", ["file", "folder"])
def test_the_new_takes_the_place_of_the_old_at_the_end(
    tmp_path: Path, before: str, after: str
) -> None:
    path = tmp_path / "below" / "out"
    path.parent.mkdir()
    if before == "file":
        path.write_text("old")
    elif before == "folder":
        path.mkdir()
        (path / "part-00007.csv").write_text("old")
    elif before == "link":
        (tmp_path / "target").write_text("old")
        path.symlink_to(tmp_path / "target")

    with replacing(Output("csv", str(path), replace=True)) as temporary:
        if after == "folder":
            os.makedirs(temporary)
        new = Path(temporary) / "part-00000.csv" if after == "folder" else Path(temporary)
        new.write_text("new")

    found = path / "part-00000.csv" if after == "folder" else path
    assert found.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]
    assert after == "file" or list(path.iterdir()) == [found]
    if before == "link":
        assert (tmp_path / "target").read_text() == "old"


def test_a_failure_leaves_the_old_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "below" / "out.csv"
    path.parent.mkdir()
    path.write_text("old")

    with pytest.raises(KeyboardInterrupt), opened(Output("csv", str(path), replace=True)) as sink:
        sink.write(b"half")
        raise KeyboardInterrupt

    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_what_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "below" / "out.csv"
    path.parent.mkdir()

    with (
        pytest.raises(InvalidRequestError, match="already exists"),
        opened(Output("csv", str(path))) as sink,
    ):
        sink.write(b"mine")
        path.write_text("theirs")

    assert path.read_text() == "theirs"
    assert list(path.parent.iterdir()) == [path]


def test_an_output_that_cannot_be_written_is_said_plainly(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with (
        pytest.raises(BadInputError, match="cannot write"),
        opened(Output("csv", str(tmp_path / "file" / "out.csv"))),
    ):
        pass


def test_a_pipe_takes_bytes_as_they_come(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()

    with opened(output_to(str(pipe), "csv", replace=False)) as sink:
        sink.write(b"rows")
    reader.join()

    assert got == [b"rows"]
    assert pipe.is_fifo()


def test_text_is_compressed_as_its_name_says(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"

    with opened(output_to(str(path), None, replace=False)) as sink:
        sink.write(b"rows" * 1000)

    assert gzip.decompress(path.read_bytes()) == b"rows" * 1000
