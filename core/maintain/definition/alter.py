"""Change a table's schema, partitioning, sort order, properties and format version in one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.types import DoubleType, FloatType

from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    InvalidRequestError,
    RefusedError,
)
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.data.schemas.evolution import schema_changes
from lake.core.data.schemas.new_tables import warn_of_similar_names
from lake.core.maintain.definition.create import refuse_types
from lake.core.maintain.definition.facts import AlterationFacts
from lake.core.maintain.definition.layout import evolved_order, evolved_spec
from lake.core.maintain.definition.schema_edits import SchemaEdits, edited, renamed_columns
from lake.core.spec.properties.table_properties import (
    ABANDONED_METADATA,
    ENCRYPTION_KEY_ID,
    FORMAT_VERSION,
    HONOURED,
    IGNORE_TOTALS,
    MAINTENANCE_PREFIX,
    ORC_BLOOM_COLUMNS,
    check_new,
    unknown_names,
)
from lake.core.spec.types.transform_syntax import partition_terms, sort_terms
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.trust import refuse_secrets
from lake.core.table.metadata.format_upgrades import with_version_3_upgrade
from lake.core.table.metadata.snapshot_updates import RemoveProperties
from lake.core.table.snapshots.ancestry import MAIN
from lake.core.table.snapshots.completeness import lacking_column, read_list
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.garbage.other_histories import find_other_histories
from lake.core.transaction.garbage.reachability import Reachability

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.transaction.session import Session

_OWN = "lake."
_FOR_USERS = {IGNORE_TOTALS.name, ABANDONED_METADATA.name}
_MOST_ABANDONED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """The changes of a table; what is empty or None stays as it is.

    Args:
        columns: changes of the schema.
        set_properties: properties to set.
        unset: properties to remove.
        partition_by: the new partitioning; an empty text for none.
        sort_by: the new sort order; an empty text for none.
        format_version: the new format version.
        no_other_catalog: whether to record that no other catalog contains the table, so that metadata files which
            are not in its history do not prevent deletions.

    Raises:
        InvalidRequestError: there are no changes, or a property is both set and removed.
    """

    columns: SchemaEdits = field(default_factory=SchemaEdits)
    set_properties: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    partition_by: str | None = None
    sort_by: str | None = None
    format_version: int | None = None
    no_other_catalog: bool = False

    def __post_init__(self) -> None:
        if both := set(self.unset) & self.set_properties.keys():
            raise InvalidRequestError(f"property {min(both)} cannot be both set and removed")
        layout = (self.partition_by, self.sort_by, self.format_version)
        if (
            self.columns == SchemaEdits()
            and not (self.set_properties or self.unset or self.no_other_catalog)
            and (layout == (None, None, None))
        ):
            raise InvalidRequestError("nothing to change", hint="give at least one change")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPlan:
    """The state of a table after an alteration."""

    table: Table
    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    set_properties: Mapping[str, str]
    unset: Sequence[str]
    format_version: int

    @property
    def is_empty(self) -> bool:
        """Whether the table already is as it would be after the change."""
        return self.is_made(self.table.metadata)

    def is_made(self, metadata: TableMetadata) -> bool:
        """Whether metadata has the change. Others may change columns meanwhile if the change has none."""
        return (
            (self._keeps_columns or _has_same_columns(metadata.schema(), self.schema))
            and metadata.spec().fields == self.spec.fields
            and metadata.sort_order().fields == self.order.fields
            and metadata.format_version >= self.format_version
            and all(
                metadata.properties.get(key) == text for key, text in self.set_properties.items()
            )
            and not any(key in metadata.properties for key in self.unset)
        )

    @property
    def _keeps_columns(self) -> bool:
        return _has_same_columns(self.table.schema, self.schema)

    def request(self) -> ChangeSet:
        """Return the change with the conditions under which the plan holds."""
        metadata = self.table.metadata
        requirements: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
        updates: list[TableUpdate] = []
        if self.format_version > metadata.format_version:
            for version in range(metadata.format_version + 1, self.format_version + 1):
                update = UpgradeFormatVersionUpdate(format_version=version)
                updates.append(with_version_3_upgrade(update))
        needed, changed = self._schema_changes()
        requirements += needed
        updates += changed
        needed, changed = self._layout_changes()
        requirements += needed
        updates += changed
        if self.unset:
            updates.append(RemoveProperties(removals=list(self.unset)))
        if self.set_properties:
            updates.append(SetPropertiesUpdate(updates=dict(self.set_properties)))
        return ChangeSet(tuple(requirements), tuple(updates))

    def _schema_changes(self) -> tuple[Sequence[TableRequirement], Sequence[TableUpdate]]:
        if self._keeps_columns:
            return (), ()
        return schema_changes(self.table, self.schema)

    def _layout_changes(self) -> tuple[list[TableRequirement], list[TableUpdate]]:
        metadata = self.table.metadata
        # The partitioning and the sort order were checked against these.
        requirements: list[TableRequirement] = [
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
            AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id),
        ]
        updates: list[TableUpdate] = []
        if self.spec.spec_id != metadata.default_spec_id:
            if self.spec.spec_id not in {item.spec_id for item in metadata.partition_specs}:
                last_id = metadata.last_partition_id
                requirements.append(
                    AssertLastAssignedPartitionId(last_assigned_partition_id=last_id or 999)
                )
                updates.append(AddPartitionSpecUpdate(spec=self.spec))
            updates.append(SetDefaultSpecUpdate(spec_id=self.spec.spec_id))
        if self.order.order_id != metadata.default_sort_order_id:
            if self.order.order_id not in {item.order_id for item in metadata.sort_orders}:
                updates.append(AddSortOrderUpdate(sort_order=self.order))
            updates.append(SetDefaultSortOrderUpdate(sort_order_id=self.order.order_id))
        return requirements, updates

    def facts(self) -> AlterationFacts:
        """Return the changes by their names in the output."""
        metadata, before = self.table.metadata, self.table.schema
        known = frozenset(before.field_ids)
        names = renamed_columns(before, self.schema)
        return AlterationFacts(
            added_columns=[
                str(self.schema.find_column_name(one))
                for one in self.schema.field_ids
                if one not in known
            ],
            renamed_columns={old: new for old, new in names.items() if new is not None},
            dropped_columns=[old for old, new in names.items() if new is None],
            widened_columns={
                str(before.find_column_name(one)): str(self.schema.find_type(one))
                for one in self.schema.field_ids
                if one in known
                and before.find_type(one).is_primitive
                and before.find_type(one) != self.schema.find_type(one)
            },
            partition_by=partition_terms(self.spec, self.schema)
            if self.spec.spec_id != metadata.default_spec_id
            else None,
            sort_by=sort_terms(self.order, self.schema)
            if self.order.order_id != metadata.default_sort_order_id
            else None,
            set=dict(self.set_properties),
            unset=list(self.unset),
            format_version=self.format_version
            if self.format_version != metadata.format_version
            else None,
        )


def _has_same_columns(one: Schema, other: Schema) -> bool:
    return one.fields == other.fields and set(one.identifier_field_ids) == set(
        other.identifier_field_ids
    )


def plan_alter(session: Session, table: Table, alteration: Alteration) -> AlterPlan:
    """Check the changes and decide the table's state after them; nothing is written.

    Raises:
        InvalidRequestError: a change cannot be parsed, or a property is not valid.
        NotFoundError: a column does not exist.
        RefusedError: readers or writers could not use the table after the change.
    """
    metadata = table.metadata
    version = _version(metadata.format_version, alteration.format_version)
    if metadata.format_version == 1 < version:
        _refuse_uncounted(table)
    schema = edited(metadata, alteration.columns)
    refuse_types(schema, version)
    _refuse_compared(table, schema)
    warn_of_similar_names(schema, session.warn, table.schema.column_names)
    new = metadata.model_copy(update={"format_version": version})
    spec, order = metadata.spec(), metadata.sort_order()
    if alteration.partition_by is not None:
        spec = evolved_spec(new, schema, alteration.partition_by)
    if alteration.sort_by is not None:
        order = evolved_order(metadata, schema, alteration.sort_by)
    changed, removed = _properties(session, table, alteration, schema)
    return AlterPlan(
        table=table,
        schema=_known_schema(metadata, schema),
        spec=spec,
        order=order,
        set_properties=changed,
        unset=removed,
        format_version=version,
    )


def _refuse_uncounted(table: Table) -> None:
    """Refuse to upgrade a table on whose branches no commit could build: their lists lack what version 2 requires.

    Raises:
        RefusedError: a list lacks a number of files or rows, which version 1 allows.
    """
    metadata = table.metadata
    refs = metadata.refs.items()
    heads = {ref.snapshot_id: name for name, ref in refs if ref.snapshot_ref_type == "branch"}
    heads |= {metadata.current_snapshot_id or -1: MAIN}
    for snapshot in metadata.snapshots:
        branch = heads.get(snapshot.snapshot_id)
        if branch is None:
            continue
        if column := lacking_column(read_list(table.storage, metadata, snapshot)):
            raise RefusedError(
                f"the manifest list of branch {branch} lacks {column} of a manifest, which version 2 requires: "
                "no engine could write to the table after the upgrade",
                hint="rewrite all manifests of the branch with `lake manifests`, which counts their files and rows",
            )


def _refuse_compared(table: Table, schema: Schema) -> None:
    """Refuse to change columns from float to double that equality deletes compare.

    Iceberg Java 1.12 would not apply these deletes any more, and return the rows that they delete.
    """
    metadata, before = table.metadata, table.schema
    widened = [
        number
        for number in before.field_ids
        if isinstance(before.find_type(number), FloatType)
        and number in schema.field_ids
        and isinstance(schema.find_type(number), DoubleType)
    ]
    if not widened:
        return
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in heads]
    for number in sorted(Reachability(table.storage).compared_columns(metadata, kept)):
        if number in widened:
            raise RefusedError(
                f"equality deletes compare the column {before.find_column_name(number)}: Iceberg Java would not "
                "apply them to doubles, and return deleted rows",
                hint=f"{Option.CONVERT} replaces them on a branch; drop tags that have them",
            )


def _known_schema(metadata: TableMetadata, schema: Schema) -> Schema:
    """Return the table's own schema with these columns, if it has one; catalogs do not add it a second time."""
    same = (item for item in metadata.schemas if _has_same_columns(item, schema))
    return next(same, schema)


