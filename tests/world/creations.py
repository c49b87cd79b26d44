"""A load that creates its table, with a fault at the n-th call of storage, catalog or clock, then without faults.

The table exists with all its rows or not at all, no files are left unreported, and the next run completes it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.cli.command_line import CommandLine, Result
from support.tables.iceberg_tables import files_below, ids_in, pyiceberg_catalog

from lake.core.base.clock import SystemClock
from lake.core.base.settings import Settings
from lake.core.transaction.session import Session, open_session
from world.catalog_faults import FaultyCatalog
from world.clock_faults import CLOCK, FaultyClock
from world.faults import FAULTS
from world.faulty import CANARY, Fault, Layer

NAME = "create"
_IDS = (1, 2, 3)
_LINE = ("ingest", "db.new", "--create", "--partition-by", "part", "--run-id", "run-1")


class Creations:
    """A catalog without a table, and one fault after another.

    Args:
        folder: the folder for the source and the warehouse.
        version: the new table's format version.
        ids: the ids of the source's rows; a source without rows creates the table, too.
    """

    name = NAME

    def __init__(self, folder: Path, version: int, ids: Sequence[int] = _IDS) -> None:
        self._source, self._warehouse = folder / "source.parquet", folder / "warehouse"
        self._version = version
        self._layer = Layer(self._warehouse)
        self._ids = list(ids)
        parts = pa.array(["x" if number % 2 else "y" for number in ids], pa.string())
        rows = {"id": pa.array(ids, pa.int64()), "part": parts}
        pq.write_table(pa.table(rows), self._source, write_page_checksum=True)
        result = self._run({})
        assert result.exit_code == 0, result
        assert self._rows() == self._ids
        self.calls = Counter(call.kind for call in self._layer.calls)

    def plans(self) -> Iterator[tuple[str, int]]:
        """Yield each fault's name with each number of a call at which it can occur."""
        for name, fault in FAULTS.items():
            for number in range(self.calls[fault.kind]):
                yield name, number

    def fault(self, *faults: tuple[str, int]) -> Counter[str]:
        """Run with faults, check, run without, check; return the counts."""
        shutil.rmtree(self._warehouse)
        chosen = [FAULTS[name] for name, _ in faults]
        ended = self._run({(FAULTS[name].kind, number): FAULTS[name] for name, number in faults})
        assert self._layer.happened, "the fault did not happen"
        self._judge(ended, chosen)
        again, third = self._run({}), self._run({})
        assert again.exit_code == third.exit_code == 0, (ended, again, third)
        assert third.json()["status"] == "nothing-to-do", third
        assert self._rows() == self._ids, (ended, again)
        code = ended.exit_code
        return Counter({f"{name}: {code}": 1 for name, _ in faults} | {f"exit {code}": 1})

    def _run(self, plan: Mapping[tuple[str, int], Fault]) -> Result:
        properties = ("--property", f"format-version={self._version}")
        lake = CommandLine(self._warehouse, engine="inline", open_session=self._session)
        with self._layer.inside():
            self._layer.begin(plan)
            return lake("--json", *_LINE, self._source, *properties)

    def _session(self, settings: Settings) -> Session:
        session = open_session(settings)
        handle = session.catalog.handle
        session.catalog.__dict__["handle"] = FaultyCatalog(handle, self._layer)
        session.clock = FaultyClock(SystemClock(), self._layer)
        return session

    def _judge(self, ended: Result, faults: list[Fault]) -> None:
        spoken = ended.stdout + ended.stderr
        assert CANARY not in spoken, f"a secret is printed: {spoken}"
        assert "Traceback" not in spoken, f"a trace: {spoken[-1500:]}"
        allowed = {0, 5, 6}.union(*(fault.codes for fault in faults))
        assert ended.exit_code in allowed, f"exit {ended.exit_code}: {spoken[-800:]}"
        document: dict[str, Any] = ended.json()
        if ended.exit_code in {0, 6}:
            wrong_time = any(fault.kind == CLOCK for fault in faults)
            assert self._rows() == self._ids or wrong_time, f"done, but not all: {ended}"
        elif ended.exit_code == 5:
            assert self._rows() in (self._ids, None), f"neither all nor nothing: {ended}"
        else:
            assert self._rows() is None, f"failed, but the table is there: {ended}"
            left = files_below(self._warehouse)
            assert not left or document["warnings"], f"left behind: {left} by {ended}"

    def _rows(self) -> list[int] | None:
        if not pyiceberg_catalog(self._warehouse).table_exists("db.new"):
            return None
        return sorted(ids_in(self._warehouse, "db.new"))
