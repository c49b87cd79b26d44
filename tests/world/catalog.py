"""A catalog in memory: a compare-and-swap of one metadata location per table, as SQL catalogs do it.

Metadata files are real. A commit checks its requirements, writes the new file and then swaps, with a hook
before each part, so that other actors can run in between. Changes of entries have the hooks of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel

from lake.core.maintain.expiration.ref_recovery import AssertNoOtherRefs
from lake.core.table.metadata.commit_marks import marked

LOAD = "load table"
# The mark in the names of the metadata files that commits write.
MARK = "0" * 12
Observer = Callable[[TableMetadata | None, TableMetadata, tuple[Any, ...]], None]
_Names = tuple[str, ...]


class SimCatalog(NoopCatalog):
    """Tables by name.

    Args:
        hook: called before each part, with its name.
        committed: called after each swap with the metadata before and after, and the updates.
        entered: called when an entry is about to be dropped, renamed or registered.
        new_name: returns a text that never repeats.
    """

    def __init__(
        self,
        hook: Callable[[str], None],
        committed: Observer,
        entered: Callable[[], None],
        new_name: Callable[[], str],
    ) -> None:
        super().__init__("lake")
        self._hook = hook
        self._committed = committed
        self._entered = entered
        self._new_name = new_name
        self._current: dict[_Names, str] = {}
        # The newest metadata file of each table that ever was, by UUID.
        self._newest: dict[str, str] = {}
        self._parsed: dict[str, TableMetadata] = {}
        self._versions = 0
        # By thread, the list that receives the metadata files of its commit.
        self._written: dict[int, list[str]] = {}
        self.faults: Callable[[Callable[[], Any]], Any] | None = None
        # Whether it checks those requirements too that no server knows.
        self.knows_every_requirement = True

    def current(self, identifier: Any) -> TableMetadata | None:
        """The current metadata of a table, without a hook."""
        location = self._current.get(self.identifier_to_tuple(identifier))
        return self._parsed[location] if location else None

    def newest(self, uuid: str) -> str:
        """The location of the newest metadata of a table, whether it has an entry or not."""
        return self._newest[uuid]

    def read(self, location: str) -> TableMetadata:
        """The metadata in a file."""
        return self._parsed[location]

    @contextmanager
    def recorded(self, written: list[str]) -> Iterator[None]:
        """Record the metadata files that this thread writes; a race may run a commit inside of another one."""
        outer = self._written.get(get_ident(), [])
        self._written[get_ident()] = written
        try:
            yield
        finally:
            self._written[get_ident()] = outer

    def locations(self) -> list[tuple[str, str]]:
        """The names and metadata files of all tables."""
        self._hook("list tables")
        return [(".".join(names), place) for names, place in self._current.items()]

    def entries(self) -> dict[str, TableMetadata]:
        """The current metadata of all tables by name, without a hook."""
        return {".".join(names): self._parsed[place] for names, place in self._current.items()}

    def saved(self) -> Callable[[], None]:
        """Return a function that restores the current state of the tables."""
        current, newest = dict(self._current), dict(self._newest)

        def restore() -> None:
            self._current, self._newest = dict(current), dict(newest)

        return restore

    def load_table(self, identifier: Any) -> Table:
        self._hook(LOAD)
        names = self.identifier_to_tuple(identifier)
        location = self._current.get(names)
        if location is None:
            raise NoSuchTableError(f"no table {identifier}")
        return self._table(names, location)

    def list_namespaces(self, namespace: Any = ()) -> list[tuple[str, ...]]:
        return [] if namespace else sorted({names[:-1] for names in self._current})

    def list_tables(self, namespace: Any) -> list[tuple[str, ...]]:
        return sorted(names for names in self._current if names[:-1] == tuple(namespace))

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = EMPTY_DICT) -> None:
        pass

    def drop_table(self, identifier: Any) -> None:
        names = self.identifier_to_tuple(identifier)
        self._hook("commit")
        self._require(names)
        self._entered()
        del self._current[names]
        self._hook("swapped")

    def rename_table(self, from_identifier: Any, to_identifier: Any) -> Table:
        names, new = map(self.identifier_to_tuple, (from_identifier, to_identifier))
        self._hook("commit")
        self._require(names)
        self._require_free(new)
        self._entered()
        self._current[new] = self._current.pop(names)
        self._hook("swapped")
        return self._table(new, self._current[new])

    def register_table(self, identifier: Any, metadata_location: str) -> Table:
        names = self.identifier_to_tuple(identifier)
        self._hook("commit")
        self._require_free(names)
        self._entered()
        uuid = str(self._parsed[metadata_location].table_uuid)
        self._current[names] = self._newest[uuid] = metadata_location
        self._hook("swapped")
        return self._table(names, metadata_location)

    def _require(self, names: _Names) -> None:
        if names not in self._current:
            raise NoSuchTableError(f"no table {names}")

    def _require_free(self, names: _Names) -> None:
        if names in self._current:
            raise TableAlreadyExistsError(f"table {names} exists")

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        self._hook("commit")
        faults = self.faults
        if faults is None:
            return self._commit(table.name(), requirements, updates)
        found: CommitTableResponse = faults(
            lambda: self._commit(table.name(), requirements, updates)
        )
        return found

    def _commit(
        self, names: _Names, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        base = self._current.get(names)
        before = self._parsed[base] if base else None
        for requirement in requirements:
            if self.knows_every_requirement or not isinstance(requirement, AssertNoOtherRefs):
                requirement.validate(before)
        after = update_table_metadata(
            base_metadata=before or MetastoreCatalog._empty_table_metadata(),
            updates=updates,
            enforce_validation=before is None,
            metadata_location=base,
        )
        if before is not None and after == before:
            return CommitTableResponse(metadata=before, metadata_location=base)
        location = self._write(after)
        self._hook("swap")
        if self._current.get(names) != base:
            if base is None:
                raise TableAlreadyExistsError(f"table {names} exists")
            raise CommitFailedException("another writer came first")
        after = self._parsed[location]
        self._current[names] = self._newest[str(after.table_uuid)] = location
        self._committed(before, after, updates)
        self._hook("swapped")
        return CommitTableResponse(metadata=after, metadata_location=location)

    def _write(self, metadata: TableMetadata) -> str:
        self._versions += 1
        name = f"{self._versions:05d}-{self._new_name()}.metadata.json"
        location = marked(f"{metadata.location}/metadata/{name}", MARK)
        # PyIceberg refuses to write version 3 by a method of its class.
        text = IcebergBaseModel.model_dump_json(metadata)
        path = Path(location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._written.get(get_ident(), []).append(location)
        # Parsed, as the next reader will read it, not as it was in the writer's memory.
        self._parsed[location] = TableMetadataUtil.parse_raw(text)
        return location

    def _table(self, names: _Names, location: str) -> Table:
        return Table(names, self._parsed[location], location, PyArrowFileIO(), self)
