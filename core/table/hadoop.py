"""A catalog that is nothing but folders: ``<warehouse>/<namespace>/<table>/metadata/vN.metadata.json``.

Which file is current is decided as Iceberg's HadoopTableOperations does, whatever other names lie there. The
names of namespaces and tables are the names of folders.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.table import CommitTableResponse
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from lake.core import paths
from lake.core.errors import BadInputError, CorruptFileError, NotFoundError, RefusedError
from lake.core.table.storage import MAX_METADATA_BYTES, Storage

VERSION_HINT = "version-hint.text"
# In the order in which Java looks for them; the last is an old spelling.
_SUFFIXES = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
_VERSIONED = re.compile(r"v([^.]*)\..*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9]+")
_MAX_VERSION = 2**31 - 1
_MAX_HINT_BYTES = 4096
_SHOWN_NAMES = 20
_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A version of a table: its number and where its metadata lies."""

    version: int
    location: str


def current_metadata(storage: Storage, table: str) -> MetadataFile | None:
    """Find the newest version of the table in a folder; None if there is no table.

    The hint is where to start, not the answer: a writer that died after its commit leaves an old one.
    Source: Iceberg's HadoopTableOperations.refresh and findVersion.

    Raises:
        CorruptFileError: the hint names a version that is not there.
    """
    folder = paths.join(table, "metadata")
    hinted = _hint(storage, folder)
    version = _highest(storage, folder) if hinted is None else hinted
    found = _metadata_file(storage, folder, version)
    if found is None:
        if version == 0:
            return None
        raise CorruptFileError(
            f"metadata file for version {version} is missing in {folder}",
            hint=f"{VERSION_HINT} names that version: without it, the highest one there is read",
        )
    while later := _metadata_file(storage, folder, found.version + 1):
        found = later
    return found


def _hint(storage: Storage, folder: str) -> int | None:
    """Return the version that the hint names; None where it is missing or no number."""
    try:
        data = storage.read(paths.join(folder, VERSION_HINT), limit=_MAX_HINT_BYTES)
        text = data.decode()
    except (BadInputError, OSError, UnicodeDecodeError):
        return None
    return _number(re.split(r"[\r\n]", text, maxsplit=1)[0])


def _highest(storage: Storage, folder: str) -> int:
    """Return the highest version in a folder; 0 if there is none."""
    named = (
        _VERSIONED.fullmatch(name)
        for name, is_folder in storage.list_folder(folder)
        if not is_folder
    )
    versions = {number for match in named if match and (number := _number(match[1])) is not None}
    for version in sorted(versions, reverse=True):
        if version > 0 and _metadata_file(storage, folder, version):
            return version
    return 0


def _number(text: str) -> int | None:
    number = int(text) if len(text) <= 11 and _NUMBER.fullmatch(text) else None  # noqa: PLR2004
    return number if number is not None and abs(number) <= _MAX_VERSION else None


def _metadata_file(storage: Storage, folder: str, version: int) -> MetadataFile | None:
    for suffix in _SUFFIXES:
        location = paths.join(folder, f"v{version}{suffix}")
        if storage.exists(location):
            return MetadataFile(version, location)
    return None


def read_metadata(storage: Storage, location: str) -> TableMetadata:
    """Read a metadata file, compressed if its name says so.

    Raises:
        CorruptFileError: it is not there any more, or longer than any metadata.
    """
    try:
        data = storage.read(location)
    except NotFoundError as error:
        raise CorruptFileError(
            f"{location} was removed while it was about to be read", hint="run the command again"
        ) from error
    if location.endswith((".gz.metadata.json", ".metadata.json.gz")):
        data = _unpacked(data, location)
    return TableMetadataUtil.parse_raw(data.decode())


