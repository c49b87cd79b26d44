"""The options of a DataFrame, and the table that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

from lake.commands.api.calls import Calls, settings_from
from lake.commands.groups import Flag, arguments_of
from lake.commands.options import size
from lake.commands.spark.redacted import reported
from lake.core.base.errors import InvalidRequestError
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Strategy
from lake.core.read.micro_batches.limits import Limits
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
_STARTS = ("start", "start-at")
_FOLLOWED = ("changes", "key", "non-append", "on-gap", "max-planning-failures")
_LIMITS = tuple(f"max-{name}-per-batch" for name in ("snapshots", "files", "rows", "bytes"))
OF_STREAMS = (*_STARTS, *_FOLLOWED, *_LIMITS)
# What streams take as `lake scan --follow` does.
_FOLLOW = (*_READ, *_STARTS, *_FOLLOWED)
_READS = (*_READ, *OF_STREAMS)


@contextmanager
def opened(options: Mapping[str, str]) -> Iterator[tuple[Table, ScanOptions]]:
    """Give the table of a read, and the options of its scan.

    Raises:
        InvalidRequestError: an option is not known, is missing, or contradicts another.
        NotFoundError: the table does not exist.
    """
    calls, name = named_table(options)
    given = lowered(options)
    with reported(calls.redact):
        if "to-snapshot" in given and "from-snapshot" not in given:
            raise InvalidRequestError(
                "to-snapshot needs from-snapshot", hint="snapshot reads all rows of a snapshot"
            )
        asked = calls.scan_options({option: given.get(option) for option in _READ})
        if given.keys() & set(OF_STREAMS):
            streamed(calls, given)
        yield calls.session.table(name), asked


def streamed(calls: Calls, given: Mapping[str, str]) -> tuple[FollowOptions, Limits]:
    """Return how a stream follows its table, and the most of its batches.

    Raises:
        InvalidRequestError: an option contradicts another, or is not one of streams.
    """
    for name in ("snapshot", "to-snapshot"):
        if name in given:
            raise InvalidRequestError(
                f"{name} is not an option of a stream", hint="from-snapshot says where it starts"
            )
    # A stream that passes over snapshots does not say so in a place where that is seen.
    named = {"non-append": "fail", **{name: given.get(name) for name in _FOLLOW if name in given}}
    options = calls.follow_options(named)
    if options.start is None and options.from_snapshot is None and options.start_at is None:
        options = replace(options, start=Strategy.TABLE)
    limits = {name: (given[name], name) for name in _LIMITS if name in given}
    return options, arguments_of(_limits, limits)["most"].limits()


@dataclass(frozen=True, kw_only=True)
class _Most:
    """The most of a batch."""

    max_snapshots_per_batch: Annotated[int | None, Flag("Snapshots.", "N")] = None
    max_files_per_batch: Annotated[int | None, Flag("Files.", "N")] = None
    max_rows_per_batch: Annotated[int | None, Flag("Rows.", "N")] = None
    max_bytes_per_batch: Annotated[int | None, size("Size of the files.")] = None

    def limits(self) -> Limits:
        return Limits(
            snapshots=self.max_snapshots_per_batch,
            files=self.max_files_per_batch,
            rows=self.max_rows_per_batch,
            bytes=self.max_bytes_per_batch,
        )


def _limits(most: _Most) -> None:
    """Take the options as a verb does."""


def named_table(options: Mapping[str, str], others: Sequence[str] = _READS) -> tuple[Calls, str]:
    """Return the catalog of a frame and the name of its table.

    Args:
        options: all options.
        others: the names of those that choose neither; those of reads if they are not given.

    Raises:
        InvalidRequestError: an option is not known or is missing.
    """
    given, known = lowered(options), (*_NAMES, *_SETTINGS, *others)
    with reported(str):
        for name in given:
            if name not in known:
                raise InvalidRequestError(
                    f"{name} is not an option of the format lake",
                    hint=f"options: {', '.join(known)}",
                )
        if len(found := [given[name] for name in _NAMES if name in given]) != 1:
            raise InvalidRequestError("name one table: load('namespace.table')")
        settings = {name: given.get(name) for name in _SETTINGS}
        # Spark runs the tasks; what the driver does itself starts no other.
        calls = Calls(settings_from({**settings, "engine": "inline"}))
    return calls, found[0]


def lowered(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by their names in small letters."""
    return {name.lower(): value for name, value in options.items()}


def reads_changes(options: Mapping[str, str]) -> bool:
    """Whether the rows are changes, with the columns of a change log; the options were checked."""
    return lowered(options).get("changes", "").lower() == "true"
