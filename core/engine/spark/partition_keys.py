"""Keys that Spark's hash partitioning puts where we want them.

Spark places an integer key in partition ``pmod(murmur3(key, seed 42), partitions)``: MurmurHash3 x86_32 of
one 4-byte block (Austin Appleby, public domain), as `org.apache.spark.sql.catalyst.expressions.Murmur3Hash`
has it. Only balance hangs on this: a reducer's rows share a key, so they meet wherever it is placed.
"""

from __future__ import annotations

_SEED = 42
_MASK = 0xFFFFFFFF


def murmur3(value: int) -> int:
    """Return Spark's hash of a 32-bit integer, signed."""
    block = (value & _MASK) * 0xCC9E2D51 & _MASK
    block = _rotate(block, 15) * 0x1B873593 & _MASK
    mixed = _rotate(_SEED ^ block, 13) * 5 + 0xE6546B64 & _MASK
    mixed ^= 4  # the length of what was hashed, in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _MASK
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _MASK
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def keys_of_partitions(partitions: int) -> list[int]:
    """Return for each partition a key that Spark places in it."""
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < partitions:
        keys.setdefault(murmur3(key) % partitions, key)
        key += 1
    return [keys[number] for number in range(partitions)]


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK
