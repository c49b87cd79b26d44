"""Puffin files: concatenated blobs, and a footer with their offsets and types.

Format: https://iceberg.apache.org/puffin-spec/.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table.statistics import BlobMetadata

from lake.core.data.rows.writer import TransactionalWriter
from lake.core.io.objects.new_object import abandon
from lake.core.io.storage.storage import Storage

DELETION_VECTOR = "deletion-vector-v1"
MAGIC = b"PFA1"
_INT = struct.Struct("<i")
_FLAGS = bytes(4)


@dataclass
class PuffinWriter(TransactionalWriter):
    """Writes one Puffin file. Use it as a context manager.

    Args:
        storage: the storage for the file.
        path: a name that no file has yet.
    """

    storage: Storage
    path: str
    size: int = 0
    footer_size: int = 0
    _blobs: list[Mapping[str, Any]] = field(default_factory=list)
    _sink: Any = None
    # Whether the file may exist: an error of the storage may arrive after it was created.
    _may_exist: bool = False

    def add_vector(self, blob: bytes, *, data_file: str, positions: int) -> tuple[int, int]:
        """Write a deletion vector's blob; return its offset and size in bytes."""
        properties = {"referenced-data-file": data_file, "cardinality": str(positions)}
        # The position column is the subject of the blob. The snapshot is that of its commit.
        return self.add_blob(
            blob,
            BlobMetadata(
                type=DELETION_VECTOR,
                snapshot_id=-1,
                sequence_number=-1,
                fields=[2147483645],
                properties=properties,
            ),
        )

    def add_blob(self, blob: bytes, metadata: BlobMetadata) -> tuple[int, int]:
        """Write a blob; return its offset and size in bytes."""
        if self._sink is None:
            self._may_exist = True
            self._sink = self.storage.open_output(self.path)
            self._write(MAGIC)
        offset = self.size
        self._write(blob)
        self._blobs.append(
            {
                "type": metadata.type,
                "fields": metadata.fields,
                "snapshot-id": metadata.snapshot_id,
                "sequence-number": metadata.sequence_number,
                "offset": offset,
                "length": len(blob),
                "properties": metadata.properties or {},
            }
        )
        return offset, len(blob)

    def close(self) -> int:
        """Write the footer, make the file durable and return its size in bytes; 0 if nothing was added."""
        self.closed = True
        if self._sink is None:
            return 0
        footer = {"blobs": self._blobs, "properties": {"created-by": "lake"}}
        payload = json.dumps(footer, separators=(",", ":")).encode()
        ending = MAGIC + payload + _INT.pack(len(payload)) + _FLAGS + MAGIC
        self.footer_size = len(ending)
        self._write(ending)
        self._sink.close()
        self.storage.persist(self.path)
        return self.size

    def abort(self) -> None:
        """Delete the file."""
        if self._sink is not None:
            abandon(self._sink)
        if self._may_exist:
            self.storage.delete([self.path])

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self.size += len(data)
