"""A catalog that consists of folders: ``<warehouse>/<namespace>/<table>/metadata/vN.metadata.json``.

The current file is determined as in Iceberg's HadoopTableOperations; other file names are ignored. The names of
namespaces and tables are the names of folders.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote
from typing import NoReturn, cast

from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ValidationError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCreate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from lake.core.base import locations
from lake.core.base.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.base.errors import (
    BadInputError,
    CorruptFileError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from lake.core.base.options import Option
from lake.core.base.units import whole_number
from lake.core.io.objects.requests import BACKOFF
from lake.core.io.storage import atomic_files
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import METADATA_CODEC
from lake.core.table.catalogs.catalog import CommitResult, Table, split_identifier
from lake.core.table.catalogs.configuration import place_of
from lake.core.table.catalogs.errors import first_line
from lake.core.table.catalogs.pyiceberg_catalog import PyIcebergBackend
from lake.core.table.catalogs.trust import storage_properties
from lake.core.table.metadata.files import VERSION_HINT, read_metadata
from lake.core.table.metadata.snapshot_updates import with_corrections
from lake.core.table.metadata.text import bytes_of

# In the order in which Iceberg Java looks for them; the last one is an old name.
_SUFFIXES = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_VERSIONED = re.compile(r"v([^.]*)\..*", re.DOTALL)
_OF_OTHERS = re.compile(r"[0-9]+-.*", re.DOTALL)
_SUFFIX_OF_CODEC = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}
_MAX_VERSION = 2**31 - 1
_LOCK_WAIT_SECONDS = 10
_MAX_HINT_BYTES = 4096
_SHOWN_NAMES = 20
_OTHER_KIND = (
    f"its folder contains the metadata of a catalog of another type: check {Option.CATALOG_TYPE}"
)
_LOOKED_AT = 200
# The most newer versions that a hint names, as messages are cut.
_MOST_MOVED = 3


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A version of a table: its number and the location of its metadata."""

    version: int
    location: str


def current_metadata(storage: Storage, table: str) -> MetadataFile | None:
    """Find the newest version of the table in a folder; None if there is no table.

    The search starts at the version hint, which may be old: a writer may end after its commit and before it writes
    the hint.
    Source: Iceberg's HadoopTableOperations.refresh and findVersion.

    Raises:
        CorruptFileError: the hint names a version that does not exist.
    """
    folder = locations.join(table, "metadata")
    hinted = _hint(storage, folder)
    version = _highest(storage, folder) if hinted is None else hinted
    found = _metadata_file(storage, folder, version)
    if found is None:
        if version == 0:
            return None
        raise CorruptFileError(
            f"metadata file for version {version} is missing in {folder}",
            hint=f"{VERSION_HINT} names this version; if you remove that file, the highest existing version is read",
        )
    while later := _metadata_file(storage, folder, found.version + 1):
        found = later
    return found


def _hint(storage: Storage, folder: str) -> int | None:
    """Return the version that the hint names; None if the hint is missing or not a number."""
    try:
        data = storage.read(locations.join(folder, VERSION_HINT), limit=_MAX_HINT_BYTES)
        text = data.decode()
    except (BadInputError, StorageError, OSError, UnicodeDecodeError):
        return None
    return _number(re.split(r"[\r\n]", text, maxsplit=1)[0])


def _highest(storage: Storage, folder: str) -> int:
    """Return the highest version in a folder; 0 if there is none."""
    numbers = (
        _version_of(name) for name, is_folder in storage.list_folder(folder) if not is_folder
    )
    versions = {number for number in numbers if number is not None}
    for version in sorted(versions, reverse=True):
        if version > 0 and _metadata_file(storage, folder, version):
            return version
    return 0


def _version_of(name: str) -> int | None:
    """Return the version that the name of a metadata file contains; None if it contains none."""
    match = _VERSIONED.fullmatch(name)
    return _number(match[1]) if match else None


def _number(text: str) -> int | None:
    number = whole_number(text)
    return number if number is not None and abs(number) <= _MAX_VERSION else None


def _metadata_file(storage: Storage, folder: str, version: int) -> MetadataFile | None:
    for suffix in _SUFFIXES:
        location = locations.join(folder, f"v{version}{suffix}")
        if storage.exists(location):
            return MetadataFile(version, location)
    return None


