"""A setting that does not count, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option


@dataclass(frozen=True, slots=True)
class Withheld:
    """A setting of a file in the working folder that does not count.

    Args:
        name: its name, as in the file.
        source: the path of the file.
        reason: a clause whose subject is the setting.
        hint: what the user can do.
    """

    name: str
    source: str
    reason: str
    hint: str


def names_code(name: str, source: str, place: str) -> Withheld:
    """Return a setting that chooses code, which no file in the working folder does.

    Args:
        name: its name, as in the file.
        source: the path of the file.
        place: where the setting belongs, in the imperative.
    """
    return Withheld(
        name, source, "chooses code, which a file in the working folder must not", place
    )


def needs_trust(name: str, source: str, folder: str, reason: str) -> Withheld:
    """Return a setting that only a trusted folder may choose, because of a clause."""
    return Withheld(
        name,
        source,
        f"{reason}, and the folder is not trusted",
        f"if you trust {folder} and the users who write there, use {Option.TRUST} there",
    )


def refuse(withheld: Sequence[Withheld]) -> None:
    """Refuse to work without settings that do not count; do nothing if there are none.

    Raises:
        RefusedError: there are such settings; the message names the first one.
    """
    if withheld:
        first = withheld[0]
        raise RefusedError(f"{first.name} in {first.source} {first.reason}", hint=first.hint)
