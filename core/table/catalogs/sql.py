"""Catalogs in a database (SQLite, PostgreSQL), and the SQLite catalog that lake creates in a warehouse folder."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from sqlalchemy import (
    ColumnElement,
    Engine,
    bindparam,
    delete,
    event,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from lake.core.base.clock import Clock, Ids
from lake.core.base.errors import (
    CorruptFileError,
    NotFoundError,
    RefusedError,
    did_you_mean,
)
from lake.core.base.options import Option
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.catalog import Table, split_identifier
from lake.core.table.catalogs.errors import catalog_errors, locked_error
from lake.core.table.catalogs.pyiceberg_catalog import PyIcebergBackend
from lake.core.table.catalogs.shared_locations import EMBEDDED_DATABASE
from lake.core.table.metadata.commit_marks import mark_of
from lake.core.table.metadata.files import VERSION_HINT

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata

_SQLITE = "sqlite:"
_SQLITE_WAIT_SECONDS = 60
# The default of the sqlite3 module, for an address without a timeout.
_SQLITE_SECONDS = 5.0
# The maximum number of rows that are searched for similar names.
_MOST_NAMES = 10_000
_IN_MEMORY = {None, "", ":memory:"}
# If two processes open a new database at the same time, both create PyIceberg's tables.
_CREATED_CONCURRENTLY = re.compile(r"already exists|pg_type_typname_nsp_index", re.IGNORECASE)
# PostgreSQL's client library reads its connection timeout from this variable; without it, it may wait forever.
_POSTGRES_LIMIT, _POSTGRES_SECONDS = "PGCONNECT_TIMEOUT", "30"
_FIRST_STATEMENTS = {
    # A statement does not wait forever for an open transaction. A limit of the user's address or role is kept.
    "postgresql": (
        "SELECT set_config('lock_timeout', '60s', false) "
        "WHERE current_setting('lock_timeout') = '0'"
    ),
    # A power failure just after a commit must not undo the commit: an expiration deletes files next.
    "sqlite": "PRAGMA synchronous = EXTRA",
}
_IN_FOLDERS = f"its folder contains a hadoop catalog's table: use {Option.CATALOG_TYPE} hadoop"


class SqlBackend(PyIcebergBackend):
    """A catalog in a database."""

    @property
    def is_served(self) -> bool:
        """Whether commits are sent to a server, which may apply one after the sending process has ended."""
        return not self._address.startswith(_SQLITE)

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""
        return True

    @property
    def database(self) -> str | None:
        """The file of a catalog in SQLite; None for any other catalog."""
        if not self._address.startswith(_SQLITE):
            return None
        return self._address.removeprefix(f"{_SQLITE}///").partition("?")[0]

    @property
    def _address(self) -> str:
        return str(self.configured.get("uri", ""))

    @property
    def _sql(self) -> SqlCatalog:
        return cast("SqlCatalog", self.handle)

    def metadata_locations(self) -> list[tuple[str, str]]:
        """Return names and metadata files of all tables in the database."""
        columns = (
            IcebergTables.catalog_name,
            IcebergTables.table_namespace,
            IcebergTables.table_name,
            IcebergTables.metadata_location,
        )
        engine = self._sql.engine
        with catalog_errors(f"catalog {self.name}", self), engine.connect() as connection:
            rows = connection.execute(select(*columns)).all()
        return [
            (f"{space}.{name}" if catalog == self.name else f"{space}.{name} of {catalog}", place)
            for catalog, space, name, place in rows
            if place and isinstance(place, str)
        ]

    def register(self, identifier: str, metadata_location: str) -> None:
        """Add an entry; one whose metadata file is missing or cannot be read gets the other file.

        PyIceberg's exceptions are not translated.
        """
        broken = dict(self.metadata_locations()).get(identifier)
        if broken is None or self._can_be_read(identifier):
            super().register(identifier, metadata_location)
            return
        entry = (
            update(IcebergTables)
            .where(
                *self._named(split_identifier(identifier)),
                IcebergTables.metadata_location == broken,
            )
            .values(metadata_location=metadata_location, previous_metadata_location=broken)
        )
        with self._sql.engine.begin() as connection:
            changed = connection.execute(entry).rowcount
        if changed != 1:
            raise CommitFailedException(f"{identifier} has another metadata file now")

    def _can_be_read(self, identifier: str) -> bool:
        try:
            self._load(identifier)
        except CorruptFileError:
            return False
        return True

    def drop(self, table: Table) -> None:
        """Remove a table's entry, if it still has the table's metadata file; see `Catalog.drop`."""
        names = split_identifier(table.identifier)
        entry = delete(IcebergTables).where(
            *self._named(names),
            IcebergTables.metadata_location == table.metadata_location,  # check: drop-of-same-table
        )
        with self._sql.engine.begin() as connection:
            removed = connection.execute(entry).rowcount
        if removed == 1:
            return
        if self.handle.table_exists(names):
            raise CommitFailedException(f"{table.identifier} has another metadata file now")
        raise NoSuchTableError(f"{table.identifier} does not exist")

    @property
    def place(self) -> str:
        """Where the catalog is, for messages."""
        address = make_url(self._address)
        return self.database or f"{address.host}/{address.database}"

    def _no_table(self, identifier: str) -> NotFoundError:
        """Return the error for a missing table, with the catalogs that contain the table, or a similar name.

        A database may contain the tables of several catalogs, which differ in the catalog's name.
        """
        error = super()._no_table(identifier)
        names = IcebergTables.catalog_name, IcebergTables.table_namespace, IcebergTables.table_name
        with catalog_errors(f"catalog {self.name}", self), self._sql.engine.connect() as connection:
            found = connection.execute(select(*names).limit(_MOST_NAMES)).all()
        # SQLite keeps any value in any column.
        rows = [row for row in found if all(isinstance(part, str) for part in row)]
        own = [f"{space}.{name}" for catalog, space, name in rows if catalog == self.name]
        having = {catalog for catalog, *names in rows if ".".join(names) == identifier}
        others = having or ({catalog for catalog, *_ in rows} if not own else set())
        if others:
            what = f"table {identifier}" if having else "tables"
            return NotFoundError(
                f"{error.message}; this database contains {what} of catalog {', '.join(sorted(others))}",
                hint=self._hint_to_rename(sorted(others)[0]),
            )
        error.hint = did_you_mean(identifier, own) or error.hint
        return error

    def _hint_to_rename(self, other: str) -> str:
        """Return how to open the tables of another catalog in the same database."""
        return f"use the name {other} for this catalog in PyIceberg's configuration"

    def _named(self, names: tuple[str, ...]) -> tuple[ColumnElement[bool], ...]:
        """Return the conditions for the entry of a table or a view."""
        return (
            IcebergTables.catalog_name == self.name,
            IcebergTables.table_namespace == ".".join(names[:-1]),
            IcebergTables.table_name == names[-1],
        )

    def _open(self) -> PyIcebergCatalog:
        os.environ.setdefault(_POSTGRES_LIMIT, _POSTGRES_SECONDS)
        with catalog_errors(f"catalog {self.name}", self):
            _wait_for_database(self._address)
            try:
                handle = self._load_catalog()
            except SQLAlchemyError as error:
                if not _CREATED_CONCURRENTLY.search(str(error)):
                    raise
                handle = self._load_catalog()
        opened = cast("SqlCatalog", handle)
        pyiceberg_patches.ignore_table_storage_properties(opened)
        _check_locations(opened)
        _load_by_one_statement(opened)
        _prepare_connections(opened.engine)
        pyiceberg_patches.build_metadata(
            opened,
            self._now_ms,
            self._record,
            lambda: mark_of(self.name, self.configured, self.database),
        )
        return opened

    def _is_view(self, names: tuple[str, ...]) -> bool:
        """Whether a name is that of a view. PyIceberg reads the rows of tables only.

        Source: the column iceberg_type of Iceberg's JdbcCatalog, which databases without views may not have.
        """
        engine = self._sql.engine
        table = IcebergTables.__tablename__
        columns = {column["name"] for column in inspect(engine).get_columns(table)}
        kind = IcebergTables.iceberg_type
        if kind.name not in columns:
            return False
        found = select(kind).where(*self._named(names))
        with engine.connect() as connection:
            return bool(connection.scalar(found) == "VIEW")


class EmbeddedBackend(SqlBackend):
    """The catalog that lake creates in a warehouse folder; reading does not create it.

    Args:
        name: the catalog's name.
        folder: the warehouse's absolute path.
        clock: see `PyIcebergBackend`.
        ids: see `PyIcebergBackend`.
    """

    def __init__(
        self, name: str, folder: str, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        self._folder = folder
        self._file = os.path.join(folder, EMBEDDED_DATABASE)
        properties = {
            "type": "sql",
            "uri": f"{_SQLITE}///{self._file}?timeout={_SQLITE_WAIT_SECONDS}",
            "warehouse": f"file://{folder}",
        }
        super().__init__(name, properties, clock, ids)

    def _open(self) -> PyIcebergCatalog:
        os.makedirs(self._folder, exist_ok=True)
        return super()._open()

    def load(self, identifier: str) -> Table:
        """Load a table by ``namespace.table``.

        Raises:
            NotFoundError: the table or the catalog does not exist.
            NotATableError: the name is that of a view.
            RefusedError: the table has a feature that lake does not support.
        """
        if not os.path.exists(self._file):
            raise self._no_table(identifier)
        return super().load(identifier)

    def refuse_commits(self, identifier: str, metadata: TableMetadata | None = None) -> None:
        """Refuse to create a table in the folder of a hadoop catalog's table; see `Catalog.refuse_commits`.

        Raises:
            RefusedError: the folder contains such a table, or the catalog cannot commit to the table.
        """
        if metadata is None and self._is_in_folders(identifier):
            raise RefusedError(f"{identifier} is a table of a hadoop catalog", hint=_IN_FOLDERS)
        super().refuse_commits(identifier, metadata)

    # A warehouse that does not exist yet is created with the commit, not earlier.
    _begin = PyIcebergBackend.describe

    def _no_table(self, identifier: str) -> NotFoundError:
        if self._is_in_folders(identifier):
            error = NotFoundError(f"table {identifier} does not exist in {self._file}")
            error.hint = _IN_FOLDERS
            return error
        if not os.path.isdir(self._folder):
            return NotFoundError(
                f"table {identifier} does not exist: there is no folder {self._folder}",
                hint=f"check {Option.WAREHOUSE}, or choose a configured catalog with {Option.CATALOG}",
            )
        if not os.path.exists(self._file):
            return NotFoundError(
                f"table {identifier} does not exist: {self._folder} contains no catalog (catalog.db)",
                hint=f"check {Option.WAREHOUSE}; for a folder of Flink's or Spark's HadoopCatalog, add "
                f"{Option.CATALOG_TYPE} hadoop",
            )
        return super()._no_table(identifier)

    def _hint_to_rename(self, other: str) -> str:
        return f"add {Option.CATALOG} {other}"

    def _is_in_folders(self, identifier: str) -> bool:
        """Whether the folder of a table in this warehouse contains a hadoop catalog's table."""
        folder = os.path.join(self._folder, *split_identifier(identifier))
        return os.path.exists(os.path.join(folder, "metadata", VERSION_HINT))


