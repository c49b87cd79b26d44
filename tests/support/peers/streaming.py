"""Spark's part in a stream of the data source, without a JVM: its calls, in its order, and its checkpoint."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from lake.commands.spark.source import LakeSource


class Query:
    """A query that writes the rows of each batch into a list, as a sink does that replaces a batch that is repeated.

    Args:
        warehouse: the folder of the table's catalog.
        admission: whether the reader is shown the start and the limits of a batch, as from Spark 4.2 on.
        options: the options of the frame, with underscores.
    """

    def __init__(self, warehouse: Path, *, admission: bool = False, **options: str) -> None:
        self.options = {"warehouse": str(warehouse), "table": "db.t"}
        self.set(**options)
        self.admission = admission
        # The checkpoint: the ends of batches, and how many batches are committed.
        self.offsets: list[str] = []
        self.committed = 0
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.stop()

    def set(self, **options: str) -> None:
        """Change options, which a new process uses."""
        self.options |= {name.replace("_", "-"): value for name, value in options.items()}

    def stop(self) -> None:
        """End the process, with all that it knows."""
        self._reader: Any = None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows in the sink."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def ids(self) -> list[int]:
        """The values of the column `id`, batch by batch, sorted in each."""
        batches = (self.batches[number] for number in sorted(self.batches))
        return [number for rows in batches for number in sorted(row["id"] for row in rows)]

    def run(self) -> Query:
        """Run batches until there is nothing new."""
        while self.plan():
            self.write()
            self.commit()
        return self

    def plan(self) -> bool:
        """Log the end of the next batch, and return whether there is one; one that was cut off is repeated."""
        if self._reader is None:
            self._start()
            if self.offsets and self.is_committed and not self.admission:
                last = json.loads(self.offsets[-1])
                self._reader.partitions(last, last)
        if not self.is_committed:
            self._reader.partitions(*self._ends())
            return True
        found = json.dumps(self._latest())
        if self.offsets and found == self.offsets[-1]:
            return False
        self.offsets.append(found)
        return True

    def write(self) -> None:
        """Write the rows of the last batch."""
        rows: list[dict[str, Any]] = []
        for part in self._reader.partitions(*self._ends()):
            rows += self._read(pickle.dumps(part))
        self.batches[len(self.offsets) - 1] = rows

    def commit(self) -> None:
        """Say that the last batch is written."""
        self.committed = len(self.offsets)

    @property
    def is_committed(self) -> bool:
        """Whether all batches are."""
        return self.committed == len(self.offsets)

    def _start(self) -> None:
        source = LakeSource(self.options)
        self.schema = StructType.fromJson(json.loads(source.schema().json()))
        self._source = pickle.dumps(source)
        self._reader = self._made()
        if self.admission:
            self._reader.prepareForTriggerAvailableNow()

    def _made(self) -> Any:
        return pickle.loads(self._source).streamReader(self.schema)

    def _latest(self) -> Mapping[str, Any]:
        start = json.loads(self.offsets[-1]) if self.offsets else self._initial()
        return dict(self._reader.latestOffset(*((start, None) if self.admission else ())))

    def _initial(self) -> Any:
        return json.loads(json.dumps(self._reader.initialOffset()))

    def _ends(self) -> tuple[Any, Any]:
        before = self.offsets[-2:-1]
        start = json.loads(before[0]) if before else self._initial()
        return start, json.loads(self.offsets[-1])

    def _read(self, part: bytes) -> Iterator[dict[str, Any]]:
        for batch in self._made().read(pickle.loads(part)):
            assert batch.schema.names == self.schema.fieldNames()
            yield from batch.to_pylist()
