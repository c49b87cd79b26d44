"""Periods of a calendar, and the names of the tags that keep a table's state at their ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option

HOURLY, DAILY, WEEKLY, MONTHLY = "hourly", "daily", "weekly", "monthly"
FORMATS = {HOURLY: "%Y-%m-%dT%H", DAILY: "%Y-%m-%d", WEEKLY: "%G-W%V", MONTHLY: "%Y-%m"}
# The longest period of each kind.
_LENGTHS = {
    HOURLY: timedelta(hours=1),
    DAILY: timedelta(1),
    WEEKLY: timedelta(7),
    MONTHLY: timedelta(31),
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXAMPLE = datetime(2001, 2, 3, 4, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """An hour, day, week or month.

    Args:
        name: the name of its tag.
        end_ms: its end, exclusive, in ms since 1970 UTC.
    """

    name: str
    end_ms: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """How time is divided into periods.

    Args:
        kind: ``hourly``, ``daily``, ``weekly`` or ``monthly``; weeks begin on Monday.
        zone: the time zone of days, weeks and months, and of names; an IANA name.
        format: the format of names, as ``strftime`` writes it; None for that of `FORMATS`.

    Raises:
        InvalidRequestError: a value is not valid, or the format gives several periods one name.
    """

    kind: str
    zone: str = "UTC"
    format: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in FORMATS:
            raise InvalidRequestError(
                f"{Option.AUTO} {self.kind!r} is not one of {', '.join(FORMATS)}"
            )
        self._zone()
        try:
            names = {_name(_EXAMPLE + step, self._format) for step in self._steps()}
        except (ValueError, UnicodeError) as error:
            raise InvalidRequestError(f"{Option.FORMAT} {self._format!r} is not valid") from error
        if len(names) < len(self._steps()) or "" in names:
            raise InvalidRequestError(
                f"{Option.FORMAT} {self._format!r} gives different periods one name",
                hint=f"write it as {FORMATS[self.kind]}",
            )

    @property
    def _format(self) -> str:
        return self.format or FORMATS[self.kind]

    def _steps(self) -> list[timedelta]:
        """Return distances at which the names of periods must differ."""
        return [number * _LENGTHS[self.kind] for number in (0, 1, 13, 24, 29, 365)]

    def _zone(self) -> tzinfo:
        try:
            return ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise InvalidRequestError(
                f"{Option.ZONE} {self.zone!r} is not a time zone", hint="write it as Europe/Berlin"
            ) from error

    def ended(self, until_ms: int, since_ms: int) -> Iterator[Period]:
        """Yield the periods that end after `since_ms` and not after `until_ms`, the newest first."""
        zone = self._zone()
        begin = self._begin(_EPOCH + timedelta(milliseconds=until_ms), zone)
        while (end_ms := _ms(begin)) > since_ms:
            last = begin.astimezone(UTC) - timedelta(milliseconds=1)
            yield Period(_name(last.astimezone(zone), self._format), end_ms)
            begin = self._begin(last, zone)

    def _begin(self, moment: datetime, zone: tzinfo) -> datetime:
        """Return the begin of the period that contains a moment."""
        local = moment.astimezone(zone)
        if self.kind == HOURLY:
            # By the offset of this moment: an hour that the clock repeats is two hours.
            offset = local.utcoffset() or timedelta(0)
            since = (moment - _EPOCH + offset) % timedelta(hours=1)
            return (moment - since).astimezone(zone)
        day = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        # The calendar's days, whatever their length.
        if self.kind == MONTHLY:
            return day.replace(day=1)
        return day - timedelta(days=day.weekday()) if self.kind == WEEKLY else day

    def is_own(self, name: str) -> bool:
        """Whether a name is that of a period."""
        # The weekday makes a week a date.
        for text, form in ((name, self._format), (f"{name} 1", f"{self._format} %u")):
            try:
                read = datetime.strptime(text, form)  # noqa: DTZ007 - only its name is compared
            except ValueError:
                continue
            return _name(read, self._format) == name
        return False


def _name(moment: datetime, form: str) -> str:
    return moment.strftime(form)


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