def _wait_for_database(uri: str) -> None:
    """Wait until no other process locks a SQLite database, up to the timeout in its address.

    PyIceberg treats a database that it cannot read as an empty one, and would wait again to create its tables.

    Raises:
        TimedOutError: another process held the lock for the whole time.
    """
    if not uri.startswith("sqlite"):
        return
    address = make_url(uri)
    path = address.database
    if path in _IN_MEMORY or not os.path.exists(str(path)):
        return
    seconds = float(str(address.query.get("timeout", _SQLITE_SECONDS)))
    try:
        with closing(sqlite3.connect(str(path), timeout=seconds)) as connection:
            connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        # Any other problem is reported when the catalog is opened.
        if refusal := locked_error(error, path):
            raise refusal from error


def _check_locations(catalog: SqlCatalog) -> None:
    """Refuse rows whose location of metadata is not a text: SQLite keeps any value in any column."""

    def checked(row: IcebergTables) -> IcebergTable:
        place: object = row.metadata_location
        if place is not None and not isinstance(place, str):
            raise CorruptFileError(
                f"the catalog contains {str(place)[:40]!r} as the metadata file of "
                f"{row.table_namespace}.{row.table_name}, which is not a text"
            )
        return type(catalog)._convert_orm_to_iceberg(catalog, row)  # noqa: SLF001

    # Every read of a row goes through this method.
    catalog._convert_orm_to_iceberg = checked  # type: ignore[method-assign, assignment]  # noqa: SLF001


