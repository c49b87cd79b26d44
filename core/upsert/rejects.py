"""Write source rows without a usable key to a file of rejects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.errors import CommitUnknownError, InvalidRequestError, LakeError
from lake.core.exports.formats import FORMATS, SUFFIXES, writing
from lake.core.options import Option
from lake.core.session import Session
from lake.core.storage.storage import Storage
from lake.core.upsert.checksummed_batches import batches_in

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def check_rejects(path: str) -> None:
    """Refuse a path that rejected rows cannot be written to.

    Raises:
        InvalidRequestError: the path already exists, or its suffix is not a known format.
    """
    if locations.has_scheme(path):
        raise InvalidRequestError(f"{Option.REJECTS} must be a path on this machine, not {path!r}")
    if os.path.lexists(path):
        raise InvalidRequestError(
            f"{path} already exists", hint=f"choose a new file for {Option.REJECTS}"
        )
    if _format(path) is None:
        raise InvalidRequestError(
            f"the name of {path} does not show its format",
            hint=f"use the suffix of one of these formats: {', '.join(FORMATS)}",
        )


def write_rejects(storage: Storage, schema: Schema, rejects: Sequence[str], path: str) -> None:
    """Write the rows in the tasks' files of rejects to one file, in order; it appears only when complete."""
    draft = f"{path}.part"
    try:
        with open(draft, "xb") as stream, _removed_unless_renamed(draft):
            with writing(_format(path) or "", stream, schema) as sink:
                for rejected in rejects:
                    for batch in batches_in(storage, rejected):
                        sink.write(batch)
            os.replace(draft, path)
    except OSError as error:
        raise InvalidRequestError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def _removed_unless_renamed(draft: str) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


@contextmanager
def temporary_files(session: Session, table: Table, name: str) -> Iterator[None]:
    """Remove the files below a table's data whose names contain ``name``, even if the block fails."""
    try:
        yield
    except BaseException:
        # Close the engine first: a task that still runs would continue to write.
        session.close()
        raise
    finally:
        _remove(session, table, name)


def _remove(session: Session, table: Table, name: str) -> None:
    try:
        failed = table.storage.delete(table.storage.find(table.data_location, name)).failed
    except LakeError as error:
        # An error of the block itself must not be replaced by this one.
        session.warn(f"temporary files {name}… could not be removed: {error.message}")
    else:
        if failed:
            session.warn(
                f"{len(failed)} temporary files could not be removed, e.g. {next(iter(failed))}"
            )


@contextmanager
def removed_on_failure(path: str | None) -> Iterator[None]:
    """Remove the file of rejects if the block fails, unless its commit may have succeeded.

    The file did not exist before: `check_rejects` refuses an existing one.
    """
    try:
        yield
    except CommitUnknownError:
        raise
    except BaseException:
        if path is not None:
            with suppress(FileNotFoundError):
                os.unlink(path)
        raise


def _format(path: str) -> str | None:
    return SUFFIXES.get(os.path.splitext(path)[1][1:].lower())
