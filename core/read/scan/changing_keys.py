"""The keys of a scan's partners for scans that are planned again and again: read when their source has changed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from lake.core.read.scan.partner_keys import KeyOptions, partner_keys, source_version

if TYPE_CHECKING:
    from collections.abc import Hashable

    from pyiceberg.schema import Schema

    from lake.core.read.scan.scan_keys import ScanKeys
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


class ChangingKeys:
    """The keys of the partners, as they are when a scan is planned. Close it at the end."""

    def __init__(self, session: Session, options: KeyOptions) -> None:
        self._session = session
        self._options = options
        self._open = ExitStack()
        self._read: tuple[Hashable, ScanKeys] | None = None

    def at_present(self, table: Table, schema: Schema) -> ScanKeys:
        """Return the keys. They can be used until the next call that reads them.

        Files are read in each call, because they have no snapshot that shows whether they changed.

        Raises:
            LakeError: as `partner_keys` does.
        """
        source = source_version(self._session, self._options)
        version = None if source is None else (source, schema)
        if self._read is None or version is None or self._read[0] != version:
            self.close()
            keys = partner_keys(self._session, table, schema, self._options)
            self._read = version, self._open.enter_context(keys)
        return self._read[1]

    def close(self) -> None:
        """Remove the temporary file of the keys."""
        self._read = None
        self._open.close()
