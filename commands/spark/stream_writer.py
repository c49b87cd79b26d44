"""Writes of a streaming query: each of its epochs once, by the query's id and the epoch's number in the history."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

from lake.commands.spark.writer import Parts, Written, checked
from lake.core.base.errors import LakeError

# What Spark adds to the options.
_OF_SPARK = ("checkpointlocation", "queryname")


# Spark gives batches to a writer that is an Arrow writer of either kind; 4.0 has none for streams.
class LakeStreamWriter(Parts, DataSourceArrowWriter, DataSourceStreamWriter):  # type: ignore[misc]
    """Writes epochs; an object is made for the tasks of each epoch, and another one to commit them."""

    names = ("branch", "evolve", "target-size", "no-upsert", *_OF_SPARK)

    def _load_options(self, given: Mapping[str, str]) -> Mapping[str, str | bool]:
        options = {name: value for name, value in given.items() if name not in _OF_SPARK}
        # In complete mode, an epoch replaces what the one before it wrote, also if it has no rows.
        return (
            {**options, **dict.fromkeys(("overwrite", "allow-empty"), True)}
            if self._overwrite
            else options
        )

    def commit(self, messages: list[Written | None], batchId: int) -> None:  # noqa: N803 - Spark passes it by name
        """Commit an epoch, unless the table's history has it or a later one."""
        queries = {item.query for item in checked(messages)}
        query = queries.pop()
        if queries or query is None:
            raise LakeError(
                "Spark does not say which query an epoch belongs to: nothing was committed"
            )
        from lake.core.table.snapshots.streams import QueryEpoch

        self._commit(messages, QueryEpoch(query, batchId))

    def abort(self, messages: list[Written | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Delete the files of an epoch that was certainly not committed."""
        self._abort(messages)