class HadoopCommitResponse(CommitTableResponse):
    """The result of a commit, with warnings about what failed after it."""

    warnings: tuple[str, ...] = ()


class HadoopCatalog(NoopCatalog):
    """A folder of tables as a PyIceberg catalog.

    A commit creates the file of the next version, and must fail if the file exists. Only local disks support that
    here: a move in a PyArrow file system, HDFS included, replaces an existing file.

    Args:
        name: the catalog's name.
        warehouse: the folder's location.
        storage: access to the folder.
        properties: the catalog's configuration.
        now_ms: returns the time of a commit, in milliseconds since 1970.
        clock: waits for other writers.
        ids: the source of names for unfinished files.
    """

    def __init__(
        self,
        name: str,
        warehouse: str,
        storage: Storage,
        properties: Mapping[str, str],
        now_ms: Callable[[], int],
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        super().__init__(name, **properties)
        self._clock, self._ids = clock or SystemClock(), ids or SystemIds()
        self._now_ms = now_ms
        self._warehouse = warehouse
        self._storage = storage

    def location_of(self, identifier: str | Identifier) -> str:
        """Return the folder of a table; the table need not exist."""
        return locations.join(self._warehouse, *self.identifier_to_tuple(identifier))

    def load_table(self, identifier: str | Identifier) -> IcebergTable:
        """Load a table.

        Raises:
            NotFoundError: the table does not exist; the hint lists existing tables.
            CorruptFileError: the table's metadata is missing.
        """
        names = self.identifier_to_tuple(identifier)
        current = current_metadata(self._storage, self.location_of(names))
        if current is None:
            self._no_table(names)
        return IcebergTable(
            identifier=names,
            metadata=read_metadata(self._storage, current.location),
            metadata_location=current.location,
            io=load_file_io(self.properties, current.location),
            catalog=self,
        )

    def damaged_file(self, names: Identifier) -> str | None:
        """Return the current metadata file of a table that cannot be loaded; the file may be missing."""
        folder = locations.join(self.location_of(names), "metadata")
        try:
            current = current_metadata(self._storage, self.location_of(names))
        except CorruptFileError:
            return locations.join(folder, f"v{_hint(self._storage, folder)}{_SUFFIXES[0]}")
        return None if current is None else current.location

    def refuse_commits(
        self, identifier: str | Identifier, metadata: TableMetadata | None = None
    ) -> None:
        """Refuse a table to which nothing can be committed here; see `Catalog.refuse_commits`.

        Raises:
            RefusedError: the table's storage, location or properties do not allow a commit.
        """
        names = self.identifier_to_tuple(identifier)
        name, location = ".".join(names), self.location_of(names)
        if not locations.parse(location).is_local:
            raise RefusedError(
                f"{name} is in a hadoop catalog on storage without exclusive creation: {location}",
                hint="lake commits to hadoop catalogs on local disks only",
            )
        if metadata is None:
            if self._is_anothers(location):
                raise RefusedError(
                    f"{location} contains a table of another catalog", hint=_OTHER_KIND
                )
            return
        if "write.metadata.path" in metadata.properties:
            raise RefusedError(
                f"{name} has the property write.metadata.path, but Java's hadoop tables keep metadata in their "
                "own folder",
                hint="Iceberg Java refuses such commits too: remove the property with Spark",
            )
        if not _same_place(metadata.location, location):
            raise RefusedError(
                f"the folder of {name} is {location}, but its metadata contains the location {metadata.location}",
                hint="the table was moved or copied: its metadata still names the files in the old location",
            )
        _suffix(metadata)

    def create_namespace(
        self,
        namespace: str | Identifier,
        properties: Properties = EMPTY_DICT,  # noqa: ARG002
    ) -> None:
        """Make the folders of a namespace, those that are missing."""
        location = self.location_of(namespace)
        self._storage.make_folder(location)

    def versions(self, identifier: str | Identifier, current: str) -> list[str]:
        """Return the metadata files of all versions and the version hint; the current version is the last.

        If they are deleted in this order, the current version is found until the end.

        Raises:
            RefusedError: the folder contains a version that is newer, or the metadata of another catalog.
        """
        names = self.identifier_to_tuple(identifier)
        name, folder = ".".join(names), locations.join(self.location_of(names), "metadata")
        own = _version_of(current.rpartition("/")[2]) or 0
        found: list[tuple[int, str]] = []
        for file in self._metadata_names(self.location_of(names)):
            place = locations.join(folder, file)
            if _OF_OTHERS.fullmatch(file):  # check: metadata-of-other-catalogs
                raise RefusedError(
                    f"the folder of {name} also contains metadata of a catalog of another type: {place}",
                    hint="that catalog may have a table with the same files: move this metadata file to another "
                    "folder if it has none",
                )
            version = _version_of(file)
            if version is None or place == current:
                continue
            if version > own:  # check: newer-version-of-folder
                raise RefusedError(
                    f"{place} is newer than the current version {own}, and would become the current version",
                    hint="move that file to another folder if you do not need its contents",
                )
            found.append((version, place))
        hint = locations.join(folder, VERSION_HINT)
        hints = [hint] if self._storage.exists(hint) else []
        return [*(place for _, place in sorted(found)), *hints, current]

    # Commits

    def commit_table(
        self,
        table: IcebergTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> HadoopCommitResponse:
        """Create the next version of a table, or its first.

        Source: Iceberg's HadoopTableOperations.commit.

        Raises:
            CommitFailedException: a requirement is not met, or another writer created that version; nothing
                was changed.
            CommitStateUnknownException: the version was created, but is not the current version.
            NoSuchTableError: the table does not exist and the commit does not create it.
            RefusedError: see `refuse_commits`.
        """
        names = table.name()
        folder = os.path.join(locations.parse(self.location_of(names)).path, "metadata")
        creates = _creates(requirements)
        self.refuse_commits(names, None if creates else table.metadata)
        if creates:
            self._storage.make_folder(folder)
        try:
            with atomic_files.sole_writer(folder, _LOCK_WAIT_SECONDS, self._clock) as alone:
                if alone:
                    atomic_files.sweep(folder)
                return self._commit(names, requirements, updates)
        except FileNotFoundError as error:
            raise NoSuchTableError(f"no folder {folder}") from error
        except atomic_files.NotCreatedError as error:
            if isinstance(error.__cause__, PermissionError):
                raise NotAuthorisedError(str(error)) from error
            raise CommitFailedException(str(error)) from error

    def _commit(
        self,
        names: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> HadoopCommitResponse:
        location = self.location_of(names)
        try:
            current = current_metadata(self._storage, location)
            base = read_metadata(self._storage, current.location) if current else None
            after = _applied(base, current.location if current else None, requirements, updates)
            after = with_corrections(base, after, updates, self._now_ms())
        except (ValidationError, ValueError, OSError) as error:
            # Nothing has been written yet. A later failure may have had an effect.
            raise BadInputError(f"cannot commit to {location}: {first_line(error)}") from error
        if current and after == base:
            return HadoopCommitResponse(metadata=after, metadata_location=current.location)
        self.refuse_commits(names, after)
        made = self._make_version(location, (current.version if current else 0) + 1, after)
        self._confirm(location, made)
        return HadoopCommitResponse(
            metadata=after, metadata_location=made.location, warnings=_hint_at(made, self._ids)
        )

    def _make_version(self, location: str, version: int, metadata: TableMetadata) -> MetadataFile:
        folder, suffix = locations.join(location, "metadata"), _suffix(metadata)
        data = bytes_of(metadata)
        made = MetadataFile(version, locations.join(folder, f"v{version}{suffix}"))
        path = locations.parse(made.location).path
        # A version has one file, whatever its suffix: readers would ignore the second one.
        # It is looked for after the next one: meanwhile, writers without the lock may make both.
        beyond = _metadata_file(self._storage, folder, version + 1)
        if taken := _metadata_file(self._storage, folder, version):
            raise CommitFailedException(f"version {version} already exists: {taken.location}")
        if beyond:
            raise RefusedError(
                f"{beyond.location} is newer than the current version {version - 1}: a commit would make it current",
                hint="move that file to another folder if you do not need its contents",
            )
        try:
            _drop_checksum(path)
        except OSError as error:
            raise atomic_files.NotCreatedError(f"cannot write {path}: {error.strerror}") from error
        packed = gzip.compress(data, mtime=0) if ".gz." in suffix else data
        atomic_files.create(path, packed, ids=self._ids)
        return made

    def _confirm(self, location: str, made: MetadataFile) -> None:
        """Check that no writer without the lock created newer versions and removed old ones meanwhile."""
        try:
            newest = current_metadata(self._storage, location)
        except (LakeError, OSError) as error:
            raise CommitStateUnknownException(
                f"{made.location} was created, but the table cannot be read: {error}"
            ) from error
        if newest != made:
            raise CommitStateUnknownException(
                f"version {made.version} was created, but version {newest and newest.version} is current"
            )

    # Names

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Whether a namespace has a folder."""
        names = self.identifier_to_tuple(namespace)
        folder = self._storage.is_folder(locations.join(self._warehouse, *names))
        return folder and not self._is_table(*names)

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the child namespaces of a namespace."""
        names = self.identifier_to_tuple(namespace)
        return [(*names, name) for name in self._folders(names) if not self._is_table(*names, name)]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of a namespace."""
        names = self.identifier_to_tuple(namespace)
        return [
            (*names, name)
            for name in self._folders(names)
            if self._is_table(*names, name)
            and not self._is_anothers(self.location_of((*names, name)))
        ]

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Whether a folder is that of a table, even if no version of the table can be read."""
        return self._is_table(*self.identifier_to_tuple(identifier))

    def _folders(self, names: Identifier) -> list[str]:
        listed = self._storage.list_folder(locations.join(self._warehouse, *names))
        return [name for name, is_folder in listed if is_folder][:_LOOKED_AT]

    def _is_table(self, *names: str) -> bool:
        """Whether a folder is that of a table, of any catalog, and therefore not a namespace."""
        return bool(self._metadata_names(self.location_of(names)))

    def _is_anothers(self, location: str) -> bool:
        """Whether a folder contains only metadata files with the names that other catalogs use."""
        named = any(_OF_OTHERS.fullmatch(name) for name in self._metadata_names(location))
        return named and current_metadata(self._storage, location) is None

    def _metadata_names(self, location: str) -> list[str]:
        listed = self._storage.list_folder(locations.join(location, "metadata"))
        return [name for name, is_folder in listed if name.endswith(_SUFFIXES) and not is_folder]

    def _no_table(self, names: Identifier) -> NoReturn:
        wanted, namespace = ".".join(names), names[:-1]
        if not self._storage.is_folder(self._warehouse):
            raise NotFoundError(
                f"table {wanted} does not exist: there is no folder {self._warehouse}",
                hint=f"check {Option.WAREHOUSE}",
            )
        if self._is_anothers(self.location_of(names)):
            hint = _OTHER_KIND
        elif self._storage.is_folder(locations.join(self._warehouse, *namespace)):
            hint = f"tables of {'.'.join(namespace)}: {_shown(self.list_tables(namespace))}"
        else:
            hint = f"namespaces: {_shown(self.list_namespaces())}"
        raise NotFoundError(f"table {wanted} does not exist in {self._warehouse}", hint=hint)


class HadoopBackend(PyIcebergBackend):
    """A folder of tables."""

    @property
    def is_served(self) -> bool:
        """Whether commits are sent to a server, which may apply one after the sending process has ended."""
        return False

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""
        return False

    @property
    def makes_metadata(self) -> bool:
        """Whether a commit builds the table's new metadata in this process, from the metadata that was read."""
        return True

    @property
    def has_entries(self) -> bool:
        """Whether a table is an entry that can be dropped, renamed and registered; False if it is a folder."""
        return False

    @property
    def _folders(self) -> HadoopCatalog:
        return cast("HadoopCatalog", self.handle)

    def refuse_commits(self, identifier: str, metadata: TableMetadata | None = None) -> None:
        """Refuse a table to which nothing can be committed; see `HadoopCatalog.refuse_commits`.

        Raises:
            RefusedError: the table's storage, location or properties do not allow a commit.
        """
        self._folders.refuse_commits(split_identifier(identifier), metadata)

    def _open(self) -> PyIcebergCatalog:
        properties = {key: str(value) for key, value in self.configured.items()}
        warehouse = properties.get("warehouse")
        if not warehouse:
            raise BadInputError(
                f"catalog {self.name} has the type hadoop, but no warehouse",
                hint=f"set {place_of(self.name, 'warehouse')} to the folder that contains the tables",
            )
        storage = Storage(
            storage_properties(properties),
            backoff=replace(BACKOFF, clock=self._clock, ids=self._ids),
        )
        return HadoopCatalog(
            self.name, warehouse, storage, properties, self._now_ms, self._clock, self._ids
        )

    def _damaged_file(self, identifier: str, error: CorruptFileError) -> str | None:  # noqa: ARG002
        return self._folders.damaged_file(split_identifier(identifier))

    def _is_version(self, name: str) -> bool:
        return name.endswith(_SUFFIXES) and _version_of(name) is not None

    def _steps_back(self, identifier: str, place: str, older: str, storage: Storage) -> str:  # noqa: ARG002
        """Return the commands that remove all newer versions from the table, and the hint to them."""
        folder, _, name = older.rpartition("/")
        own = _version_of(name) or 0
        listed = [item for item, is_folder in storage.list_folder(folder) if not is_folder]
        newer = sorted(
            item for item in listed if self._is_version(item) and (_version_of(item) or 0) > own
        )
        hint = [VERSION_HINT] if VERSION_HINT in listed else []
        parsed = locations.parse(folder)
        if not parsed.is_local or len(newer) > _MOST_MOVED:
            more = f" and {len(newer) - _MOST_MOVED:,} more" if len(newer) > _MOST_MOVED else ""
            names = ", ".join([*hint, *newer[:_MOST_MOVED]])
            return f"in {folder}, give other names, which do not begin with v, to {names}{more}"
        moves = [f"mv {quote(item)} {quote(f'damaged-{item}')}" for item in newer]
        moves += [f"rm {item}" for item in hint]
        return f"`{' && '.join([f'cd {quote(parsed.path)}', *moves])}`"

    def metadata_files(self, table: Table) -> list[str]:
        """Return the files of all versions and the version hint; see `HadoopCatalog.versions`.

        Raises:
            RefusedError: the folder contains a newer version, or the metadata of another catalog.
        """
        names = split_identifier(table.identifier)
        return self._folders.versions(names, table.metadata_location)

    _begin = PyIcebergBackend.describe

    def _result(self, answer: CommitTableResponse) -> CommitResult:
        return CommitResult(answer.metadata, cast("HadoopCommitResponse", answer).warnings)


def _creates(requirements: tuple[TableRequirement, ...]) -> bool:
    return any(isinstance(item, AssertCreate) for item in requirements)


def _applied(
    base: TableMetadata | None,
    location: str | None,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
) -> TableMetadata:
    """Return the metadata after a change, with the old location in its metadata log."""
    if base is None and not _creates(requirements):
        raise NoSuchTableError("the table has no version")
    for requirement in requirements:
        requirement.validate(base)
    return update_table_metadata(
        base or MetastoreCatalog._empty_table_metadata(),  # noqa: SLF001
        updates,
        enforce_validation=base is None,
        metadata_location=location,
    )


def _suffix(metadata: TableMetadata) -> str:
    return _SUFFIX_OF_CODEC[METADATA_CODEC.of(metadata.properties)]


def _same_place(one: str, other: str) -> bool:
    if locations.canonical(one).rstrip("/") == locations.canonical(other).rstrip("/"):
        return True
    first, second = locations.parse(one), locations.parse(other)
    both_local = first.is_local and second.is_local
    return both_local and os.path.realpath(first.path) == os.path.realpath(second.path)


def _drop_checksum(path: str) -> None:
    """Remove the checksum that Hadoop's local file system wrote for a file: a new file has another one."""
    folder, name = os.path.split(path)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, f".{name}.crc"))


def _hint_at(made: MetadataFile, ids: Ids) -> tuple[str, ...]:
    """Write the version hint; return a warning if that fails, which only slows down readers."""
    path = os.path.join(os.path.dirname(locations.parse(made.location).path), VERSION_HINT)
    try:
        _drop_checksum(path)
        atomic_files.replace(path, str(made.version).encode(), ids=ids)
    except OSError as error:
        # Without a hint, readers list the folder. An old hint may name a version that is removed later.
        with suppress(OSError):
            os.unlink(path)
        return (f"{path} could not be written: {error.strerror}",)
    return ()


def _shown(found: Iterable[Identifier]) -> str:
    texts = sorted(".".join(names) for names in found)
    more = len(texts) - _SHOWN_NAMES
    return (", ".join(texts[:_SHOWN_NAMES]) or "none") + (f" and {more} more" if more > 0 else "")
