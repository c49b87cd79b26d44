"""Files to load: found, opened, and read in bounded batches, whatever their format."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake.core import paths
from lake.core.errors import BadInputError, CorruptFileError, LakeError, NotFoundError, RefusedError
from lake.core.rows.writer import row_group_start
from lake.core.table.storage import Storage

PARQUET, CSV, JSON, ARROW = "parquet", "csv", "json", "arrow"
FORMATS = (PARQUET, CSV, JSON, ARROW, "orc", "avro")
_SUFFIXES = {
    "parquet": PARQUET, "pq": PARQUET, "csv": CSV, "tsv": CSV, "json": JSON, "jsonl": JSON,
    "ndjson": JSON, "arrow": ARROW, "feather": ARROW, "ipc": ARROW, "arrows": ARROW,
    "orc": "orc", "avro": "avro",
}
_COMPRESSED = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}
_BLOCK_BYTES = 8 * 1024 * 1024
_BATCH_ROWS = 64 * 1024
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file to load, or some row groups of it (None: all)."""

    path: str
    format: str
    size_bytes: int
    row_groups: tuple[int, ...] | None = None

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "path": self.path,
            "format": self.format,
            "size_bytes": self.size_bytes,
            "row_groups": None if self.row_groups is None else list(self.row_groups),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Source:
        """Rebuild from `to_plain`'s values."""
        groups = plain["row_groups"]
        return cls(**{**plain, "row_groups": None if groups is None else tuple(groups)})


def find_sources(storage: Storage, names: Iterable[str], format_name: str | None) -> list[Source]:
    """Return the files that names, globs and folders mean, each once, in their order.

    Raises:
        NotFoundError: a name means no file.
        BadInputError: a file is named twice, or its format cannot be told.
        RefusedError: its format cannot be read yet.
    """
    found: dict[str, Source] = {}
    for name in names:
        for path in _expand(storage, name):
            key = _identity(path)
            if key in found:
                raise BadInputError(
                    f"{path} is named twice: its rows would be loaded twice",
                    hint="name each file once",
                )
            kind = _format_of(path, format_name)
            found[key] = Source(path=path, format=kind, size_bytes=storage.size(path))
    return list(found.values())


def _expand(storage: Storage, name: str) -> list[str]:
    parsed = paths.parse(name)
    if not parsed.is_local:
        if storage.is_folder(name):
            return sorted(path for path in storage.find(name, "") if _is_data(path))
        return [name]
    path = parsed.path
    if os.path.isdir(path):
        inside = sorted(os.path.join(where, f) for where, _, names in os.walk(path) for f in names)
        chosen = [item for item in inside if _is_data(item)]
    elif os.path.exists(path):
        return [path]
    elif _WILD.search(path):
        chosen = [item for item in sorted(glob.glob(path, recursive=True)) if os.path.isfile(item)]
    else:
        raise NotFoundError(f"no such file: {name}")
    if not chosen:
        raise NotFoundError(f"no file matches {name}")
    return chosen


def _is_data(path: str) -> bool:
    # Markers such as _SUCCESS and hidden files belong to the tools that wrote the folder.
    return not os.path.basename(path).startswith((".", "_"))


def _identity(path: str) -> str:
    parsed = paths.parse(path)
    return os.path.realpath(parsed.path) if parsed.is_local else paths.canonical(path)


def _format_of(path: str, given: str | None) -> str:
    suffixes = os.path.basename(path).lower().split(".")[1:]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    kind = given or (_SUFFIXES.get(suffixes[-1]) if suffixes else None)
    if kind is None:
        raise BadInputError(
            f"cannot tell the format of {path}", hint=f"say --format {'|'.join(FORMATS)}"
        )
    if kind in {"orc", "avro"}:
        raise RefusedError(f"{kind} files cannot be read yet: {path}")
    return kind


# Schemas


def source_schema(
    storage: Storage, source: Source, known: pa.Schema | None, *, whole: bool = False
) -> pa.Schema:
    """Return the columns of a source.

    Args:
        storage: where it lies.
        source: the file.
        known: columns whose types are already decided (text formats have none of their own).
        whole: infer text types from the whole file, not from its beginning.
    """
    with _readable(source.path):
        if source.format == PARQUET:
            with storage.open_input(source.path) as file:
                return pq.read_schema(file)
        if source.format == ARROW:
            with _open_arrow(storage, source.path) as (reader, _):
                return reader.schema
        if whole:
            return _inferred_from_all(storage, source)
        reader = _open_text(storage, source, known)
        return reader.schema


