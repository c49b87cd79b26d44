"""Read the first rows of a load's text files, so that a dry run shows what the load will read."""

from __future__ import annotations

import json
from typing import Any

from lake.core.base.errors import BadInputError
from lake.core.data.columns.text_encoding import json_lines
from lake.core.data.sources.batches import source_batches
from lake.core.load.ingest.plan import IngestPlan

_ROWS = 5


def first_rows(plan: IngestPlan) -> tuple[list[dict[str, Any]], BadInputError | None]:
    """Return the first rows of the text files as JSON-ready values, and the error of a row that cannot be read.

    There are none of a change log, whose rows are not rows of the table, and of other files.
    """
    rows: list[dict[str, Any]] = []
    if plan.options.part.changes_column is not None:
        return rows, None
    try:
        for source in plan.text_files:
            for batch in source_batches(plan.table.storage, source, plan.schema, first=_ROWS):
                lines = json_lines(batch.slice(0, _ROWS - len(rows)), plan.schema)
                rows += [json.loads(line) for line in lines.to_pylist()]
                if len(rows) >= _ROWS:
                    return rows, None
    except BadInputError as error:
        return rows, error
    return rows, None
