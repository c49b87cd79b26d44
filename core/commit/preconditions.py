"""What must hold of a table before anything is written for a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lake.core.avro.codecs import codec_of_manifests
from lake.core.metadata.format_upgrades import refuse_encrypted
from lake.core.properties.table_properties import COMMITTING, check

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table


def check_commits(properties: Mapping[str, str]) -> None:
    """Check the properties that commits depend on.

    Raises:
        InvalidRequestError: a property has a value that is not allowed.
    """
    check(properties, COMMITTING)
    codec_of_manifests(properties)


def require_writable(table: Table) -> None:
    """Refuse tables that lake cannot commit to, before anything is written for them.

    Raises:
        RefusedError: the table is encrypted, or its catalog takes no commits.
        InvalidRequestError: a property of the table that commits depend on has a value that is not allowed.
    """
    check_commits(table.properties)
    table.catalog.refuse_commits(table.identifier, None if table.creating else table.metadata)
    refuse_encrypted(table.metadata, table.identifier)
