"""What `lake publish` did, as one sentence: that of `lake cherry-pick`."""

from __future__ import annotations

from lake.cli.sentences.cherry_pick import sentence

__all__ = ("sentence",)
