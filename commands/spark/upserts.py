"""Upserts of DataFrames: a batch of a streaming query is one commit, as `lake ingest --upsert` loads files.

A load by key reads its source twice, and compares all rows of a key in one place. So the tasks write the rows to
temporary files beside the table's, which are loaded and removed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.commands.actions import verb_of
from lake.commands.api.calls import Calls, Option, settings_from
from lake.commands.api.table import Run
from lake.commands.groups import require_options
from lake.commands.spark.mapped import KEPT, Keep
from lake.commands.spark.redacted import reported
from lake.commands.spark.types import frame_columns
from lake.core.base import locations
from lake.core.base.errors import InvalidRequestError
from lake.core.base.redaction import shown_as
from lake.core.data.rows.content_hash import hash_together
from lake.core.load.ingest.facts import IngestFacts, IngestResult
from lake.core.load.ingest.rejects import temporary_files
from lake.core.table.snapshots.streams import QueryEpoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What calls the function on a Connect server, which shows no ids to tasks: a process for each run of a query.
_ON_CONNECT = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
# The newest epoch that each upsert of a run of a query has loaded in this process.
_loaded: dict[tuple[str, ...], int] = {}


def upsert(
    table: str,
    *,
    key: Sequence[str] = (),
    catalog: str | None = None,
    warehouse: str | None = None,
    catalog_type: str | None = None,
    query: str | None = None,
    **options: Option,
) -> Upsert:
    """Return a function for `foreachBatch`: it replaces the rows of a table by those of a batch with the same keys.

    A batch is in the table once, however often Spark repeats it. A frame that is not a batch is loaded once for each
    ``run_id``: ``upsert("db.t", run_id="day-1")(frame)``.

    Args:
        table: ``namespace.table``; it exists.
        key: the columns of the key, as a list or a text with commas; empty for the identifier fields of the schema.
        catalog: as for `lake.connect`, read where Spark's driver or the Connect server runs.
        warehouse: see `catalog`.
        catalog_type: see `catalog`.
        query: a name that distinguishes several upserts of one query into one table. Where Spark does not show the
            id of the query, it is the name by which batches are recognised.
        options: the other options of `lake ingest --upsert`, such as ``order_by``, which chooses between rows
            of one key in one batch.

    Raises:
        InvalidRequestError: the name is not valid, or an option does not exist.
    """
    with reported(str):
        if query is not None and not re.fullmatch(r"[\w.-]{1,64}", query, re.ASCII):
            raise InvalidRequestError(
                f"query {query!r} is not a name of letters, digits, . _ and -, 64 at most"
            )
        require_options(verb_of("ingest"), {name.replace("_", "-"): name for name in options})
    settings = {"catalog": catalog, "warehouse": warehouse, "catalog-type": catalog_type}
    return Upsert(table, settings, query, {"key": key or None, **options})


@dataclass(frozen=True, slots=True)
class Upsert:
    """What `upsert` returns. Spark pickles it for a Connect server."""

    table: str
    settings: Mapping[str, str | None]
    query: str | None
    options: Mapping[str, Option]

    def __call__(
        self, frame: DataFrame, epoch: int | None = None
    ) -> Run[IngestFacts, IngestResult] | None:
        """Load a frame; return how that ended, None if the frame has no rows.

        Args:
            frame: the rows.
            epoch: the number of the batch, from 0; None if the frame is not a batch of a query.

        Raises:
            LakeError: it cannot be loaded, and nothing was changed; or the catalog did not answer.
        """
        # Tasks import this module, too.
        from lake.core.load.ingest.plan import table_of_frame

        with reported(str):
            calls = Calls(settings_from({**self.settings, "engine": "inline"}))
        with reported(calls.redact):
            if epoch is not None and self.options.get("run_id") is not None:
                raise InvalidRequestError(
                    "run_id would load the first batch only: a batch is known by its query"
                )
            session = calls.session
            table = table_of_frame(session, self.table)
            name = f"lake-rows-{session.ids.uuid()}"
            keep = Keep(
                prefix=locations.join(table.data_location, name),
                schema=table.schema,
                columns=frame_columns(frame.schema, table.schema),
                secrets=table.storage.credentials.to_bytes(),
                of_query=epoch is not None,
            )
            with temporary_files(session, table, name), ExitStack() as stack:
                written = frame.mapInArrow(keep, KEPT).collect()
                if not written:
                    return None
                # In the order of Spark's partitions.
                paths = sorted(row.path for row in written)
                stack.enter_context(shown_as("the frame", paths))
                if epoch is None:
                    outcome = calls.upsert(self.table, paths, None, self.options)
                else:
                    rows = [row.rows for row in written if row.rows]
                    batch = QueryEpoch(
                        self._name(written[0].query), epoch, hash_together(rows) if rows else None
                    )
                    run = _run(written[0].run)
                    place = (run, batch.query, table.metadata.location, self._branch)
                    _refuse_second(place, epoch)
                    outcome = calls.upsert(self.table, paths, batch, self.options)
                    _loaded[place] = epoch
                return Run.of(outcome, IngestFacts, IngestResult)

    @property
    def _branch(self) -> str:
        return str(self.options.get("branch"))

    def _name(self, query: str | None) -> str:
        """Return the name by which the batches of a query are recognised, if Spark shows the query's id or not."""
        names = [name for name in (query, self.query) if name]
        if not names:
            raise InvalidRequestError(
                "this Spark does not show which query a batch belongs to",
                hint="name it: lake.spark.upsert(..., query='orders'), with another name for each checkpoint",
            )
        return "/".join(names)


def _run(shown: str | None) -> str:
    """Return what only the batches of one run of a query have in this process; empty if that is not known."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return shown or (_ON_CONNECT if main and main.name == _ON_CONNECT else "")


def _refuse_second(place: tuple[str, ...], epoch: int) -> None:
    """Refuse a batch that this run of its query has loaded: its rows would be taken for a repetition."""
    if place[0] and _loaded.get(place) == epoch:
        raise InvalidRequestError(
            f"batch {epoch} was loaded into the table by another upsert of the same query",
            hint="give each a name: lake.spark.upsert(..., query='orders')",
        )
