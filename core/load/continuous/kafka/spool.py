"""The messages of one epoch as files in a folder of this machine, which are loaded as any other files are."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any

from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.redaction import one_line
from lake.core.data.sources.added_columns import write_added
from lake.core.io.avro.container import Block, write_container
from lake.core.io.storage.errors import translate_errors
from lake.core.load.continuous.kafka.metadata import Values, to_batch, weight
from lake.core.load.continuous.kafka.options import AVRO, KafkaOptions

_MIB = 1 << 20
# Values in memory; larger files are more efficient to load.
_BUFFERED_BYTES = 64 * _MIB
_BLOCK_BYTES = _MIB
_LONGEST_REASON = 200
_ADDED_SUFFIX = ".metadata"
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")

# Checks the value of one message, and returns the bytes to store.
Check = Callable[[bytes], bytes]


class _TakenNameError(ValueError):
    """A value has a field with the name of a metadata column."""


@dataclass(slots=True)
class Spool:
    """Collects messages in the order of their offsets.

    Args:
        folder: an empty folder.
        options: the topic, and the format of the values.
        check: checks a value; see `check_of`.
        files: the complete files.
        rows: the number of messages in them.
        size: their bytes.
        set_aside: the number of messages that were set aside.
        skipped: the number of messages that the user said to skip.
        added: for each file, the one with the metadata columns of its messages; empty without such columns.
        places: for each file, the name of its partition (``TOPIC-PARTITION``) and the offsets of its messages.
    """

    folder: str
    options: KafkaOptions
    check: Check
    files: list[str] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    set_aside: int = 0
    skipped: int = 0
    places: dict[str, tuple[str, Sequence[int]]] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    _metadata: dict[int, list[Values]] = field(default_factory=dict)
    _values: dict[int, list[bytes]] = field(default_factory=dict)
    _offsets: dict[int, list[int]] = field(default_factory=dict)
    _buffered: int = 0

    def add(self, partition: int, offset: int, value: bytes, metadata: Values = ()) -> None:
        """Add a message, with the values of its metadata columns.

        Raises:
            BadInputError: its value does not have the format, or has a field with the name of a metadata column.
        """
        try:
            checked = self.check(value)
        except (ValueError, EOFError, IndexError, KeyError, TypeError, RecursionError) as error:
            reason = one_line(str(error) or type(error).__name__)[:_LONGEST_REASON]
            if self.options.bad_files is not None:
                self._put_aside(self.options.bad_files, partition, offset, value, reason)
                return
            problem = "cannot be loaded" if isinstance(error, _TakenNameError) else self._no_format
            raise BadInputError(
                f"the message at offset {offset} of partition {partition} of topic {self.options.topic} {problem}: "
                f"{reason}",
                hint=f"{Option.BAD_FILES} writes such messages to a folder and goes on; "
                f"{Option.SKIP} {partition}:{offset} leaves out this one",
            ) from error
        self._offsets.setdefault(partition, []).append(offset)
        self._values.setdefault(partition, []).append(checked)
        size = len(value)
        if metadata:
            self._metadata.setdefault(partition, []).append(metadata)
            size += weight(metadata)
        self.rows += 1
        self.size += size
        self._buffered += size
        if self._buffered >= _BUFFERED_BYTES:
            self._flush()

    @property
    def passed(self) -> int:
        """The number of messages that are not loaded, and must not be read again."""
        return self.set_aside + self.skipped

    @property
    def _no_format(self) -> str:
        return f"is not {self.options.format.upper()}"

    def finish(self) -> Sequence[str]:
        """Complete the files and return their paths, ordered by partition and offset."""
        self._flush()
        return sorted(self.files)

    @contextmanager
    def messages_named(self) -> Iterator[None]:
        """Name the message in errors that name a line of a file of the spool.

        Raises:
            BadInputError: the error of the block.
        """
        try:
            yield
        except BadInputError as error:
            error.message = self._named(error.message)
            raise

    def _named(self, text: str) -> str:
        # A name may begin with another one.
        for path in sorted(self.places, key=len, reverse=True):
            partition, offsets = self.places[path]
            where = f"partition {partition.rpartition('-')[2]} of topic {self.options.topic}"
            name = re.escape(path)
            line = rf"\b(?:line|row) (\d+) of {name}|{name}, (?:line|row) (\d+)\b,?"
            text = re.sub(line, partial(_message, offsets, where), text)
            text = text.replace(path, f"{where} (offsets {offsets[0]} to {offsets[-1]})")
        return text

    def _put_aside(
        self, folder: str, partition: int, offset: int, value: bytes, reason: str
    ) -> None:
        """Write a value and the reason to a folder; a run that reads it again writes the same files."""
        path = os.path.join(folder, self._name(partition, offset))
        with translate_errors(folder):
            os.makedirs(folder, exist_ok=True)
            for suffix, content in (("", value), (".reason.txt", f"{reason}\n".encode())):
                with open(path + suffix, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        self.set_aside += 1

    def _name(self, partition: int, offset: int) -> str:
        return f"{self.options.topic}-{partition:05d}-{offset:020d}"

    def _flush(self) -> None:
        for partition, values in self._values.items():
            # Messages name the file, and with it the topic, the partition and the first offset.
            offsets = self._offsets[partition]
            name = f"{self._name(partition, offsets[0])}.{self.options.format}"
            path = os.path.join(self.folder, name)
            with open(path, "xb") as file:
                file.write(self._container(values))
            if partition in self._metadata:
                self.added[path] = f"{path}{_ADDED_SUFFIX}"
                columns = to_batch(self.options.kafka_metadata, self._metadata[partition])
                write_added(self.added[path], columns)
            self.files.append(path)
            self.places[path] = f"{self.options.topic}-{partition}", offsets
        self._values.clear()
        self._metadata.clear()
        self._offsets.clear()
        self._buffered = 0

    def _container(self, values: Sequence[bytes]) -> bytes:
        if self.options.format != AVRO:
            return b"\n".join(values) + b"\n"
        blocks: list[Block] = []
        taken: list[bytes] = []
        size = 0
        for value in values:
            taken.append(value)
            size += len(value)
            if size >= _BLOCK_BYTES:
                blocks.append(Block(len(taken), b"".join(taken)))
                taken, size = [], 0
        if taken:
            blocks.append(Block(len(taken), b"".join(taken)))
        schema = json.loads(self.options.avro_schema or "null")
        return write_container(schema, blocks, metadata={}, codec="uncompressed")


def _message(offsets: Sequence[int], where: str, found: re.Match[str]) -> str:
    """Return the name of the message in a line of a file."""
    index = int(found[1] or found[2]) - 1
    if not 0 <= index < len(offsets):
        return found[0]
    return f"the message at offset {offsets[index]} of {where}"


def check_of(options: KafkaOptions) -> Check:
    """Return the check of a value of the options' format.

    Raises:
        InvalidRequestError: the Avro schema is not valid, or has a field with the name of a metadata column, or the
            package that reads Avro values is not installed.
    """
    names = options.kafka_metadata.keys()
    if options.format != AVRO:
        return partial(_check_json, names)
    return _avro_check(options.avro_schema or "", names)


def _check_json(names: AbstractSet[str], value: bytes) -> bytes:
    """Return a JSON object in one line: in JSON, line breaks are between tokens only."""
    found = json.loads(value.decode())
    if not isinstance(found, dict):
        raise TypeError("the value is not an object")
    if names and (taken := names & found.keys()):
        raise _TakenNameError(_taken(taken))
    return value.translate(_LINE_BREAKS)


def _taken(names: AbstractSet[str]) -> str:
    return f"the value has a field {min(names)}, which is a column of {Option.KAFKA_METADATA}"


def _avro_check(schema: str, names: AbstractSet[str]) -> Check:
    try:
        from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415 - an extra
        from fastavro.schema import SchemaParseException, UnknownType  # noqa: PLC0415
    except ImportError as error:
        raise InvalidRequestError(
            "Avro values need the package fastavro", hint="pip install 'lake-iceberg[kafka]'"
        ) from error
    try:
        parsed: Any = parse_schema(json.loads(schema))
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as error:
        raise InvalidRequestError(f"not an Avro schema: {one_line(str(error))[:200]}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise InvalidRequestError("the Avro schema of the values is not that of a record")
    if taken := names & {item["name"] for item in parsed["fields"]}:
        raise InvalidRequestError(_taken(taken), hint="choose another name for the column")

    def check(value: bytes) -> bytes:
        source = BytesIO(value)
        schemaless_reader(source, parsed, None)
        if source.tell() != len(value):
            # A surplus byte would shift all records after it.
            raise ValueError(f"{len(value) - source.tell()} bytes follow the record")
        return value

    return check
