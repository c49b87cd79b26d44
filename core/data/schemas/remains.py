"""Whether the folder of a new table contains the metadata of a table that was dropped."""

from __future__ import annotations

from shlex import quote

from lake.core.base import locations
from lake.core.base.errors import NotAuthorisedError
from lake.core.base.options import Option
from lake.core.table.catalogs.catalog import Table
from lake.core.table.metadata.files import VERSION_HINT, is_metadata_name


def remains_in_folder(table: Table) -> str | None:
    """Return a warning if the folder of a table that does not exist yet contains metadata, else None.

    On a local disk, the warning contains the newest metadata file. In an object store, nothing is listed: it is asked
    only whether there is such a folder. The location of a table that is only described is not known.
    """
    if table.described:
        return None
    folder = locations.join(table.metadata.location, "metadata")
    if not locations.parse(folder).is_local:
        try:
            known = table.storage.is_folder(folder)
        except NotAuthorisedError:
            # A writer need not be allowed to list the store.
            return None
        return _text(table, f"the metadata in {folder}", "FILE") if known else None
    found = [
        file
        for file in table.storage.list_files(folder)
        if is_metadata_name(file.location) and not file.location.endswith(VERSION_HINT)
    ]
    if not found:
        return None
    newest = max(found, key=lambda file: (file.modified_ms or 0, file.location))
    return _text(table, newest.location, quote(newest.location))


def _text(table: Table, found: str, file: str) -> str:
    name = quote(table.identifier)
    return (
        f"{found} is of an earlier table in the folder of the new one, and `lake clean` refuses such a folder: "
        f"`lake drop {name} && lake register {name} {file}` takes it back; `{Option.PURGE} {name}` after that lists "
        "what it would delete"
    )
