"""Theta sketches: estimates of the number of distinct values that can be merged.

A sketch keeps the smallest hashes below a bound, theta; theta is the share of all hashes that it keeps. Format of the
bytes: a compact, ordered sketch of the Apache DataSketches library, version 3, which Iceberg stores in blobs of type
``apache-datasketches-theta-v1``. Values are hashed as Iceberg Java does it: MurmurHash3 (x64, 128 bits) of a value's
single-value serialization with the library's default seed, the first 64 bits shifted right by one.

The library's Python package hashes numbers of 64 bits and texts only, so the hash is computed here.

Sources: https://iceberg.apache.org/puffin-spec/, https://datasketches.apache.org/docs/Theta/ThetaSketches.html.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from lake.core.base.arrow import Bytes

Hashes = npt.NDArray[np.uint64]

NOMINAL_ENTRIES = 4096
_SEED = 9001
# The hash of the seed, by which a reader detects sketches that cannot be merged.
_SEED_HASH = 0x93CC
_MAX_THETA = 2**63 - 1
_BLOCK = 16
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_VERSION, _COMPACT_FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 2, 4, 8, 16
# Length of the preamble in longs, version, family, three bytes that compact sketches do not use (two before the
# flags), flags, hash of the seed.
_PREAMBLE = struct.Struct("<BBBxxBH")
_COUNT = struct.Struct("<II")
_LONG = struct.Struct("<Q")


@dataclass(slots=True)
class ThetaSketch:
    """The smallest hashes of a set of values.

    Args:
        theta: all hashes of the set below it are kept.
        hashes: the hashes, in order, all of them different.
    """

    theta: int = _MAX_THETA
    hashes: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))

    def add(self, hashes: Hashes) -> None:
        """Add hashes of values, in any order."""
        new = hashes[(hashes > 0) & (hashes < np.uint64(self.theta))]
        if len(new):
            self._set(np.union1d(self.hashes, new))

    def merge(self, other: ThetaSketch) -> None:
        """Add the values of another sketch."""
        self.theta = min(self.theta, other.theta)
        both = np.union1d(self.hashes, other.hashes)
        self._set(both[both < np.uint64(self.theta)])

    def _set(self, hashes: Hashes) -> None:
        if len(hashes) > NOMINAL_ENTRIES:
            self.theta = int(hashes[NOMINAL_ENTRIES])
        self.hashes = hashes[:NOMINAL_ENTRIES]

    @property
    def estimate(self) -> int:
        """The number of distinct values; exact if there are at most `NOMINAL_ENTRIES`."""
        if self.theta == _MAX_THETA:
            return len(self.hashes)
        return round(len(self.hashes) * (_MAX_THETA / self.theta))

    def to_bytes(self) -> bytes:
        """Return the compact, ordered sketch."""
        count, is_exact = len(self.hashes), self.theta == _MAX_THETA
        flags = _READ_ONLY | _COMPACT | _ORDERED
        if is_exact and count == 0:
            return _PREAMBLE.pack(1, _VERSION, _COMPACT_FAMILY, flags | _EMPTY, _SEED_HASH)
        values = self.hashes.astype("<u8").tobytes()
        if is_exact and count == 1:
            return _PREAMBLE.pack(1, _VERSION, _COMPACT_FAMILY, flags, _SEED_HASH) + values
        longs = 2 if is_exact else 3
        head = _PREAMBLE.pack(longs, _VERSION, _COMPACT_FAMILY, flags, _SEED_HASH)
        theta = b"" if is_exact else _LONG.pack(self.theta)
        return head + _COUNT.pack(count, 0) + theta + values


def hashes_of(rows: Bytes) -> Hashes:
    """Return the hash of each row of a matrix of bytes.

    Args:
        rows: shape (values, bytes of a value).
    """
    count, width = rows.shape
    h1, h2 = np.full(count, _SEED, np.uint64), np.full(count, _SEED, np.uint64)
    whole = width // _BLOCK * _BLOCK
    padded = np.zeros((count, -(-width // _BLOCK) * _BLOCK), np.uint8)
    padded[:, :width] = rows
    words = padded.view("<u8").astype(np.uint64, copy=False)
    for start in range(0, words.shape[1], 2):
        # The bytes after the last whole block are only mixed in.
        is_whole = start * 8 < whole
        h1 = h1 ^ _mixed_first(words[:, start])
        if is_whole:
            h1 = (_rotated(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 = h2 ^ _mixed_second(words[:, start + 1])
        if is_whole:
            h2 = (_rotated(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
    h1, h2 = h1 ^ np.uint64(width), h2 ^ np.uint64(width)
    h1 = h1 + h2
    h2 = h2 + h1
    return (_finished(h1) + _finished(h2)) >> np.uint64(1)


def _mixed_first(words: Hashes) -> Hashes:
    mixed: Hashes = _rotated(words * _C1, 31) * _C2
    return mixed


def _mixed_second(words: Hashes) -> Hashes:
    mixed: Hashes = _rotated(words * _C2, 33) * _C1
    return mixed


def _rotated(words: Hashes, bits: int) -> Hashes:
    rotated: Hashes = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return rotated


def _finished(words: Hashes) -> Hashes:
    shift = np.uint64(33)
    words = (words ^ (words >> shift)) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> shift)) * np.uint64(0xC4CEB9FE1A85EC53)
    finished: Hashes = words ^ (words >> shift)
    return finished
