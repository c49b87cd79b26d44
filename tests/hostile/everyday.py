"""A few of each kind, most of them on one table: what the everyday tests try."""

from __future__ import annotations

_TABLE = "blocks"
_FEW = {
    # Edges of the list's blocks, and points between.
    f"avro:Truncations:{_TABLE}": (*range(4520, 4540, 2), 4690, 4845, 4999, 100, 2000),
    f"avro:WrongValues:{_TABLE}": (59, 73, 84, 90),
    f"parquet:Flips:{_TABLE}": (0, 1, 2, 3),
    f"parquet:Footers:{_TABLE}": range(7),
    f"metadata:Values:{_TABLE}": range(10),
    # A ref to nothing, a transform to come, partition statistics outside the table.
    f"metadata:WrongValues:{_TABLE}": (59, 89, 24),
    "avro:StagedValues:staged": (261, 286),
    "neighbours:Neighbours:data-in-data": range(8),
    f"places:Named:{_TABLE}": (0, 16, 45, 98, 151, 466),
    # Texts for NEW of rename, and as a run to restore.
    f"arguments:Texts:{_TABLE}": (3003, 3004, 3820),
    # Standard error that cannot be written, with and without files of settings.
    f"environment:Environments:{_TABLE}": (2, 7, 12, 15),
}
INPUTS = [(kind, number) for kind, numbers in _FEW.items() for number in numbers]
