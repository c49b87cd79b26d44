"""Cut a JSON file into blocks of objects, one a line, of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lake.core.base.errors import BadInputError
from lake.core.data.sources.discovery import Position, Source, open_stream
from lake.core.data.sources.json.documents import HINT, LONGEST_OBJECT, is_document, objects
from lake.core.io.storage.storage import Storage

_BLOCK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Objects, one per line, and the numbers of their lines in the file, from 1.

    `first_line` is the number of the first one. The others follow one another unless `numbers` has all of them.
    """

    data: bytes
    first_line: int
    numbers: Sequence[int] = ()

    def line(self, index: int) -> int:
        """Return the number of a line in the file, by its position in the block."""
        return (
            self.numbers[min(index, len(self.numbers) - 1)]
            if self.numbers
            else self.first_line + index
        )

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines that are not blank, with their numbers in the file."""
        for index, line in enumerate(self.data.split(b"\n")):
            if line.strip():
                yield self.line(index), line

    def located(self, indexes: Sequence[int]) -> tuple[Sequence[int], Sequence[str]]:
        """Return the numbers and the texts of lines, by their positions among those that are not blank."""
        wanted, found = set(indexes), []
        for index, (number, line) in enumerate(self.numbered()):
            if index in wanted:
                found.append((number, line.decode(errors="replace").strip()))
        return [number for number, _ in found], [text for _, text in found]


def blocks(storage: Storage, source: Source, position: Position | None = None) -> Iterator[Block]:
    """Yield the objects of a file in blocks; `position` is kept current.

    Raises:
        BadInputError: a line is too long, or an array is not one of objects.
    """
    with open_stream(storage, source, position) as stream:
        head = bytes(stream.read(_BLOCK_BYTES))
        cut = _object_blocks if is_document(head) else _line_blocks
        yield from cut(stream, head, source.path)


def _object_blocks(stream: Any, head: bytes, where: str) -> Iterator[Block]:
    """Yield the objects of an array, or objects that extend over several lines."""
    found: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for line, text in objects(stream, head, where):
        found.append(text)
        numbers.append(line)
        size += len(text)
        if size >= _BLOCK_BYTES:
            yield Block(b"\n".join(found), numbers[0], numbers)
            found, numbers, size = [], [], 0
    if found:
        yield Block(b"\n".join(found), numbers[0], numbers)


def _line_blocks(stream: Any, head: bytes, where: str) -> Iterator[Block]:
    """Yield whole lines."""
    rest, line, data = bytearray(), 1, head
    while data:
        end = data.rfind(b"\n") + 1
        if end == 0:
            rest += data
            if len(rest) > LONGEST_OBJECT:
                raise BadInputError(
                    f"line {line} of {where} is longer than {LONGEST_OBJECT} bytes", hint=HINT
                )
        else:
            block = Block(bytes(rest) + data[:end], line)
            yield block
            line += block.data.count(b"\n")
            rest = bytearray(data[end:])
        data = bytes(stream.read(_BLOCK_BYTES))
    if rest.strip():
        yield Block(bytes(rest), line)
