"""What an expiration plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFacts(Facts):
    """Snapshots that one branch, tag, consumer or job keeps for one reason; `by` is None if none of them does."""

    reason: str
    by: str | None
    rule: str | None
    snapshots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationFacts(Facts):
    """The snapshots, refs and files that go or went, and why the others are kept; a plan has no failed deletes."""

    snapshots: int = 0
    refs: int = 0
    data_files: int = 0
    position_delete_files: int = 0
    equality_delete_files: int = 0
    manifests: int = 0
    manifest_lists: int = 0
    statistics_files: int = 0
    bytes: int = 0
    failed_deletes: int | None = omitted()
    kept_snapshots: Mapping[str, int] = field(default_factory=dict)
    kept_refs: Sequence[str] = ()
    max_snapshot_age_ms: int = 0
    engine: str = "inline"
    left_alone: Sequence[KeptFacts] | None = omitted()

    @property
    def files(self) -> int:
        """The number of files of all kinds."""
        return (
            self.data_files
            + self.position_delete_files
            + self.equality_delete_files
            + self.manifests
            + self.manifest_lists
            + self.statistics_files
        )
