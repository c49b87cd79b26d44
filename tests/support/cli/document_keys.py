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
# How the text of a field names an option: `max_files=`, `merge=first-row`.
_OPTION = re.compile(r"`([a-z_]+)=([a-z-]*)`")
_PART = re.compile(r"(plan|result|plan, result): ([\w.]+)")
# Objects with no more keys than this, of which none is an object, are explained in the row of their own key.
_IN_A_ROW = 12
# The rows of no more keys than this are repeated rather than referred to.
_REPEATED = 3
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
            _OPTION.sub(_flag, texts.get(item.name, "")),
            _kinds(kind, item.name),
            str(item.type).startswith(("Sequence[", "list[", "Mapping[")),
            "inlined" in item.metadata,
        )
        for item in fields(kind)  # type: ignore[arg-type]
        if "hidden" not in item.metadata
    ]


def _flag(option: re.Match[str]) -> str:
    return f"`--{option[1].replace('_', '-')} {option[2]}".rstrip() + "`"


def _kinds(kind: Kind, name: str) -> tuple[Kind, ...]:
    owner, text = next(
        (base, found[name])
        for base in kind.__mro__
        if name in (found := inspect.get_annotations(base))
    )
    names = (node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    values = [_value(owner.__module__, one) for one in names]
    found = [one for value in values for one in get_args(value) or [value]]
    return tuple(one for one in found if isinstance(one, type) and _is_facts(one))


def _is_facts(kind: type) -> bool:
    return issubclass(kind, Facts) and kind is not Facts


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

    def table(found: re.Match[str]) -> str:
        heading = _HEADING.findall(manual, 0, found.start())[-1]
        lines = [f"<!-- {found[1]} -->"]
        for part, kind in parts_of(found[1]):
            title = " and ".join(f"`{name}`" for name in part.split(", "))
            lines += [f"| **{title}** | |"] if lines[1:] else [f"| {title} | |", "| --- | --- |"]
            rows = _Rows(explained, heading).inlined((kind,), "")
            lines += [f"| {key} | {text} |" for key, text in rows]
        return "\n".join([*lines, "<!-- end -->"])

    return _TABLES.sub(table, manual)


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
        for key in keys_of(kind):
            yield from self._of_key(key, prefix)

    def inlined(self, kinds: tuple[Kind, ...], prefix: str) -> Iterator[tuple[str, str]]:
        """Yield the rows of classes of which a document has one; names if the manual has explained the class."""
        done: set[str] = set()
        for kind in kinds:
            names = {f"`{prefix}{key.name}`": None for key in _flat(kind)}
            if kind in self.explained and len(names) > _REPEATED:
                reference = self._reference(kind)
                yield ", ".join(names), f"{reference[:1].upper()}{reference[1:]}."
            else:
                yield from (row for row in self.of(kind, prefix) if row[0] not in done)
            done.update(names)

    def _of_key(self, key: Key, prefix: str) -> Iterator[tuple[str, str]]:
        path = f"{prefix}{key.name}"
        if key.inlined:
            yield from self.inlined(key.kinds, prefix)
            return
        # A column contains columns.
        kinds = [kind for kind in key.kinds if key not in keys_of(kind)]
        known = [kind for kind in kinds if kind in self.explained]
        if known:
            names = _listed([one.name for kind in known for one in _flat(kind)])
            yield f"`{path}`", f"{key.text[:-1]}: {names}, {self._reference(known[0])}."
        elif len(kinds) == 1 and _is_small(kinds[0]):
            self.explained[kinds[0]] = self.heading
            texts = map(_explained, _flat(kinds[0]))
            yield f"`{path}`", f"{key.text[:-1]}: {', '.join(texts)}."
        else:
            yield f"`{path}`", key.text
            inner = f"{path}{'[]' * key.several}."
            yield from dict.fromkeys(row for kind in kinds for row in self.of(kind, inner))

    def _reference(self, kind: Kind) -> str:
        heading = self.explained[kind]
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        return "as above" if heading == self.heading else f"as in [{heading}](#{anchor})"


def _flat(kind: Kind) -> list[Key]:
    """Return the keys of facts, with those of the facts in their place."""
    found: list[Key] = []
    for key in keys_of(kind):
        found += [one for inner in key.kinds for one in _flat(inner)] if key.inlined else [key]
    return found


def _is_small(kind: Kind) -> bool:
    keys = _flat(kind)
    return len(keys) <= _IN_A_ROW and not any(key.kinds for key in keys)


def _explained(key: Key) -> str:
    """Return a key and its text as a part of a sentence."""
    text = key.text.removesuffix(".")
    text = text if text[1:2].isupper() else text[:1].lower() + text[1:]
    return f"`{key.name}`" if text == key.name.replace("_", " ") else f"`{key.name}` ({text})"


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rewritten(path.read_text()))
