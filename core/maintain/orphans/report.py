"""The report of a cleaning: each file that no snapshot references, and why it is kept or is an orphan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from lake.core.maintain.orphans.kept_files import KeepReason
from lake.core.read.exports.destinations import opened, refuse_inside
from lake.core.read.exports.formats import writing
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.table.flink.manifest_names import END_OF_INPUT, parse_name

if TYPE_CHECKING:
    from lake.core.maintain.orphans.plan import CleaningPlan
    from lake.core.read.exports.destinations import Output

_ORPHAN = "orphan"
_SCHEMA = Schema(
    NestedField(1, "path", StringType(), required=True),
    NestedField(2, "kind", StringType(), required=True),
    NestedField(3, "bytes", LongType(), required=False),
    NestedField(4, "modified_at", TimestamptzType(), required=False),
    NestedField(5, "reason", StringType(), required=True),
)
_SHOWN_CHECKPOINTS = 5


def write_report(plan: CleaningPlan, output: Output) -> None:
    """Write the unreferenced files of a plan: path, kind, bytes, modified_at, reason.

    Raises:
        RefusedError: the output is inside the table's folders.
        BadInputError: the output cannot be written.
    """
    refuse_inside(output.path, plan.table)
    files = plan.unreferenced
    times = pc.cast(files["modified_ms"], pa.timestamp("ms", "UTC"))
    columns = [
        files["path"],
        files["kind"],
        files["bytes"],
        pc.cast(times, pa.timestamp("us", "UTC")),
        pc.fill_null(files["reason"], _ORPHAN),
    ]
    rows = pa.table(columns, schema=arrow_schema(_SCHEMA))
    with opened(output) as stream, writing(output.format, stream, _SCHEMA) as sink:
        for batch in rows.to_batches():
            sink.write(batch)


def checkpoint_note(plan: CleaningPlan) -> list[str]:
    """Return which uncommitted checkpoints and staged runs need files of the plan, as a line for people."""
    files = plan.unreferenced
    kept = files.filter(pc.equal(files["reason"], KeepReason.CHECKPOINT))
    if not kept.num_rows:
        return []
    names = [name for path in kept["path"].to_pylist() if (name := parse_name(path))]
    checkpoints = sorted({(name.job_id, name.checkpoint_id) for name in names})
    shown = ", ".join(
        f"{'the end' if number == END_OF_INPUT else number} of job {job}"
        for job, number in checkpoints[:_SHOWN_CHECKPOINTS]
    )
    more = f" and {len(checkpoints) - _SHOWN_CHECKPOINTS:,} more" * (
        len(checkpoints) > _SHOWN_CHECKPOINTS
    )
    which = f"{kept.num_rows:,} files (checkpoint {shown}{more})"
    return [
        f"uncommitted checkpoints and staged runs need {which}; lake replay {plan.table.identifier} lists them"
    ]
