"""Where batches start and end, in the JSON of Iceberg's stream for Spark, with more keys that it ignores.

Source: Iceberg's StreamingOffset. A checkpoint of either stream can be continued by the other one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from lake.core.base.errors import BadInputError
from lake.core.read.continuous.position import GapKind, Position

_VERSION = 1
_NONE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a batch starts, if that is not where the one before it ended.

    One of the snapshots is given; a batch that reads nothing has the last one of `after`, or none.

    Args:
        scan: the snapshot of which all rows are read first.
        first: the first snapshot that is read.
        after: the snapshot in front of the batch; None for the beginning of the table.
        gap: the gap because of which the batch starts there; None for the first batch of a stream.
    """

    scan: int | None = None
    first: int | None = None
    after: int | None = None
    gap: GapKind | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        named = {"scan": self.scan, "first": self.first}
        found = {name: number for name, number in named.items() if number is not None}
        gap = {} if self.gap is None else {"gap": self.gap.value}
        return (found or {"after": self.after}) | gap

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Rebuild from `to_plain`'s values.

        Raises:
            ValueError: the values are not an origin.
        """
        if not isinstance(plain, dict) or plain.keys() - {"scan", "first", "after", "gap"}:
            raise ValueError(plain)
        gap = plain.get("gap")
        numbers = {name: _number(plain, name) for name in plain.keys() - {"gap"}}
        return cls(**numbers, gap=None if gap is None else GapKind(gap))


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """The place up to which rows are read.

    Args:
        snapshot_id: the last snapshot of which something is read; None before the first one.
        position: the number of its files that are read, in the order of its manifests.
        scan_all: whether all of its live files count, and not only those that it added.
        complete: whether all of it is read. Other streams do not write this: then the files must be counted.
        table: the UUID of the table; None before a reader looked at it, and in offsets of other streams.
        ordinal: the ordinal of the next commit in a change log.
        origin: where the batch that ends here starts, if that is not the offset before it.
    """

    snapshot_id: int | None = None
    position: int = _NONE
    scan_all: bool = False
    complete: bool = False
    table: str | None = None
    ordinal: int = 0
    origin: Origin | None = None

    START: ClassVar[Offset]

    @property
    def is_start(self) -> bool:
        """Whether the stream has not looked at the table yet."""
        return self.snapshot_id is None and self.table is None

    @property
    def place(self) -> Position:
        """The position behind the snapshot."""
        return Position(self.snapshot_id)

    def is_at(self, other: Offset) -> bool:
        """Whether nothing is between this offset and another one."""
        if self.snapshot_id != other.snapshot_id or self.complete != other.complete:
            return False
        return self.complete or (self.position, self.scan_all) == (other.position, other.scan_all)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values; equal offsets give equal texts."""
        more = {
            "table": self.table,
            "complete": self.complete or None,
            "ordinal": self.ordinal or None,
            "origin": self.origin and self.origin.to_plain(),
        }
        return {
            "version": _VERSION,
            "snapshot_id": _NONE if self.snapshot_id is None else self.snapshot_id,
            "position": self.position,
            "scan_all_files": self.scan_all,
            **{name: value for name, value in more.items() if value is not None},
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild from `to_plain`'s values, or from what Iceberg's stream wrote.

        Raises:
            BadInputError: the values are not an offset, or one of a newer version.
        """
        try:
            return cls._read(plain)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInputError(
                f"not an offset of a stream of an Iceberg table: {plain!r}"
            ) from error

    @classmethod
    def _read(cls, plain: Mapping[str, Any]) -> Self:
        if _number(plain, "version") != _VERSION:
            raise ValueError(plain)
        number, table, origin = plain["snapshot_id"], plain.get("table"), plain.get("origin")
        flags = {
            name: plain.get(key, False)
            for name, key in (("scan_all", "scan_all_files"), ("complete", "complete"))
        }
        if any(type(flag) is not bool for flag in flags.values()) or not isinstance(
            table, str | None
        ):
            raise ValueError(plain)
        return cls(
            snapshot_id=None if number == _NONE else _number(plain, "snapshot_id"),
            position=_number(plain, "position") or 0,
            table=table,
            ordinal=_number({"ordinal": 0, **plain}, "ordinal") or 0,
            origin=None if origin is None else Origin.from_plain(origin),
            **flags,
        )


Offset.START = Offset()


def _number(plain: Mapping[str, Any], name: str) -> int | None:
    found = plain[name]
    if type(found) not in (int, type(None)):
        raise ValueError(plain)
    return found
