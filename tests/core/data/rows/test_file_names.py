"""Where a table's new files go, as Iceberg 1.12 itself answers for the same table, properties and name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.tables.iceberg_tables import SCHEMA

from lake.core.base.errors import RefusedError
from lake.core.data.rows.file_names import FileNames, hashed
from lake.core.data.rows.writer import WriteSettings

TABLE = "s3://b/wh/db/t"
SPREAD = {"write.object-storage.enabled": "true"}
PLAIN = {"write.object-storage.partitioned-paths": "false"}


def first(properties: dict[str, str], location: str = TABLE, folder: str = "") -> str:
    data = properties.get("write.data.path") or f"{location}/data"
    names = FileNames(
        location=location,
        data_location=data,
        properties=properties,
        operation_id="0d4bb5b6-aaaa",
        task=0,
        attempt="0",
    )
    return names.new_path(".parquet", folder)


NAME = "00000-0-0d4bb5b6-aaaa-00001.parquet"
HASH = "1000/1100/0011/10101111"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, f"{TABLE}/data/{NAME}"),
        (SPREAD, f"{TABLE}/data/{HASH}/{NAME}"),
        ({"write.object-storage.enabled": "TRUE"}, f"{TABLE}/data/{HASH}/{NAME}"),
        ({"write.object-storage.enabled": "FALSE"}, f"{TABLE}/data/{NAME}"),
        (SPREAD | PLAIN, f"{TABLE}/data/{HASH}-{NAME}"),
        (
            SPREAD | {"write.object-storage.partitioned-paths": "False"},
            f"{TABLE}/data/{HASH}-{NAME}",
        ),
        ({"write.data.path": "s3://b/other/"}, f"s3://b/other/{NAME}"),
        (SPREAD | {"write.data.path": "s3://b/other/"}, f"s3://b/other/{HASH}/db/t/{NAME}"),
        (SPREAD | PLAIN | {"write.data.path": "s3://b/other"}, f"s3://b/other/{HASH}/db/t/{NAME}"),
        (SPREAD | {"write.data.path": f"{TABLE}/inside"}, f"{TABLE}/inside/{HASH}/{NAME}"),
        # By the letters, as Iceberg does.
        (SPREAD | {"write.data.path": f"{TABLE}2/inside"}, f"{TABLE}2/inside/{HASH}/{NAME}"),
    ],
)
def test_a_file_goes_where_iceberg_puts_it(properties: dict[str, str], expected: str) -> None:
    assert first(properties) == expected
    assert first(properties, TABLE + "/").replace("t//", "t/") == expected


def test_a_partitions_folder_is_hashed_too_or_left_out() -> None:
    folder = "part=%C3%A4"
    name = f"{folder}/{NAME}"
    hash_of_both = hashed(name)

    assert hash_of_both == "0000/1111/0001/01101011"
    assert first(SPREAD, folder=folder) == f"{TABLE}/data/{hash_of_both}/{name}"
    assert first(SPREAD | PLAIN, folder=folder) == f"{TABLE}/data/{HASH}-{NAME}"
    assert first(PLAIN, folder=folder) == f"{TABLE}/data/{name}"


def test_a_short_location_gives_what_names_it_has() -> None:
    elsewhere = SPREAD | {"write.data.path": "s3://c/x"}

    assert first(elsewhere, "/t") == f"s3://c/x/{HASH}/t/{NAME}"
    assert first(elsewhere, "s3://b") == f"s3://c/x/{HASH}/{NAME}"


@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        ({"write.folder-storage.path": "s3://b/old"}, True),
        (SPREAD | {"write.folder-storage.path": "s3://b/old"}, True),
        (SPREAD | {"write.object-storage.path": "s3://b/old"}, True),
        ({"write.object-storage.path": "s3://b/old"}, False),
        ({"write.folder-storage.path": "s3://b/old", "write.data.path": "s3://b/new"}, False),
    ],
)
def test_outdated_ways_to_name_the_place_are_refused(
    properties: dict[str, str], refused: bool
) -> None:
    table = SimpleNamespace(
        properties=properties,
        schema=SCHEMA,
        spec=None,
        data_location=TABLE,
        metadata=SimpleNamespace(location=TABLE),
    )

    if refused:
        with pytest.raises(RefusedError, match=r"storage\.path"):
            WriteSettings.of(table, "")  # type: ignore[arg-type]
    else:
        WriteSettings.of(table, "")  # type: ignore[arg-type]
