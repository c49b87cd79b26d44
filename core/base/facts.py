"""What a command planned or did, as fields with types, and as the part of the JSON document that scripts read."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import pairwise
from operator import attrgetter
from typing import Any, Self, cast

# The name of a field, its key, whether it is omitted without a value, and whether it is inlined.
_Member = tuple[str, str, bool, bool]
_OMITTED, _INLINED, _HIDDEN = "omitted", "inlined", "hidden"
# What keys mean that many commands have; a field of one of these names needs no text of its own.
_SHARED: Mapping[str, str] = {
    "catalog": "The name of the catalog.",
    "checkpoint_id": "The id of the checkpoint.",
    "committed_at": "The time of the commit.",
    "engine": "What read the manifests: `inline` or `spark`.",
    "error": "Why it failed; null if it did not.",
    "format_version": "The version of Iceberg's table format.",
    "job_id": "The id of the Flink job, or of the staged run.",
    "location": "The location of the table.",
    "max_ref_age_ms": "The age at which it expires; null without one.",
    "max_snapshot_age_ms": "The age at which its snapshots expire; null without one.",
    "metadata_location": "The location of the metadata file.",
    "min_snapshots_to_keep": "The number of its snapshots that do not expire; null without one.",
    "namespace": "The namespace.",
    "operation_id": "The id of the operation, as in snapshots and names of files; null without one.",
    "partition": 'The partition, as its folder is named: `day=2026-01-31`, or `""` without partitions.',
    "rows_at_most": "The most rows that there can be.",
    "run_id": "The run id.",
    "seconds": "The seconds that it took.",
    "snapshot_id": "The id of the snapshot.",
    "snapshot_ids": "The snapshots that were committed.",
    "spec_id": "The id of the partition spec.",
    "table": "The name of the table.",
    "table_uuid": "The UUID of the table.",
}


class Facts:
    """The plan or the result of a command.

    A subclass is a dataclass. Its fields are the keys of the JSON document, in their order; a field whose key is a
    word of Python has a `_` behind it. The text below a field is its row in the manual, and is what `help` shows. It
    names options as `max_files=` and `merge=first-row`; the manual shows their flags.
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Let `help` find the texts of the fields, which are read when it asks for them."""
        names = cls.__dict__.get("__slots__")
        if names:
            type.__setattr__(cls, "__slots__", _Texts(cls, names))

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
        members, keys, values = _fields_of(cast("Any", type(self)))
        if values is not None:
            return dict(zip(keys, values(self), strict=True))
        for name, key, is_marked, is_inlined in members:
            value = getattr(self, name)
            if value is None and is_marked:
                continue
            if is_inlined:
                found |= value.values()
            else:
                found[key] = value
        return found


@cache
def _fields_of(kind: Any) -> tuple[list[_Member], list[str], Callable[[Any], Any] | None]:
    """Return the fields that are keys, the keys, and what returns the values of facts if they always have all."""
    found = [
        (item.name, item.name.rstrip("_"), bool(item.metadata), _INLINED in item.metadata)
        for item in fields(kind)
        if _HIDDEN not in item.metadata
    ]
    names, keys, marks, _ = zip(*found, strict=True) if found else ((), (), (), ())
    # Of one field, it would return the value alone.
    has_all = len(found) > 1 and not any(marks)
    return found, [*keys], attrgetter(*names) if has_all else None


class _Texts(dict[str, str]):
    """The names of a class's fields; their texts are read from its source when they are needed."""

    def __init__(self, kind: Any, names: tuple[str, ...]) -> None:
        super().__init__(dict.fromkeys(names, ""))
        self._kind = kind

    def __getitem__(self, name: str) -> str:
        return key_texts(self._kind).get(name, "")


@cache
def key_texts(kind: Any) -> Mapping[str, str]:
    """Return what the fields of facts mean: for each the text below it, or that of keys which many commands have.

    Raises:
        OSError: the source is not installed.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[: kind.__mro__.index(Facts)]):
        for item, below in pairwise([*_bodies(base.__module__)[base.__name__], ast.Pass()]):
            match item, below:
                case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found[name] = text
                case ast.AnnAssign(ast.Name(name)), _ if name in _SHARED:
                    found.setdefault(name, _SHARED[name])
    return found


@cache
def _bodies(module: str) -> Mapping[str, list[ast.stmt]]:
    """Return the bodies of a module's classes by their names."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {item.name: item.body for item in tree.body if isinstance(item, ast.ClassDef)}


class NoFacts(Facts):
    """The plan of a command that has none, and the result of one that did nothing."""

    __slots__ = ()

    def values(self) -> dict[str, Any]:
        """Return an empty dictionary."""
        return {}


def omitted() -> Any:
    """Return a field that is a key of the document only if it has a value; its default is None."""
    return field(default=None, metadata={_OMITTED: True})


def hidden() -> Any:
    """Return a field that is not a key of the document; its default is None."""
    return field(default=None, metadata={_HIDDEN: True})


def inlined() -> Any:
    """Return a field for other facts, whose keys are in its place in the document; its default is None."""
    return field(default=None, metadata={_INLINED: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts(Facts):
    """The run that holds a lock, as far as it is known."""

    command: str | None = omitted()
    """The command that holds the lock."""
    host: str | None = omitted()
    """The machine on which it runs."""
    pid: int | None = omitted()
    """The id of its process."""
    operation_id: str | None = omitted()
    """Its operation."""
    since: str | None = omitted()
    """The time since which it holds the lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRunFacts(Facts):
    """The committed run of the same id."""

    run_id: str | None = None
    """The run id."""
    snapshot_id: str | None = None
    """The snapshot of that run; null, as its time, if it has expired."""
    committed_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFacts(Facts):
    """Why one of several tables, namespaces or catalogs could not be read or loaded."""

    kind: str
    """The class of the error, which scripts can compare."""
    message: str
    """What went wrong."""
    hint: str | None
    """What to do; null without an advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRunFacts(Facts):
    """What the command did to one table."""

    table: str
    """The table; a namespace if its tables cannot be listed."""
    status: str
    """How the command ended for this table."""
    seconds: float = 0.0
    operation_id: str | None = None
    base_snapshot_id: str | None = None
    """The snapshot that the work began with."""
    snapshot_ids: list[str] = field(default_factory=list)
    plan: Facts = field(default_factory=NoFacts)
    """What there was to do, with the keys of the command."""
    result: Facts = field(default_factory=NoFacts)
    """What was done, with the keys of the command."""
    warnings: list[str] = field(default_factory=list)
    """What went well, but needs attention."""
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EachTableResult(Facts):
    """What the command did to each table, in the order of their names."""

    tables: list[TableRunFacts] = field(default_factory=list)
    """The tables, in the order of their names."""


@dataclass(frozen=True, slots=True)
class AlreadyRunning(Facts):
    """The result of a command that did nothing because another run holds the lock."""

    running: RunFacts
    """The run that holds the lock, as far as it is known."""


# What most values are, of which ABCs need not be asked.
SCALARS = frozenset({str, int, bool})
_LISTS = frozenset({list, tuple})


def _plain(value: Any) -> Any:
    """Return facts, or a list or mapping of them, as their documents. Rows of data are not looked through."""
    if value is None or type(value) in SCALARS:
        return value
    if isinstance(value, Facts):
        return value.document()
    if type(value) in _LISTS:
        is_facts = any(isinstance(item, Facts) for item in value[:1])
        return [item.document() for item in value] if is_facts else value
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value
