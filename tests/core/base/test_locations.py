"""Only files that certainly belong to a table may be deleted."""

from __future__ import annotations

import pytest

from lake.core.base import locations
from lake.core.base.errors import BadInputError

ROOTS = ["s3://bucket/db/t", "file:///w/db/t"]


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/db/t/data/f.parquet",
        "s3a://bucket/db/t/data/f.parquet",
        "s3n://bucket/db//t/data/f.parquet",
        "file:///w/db/t/metadata/m.avro",
        "file:/w/db/t/metadata/m.avro",
        "/w/db/t/data/p=a b/f.parquet",
        "/w/db/t/data/p=a%2Fb/%2e%2e/f.parquet",
        "/w/db/t/data/p=\U0001f600é+/f.parquet",
    ],
)
def test_files_below_the_tables_roots_may_be_deleted(location: str) -> None:
    assert locations.deletable(location, ROOTS)


@pytest.mark.parametrize(
    "location",
    [
        "",
        "/",
        "s3://bucket/db/t",
        "s3://bucket/db/t2/f.parquet",
        "s3://bucket/db/other/f.parquet",
        "s3://other/db/t/f.parquet",
        "gs://bucket/db/t/f.parquet",
        "s3://bucket/db/t/../other/f.parquet",
        "s3://bucket/db/t/./f.parquet",
        "/w/db/t/../../etc/passwd",
        "s3://bucket/db/t/p=a#b/f.parquet",
        "s3://bucket/db/t/p=a?b/f.parquet",
        "/w/db/t/a\nb",
        "/w/db/t/a\x00b",
        "/w/db/t/\u202egnp.exe",
        "s3://BUCKET/db/t/f.parquet",
        "/w/db/T/f.parquet",
        "/w/db/t/" + "x" * 5000,
        "/w/db/t/data/f.parquet/",
        "s3://bucket/db/t/data/f.parquet/",
    ],
)
def test_anything_else_may_not(location: str) -> None:
    assert not locations.deletable(location, ROOTS)


@pytest.mark.parametrize("root", ["/", "s3://bucket", "s3://bucket/", "file:///", "/w", "/a/../.."])
def test_a_root_that_is_a_bucket_or_a_disk_owns_nothing(root: str) -> None:
    assert not locations.deletable(locations.join(root, "f.parquet"), [root])


@pytest.mark.parametrize("location", ["", "s3://", "x" * 5000, "a\x00b"])
def test_locations_that_cannot_be_are_refused(location: str) -> None:
    with pytest.raises(BadInputError):
        locations.parse(location)


def test_hash_and_question_mark_are_part_of_a_name() -> None:
    assert locations.parse("s3://b/t/p=a#b?c/f").path == "/t/p=a#b?c/f"
    assert locations.parse("file:///t/p=%2F/f").path == "/t/p=%2F/f"


@pytest.mark.parametrize(
    "root",
    [
        *(
            "",
            " ",
            "/",
            "/data",
            "w/t",
            "~/t",
            "/w/../t",
            "/w/t/..",
            "file:///",
            "s3://b/../t",
            "\0",
        ),
        *("data:text/plain,x", "file:w/t", "://w/t", "C:\\w\\t"),
    ],
)
def test_a_location_shared_with_others_is_not_ownable(root: str) -> None:
    assert not locations.ownable(root)


@pytest.mark.parametrize(
    "root", ["/w/t", "file:///w/t", "file:/w/t", "s3://b", "s3a://b/t", "hdfs:///w/t"]
)
def test_a_folder_of_its_own_is_ownable(root: str) -> None:
    assert locations.ownable(root)
