"""Sets of row positions in a data file, as roaring bitmaps, and their serialization in Puffin files.

Format: https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type.
"""

from __future__ import annotations

import array
import struct
import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lake.core.base.errors import CorruptFileError

_MAGIC = b"\xd1\xd3\x39\x64"
_LENGTH = struct.Struct(">I")
_ENDS = 2 * _LENGTH.size
# The number of 32-bit bitmaps that follow.
_COUNT_BYTES = 8
_MOST = 2**63


class RowPositions:
    """A set of row positions, counted from 0."""

    def __init__(self, positions: npt.NDArray[np.int64] | None = None) -> None:
        self._bitmap = BitMap64()
        if positions is not None:
            self.add(positions)

    def __len__(self) -> int:
        return len(self._bitmap)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowPositions) and self._bitmap == other._bitmap

    __hash__ = None  # type: ignore[assignment]

    def add(self, positions: npt.NDArray[np.int64]) -> None:
        """Add non-negative positions."""
        # The bitmap reads only an array.array without creating an object per value.
        self._bitmap |= BitMap64(array.array("Q", positions.astype("<u8").tobytes()))

    def update(self, other: RowPositions) -> None:
        """Add the positions of another set."""
        self._bitmap |= other._bitmap

    def without(self, other: RowPositions) -> RowPositions:
        """Return the positions that another set lacks."""
        rest = RowPositions()
        rest._bitmap = self._bitmap - other._bitmap
        return rest

    def mask(self, start: int, count: int) -> npt.NDArray[np.bool_]:
        """Return whether each of ``count`` consecutive positions is in the set."""
        found = np.zeros(count, np.bool_)
        inside = self._bitmap.intersection(BitMap64(range(start, start + count)))
        found[_numbers(inside) - start] = True
        return found

    @property
    def last(self) -> int:
        """The largest position; -1 if the set is empty."""
        return int(self._bitmap.max()) if self._bitmap else -1

    def to_numpy(self) -> npt.NDArray[np.int64]:
        """Return the positions, ascending."""
        return _numbers(self._bitmap)

    def pieces(self, size: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the positions, ascending, in arrays of at most ``size``: a small set in bytes may have very many."""
        numbers = iter(self._bitmap)
        while len(piece := np.fromiter(islice(numbers, size), np.int64)):
            yield piece

    def to_blob(self) -> bytes:
        """Return the set as a ``deletion-vector-v1`` blob."""
        packed = self._bitmap.copy()
        packed.run_optimize()
        body = _MAGIC + packed.serialize()
        return _LENGTH.pack(len(body)) + body + _LENGTH.pack(zlib.crc32(body))

    @classmethod
    def from_blob(cls, data: bytes, name: str) -> RowPositions:
        """Read a ``deletion-vector-v1`` blob; a few bytes may represent very many positions.

        Raises:
            CorruptFileError: it is not a deletion vector.
        """
        fewest = _ENDS + len(_MAGIC) + _COUNT_BYTES
        if len(data) < fewest or _LENGTH.unpack_from(data)[0] != len(data) - _ENDS:
            raise CorruptFileError(
                f"{name} does not contain a deletion vector: its length is wrong"
            )
        body = data[_LENGTH.size : -_LENGTH.size]
        if body[: len(_MAGIC)] != _MAGIC:
            raise CorruptFileError(f"{name} does not contain a deletion vector")
        if _LENGTH.unpack(data[-_LENGTH.size :])[0] != zlib.crc32(body):  # check: vector-checksum
            raise CorruptFileError(f"{name} contains a deletion vector with a wrong checksum")
        found = cls()
        try:
            found._bitmap = BitMap64.deserialize(body[len(_MAGIC) :])
        except ValueError as error:
            raise CorruptFileError(
                f"{name} contains a deletion vector that cannot be read"
            ) from error
        if found._bitmap and found._bitmap.max() >= _MOST:
            raise CorruptFileError(f"{name} deletes a row beyond the end of any file")
        return found


def _numbers(bitmap: BitMap64) -> npt.NDArray[np.int64]:
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)
