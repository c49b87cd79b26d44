"""Open PyIceberg's catalogs, and tell what went wrong in lake's words."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lake.core import locations
from lake.core.errors import (
    BadInputError,
    CommitConflictError,
    CorruptFileError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    TimedOutError,
)
from lake.core.storage.errors import translate_errors
from lake.core.storage.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import StagedTable
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier

_TIMED_OUT = re.compile(
    r"timed? ?out\b|timeout (?:expired|was reached)|database (?:table )?is locked|throttl"
    r"|could not connect to the endpoint",
    re.IGNORECASE,
)
_UNAUTHORISED = re.compile(
    r"password authentication failed|no password supplied|permission denied|access.?denied"
    r"|role .* (?:does not exist|is not permitted)"
    r"|(?:unable to locate|partial) credentials|sso session|expired.?token|token has expired"
    r"|unrecognized.?client|invalid.?client.?token|signature.?does.?not.?match",
    re.IGNORECASE,
)
# Two processes that are the first in a database both make PyIceberg's tables.
_MADE_MEANWHILE = re.compile(r"already exists|pg_type_typname_nsp_index", re.IGNORECASE)
# PostgreSQL's own client takes its limit for connecting from here; without one it may wait for ever.
_POSTGRES_LIMIT, _POSTGRES_SECONDS = "PGCONNECT_TIMEOUT", "30"
_FIRST_STATEMENTS = {
    # No statement waits for ever behind a transaction that someone left open, unless the user's own address or
    # role says how long.
    "postgresql": (
        "SELECT set_config('lock_timeout', '60s', false) "
        "WHERE current_setting('lock_timeout') = '0'"
    ),
    # A power cut just after a commit must not undo it: an expiry deletes files next.
    "sqlite": "PRAGMA synchronous = EXTRA",
}
# A server that is not there, or not yet; a name that nobody knows is a mistake in the configuration.
_AWAY = re.compile(
    r"connection refused|no route to host|(?:network|host) is unreachable|connection (?:reset|aborted)"
    r"|remote end closed connection|server closed the connection|temporary failure in name resolution",
    re.IGNORECASE,
)
_LOCKED = re.compile(r"database (?:table )?is locked", re.IGNORECASE)
# What the sqlite3 module waits where an address does not say how long.
_SQLITE_SECONDS = 5.0
_PORTS = {"http": 80, "https": 443}
_IN_MEMORY = {None, "", ":memory:"}
_LOOKS = 5
_LONGEST_REASON = 500


def open_handle(name: str, properties: Mapping[str, Any]) -> Catalog:
    """Open a catalog as PyIceberg does, bounded in time and in whom it trusts."""
    from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType, load_catalog  # noqa: PLC0415

    from lake.core.catalogs.trust import ignore_table_storage_properties  # noqa: PLC0415

    def bounded(name: str, properties: Mapping[str, Any]) -> Catalog:
        from lake.core.catalogs.rest import BoundedRestCatalog  # noqa: PLC0415 - only when one is wanted

        return BoundedRestCatalog(name, **properties)

    AVAILABLE_CATALOGS[CatalogType.REST] = bounded
    os.environ.setdefault(_POSTGRES_LIMIT, _POSTGRES_SECONDS)
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    with catalog_errors(f"catalog {name}"):
        _wait_for_database(str(properties.get("uri", "")))
        try:
            handle = load_catalog(name, **properties)
        except _database_errors() as error:
            if not _MADE_MEANWHILE.search(str(error)):
                raise
            handle = load_catalog(name, **properties)
    ignore_table_storage_properties(handle)
    if getattr(handle, "engine", None) is not None:
        _prepare_connections(handle.engine)  # type: ignore[attr-defined]
    return handle


def _wait_for_database(uri: str) -> None:
    """Wait while another process holds a SQLite database, for as long as its address says.

    PyIceberg takes a database that it cannot read for an empty one, and would wait again to fill it.

    Raises:
        TimedOutError: the other process held it all that time.
    """
    if not uri.startswith("sqlite"):
        return
    from sqlalchemy import make_url  # noqa: PLC0415 - only SQL catalogs need it

    address = make_url(uri)
    path = address.database
    if path in _IN_MEMORY or not os.path.exists(str(path)):
        return
    seconds = float(str(address.query.get("timeout", _SQLITE_SECONDS)))
    try:
        with closing(sqlite3.connect(str(path), timeout=seconds)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        # What else is wrong with it is found when it is opened.
        if refusal := locked_error(error, path):
            raise refusal from error


def locked_error(error: BaseException, database: str | None) -> TimedOutError | None:
    """Return the error for a SQLite database that another process holds; None for any other error.

    Args:
        error: what was raised.
        database: the database's file; None where the catalog has no such file.
    """
    if database is None or not _LOCKED.search(str(error)):
        return None
    return TimedOutError(
        f"the database {database} is locked by another process",
        hint="end the process that holds it, or run the command again when it has ended",
    )


def _prepare_connections(engine: Any) -> None:
    """Let every connection of a catalog's begin as the database needs it."""
    from sqlalchemy import event  # noqa: PLC0415 - only SQL catalogs have an engine

    statement = _FIRST_STATEMENTS.get(engine.dialect.name)
    if statement is None or engine.url.database in _IN_MEMORY:
        return

    def prepare(connection: Any, _record: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement)
        connection.commit()

    event.listen(engine, "connect", prepare)
    # The connection that opening made does without.
    engine.dispose()


