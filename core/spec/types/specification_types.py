"""Types of the specification that PyIceberg 0.12 lacks or writes as different text.

Table metadata contains a type as text. Source: https://iceberg.apache.org/spec/#primitive-types and
org.apache.iceberg.types.Types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from pydantic import Field, model_serializer
from pyiceberg import types
from pyiceberg.typedef import TableVersion
from pyiceberg.types import PrimitiveType

_GEOMETRY = re.compile(r"geometry\s*(?:\(\s*(?P<crs>[^)]*?)\s*\))?")
_GEOGRAPHY = re.compile(
    r"geography\s*(?:\(\s*(?P<crs>[^,)]*?)\s*(?:,\s*(?P<algorithm>['\"]?\w+['\"]?)\s*)?\))?"
)
_QUOTES = "'\""
_NAME = re.compile(r"\w+")
_KNOWN = frozenset(
    {
        *("boolean", "int", "long", "float", "double", "decimal", "date", "time"),
        *("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
        *("string", "uuid", "fixed", "binary", "unknown", "variant", "geometry", "geography"),
    }
)


class VariantType(PrimitiveType):
    """Semi-structured values. A leaf of a schema, although the specification does not list it as primitive."""

    root: Literal["variant"] = Field(default="variant")

    def minimum_format_version(self) -> TableVersion:
        """Return the first format version that supports the type."""
        return 3


# PyIceberg compares the names of these classes: a subclass must have the same name.
class GeometryType(types.GeometryType):
    """A geometry whose text has no quotes, as Iceberg Java reads and writes it."""

    @model_serializer
    def ser_model(self) -> str:
        """Return the text for table metadata."""
        return str(self)

    def __str__(self) -> str:
        return "geometry" if self.crs == types.DEFAULT_GEOMETRY_CRS else f"geometry({self.crs})"


class GeographyType(types.GeographyType):
    """A geography whose text has no quotes, as Iceberg Java reads and writes it."""

    @model_serializer
    def ser_model(self) -> str:
        """Return the text for table metadata."""
        return str(self)

    def __str__(self) -> str:
        if self.algorithm != types.DEFAULT_GEOGRAPHY_ALGORITHM:
            return f"geography({self.crs}, {self.algorithm})"
        return "geography" if self.crs == types.DEFAULT_GEOGRAPHY_CRS else f"geography({self.crs})"


@cache
def enable_types() -> None:
    """Make PyIceberg's schemas accept these types, in this process; a second call does nothing."""
    original: Callable[[Any, Any], Any] = vars(types)["IcebergType"].handle_primitive_type

    def typed(value: Any, handler: Any) -> Any:
        found = type_from_text(value) if isinstance(value, str) else None
        return original(value, handler) if found is None else found

    # Struct fields look this function up at run time; lists and maps have it compiled in.
    types.IcebergType.handle_primitive_type = staticmethod(typed)  # type: ignore[assignment,method-assign]
    _type_items(types.ListType, "element")
    _type_items(types.MapType, "key", "value")


def _type_items(kind: Any, *names: str) -> None:
    original: Callable[..., None] = kind.__init__

    def typed(self: Any, *arguments: Any, **data: Any) -> None:
        for name in names:
            if isinstance(data.get(name), str):
                data[name] = type_from_text(data[name]) or data[name]
        original(self, *arguments, **data)

    kind.__init__ = typed


def type_from_text(text: str) -> PrimitiveType | None:
    """Return the type that a text names if it is one of the types above; otherwise None."""
    if text == "variant":
        return VariantType()
    if found := _GEOMETRY.fullmatch(text):
        return GeometryType(_unquoted(found["crs"]) or types.DEFAULT_GEOMETRY_CRS)
    if found := _GEOGRAPHY.fullmatch(text):
        crs = _unquoted(found["crs"]) or types.DEFAULT_GEOGRAPHY_CRS
        algorithm = _unquoted(found["algorithm"]) or types.DEFAULT_GEOGRAPHY_ALGORITHM
        return GeographyType(crs, algorithm)  # type: ignore[call-arg] # mypy finds the constructor of a base
    return None


def is_unsupported(text: str) -> bool:
    """Whether a text names a type that the supported versions of the specification do not have."""
    name = _NAME.match(text)
    return name is not None and name[0] not in _KNOWN


def _unquoted(text: str | None) -> str:
    """Return a parameter without the quotes that PyIceberg adds."""
    return (text or "").strip(_QUOTES)
