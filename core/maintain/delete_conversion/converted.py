"""How far the equality deletes of a branch are converted, if a run ends before all data files were read.

An equality delete file is removed when it was applied to every data file to which it may apply. Until then it stays,
and the summary of the newest snapshot records which data files need not be read again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Mask, one_array
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.branch_notes import json_object

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

# In the summary of a snapshot: a JSON object with the fields of `Converted`.
CONVERTED = "lake.converted"
# Without a filter, every run uses what an earlier one recorded.
EVERY_RUN = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Data files to which equality deletes were applied by position.

    Every equality delete file was applied to every data file up to a path, if both were added up to a sequence
    number. This stays true while both are live: later snapshots add positions, or replace them by equal ones.

    Args:
        sequence_number: the sequence number of the snapshot that the first of the runs had read.
        until: the path of the last data file, in the order of UTF-8.
        run: the id of the only run for which this is true, because it converts the deletes that a filter selects;
            empty for all.
        schema_id: the schema to which that filter was bound.
    """

    sequence_number: int
    until: str
    run: str = EVERY_RUN
    schema_id: int = 0

    @classmethod
    def find(cls, table: Table, head: Snapshot, run: str) -> Self | None:
        """Return what the newest snapshot of a branch records that is true for a run; None if there is nothing."""
        for snapshot in ancestry.ancestors(table.metadata, head.snapshot_id):
            summary = properties_of(snapshot)
            found = cls._from_text(summary.get(CONVERTED))
            # check: possible-conversion-record
            if found is None or found.sequence_number >= (snapshot.sequence_number or 0):
                continue
            if found.run == EVERY_RUN or (found.run, found.schema_id) == (
                run,
                table.schema.schema_id,
            ):
                return found
        return None

    @classmethod
    def _from_text(cls, text: str | None) -> Self | None:
        """Read a record, which any writer may have written; None if it is not valid."""
        read = json_object(text)
        number, until = read.get("sequence-number"), read.get("until")
        run, schema_id = read.get("run", EVERY_RUN), read.get("schema-id", 0)
        if not (isinstance(number, int) and isinstance(until, str)):
            return None
        if not (isinstance(run, str) and isinstance(schema_id, int)):
            return None
        return cls(sequence_number=number, until=until, run=run, schema_id=schema_id)

    def summary(self) -> dict[str, str]:
        """Return the entries of a snapshot's summary."""
        record = {
            "sequence-number": self.sequence_number,
            "until": self.until,
            "run": self.run,
            "schema-id": self.schema_id,
        }
        return {CONVERTED: json.dumps(record, ensure_ascii=False)}

    def contains(self, entries: pa.Table) -> Mask:
        """Return which data files had all deletes applied that were there at the sequence number."""
        before = one_array(pc.less_equal(entries["file_path"], self.until))
        # check: converted-files-only
        found: Mask = self.had(entries) & before.to_numpy(zero_copy_only=False)
        return found

    def had(self, entries: pa.Table) -> Mask:
        """Return which files were added up to the sequence number."""
        return added_by(entries, self.sequence_number)


def added_by(entries: pa.Table, sequence_number: int) -> Mask:
    """Return which entries were added to the table up to a sequence number; not those that do not say when."""
    added = pc.less_equal(entries["file_sequence_number"], sequence_number)
    found: Mask = one_array(added).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return found