def retry_missing_metadata(handle: Catalog) -> None:
    """Let a catalog that reads metadata files in this process look up a table anew whose file is gone by then."""
    if not hasattr(handle, "_write_metadata"):
        return
    load = handle.load_table

    def loading(identifier: str | Identifier) -> IcebergTable:
        for _ in range(_LOOKS - 1):
            with suppress(FileNotFoundError):
                return load(identifier)
        return load(identifier)

    vars(handle)["load_table"] = loading


def is_view(handle: Catalog, names: tuple[str, ...]) -> bool:
    """Whether a catalog says that a name is a view's; False where it does not say."""
    from pyiceberg.exceptions import RESTError  # noqa: PLC0415

    if getattr(handle, "engine", None) is not None:
        return _is_view_in_database(handle, names)
    try:
        return handle.view_exists(names)
    except (NotImplementedError, RESTError):
        # Catalogs need not have views, nor let everybody ask for them.
        return False


def _is_view_in_database(handle: Any, names: tuple[str, ...]) -> bool:
    """Look for a row of another kind than a table's; PyIceberg leaves them out.

    Source: the column iceberg_type of Iceberg's JdbcCatalog, which databases without views may lack.
    """
    from pyiceberg.catalog.sql import IcebergTables  # noqa: PLC0415
    from sqlalchemy import inspect, select  # noqa: PLC0415

    table = IcebergTables.__tablename__
    columns = {column["name"] for column in inspect(handle.engine).get_columns(table)}
    kind = IcebergTables.iceberg_type
    if kind.name not in columns:
        return False
    found = select(kind).where(
        IcebergTables.catalog_name == handle.name,
        IcebergTables.table_namespace == ".".join(names[:-1]),
        IcebergTables.table_name == names[-1],
    )
    with handle.engine.connect() as connection:
        return bool(connection.scalar(found) == "VIEW")


def refuse_truncated_name(location: str) -> None:
    """Refuse a table's folder, or file, whose name PyIceberg cuts when it writes metadata files.

    Raises:
        RefusedError: it would write to, and delete, what another name means.
    """
    if locations.is_truncated(location):
        raise RefusedError(
            f"PyIceberg takes the name of {location} for another one's",
            hint="let the table lie where no name holds a #, a ? or control characters",
        )


