"""Where a scan's rows go: a local file, a folder of files, or a stream; whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.errors import BadInputError, InvalidRequestError, RefusedError
from lake.core.exports.formats import ARROW, ARROW_STREAM, CSV, FORMATS, JSON, PARQUET, SUFFIXES

PART = "part-"
_COMPRESSED = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}


@dataclass(frozen=True, slots=True)
class Output:
    """Where rows go.

    Args:
        format: of the rows.
        path: a local path; None with ``stream``.
        stream: an open binary stream.
        single: one file rather than a folder of files.
        replace: an existing one may go.
        compression: codec of a text file, as its name says.
    """

    format: str
    path: str = ""
    stream: IO[bytes] | None = None
    single: bool = True
    replace: bool = False
    compression: str | None = None

    @property
    def is_device(self) -> bool:
        """Whether the path is a pipe or a device, which takes bytes as they come."""
        try:
            mode = os.stat(self.path).st_mode
        except OSError:
            return False
        return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def output_to(path: str, format_name: str | None, *, replace: bool) -> Output:
    """Decide what a path means: with a file suffix one file, else a folder.

    Raises:
        InvalidRequestError: the format cannot be told, or the path exists and may not go.
        RefusedError: what it would replace is not a scan's output.
    """
    if locations.has_scheme(path) or not path:
        raise InvalidRequestError(f"--output is a path on this machine, not {path!r}")
    chosen, compression = _format_of(path, format_name)
    suffix = os.path.splitext(path)[1]
    output = Output(chosen, path, None, bool(suffix), replace, compression)
    if output.is_device:
        return Output(_streamed(chosen), path, None, single=True)
    _refuse_existing(output)
    return output


def output_stream(stream: IO[bytes], format_name: str | None) -> Output:
    """Return an open stream as an output."""
    return Output(_streamed(format_name or CSV), stream=stream)


def _streamed(format_name: str) -> str:
    return ARROW_STREAM if format_name == ARROW else format_name


def _format_of(path: str, format_name: str | None) -> tuple[str, str | None]:
    """Return the format and the compression that a name and an option mean."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    compression = _COMPRESSED.get(suffix[1:].lower())
    if compression:
        suffix = os.path.splitext(stem)[1]
    by_name = SUFFIXES.get(suffix[1:].lower())
    if format_name is None and by_name is None and (suffix or compression):
        raise InvalidRequestError(
            f"the format of {path} cannot be told from its name",
            hint=f"--output-format is one of {', '.join(FORMATS)}",
        )
    wanted = format_name or by_name or PARQUET
    # The option says arrow for both of Arrow's forms; the name tells them apart.
    chosen = ARROW_STREAM if (wanted, by_name) == (ARROW, ARROW_STREAM) else wanted
    if compression and chosen not in {CSV, JSON}:
        raise InvalidRequestError(f"{chosen} files are not compressed as a whole: {path}")
    return chosen, compression


def _refuse_existing(output: Output) -> None:
    path = output.path
    if not os.path.lexists(path):
        return
    if not output.replace:
        raise InvalidRequestError(f"{path} exists already", hint="--replace overwrites it")
    if os.path.isdir(path):
        strange = [name for name in sorted(os.listdir(path)) if not name.startswith(PART)]
        if strange:
            raise RefusedError(
                f"{path} is not replaced: it holds {strange[0]}, which no scan wrote",
                hint="name a new folder, or remove this one yourself",
            )


def refuse_inside(output: Output, table: Table) -> None:
    """Refuse to write among a table's own files.

    Raises:
        RefusedError: the output lies in the table's folder.
    """
    if not output.path:
        return
    path = os.path.realpath(output.path)
    for location in {table.metadata.location, table.data_location, table.metadata_folder}:
        folder = locations.parse(location)
        if folder.is_local and f"{path}/".startswith(f"{os.path.realpath(folder.path)}/"):
            raise RefusedError(f"{output.path} lies in the folder of {table.identifier}")


@contextmanager
def opened(output: Output) -> Iterator[Any]:
    """Open a single output for writing; when the block fails, nothing of it is left behind.

    Raises:
        BadInputError: it cannot be written.
    """
    if output.stream is not None:
        yield output.stream
        output.stream.flush()
    elif output.is_device:
        with _told(output.path), open(output.path, "wb") as file:
            yield file
    else:
        with replacing(output) as temporary, open(temporary, "wb") as file:
            codec = output.compression
            with pa.CompressedOutputStream(file, codec) if codec else nullcontext(file) as sink:
                yield sink


@contextmanager
def replacing(output: Output) -> Iterator[str]:
    """Give a temporary name beside the output that takes its place at the end, or vanishes.

    Raises:
        BadInputError: it cannot be written.
    """
    path = os.path.abspath(output.path)
    temporary, old = f"{path}.{os.getpid()}.partial", f"{path}.{os.getpid()}.old"
    with _told(output.path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            yield temporary
            _refuse_existing(output)
            if os.path.isdir(path) or os.path.isdir(temporary):
                with _aside(path, old):
                    os.replace(temporary, path)
            else:
                os.replace(temporary, path)
        finally:
            _remove(temporary)


@contextmanager
def _aside(path: str, old: str) -> Iterator[None]:
    """Keep what a folder cannot simply take the place of, until the block has succeeded."""
    if not os.path.lexists(path):
        yield
        return
    os.replace(path, old)
    try:
        yield
    except OSError:
        os.replace(old, path)
        raise
    _remove(old)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Turn the file system's errors into lake's; the rows' own errors are lake's already."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInputError(f"cannot write {path}: {error.strerror or error}") from error
