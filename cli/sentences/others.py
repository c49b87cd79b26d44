"""What `config` and `demo` did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome


def _demo(outcome: Outcome) -> str:
    result = Facts(outcome.result)
    rows, commits = counted(result["rows"], "row"), counted(result["commits"], "commit")
    return f"the tour loaded {rows} in {commits}; the table is in {result['folder']}"


def _config(outcome: Outcome) -> str:
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


SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "config": _config,
    "demo": _demo,
}
