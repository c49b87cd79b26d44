"""How many of the files that arrived fit into one epoch: an epoch does not mix schemas."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lake.core.base.errors import BadInputError
from lake.core.data.sources.discovery import find_sources
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest.options import IngestOptions, LoadRequest
from lake.core.load.ingest.plan import existing_table
from lake.core.load.ingest.source_columns import (
    columns_of_files,
    source_storage,
    target_schema,
    with_text_formats,
)
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session


def count_before_new_schema(
    session: Session, identifier: str | None, options: IngestOptions
) -> int:
    """Return how many of the first sources can be loaded in one commit so that it does not mix schemas.

    These are the sources before the first one that changes the table's schema; or, if the first one does, those with
    the same columns. A source that cannot be read ends them too. The sources are names of files. Without a table,
    all of them count as changing the schema.

    Raises:
        BadInputError: the sources do not exist.
    """
    existing = existing_table(session, identifier, options) if identifier is not None else None
    storage = source_storage(session, existing)
    first: _Needed | None = None
    known: dict[str, bool] = {}
    for number, name in enumerate(options.sources):
        try:
            one = LoadRequest(options=replace(options, sources=[name]), epoch=None)
            needed = _needed_schema(session, storage, existing, one, known)
        except BadInputError:
            return max(number, 1)
        first = first or needed
        if first.changes != needed.changes or (first.changes and first.columns != needed.columns):
            return number
    return len(options.sources)


@dataclass(frozen=True, slots=True)
class _Needed:
    """Whether a source changes the table's schema, and the source's columns as text."""

    changes: bool
    columns: str


def _needed_schema(
    session: Session,
    storage: Storage,
    existing: Table | None,
    request: LoadRequest,
    known: dict[str, bool],
) -> _Needed:
    schema = existing.schema if existing else None
    found = find_sources(storage, request.paths, request.options.format)
    files = with_text_formats(session, storage, found, schema, request)
    columns = columns_of_files(storage, files, schema, [], request.options)
    text = "".join(one.columns.to_string(show_schema_metadata=False) for one in columns)
    if text not in known:
        known[text] = existing is None or (
            target_schema(session, existing, columns, request) != existing.schema
        )
    return _Needed(known[text], text)
