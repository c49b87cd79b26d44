"""Plain technical English in docstrings, comments, texts for people, names of tests and the documents.

Judged are phrases that a reader has to decode. Each has the words to write instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ("cli", "commands", "core")

# Folders and documents that are not converted yet. The aim is an empty tuple: remove what you have converted.
NOT_CONVERTED: tuple[str, ...] = ()

# A pattern, and what to write instead.
PHRASES = {
    r"(?<!there )\b(is|are|was|were|be) no (?!longer\b|more than\b|less than\b|later than\b|earlier than\b)": (
        "'is not a', 'is not'"
    ),
    r"(?<!there )\b(is|are|was|were) (?-i:none)\b": "'is not one', or what is missing",
    r"\b(tells?|told|telling)\b": "'reports', 'shows', 'says', 'given', 'distinguishes'",
    r"\b(lies|lie|lay|lain|lying)\b": "'is', 'is stored in', 'is in the range'",
    r"\b(whoever|who (does|do|did|has|is|can|may|wants?|needs?|reads?|asks?|looks?|made|makes))\b": (
        "'a caller that', 'the process that'"
    ),
    r"\b(nobody|anybody|somebody|everybody)\b": "'no caller', 'no process', 'nothing'",
    r"\bso many\b": "the number, 'this many'",
    r"\banew\b": "'again'",
    r"\b(at|by) (its|his|their) word\b|\b(server|catalog|caller|store)'s word\b": "'trusts', 'the response'",
    r"\bit is said\b|\bso said\b|\bis said (to|that|by)\b": "'is reported', 'is documented'",
    r"\b(heed|heeds|heeded)\b": "'handles', 'respects', 'takes into account'",
    r"\bmade of\b": "'consists of', 'built from'",
    r"\b(none|nothing|no one|nothing else) but\b|\bbut for\b": "'only', 'except for'",
    r"\ba look (at|into|from)\b": "'reading', 'a check of'",
    r"\b(without|with) a word\b": "'silently', 'with a message'",
    r"\bfor good\b": "'permanently'",
    r"\bputs? up\b": "'writes'",
    r"\b(is|are|was) over(?=[.,:;]|$)": "'has ended', 'has expired'",
    r"\bgoes? for\b": "'applies to'",
    r"\bbe it\b": "'either ... or ...'",
}
_ANY = re.compile("|".join(PHRASES), re.IGNORECASE)
# A string, which may contain the character of a comment, or a comment.
_TOKENS = re.compile(
    r"""(?s:\"{3}(?:\\.|.)*?\"{3}|'{3}(?:\\.|.)*?'{3})"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<comment>\#[^\n]*)""",
)
_DESCRIBED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PATTERNS = {re.compile(phrase, re.IGNORECASE): instead for phrase, instead in PHRASES.items()}


def documents() -> list[Path]:
    found = [path for folder in SOURCES for path in (ROOT / folder).rglob("README*.md")]
    return [*ROOT.glob("README*.md"), *(ROOT / "tests").glob("README*.md"), *found]


def modules() -> list[Path]:
    return sorted(path for folder in (*SOURCES, "tests") for path in (ROOT / folder).rglob("*.py"))


def unit(path: Path) -> str:
    """Return the name by which a file is listed: its folder, or a document's own path."""
    return (path if path.suffix == ".md" else path.parent).relative_to(ROOT).as_posix()


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Return the first line and the text of each docstring, string and block of comments.

    Other strings of tests are data. The names of tests are sentences.
    """
    source = path.read_text()
    if path.suffix == ".md":
        yield 1, source
        return
    tree = ast.parse(source)
    if path.is_relative_to(ROOT / "tests"):
        yield from _sentences(tree)
    else:
        yield from _strings(tree)
    yield from _comments(source)


def _sentences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, _DESCRIBED):
            continue
        if not isinstance(node, ast.Module) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")
        text = ast.get_docstring(node, clean=False)
        if text is not None:
            yield node.body[0].lineno, text


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_literal(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _literal(part: ast.expr) -> str:
    # A value stands where one is inserted, so that words do not meet across it.
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "{}"


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Return blocks of comments; a line of code, or an empty one, ends a block."""
    first, lines = 0, [""]
    line, at = 1, 0
    for token in _TOKENS.finditer(source):
        if token["comment"] is None:
            continue
        line += source.count("\n", at, token.start())
        at = token.start()
        if line != first + len(lines):
            yield first, "\n".join(lines)
            first, lines = line, []
        lines.append(token["comment"].lstrip("#").strip())
    yield first, "\n".join(lines)


def phrases(path: Path) -> Iterator[tuple[int, str, str]]:
    """Return each phrase that is found: its line, its words in lower case and what to write instead."""
    for line, text in texts(path):
        flat = re.sub(r"\s", " ", text)
        if not _ANY.search(flat):
            continue
        for pattern, instead in PATTERNS.items():
            for match in pattern.finditer(flat):
                yield (
                    line + text.count("\n", 0, match.start()),
                    match.group().strip().lower(),
                    instead,
                )


UNITS = {path: unit(path) for path in (*modules(), *documents())}


@pytest.mark.parametrize("name", sorted(set(UNITS.values()) - set(NOT_CONVERTED)))
def test_prose_is_plain_technical_english(name: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: '{phrase}'; write {instead}"
        for path in UNITS
        if UNITS[path] == name
        for line, phrase, instead in phrases(path)
    }

    assert sorted(found) == []


def test_what_is_not_converted_is_a_folder_or_a_document() -> None:
    assert set(NOT_CONVERTED) - set(UNITS.values()) == set()


def test_phrases_are_found_in_docstrings_comments_and_texts(tmp_path: Path) -> None:
    module = tmp_path / "example.py"
    module.write_text(
        '"""It is no\nfile."""\n\n# Whoever\n# made it anew.\ntext = f"{name} told {other}"\nvalue is None\n'
    )

    found = {(line, phrase) for line, phrase, _ in phrases(module)}

    assert found == {(1, "is no"), (4, "whoever"), (5, "anew"), (6, "told")}


def test_phrases_are_found_in_names_docstrings_and_comments_of_tests() -> None:
    tree = ast.parse(
        'def test_a_hint_that_is_no_number() -> None:\n    """What it tells."""\n    check("anew")\n'
    )

    assert list(_sentences(tree)) == [(1, "test a hint that is no number"), (2, "What it tells.")]
