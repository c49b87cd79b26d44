"""What a DataFrame reads, which Spark keeps with the data source and sends to every process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pin:
    """What a DataFrame reads, however often it is planned.

    Args:
        table: the UUID of the table.
        schema: the id of the schema that it is read with.
        end: the snapshot, or the last one of several; None if the table was empty.
        appends: of several snapshots, those whose rows are read; None for one snapshot.
    """

    table: str
    schema: int
    end: int | None
    appends: tuple[int, ...] | None = None
