"""Names become files: each once, of a known format, wherever they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError
from lake.core.data.sources.discovery import Source, find_sources, open_stream, readable
from lake.core.io.storage.storage import Storage

NAMES = [
    "in/a.parquet",
    "in/b.csv.gz",
    "in/deep/c.jsonl",
    "in/deep/d=1/e.feather",
    "in/_d=1/f.parquet",
    "in/_SUCCESS",
    "in/.hidden.csv",
    "in/_temporary/g.parquet",
    "in/deep/_other.jsonl",
    "in/deep/.crc/c.jsonl.crc",
    "in/deep/_old/c.jsonl",
    "in/[odd]?.csv",
]


class Bucket(Storage):
    """A remote store whose objects are in a local folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def resolve(self, location: str) -> tuple[Any, str]:
        below = pafs.SubTreeFileSystem(str(self.folder), pafs.LocalFileSystem())
        return below, location.removeprefix("s3://bucket/")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


LOOKS = [
    (
        "in",
        [
            "[odd]?.csv",
            "_d=1/f.parquet",
            "a.parquet",
            "b.csv.gz",
            "deep/c.jsonl",
            "deep/d=1/e.feather",
        ],
    ),
    ("in/a.parquet", ["a.parquet"]),
    ("in/*.parquet", ["a.parquet"]),
    ("in/[ab].*", ["a.parquet", "b.csv.gz"]),
    ("in/[!b].*", ["a.parquet"]),
    ("in/?.parquet", ["a.parquet"]),
    ("in/**/*.feather", ["deep/d=1/e.feather"]),
    ("in/**/*.jsonl", ["deep/c.jsonl"]),
    ("in/**/**/c.jsonl", ["deep/c.jsonl"]),
    ("in/**/deep/**/e.*", ["deep/d=1/e.feather"]),
    ("in/deep/**", ["deep/c.jsonl", "deep/d=1/e.feather"]),
    ("in/deep", ["deep/c.jsonl", "deep/d=1/e.feather"]),
    # What begins with _ or . is not data, except a folder of a partition.
    ("in/*", ["[odd]?.csv", "a.parquet", "b.csv.gz"]),
    ("in/*/*.parquet", ["_d=1/f.parquet"]),
    ("in/**/*.parquet", ["_d=1/f.parquet", "a.parquet"]),
    ("in/deep/*.jsonl", ["deep/c.jsonl"]),
    ("in/*/?????????.jsonl", []),
    ("in/[._]*", []),
    # Unless the pattern begins so, or names the folder.
    ("in/.*.csv", [".hidden.csv"]),
    ("in/**/_*.jsonl", ["deep/_other.jsonl"]),
    ("in/_t*/*.parquet", ["_temporary/g.parquet"]),
    ("in/*/_old/*.jsonl", ["deep/_old/c.jsonl"]),
    ("in/_temporary/*", ["_temporary/g.parquet"]),
    ("in/_temporary/**", ["_temporary/g.parquet"]),
    # A file of just this name is meant, not the pattern.
    ("in/[odd]?.csv", ["[odd]?.csv"]),
]


@pytest.mark.parametrize(
    "prefix", ["s3://bucket/", "{folder}/", "file://{folder}/", "file:{folder}/"]
)
@pytest.mark.parametrize(("name", "expected"), LOOKS)
def test_names_globs_and_folders_mean_the_same_files_everywhere(
    folder: Path, prefix: str, name: str, expected: list[str]
) -> None:
    storage = Bucket(folder) if prefix.startswith("s3") else Storage()

    def found() -> list[str]:
        sources = find_sources(storage, [prefix.format(folder=folder) + name], None)
        return [one.path.split("/in/")[1] for one in sources]

    if expected:
        assert found() == expected
    else:
        with pytest.raises(NotFoundError):
            found()


@pytest.mark.parametrize("prefix", ["s3://bucket/", "{folder}/"])
@pytest.mark.parametrize(
    "name",
    [
        *("in/nope.csv", "in/nope*", "in/deep/nope/", "nope/*.csv"),
        # The name of a folder that only ends as the pattern says.
        *("in/**/eep/c.jsonl", "in/**/=1/*"),
        *("in/d**l", "in/deep[!b]c.jsonl", "in/[z-a].parquet"),
    ],
)
def test_a_name_that_means_no_file_is_not_found(folder: Path, prefix: str, name: str) -> None:
    storage = Bucket(folder) if prefix.startswith("s3") else Storage()

    with pytest.raises(NotFoundError):
        find_sources(storage, [prefix.format(folder=folder) + name], None)


@pytest.mark.parametrize(
    ("name", "most", "files"), [("in", 1, 6), ("in/**/*.jsonl", 1, 1), ("in/a.parquet", 1, 1)]
)
def test_files_of_a_listing_are_not_looked_up_one_by_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int, files: int
) -> None:
    asked: list[str] = []
    look_up, size = Storage.look_up, Storage.size
    monkeypatch.setattr(
        Storage, "look_up", lambda self, names: asked.extend(names) or look_up(self, names)
    )
    monkeypatch.setattr(Storage, "size", lambda self, name: asked.append(name) or size(self, name))

    found = find_sources(Bucket(folder), [f"s3://bucket/{name}"], None)

    assert [one.size_bytes for one in found] == [1] * files
    assert len(asked) <= most, asked


def test_two_spellings_of_one_object_are_one_file(folder: Path) -> None:
    with pytest.raises(BadInputError, match="named twice"):
        find_sources(
            Bucket(folder), ["s3://bucket/in/a.parquet", "s3://bucket/in//a.parquet"], None
        )
    with pytest.raises(BadInputError, match="named twice"):
        find_sources(
            Storage(), [str(folder / "in"), str(folder / "in" / "deep" / ".." / "*.gz")], None
        )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.parquet", "parquet"),
        ("X.PQ", "parquet"),
        ("x.2020.csv", "csv"),
        ("x.tsv.gz", "csv"),
        ("x.json.zst", "json"),
        ("x.ndjson.bz2", "json"),
        ("x.arrows", "arrow"),
        ("x.orc", "orc"),
        ("x.avro", "avro"),
    ],
)
def test_the_format_follows_from_the_name(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / name).touch()

    assert find_sources(Storage(), [str(tmp_path / name)], None)[0].format == expected
    assert find_sources(Storage(), [str(tmp_path / name)], "arrow")[0].format == "arrow"


def test_an_unknown_name_requires_the_format_option(tmp_path: Path) -> None:
    for name in ("x", "x.gz", "x.txt"):
        (tmp_path / name).touch()
        with pytest.raises(BadInputError, match="is not known"):
            find_sources(Storage(), [str(tmp_path / name)], None)


def test_a_source_travels_as_plain_data() -> None:
    source = Source(path="a", format="parquet", size_bytes=7, row_groups=(1, 2))

    assert Source.from_plain(source.to_plain()) == source


def test_a_packed_file_that_is_cut_short_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    import gzip

    path.write_bytes(gzip.compress(b"id\n" + b"1\n" * 100_000)[:-30])
    source = Source(path=str(path), format="csv", size_bytes=1)

    with pytest.raises(CorruptFileError, match=r"x\.csv\.gz cannot be read"), readable(str(path)):
        with open_stream(Storage(), source) as stream:
            while stream.read(1 << 16):
                pass
