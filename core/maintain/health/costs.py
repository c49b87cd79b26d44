"""What a reader pays for files, manifests, bytes and deletes, in seconds of its waiting time.

Only differences of costs decide, so a factor of two in all of them changes few grades.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lake.core.base import locations


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The costs of one kind of storage, in seconds.

    Args:
        storage: the kind of storage.
        file: opening a data file or a delete file: its footer and its first column.
        manifest: opening a manifest or a manifest list.
        data_byte: reading and decoding a byte of a data file or a delete file.
        manifest_byte: reading and decoding a byte of a manifest.
        metadata_byte: reading and parsing a byte of the table's metadata file.
        position_row: applying a row of position deletes, or of a deletion vector.
        equality_row: applying a row of equality deletes.
        noticed: less than this is not worth a rewrite.
        runs: the number of past runs that corrected them; 0 for the stated costs.
    """

    storage: str
    file: float
    manifest: float
    data_byte: float
    manifest_byte: float
    metadata_byte: float
    position_row: float
    equality_row: float
    noticed: float
    runs: int = 0

    def planning_seconds(
        self, metadata_bytes: float, manifests: float, manifest_bytes: float
    ) -> float:
        """Return what the metadata file, the manifest list and manifests cost."""
        opened = (1 + manifests) * self.manifest
        return metadata_bytes * self.metadata_byte + opened + manifest_bytes * self.manifest_byte

    def delete_seconds(
        self, files: float, size: float, position_rows: float, equality_rows: float
    ) -> float:
        """Return what delete files of some bytes cost, with their positions and keys."""
        read = files * self.file + size * self.data_byte
        return read + position_rows * self.position_row + equality_rows * self.equality_row


# The number of requests for a file: its footer and its columns.
REQUESTS_PER_FILE = 2
# People notice a tenth of a second.
_NOTICED = 0.1
# Measured with tests/bench/reader_costs.py on one core of a virtual machine with a local disk: Parquet files of ten
# columns with PyArrow, manifests with PyIceberg, metadata with lake, deletes with PyArrow.
LOCAL = Costs(
    storage="local disk",
    file=0.5e-3,
    manifest=1.5e-3,
    data_byte=1 / 150e6,
    manifest_byte=1 / 10e6,
    metadata_byte=1 / 15e6,
    position_row=0.05e-6,
    equality_row=0.2e-6,
    noticed=_NOTICED,
)
# Amazon's "Best practices design patterns: optimizing Amazon S3 performance" gives 100 to 200 ms to the first byte. A
# reader is assumed to have 16 requests open at a time, so that decoding and not the network limits its bytes.
_FIRST_BYTE, AT_ONCE = 0.1, 16
OBJECT_STORE = replace(
    LOCAL,
    storage="object store",
    file=LOCAL.file + REQUESTS_PER_FILE * _FIRST_BYTE / AT_ONCE,
    manifest=LOCAL.manifest + _FIRST_BYTE / AT_ONCE,
)


def costs_of(location: str) -> Costs:
    """Return the costs of a table's location."""
    return LOCAL if locations.parse(location).is_local else OBJECT_STORE
