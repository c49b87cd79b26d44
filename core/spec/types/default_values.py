"""Default values in table metadata that PyIceberg 0.12 cannot read: of nanosecond timestamps and of structs.

In memory, the default of a nanosecond timestamp is the number of nanoseconds since 1970. The only default of a
struct, an empty JSON object (its fields have their own defaults), is `EMPTY_STRUCT`.
Source: https://iceberg.apache.org/spec/#default-values and #json-single-value-serialization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.conversions import from_json, to_json
from pyiceberg.types import IcebergType, StructType, TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.datetime import timestamp_to_nanos, timestamptz_to_nanos

# PyIceberg's models accept texts and numbers as defaults, but not objects.
EMPTY_STRUCT = "{}"
_LARGEST = 2**63 - 1


def enable_defaults() -> None:
    """Let PyIceberg's models read and write these defaults."""
    # PyIceberg's annotations declare that these functions return nothing.
    read: Any = from_json
    write: Any = to_json
    read.register(TimestampNanoType, lambda _, value: _nanoseconds(value, timestamp_to_nanos))
    read.register(TimestamptzNanoType, lambda _, value: _nanoseconds(value, timestamptz_to_nanos))
    write.register(TimestampNanoType, nanoseconds_text)
    write.register(TimestamptzNanoType, nanoseconds_text)
    read.register(StructType, lambda _, value: _empty(value))
    write.register(StructType, lambda _, __: {})


def _nanoseconds(value: object, parse: Callable[[str], int]) -> int:
    found = value if isinstance(value, int) else parse(str(value))
    if not -_LARGEST <= found <= _LARGEST:
        raise ValueError(f"{value!r} is out of range for nanoseconds since 1970")
    return found


def nanoseconds_text(kind: IcebergType, value: int) -> str:
    """Return nanoseconds since 1970 as a time of ISO 8601, with a zone if the type has one."""
    text: str = pa.scalar(value, pa.timestamp("ns")).cast(pa.string()).as_py()
    zone = "+00:00" if isinstance(kind, TimestamptzNanoType) else ""
    return f"{text.replace(' ', 'T')}{zone}"


def _empty(value: object) -> str:
    if value not in ({}, EMPTY_STRUCT):
        raise ValueError(f"the default of a struct must be empty, not {value!r}")
    return EMPTY_STRUCT
