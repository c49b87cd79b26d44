"""Branches and tags as the JSON documents of several commands have them."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFacts(Facts):
    """A tag."""

    name: str
    """The name of the tag."""
    snapshot_id: str
    created: str | None
    """The time of the snapshot's commit."""
    max_ref_age_ms: int | None
