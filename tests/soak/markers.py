"""The markers of safety checks in the source of lake, and the edits that take a check out.

A comment ``# check: NAME`` marks a safety check. It stands at the end of the line on which the code of the check
begins, or on a line of its own before it. It marks the statement, or the part of one, that begins on that line.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

Edit = Callable[["MarkedCode"], str]
_MARKER = re.compile(r"# check: ([a-z0-9-]+(?:, [a-z0-9-]+)*)")


@dataclass(frozen=True)
class MarkedCode:
    """The code that a marker marks.

    Args:
        text: the whole file.
        line: the line on which the code begins, from 1.
    """

    text: str
    line: int

    @cached_property
    def node(self) -> ast.AST:
        """The largest statement, or else the largest part of one, that is the first one to begin on the line."""
        found = [node for node in self._parents if getattr(node, "lineno", None) == self.line]
        if not found:
            raise ValueError(f"nothing begins on line {self.line}")
        spans = {node: self._span(node) for node in found}
        return min(found, key=lambda node: (spans[node][0], -spans[node][1]))

    @property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return _parents_in(self.text)

    @cached_property
    def _lines(self) -> list[int]:
        """Return the offset of each line in bytes."""
        starts = [0]
        for line in self.text.encode().splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def with_code(self, node: ast.AST, code: str) -> str:
        """Return the file with other code in place of a node."""
        start, end = self._span(node)
        data = self.text.encode()
        return (data[:start] + code.encode() + data[end:]).decode()

    def part(self, code: str) -> ast.AST:
        """Return the part that has this code; statements inside of the marked one are not searched.

        Raises:
            ValueError: not exactly one part has it.
        """
        wanted = ast.dump(ast.parse(code, mode="eval").body)
        found = [node for node in _parts(self.node) if ast.dump(node) == wanted]
        if len(found) != 1:
            raise ValueError(f"{len(found)} parts are {code}, from line {self.line}")
        return found[0]

    def without(self, node: ast.AST) -> str:
        """Return the file without a statement, an operand, a condition, an item or an argument.

        Raises:
            ValueError: a node of this kind cannot be removed.
        """
        parent = self._parents[node]
        if isinstance(node, ast.stmt):
            return self.with_code(node, "pass")
        if isinstance(node, ast.ExceptHandler):
            return self.with_code(node, "")
        if isinstance(parent, ast.comprehension) and node in parent.ifs:
            return self.with_code(node, "True")
        if isinstance(parent, ast.BinOp):
            other = parent.left if node is parent.right else parent.right
            return self.with_code(parent, f"({ast.unparse(other)})")
        for items in ("values", "elts", "args", "keywords"):
            if node in (whole := getattr(parent, items, [])):
                return self.with_code(
                    parent, _unparsed(parent, items, [x for x in whole if x is not node])
                )
        raise ValueError(f"no part of {type(parent).__name__} can be removed, at line {self.line}")

    def decided(self, value: str) -> str:
        """Return the file with a value for the condition of a statement, or for the whole of a part.

        Raises:
            ValueError: the marked code has no condition.
        """
        if isinstance(self.node, ast.For):
            return self.with_code(self.node.iter, "()")
        if isinstance(self.node, ast.If | ast.While):
            return self.with_code(self.node.test, value)
        if isinstance(self.node, ast.Return | ast.keyword):
            return self.with_code(self.node.value, value)
        if isinstance(self.node, ast.expr):
            return self.with_code(self.node, value)
        raise ValueError(f"{type(self.node).__name__} has no condition, at line {self.line}")


@cache
def _parents_in(text: str) -> dict[ast.AST, ast.AST]:
    """Return the parent of each node of a file, which may have several markers."""
    tree = ast.parse(text)
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield child
            yield from _parts(child)


def _unparsed(node: ast.AST, field: str, items: list[ast.AST]) -> str:
    """Return the code of a node with other items."""
    if isinstance(node, ast.BoolOp) and len(items) == 1:
        return f"({ast.unparse(items[0])})"
    fields = {name: items if name == field else value for name, value in ast.iter_fields(node)}
    code = ast.unparse(type(node)(**fields))
    return f"({code})" if isinstance(node, ast.BoolOp) else code


def markers(text: str) -> Iterator[tuple[str, MarkedCode]]:
    """Return the names of a file's markers, and what they mark.

    Raises:
        ValueError: a marker names nothing.
    """
    if "# check:" not in text:
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "# check:" in token.string:
            if not (found := _MARKER.fullmatch(token.string)):
                raise ValueError(f"not a marker: {token.string}")
            line = token.start[0] + (0 if token.line[: token.start[1]].strip() else 1)
            for name in found[1].split(", "):
                yield name, MarkedCode(text, line)


def removed(code: MarkedCode) -> str:
    """Remove the marked code."""
    return code.without(code.node)


def never(code: MarkedCode) -> str:
    """Let the marked condition never be true, or a marked loop have nothing to do."""
    return code.decided("False")


def always(code: MarkedCode) -> str:
    """Let the marked condition always be true."""
    return code.decided("True")


def without(part: str) -> Edit:
    """Remove a part of the marked code."""
    return lambda code: code.without(code.part(part))


def instead(part: str, other: str) -> Edit:
    """Replace a part of the marked code."""
    return lambda code: code.with_code(code.part(part), f"({other})")


def becomes(other: str) -> Edit:
    """Replace the marked code."""
    return lambda code: code.with_code(code.node, other)
