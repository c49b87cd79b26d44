"""What an addition of files plans and did, as its JSON document has it."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionFacts(Facts):
    """The files that are added; all are 0 if the branch contains the run already."""

    added_files: int = 0
    """Files that are added."""
    added_rows: int = 0
    """Their rows."""
    added_bytes: int = 0
    """Their bytes."""
    partitions: int = 0
    """The number of their partitions."""
    files_with_ids: int = 0
    """How many of them have field ids."""
    sets_name_mapping: bool = False
    """Whether the table gets a name mapping, because some have none."""
    files_in_table: int = 0
    """How many are in the table's folders."""
    files_elsewhere: int = 0
    """How many are not."""
