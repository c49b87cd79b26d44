"""What can be wrong with a table of a fleet, how `lake` must name it, and what maintenance must leave of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

Row = Mapping[str, Any]


class Ill(StrEnum):
    """Something that is wrong with a table."""

    SMALL_FILES = "small files"
    POSITION_DELETES = "position deletes"
    EQUALITY_DELETES = "equality deletes"
    FEW_EQUALITY_DELETES = "some equality deletes"
    VECTORS = "deletion vectors"
    SNAPSHOTS = "snapshots"
    HELD = "snapshots held by refs"
    MANIFESTS = "manifests"
    OLD_SPEC = "files of an old spec"
    OLD_ORDER = "files without the sort order"
    STATISTICS = "old statistics"
    ORPHANS = "orphan files"
    PENDING = "checkpoints that were never committed"
    UNREADABLE = "unreadable metadata"
    MISSING_FILE = "a missing data file"


# A run of maintenance ends with a failure for each of these.
NOT_MENDABLE = frozenset({Ill.UNREADABLE, Ill.MISSING_FILE})
# The command that `lake health` must name.
_NEEDS: Mapping[Ill, str] = {
    Ill.SMALL_FILES: "compact",
    Ill.MISSING_FILE: "compact",
    Ill.POSITION_DELETES: "deletes",
    Ill.EQUALITY_DELETES: "deletes",
    Ill.SNAPSHOTS: "expire",
    Ill.MANIFESTS: "manifests",
}
# The measure that shows an ill.
_MEASURES: Mapping[Ill, str] = {
    Ill.SMALL_FILES: "small_files",
    Ill.POSITION_DELETES: "position_delete_files",
    Ill.EQUALITY_DELETES: "equality_delete_files",
    Ill.FEW_EQUALITY_DELETES: "equality_delete_files",
    Ill.VECTORS: "deletion_vectors",
}
_LAYOUT: Mapping[Ill, str] = {Ill.OLD_SPEC: "old_spec_files", Ill.OLD_ORDER: "old_order_files"}


def not_named(ill: Ill, row: Row, layout: Row | None, round_: Row) -> str:
    """Return what `lake health`, or `lake maintain` for what it looks at, does not say; empty if all is said.

    Args:
        ill: the ill.
        row: the table in the list of `lake health`.
        layout: the layout in its own view; None if it could not be read.
        round_: what `lake maintain` says about this table: its `actions`, `pending` and `failed`.
    """
    if ill is Ill.UNREADABLE:
        said = row["error"] is not None and round_["failed"]
        return "" if said else "the table has no error"
    if row["error"] is not None:
        return f"the table cannot be read: {row['error']['message']}"
    if (command := _NEEDS.get(ill)) and command not in row["needs"]:
        return f"{command} is not among its needs {row['needs']}"
    if (measure := _MEASURES.get(ill)) and not row[measure]:
        return f"{measure} is {row[measure]}"
    if (measure := _LAYOUT.get(ill)) and not (layout or {}).get(measure):
        return f"{measure} is not shown in {layout}"
    done = {item["action"] for item in round_["actions"] if item["status"] == "done"}
    wanted = {Ill.STATISTICS: "stats", Ill.ORPHANS: "clean"}.get(ill)
    if wanted and wanted not in done:
        return f"{wanted} was not done, but {sorted(done)}"
    if ill is Ill.PENDING and not round_["pending"]:
        return "no checkpoints are reported"
    if ill is Ill.MISSING_FILE and not round_["failed"]:
        return "no action failed"
    return ""


def not_mended(ill: Ill, row: Row, layout: Row | None) -> str:
    """Return what is left of an ill after maintenance; empty if it was mended, or cannot be.

    Args:
        ill: the ill.
        row: the table in the list of `lake health`.
        layout: the layout in its own view.
    """
    if ill in NOT_MENDABLE:
        return ""
    if row["error"] is not None:
        return f"the table cannot be read: {row['error']['message']}"
    if row["needs"]:
        return f"it still needs {row['needs']}"
    if ill is Ill.SMALL_FILES and row["files"] > 2 * row["partitions"]:
        return f"{row['files']} files are left"
    if ill is Ill.SNAPSHOTS and row["snapshots"] > 3:
        return f"{row['snapshots']} snapshots are left"
    if ill is Ill.EQUALITY_DELETES and row["equality_delete_files"]:
        return f"{row['equality_delete_files']} equality delete files are left"
    if ill is Ill.POSITION_DELETES and row["delete_files"] > row["partitions"]:
        return f"{row['delete_files']} delete files are left"
    if ill is Ill.VECTORS and row["deletion_vectors"]:
        return f"{row['deletion_vectors']} deletion vectors are left"
    if (measure := _LAYOUT.get(ill)) and (layout or {}).get(measure):
        return f"{measure} is {(layout or {})[measure]}"
    return ""
