"""Source rows without a usable key, set aside in a file for people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.errors import CommitUnknownError, InvalidRequestError, LakeError
from lake.core.exports.formats import FORMATS, SUFFIXES, writing
from lake.core.session import Session
from lake.core.storage.storage import Storage
from lake.core.upsert.checksummed_batches import batches_in

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def check_rejects(path: str) -> None:
    """Refuse a path that rejected rows cannot be written to.

    Raises:
        InvalidRequestError: it exists already, or its suffix names no format.
    """
    if locations.has_scheme(path):
        raise InvalidRequestError(f"--rejects is a path on this machine, not {path!r}")
    if os.path.lexists(path):
        raise InvalidRequestError(f"{path} exists already", hint="--rejects names a new file")
    if _format(path) is None:
        raise InvalidRequestError(
            f"the format of {path} cannot be told from its name",
            hint=f"formats: {', '.join(FORMATS)}",
        )


def write_rejects(
    storage: Storage, schema: Schema, claims: Sequence[Mapping[str, Any]], path: str
) -> None:
    """Write what tasks set aside, in the input's order, as one file that is whole or not there."""
    draft = f"{path}.part"
    try:
        with open(draft, "xb") as stream, _removed_unless_renamed(draft):
            with writing(_format(path) or "", stream, schema) as sink:
                for claim in claims:
                    if claim["rejects"]:
                        for batch in batches_in(storage, claim["rejects"]):
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
    """Remove the files below a table's data whose names begin so, however the block ends."""
    try:
        yield
    except BaseException:
        # Before files are removed: a task that still runs would write on.
        session.close()
        raise
    finally:
        _remove(session, table, name)


def _remove(session: Session, table: Table, name: str) -> None:
    try:
        left = table.storage.delete(table.storage.find(table.data_location, name)).failed
    except LakeError as error:
        # How the block ended counts for more.
        session.warn(f"temporary files {name}… could not be looked for: {error.message}")
    else:
        if left:
            session.warn(
                f"{len(left)} temporary files could not be removed, e.g. {next(iter(left))}"
            )


@contextmanager
def removed_on_failure(path: str | None) -> Iterator[None]:
    """Remove a file of rejects when the block fails, unless its commit may have landed.

    It did not exist before: `check_rejects` has refused one that did.
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
