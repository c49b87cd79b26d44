"""Register a table that has a metadata file, but no entry in the catalog."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.errors import (
    CommitUnknownError,
    CorruptFileError,
    InvalidRequestError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage.storage import Storage
from lake.core.maintain.definition.describe import column_facts
from lake.core.maintain.definition.entries import change_entry, refuse_folders
from lake.core.maintain.definition.facts import RegistrationFacts
from lake.core.spec.properties.table_properties import DELETE_OLD_METADATA, GC_ENABLED
from lake.core.table.catalogs.catalog import Table, split_identifier
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.shared_locations import (
    names_in_other_databases,
    names_of_table,
    require_own_folders,
)
from lake.core.table.catalogs.trust import storage_properties
from lake.core.table.metadata.files import check, find_metadata, is_metadata_name, version_of
from lake.core.table.metadata.format_upgrades import refuse_encrypted
from lake.core.table.metadata.histories import find_document
from lake.core.table.snapshots.summary import declared_totals
from lake.core.transaction.garbage.other_histories import histories_beside
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationPlan:
    """A table to register.

    Args:
        identifier: its name.
        location: the location of its metadata file.
        metadata: its metadata.
        storage: the storage that contains it.
        newer: a newer metadata file in the same folder; None if there is none.
        exists: whether the catalog has this entry already.
        protect: whether to register a state in which the table's files are never deleted.
    """

    identifier: str
    location: str
    metadata: TableMetadata
    storage: Storage = field(repr=False)
    newer: str | None
    exists: bool = False
    protect: bool = False

    def facts(self) -> RegistrationFacts:
        """Return the plan by its names in the output."""
        totals = declared_totals(self.metadata.current_snapshot())
        return RegistrationFacts(
            metadata_location=self.location,
            location=self.metadata.location,
            table_uuid=str(self.metadata.table_uuid),
            format_version=self.metadata.format_version,
            columns=column_facts(self.metadata.schema()),
            snapshots=len(self.metadata.snapshots),
            rows=totals["rows"],
            rows_at_most=totals["rows_at_most"],
        )


def plan_registration(
    session: Session, identifier: str, location: str, *, keep_files_forever: bool = False
) -> RegistrationPlan:
    """Read the metadata file and check that the table can be registered.

    Args:
        session: the session of the invocation.
        identifier: the table's name.
        location: the location of its metadata file.
        keep_files_forever: whether to register it so that no program deletes its files, which another table or
            catalog may need.

    Raises:
        NotFoundError: the file does not exist.
        CorruptFileError: it is not the metadata of a table.
        InvalidRequestError: the name is not that of a metadata file.
        RefusedError: a table has the name, or the catalog has the table already or cannot register tables; or the
            files of the table may be those of another one.
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
        storage=storage,
        newer=_newer(storage, location),
        protect=keep_files_forever and not _is_protected(metadata),
    )
    if _is_readable(session, identifier, location):
        found = session.catalog.load(identifier)
        if found.metadata.table_uuid != metadata.table_uuid:
            raise RefusedError(f"table {identifier} exists already", hint="choose another name")
        if locations.canonical(location) not in _origins(found, keep_files_forever):
            raise RefusedError(
                f"table {identifier} is registered with another metadata file: {found.metadata_location}",
                hint="`lake rollback` sets it back to an earlier snapshot",
            )
        return replace(plan, location=found.metadata_location, newer=None, exists=True)
    # check: one-name-at-register
    if names := names_of_table(session.catalog, metadata, location, storage, identifier):
        raise RefusedError(
            f"the catalog has this table, or another one in its folders, already: {', '.join(names[:3])}",
            hint="two names for one table would let one remove files that the other needs; use `lake rename`",
        )
    if not (keep_files_forever or _is_protected(metadata)):
        _refuse_files_of_others(session, plan)  # check: no-copy-registered
    return plan


def _is_protected(metadata: TableMetadata) -> bool:
    """Whether no program deletes files of the table."""
    properties = metadata.properties
    return not GC_ENABLED.of(properties) and not DELETE_OLD_METADATA.of(properties)


