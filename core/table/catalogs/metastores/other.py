"""Catalogs whose metadata files are written here: AWS Glue, Hive, DynamoDB, BigQuery and the user's own classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.table.update import TableRequirement, TableUpdate

from lake.core.base.clock import Clock
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.catalog import CommitResult, Table
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.pyiceberg_catalog import PyIcebergBackend
from lake.core.table.metadata.commit_marks import mark_of


class OtherBackend(PyIcebergBackend):
    """A catalog of any other type."""

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""
        return isinstance(self.handle, MetastoreCatalog)

    def _open(self) -> PyIcebergCatalog:
        with catalog_errors(f"catalog {self.name}", self):
            handle = self._load_catalog()
        pyiceberg_patches.ignore_table_storage_properties(handle)
        if isinstance(handle, MetastoreCatalog):
            pyiceberg_patches.build_metadata(
                handle,
                self._now_ms,
                self._record,
                lambda: mark_of(self.name, self.configured, self.database),
            )
        return handle


class ServiceBackend(OtherBackend):
    """A catalog with a service whose errors are known, so that few outcomes of commits are unknown."""

    # The base classes of the errors of the service and of its client.
    errors: tuple[type[Exception], ...]

    def refusal(self, error: Exception) -> Exception | None:
        """Return PyIceberg's exception for an answer after which a change certainly was not made; None for others."""
        raise NotImplementedError

    def send(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        clock: Clock,
    ) -> CommitResult:
        """Commit one atomic change; see `Catalog.send`.

        Raises:
            LakeError: the service failed before the metadata file was written, so nothing was sent.
        """
        with self._refusals():
            try:
                return super().send(table, requirements, updates, clock)
            except self.errors:
                if not self.written_metadata:
                    with catalog_errors(f"table {table.identifier}", self):
                        raise
                raise

    def drop(self, table: Table) -> None:
        """Remove a table's entry, if it has the table's metadata file; see `Catalog.drop`."""
        with self._refusals():
            cast("Any", self.handle).drop_same(table)

    def rename(self, identifier: str, name: str) -> None:
        """Give a table another name; see `Catalog.rename`."""
        with self._refusals():
            super().rename(identifier, name)

    def register(self, identifier: str, metadata_location: str) -> None:
        """Add an entry for a table; see `Catalog.register`."""
        with self._refusals():
            super().register(identifier, metadata_location)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except self.errors as error:
            if refusal := self.refusal(error):
                raise refusal from error
            raise
