"""What a rewrite of manifests plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, inlined, omitted
from lake.core.spec.expressions.conditions import ConditionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroupFacts(Facts):
    """The manifests of one partition spec and one content."""

    spec_id: int
    content: str
    """`data` or `deletes`."""
    manifests: int
    """Manifests before."""
    manifests_after: int
    """Manifests after."""
    bytes: int
    """Bytes of the manifests before."""
    per_partition: float | None
    """Manifests that a scan of one partition reads on average; null if it is not known."""
    per_partition_after: float | None
    """The same after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptManifestsFacts(Facts):
    """The manifests of one partition spec and one content that are left alone for one reason."""

    reason: str
    """`other-spec`, `not-due`, `well-clustered`, `well-sized` or `no-live-files`."""
    spec_id: int
    content: str
    """`data` or `deletes`."""
    manifests: int
    """Manifests."""
    bytes: int
    """Their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteFacts(Facts):
    """The plan of a rewrite, also of one that is not due."""

    condition: ConditionFacts | None = inlined()
    manifests: int = 0
    """Manifests of the branch."""
    rewritten: int = 0
    """Manifests to rewrite."""
    rewritten_as: int = 0
    """Manifests that replace them."""
    target_bytes: int = 0
    """The size of a new manifest."""
    groups: Sequence[ManifestGroupFacts] = ()
    """The manifests by spec and content."""
    left_alone: Sequence[KeptManifestsFacts] | None = omitted()
    """With `explain=`, the manifests that stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteResult(Facts):
    """What was rewritten."""

    rewritten: int = 0
    """Manifests that were rewritten."""
    manifests: int | None = None
    """Manifests of the branch after the commit; null, with a warning, if they cannot be counted."""
