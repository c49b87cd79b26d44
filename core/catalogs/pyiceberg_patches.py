"""What lake changes in PyIceberg 0.12, for this process: each change and its reason.

PyIceberg's models of table metadata are stricter than the specification in some places. The changes are made in
its classes because catalogs, commits and manifests all use them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyiceberg.io
from pydantic import BaseModel
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.serializers import Compressor, FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, metadata, statistics
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel, Properties

from lake.core import locations
from lake.core.catalogs.local_file_io import LocalFileIO
from lake.core.metadata.files import from_input
from lake.core.metadata.parser import parsed_response
from lake.core.metadata.text import bytes_of
from lake.core.properties.table_properties import METADATA_CODEC
from lake.core.types.default_values import enable_defaults
from lake.core.types.specification_types import enable_types

_METADATA = ".metadata.json"


@cache
def apply() -> None:
    """Make the changes that every command needs; a second call does nothing."""
    _bound_files()
    _open_files_late()
    _keep_unknown_members()
    enable_types()
    enable_defaults()
    _read_statistics()
    _write_version_3()
    _share_snapshots()
    _name_packed_metadata()
    _explain_responses(CommitTableResponse)


@cache
def apply_to_rest() -> None:
    """Make the changes that REST catalogs need too, whose module is slow to import."""
    apply()
    from pyiceberg.catalog.rest import TableResponse  # noqa: PLC0415

    TableResponse.model_rebuild(force=True)
    _explain_responses(TableResponse)


def _bound_files() -> None:
    """Read metadata files of bounded size: a small packed one may unpack to anything."""
    FromInputFile.table_metadata = staticmethod(from_input)  # type: ignore[assignment,method-assign]


def _open_files_late() -> None:
    """Import what opens a file of this machine when one is opened: lake reads metadata without it."""
    original = pyiceberg.io._infer_file_io_from_scheme  # noqa: SLF001

    def inferred(path: str, properties: Properties) -> FileIO | None:
        is_local = locations.parse(path).is_local
        return LocalFileIO(properties) if is_local else original(path, properties)

    pyiceberg.io._infer_file_io_from_scheme = inferred  # noqa: SLF001


def _keep_unknown_members() -> None:
    """Write what PyIceberg's models do not know as it was read: they drop it."""

    def write(written: metadata.TableMetadata, file: OutputFile, **options: bool) -> None:
        pack = Compressor.get_compressor(file.location).bytes_compressor()
        with file.create(**options) as stream:
            stream.write(pack(bytes_of(written)))

    ToOutputFile.table_metadata = staticmethod(write)  # type: ignore[assignment,method-assign]


def _read_statistics() -> None:
    """Read statistics of every blob type: PyIceberg allows two, the specification leaves the list open."""
    statistics.BlobMetadata.__annotations__["type"] = str
    statistics.BlobMetadata.model_fields["type"].annotation = str
    models: tuple[type[BaseModel], ...] = (
        statistics.BlobMetadata,
        statistics.StatisticsFile,
        metadata.TableMetadataV1,
        metadata.TableMetadataV2,
        metadata.TableMetadataV3,
        metadata.TableMetadataWrapper,
        CommitTableResponse,
    )
    # Each has the models inside it compiled in: the inner ones first.
    for model in models:
        model.model_rebuild(force=True)


def _write_version_3() -> None:
    """Write metadata of format version 3 as of the others: PyIceberg refuses to."""
    metadata.TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[method-assign]


def _share_snapshots() -> None:
    """Share snapshots between metadata before and after a commit: PyIceberg copies each, which takes longest."""

    def shared(self: Snapshot, memo: dict[int, Any]) -> Snapshot:
        del memo
        return self

    Snapshot.__deepcopy__ = shared  # type: ignore[assignment,method-assign]


def _name_packed_metadata() -> None:
    """Name metadata files after the codec that the table wants: PyIceberg packs them by their names."""
    original = LocationProvider.new_table_metadata_file_location

    def named(self: LocationProvider, new_version: int = 0) -> str:
        location = original(self, new_version)
        if METADATA_CODEC.of(self.table_properties) == METADATA_CODEC.default:
            return location
        return f"{location.removesuffix(_METADATA)}.gz{_METADATA}"

    LocationProvider.new_table_metadata_file_location = named  # type: ignore[method-assign]


def _explain_responses(kind: type[BaseModel]) -> None:
    """Refuse by name what a server's table has and lake does not support: PyIceberg calls it invalid."""
    original = kind.model_validate_json

    def validated(data: str, **options: Any) -> Any:
        return parsed_response(lambda: original(data, **options), data)

    kind.model_validate_json = staticmethod(validated)  # type: ignore[assignment,method-assign]
