"""What a conversion or a rewrite of delete files plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDeletesFacts(Facts):
    """The delete files of one kind, position, vector or equality, that are left alone for one reason."""

    reason: str
    kind: str
    delete_files: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionFacts(Facts):
    """The plan of a conversion of equality deletes; `kind` is that of the new deletes."""

    equality_deletes: int = 0
    equality_rows: int = 0
    data_files: int = 0
    remaining_files: int = 0
    input_bytes: int = 0
    kind: str = ""
    left_alone: Sequence[KeptDeletesFacts] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFacts(Facts):
    """The plan of a rewrite of position deletes; `kind` is that of the new deletes."""

    position_deletes: int = 0
    position_rows: int = 0
    dangling: int = 0
    data_files: int = 0
    remaining_files: int = 0
    input_bytes: int = 0
    kind: str = ""
    granularity: str = ""
    left_alone: Sequence[KeptDeletesFacts] | None = omitted()


@dataclass(slots=True, kw_only=True)
class ConversionResult(Facts):
    """What a conversion committed, over all its commits."""

    removed_equality_deletes: int = 0
    added_deletes: int = 0
    changed_data_files: int = 0
    deleted_rows: int = 0
    remaining_deletes: int = 0


@dataclass(slots=True, kw_only=True)
class RewriteResult(Facts):
    """What a rewrite committed, over all its commits."""

    removed_position_deletes: int = 0
    added_deletes: int = 0
    deleted_rows: int = 0
    dropped_rows: int = 0
    remaining_deletes: int = 0
