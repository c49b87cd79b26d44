"""The Hilbert curve: the place of a cell along a curve that visits all cells of a cube, each beside the one before.

Source: J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707 (2004), page 381, function
AxestoTranspose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lake.core.base.arrow import Bytes

_Words = npt.NDArray[np.uint64]
_WORD, _WORD_BITS = 8, 64
_ALL = np.uint64(2**64 - 1)
_ONE = np.uint64(1)
# The steps for each bit read the words of these rows again, so they stay in the processor's cache.
_BLOCK_ROWS = 8 * 1024


def along_curve(columns: Sequence[Bytes], most_bytes: int) -> list[Bytes]:
    """Return bytes of which the bits, taken from each column in turn, are the rows' places along the curve.

    The first bits of a place depend on the first bits of the values only. So a shorter column is filled with zeros,
    and the bits that the place does not use are not computed.

    Args:
        columns: unsigned integers, the highest byte first: one array of shape (rows, width) for each dimension.
        most_bytes: the number of bytes of the place that are used.
    """
    width = min(max(column.shape[1] for column in columns), -(-most_bytes // len(columns)))
    words = -(-width // _WORD)
    rows = len(columns[0])
    found = [np.empty((rows, width), np.uint8) for _ in columns]
    for start in range(0, rows, _BLOCK_ROWS):
        end = min(start + _BLOCK_ROWS, rows)
        axes = np.stack([_words(column[start:end, :width], words) for column in columns])
        _turn(axes)
        _gray(axes)
        for place, axis in zip(found, axes, strict=True):
            as_bytes = np.ascontiguousarray(axis.T).astype(">u8").view(np.uint8)
            place[start:end] = as_bytes.reshape(end - start, words * _WORD)[:, :width]
    return found


def _words(column: Bytes, words: int) -> _Words:
    """Return a column as words of shape (words, rows), the highest first."""
    wide = np.zeros((len(column), words * _WORD), np.uint8)
    wide[:, : column.shape[1]] = column
    return np.ascontiguousarray(wide.view(">u8").astype(np.uint64).T)


def _turn(axes: _Words) -> None:
    """Turn and reflect the part of the cube below each bit, as the bits above it require."""
    first = axes[0]
    for word in range(axes.shape[1]):
        for bit in reversed(range(_WORD_BITS)):
            # The bits below this one: a part of its word, and all bits of the words that follow.
            below = [(word, np.uint64(2**bit - 1))] if bit else []
            below += [(lower, _ALL) for lower in range(word + 1, axes.shape[1])]
            for axis in axes:
                is_set = -((axis[word] >> np.uint64(bit)) & _ONE)
                for lower, mask in below:
                    exchanged = (first[lower] ^ axis[lower]) & ~is_set & mask
                    axis[lower] ^= exchanged
                    first[lower] ^= exchanged ^ (is_set & mask)


def _gray(axes: _Words) -> None:
    """Number the turned cells: each bit is inverted if the last axis has an odd number of set bits above it."""
    for number in range(1, len(axes)):
        axes[number] ^= axes[number - 1]
    odd = np.zeros(axes.shape[2], np.uint64)
    for word, last in enumerate(axes[-1].copy()):
        parity = last.copy()
        for shift in (1, 2, 4, 8, 16, 32):
            parity ^= parity >> np.uint64(shift)
        axes[:, word] ^= (parity >> _ONE) ^ odd
        odd ^= -(parity & _ONE)
