"""Measure what a reader pays on the local disk: the constants of `core/maintain/health/costs.py`.

    python tests/bench/reader_costs.py [--files 500] [--rounds 3] [--folder DIR]

Small and large Parquet files of ten columns are read by PyArrow on one thread, manifests by PyIceberg, metadata by
lake; positions are a mask, and equality deletes an anti-join of PyArrow. The files are in the system's cache.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from shared import parser_of  # noqa: E402
from support.tables.iceberg_tables import make_table, named_rows, pyiceberg_table  # noqa: E402

from lake.core.table.metadata.files import parse  # noqa: E402

_ROWS, _DELETED, _MANIFESTS, _SNAPSHOTS = 2_000_000, 500_000, 60, 20_000
_MEGABYTE = 1e6


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _table(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    numbers = {f"n{place}": random.integers(0, 1 << 40, rows) for place in range(8)}
    return pa.table(
        {**numbers, **{f"t{place}": [f"v{i % 97}" for i in range(rows)] for place in (1, 2)}}
    )


def _read(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read(use_threads=False)


def data_files(folder: Path, files: int) -> dict[str, float]:
    """Measure small files, and the bytes of a large one."""
    small = [folder / f"{number}.parquet" for number in range(files)]
    for path in small:
        pq.write_table(_table(50), path)
    large = folder / "large.parquet"
    pq.write_table(_table(_ROWS), large, compression="zstd")
    each = _seconds(lambda: [_read(path) for path in small]) / files
    speed = large.stat().st_size / _seconds(lambda: _read(large)) / _MEGABYTE
    return {"file, ms": each * 1e3, "data, MB/s": speed}


def metadata(folder: Path) -> dict[str, float]:
    """Measure manifests, and a metadata file with many snapshots."""
    warehouse = folder / "warehouse"
    if not warehouse.exists():
        make_table(warehouse, commit__manifest_merge__enabled="false")
        for number in range(_MANIFESTS):
            pyiceberg_table(warehouse).append(named_rows(number))
    table = pyiceberg_table(warehouse)
    manifests = table.current_snapshot().manifests(table.io)
    each = _seconds(lambda: [item.fetch_manifest_entry(table.io) for item in manifests])
    document = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    head = document["snapshots"][-1]
    document["snapshots"] += [{**head, "snapshot-id": number} for number in range(1, _SNAPSHOTS)]
    text = json.dumps(document).encode()
    speed = len(text) / _seconds(lambda: parse(text, "v1.metadata.json")) / _MEGABYTE
    return {"manifest, ms": each / len(manifests) * 1e3, "metadata, MB/s": speed}


def deletes() -> dict[str, float]:
    """Measure rows of deletes."""
    keys = np.random.default_rng(1).integers(0, 1 << 40, _ROWS)
    rows, deleted = pa.table({"key": keys}), pa.table({"key": keys[:_DELETED]})

    def by_position() -> pa.Table:
        mask = np.ones(_ROWS, np.bool_)
        mask[np.arange(0, _ROWS, _ROWS // _DELETED)] = False
        return rows.filter(pa.array(mask))

    by_key = _seconds(lambda: rows.join(deleted, "key", join_type="left anti", use_threads=False))
    return {
        "position, µs": _seconds(by_position) / _DELETED * 1e6,
        "equality, µs": by_key / _DELETED * 1e6,
    }


def main() -> None:
    """Measure several times."""
    chosen = parser_of(__doc__, java=False, files=500).parse_args()
    for _ in range(chosen.rounds):
        found = {**data_files(chosen.folder, chosen.files), **metadata(chosen.folder), **deletes()}
        print(", ".join(f"{name}: {value:.2f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
