"""Types of source columns with a meaning beyond their Arrow type."""

from __future__ import annotations

import pyarrow as pa


class LogicalType(pa.ExtensionType):  # type: ignore[misc]
    """The type of a source column whose meaning exists in neither Arrow nor Iceberg.

    Args:
        storage: the Arrow type of the values.
        meaning: the name of the type in the file's format.
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
