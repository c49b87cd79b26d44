"""What lake changes in PyIceberg is there in the pinned version, and the change is in force."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pyiceberg.io
import pytest
from pyiceberg import types
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse
from pyiceberg.table.metadata import TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata

from lake.core.catalogs import pyiceberg_patches
from lake.core.catalogs.local_file_io import LocalFileIO

PATCHED = (
    (types.IcebergType, "handle_primitive_type"),
    (types.ListType, "__init__"),
    (types.MapType, "__init__"),
    (BlobMetadata, "__pydantic_validator__"),
    (TableMetadataV2, "__pydantic_validator__"),
    (TableMetadataV3, "model_dump_json"),
    (FromInputFile, "table_metadata"),
    (ToOutputFile, "table_metadata"),
    (MetastoreCatalog, "_update_and_stage_table"),
    (MetastoreCatalog, "_write_metadata"),
    (Snapshot, "__deepcopy__"),
    (CommitTableResponse, "model_validate_json"),
    (TableResponse, "model_validate_json"),
    (pyiceberg.io, "_infer_file_io_from_scheme"),
)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_late_opened_files_of_this_machine_are_read_written_and_deleted(
    tmp_path: Path, scheme: str
) -> None:
    pyiceberg_patches.apply()
    location = f"{scheme}{tmp_path}/one"
    io = pyiceberg.io.load_file_io({"key": "value"}, location)
    assert isinstance(io, LocalFileIO)
    assert io.properties == {"key": "value"}

    with io.new_output(location).create() as stream:
        stream.write(b"bytes")
    found = io.new_input(location)
    assert (found.location, len(found), found.exists()) == (location, 5, True)
    assert found.open().read() == b"bytes"
    io.delete(found)
    assert not io.new_input(location).exists()


@pytest.mark.parametrize(
    ("owner", "name"), PATCHED, ids=[f"{owner.__name__}.{name}" for owner, name in PATCHED]
)
def test_each_patched_name_exists(owner: type | ModuleType, name: str) -> None:
    assert callable(getattr(owner, name)) or name == "__pydantic_validator__"


def test_patches_are_made_once() -> None:
    pyiceberg_patches.apply_to_rest()
    before = [getattr(owner, name) for owner, name in PATCHED]

    pyiceberg_patches.apply()
    pyiceberg_patches.apply_to_rest()

    after = [getattr(owner, name) for owner, name in PATCHED]
    assert all(one == other for one, other in zip(before, after, strict=True))
    blob = {"type": "of-another", "snapshot-id": 1, "sequence-number": 1, "fields": []}
    assert BlobMetadata.model_validate_json(json.dumps(blob)).type == "of-another"