def _load_by_one_statement(catalog: SqlCatalog) -> None:
    """Load tables by a statement that is built once: to build PyIceberg's for each load takes most of its time."""
    entries = IcebergTables.__table__
    named = select(
        entries.c.table_namespace, entries.c.table_name, entries.c.metadata_location
    ).where(
        entries.c.catalog_name == catalog.name,
        entries.c.table_namespace == bindparam("space"),
        entries.c.table_name == bindparam("name"),
    )
    is_table = catalog._iceberg_type_filter()  # noqa: SLF001
    statement = named if is_table is None else named.where(is_table)

    def load(identifier: str | tuple[str, ...]) -> IcebergTable:
        *spaces, name = catalog.identifier_to_tuple(identifier)
        space = ".".join(spaces)
        with catalog.engine.connect() as connection:
            entry = connection.execute(statement, {"space": space, "name": name}).first()
        if entry is None:
            raise NoSuchTableError(f"Table does not exist: {space}.{name}")
        return catalog._convert_orm_to_iceberg(entry)  # type: ignore[arg-type]  # noqa: SLF001

    catalog.load_table = load  # type: ignore[method-assign]


def _prepare_connections(engine: Engine) -> None:
    """Run the statement that a database needs at the start of each connection."""
    statement = _FIRST_STATEMENTS.get(engine.dialect.name)
    if statement is None or engine.url.database in _IN_MEMORY:
        return

    def prepare(connection: Any, _record: Any) -> None:
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement)
        connection.commit()

    event.listen(engine, "connect", prepare)
    # The connection that was made when the catalog was opened is not prepared.
    engine.dispose()
