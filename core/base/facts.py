"""What a command planned or did, as fields with types, and as the part of the JSON document that scripts read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Self, cast

_OMITTED, _INLINED = "omitted", "inlined"


class Facts:
    """The plan or the result of a command.

    A subclass is a dataclass. Its fields are the keys of the JSON document, in their order.
    """

    __slots__ = ()

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """Return facts that are of this class; its defaults if they are not, as after an early end."""
        return facts if isinstance(facts, cls) else cls()

    def document(self) -> dict[str, Any]:
        """Return the keys and values of the JSON document."""
        found = self.values()
        for key, value in found.items():
            if value is not None and type(value) not in SCALARS:
                found[key] = _plain(value)
        return found

    def values(self) -> dict[str, Any]:
        """Return the fields that are keys of the document, with their values as they are."""
        found: dict[str, Any] = {}
        for name, is_marked, is_inlined in _fields_of(cast("Any", type(self))):
            value = getattr(self, name)
            if value is None and is_marked:
                continue
            if is_inlined:
                found |= value.values()
            else:
                found[name] = value
        return found


@cache
def _fields_of(kind: Any) -> list[tuple[str, bool, bool]]:
    """Return the names of the fields of facts, whether each is omitted without a value, and whether it is inlined."""
    items = fields(kind)
    return [(item.name, bool(item.metadata), _INLINED in item.metadata) for item in items]


class NoFacts(Facts):
    """The plan of a command that has none, and the result of one that did nothing."""

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        """Return an empty dictionary."""
        return {}


def omitted() -> Any:
    """Return a field that is a key of the document only if it has a value; its default is None."""
    return field(default=None, metadata={_OMITTED: True})


def inlined() -> Any:
    """Return a field for other facts, whose keys are in its place in the document; its default is None."""
    return field(default=None, metadata={_INLINED: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts(Facts):
    """The run that holds a lock, as far as it is known."""

    command: str | None = omitted()
    host: str | None = omitted()
    pid: int | None = omitted()
    operation_id: str | None = omitted()
    since: str | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRunFacts(Facts):
    """The committed run of the same id; what expired with its snapshot is None."""

    run_id: str | None = None
    snapshot_id: str | None = None
    committed_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts(Facts):
    """Why one of several tables, namespaces or catalogs could not be read or loaded."""

    kind: str
    message: str
    hint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRunFacts(Facts):
    """What the command did to one table; the name is that of a namespace if its tables cannot be listed."""

    table: str
    status: str
    seconds: float = 0.0
    operation_id: str | None = None
    base_snapshot_id: str | None = None
    snapshot_ids: list[str] = field(default_factory=list)
    plan: Facts = field(default_factory=NoFacts)
    result: Facts = field(default_factory=NoFacts)
    warnings: list[str] = field(default_factory=list)
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EachTableResult(Facts):
    """What the command did to each table, in the order of their names."""

    tables: list[TableRunFacts] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AlreadyRunning(Facts):
    """The result of a command that did nothing because another run holds the lock."""

    running: RunFacts


# What most values are, of which ABCs need not be asked.
SCALARS = frozenset({str, int, bool})


def _plain(value: Any) -> Any:
    """Return facts, or a list or mapping of them, as their documents. Rows of data are not looked through."""
    if value is None or type(value) in SCALARS:
        return value
    if isinstance(value, Facts):
        return value.document()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and any(isinstance(item, Facts) for item in value[:1]):
        return [item.document() for item in value]
    return value
