"""An entry of the run log, and its line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

from lake.core.base.errors import InvalidRequestError, OutOfTimeError
from lake.core.base.facts import ErrorFacts, Facts
from lake.core.base.outcome import Status
from lake.core.base.units import iso_time, parse_time_ms

T = TypeVar("T")
_LONGEST_TEXT = 4096
# An entry with the ids of some 40,000 commits. Longer lines are not parsed: values take more memory than their text.
_LONGEST_LINE = 1024 * 1024
_STATUSES = frozenset(map(str, Status))


class UnreadableEntryError(ValueError):
    """A line is not an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures(Facts):
    """What a table's metadata shows at one time; None if it is not known."""

    files: int | None = None
    """Data files."""
    small_files: int | None = None
    """Data files that are too small."""
    bytes: int | None = None
    """Bytes of the data files."""
    delete_files: int | None = None
    """Delete files."""
    deleted_rows: int | None = None
    """Rows that are deleted."""
    manifests: int | None = None
    """Manifests."""
    snapshots: int | None = None
    """Snapshots."""
    metadata_bytes: int | None = None
    """Bytes of the metadata file."""
    scan_seconds: float | None = None
    """Seconds that a full scan takes, by the assumed costs."""
    partition_scan_seconds: float | None = None
    """Seconds that a scan of one partition takes."""
    manifest_bytes: int | None = None
    """Bytes of the manifests."""
    measured_seconds: float | None = None
    """How long the manifests took to be read; null if other tables were read beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFacts(Facts):
    """What an action was expected to do, as `ForecastFacts` of `core/maintain/health`."""

    before: int
    """Data files, delete files, snapshots or manifests before."""
    after: int
    """The same after."""
    bytes: int
    """Bytes to rewrite; for `expire`, to remove from the metadata file."""
    seconds: float
    """Seconds that each scan saves."""
    partition_seconds: float | None = None
    """Seconds that a scan of one partition saves; null without partitions."""
    work_seconds: float | None = None
    """Seconds that the command takes; null if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Facts):
    """One action on one table."""

    at: str
    """When the action ended."""
    run: str
    """The id of the run of `lake maintain`."""
    host: str
    """The machine."""
    catalog: str
    table: str
    table_uuid: str
    action: str
    """The command."""
    status: str
    """How it ended."""
    seconds: float
    bytes: int | None = None
    """Bytes of data files that were read to rewrite them; null if it is not known."""
    forecast: ExpectedFacts | None = None
    """What was expected; null if nothing was."""
    before: Measures | None = None
    """What the table's metadata showed before; null if it is not known."""
    after: Measures | None = None
    """What it showed after; null if the table could not be read again."""
    operation_id: str | None = None
    """The operation of its first commit; null without one."""
    snapshot_ids: Sequence[str] = ()
    """The snapshots that it added."""
    error: ErrorFacts | None = None
    store: str | None = None
    """The store of the table's files; null in old entries."""

    @property
    def at_ms(self) -> int:
        """When the action ended, in ms since 1970."""
        return parse_time_ms(self.at)

    @property
    def is_failure(self) -> bool:
        """Whether the action failed; another run, a stop signal, or the end of the time is not a failure."""
        return self.error is not None and self.error.kind != "stopped" and not self.is_out_of_time

    @property
    def is_out_of_time(self) -> bool:
        """Whether the time of the run ended before the action had done its work."""
        return self.error is not None and self.error.kind == OutOfTimeError.kind

    def line(self) -> str:
        """Return the entry as one line of JSON, without a line break."""
        return json.dumps(self.document(), allow_nan=False)

    @classmethod
    def of_line(cls, line: str) -> Self:
        """Return the entry of a line; unknown members are ignored, as newer versions may write them.

        Raises:
            UnreadableEntryError: it is not one.
        """
        if len(line) > _LONGEST_LINE:
            raise UnreadableEntryError(f"more than {_LONGEST_LINE:,} characters")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UnreadableEntryError(str(error)) from error
        if not isinstance(found, dict):
            raise UnreadableEntryError("not an object")
        return cls.of_values(found)

    @classmethod
    def of_values(cls, found: Mapping[str, Any]) -> Self:
        """Return the entry with these members; unknown ones are ignored.

        Raises:
            UnreadableEntryError: it is not one.
        """
        texts = {name: _text(found, name) for name in _TEXTS}
        texts["at"] = _time(texts["at"])
        if texts["status"] not in _STATUSES:
            raise UnreadableEntryError(f"the status is {texts['status']!r}")
        return cls(
            **texts,
            seconds=_number(found.get("seconds"), float) or 0.0,
            bytes=_number(found.get("bytes"), int),
            forecast=_expected(found.get("forecast")),
            before=_measures(found.get("before")),
            after=_measures(found.get("after")),
            operation_id=_text_or_none(found.get("operation_id")),
            snapshot_ids=_ids(found.get("snapshot_ids")),
            error=_error(found.get("error")),
            store=_text_or_none(found.get("store")),
        )


# The types of the measures. Each of tens of thousands of entries has them twice.
_KINDS: Mapping[str, type[int | float]] = {
    item.name: float if item.name.endswith("seconds") else int for item in fields(Measures)
}
_TEXTS = ("at", "run", "host", "catalog", "table", "table_uuid", "action", "status")


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise UnreadableEntryError(f"{name} is missing, or not a text")
    return value


def _text_or_none(value: Any) -> str | None:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else None


def _time(text: str) -> str:
    """Return a time as `iso_time` writes it, so that times can be compared as texts."""
    try:
        found = iso_time(parse_time_ms(text))
    except InvalidRequestError as error:
        raise UnreadableEntryError(error.message) from error
    if found is None:
        raise UnreadableEntryError(f"{text!r} is outside of the calendar")
    return found


def _number(value: Any, kind: type[T]) -> T | None:
    """Return a number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < 2**63 or (kind is int and not isinstance(value, int)):
        return None
    return kind(value)  # type: ignore[call-arg]


def _measures(value: Any) -> Measures | None:
    if not isinstance(value, dict):
        return None
    numbers: dict[str, Any] = {
        name: _number(value.get(name), kind) for name, kind in _KINDS.items()
    }
    return Measures(**numbers)


def _expected(value: Any) -> ExpectedFacts | None:
    if not isinstance(value, dict):
        return None
    return ExpectedFacts(
        before=_number(value.get("before"), int) or 0,
        after=_number(value.get("after"), int) or 0,
        bytes=_number(value.get("bytes"), int) or 0,
        seconds=_number(value.get("seconds"), float) or 0.0,
        partition_seconds=_number(value.get("partition_seconds"), float),
        work_seconds=_number(value.get("work_seconds"), float),
    )


def _ids(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _error(value: Any) -> ErrorFacts | None:
    if not isinstance(value, dict):
        return None
    kind, message, hint = (_text_or_none(value.get(name)) for name in ("kind", "message", "hint"))
    return ErrorFacts(kind=kind or "failed", message=message or "", hint=hint)
