"""What `lake config` did, as one sentence."""

from __future__ import annotations

from lake.commands.reports.facts import ConfigResult, TrustResult
from lake.core.base.outcome import Outcome
from lake.core.base.units import counted


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if isinstance(outcome.result, TrustResult):
        return _trust(outcome.result)
    result = ConfigResult.of(outcome.result)
    file, name = result.pyiceberg_file, result.catalog
    read = f"PyIceberg's configuration is {file}" if file else "there is no .pyiceberg.yaml"
    if ignored := len(result.ignored):
        read = f"{read}; ignores {counted(ignored, 'setting')} of this folder"
    return f"uses catalog {name}; {read}" if name else f"no catalog is chosen; {read}"


def _trust(result: TrustResult) -> str:
    if done := result.trusted:
        return f"trusts {' and '.join(done)}; to withdraw it: lake config --untrust"
    if done := result.withdrawn:
        return f"no longer trusts {' and '.join(done)}"
    return "did not trust this folder"
