"""Types as users write them, without field ids."""

from __future__ import annotations

from pyiceberg.types import IcebergType, ListType, MapType, StructType


def type_text(kind: IcebergType) -> str:
    """Return a type as text: ``struct<name: string, sizes: list<int>>``."""
    if isinstance(kind, StructType):
        fields = ", ".join(f"{item.name}: {type_text(item.field_type)}" for item in kind.fields)
        return f"struct<{fields}>"
    if isinstance(kind, ListType):
        return f"list<{type_text(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.value_type)}>"
    return str(kind)
