"""Each key of the JSON output is explained once, at its field: there the manual and `help` have it from."""

from __future__ import annotations

import json
import pydoc
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.cli.document_keys import Kind, keys_of, kinds_in, rewritten

from lake.cli.app import VERBS
from lake.cli.manual import manual_sections
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import InterruptedResult
from lake.core.load.continuous.facts import TopicGaps
from lake.core.maintain.compaction.facts import CompactionResult
from lake.core.maintain.rounds.candidates import Base
from lake.core.maintain.rounds.plan_file import PlannedAction
from lake.core.read.continuous.facts import FollowFacts

ROOT = Path(__file__).parent.parent
MANUAL = (ROOT / "commands/README.md").read_text()
# Facts that no table of the manual explains: a plan file's, parts of errors, and those with the keys of others.
ELSEWHERE = {PlannedAction, Base, NoFacts, InterruptedResult, TopicGaps, FollowFacts}
_FACTS = re.compile(r"^class \w+\((?:\w*Facts|_Counts)\):", re.M)


def every_kind() -> list[Kind]:
    """Return all classes of facts that are dataclasses."""
    for folder in ("commands", "core"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if _FACTS.search(path.read_text()):
                import_module("lake." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    return [kind for kind in _below(Facts) if kind.__module__.startswith("lake.")]


def _below(kind: Kind) -> Iterator[Kind]:
    for one in kind.__subclasses__():
        # `slots=True` makes another class; the first one may still be there.
        if "__dataclass_fields__" in one.__dict__ and "__slots__" in one.__dict__:
            yield one
        yield from _below(one)


def _within(kind: Kind, found: set[Kind]) -> set[Kind]:
    """Add a class and those of its keys to what was found."""
    if kind not in found:
        found.add(kind)
        for key in keys_of(kind):
            for inner in key.kinds:
                _within(inner, found)
    return found


def section(verb: str) -> str:
    found = re.search(rf"^## `lake {verb}`$.*?(?=^## )", MANUAL, re.M | re.S)
    assert found is not None, verb
    return found[0]


def unknown(value: Any, kinds: list[Kind], path: str) -> Iterator[str]:
    """Yield the keys of a part of a document that none of the classes has."""
    known: dict[str, tuple[tuple[Kind, ...], bool]] = {}
    flat = [key for kind in kinds for key in keys_of(kind)]
    while flat:
        key = flat.pop()
        if key.inlined:
            flat += [one for kind in key.kinds for one in keys_of(kind)]
        else:
            kinds_so_far = known[key.name][0] if key.name in known else ()
            known[key.name] = (*kinds_so_far, *key.kinds), key.several
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name not in known:
            yield f"{path}.{name}"
            continue
        below, several = known[name]
        items = [inner]
        if several and isinstance(inner, list):
            items = inner
        elif several and isinstance(inner, dict):
            items = list(inner.values())
        for item in items if below else ():
            yield from unknown(item, list(below), f"{path}.{name}")


def test_the_manual_has_the_keys_that_the_fields_explain() -> None:
    hint = "cd tests && python -m support.cli.document_keys ../commands/README.md"

    assert rewritten(MANUAL) == MANUAL, f"writes the rows: {hint}"


def test_each_field_explains_its_key_in_a_sentence() -> None:
    texts = {
        f"{kind.__name__}.{key.name}": key.text
        for kind in every_kind()
        for key in keys_of(kind)
        if not key.inlined
    }

    assert [
        name for name, text in texts.items() if not re.fullmatch(r"[A-Z`\d][^|\n]*\.", text)
    ] == []
    assert len(texts) > 900


def test_the_manual_explains_the_facts_of_all_commands() -> None:
    explained: set[Kind] = set()
    for _, kind in kinds_in(MANUAL):
        _within(kind, explained)

    # A class that only others extend has no document of its own.
    assert [
        kind
        for kind in every_kind()
        if kind not in ELSEWHERE and not any(issubclass(one, kind) for one in explained)
    ] == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_section_of_the_manual_has_all_keys_that_its_command_prints(verb: str) -> None:
    contract = json.loads((ROOT / "tests/data/script_contract.json").read_text())["documents"]
    printed = [case["document"] for words, case in contract.items() if words.split()[0] == verb]
    found = list(kinds_in(section(verb)))

    assert found
    for part in ("plan", "result"):
        kinds = [kind for name, kind in found if part in name.split(", ")]
        for document in printed:
            assert list(unknown(document[part], kinds, part)) == []
    assert printed or verb == "demo"


def test_help_shows_what_the_fields_mean() -> None:
    shown = pydoc.render_doc(CompactionResult, renderer=pydoc.plaintext)

    assert re.search(r"rewritten_files\n \|\s+Data files that were replaced\.", shown)


def test_a_class_that_was_explained_is_named_with_a_link() -> None:
    plan = "<!-- plan: core.maintain.branching.facts.PickFacts -->\n<!-- end -->\n"

    first, second = rewritten(f"## One\n\n{plan}\n## Two\n\n{plan}").split("## Two")
    assert "| `source_snapshot` | The snapshot that is applied. |" in first
    assert "`source_snapshot`, `operation`" in second
    assert "| As in [One](#one). |" in second


def test_the_manual_in_the_terminal_has_no_marks() -> None:
    assert not any("<!--" in text for text in manual_sections().values())
