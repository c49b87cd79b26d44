"""Show a metadata table, or write it to a file or a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.read.exports import export
from lake.core.read.inspection.facts import InspectFacts
from lake.core.read.inspection.metadata_tables import InspectOptions, metadata_rows
from lake.core.read.scan.execute import previewed

if TYPE_CHECKING:
    from lake.core.read.exports.destinations import Output
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# Columns that a narrow terminal shows before the others, in all metadata tables.
_FIRST = (
    *("file_path", "path", "partition", "record_count", "file_size_in_bytes", "length"),
    *("snapshot_id", "committed_at", "operation", "file_count", "total_data_file_size_in_bytes"),
    *("content", "added_data_files_count", "existing_data_files_count", "partition_spec_id"),
)


def inspect_table(
    session: Session, table: Table, options: InspectOptions, output: Output | None
) -> Outcome:
    """Show the first rows of a metadata table, or write all of them.

    Raises:
        NotFoundError: a column does not exist.
        BadInputError: the filter is not valid, or the output cannot be written.
        RefusedError: the output is inside the table's folders.
    """
    rows = metadata_rows(table, options)
    details: list[Detail] = []
    if output is None:
        result, previews = previewed(rows)
        root = table.metadata.location
        details = [detail._replace(first=_FIRST, root=root) for detail in previews]
    else:
        result, _ = export.emit(session, rows, output)
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=table.metadata.current_snapshot_id,
        plan=InspectFacts(metadata_table=options.kind, rows_found=rows.found),
        result=result,
        details=details,
    )
