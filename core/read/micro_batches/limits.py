"""How much one batch may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lake.core.base.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most of a batch, None for no limit. One file, or one commit of a change log, is read in any case.

    Files, rows and bytes are those of the metadata, before a filter excludes files.

    Raises:
        InvalidRequestError: a limit is less than 1.
    """

    snapshots: int | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("snapshots", "files", "rows", "bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequestError(f"max-{name}-per-batch must be at least 1, not {value}")

    @property
    def any_of_files(self) -> bool:
        """Whether files, rows or bytes are limited."""
        return (self.files, self.rows, self.bytes) != (None, None, None)

    def fitting(self, sizes: pa.Table) -> int:
        """Return how many of the first parts, with these numbers of files, rows and bytes, are within the limits."""
        fits = np.ones(sizes.num_rows, np.bool_)
        for name in ("files", "rows", "bytes"):
            most = getattr(self, name)
            if most is not None:
                fits &= np.cumsum(sizes[name].to_numpy().astype(np.int64)) <= most
        return int(fits.sum())
