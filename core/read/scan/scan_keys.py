"""Keys by which a scan chooses files, row groups and rows: what plans and tasks need of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from lake.core.base.arrow import Mask
from lake.core.base.facts import Facts, inlined
from lake.core.data.deletes.equality import EqualityDeletes
from lake.core.data.deletes.spilled_equality import RowKeys as KeysOfRows
from lake.core.data.keys.key_pruning import KeyPruner, PruningCounts
from lake.core.data.keys.key_set import KeySet
from lake.core.data.keys.row_keys import RowKeys

# The names of the counters of rows and row groups.
ROW_GROUPS_SKIPPED, ROWS_WITHOUT_PARTNER = "row_groups_skipped", "rows_without_partner"

_MEMORY_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource(Facts):
    """The table or the files with the keys, and the keys as far as they are used."""

    status: str
    """How the keys are used: `exact`, as `range`, or `none`."""
    dimension: str
    """The table or the files with the keys."""
    dimension_snapshot_id: str | None
    """The snapshot of the table; null for files."""
    keys: int | None
    """The number of keys; null if there are too many."""
    key_bytes: int
    """Their bytes."""
    limit_bytes: int
    """The bytes that they may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningFacts(Facts):
    """What keys exclude from a plan, and why not more."""

    source: KeySource = inlined()
    counts: PruningCounts = inlined()
    reasons: Sequence[str]
    """Why less was excluded than possible."""

    def after(self, earlier: PruningFacts | None) -> PruningFacts:
        """Return the sums over this plan and earlier ones, with the keys of this one."""
        if earlier is None:
            return self
        counts = replace(earlier.counts)
        counts.add(self.counts)
        reasons = list(dict.fromkeys([*earlier.reasons, *self.reasons]))
        return replace(self, counts=counts, reasons=reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKeys:
    """The keys of a scan.

    Args:
        types: the table's columns of the key.
        keys: the keys, or their ranges.
        prunes: whether they choose files and row groups.
        matching: whether rows are tested.
        path: an Arrow file with all keys, if rows are tested and `keys` does not contain all of them.
        source: what the output says about the keys.
        warnings: what the caller must know about them.
        reasons: why the keys exclude less than they could.
    """

    types: Mapping[int, IcebergType]
    keys: KeySet
    prunes: bool = True
    matching: bool = False
    path: str | None = None
    source: KeySource
    warnings: Sequence[str] = ()
    reasons: Sequence[str] = ()

    def pruner(self, schema: Schema) -> KeyPruner:
        """Return what chooses files and counts them."""
        return KeyPruner(self.keys if self.prunes else None, schema)

    def to_bytes(self, *, whole_files: bool = False) -> bytes:
        """Return what tasks need, from which `row_keys` makes the keys of a task."""
        header = {
            "matching": self.matching,
            "path": self.path,
            "prunes": self.prunes and not whole_files,
        }
        return _joined(header, self.keys.to_bytes())

    def facts(self, pruner: KeyPruner) -> PruningFacts:
        """Return the facts of a plan for the output."""
        return PruningFacts(
            source=self.source, counts=pruner.counts, reasons=[*self.reasons, *pruner.reasons]
        )


def with_path(shared: bytes, path: str) -> bytes:
    """Return `ScanKeys.to_bytes`'s result with another path of the file with all keys."""
    header, keys = _parts(shared)
    return _joined({**header, "path": path}, keys)


def _joined(header: Mapping[str, Any], keys: bytes) -> bytes:
    data = json.dumps(header).encode()
    return _LENGTH.pack(len(data)) + data + keys


def _parts(shared: bytes) -> tuple[dict[str, Any], bytes]:
    end = _LENGTH.size + _LENGTH.unpack_from(shared)[0]
    return json.loads(shared[_LENGTH.size : end]), shared[end:]


def row_keys(shared: bytes) -> RowKeys | None:
    """Return the keys of a task from `ScanKeys.to_bytes`'s result; None if there are none."""
    if not shared:
        return None
    header, data = _parts(shared)
    keys = _key_set(data)
    test = None
    if header["matching"]:
        test = _test_of_set(data) if header["path"] is None else _Test.load(header["path"])
    return RowKeys(keys.types, keys if header["prunes"] else None, test)


@lru_cache(maxsize=1)
def _key_set(data: bytes) -> KeySet:
    """Return a set; the tasks of one scan share it."""
    return KeySet.from_bytes(data)


@lru_cache(maxsize=1)
def _test_of_set(data: bytes) -> _Test:
    return _Test.of(_key_set(data).rows.to_batches())


class _Test:
    """Tests rows by all keys; see `lake.core.data.keys.row_keys.KeyTest`.

    Rows with a key are found like rows that equality deletes remove.
    """

    def __init__(self, index: EqualityDeletes) -> None:
        self._index = index

    @classmethod
    def of(cls, keys: Iterable[pa.RecordBatch]) -> Self:
        return cls(EqualityDeletes.load(((batch, 1) for batch in keys), memory_bytes=_MEMORY_BYTES))

    @classmethod
    def load(cls, path: str) -> Self:
        """Read the keys from an Arrow file."""
        with pa.memory_map(path) as source, pa.ipc.open_file(source) as file:
            return cls.of(file.get_batch(number) for number in range(file.num_record_batches))

    @property
    def chunk_bytes(self) -> int:
        """The bytes of the rows that are tested together; 0 for one batch at a time."""
        return 0 if self._index.in_memory else _CHUNK_BYTES

    def contained(self, keys: Sequence[pa.RecordBatch]) -> list[Mask]:
        """Return for batches of keys which of them the set contains."""
        found = [np.zeros(batch.num_rows, np.bool_) for batch in keys]
        rows = (KeysOfRows(number, 0, 0, batch) for number, batch in enumerate(keys))
        for number, positions in self._index.deleted_rows(rows):
            found[number][positions] = True
        return found
