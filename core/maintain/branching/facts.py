"""What the commands for branches and tags plan and what they did, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, inlined, omitted
from lake.core.table.refs.facts import TagFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class TagsFacts(Facts):
    """The tags that are set and dropped."""

    tags: Sequence[TagFacts] | None = omitted()
    """In a result, all tags of the table."""
    created: Sequence[str] = ()
    """Names of tags that are set."""
    removed: Sequence[str] = ()
    """Names of tags that are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefFacts(Facts):
    """A branch or tag."""

    name: str
    """The name of the branch or tag."""
    type: str
    """`branch` or `tag`."""
    snapshot_id: str
    created: str | None
    """The time of the snapshot's commit."""
    max_ref_age_ms: int | None
    max_snapshot_age_ms: int | None
    min_snapshots_to_keep: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChangeFacts(Facts):
    """The change of a branch or tag; all is null if it already is as requested."""

    ref: str | None = None
    """The branch or tag that changes."""
    type: str | None = None
    """`branch` or `tag`."""
    from_snapshot: str | None = None
    """The snapshot to which it points before; null for a new one."""
    to_snapshot: str | None = None
    """The snapshot to which it points after; null if it is dropped."""
    hidden_snapshots: Sequence[str] = ()
    """Snapshots that are then in the history of no branch and no tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefsResult(Facts):
    """All branches and tags of a table, and the change that was made."""

    refs: Sequence[RefFacts] = ()
    """The branches and tags of the table."""
    change: RefChangeFacts | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackFacts(Facts):
    """A branch's snapshot and rows before and after a rollback."""

    from_snapshot: str = ""
    """The branch's head before."""
    to_snapshot: str = ""
    """The branch's head after."""
    rows_before: int | None = None
    """Rows before, by the summary of the snapshot; null if delete files leave it open."""
    rows_before_at_most: int | None = None
    """The most that these can be."""
    rows_after: int | None = None
    """Rows after; null if delete files leave it open."""
    rows_after_at_most: int | None = None
    """The most that these can be."""
    hidden_snapshots: Sequence[str] = ()
    """Snapshots that are then in the history of no branch and no tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PickFacts(Facts):
    """A snapshot that is applied to a branch."""

    source_snapshot: str = ""
    """The snapshot that is applied."""
    operation: str = ""
    """Its operation."""
    wap_id: str | None = None
    """Its WAP id; null without one."""
    fast_forward: bool = False
    """Whether the branch's head becomes this snapshot, without a new one."""
    added_files: int = 0
    """Data files that it adds."""
    added_rows: int = 0
    """Rows that it adds."""
    removed_files: int = 0
    """Data files that it removes."""
