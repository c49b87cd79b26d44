"""Where the temporary manifests of Flink jobs and staged runs are, and what they need of the table's metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError
from lake.core.base.units import natural_number
from lake.core.io.avro.container import read_container
from lake.core.table.flink.commits import MANIFESTS_LOCATION
from lake.core.table.flink.manifest_names import parse_name

if TYPE_CHECKING:
    from lake.core.io.storage.storage import Storage, StoredFile
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, slots=True)
class NeededIds:
    """The ids that manifests need.

    Args:
        schemas: the ids of the schemas that their files were written with.
        specs: the ids of the partition specs of their files.
    """

    schemas: frozenset[int]
    specs: frozenset[int]


def manifest_folders(table: Table) -> list[str]:
    """Return the folders to which a sink may write a table's temporary manifests."""
    named = table.properties.get(MANIFESTS_LOCATION)
    own = (table.metadata_folder, locations.join(table.metadata.location, "metadata"))
    folders = [folder.rstrip("/") for folder in (named, *own) if folder]
    return list({locations.canonical(folder): folder for folder in reversed(folders)}.values())


def manifest_roots(table: Table) -> list[str]:
    """Return the folders below which a table's temporary manifests may be."""
    return [*table.roots, *manifest_folders(table)]


def find_manifests(table: Table) -> list[StoredFile]:
    """Return the files with the names of temporary manifests in the table's folders.

    Raises:
        StorageError: the storage lists no files in a folder that has some.
    """
    found: dict[str, StoredFile] = {}
    for folder in manifest_folders(table):
        listed = table.storage.list_files(folder)
        table.require_listed(folder, listed)
        found |= {locations.canonical(file.location): file for file in listed}
    return [file for file in found.values() if parse_name(file.location)]


def needed_ids(storage: Storage, manifests: Iterable[StoredFile]) -> NeededIds:
    """Return the ids in the headers of temporary manifests; a manifest that was deleted meanwhile is omitted.

    Raises:
        CorruptFileError: a manifest cannot be read, so it is not known what it needs.
    """
    schemas, specs = set(), set()
    for file in manifests:
        try:
            header = read_container(storage.read(file.location), name=file.location).metadata
            schema = json.loads(header["schema"]).get("schema-id")
        except NotFoundError:
            continue
        except (BadInputError, AttributeError, KeyError, ValueError, RecursionError) as error:
            raise CorruptFileError(f"{file.location} cannot be read: {error}") from error
        spec = natural_number(header.get("partition-spec-id", b"").decode(errors="replace"))
        if spec is None:
            raise CorruptFileError(f"{file.location} has no partition spec id in its header")
        specs.add(spec)
        schemas.add(schema if isinstance(schema, int) else 0)
    return NeededIds(frozenset(schemas), frozenset(specs))
