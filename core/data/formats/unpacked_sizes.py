"""The limit of what a part of a file may unpack to, for all formats: a few kilobytes may unpack to gigabytes."""

from __future__ import annotations

import os

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.base.units import format_size, parse_size

LIMIT = "LAKE_MAX_PAGE_SIZE"
_DEFAULT_LIMIT = 256 * 1024 * 1024
# Some writers put thousands of long values into one part: what has a similar size in the file is always read.
MOST_RATIO = 100


def refuse_large(what: str, size: int, packed: int) -> None:
    """Refuse a part of a file that must be unpacked at once.

    Args:
        what: the file and the part, such as ``a.parquet has values in column x``.
        size: the bytes of the part when it is unpacked.
        packed: its bytes in the file.

    Raises:
        RefusedError: these are more than the limit, and more than 100 times the bytes in the file.
        InvalidRequestError: the limit is not a size.
    """
    limit = most_bytes()
    if size > limit and size > MOST_RATIO * packed:
        raise RefusedError(
            f"{what} that unpack to {format_size(size)} at once, from {format_size(packed)}: the limit is "
            f"{format_size(limit)}",
            hint=f"if the file is trusted and there is enough memory, raise the limit: {LIMIT}=4GB",
        )


def most_bytes() -> int:
    """Return the limit of the variable `LIMIT` in bytes.

    Raises:
        InvalidRequestError: it is not a size.
    """
    text = os.environ.get(LIMIT)
    try:
        return parse_size(text) if text else _DEFAULT_LIMIT
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{LIMIT} is {error.message}", hint=error.hint) from error
