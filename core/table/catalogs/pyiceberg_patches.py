"""Every change that lake makes to PyIceberg 0.12 in this process, each with its reason.

PyIceberg's models of table metadata are stricter than the specification in some places. The classes themselves are
changed, because catalogs, commits and manifests all use them. Methods of one catalog are replaced in that object
only. `lake.core.table.catalogs.configuration` replaces what reads PyIceberg's files, before PyIceberg's catalogs are
imported. Two modules extend PyIceberg by its private names and do not change it: the updates that
`lake.core.table.metadata.format_upgrades` and `lake.core.table.metadata.snapshot_updates` register, and the methods
that `lake.core.table.catalogs.rest.BoundedRestCatalog` overrides. The tests check that all these names exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any

import pyiceberg.io
from pydantic import BaseModel
from pyiceberg import catalog
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import Compressor, FromInputFile, ToOutputFile
from pyiceberg.table import (
    CommitTableResponse,
    StagedTable,
    Table,
    metadata,
    statistics,
)
from pyiceberg.table import locations as table_locations
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import FrozenDict, IcebergBaseModel, Identifier, Properties
from pyiceberg.utils.config import Config

from lake.core.base import locations
from lake.core.base.errors import LakeError, RefusedError
from lake.core.io.objects.cloud import SCHEMES
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.opening import with_limits
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import METADATA_CODEC
from lake.core.spec.types.default_values import enable_defaults
from lake.core.spec.types.specification_types import enable_types
from lake.core.table.catalogs.file_io import LocalFileIO, StoreFileIO
from lake.core.table.catalogs.trust import as_configured, without_storage
from lake.core.table.metadata.commit_marks import marked
from lake.core.table.metadata.files import STORAGE, from_input, keep, storage_of
from lake.core.table.metadata.parser import parsed_response
from lake.core.table.metadata.snapshot_updates import with_corrections
from lake.core.table.metadata.text import bytes_of

_METADATA = ".metadata.json"
_S3 = frozenset({"s3", "s3a", "s3n"})
_LOCATION_PROVIDER = "write.py-location-provider.impl"
# How often a table is loaded whose metadata file is replaced and deleted during each attempt.
_LOADS = 5


@cache
def apply() -> None:
    """Make the changes that every command needs; a second call does nothing."""
    _ignore_configuration()
    _bound_files()
    _open_files_late()
    _keep_unknown_members()
    enable_types()
    enable_defaults()
    _read_statistics()
    _write_version_3()
    _share_parts()
    _name_packed_metadata()
    _ignore_location_providers()
    _explain_responses(CommitTableResponse)


@cache
def apply_to_rest() -> None:
    """Also make the changes that only REST catalogs need, whose module is slow to import."""
    apply()
    from pyiceberg.catalog.rest import TableResponse  # noqa: PLC0415

    TableResponse.model_rebuild(force=True)
    _explain_responses(TableResponse)


def _ignore_configuration() -> None:
    """Open catalogs with the properties that lake gives: PyIceberg adds those that it read when it was imported."""
    nothing = object.__new__(Config)
    nothing.config = FrozenDict()
    vars(catalog)["_ENV_CONFIG"] = nothing


def _bound_files() -> None:
    """Limit the size of metadata files that are read: a small compressed file may expand to any size."""
    FromInputFile.table_metadata = staticmethod(from_input)  # type: ignore[assignment,method-assign]


def _open_files_late() -> None:
    """Import PyArrow's file system when a local file is first opened: lake reads metadata without it."""
    original = pyiceberg.io._infer_file_io_from_scheme  # noqa: SLF001

    def inferred(path: str, properties: Properties) -> FileIO | None:
        place = locations.parse(path)
        if place.is_local:
            return LocalFileIO(properties)
        if place.scheme in SCHEMES:
            io = StoreFileIO(properties)
            return _with_storage_of(io, io.storage)
        return _with_patience(original(path, properties))

    pyiceberg.io._infer_file_io_from_scheme = inferred  # noqa: SLF001


