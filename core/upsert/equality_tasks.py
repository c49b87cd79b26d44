"""Equality deletes of the source's keys, written without a look at the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lake.core.deletes.writers import open_equality_writer
from lake.core.engine.tasks import TaskContext
from lake.core.rows.writer import WriteSettings
from lake.core.types.arrow_schema import arrow_schema, schema_from_plain
from lake.core.upsert.checksummed_batches import batches_in


def write_deletes(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Write a delete for every key of a bucket.

    The payload: ``keys`` (a file of settled keys), ``ids`` (of the key, in the file's order), ``columns`` (the
    schema of the delete files, in the same order), ``writing`` (WriteSettings), ``task``.
    """
    settings = WriteSettings.from_plain(payload["writing"])
    columns = schema_from_plain(payload["columns"])
    schema = arrow_schema(columns)
    names = settings.file_names(task=payload["task"], attempt=context.attempt)
    with open_equality_writer(
        context.storage, settings, columns=columns, equality_ids=payload["ids"], names=names
    ) as writer:
        for batch in batches_in(context.storage, payload["keys"]):
            context.check_cancelled()
            writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        files = writer.close()
    yield {"deletes": [file.to_plain() for file in files]}
