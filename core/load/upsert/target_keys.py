"""The source's keys as a set that chooses the table's files which may contain one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lake.core.data.keys.key_set import (
    KeyCollector,
    KeySet,
    is_key_type,
    key_types,
    normal_keys,
    ranges_of,
    without_nulls,
)
from lake.core.load.ingest.checksummed_batches import batches_in

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.io.storage.storage import Storage

# With more bytes of keys, only their ranges choose files.
_LIMIT_BYTES = 64 * 1024 * 1024
# Of a larger set, only the ranges are sent to tasks.
_SENT_BYTES = 8 * 1024 * 1024


def target_keys(
    storage: Storage, paths: Iterable[str], schema: Schema, ids: Sequence[int]
) -> KeySet | None:
    """Return the keys of some files; None if a column has no order.

    Args:
        storage: the storage of the files.
        paths: files of keys: the columns of the key in order, and then others.
        schema: the schema of the keys.
        ids: the columns of the key.

    Raises:
        CorruptFileError: a file is damaged.
    """
    types = key_types(schema, ids)
    if not all(is_key_type(kind) for kind in types.values()):
        return None
    collector = KeyCollector(types, _LIMIT_BYTES)
    for path in paths:
        for batch in batches_in(storage, path):
            collector.add(without_nulls(normal_keys(batch.columns[: len(ids)], types)))
    return collector.finish()


def sent_keys(keys: KeySet | None) -> bytes:
    """Return what tasks need to skip row groups; empty to skip none."""
    if keys is None:
        return b""
    if not keys.exact or keys.size_bytes <= _SENT_BYTES:
        return keys.to_bytes()
    nans = {column for column, values in keys.columns.items() if values.has_nan}
    return ranges_of([keys.rows], keys.types, nans).to_bytes()
