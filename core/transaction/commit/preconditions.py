"""What must hold of a table before anything is written for a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lake.core.base.errors import RefusedError
from lake.core.io.avro.codecs import codec_of_manifests
from lake.core.spec.properties.table_properties import COMMITTING, check
from lake.core.table.metadata.format_upgrades import refuse_encrypted
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


def check_commits(properties: Mapping[str, str]) -> None:
    """Check the properties that commits depend on.

    Raises:
        InvalidRequestError: a property has a value that is not allowed.
    """
    check(properties, COMMITTING)
    codec_of_manifests(properties)


def refuse_consumer(branch: str) -> None:
    """Refuse to commit to the ref of a consumer: it only protects snapshots, and expires.

    Raises:
        RefusedError: the branch is the ref of a consumer.
    """
    if ancestry.is_consumer(branch):  # check: no-commits-for-consumers
        raise RefusedError(
            f"{branch} records what a reader has read: commits to it would be lost when it ends",
            hint="choose another branch; `lake consumers` lists the readers of a table",
        )


def require_writable(table: Table, branch: str = ancestry.MAIN) -> None:
    """Refuse tables and branches that lake cannot commit to, before anything is written for them.

    Raises:
        RefusedError: the table is encrypted, its catalog takes no commits, or the branch is the ref of a consumer.
        InvalidRequestError: a property of the table that commits depend on has a value that is not allowed.
    """
    refuse_consumer(branch)
    check_commits(table.properties)
    table.catalog.refuse_commits(table.identifier, None if table.creating else table.metadata)
    refuse_encrypted(table.metadata, table.identifier)  # check: no-encryption
