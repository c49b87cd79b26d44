"""What a conversion or a rewrite of delete files plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDeletesFacts(Facts):
    """The delete files of one kind that are left alone for one reason."""

    reason: str
    """Why they are left alone."""
    kind: str
    """`position`, `vector` or `equality`."""
    delete_files: int
    """Delete files."""
    rows: int
    """Their records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionFacts(Facts):
    """The plan of a conversion of equality deletes."""

    equality_deletes: int = 0
    """Equality delete files to remove."""
    equality_rows: int = 0
    """Their records."""
    data_files: int = 0
    """Data files to which they may apply, and which are read."""
    remaining_files: int = 0
    """Data files that `max_files=` leaves out."""
    input_bytes: int = 0
    """Bytes of the data files that are read."""
    kind: str = ""
    """The kind of the new deletes: `position` or `vector`."""
    left_alone: Sequence[KeptDeletesFacts] | None = omitted()
    """With `explain=`, the delete files that stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFacts(Facts):
    """The plan of a rewrite of position deletes."""

    position_deletes: int = 0
    """Delete files to replace or remove."""
    position_rows: int = 0
    """Their records."""
    dangling: int = 0
    """How many of them apply to no data file."""
    data_files: int = 0
    """Data files to which the others may apply."""
    remaining_files: int = 0
    """Delete files that `max_files=` leaves out."""
    input_bytes: int = 0
    """Bytes of the delete files that are read."""
    kind: str = ""
    """The kind of the new deletes: `position` or `vector`."""
    granularity: str = ""
    """What a new delete file applies to: `file` or `partition`."""
    left_alone: Sequence[KeptDeletesFacts] | None = omitted()
    """With `explain=`, the delete files that stay."""


@dataclass(slots=True, kw_only=True)
class ConversionResult(Facts):
    """What a conversion committed, over all its commits."""

    removed_equality_deletes: int = 0
    """Equality delete files that were removed."""
    added_deletes: int = 0
    """Delete files that were added."""
    changed_data_files: int = 0
    """Data files whose deletes changed."""
    deleted_rows: int = 0
    """Rows that no position delete deleted before."""
    remaining_deletes: int = 0
    """Equality delete files that stay, without those that another writer added meanwhile."""


@dataclass(slots=True, kw_only=True)
class RewriteResult(Facts):
    """What a rewrite committed, over all its commits."""

    removed_position_deletes: int = 0
    """Delete files that were removed."""
    added_deletes: int = 0
    """Delete files that were added."""
    deleted_rows: int = 0
    """Rows that the new deletes delete."""
    dropped_rows: int = 0
    """Records that were repeated or deleted nothing."""
    remaining_deletes: int = 0
    """Delete files that could be replaced and were not."""
