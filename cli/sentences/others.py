"""What `config` and `demo` did."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.sentences.words import Facts, counted
from lake.core.outcome import Outcome


def _demo(outcome: Outcome) -> str:
    result = Facts(outcome.result)
    rows, commits = counted(result["rows"], "row"), counted(result["commits"], "commit")
    return f"the tour loaded {rows} in {commits}; the table is in {result['folder']}"


def _config(outcome: Outcome) -> str:
    result = outcome.result
    file = result.get("pyiceberg_file")
    read = f"PyIceberg's configuration is {file}" if file else "there is no .pyiceberg.yaml"
    name = result.get("catalog")
    return f"uses catalog {name}; {read}" if name else f"no catalog is chosen; {read}"


SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "config": _config,
    "demo": _demo,
}
