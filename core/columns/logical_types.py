"""Types of sources that are more than their bytes say."""

from __future__ import annotations

import pyarrow as pa


class LogicalType(pa.ExtensionType):  # type: ignore[misc]
    """The type of a column of a source whose bytes have a meaning that neither Arrow nor Iceberg has.

    Args:
        storage: the bytes' own type.
        meaning: what the file's format calls it.
    """

    def __init__(self, storage: pa.DataType, meaning: str) -> None:
        self.meaning = meaning
        super().__init__(storage, "lake.logical")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.meaning.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> LogicalType:
        return cls(storage, data.decode())

    def __str__(self) -> str:
        return self.meaning
