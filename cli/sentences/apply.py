"""What `lake apply` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.maintain import sentence

__all__ = ["sentence"]
