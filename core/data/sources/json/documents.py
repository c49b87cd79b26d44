"""Cut a JSON array, or objects that extend over several lines, into one object per line.

Python's parser finds the ends of the objects; their text is not changed, apart from line ends between values.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from lake.core.base.errors import BadInputError

LONGEST_OBJECT = 64 * 1024 * 1024
_READ_BYTES = 1024 * 1024
HINT = "the file must contain JSON objects, one per line or in an array"
_BLANK = b" \t\r\n"
_MARK = codecs.BOM_UTF8
# Values are not needed, only where they end.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def is_document(head: bytes) -> bool:
    """Whether a file that begins so is an array, or has objects that extend over several lines.

    Args:
        head: the beginning of the file, at most some MiB.
    """
    head = head.removeprefix(_MARK).lstrip(_BLANK)
    if head.startswith(b"["):
        return True
    first = head.partition(b"\n")[0].rstrip(_BLANK)
    if not head.startswith(b"{") or len(first) == len(head.rstrip(_BLANK)):
        return False
    if first == b"{":
        return True
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return _extends(head.decode(errors="replace"))
    return False


def _extends(text: str) -> bool:
    """Whether a text begins with an object that extends over several lines."""
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return "\n" in text[:end]


def objects(stream: Any, head: bytes, where: str) -> Iterator[tuple[int, bytes]]:
    """Yield each object in one line, with the number of the line of the file that it begins in, from 1.

    The stream contains what follows the head of the file.

    Raises:
        BadInputError: the text is not JSON, or an element of the array is not an object.
    """
    text = _Text(stream, head, where)
    in_array = text.next() == "["
    if in_array:
        text.skip()
        if text.next() == "]":
            text.skip()
            text.expect_end()
            return
    while True:
        if text.next() != "{":
            raise text.no_object()
        yield text.line, text.take()
        following = text.next()
        if in_array:
            if following not in {",", "]"}:
                raise text.problem("a comma or the end of the array is expected")
            text.skip()
            if following == "]":
                text.expect_end()
                return
        elif not following:
            return


class _Text:
    """The text of a file from a position on; `line` is the number of the line there."""

    def __init__(self, stream: Any, head: bytes, where: str) -> None:
        self._stream = stream
        self._where = where
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._ended = False
        self.line = 1
        self._add(head)

    def next(self) -> str:
        """Return the next character after blanks, without taking it; empty at the end."""
        while True:
            rest = self._text[self._at : self._at + 1]
            if rest == "\n":
                self.line += 1
            elif rest and rest not in " \t\r":
                return rest
            elif not rest:
                if self._ended:
                    return ""
                self._read()
                continue
            self._at += 1

    def skip(self) -> None:
        """Take one character."""
        self._at += 1

    def take(self) -> bytes:
        """Take the value that begins here; return it in one line."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
                break
            except RecursionError as error:
                raise self.problem("nested too deeply") from error
            except ValueError as error:
                # It may only be cut off here.
                if self._ended or len(self._text) - self._at > LONGEST_OBJECT:
                    raise self._syntax_problem(error) from error
                self._read()
        value = self._text[self._at : end]
        self.line += value.count("\n")
        self._at = end
        return value.replace("\r", " ").replace("\n", " ").encode()

    def expect_end(self) -> None:
        """Refuse text after the end."""
        if self.next():
            raise self.problem("there is text after the end of the array")

    def no_object(self) -> BadInputError:
        """Return the error for a text that does not begin an object here."""
        if not self.next():
            return self.problem("the array is not closed")
        return BadInputError(f"line {self.line} of {self._where} is not a JSON object", hint=HINT)

    def problem(self, reason: str) -> BadInputError:
        """Return the error for the text at the position."""
        return BadInputError(
            f"line {self.line} of {self._where} cannot be read: {reason}",
            hint=HINT,
        )

    def _syntax_problem(self, error: ValueError) -> BadInputError:
        if isinstance(error, json.JSONDecodeError):
            self.line += self._text.count("\n", self._at, error.pos)
            return self.problem(error.msg)
        return self.problem(str(error))

    def _read(self) -> None:
        # The more is waiting for the end of its value, the more is read, so that little is parsed twice.
        self._add(bytes(self._stream.read(max(_READ_BYTES, len(self._text) - self._at))))

    def _add(self, data: bytes) -> None:
        try:
            text = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise BadInputError(f"{self._where} is not UTF-8 after line {self.line}") from error
        self._ended = not data
        self._text, self._at = self._text[self._at :] + text, 0
