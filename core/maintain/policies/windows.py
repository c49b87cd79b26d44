"""Windows: the part of each day in which an action may begin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lake.core.base.errors import InvalidRequestError

_WINDOW = re.compile(
    r"(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)(?:\s+([A-Za-z][\w+-]*(?:/[\w+-]+)*))?", re.ASCII
)
_HOUR, _HOURS, _MINUTES = 60, 24, 60


@dataclass(frozen=True, slots=True)
class Window:
    """A part of each day: from one minute of the day until before another one, maybe over midnight."""

    begin: int
    end: int
    zone: tzinfo
    written: str

    def __str__(self) -> str:
        return self.written

    def is_open(self, now_ms: int) -> bool:
        """Whether a time, in ms since 1970, is in the window."""
        now = datetime.fromtimestamp(now_ms / 1000, self.zone)
        minute = now.hour * _HOUR + now.minute
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end


def parse_window(text: str, place: str) -> Window:
    """Return a window such as ``22:00-06:00 Europe/Berlin``; without a zone it is in UTC.

    Raises:
        InvalidRequestError: it is not a window, or its time zone is not known.
    """
    found = _WINDOW.fullmatch(text.strip())
    if found is None:
        raise _refused(text, place)
    begin_hour, begin_minute, end_hour, end_minute = map(int, found.groups()[:4])
    begin, end = begin_hour * _HOUR + begin_minute, end_hour * _HOUR + end_minute
    if max(begin_minute, end_minute) >= _MINUTES or begin_hour >= _HOURS or end > _HOURS * _HOUR:
        raise _refused(text, place)
    if begin == end:
        raise InvalidRequestError(f"{place} is {text!r}: it has no length", hint="leave it out")
    return Window(begin, end, _zone(found[5], place), text.strip())


def _refused(text: str, place: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{place} is not a window: {text!r}", hint="write it as 22:00-06:00 Europe/Berlin"
    )


def _zone(name: str | None, place: str) -> tzinfo:
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequestError(
            f"{place} has the unknown time zone {name!r}", hint="write it as Europe/Berlin, or UTC"
        ) from error
