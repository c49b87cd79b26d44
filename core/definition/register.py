"""Register a table that has a metadata file, but no entry in the catalog."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.core import locations
from lake.core.catalogs.catalog import split_identifier
from lake.core.catalogs.errors import catalog_errors
from lake.core.catalogs.shared_locations import names_of_table
from lake.core.catalogs.trust import storage_properties
from lake.core.definition.describe import column_rows
from lake.core.definition.entries import change_entry, refuse_folders
from lake.core.errors import InvalidRequestError, NotAuthorisedError, NotFoundError, RefusedError
from lake.core.metadata.files import check, find_metadata, is_metadata_name
from lake.core.metadata.format_upgrades import refuse_encrypted
from lake.core.outcome import Outcome, Status
from lake.core.session import Session
from lake.core.snapshots.summary import declared_totals
from lake.core.storage.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationPlan:
    """A table to register.

    Args:
        identifier: its name.
        location: the location of its metadata file.
        metadata: its metadata.
        newer: a newer metadata file in the same folder; None if there is none.
        exists: whether the catalog has this entry already.
    """

    identifier: str
    location: str
    metadata: TableMetadata
    newer: str | None
    exists: bool = False

    def facts(self) -> dict[str, Any]:
        """Return the plan by its names in the output."""
        totals = declared_totals(self.metadata.current_snapshot())
        return {
            "metadata_location": self.location,
            "location": self.metadata.location,
            "table_uuid": str(self.metadata.table_uuid),
            "format_version": self.metadata.format_version,
            "columns": column_rows(self.metadata.schema()),
            "snapshots": len(self.metadata.snapshots),
            "rows": totals["rows"],
            "rows_at_most": totals["rows_at_most"],
        }


def plan_registration(session: Session, identifier: str, location: str) -> RegistrationPlan:
    """Read the metadata file and check that the table can be registered.

    Raises:
        NotFoundError: the file does not exist.
        CorruptFileError: it is not the metadata of a table.
        InvalidRequestError: the name is not that of a metadata file.
        RefusedError: a table has the name, or the catalog has the table already or cannot register tables.
    """
    refuse_folders(
        session.catalog,
        "register",
        hint="a table in this layout is found if its folder is in the warehouse; any other table can be registered "
        "in a catalog of another type",
    )
    split_identifier(identifier)
    if not is_metadata_name(location):
        raise InvalidRequestError(
            f"{location} is not the name of a metadata file",
            hint="give the location of a file such as 00012-….metadata.json",
        )
    if not locations.has_scheme(location):
        location = f"file://{os.path.abspath(location)}"
    configured = {key: str(value) for key, value in session.catalog.configured.items()}
    storage = Storage(storage_properties(configured))
    metadata = _read(storage, location)
    # What cannot be loaded could not be dropped either.
    check(metadata, location)
    refuse_encrypted(metadata, identifier)
    plan = RegistrationPlan(
        identifier=identifier,
        location=location,
        metadata=metadata,
        newer=_newer(storage, location),
    )
    if session.catalog.exists(identifier):
        found = session.catalog.load(identifier)
        if found.metadata.table_uuid != metadata.table_uuid:
            raise RefusedError(f"table {identifier} exists already", hint="choose another name")
        if locations.canonical(found.metadata_location) != locations.canonical(location):
            raise RefusedError(
                f"table {identifier} is registered with another metadata file: {found.metadata_location}",
                hint="`lake rollback` sets it back to an earlier snapshot",
            )
        return RegistrationPlan(
            identifier=identifier, location=location, metadata=metadata, newer=None, exists=True
        )
    if names := names_of_table(session.catalog, metadata, location, storage):
        raise RefusedError(
            f"the catalog has this table, or another one in its folders, already: {', '.join(names[:3])}",
            hint="two names for one table would let one remove files that the other needs; use `lake rename`",
        )
    return plan


def _read(storage: Storage, location: str) -> TableMetadata:
    try:
        with catalog_errors(f"metadata file {location}"):
            metadata = find_metadata(storage, location)
    except NotAuthorisedError as error:
        raise NotAuthorisedError(
            error.message,
            hint="a catalog gives access to the files of registered tables only: add keys for the storage to the "
            "catalog's configuration",
        ) from error
    if metadata is None:
        raise NotFoundError(f"metadata file {location} does not exist")
    return metadata


def _newer(storage: Storage, location: str) -> str | None:
    """Return the newest metadata file in the folder, if its number is greater than the given file's."""
    folder, _, name = location.rpartition("/")
    own = _number(name)
    listed = [
        item
        for item, is_folder in storage.list_folder(folder)
        if not is_folder and is_metadata_name(item) and _number(item) > own
    ]
    return max(listed, key=_number, default=None)


def _number(name: str) -> int:
    digits = name.removeprefix("v").partition("-")[0].partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else -1  # noqa: PLR2004


def execute(session: Session, plan: RegistrationPlan, *, dry_run: bool) -> Outcome:
    """Register the table.

    Raises:
        CommitConflictError: another process created a table with the name meanwhile; nothing was changed.
        CommitUnknownError: the table may have been registered.
    """
    if plan.newer:
        session.warn(
            f"the folder also contains {plan.newer}, which is newer: commits in it are not in the registered table"
        )
    if plan.exists:
        return _outcome(plan, Status.NOTHING_TO_DO)
    if dry_run:
        return _outcome(plan, Status.DRY_RUN)
    catalog, uuid = session.catalog, plan.metadata.table_uuid
    catalog.make_namespace(plan.identifier)

    def is_made() -> bool:
        try:
            return catalog.load(plan.identifier).metadata.table_uuid == uuid
        except NotFoundError:
            return False

    change_entry(
        session,
        f"table {plan.identifier}",
        lambda: catalog.register(plan.identifier, plan.location),
        is_made,
    )
    return _outcome(plan, Status.DONE)


def _outcome(plan: RegistrationPlan, status: Status) -> Outcome:
    facts = plan.facts()
    return Outcome(
        command="register",
        table=plan.identifier,
        status=status,
        base_snapshot_id=plan.metadata.current_snapshot_id,
        plan=facts,
        result=facts if status is Status.DONE else {},
    )