def _unpacked(data: bytes, location: str) -> bytes:
    # 16 more than the largest window: expect gzip's header and trailer.
    unpacker = zlib.decompressobj(zlib.MAX_WBITS + 16)
    try:
        unpacked = unpacker.decompress(data, MAX_METADATA_BYTES)
    except zlib.error as error:
        raise CorruptFileError(f"{location} is not gzip: {error}") from error
    if not unpacker.eof:
        raise CorruptFileError(
            f"{location} is cut short or has more than {MAX_METADATA_BYTES} bytes of text"
        )
    return unpacked


class HadoopCatalog(NoopCatalog):
    """A folder of tables as a PyIceberg catalog; so far it is read only.

    Args:
        name: the catalog's name.
        warehouse: the folder's location.
        storage: how it is reached.
        properties: the catalog's configuration.
    """

    def __init__(
        self, name: str, warehouse: str, storage: Storage, properties: Mapping[str, str]
    ) -> None:
        super().__init__(name, **properties)
        self._warehouse = warehouse
        self._storage = storage

    def load_table(self, identifier: str | Identifier) -> IcebergTable:
        """Load a table.

        Raises:
            NotFoundError: there is none; the hint names those that there are.
            CorruptFileError: its metadata is missing.
        """
        names = self.identifier_to_tuple(identifier)
        current = current_metadata(self._storage, paths.join(self._warehouse, *names))
        if current is None:
            self._no_table(names)
        return IcebergTable(
            identifier=names,
            metadata=read_metadata(self._storage, current.location),
            metadata_location=current.location,
            io=_LazyFileIO(self.properties),
            catalog=self,
        )

    def commit_table(
        self,
        table: IcebergTable,
        requirements: tuple[TableRequirement, ...],  # noqa: ARG002
        updates: tuple[TableUpdate, ...],  # noqa: ARG002
    ) -> CommitTableResponse:
        """Refuse: a commit here is the exclusive creation of version N + 1.

        Raises:
            RefusedError: always.
        """
        raise RefusedError(f"{'.'.join(table.name())} is in a hadoop catalog, which is only read")

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces right below one."""
        names = self.identifier_to_tuple(namespace)
        return [(*names, name) for name in self._folders(names) if not self._is_table(*names, name)]

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables of a namespace."""
        names = self.identifier_to_tuple(namespace)
        return [(*names, name) for name in self._folders(names) if self._is_table(*names, name)]

    def _folders(self, names: Identifier) -> list[str]:
        listed = self._storage.list_folder(paths.join(self._warehouse, *names))
        return [name for name, is_folder in listed if is_folder][:_LOOKED_AT]

    def _is_table(self, *names: str) -> bool:
        listed = self._storage.list_folder(paths.join(self._warehouse, *names, "metadata"))
        return any(".metadata.json" in name for name, is_folder in listed if not is_folder)

    def _no_table(self, names: Identifier) -> NoReturn:
        wanted, namespace = ".".join(names), names[:-1]
        if not self._storage.is_folder(self._warehouse):
            raise NotFoundError(
                f"there is no folder {self._warehouse}, so no table {wanted}",
                hint="check --warehouse",
            )
        if self._storage.is_folder(paths.join(self._warehouse, *namespace)):
            hint = f"tables of {'.'.join(namespace)}: {_shown(self.list_tables(namespace))}"
        else:
            hint = f"namespaces: {_shown(self.list_namespaces())}"
        raise NotFoundError(f"table {wanted} does not exist in {self._warehouse}", hint=hint)


def _shown(found: Iterable[Identifier]) -> str:
    texts = sorted(".".join(names) for names in found)
    more = len(texts) - _SHOWN_NAMES
    return (", ".join(texts[:_SHOWN_NAMES]) or "none") + (f" and {more} more" if more > 0 else "")


class _LazyFileIO(FileIO):
    """PyIceberg's own FileIO, made when it is first used: making it costs more than reading metadata."""

    def new_input(self, location: str) -> InputFile:
        return load_file_io(self.properties, location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return load_file_io(self.properties, location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place = location if isinstance(location, str) else location.location
        load_file_io(self.properties, place).delete(place)