def _origins(table: Table, keep_files_forever: bool) -> set[str]:  # noqa: FBT001
    """Return the metadata files of which the registration of a table may have been asked for."""
    log = table.metadata.metadata_log
    written = [log[-1].metadata_file] if log and keep_files_forever else []
    return {locations.canonical(path) for path in (table.metadata_location, *written)}


def _refuse_files_of_others(session: Session, plan: RegistrationPlan) -> None:
    """Refuse a table whose files another table or catalog may use: its maintenance would delete them.

    Raises:
        RefusedError: the metadata file is not below the table's location, is not the newest one of the table, or
            another catalog contains the table.
    """
    metadata, place, storage = plan.metadata, plan.location, plan.storage
    hint = f"{Option.KEEP_FILES_FOREVER} registers it so that no file of it is deleted (gc.enabled=false)"
    require_own_folders(metadata, place, storage, plan.identifier, hint)
    if found := names_in_other_databases(session.catalog, metadata, place, storage):
        raise RefusedError(
            f"another catalog contains the table, or another one in its folders: {', '.join(found[:_SHOWN])}",
            hint=f"drop it there first, its files stay; or {hint}",
        )
    updated_ms = metadata.last_updated_ms
    others = [
        other.newest
        for other in histories_beside(storage, metadata, place)
        if not other.is_logged and other.is_after(place, updated_ms)
    ]
    if others:
        raise RefusedError(
            f"{place} is not the newest state of the table, or not the only one: another catalog may continue it "
            f"({others[0]})",
            hint=f"register the newest metadata file; or {hint}",
        )


def _is_readable(session: Session, identifier: str, location: str) -> bool:
    """Whether the catalog has a table of the name; False if its metadata file is damaged and this one replaces it.

    Raises:
        CorruptFileError: the table's metadata file is damaged, and the other one is not beside it.
    """
    try:
        return session.catalog.exists(identifier)
    except CorruptFileError:
        damaged = dict(session.catalog.metadata_locations()).get(identifier, "")
        beside = locations.canonical(damaged).rpartition("/")[0]
        if locations.canonical(location).rpartition("/")[0] != beside:
            raise
        return False


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
    version = version_of(name)
    return -1 if version is None else version


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
    if plan.protect:
        plan = _write_protected(session, plan)

    def is_made() -> bool:
        try:
            return catalog.load(plan.identifier).metadata.table_uuid == uuid
        except NotFoundError:
            return False

    try:
        change_entry(
            session,
            f"table {plan.identifier}",
            lambda: catalog.register(plan.identifier, plan.location),
            is_made,
        )
    except CommitUnknownError:
        raise
    except LakeError:
        if plan.protect:
            plan.storage.delete([plan.location])
        raise
    return _outcome(plan, Status.DONE)


def _write_protected(session: Session, plan: RegistrationPlan) -> RegistrationPlan:
    """Write the next metadata file, in which the table's files are never deleted, beside the given one.

    It is the state that is registered, so that the table is never in the catalog without this property. The
    document keeps members that this version does not know.
    """
    document = find_document(plan.storage, plan.location)
    if document is None:
        raise NotFoundError(f"metadata file {plan.location} does not exist any more")
    before_ms = plan.metadata.last_updated_ms
    properties = {GC_ENABLED.name: "false"}
    if DELETE_OLD_METADATA.of(plan.metadata.properties):
        properties[DELETE_OLD_METADATA.name] = "false"
    document["properties"] = {**(document.get("properties") or {}), **properties}
    document["last-updated-ms"] = max(session.clock.now_ms(), before_ms)
    document["metadata-log"] = [
        *(document.get("metadata-log") or []),
        {"timestamp-ms": before_ms, "metadata-file": plan.location},
    ]
    version = (version_of(plan.location) or 0) + 1
    name = f"{version:05d}-{session.ids.uuid()}.metadata.json"
    location = locations.join(plan.location.rpartition("/")[0], name)
    plan.storage.write(location, json.dumps(document).encode())
    return replace(plan, location=location)


def _outcome(plan: RegistrationPlan, status: Status) -> Outcome:
    facts = plan.facts()
    return Outcome(
        status=status,
        base_snapshot_id=plan.metadata.current_snapshot_id,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
    )
