"""What an expiration plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFacts(Facts):
    """Snapshots that one branch, tag, consumer or job keeps for one reason."""

    reason: str
    """A reason of `kept_snapshots`."""
    by: str | None
    """What keeps them, as `branch main`, `tag v1` or `consumer c`; null if only the reason applies."""
    rule: str | None
    """The rule, as `among the newest 3 (retain-last)`; null if there is none."""
    snapshots: int
    """Their number; a snapshot that several keep is counted for the first, heads of branches and tags first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationFacts(Facts):
    """The snapshots, refs and files that go or went, and why the others are kept."""

    snapshots: int = 0
    """Snapshots that expire."""
    refs: int = 0
    """Branches and tags that expire."""
    data_files: int = 0
    """Data files that are deleted."""
    position_delete_files: int = 0
    """Position delete files and deletion vectors that are deleted."""
    equality_delete_files: int = 0
    """Equality delete files that are deleted."""
    manifests: int = 0
    """Manifests that are deleted."""
    manifest_lists: int = 0
    """Manifest lists that are deleted."""
    statistics_files: int = 0
    """Statistics files that are deleted."""
    bytes: int = 0
    """Bytes of the files that are deleted."""
    failed_deletes: int | None = omitted()
    """In a result, files that could not be deleted."""
    kept_snapshots: Mapping[str, int] = field(default_factory=dict)
    """The number of kept snapshots by reason."""
    kept_refs: Sequence[str] = ()
    """The names of the kept branches and tags."""
    max_snapshot_age_ms: int = 0
    """The age below which a snapshot is `recent`."""
    engine: str = "inline"
    left_alone: Sequence[KeptFacts] | None = omitted()
    """With `explain=`, what keeps the kept snapshots."""

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