def _version(current: int, wanted: int | None) -> int:
    if wanted is not None and wanted < current:
        raise RefusedError(
            f"the table has format version {current}: it cannot be changed back to {wanted}"
        )
    return wanted or current


def _properties(
    session: Session, table: Table, alteration: Alteration, schema: Schema
) -> tuple[dict[str, str], list[str]]:
    """Return the properties to set and to remove, including those of columns whose name changes."""
    given, before = dict(alteration.set_properties), table.properties
    _refuse_reserved((*given, *alteration.unset))
    if alteration.no_other_catalog:
        given |= _abandoned(session, table)
    refuse_secrets(given)
    check_new(given, schema.column_names)
    for name in unknown_names(given):
        session.warn(f"the table property {name} is stored, but Iceberg has no such property")
    wanted = {key: text for key, text in before.items() if key not in alteration.unset}
    names = renamed_columns(table.schema, schema)
    moved = {
        setting.name + old: None if new is None else setting.name + new
        for setting in HONOURED
        if setting.is_per_column
        for old, new in names.items()
    }
    # Two columns may exchange their names.
    taken = {key: wanted.pop(key) for key in moved.keys() & wanted.keys()}
    wanted |= {new: text for key, text in taken.items() if (new := moved[key]) is not None}
    listed = [name.strip() for name in wanted.get(ORC_BLOOM_COLUMNS.name, "").split(",")]
    if not names.keys().isdisjoint(listed):
        renamed = [names.get(name, name) for name in listed]
        wanted[ORC_BLOOM_COLUMNS.name] = ",".join(name for name in renamed if name is not None)
    wanted |= given
    changed = {key: text for key, text in wanted.items() if before.get(key) != text}
    return changed, sorted(before.keys() - wanted.keys())


