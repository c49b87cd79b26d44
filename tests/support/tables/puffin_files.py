"""Puffin files, read by their specification."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


def blobs_in(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the metadata and the bytes of each blob.

    Format: https://iceberg.apache.org/puffin-spec/: the magic bytes, the blobs, and at the end the magic bytes, the
    footer, its length as 4 bytes, 4 bytes of flags, and the magic bytes.
    """
    data = path.read_bytes()
    assert data[:4] == data[-4:] == b"PFA1"
    length = int.from_bytes(data[-12:-8], "little")
    for blob in json.loads(data[-12 - length : -12])["blobs"]:
        stored = data[blob["offset"] : blob["offset"] + blob["length"]]
        codec = blob.get("compression-codec")
        yield (
            blob,
            pa.input_stream(pa.py_buffer(stored), compression=codec).read() if codec else stored,
        )
