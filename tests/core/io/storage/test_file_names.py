"""Locations of one file compare as equal, however they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.core.io.storage.file_names import FileNames, unnamed


def names_of(*locations: str) -> list[str]:
    found: list[str] = FileNames().of(pa.array(locations, pa.string())).to_pylist()
    return found


@pytest.mark.parametrize(
    "other",
    [
        "s3a://b/t/data/a b.parquet",
        "s3n://b/t//data/a b.parquet",
        "s3://b/t/data/a%20b.parquet",
        "s3://b/t/./data/a b.parquet",
        "s3://b/t/x/../data/a b.parquet",
        "s3://b/t/%64ata/a b.parquet",
        "s3://b/../t/../../t/data/a b.parquet",
    ],
)
def test_names_of_one_object_are_equal(other: str) -> None:
    one, two, third = names_of("s3://b/t/data/a b.parquet", other, "s3://b/t/data/ab.parquet")

    assert one == two != third


def test_locations_of_stores_and_disks_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    found = names_of(f"{tmp_path}/link/x", "s3a://b/%61", f"file://{tmp_path}/data/x", "gs://b/a")

    assert found == [f"{tmp_path}/data/x", "s3://b/a", f"{tmp_path}/data/x", "gs://b/a"]


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")

    assert len(names_of(f"{tmp_path}/one/x", f"{tmp_path}/two/x")) == 2


def test_a_path_of_very_many_parts_has_a_name() -> None:
    assert names_of("/x" + "/." * 2_000 + "/y", "/x" * 2_000) == ["/x/y", "/x" * 2_000]


def test_a_link_holds_the_file_that_it_leads_to(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("a")

    left = unnamed(
        [f"file://{tmp_path}/{name}" for name in "abc"], [str(tmp_path / "link"), f"{tmp_path}/./b"]
    )

    assert left == [f"file://{tmp_path}/c"]


_PARTS = st.lists(st.sampled_from(["a", "b", "link", "up", ".", "..", ""]), max_size=6)


@given(parts=_PARTS)
def test_a_name_is_the_real_path_of_its_folder(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    root = tmp_path_factory.mktemp("names")
    (root / "a" / "b").mkdir(parents=True)
    (root / "b").mkdir()
    (root / "link").symlink_to("a/b")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "link").symlink_to("../b")
    folder = "/".join([str(root), *parts])

    [name] = names_of(f"{folder}/file")

    assert name == f"{os.path.realpath(folder).rstrip('/')}/file"


_OBJECT_PARTS = st.sampled_from(["a", "a b", "a%20b", "%2F", "100%", "100%25", ".", "..", "", "é"])


@given(st.lists(_OBJECT_PARTS, max_size=4), st.sampled_from(["x", "x%20y", "a/x", "é"]))
def test_the_name_of_a_folder_ends_with_its_slash(parts: list[str], file: str) -> None:
    folder = "/".join(["s3://b/t", *parts])
    own, below = names_of(f"{folder}/", f"{folder}/{file}")

    assert own.endswith("/")
    assert below.startswith(own)
    assert own.startswith("s3://b/")


@pytest.mark.parametrize("folder", ["a", "a%20b", "100%", "100%25", "./a", "x/../%61"])
def test_a_folder_beside_another_one_is_not_below_it(folder: str) -> None:
    own, beside = names_of(f"s3://b/t/{folder}/", f"s3://b/t/{folder}-2/x")

    assert not beside.startswith(own)