def _keep_unknown_members() -> None:
    """Write members that PyIceberg's models do not know as they were read: PyIceberg drops them."""

    def write(written: metadata.TableMetadata, file: OutputFile, **options: bool) -> None:
        pack = Compressor.get_compressor(file.location).bytes_compressor()
        storage = storage_of(file)
        is_new = storage is not None and not options.get("overwrite")
        # PyIceberg would ask whether the file exists, and write it in three requests.
        data = pack(bytes_of(written))
        if storage and is_new and storage.create(file.location, data):
            keep(storage, file.location, data)
            return
        with file.create(**options) as stream:
            stream.write(data)

    ToOutputFile.table_metadata = staticmethod(write)  # type: ignore[assignment,method-assign]


def _read_statistics() -> None:
    """Read statistics with any blob type: PyIceberg accepts two, the specification does not limit them."""
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
    # A model is compiled with the models that it contains, so these are rebuilt first.
    for model in models:
        model.model_rebuild(force=True)


def _write_version_3() -> None:
    """Write metadata of format version 3 too: PyIceberg refuses to (apache/iceberg-python#3619)."""
    metadata.TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[method-assign]


def _share_parts() -> None:
    """Share what never changes between metadata before and after a commit: PyIceberg copies it, which is slow."""
    original = BaseModel.__deepcopy__

    def shared(self: IcebergBaseModel, memo: dict[int, Any] | None = None) -> IcebergBaseModel:
        # `model_copy` gives none, and may change the copy.
        return original(self) if memo is None else self

    for part in (Snapshot, SnapshotLogEntry, MetadataLogEntry, Schema, PartitionSpec, SortOrder):
        part.__deepcopy__ = shared  # type: ignore[assignment,method-assign]


def _name_packed_metadata() -> None:
    """Name metadata files after the table's codec: PyIceberg chooses the compression by the name."""
    original = LocationProvider.new_table_metadata_file_location

    def named(self: LocationProvider, new_version: int = 0) -> str:
        location = original(self, new_version)
        if METADATA_CODEC.of(self.table_properties) == METADATA_CODEC.default:
            return location
        return f"{location.removesuffix(_METADATA)}.gz{_METADATA}"

    LocationProvider.new_table_metadata_file_location = named  # type: ignore[method-assign]


def _explain_responses(kind: type[BaseModel]) -> None:
    """Report an unsupported feature of a server's table by its name: PyIceberg reports invalid metadata."""
    original = kind.model_validate_json

    def validated(data: str, **options: Any) -> Any:
        return parsed_response(partial(original, **options), data)

    kind.model_validate_json = staticmethod(validated)  # type: ignore[assignment,method-assign]


def _ignore_location_providers() -> None:
    """Import no code that a table names: PyIceberg imports any module that the property names."""

    def default(
        _implementation: str, location: str, properties: Mapping[str, Any]
    ) -> LocationProvider:
        rest = {key: value for key, value in properties.items() if key != _LOCATION_PROVIDER}
        return table_locations.load_location_provider(location, rest)

    table_locations._import_location_provider = default  # type: ignore[assignment]  # noqa: SLF001


# Methods of one catalog


def ignore_table_storage_properties(handle: Catalog, *, is_vending: bool = False) -> None:
    """Open files with the catalog's storage properties only: PyIceberg also uses the table's properties.

    Args:
        handle: the catalog.
        is_vending: whether the properties of the catalog's server come together with those of the table;
            `trust.file_properties` separates them.
    """
    load = handle._load_file_io  # noqa: SLF001

    def load_file_io(
        properties: Mapping[str, Any] | None = None, location: str | None = None
    ) -> FileIO:
        given = as_configured(properties or {}, {})
        return load(given if is_vending else without_storage(given), location)

    handle._load_file_io = load_file_io  # type: ignore[method-assign]  # noqa: SLF001


def _with_patience(io: FileIO | None) -> FileIO | None:
    """Let a FileIO ask a store as `Storage` does: a busy one as long, and with the same keys."""
    open_filesystem = getattr(io, "fs_by_scheme", None)
    if io is None or open_filesystem is None:
        return io
    storage = Storage(io.properties)
    limited = lru_cache(lambda scheme, netloc: with_limits(open_filesystem(scheme, netloc)))

    def opened(scheme: str, netloc: str | None = None) -> Any:
        if scheme in _S3 and netloc:
            return storage.resolve(f"{scheme}://{netloc}/")[0]
        return limited(scheme, netloc)

    vars(io)["fs_by_scheme"] = opened
    return _with_storage_of(io, storage)


