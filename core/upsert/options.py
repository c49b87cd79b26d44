"""What an upsert is asked to do, and the columns that its options name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyiceberg.transforms import VoidTransform

from lake.core.errors import BadInputError, InvalidRequestError, NotFoundError, RefusedError
from lake.core.expressions import field_path
from lake.core.table.delete_scopes import is_global
from lake.core.table.files import DATA
from lake.core.table.live import live_manifests
from lake.core.table.manifests import read_manifest_list, read_manifests

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalog import Table

POSITION, EQUALITY, COPY_ON_WRITE = "position", "equality", "copy-on-write"
MODES = (POSITION, EQUALITY, COPY_ON_WRITE)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertOptions:
    """What the user asked for.

    Args:
        key: columns that tell rows apart; empty for the schema's identifier fields.
        deletes: how old rows are deleted, one of `MODES`.
        order_by: among source rows of one key the last by these columns wins; empty for the input's order.
        repair_duplicates: where the table has several rows of a key, all of them are replaced.
        rejects: local path for rows whose key is NULL or NaN; None makes such a row an error.
    """

    key: Sequence[str] = ()
    deletes: str = POSITION
    order_by: Sequence[str] = ()
    repair_duplicates: bool = False
    rejects: str | None = None

    def __post_init__(self) -> None:
        if self.deletes not in MODES:
            raise InvalidRequestError(f"--deletes {self.deletes!r} is none of {', '.join(MODES)}")


def key_ids(schema: Schema, names: Sequence[str], option: str = "--upsert") -> list[int]:
    """Return the ids of the key's columns: the named ones, or the schema's identifier fields.

    Raises:
        InvalidRequestError: neither are there any.
        NotFoundError: a name is no column.
        BadInputError: a column's values cannot tell rows apart.
    """
    ids = column_ids(schema, names) if names else sorted(schema.identifier_field_ids)
    if not ids:
        raise InvalidRequestError(
            f"{option} needs --key: the table's schema has no identifier fields"
        )
    for column in ids:
        name, kind = schema.find_column_name(column), schema.find_type(column)
        if not kind.is_primitive or field_path(schema, column) is None:
            raise BadInputError(f"column {name} is {kind}: it cannot be part of a key")
    return ids


def column_ids(schema: Schema, names: Sequence[str]) -> list[int]:
    """Return the ids of columns.

    Raises:
        NotFoundError: a name is no column.
    """
    ids = []
    for name in names:
        try:
            ids.append(schema.find_field(name).field_id)
        except ValueError as error:
            columns = ", ".join(field.name for field in schema.fields)
            raise NotFoundError(f"no column named {name}", hint=f"columns: {columns}") from error
    return ids


def check_mode(
    mode: str, *, format_version: int, schema: Schema, spec: PartitionSpec, key: Sequence[int]
) -> None:
    """Refuse a mode in which the table's old rows could not be deleted.

    Raises:
        RefusedError: the format version has no delete files, or an equality delete would miss old rows.
    """
    if format_version < 2 and mode != COPY_ON_WRITE:  # noqa: PLR2004 - the format's number
        raise RefusedError(
            "a table of format version 1 has no delete files", hint="use --deletes copy-on-write"
        )
    if mode != EQUALITY:
        return
    tops = {field.field_id for field in schema.fields}
    for part in key:
        if part not in tops:
            raise RefusedError(
                f"equality deletes by {schema.find_column_name(part)}, a part of another column, "
                "cannot be written yet",
                hint="use --deletes position",
            )
    for field in spec.fields:
        if not isinstance(field.transform, VoidTransform) and field.source_id not in key:
            column = schema.find_column_name(field.source_id)
            raise RefusedError(
                f"the source column {column} of the partition field {field.name} is not in the key: "
                "an equality delete acts in the new row's partition only, so an old row in another "
                "one would stay",
                hint="use --deletes position, or add the column to --key",
            )


def refuse_other_specs(table: Table, snapshot: Snapshot) -> None:
    """Refuse equality deletes that would miss rows: they act in their own partition spec only.

    Raises:
        RefusedError: there are files of another spec.
    """
    if is_global(table.spec):
        return
    listed = read_manifest_list(table.storage, snapshot.manifest_list)
    mine = pc.equal(listed["partition_spec_id"], table.spec.spec_id)
    others = live_manifests(
        listed.filter(pc.and_(pc.equal(listed["content"], DATA), pc.invert(mine)))
    )
    # A list may lack the counts: the few manifests that are left tell.
    found = read_manifests(
        table.storage, others, table.metadata, columns=("status",), live_only=True
    )
    numbers = [spec_id for spec_id, entries in found.items() if entries.num_rows]
    if numbers:
        raise RefusedError(
            f"{table.identifier} has files of other partition specs ({', '.join(map(str, numbers))}), "
            "whose rows equality deletes of the current one do not reach",
            hint="use --deletes position",
        )
