"""What the commands for branches and tags plan and what they did, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, inlined, omitted
from lake.core.table.refs.facts import TagFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsFacts(Facts):
    """The names of the tags that are set and dropped; a result has all tags of the table too."""

    tags: Sequence[TagFacts] | None = omitted()
    created: Sequence[str] = ()
    removed: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefFacts(Facts):
    """A branch or tag; `created` is the time of its snapshot's commit."""

    name: str
    type: str
    snapshot_id: str
    created: str | None
    max_ref_age_ms: int | None
    max_snapshot_age_ms: int | None
    min_snapshots_to_keep: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChangeFacts(Facts):
    """The change of a branch or tag; all is None if it already is as requested."""

    ref: str | None = None
    type: str | None = None
    from_snapshot: str | None = None
    to_snapshot: str | None = None
    hidden_snapshots: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefsResult(Facts):
    """All branches and tags of a table, and the change that was made."""

    refs: Sequence[RefFacts] = ()
    change: RefChangeFacts | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackFacts(Facts):
    """A branch's snapshot and rows before and after a rollback; rows that are not known exactly are None."""

    from_snapshot: str = ""
    to_snapshot: str = ""
    rows_before: int | None = None
    rows_before_at_most: int | None = None
    rows_after: int | None = None
    rows_after_at_most: int | None = None
    hidden_snapshots: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PickFacts(Facts):
    """A snapshot that is applied to a branch."""

    source_snapshot: str = ""
    operation: str = ""
    wap_id: str | None = None
    fast_forward: bool = False
    added_files: int = 0
    added_rows: int = 0
    removed_files: int = 0
