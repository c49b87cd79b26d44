"""What a rewrite of manifests plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, inlined, omitted
from lake.core.spec.expressions.conditions import ConditionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroupFacts(Facts):
    """The manifests of one partition spec and one content; the last two fields are None if they are not known."""

    spec_id: int
    content: str
    manifests: int
    manifests_after: int
    bytes: int
    per_partition: float | None
    per_partition_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptManifestsFacts(Facts):
    """The manifests of one partition spec and one content that are left alone for one reason."""

    reason: str
    spec_id: int
    content: str
    manifests: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteFacts(Facts):
    """The plan of a rewrite, also of one that is not due."""

    condition: ConditionFacts | None = inlined()
    manifests: int = 0
    rewritten: int = 0
    rewritten_as: int = 0
    target_bytes: int = 0
    groups: Sequence[ManifestGroupFacts] = ()
    left_alone: Sequence[KeptManifestsFacts] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewriteResult(Facts):
    """What was rewritten, and the number of manifests of the branch now; None if they could not be counted."""

    rewritten: int = 0
    manifests: int | None = None
