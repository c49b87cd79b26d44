"""Metadata that the specification allows and PyIceberg's models do not, and what is refused by its name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from lake.core.base.errors import RefusedError
from lake.core.spec.types.specification_types import GeographyType, GeometryType, VariantType
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.metadata.parser import parsed

Plain = dict[str, Any]


def in_file(plain: Plain) -> TableMetadata:
    return parsed(json.dumps(plain).encode())


def in_response(plain: Plain) -> TableMetadata:
    text = json.dumps({"metadata": plain, "metadata-location": "file:///w/db/t/metadata/x"})
    metadata = TableResponse.model_validate_json(text).metadata
    assert CommitTableResponse.model_validate_json(text).metadata == metadata
    return metadata


READERS = pytest.mark.parametrize("read", [in_file, in_response])
Read = Callable[[Plain], TableMetadata]


@pytest.fixture(autouse=True)
def patched() -> None:
    pyiceberg_patches.apply_to_rest()


def metadata(*types: Any, version: int = 3, **more: Any) -> Plain:
    fields = [
        {"id": number, "name": f"c{number}", "type": kind, "required": False}
        for number, kind in enumerate(types, start=1)
    ]
    return {
        "format-version": version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:///w/db/t",
        "last-sequence-number": 0,
        "last-updated-ms": 1,
        "last-column-id": 100,
        "next-row-id": 0,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        **more,
    }


# Texts of types as Iceberg Java writes them, and as PyIceberg does.
TEXTS = {
    "variant": VariantType(),
    "geometry": GeometryType(),
    "geometry(OGC:CRS84)": GeometryType(),
    "geometry('OGC:CRS84')": GeometryType(),
    "geometry(srid:3857)": GeometryType("srid:3857"),
    "geography": GeographyType(),
    "geography(OGC:CRS84)": GeographyType(),
    "geography(OGC:CRS84, spherical)": GeographyType(),
    "geography(srid:4326,karney)": GeographyType("srid:4326", "karney"),
    "geography('srid:4326', 'karney')": GeographyType("srid:4326", "karney"),
}


@READERS
@pytest.mark.parametrize("text", TEXTS)
def test_types_are_read_as_java_and_pyiceberg_write_them_at_every_level(
    read: Read, text: str
) -> None:
    in_list = {"type": "list", "element-id": 11, "element": text, "element-required": False}
    in_map = {"type": "map", "key-id": 12, "key": "string", "value-id": 13, "value": text}
    in_struct = {
        "type": "struct",
        "fields": [{"id": 14, "name": "x", "type": text, "required": True}],
    }

    found = read(metadata(text, in_list, in_map, in_struct)).schema()

    for name in ("c1", "c2.element", "c3.value", "c4.x"):
        assert found.find_type(name) == TEXTS[text]
        assert type(found.find_type(name)) is type(TEXTS[text])


@pytest.mark.parametrize("kind", TEXTS.values(), ids=TEXTS)
def test_types_are_written_as_java_reads_them_and_survive_copies(kind: Any) -> None:
    schema = Schema(NestedField(1, "c1", kind, required=False))

    (field,) = json.loads(schema.model_dump_json())["fields"]
    assert field["type"] == str(kind)
    assert "'" not in field["type"]
    assert Schema.model_validate_json(schema.model_dump_json()) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert schema.model_copy(deep=True) == schema
    assert schema != Schema(NestedField(1, "c1", "binary", required=False))


@READERS
def test_statistics_have_blobs_of_any_type(read: Read) -> None:
    blob = {"type": "presto-sum-v1", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
    file = {
        "snapshot-id": 1,
        "statistics-path": "file:///w/db/t/metadata/s.stats",
        "file-size-in-bytes": 9,
        "file-footer-size-in-bytes": 4,
        "blob-metadata": [blob],
    }

    found = read(metadata("int", version=2, statistics=[file]))

    assert [item.type for item in found.statistics[0].blob_metadata] == ["presto-sum-v1"]
    assert json.loads(found.model_dump_json())["statistics"] == [file]


def test_version_1_needs_no_schema_beside_its_schemas() -> None:
    plain = metadata("int", version=1)
    plain["schemas"].append({**plain["schemas"][0], "schema-id": 7})
    plain["current-schema-id"] = 7

    found = parsed(json.dumps(plain).encode())

    assert found.schema().schema_id == 7
    assert json.loads(found.model_dump_json())["schema"]["schema-id"] == 7


@READERS
@pytest.mark.parametrize("version", [4, 5, 2**70])
def test_a_newer_format_version_is_unsupported_and_named(read: Read, version: int) -> None:
    with pytest.raises(RefusedError, match=f"format version {version}; lake supports") as found:
        read(metadata({"type": "column-family"}, version=version))

    assert found.value.exit_code == 3


UNKNOWN = {
    "c1": "tensor(3)",
    "c1.element": {"type": "list", "element-id": 11, "element": "tensor(3)"},
    "c1.value": {
        "type": "map",
        "key-id": 11,
        "key": "int",
        "value-id": 12,
        "value": "tensor(3)",
        "value-required": False,
    },
    "c1.x": {"type": "struct", "fields": [{"id": 11, "name": "x", "type": "tensor(3)"}]},
}


@READERS
@pytest.mark.parametrize("column", UNKNOWN)
def test_a_type_that_is_not_known_is_unsupported_and_named_with_its_column(
    read: Read, column: str
) -> None:
    with pytest.raises(RefusedError, match=rf"column {column} has the type 'tensor\(3\)'") as found:
        read(metadata(UNKNOWN[column]))

    assert found.value.exit_code == 3


@pytest.mark.parametrize(
    "kind",
    ["decimal(99, 2)", "decimal(9", "fixed[x]", "geometry(", "geography(a,b,c)", "", 7, None, []],
    ids=str,
)
def test_a_type_that_is_known_but_malformed_is_not_metadata(kind: Any) -> None:
    with pytest.raises((ValidationError, ValueError)):
        parsed(json.dumps(metadata(kind)).encode())


@pytest.mark.parametrize("version", ["4", 4.5, None, [], 0, -1])
def test_a_format_version_that_is_not_one_is_not_metadata(version: Any) -> None:
    with pytest.raises(ValidationError):
        parsed(json.dumps(metadata("int", version=version)).encode())
