"""What lake changes in PyIceberg is there in the pinned version, and the change is in force."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pyiceberg.io
import pytest
from pyiceberg import conversions, types
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse, auth
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import (
    CommitTableResponse,
    CreateTableTransaction,
    StagedTable,
    locations,
    update,
)
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import (
    TableMetadataUtil,
    TableMetadataV2,
    TableMetadataV3,
    new_table_metadata,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.statistics import BlobMetadata
from pyiceberg.utils.config import Config

from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.file_io import LocalFileIO

# What lake replaces for the whole process, or in one object of the class.
PATCHED: tuple[tuple[Any, str], ...] = (
    (types.IcebergType, "handle_primitive_type"),
    (types.ListType, "__init__"),
    (types.MapType, "__init__"),
    (BlobMetadata, "__pydantic_validator__"),
    (TableMetadataV2, "__pydantic_validator__"),
    (TableMetadataV3, "model_dump_json"),
    (FromInputFile, "table_metadata"),
    (ToOutputFile, "table_metadata"),
    (LocationProvider, "new_table_metadata_file_location"),
    (locations, "_import_location_provider"),
    (auth, "requests"),
    (Catalog, "_load_file_io"),
    (MetastoreCatalog, "_update_and_stage_table"),
    (MetastoreCatalog, "_write_metadata"),
    (MetastoreCatalog, "load_table"),
    (Snapshot, "__deepcopy__"),
    (Schema, "__deepcopy__"),
    (PartitionSpec, "__deepcopy__"),
    (SortOrder, "__deepcopy__"),
    (CommitTableResponse, "model_validate_json"),
    (TableResponse, "model_validate_json"),
    (pyiceberg.io, "_infer_file_io_from_scheme"),
    (pyiceberg.catalog, "_ENV_CONFIG"),
    (Config, "_from_configuration_files"),
)
# Private names of PyIceberg that lake calls or overrides.
USED: tuple[tuple[Any, str], ...] = (
    (RestCatalog, "_config_headers"),
    (RestCatalog, "_fetch_config"),
    (RestCatalog, "_load_credentials"),
    (RestCatalog, "_refresh_token"),
    (RestCatalog, "_response_to_staged_table"),
    (RestCatalog, "_response_to_table"),
    (MetastoreCatalog, "_empty_table_metadata"),
    (SqlCatalog, "_convert_orm_to_iceberg"),
    (SqlCatalog, "_iceberg_type_filter"),
    (Config, "_from_environment_variables"),
    (TableMetadataUtil, "_construct_without_validation"),
    (update, "_TableMetadataUpdateContext"),
    (update, "_apply_table_update"),
    (update._apply_table_update, "register"),
    (update._apply_table_update, "dispatch"),
    (conversions.from_json, "register"),
    (conversions.to_json, "register"),
)


def test_every_private_name_in_use_is_listed() -> None:
    """A pinned version that renames one is found here, not in a run."""
    private = re.compile(r"\.(_[a-z]\w+)\b(?=.*# noqa: SLF001)")
    listed = {name for _, name in (*PATCHED, *USED)} | {"_table", "_updates", "_token", "_content"}
    folders = ("core/table/catalogs", "core/table/metadata", "core/spec/types")
    found = {
        name
        for folder in folders
        for file in sorted((Path(__file__).parents[4] / folder).glob("*.py"))
        for name in private.findall(file.read_text())
    }

    assert found
    assert found - listed == set()


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
    ("owner", "name"),
    [*PATCHED, *USED],
    ids=[f"{owner.__name__}.{name}" for owner, name in (*PATCHED, *USED)],
)
def test_each_name_of_pyiceberg_exists(owner: Any, name: str) -> None:
    assert getattr(owner, name) is not None


def test_a_transaction_that_creates_a_table_has_the_names_that_lake_reads() -> None:
    """They are attributes of the object, not of its class."""
    metadata = new_table_metadata(
        Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {}
    )
    staged = StagedTable(("db", "t"), metadata, "", load_file_io({}, "file:///t"), NoopCatalog("c"))
    transaction = CreateTableTransaction(staged)

    assert transaction._table.metadata is metadata
    assert isinstance(transaction._updates, tuple)


def test_the_token_of_a_login_has_the_name_that_lake_clears() -> None:
    provider = auth.OAuth2TokenProvider("id", "secret", "http://localhost/token")

    assert provider._token is None
    manager = auth.OAuth2AuthManager("id", "secret", "http://localhost/token")
    assert manager.token_provider is not None


def test_patches_are_made_once() -> None:
    pyiceberg_patches.apply_to_rest()
    before = [getattr(owner, name) for owner, name in PATCHED]

    pyiceberg_patches.apply()
    pyiceberg_patches.apply_to_rest()

    after = [getattr(owner, name) for owner, name in PATCHED]
    assert all(one == other for one, other in zip(before, after, strict=True))
    blob = {"type": "of-another", "snapshot-id": 1, "sequence-number": 1, "fields": []}
    assert BlobMetadata.model_validate_json(json.dumps(blob)).type == "of-another"
