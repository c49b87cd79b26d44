"""Which rows a deletion removes, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lake.core.base.choices import DELETE_MODES
from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.base.options import Option
from lake.core.spec.properties.table_properties import COPY_ON_WRITE, DELETE_MODE
from lake.core.spec.types.format_versions import DELETE_FILES_SINCE
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.guards import RunGuard

POSITION, _ = DELETE_MODES


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionOptions:
    """The options of a deletion.

    Args:
        where: a row filter; the rows for which it is TRUE are deleted.
        deletes: what becomes of files that contain other rows too, one of `DELETE_MODES`; None to use the
            table's property.
        branch: the branch.
        run_id: an id by which a repetition of this deletion is recognised.
        max_rows: the most rows that may be deleted; None for any number.
        count: whether a dry run reads the files that metadata does not decide.

    Raises:
        InvalidRequestError: a value is not allowed.
    """

    where: str
    deletes: str | None = None
    branch: str = ancestry.MAIN
    run_id: str | None = None
    max_rows: int | None = None
    count: bool = False

    def __post_init__(self) -> None:
        if not self.where.strip():
            raise InvalidRequestError(
                f"{Option.WHERE} is empty",
                hint=f"{Option.WHERE} true deletes all rows",
            )
        if self.deletes not in {None, *DELETE_MODES}:
            raise InvalidRequestError(
                f"{Option.DELETES} {self.deletes!r} is not one of {', '.join(DELETE_MODES)}"
            )
        if self.max_rows is not None and self.max_rows < 0:
            raise InvalidRequestError(f"{Option.MAX_ROWS} must not be negative: {self.max_rows}")
        if self.run_id is not None and not self.run_id.strip():
            raise InvalidRequestError(f"{Option.RUN_ID} is empty")

    @property
    def guard(self) -> RunGuard | None:
        """What shows that the deletion was committed before; None without a run id."""
        return None if self.run_id is None else RunGuard(self.run_id)


def mode_of(properties: Mapping[str, str], format_version: int, requested: str | None) -> str:
    """Return how rows are deleted from files that contain other rows too, one of `DELETE_MODES`.

    Tables of format version 1 have no delete files, whatever their properties say.

    Raises:
        RefusedError: position deletes are requested for a table of format version 1.
        InvalidRequestError: the property has a value that is not allowed.
    """
    by_property = COPY_ON_WRITE if DELETE_MODE.of(properties) == COPY_ON_WRITE else POSITION
    if format_version >= DELETE_FILES_SINCE:
        return requested or by_property
    if requested == POSITION:
        raise RefusedError(
            f"a table with format version {format_version} cannot have delete files",
            hint=f"use {Option.DELETES} {COPY_ON_WRITE}",
        )
    return COPY_ON_WRITE
