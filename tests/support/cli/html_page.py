"""An HTML page as tests read it: a strict parser of what `lake` writes, and nothing that a browser would repair."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Elements without an end tag.
_VOID = {"meta", "br", "img", "link", "input", "hr"}


@dataclass
class Element:
    """An element with its attributes, and its texts and elements in their order."""

    tag: str
    attributes: dict[str, str | None]
    inside: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text in it, with single spaces."""
        parts = (one if isinstance(one, str) else one.text for one in self.inside)
        return re.sub(r"\s+", " ", "".join(parts)).strip()

    def all(self, *tags: str) -> list[Element]:
        """Return the elements in it with these tags; of all tags without any."""
        return [one for one in self._walk() if not tags or one.tag in tags]

    def one(self, tag: str, **attributes: str) -> Element:
        """Return the only element in it with a tag and attributes."""
        wanted = attributes.items()
        (found,) = [one for one in self.all(tag) if wanted <= one.attributes.items()]
        return found

    def _walk(self) -> Iterator[Element]:
        for one in self.inside:
            if isinstance(one, Element):
                yield one
                yield from one._walk()


def parsed(text: str) -> Element:
    """Return a page; an element that is not closed, or closed twice, raises."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    assert len(parser.open) == 1, parser.open[-1].tag
    return parser.open[0]


class _Parser(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("document", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        element = Element(tag, dict(attrs))
        self.open[-1].inside.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].inside.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].inside.append(data)
