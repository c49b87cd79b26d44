"""What `lake show` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import counted
from lake.core.base.outcome import Outcome


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    schema, version = outcome.result["schema"], outcome.result["format_version"]
    columns = counted(len(schema["fields"]), "column")
    return (
        f"{columns}, {counted(outcome.result['snapshots'], 'snapshot')}, format version {version}"
    )
