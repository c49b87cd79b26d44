"""Keys that Spark's hash partitioning places in given partitions.

Spark places an integer key in partition ``pmod(murmur3(key, seed 42), partitions)``: MurmurHash3 x86_32 of
its 4 bytes, as `org.apache.spark.sql.catalyst.expressions.Murmur3Hash` computes it. Only the balance of the
partitions depends on it: the rows of a reducer share a key, so they meet wherever Spark places it.
"""

from __future__ import annotations

import mmh3

_SEED = 42


def murmur3(value: int) -> int:
    """Return Spark's hash of a 32-bit integer, signed."""
    return mmh3.hash(value.to_bytes(4, "little", signed=True), _SEED)


def keys_of_partitions(partitions: int) -> list[int]:
    """Return for each partition a key that Spark places in it."""
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < partitions:
        keys.setdefault(murmur3(key) % partitions, key)
        key += 1
    return [keys[number] for number in range(partitions)]
