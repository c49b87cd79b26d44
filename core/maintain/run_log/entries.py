"""An entry of the run log, and its line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

from lake.core.base.errors import InvalidRequestError
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
    """What a table's metadata shows at one time; None if it is not known.

    `measured_seconds` is how long the manifests took to be read, alone and one after the other; None if not alone.
    """

    files: int | None = None
    small_files: int | None = None
    bytes: int | None = None
    delete_files: int | None = None
    deleted_rows: int | None = None
    manifests: int | None = None
    snapshots: int | None = None
    metadata_bytes: int | None = None
    scan_seconds: float | None = None
    partition_scan_seconds: float | None = None
    manifest_bytes: int | None = None
    measured_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedFacts(Facts):
    """What an action was expected to do, see `ForecastFacts` of `core/maintain/health`."""

    before: int
    after: int
    bytes: int
    seconds: float
    partition_seconds: float | None = None
    work_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Facts):
    """One action on one table.

    Args:
        at: when the action ended, as `iso_time` writes it.
        run: the id of the run of `lake maintain`.
        host: the machine.
        catalog: the catalog's name.
        table: the table's name.
        table_uuid: its UUID.
        action: the verb, such as ``compact``.
        status: how it ended, a value of `Status`.
        seconds: how long it took.
        bytes: the bytes of data files that it read to rewrite them; None if it did not say.
        forecast: what was expected; None for an action that has no forecast.
        before: the measures before.
        after: the measures after; None if the table could not be read again.
        operation_id: the id of its first commit.
        snapshot_ids: the snapshots that it added.
        error: why it failed; None if it did not.
        store: the store of the table's files, see `store_name` of `core/maintain/health`; None in old entries.
    """

    at: str
    run: str
    host: str
    catalog: str
    table: str
    table_uuid: str
    action: str
    status: str
    seconds: float
    bytes: int | None = None
    forecast: ExpectedFacts | None = None
    before: Measures | None = None
    after: Measures | None = None
    operation_id: str | None = None
    snapshot_ids: Sequence[str] = ()
    error: ErrorFacts | None = None
    store: str | None = None

    @property
    def at_ms(self) -> int:
        """When the action ended, in ms since 1970."""
        return parse_time_ms(self.at)

    @property
    def is_failure(self) -> bool:
        """Whether the action failed; another run, or a stop signal, is not a failure."""
        return self.error is not None and self.error.kind != "stopped"

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
