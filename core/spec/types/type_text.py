"""Types as users write them: by Iceberg's names, without field ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types
from pyiceberg.types import IcebergType, ListType, MapType, StructType

_NAMES: Sequence[tuple[Callable[[pa.DataType], bool], str]] = (
    (types.is_boolean, "boolean"),
    (types.is_int64, "long"),
    (types.is_signed_integer, "int"),
    (types.is_float64, "double"),
    (types.is_float32, "float"),
    (types.is_float16, "16-bit float"),
    (types.is_date, "date"),
    (types.is_duration, "duration"),
    (types.is_interval, "interval"),
    (types.is_null, "unknown"),
    (types.is_union, "union"),
    (lambda kind: types.is_large_string(kind) or types.is_string_view(kind), "string"),
    (lambda kind: types.is_large_binary(kind) or types.is_binary_view(kind), "binary"),
)
_OWN = frozenset({"lake.logical", "lake.int96"})
_EXTENSIONS = {"arrow.uuid": "uuid", "arrow.bool8": "boolean"}
# A name after a dot, or with other letters around it, is that of a column.
_ARROW_NAME = re.compile(
    r"(?<![\w.])(?:(?P<time>timestamp)\[(?:s|ms|us|(?P<nanos>ns))(?P<zone>, tz=[^\]]*)?\]"
    r"|(?P<decimal>decimal)(?:32|64|128|256)|(?P<unit>date|time)(?:32|64)\[\w+\]"
    r"|dictionary<values=(?P<values>\w+), [^>]*>"
    r"|(?P<plain>halffloat|bool|u?int(?:8|16|32|64)|large_string|large_binary))"
    r"(?!\w)"
)


def type_text(kind: IcebergType | pa.DataType) -> str:
    """Return a type of Iceberg or Arrow as text: ``struct<name: string, sizes: list<int>>``.

    A type of Arrow that readers of Iceberg do not distinguish from one of Iceberg has its name. Others have a name in
    the same style.
    """
    if isinstance(kind, pa.DataType):
        return _arrow_text(kind)
    if isinstance(kind, StructType):
        return _struct((item.name, item.field_type) for item in kind.fields)
    if isinstance(kind, ListType):
        return f"list<{type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.value_type)}>"
    return str(kind)


def in_iceberg_words(error: Exception) -> str:
    """Return the text of an error of Arrow with Iceberg's names of types."""
    return _ARROW_NAME.sub(_renamed, str(error))


def _struct(fields: Any) -> str:
    return f"struct<{', '.join(f'{name}: {type_text(kind)}' for name, kind in fields)}>"


def _arrow_text(kind: pa.DataType) -> str:
    if isinstance(kind, pa.BaseExtensionType):
        # A type that lake defines has the name that users know.
        own = str(kind) if kind.extension_name in _OWN else None
        return own or _EXTENSIONS.get(kind.extension_name) or type_text(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return type_text(kind.value_type)
    if types.is_struct(kind):
        return _struct((item.name, item.type) for item in kind)
    if types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if types.is_nested(kind) and not types.is_union(kind):
        return f"list<{type_text(kind.value_type)}>"
    if types.is_timestamp(kind):
        return _timestamp(zoned=kind.tz is not None, nanos=kind.unit == "ns")
    if types.is_time(kind):
        return "time" if kind.unit == "us" else f"time_{kind.unit}"
    if types.is_unsigned_integer(kind):
        return f"unsigned {kind.bit_width}-bit integer"
    if types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    return next((name for test, name in _NAMES if test(kind)), str(kind))


def _timestamp(*, zoned: bool, nanos: bool) -> str:
    return f"timestamp{'tz' if zoned else ''}{'_ns' if nanos else ''}"


def _renamed(found: re.Match[str]) -> str:
    if found["time"]:
        return _timestamp(zoned=found["zone"] is not None, nanos=found["nanos"] is not None)
    if found["values"]:
        return _ARROW_NAME.sub(_renamed, found["values"])
    if found["plain"]:
        return type_text(pa.type_for_alias(found["plain"]))
    return found["decimal"] or found["unit"]
