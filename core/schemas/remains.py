"""Say that the folder of a new table contains the files of a table that was dropped."""

from __future__ import annotations

from shlex import quote

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.metadata.files import VERSION_HINT, is_metadata_name
from lake.core.options import Option
from lake.core.session import Session


def warn_of_remains(session: Session, table: Table) -> None:
    """Warn if the folder of a table that does not exist yet contains metadata.

    On a local disk, the warning contains the newest metadata file. In an object store, nothing is listed: it is asked
    only whether there is such a folder.

    Args:
        session: the session of the invocation.
        table: the table, nothing of which was written yet.
    """
    folder = locations.join(table.metadata.location, "metadata")
    if not locations.parse(folder).is_local:
        if table.storage.is_folder(folder):
            session.warn(_text(table, f"the metadata in {folder}", "FILE"))
        return
    found = [
        file
        for file in table.storage.list_files(folder)
        if is_metadata_name(file.location) and not file.location.endswith(VERSION_HINT)
    ]
    if found:
        newest = max(found, key=lambda file: (file.modified_ms or 0, file.location))
        session.warn(_text(table, newest.location, quote(newest.location)))


def _text(table: Table, found: str, file: str) -> str:
    name = quote(table.identifier)
    return (
        f"{found} is of an earlier table in the folder of the new one, and `lake clean` refuses such a folder: "
        f"`lake drop {name} && lake register {name} {file}` takes it back; `{Option.PURGE} {name}` after that lists "
        "what it would delete"
    )
