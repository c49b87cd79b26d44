"""Dataclasses as JSON-ready values and back: what tasks receive and report.

The type of a field says how its value travels: scalars as they are, bytes as base64 text, sequences and tuples as
lists, and keys of mappings as text. A type with `to_plain` and `from_plain` converts itself; for a type of a library,
`Annotated` adds a `Codec`. A field that equals its default is left out.
"""

from __future__ import annotations

import base64
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple, Self, Union, get_args, get_origin, get_type_hints

_SCALARS = (str, int, float, bool, Any)
_NO_DEFAULT = object()


class Codec(NamedTuple):
    """How a value becomes JSON-ready values, and how it is rebuilt from them."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def base64_text(value: bytes) -> str:
    """Return bytes as base64 text: in tasks, in JSON, and as scans write them and `ingest` reads them."""
    return base64.b64encode(value).decode()


_BYTES = Codec(base64_text, base64.b64decode)


class PlainData:
    """A base of dataclasses that travel as JSON."""

    __slots__ = ()

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values by field; a field that equals its default is left out."""
        plain, kind = {}, _as_any(type(self))
        for name, default, codec in _fields(kind):
            value = getattr(self, name)
            if value is not default and (type(value) is not type(default) or value != default):
                plain[name] = value if codec is None else codec.encode(value)
        return plain

    @classmethod
    def field_names(cls) -> frozenset[str]:
        """Return the names of the fields, which are the keys of `to_plain`'s values."""
        return frozenset(name for name, _, _ in _fields(_as_any(cls)))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild from `to_plain`'s values."""
        values = {
            name: plain[name] if codec is None else codec.decode(plain[name])
            for name, _, codec in _fields(_as_any(cls))
            if name in plain
        }
        return cls(**values)


def _as_any(kind: Any) -> Any:
    """Return a class as mypy takes it for hashable."""
    return kind


@cache
def _fields(kind: Any) -> list[tuple[str, Any, Codec | None]]:
    """Return each field's name, default and codec."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        (item.name, _default(item), _codec(hints[item.name])) for item in dataclasses.fields(kind)
    ]


def _default(item: dataclasses.Field[Any]) -> Any:
    if item.default_factory is not dataclasses.MISSING:
        return item.default_factory()
    return _NO_DEFAULT if item.default is dataclasses.MISSING else item.default


def _codec(hint: Any) -> Codec | None:
    """Return how values of a type travel; None for as they are.

    Raises:
        TypeError: they cannot travel.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return None
    if hint is bytes:
        return _BYTES
    if origin is Annotated:
        # Others that read the annotations may have added something else.
        codecs = (item for item in arguments if isinstance(item, Codec))
        return next(codecs, None) or _codec(arguments[0])
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    if origin in (list, tuple, Sequence):
        return _many(origin, _codec(arguments[0]))
    if origin in (dict, Mapping):
        return _mapping(arguments[0], _codec(arguments[1]))
    if hasattr(hint, "to_plain") and hasattr(hint, "from_plain"):
        return Codec(lambda value: value.to_plain(), hint.from_plain)
    raise TypeError(f"values of {hint} cannot travel as JSON")


def _optional(arguments: Sequence[Any]) -> Codec | None:
    (hint,) = (item for item in arguments if item is not types.NoneType)
    codec = _codec(hint)
    if codec is None:
        return None
    return Codec(
        lambda value: None if value is None else codec.encode(value),
        lambda plain: None if plain is None else codec.decode(plain),
    )


def _many(origin: Any, codec: Codec | None) -> Codec:
    make = tuple if origin is tuple else list
    if codec is None:
        return Codec(list, make)
    return Codec(
        lambda values: [codec.encode(value) for value in values],
        lambda plain: make(codec.decode(value) for value in plain),
    )


def _mapping(key: Any, codec: Codec | None) -> Codec:
    encode, decode = codec or Codec(lambda value: value, lambda plain: plain)
    return Codec(
        lambda values: {str(name): encode(value) for name, value in values.items()},
        lambda plain: {key(name): decode(value) for name, value in plain.items()},
    )
