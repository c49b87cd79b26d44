"""What an addition of files plans and did, as its JSON document has it."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionFacts(Facts):
    """The files that are added; `files_in_table` are in the table's folders."""

    added_files: int = 0
    added_rows: int = 0
    added_bytes: int = 0
    partitions: int = 0
    files_with_ids: int = 0
    sets_name_mapping: bool = False
    files_in_table: int = 0
    files_elsewhere: int = 0