def settle_metadata(handle: Catalog, now_ms: Callable[[], int]) -> None:
    """Let a catalog that makes metadata in this process keep its times in order and what it does not know."""
    stage = getattr(handle, "_update_and_stage_table", None)
    if stage is None:
        return
    from lake.core.metadata.snapshot_updates import settled  # noqa: PLC0415 - loaded with a catalog only

    def staging(
        current_table: IcebergTable | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        staged: StagedTable = stage(current_table, table_identifier, requirements, updates)
        before = current_table.metadata if current_table else None
        staged.metadata = settled(before, staged.metadata, updates, now_ms())
        return staged

    vars(handle)["_update_and_stage_table"] = staging


def record_metadata(handle: Catalog, written: list[str]) -> None:
    """Let a catalog that writes metadata files in this process note where it does, and make them durable."""
    write = getattr(handle, "_write_metadata", None)
    if write is None:
        return

    def recording(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        refuse_truncated_name(metadata_path)
        written.append(metadata_path)
        try:
            with translate_errors(metadata_path):
                write(metadata, io, metadata_path)
            # The swap that follows is durable: what it points to must be before.
            Storage().persist(metadata_path)
        except (LakeError, OSError):
            # There is no swap without it: the commit certainly did not happen.
            with suppress(OSError):
                io.delete(metadata_path)
            raise

    vars(handle)["_write_metadata"] = recording


@contextmanager
def catalog_errors(what: str, *, database: str | None = None) -> Iterator[None]:
    """Turn PyIceberg's errors on anything but a commit into lake's.

    Args:
        what: what is opened, for messages.
        database: the file of a catalog on SQLite.
    """
    from pydantic import ValidationError  # noqa: PLC0415
    from pyiceberg import exceptions as theirs  # noqa: PLC0415

    try:
        yield
    except LakeError:
        raise
    except (
        theirs.NoSuchTableError,
        theirs.NoSuchNamespaceError,
        theirs.NoSuchIcebergTableError,
    ) as error:
        raise NotFoundError(f"{what} does not exist") from error
    except theirs.TableAlreadyExistsError as error:
        raise CommitConflictError(f"{what} was made by someone else meanwhile") from error
    except (
        theirs.UnauthorizedError,
        theirs.ForbiddenError,
        theirs.AuthorizationExpiredError,
        theirs.OAuthError,
        PermissionError,
    ) as error:
        raise NotAuthorisedError(f"not allowed to open {what}") from error
    except FileNotFoundError as error:
        raise CorruptFileError(f"the metadata file of {what} is missing") from error
    except (ValidationError, UnicodeDecodeError, theirs.ValidationError) as error:
        raise CorruptFileError(
            f"the metadata of {what} cannot be read: {first_line(error)}"
        ) from error
    except (theirs.ServiceUnavailableError, theirs.TooManyRequestsError) as error:
        raise TimedOutError(
            f"the catalog is too busy to open {what}: {first_line(error)}",
            hint="run the command again",
        ) from error
    except (ModuleNotFoundError, theirs.NotInstalledError) as error:
        raise BadInputError(
            f"{what} needs a Python module that is not installed: {first_line(error)}",
            hint="install it into lake's environment, e.g. pip install psycopg2-binary",
        ) from error
    except Exception as error:
        known = (theirs.RESTError, theirs.NoSuchPropertyException, ValueError, OSError)
        if isinstance(error, (*known, *_database_errors(), *_aws_errors())):
            if refusal := locked_error(error, database):
                raise refusal from error
            raise _told(error, what) from error
        raise


def _database_errors() -> tuple[type[Exception], ...]:
    """Return the errors of SQL catalogs, if one was opened."""
    module = sys.modules.get("sqlalchemy.exc")
    return (module.SQLAlchemyError,) if module else ()


def _aws_errors() -> tuple[type[Exception], ...]:
    """Return the errors of catalogs on AWS, if one was opened."""
    module = sys.modules.get("botocore.exceptions")
    return (module.BotoCoreError, module.ClientError) if module else ()


def _told(error: BaseException, what: str) -> LakeError:
    text = str(error)
    away = _AWAY.search(text)
    if away:
        return TimedOutError(
            f"cannot open {what}: {_place(error, away[0].lower())}",
            hint="check that the server runs at this address, then run the command again",
        )
    if isinstance(error, TimeoutError) or _TIMED_OUT.search(text):
        return TimedOutError(f"opening {what} took too long: {first_line(error)}")
    if _UNAUTHORISED.search(text):
        return NotAuthorisedError(f"not allowed to open {what}: {first_line(error)}")
    return BadInputError(f"cannot open {what}: {first_line(error)}")


def _place(error: BaseException, reason: str) -> str:
    """Return a server's host and port with the reason why it is away, as far as the error has them."""
    if hasattr(error, "orig"):
        # A database's client names both itself, in several lines.
        return " ".join(str(error.orig).split())[:_LONGEST_REASON]
    url = getattr(getattr(error, "request", None), "url", None)
    if url is None:
        return first_line(error)
    address = urlsplit(str(url))
    port = address.port or _PORTS.get(address.scheme)
    return f"{address.hostname}, port {port}: {reason}"


def first_line(error: BaseException) -> str:
    """Return the start of an error's text: enough to recognise it, too little to spill a response."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:200]
