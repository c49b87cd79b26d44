"""The options of a DataFrame, and the table that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lake.commands.api.calls import Calls, mask, settings_from
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.read.scan.plan import ScanOptions
from lake.core.table.catalogs.catalog import Table

_NAMES = ("path", "table")
_SETTINGS = ("catalog", "warehouse", "catalog-type")
_SNAPSHOTS = ("branch", "snapshot", "from-snapshot", "to-snapshot", "inclusive")
_READ = (
    *_SNAPSHOTS,
    "where",
    "select",
    "ignore-case",
    "split-size",
    "split-lookback",
    "split-open-cost",
)
_KNOWN = (*_NAMES, *_SETTINGS, *_READ)


@contextmanager
def opened(options: Mapping[str, str]) -> Iterator[tuple[Table, ScanOptions]]:
    """Give the table of a read, and the options of its scan.

    Raises:
        InvalidRequestError: an option is not known, is missing, or contradicts another.
        NotFoundError: the table does not exist.
    """
    given = {name.lower(): value for name, value in options.items()}
    with reported(str):
        for name in given:
            if name not in _KNOWN:
                raise InvalidRequestError(
                    f"{name} is not an option of the format lake",
                    hint=f"options: {', '.join(_KNOWN)}",
                )
        if len(found := [given[name] for name in _NAMES if name in given]) != 1:
            raise InvalidRequestError("name one table: load('namespace.table')")
        if "to-snapshot" in given and "from-snapshot" not in given:
            raise InvalidRequestError(
                "to-snapshot needs from-snapshot", hint="snapshot reads all rows of a snapshot"
            )
        calls = Calls(settings_from({name: given.get(name) for name in _SETTINGS}))
    with reported(calls.redact):
        asked = calls.scan_options({name: given.get(name) for name in _READ})
        yield calls.session.table(found[0]), asked


@contextmanager
def reported(redact: Callable[[str], str]) -> Iterator[None]:
    """Let errors say everything in one text without secrets: Spark shows no more of them."""
    try:
        yield
    except LakeError as error:
        mask(error, redact)
        error.args = (f"{error} ({error.hint})",) if error.hint else error.args
        raise error from None
