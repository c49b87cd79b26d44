"""Catalogs that `lake` uses only through PyIceberg: AWS Glue, Hive, DynamoDB, BigQuery and the user's own classes."""

from __future__ import annotations

from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import MetastoreCatalog

from lake.core.table.catalogs import pyiceberg_patches
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
