"""The repairs by name, and the codes of the damage that each of them mends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.base.options import Option
from lake.core.maintain.checking.findings import KINDS

DUPLICATE_FILES = "duplicate-files"
MISSING_FILES = "missing-files"
DANGLING_DELETES = "dangling-deletes"
TOTALS = "totals"
REFS = "refs"
STATISTICS = "statistics"

# The codes of each repair, in the order in which the repairs are made: the totals are counted last.
REPAIRS: Mapping[str, tuple[str, ...]] = {
    name: tuple(code for code, kind in KINDS.items() if kind.repair == name)
    for name in (DUPLICATE_FILES, MISSING_FILES, DANGLING_DELETES, TOTALS, REFS, STATISTICS)
}
# Those of the table's metadata; the others mend the head of a branch.
OF_TABLE = (REFS, STATISTICS)
_HINT = f"the repairs are {', '.join(sorted(REPAIRS))}"


def repairs_of(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the repairs that names or codes select, each once, in the order in which they are made.

    Raises:
        InvalidRequestError: a text is neither a repair nor a code.
        RefusedError: no repair mends the damage with this code.
    """
    wanted = {_repair_of(text) for text in texts}
    return tuple(name for name in REPAIRS if name in wanted)


def _repair_of(text: str) -> str:
    if text in REPAIRS:
        return text
    code = text.upper()
    kind = KINDS.get(code)
    if kind is not None and kind.repair is not None:
        return kind.repair
    if kind is not None:
        raise RefusedError(
            f"{Option.REPAIR} {code}: this damage cannot be mended without a guess",
            hint=f"{kind.remedy}; {_HINT}",
        )
    if text == "all":
        raise InvalidRequestError(f"{Option.REPAIR} all: name each repair", hint=_HINT)
    raise InvalidRequestError(
        f"{Option.REPAIR} {text!r} is not a repair or the code of a finding", hint=_HINT
    )
