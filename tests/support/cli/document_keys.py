"""The rows of JSON keys in the manual: what the fields of plans and results say about themselves.

The line ``<!-- plan: MODULE.CLASS; result: MODULE.CLASS -->`` begins the tables of such classes, and ``<!-- end -->``
ends them. A class that the manual has explained before is named there with a link.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from lake.core.base.facts import Facts, key_texts

_TABLES = re.compile(r"^<!-- ((?:plan|result)[^>]*) -->\n.*?^<!-- end -->$", re.M | re.S)
_HEADING = re.compile(r"^#{2,} (.*)$", re.M)
_PART = re.compile(r"(plan|result|plan, result): ([\w.]+)")
# Objects with no more keys than this, of which none is an object, are explained in the row of their own key.
_FEW = 5
Kind = type[Facts]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a document, and the facts in its place; their keys are in those of `inlined` facts themselves."""

    name: str
    text: str
    kinds: tuple[Kind, ...]
    several: bool
    inlined: bool


@cache
def keys_of(kind: Kind) -> list[Key]:
    """Return the keys of facts, in their order."""
    texts = key_texts(kind)
    return [
        Key(
            item.name.rstrip("_"),
            texts.get(item.name, ""),
            _kinds(kind, item.name),
            str(item.type).startswith(("Sequence[", "list[", "Mapping[")),
            "inlined" in item.metadata,
        )
        for item in fields(kind)  # type: ignore[arg-type]
        if "hidden" not in item.metadata
    ]


def _kinds(kind: Kind, name: str) -> tuple[Kind, ...]:
    owner = next(base for base in kind.__mro__ if name in base.__dict__.get("__annotations__", {}))
    names = ast.walk(ast.parse(owner.__annotations__[name]))
    values = [_value(owner.__module__, node.id) for node in names if isinstance(node, ast.Name)]
    found = [one for value in values for one in get_args(value) or [value]]
    return tuple(
        one
        for one in found
        if isinstance(one, type) and issubclass(one, Facts) and one is not Facts
    )


def _value(module: str, name: str) -> Any:
    """Return what a name of a module is, also one that the module imports for its types only."""
    found = getattr(sys.modules[module], name, None)
    origin = _imports(module).get(name)
    return getattr(import_module(origin), name) if found is None and origin else found


@cache
def _imports(module: str) -> Mapping[str, str]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        alias.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("lake.")
        for alias in node.names
    }


def parts_of(marker: str) -> list[tuple[str, Kind]]:
    """Return the parts of the document that a marker names, each with its class."""
    found = []
    for part, path in _PART.findall(marker):
        module, _, name = path.rpartition(".")
        found.append((part, getattr(import_module(f"lake.{module}"), name)))
    return found


def kinds_in(text: str) -> Iterator[tuple[str, Kind]]:
    """Yield the parts and the classes of all markers in a text of the manual."""
    for found in _TABLES.finditer(text):
        yield from parts_of(found[1])


def rewritten(manual: str) -> str:
    """Return the manual with the rows that the fields have now."""
    explained: dict[Kind, str] = {}

    def tables(found: re.Match[str]) -> str:
        heading = _HEADING.findall(manual, 0, found.start())[-1]
        blocks = []
        for part, kind in parts_of(found[1]):
            title = " and ".join(f"`{name}`" for name in part.split(", "))
            rows = [f"| {key} | {text} |" for key, text in _Rows(explained, heading).of(kind, "")]
            blocks.append("\n".join([f"| {title} | |", "| --- | --- |", *rows]))
        return "\n\n".join([f"<!-- {found[1]} -->", *blocks, "<!-- end -->"])

    return _TABLES.sub(tables, manual)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows below one heading of the manual.

    Args:
        explained: the headings below which classes are explained.
        heading: the heading of these rows.
    """

    explained: dict[Kind, str]
    heading: str

    def of(self, kind: Kind, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield the rows of a class: its keys, and what they mean."""
        self.explained.setdefault(kind, self.heading)
        found = dict.fromkeys(row for key in keys_of(kind) for row in self._of_key(key, prefix))
        yield from found

    def _of_key(self, key: Key, prefix: str) -> Iterator[tuple[str, str]]:
        path = f"{prefix}{key.name}"
        if key.inlined:
            for kind in key.kinds:
                yield from self._inlined(kind, prefix)
            return
        # A column contains columns.
        kinds = [kind for kind in key.kinds if key not in keys_of(kind)]
        known = [kind for kind in kinds if kind in self.explained]
        if known:
            names = _listed([one.name for kind in known for one in _flat(kind)])
            yield f"`{path}`", f"{key.text[:-1]}: {names}, {self._reference(known[0])}."
        elif len(kinds) == 1 and _is_small(kinds[0]):
            self.explained[kinds[0]] = self.heading
            inner = [f"`{one.name}` ({_phrase(one.text)})" for one in _flat(kinds[0])]
            yield f"`{path}`", f"{key.text[:-1]}: {', '.join(inner)}."
        else:
            yield f"`{path}`", key.text
            for kind in kinds:
                yield from self.of(kind, f"{path}{'[]' * key.several}.")

    def _inlined(self, kind: Kind, prefix: str) -> Iterator[tuple[str, str]]:
        names = [one.name for one in _flat(kind)]
        if kind not in self.explained or len(names) <= _FEW:
            yield from self.of(kind, prefix)
        else:
            yield (
                ", ".join(f"`{prefix}{name}`" for name in names),
                f"{self._reference(kind).capitalize()}.",
            )

    def _reference(self, kind: Kind) -> str:
        heading = self.explained[kind]
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        return "as above" if heading == self.heading else f"as in [{heading}](#{anchor})"


def _flat(kind: Kind) -> list[Key]:
    found = [keys_of(kind) if False else key for key in keys_of(kind)]
    return [
        one
        for key in found
        for one in ([k for kind in key.kinds for k in _flat(kind)] if key.inlined else [key])
    ]


def _is_small(kind: Kind) -> bool:
    keys = _flat(kind)
    return len(keys) <= _FEW and not any(key.kinds for key in keys)


def _phrase(text: str) -> str:
    """Return a text as a part of a sentence."""
    first = text if text[1:2].isupper() else text[:1].lower() + text[1:]
    return first.removesuffix(".")


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text()))
