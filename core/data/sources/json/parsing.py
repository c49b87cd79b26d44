"""Parse JSON exactly with Python's parser, and refuse lines that crash Arrow's reader."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import numpy as np

from lake.core.base.errors import BadInputError
from lake.core.data.sources.json.blocks import Block
from lake.core.data.sources.json.documents import HINT

_DEEPEST = 200
_NO_OBJECT = re.compile(rb"^[ \t\r]*+[^{ \t\r\n]", re.MULTILINE)
# A string that is not closed extends to the end of the line, so that nothing is read twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


def refuse_fatal(block: Block, where: str) -> None:
    """Refuse lines that crash Arrow's reader and the process: deeply nested ones, and lines such as `null`.

    Raises:
        BadInputError: a line is of this kind.
    """
    data = block.data
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if data.count(b"\n{") + data.startswith(b"{") != lines and _NO_OBJECT.search(data):
        refuse_unreadable(block, where)
    if data.count(b"[") + data.count(b"{") <= _DEEPEST:
        return
    raw = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(raw == ord("\n")), len(raw))
    opened = np.cumsum((raw == ord("[")) | (raw == ord("{")))
    at_ends = np.concatenate(([0], opened[np.minimum(ends, len(raw) - 1)]))
    for index in np.flatnonzero(np.diff(at_ends) > _DEEPEST).tolist():
        start = int(ends[index - 1]) + 1 if index else 0
        refuse_deep(data[start : int(ends[index])], block.line(index), where)


def refuse_deep(line: bytes, number: int, where: str) -> None:
    """Refuse a line that is nested too deeply.

    Raises:
        BadInputError: it is.
    """
    raw = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opens = ((raw == ord("[")) | (raw == ord("{"))).astype(np.int64)
    closes = (raw == ord("]")) | (raw == ord("}"))
    if np.max(np.cumsum(opens - closes), initial=0) > _DEEPEST:
        raise BadInputError(f"line {number} of {where} is nested more than {_DEEPEST} levels deep")


def refuse_unreadable(block: Block, where: str) -> None:
    """Refuse a line that Python's parser cannot read either, or that is not an object.

    Raises:
        BadInputError: there is one; the message contains its number.
    """
    for number, line in block.numbered():
        parsed_line(line, number, where)


def parsed_line(line: bytes, number: int, where: str) -> dict[str, Any]:
    """Return the object in a line of a file, which has this number there, from 1.

    Raises:
        BadInputError: it is not a JSON object, or not UTF-8.
    """
    text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
    try:
        row = loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            # Its own text counts the lines of this text, which is one.
            reason = f"{error.msg} (character {error.pos + 1})"
        raise BadInputError(
            f"line {number} of {where} cannot be read: {reason}", hint=HINT
        ) from error
    if not isinstance(row, dict):
        raise BadInputError(f"line {number} of {where} is not a JSON object", hint=HINT)
    if "\ufffd" in text and b"\xef\xbf\xbd" not in line:
        raise BadInputError(f"line {number} of {where} is not UTF-8")
    return row


def loads(text: str) -> Any:
    """Return the value of a JSON text; a fraction is a `Decimal`.

    Raises:
        ValueError: it is not JSON, has a name twice in an object, or is not Unicode.
        RecursionError: it is nested too deeply for Python's parser.
    """
    value = json.loads(text, parse_float=Decimal, object_pairs_hook=_no_duplicates)
    if "\\u" in text:
        try:
            json.dumps(value, default=str, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("a lone surrogate") from error
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("an object has a name twice")
    return row
