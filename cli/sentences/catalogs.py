"""What `lake catalogs` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import listed
from lake.core.base.outcome import Outcome
from lake.core.read.inspection.facts import CatalogsResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    rows = CatalogsResult.of(outcome.result).catalogs
    text = listed(len(rows), "catalog")
    if failed := sum(row.error is not None for row in rows):
        return f"{text}; {failed:,} did not answer"
    return text


def next_step(_outcome: Outcome, _line: Line) -> str | None:
    """Return None: a catalog that does not answer is not reached by another attempt."""
    return None
