"""What `lake config` did, as one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lake.cli.sentences.words import counted
from lake.core.base.outcome import Outcome


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = outcome.result
    if "trusted" in result:
        return _trust(result)
    file = result.get("pyiceberg_file")
    read = f"PyIceberg's configuration is {file}" if file else "there is no .pyiceberg.yaml"
    name = result.get("catalog")
    if ignored := len(result.get("ignored", ())):
        read = f"{read}; ignores {counted(ignored, 'setting')} of this folder"
    return f"uses catalog {name}; {read}" if name else f"no catalog is chosen; {read}"


def _trust(result: Mapping[str, Any]) -> str:
    if done := result["trusted"]:
        return f"trusts {' and '.join(done)}; to withdraw it: lake config --untrust"
    if done := result["withdrawn"]:
        return f"no longer trusts {' and '.join(done)}"
    return "did not trust this folder"