def _inferred_from_all(storage: Storage, source: Source) -> pa.Schema:
    """Infer types that hold for every row: a column that changes its mind becomes wider, or text."""
    known: dict[str, pa.DataType] = {}
    while True:
        schema = pa.schema(list(known.items())) if known else None
        reader = _open_text(storage, source, schema)
        found = {item.name: item.type for item in reader.schema}
        try:
            for _ in reader:
                pass
        except pa.ArrowInvalid as error:
            column = _blamed_column(str(error), list(found))
            if column is None:
                raise
            known = {**found, column: _wider(found[column])}
            if found[column] == known[column]:
                raise
            continue
        return reader.schema


def _blamed_column(message: str, names: list[str]) -> str | None:
    numbered = re.search(r"In CSV column #(\d+)", message)
    if numbered and int(numbered[1]) < len(names):
        return names[int(numbered[1])]
    named = re.search(r"Column\(/([^/)]+)", message)
    return named[1] if named and named[1] in names else None


def _wider(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_integer(kind) else pa.string()


# Rows


def read_source(
    storage: Storage, source: Source, known: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    """Yield a source's rows as they are; text becomes the known types where Arrow can parse them.

    Raises:
        CorruptFileError: the file is broken or a text is no value of its column's type.
    """
    with _readable(source.path):
        if source.format == PARQUET:
            yield from _parquet_batches(storage, source)
        elif source.format == ARROW:
            with _open_arrow(storage, source.path) as (_, batches):
                yield from batches
        else:
            yield from _open_text(storage, source, known)


def _parquet_batches(storage: Storage, source: Source) -> Iterator[pa.RecordBatch]:
    with storage.open_input(source.path) as file:
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        groups = source.row_groups
        chosen = list(range(parquet.num_row_groups)) if groups is None else list(groups)
        if chosen:
            yield from parquet.iter_batches(
                batch_size=_BATCH_ROWS, row_groups=chosen, use_threads=False
            )


def split_parquet(storage: Storage, source: Source, target_bytes: int) -> list[Source]:
    """Cut a large Parquet file into pieces of whole row groups."""
    if source.format != PARQUET or source.size_bytes <= target_bytes:
        return [source]
    with _readable(source.path), storage.open_input(source.path) as file:
        footer = pq.ParquetFile(file).metadata
        starts = [row_group_start(footer.row_group(i)) for i in range(footer.num_row_groups)]
    pieces: list[list[int]] = []
    begin = 0
    for index, start in enumerate(starts):
        if not pieces or start - begin >= target_bytes:
            pieces.append([])
            begin = start
        pieces[-1].append(index)
    share = source.size_bytes // max(len(pieces), 1)
    return [
        Source(path=source.path, format=PARQUET, size_bytes=share, row_groups=tuple(piece))
        for piece in pieces
    ]


@contextmanager
def _open_arrow(storage: Storage, path: str) -> Iterator[tuple[Any, Iterator[pa.RecordBatch]]]:
    with storage.open_input(path) as file:
        magic = file.read(6)
        file.seek(0)
        if magic == b"ARROW1":
            reader = pa.ipc.open_file(file)
            count = reader.num_record_batches
            yield reader, (reader.get_batch(index) for index in range(count))
        else:
            stream = pa.ipc.open_stream(file)
            yield stream, iter(stream)


def _open_text(storage: Storage, source: Source, known: pa.Schema | None) -> Any:
    """Open a CSV or JSON lines file for streaming."""
    file = storage.open_input(source.path)
    codec = _COMPRESSED.get(source.path.rsplit(".", 1)[-1].lower())
    stream = pa.CompressedInputStream(file, codec) if codec else file
    types = {item.name: _parsed_as(item.type) for item in known or ()}
    if source.format == CSV:
        return _open_csv(stream, types, tab=".tsv" in os.path.basename(source.path).lower())
    from pyarrow import json as arrow_json  # noqa: PLC0415 - only for such files

    return arrow_json.open_json(
        stream,
        read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema(list(types.items())) if types else None,
            unexpected_field_behavior="infer",
        ),
    )


def _open_csv(stream: Any, types: Mapping[str, pa.DataType], *, tab: bool) -> Any:
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - only for such files

    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
        parse_options=arrow_csv.ParseOptions(delimiter="\t" if tab else ",", newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            # An empty cell is NULL; "" in quotes is the empty text.
            null_values=["", "NULL", "null", "NA", "N/A"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            timestamp_parsers=[arrow_csv.ISO8601],
        ),
    )


def _parsed_as(kind: pa.DataType) -> pa.DataType:
    """Return what Arrow parses for a type: itself, or text that `text_to` turns into it."""
    types = pa.types
    direct = (
        types.is_boolean, types.is_integer, types.is_floating, types.is_date32, types.is_string,
        types.is_nested, types.is_null,
    )
    return kind if any(test(kind) for test in direct) else pa.string()


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except LakeError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = str(error).strip().splitlines()
        raise CorruptFileError(f"{path} cannot be read: {(text or [''])[0][:300]}") from error