def _abandoned(session: Session, table: Table) -> dict[str, str]:
    """Return the property by which the histories that are not the table's own are abandoned.

    Raises:
        RefusedError: they are too many, or one cannot be named.
    """
    found = [item.name for item in find_other_histories(session, table)]
    if not found:
        return {}
    names = dict.fromkeys([*ABANDONED_METADATA.of(table.properties), *sorted(found)])
    if len(names) > _MOST_ABANDONED or any("," in name for name in found):
        raise RefusedError(
            f"{len(found)} metadata files are not in the history of {table.identifier}, e.g. {found[0]}",
            hint="if no other catalog contains the table, move these files to another folder",
        )
    return {ABANDONED_METADATA.name: ",".join(names)}


def _refuse_reserved(names: Sequence[str]) -> None:
    """Refuse properties that are not settings of a table.

    Raises:
        InvalidRequestError: the format version is changed by another option.
        RefusedError: the property is not for users.
    """
    for name in names:
        if name == FORMAT_VERSION.name:
            raise InvalidRequestError(
                f"{name} is not a property of an existing table",
                hint=f"use {Option.FORMAT_VERSION}",
            )
        if name == ENCRYPTION_KEY_ID:
            raise RefusedError(f"{name} cannot be changed: lake does not write encrypted tables")
        is_users = name in _FOR_USERS or name.startswith(MAINTENANCE_PREFIX)
        if name.startswith(_OWN) and not is_users:
            raise RefusedError(
                f"{name} cannot be changed: lake records there which loads it has committed"
            )


def execute(session: Session, plan: AlterPlan, alteration: Alteration, *, dry_run: bool) -> Outcome:
    """Make the changes in one commit; if the table was changed meanwhile, they are planned again.

    Raises:
        CommitConflictError: the changes do not fit the table as it is now; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if plan.is_empty:
        return _outcome(plan, Status.NOTHING_TO_DO)
    if dry_run:
        return _outcome(plan, Status.DRY_RUN)
    latest = plan

    def prepare(now: Table) -> ChangeSet | None:
        nonlocal latest
        if now is not latest.table:
            latest = _planned_again(session, now, alteration)
        return None if latest.is_empty else latest.request()

    commit_changes(session, plan.table, prepare, lambda found: latest.is_made(found) or None)
    return _outcome(latest, Status.DONE)


def _planned_again(session: Session, now: Table, alteration: Alteration) -> AlterPlan:
    try:
        return plan_alter(session, now, alteration)
    except (InvalidRequestError, RefusedError, BadInputError) as error:
        raise CommitConflictError(
            f"{now.identifier} was changed meanwhile, and the change does not fit it any more: {error.message}",
            hint="nothing was changed; run the command again",
        ) from error


def _outcome(plan: AlterPlan, status: Status) -> Outcome:
    facts = plan.facts()
    rows = [[name, _text(value)] for name, value in facts.document().items() if value]
    return Outcome(
        status=status,
        plan=facts,
        result=facts if status is Status.DONE else NoFacts(),
        details=[Detail("changes", ("change", "value"), rows)] if status is Status.DRY_RUN else [],
    )


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {item}" for key, item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
