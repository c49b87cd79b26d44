"""How a text file is written: its encoding, the separators of CSV, and the forms of values."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.plain import PlainData
from lake.core.data.sources.text_forms import PLAIN, TextForms

UTF_8 = "utf-8"
DELIMITER_NAMES = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}
_LINE_ENDS = "\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat(PlainData):
    """How text files are written, as the user says it; for one file, also what the file shows.

    Args:
        delimiter: the character between the columns of CSV; None if not known.
        encoding: the encoding by its Python name; None if not known.
        quote: the character around values of CSV; empty for none.
        header: whether CSV has a line of column names.
        names: the columns of a file without a header.
        skip_rows: the number of lines before the header.
        forms: how values are written.

    Raises:
        InvalidRequestError: a value is not allowed.
    """

    delimiter: str | None = None
    encoding: str | None = None
    quote: str = '"'
    header: bool = True
    names: tuple[str, ...] = ()
    skip_rows: int = 0
    forms: TextForms = PLAIN

    def __post_init__(self) -> None:
        if self.delimiter is not None and not _is_separator(self.delimiter):
            raise InvalidRequestError(
                f"{Option.DELIMITER} {self.delimiter!r} is not one ASCII character",
                hint=rf"e.g. {Option.DELIMITER} ';', or {Option.DELIMITER} '\t' for tabs",
            )
        if self.quote and (not _is_separator(self.quote) or self.quote == self.delimiter):
            raise InvalidRequestError(
                f"{Option.QUOTE} {self.quote!r} is not one ASCII character that differs from the delimiter",
                hint=f"{Option.QUOTE} '' if values are not quoted",
            )
        if self.skip_rows < 0:
            raise InvalidRequestError(f"{Option.SKIP_ROWS} {self.skip_rows} is negative")
        if self.encoding is not None and not _is_text_encoding(self.encoding):
            raise InvalidRequestError(
                f"{Option.ENCODING} {self.encoding!r} is not an encoding that Python knows",
                hint="e.g. utf-8, utf-16, latin-1, cp1252",
            )

    @property
    def is_utf_8(self) -> bool:
        """Whether the file is UTF-8, as far as is known."""
        return self.encoding is None or codecs.lookup(self.encoding).name in {UTF_8, "utf-8-sig"}


def _is_separator(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in _LINE_ENDS and text != "\0"


def _is_text_encoding(name: str) -> bool:
    try:
        "a,1".encode(name)
        return codecs.lookup(name).name not in {"idna", "punycode"}
    except (LookupError, UnicodeError, ValueError):
        return False


AS_SHOWN = TextFormat()
