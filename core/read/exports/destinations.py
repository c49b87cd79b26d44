"""The destination of a scan's rows: a file, a folder of files, or a stream; written completely or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.choices import EXPORT_FORMATS
from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.io.long_names import beside
from lake.core.io.storage.atomic_files import flush
from lake.core.read.exports.formats import (
    ARROW,
    ARROW_STREAM,
    CSV,
    JSON,
    PARQUET,
    SUFFIXES,
    TSV,
)
from lake.core.table.catalogs.catalog import Table

PART = "part-"
_COMPRESSED = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}


@dataclass(frozen=True, slots=True)
class Output:
    """A destination of rows.

    Args:
        format: the file format.
        path: a local path; empty with ``stream``.
        stream: an open binary stream.
        single: whether it is one file, not a folder of files.
        replace: whether an existing output may be replaced.
        compression: the codec of a text file, from its name.
    """

    format: str
    path: str = ""
    stream: IO[bytes] | None = None
    single: bool = True
    replace: bool = False
    compression: str | None = None

    @property
    def is_device(self) -> bool:
        """Whether the path is a pipe or a device, which cannot be replaced atomically."""
        try:
            mode = os.stat(self.path).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def output_to(path: str, output_format: str | None, *, replace: bool) -> Output:
    """Return the output for a path: one file if it has a file suffix, else a folder.

    Raises:
        InvalidRequestError: the format is unknown, or the path exists and may not be replaced.
        RefusedError: the existing folder is not a scan's output.
        NotFoundError: the folder for the output does not exist.
    """
    if locations.has_scheme(path) or not path:
        raise InvalidRequestError(f"{Option.OUTPUT} must be a path on this machine, not {path!r}")
    chosen, compression = _format_of(path, output_format)
    suffix = os.path.splitext(path)[1]
    output = Output(chosen, path, None, bool(suffix), replace, compression)
    if output.is_device:
        return Output(_stream_format(chosen), path, None, single=True)
    _refuse_existing(output)
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise NotFoundError(
            f"there is no folder {folder} for the output", hint=f"mkdir -p {folder}"
        )
    return output


def output_folder(path: str, output_format: str | None) -> Output:
    """Return the output folder of a continuous scan; it may exist already.

    Raises:
        InvalidRequestError: the path is not one of this machine, or has the name of a file.
    """
    if locations.has_scheme(path) or not path:
        raise InvalidRequestError(f"{Option.OUTPUT} must be a path on this machine, not {path!r}")
    if os.path.splitext(path)[1][1:].lower() in SUFFIXES:
        raise InvalidRequestError(
            f"{Option.OUTPUT} must be a folder, not a file such as {path}",
            hint=f"choose the format of the files in it by {Option.OUTPUT_FORMAT}",
        )
    return Output(output_format or PARQUET, path, single=False)


def output_stream(stream: IO[bytes], output_format: str | None) -> Output:
    """Return an open stream as an output."""
    return Output(_stream_format(output_format or CSV), stream=stream)


def _stream_format(output_format: str) -> str:
    return ARROW_STREAM if output_format == ARROW else output_format


def _format_of(path: str, output_format: str | None) -> tuple[str, str | None]:
    """Return the format and the compression for a file name and an option."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    compression = _COMPRESSED.get(suffix[1:].lower())
    if compression:
        suffix = os.path.splitext(stem)[1]
    by_name = SUFFIXES.get(suffix[1:].lower())
    if output_format is None and by_name is None and (suffix or compression):
        raise InvalidRequestError(
            f"the name of {path} does not show its format",
            hint=f"add {Option.OUTPUT_FORMAT} with one of {', '.join(EXPORT_FORMATS)}",
        )
    requested = output_format or by_name or PARQUET
    # The option arrow means both of Arrow's formats; the file name distinguishes them.
    chosen = ARROW_STREAM if (requested, by_name) == (ARROW, ARROW_STREAM) else requested
    if compression and chosen not in {CSV, TSV, JSON}:
        raise InvalidRequestError(f"{chosen} files cannot be compressed as a whole: {path}")
    return chosen, compression


def _refuse_existing(output: Output) -> None:
    path = output.path
    if not os.path.lexists(path):
        return
    if not output.replace:
        raise InvalidRequestError(
            f"{path} already exists", hint=f"add {Option.REPLACE} to overwrite it"
        )
    if os.path.isdir(path):
        foreign = [name for name in sorted(os.listdir(path)) if not name.startswith(PART)]
        if foreign:
            raise RefusedError(
                f"{path} is not replaced: it contains {foreign[0]}, which was not written by a scan",
                hint="choose a new folder, or remove this one yourself",
            )


def refuse_inside(output: str, table: Table) -> None:
    """Refuse a path to write to, empty for a stream, inside a table's folders.

    Raises:
        RefusedError: the path is in a folder of the table.
    """
    if not output:
        return
    path = os.path.realpath(output)
    for location in {table.metadata.location, table.data_location, table.metadata_folder}:
        folder = locations.parse(location)
        if folder.is_local and f"{path}/".startswith(f"{os.path.realpath(folder.path)}/"):
            raise RefusedError(
                f"{output} is inside the folder of table {table.identifier}",
                hint="choose a path outside the table",
            )


@contextmanager
def opened(output: Output) -> Iterator[Any]:
    """Open a single output for writing; if the block fails, the incomplete file is removed.

    Raises:
        BadInputError: the output cannot be written.
    """
    if output.stream is not None:
        yield output.stream
        output.stream.flush()
    elif output.is_device:
        with _translate_errors(output.path), open(output.path, "wb") as file:
            yield file
    else:
        with replacing(output) as temporary, open(temporary, "wb") as file:
            codec = output.compression
            with pa.CompressedOutputStream(file, codec) if codec else nullcontext(file) as sink:
                yield sink


@contextmanager
def replacing(output: Output) -> Iterator[str]:
    """Yield a temporary name in the output's folder; it replaces the output at the end, or is removed on failure.

    The output survives a power failure afterwards. If it is a folder, the block has flushed the files in it.

    Raises:
        BadInputError: the output cannot be written.
    """
    path = os.path.abspath(output.path)
    temporary, old = beside(path, f".{os.getpid()}.partial"), beside(path, f".{os.getpid()}.old")
    with _translate_errors(output.path):
        try:
            yield temporary
            _refuse_existing(output)
            flush(temporary)
            if os.path.isdir(path) or os.path.isdir(temporary):
                with _moved_away(path, old):
                    os.replace(temporary, path)
            else:
                os.replace(temporary, path)
                flush(os.path.dirname(path))
        finally:
            _remove(temporary)


@contextmanager
def _moved_away(path: str, old: str) -> Iterator[None]:
    """Move an existing output away, and delete it after the block has succeeded; a rename cannot replace it."""
    existed = os.path.lexists(path)
    if existed:
        os.replace(path, old)
    try:
        yield
    except OSError:
        if existed:
            os.replace(old, path)
        raise
    # The old output is deleted only when the new name is on the disk.
    flush(os.path.dirname(path))
    if existed:
        _remove(old)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    """Translate the file system's errors into lake's; errors of the rows already are."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from error