def _with_storage_of(io: FileIO, storage: Storage) -> FileIO:
    for name in ("new_input", "new_output"):
        vars(io)[name] = partial(_with_storage, getattr(io, name), storage)
    return io


def _with_storage(make: Callable[[str], Any], storage: Storage, location: str) -> Any:
    """Return a file of PyIceberg's that `lake.core.table.metadata.files` reads by one request."""
    file = make(location)
    vars(file)[STORAGE] = storage
    return file


def build_metadata(
    handle: MetastoreCatalog,
    now_ms: Callable[[], int],
    written: Callable[[str], None],
    mark: Callable[[], str],
) -> None:
    """Make a catalog that builds metadata in this process follow the specification and write durable files.

    Args:
        handle: the catalog.
        now_ms: returns the time of a commit, in milliseconds since 1970.
        written: called with the location of each metadata file that a commit writes.
        mark: returns the mark in the names of these files.
    """
    _keep_times_and_members(handle, now_ms, mark)
    _record_metadata(handle, written)
    _retry_missing_metadata(handle)


def _keep_times_and_members(
    handle: MetastoreCatalog, now_ms: Callable[[], int], mark: Callable[[], str]
) -> None:
    """Keep a table's times in ascending order and members that PyIceberg's models do not know; mark the file."""
    stage = handle._update_and_stage_table  # noqa: SLF001

    def staging(
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        staged = stage(current_table, table_identifier, requirements, updates)
        before = current_table.metadata if current_table else None
        staged.metadata = with_corrections(before, staged.metadata, updates, now_ms())
        staged.metadata_location = marked(staged.metadata_location, mark())
        return staged

    vars(handle)["_update_and_stage_table"] = staging


def _record_metadata(handle: MetastoreCatalog, written: Callable[[str], None]) -> None:
    """Record each metadata file, and flush it to disk before the swap: PyIceberg does not call fsync."""
    write = handle._write_metadata  # noqa: SLF001

    def recording(metadata: metadata.TableMetadata, io: FileIO, metadata_path: str) -> None:
        refuse_truncated_name(metadata_path)
        written(metadata_path)
        try:
            with translate_errors(metadata_path):
                write(metadata, io, metadata_path)
            Storage().persist(metadata_path)
        except (LakeError, OSError):
            # The swap needs this file, so the commit certainly had no effect.
            with suppress(OSError, LakeError):
                # PyIceberg's own request would be repeated for minutes.
                Storage(io.properties).delete([metadata_path])
            raise

    vars(handle)["_write_metadata"] = recording


def _retry_missing_metadata(handle: Catalog) -> None:
    """Load a table again if its metadata file is missing: a commit may have replaced and deleted it."""
    load = handle.load_table

    def loading(identifier: str | Identifier) -> Table:
        for _ in range(_LOADS - 1):
            with suppress(FileNotFoundError):
                return load(identifier)
        return load(identifier)

    vars(handle)["load_table"] = loading


def refuse_truncated_name(location: str) -> None:
    """Refuse a location that PyIceberg truncates when it writes metadata files.

    Raises:
        RefusedError: PyIceberg would write to, or delete, a file with another name.
    """
    if locations.is_truncated(location):
        raise RefusedError(
            f"PyIceberg would truncate the name {location} and use another file",
            hint="move the table to a location without #, ? and control characters",
        )


def limit_logins(post: Callable[..., Any]) -> None:
    """Send logins with a time limit: one of PyIceberg's login methods does not use the catalog's session.

    PyIceberg sends requests without a time limit (apache/iceberg-python#2772).
    """
    from pyiceberg.catalog.rest import auth  # noqa: PLC0415 - REST catalogs only

    auth.requests = SimpleNamespace(post=post)  # type: ignore[attr-defined,assignment]
