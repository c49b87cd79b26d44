"""What `lake consumers` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import Facts, listed
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = Facts(outcome.result)
    name = Facts(outcome.plan)["dropped"]
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would remove consumer {name}; nothing was changed"
    if result["dropped"]:
        return f"removed consumer {name}: expiry does not wait for its reader any more"
    return listed(len(result["consumers"] or ()), "consumer")
