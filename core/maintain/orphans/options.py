"""What `lake clean` removes, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option

FLOOR_MS = 24 * 3_600_000
DEFAULT_AGE_MS = 7 * FLOOR_MS
DEFAULT_SHARE = 0.5


class Mode(StrEnum):
    """What happens to orphan files."""

    LIST = "list"
    QUARANTINE = "quarantine"
    DELETE = "delete"


class PrefixMismatch(StrEnum):
    """What happens if an orphan's path is that of a referenced file with another scheme or authority."""

    ERROR = "error"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """Which files are orphans, and what happens to them.

    Args:
        older_than: younger files are kept (ms since 1970).
        mode: what happens to orphan files.
        location: further folders to list, which earlier versions of the table wrote to.
        inventory: a file, folder or ``manifest.json`` to read in place of listing the folders; the metadata folder
            is listed all the same.
        exclude: patterns of paths below the folders that are kept (``*`` also matches ``/``).
        max_share: refuse to remove more than this share of the listed files or bytes (0 to 1).
        prefix_mismatch: see `PrefixMismatch`.
        equal_schemes: schemes that name the same store, each with the one to compare in its place.
        equal_authorities: the same for authorities, such as buckets.
        unsafe_retention: allow an age of less than 24 hours.
        ignore_unreadable: remove files although another table that may own some of them cannot be read.
    """

    older_than: int
    mode: Mode = Mode.LIST
    location: Sequence[str] = ()
    inventory: str | None = None
    exclude: Sequence[str] = ()
    max_share: float = DEFAULT_SHARE
    prefix_mismatch: PrefixMismatch = PrefixMismatch.ERROR
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    unsafe_retention: bool = False
    ignore_unreadable: bool = False

    def check(self, now_ms: int) -> None:
        """Check the age.

        Raises:
            RefusedError: the age is less than 24 hours.
        """
        if self.older_than > now_ms - FLOOR_MS and not self.unsafe_retention:
            raise RefusedError(
                f"{Option.OLDER_THAN} is less than 24 hours ago: a writer may be about to commit such files",
                hint=f"choose an older time, or add {Option.UNSAFE_RETENTION} if nothing writes to the table",
            )
