"""Sort the entries of manifests by partition, and divide them into pieces of one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.spec.types.partition_codes import partition_codes


@dataclass(frozen=True, slots=True)
class Clustering:
    """How many manifests a scan of one partition reads, on average; None if the spec has no fields.

    Args:
        before: in the manifests that the entries are in.
        after: in those that replace them.
    """

    before: float | None
    after: float | None


def clustering_of(entries: pa.Table, pieces: Sequence[pa.Table]) -> Clustering:
    """Return how entries are clustered.

    Args:
        entries: live entries of one spec with the columns ``partition`` and ``manifest_path``.
        pieces: the same entries, as the new manifests contain them.
    """
    if not one_array(entries["partition"]).type.num_fields:
        return Clustering(None, None)
    numbers = [pa.repeat(number, piece.num_rows) for number, piece in enumerate(pieces)]
    return Clustering(
        before=manifests_per_partition(entries, entries["manifest_path"]),
        after=manifests_per_partition(pa.concat_tables(pieces), pa.chunked_array(numbers)),
    )


def by_partition(entries: pa.Table, names: Sequence[str] = ()) -> pa.Table:
    """Return entries of one spec sorted by partition fields, NULL first; the order of equal ones is kept.

    Args:
        entries: a table with the column ``partition``.
        names: the fields, the most important one first; empty for all. One that the spec lacks is left out.
    """
    partitions = one_array(entries["partition"])
    fields = [field.name for field in partitions.type]
    chosen = [name for name in names or fields if name in fields]
    if not chosen or not entries.num_rows:
        return entries
    keys: dict[str, pa.Array] = {}
    for name in chosen:
        values = _sortable(partitions.field(name))
        keys |= {f"{name} is not null": values.is_valid().cast(pa.int8()), name: values}
    return entries.take(
        pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
    )


def _sortable(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    return values.cast(pa.int8()) if pa.types.is_boolean(kind) else values


def entries_per_manifest(size: int, entries: int, target: int) -> int:
    """Return the number of entries of a new manifest of about a size.

    Args:
        size: the bytes of the present manifests.
        entries: the number of their entries.
        target: the bytes of a new one.
    """
    return max(1, target // max(1, size // max(1, entries)))


def even_pieces(entries: pa.Table, most: int) -> list[pa.Table]:
    """Divide entries into the fewest pieces of at most ``most`` rows, of nearly equal size."""
    count = -(-entries.num_rows // most)
    size = -(-entries.num_rows // max(count, 1))
    return [entries.slice(start, size) for start in range(0, entries.num_rows, max(size, 1))]


def manifests_per_partition(entries: pa.Table, owners: pa.Array) -> float:
    """Return how many manifests a scan of one partition reads, on average over the partitions.

    Args:
        entries: live entries of one spec with the column ``partition``.
        owners: the manifest of each entry, as text or number.
    """
    if not entries.num_rows:
        return 0.0
    (codes,) = partition_codes([entries["partition"]])
    pairs = pa.table({"partition": codes, "owner": owners}).group_by(["partition", "owner"])
    held = pairs.aggregate([]).group_by("partition").aggregate([("owner", "count")])
    return float(pc.mean(held["owner_count"]).as_py())
