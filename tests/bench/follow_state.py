"""The state of a follow while many splits wait: the time to write the splits, and to save the state.

    python tests/bench/follow_state.py [--splits 200000] [--saves 200]

Prints the seconds to write the file of splits, once a discovery, and the median and the maximum of the milliseconds
to save the state, twice an epoch, in which these splits wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from support.tables.iceberg_tables import make_table  # noqa: E402

from lake.core.base.clock import SystemClock, SystemIds  # noqa: E402
from lake.core.data.rows.reader import FileSlice, ReadSettings  # noqa: E402
from lake.core.io.storage.state_folder import StateFolder  # noqa: E402
from lake.core.read.continuous.handover.splits_file import SplitsHeader, write_splits  # noqa: E402
from lake.core.read.continuous.handover.state import (  # noqa: E402
    Destination,
    SavedPosition,
    State,
    StateStore,
)
from lake.core.read.continuous.handover.work import WorkHeader, WorkItem  # noqa: E402
from lake.core.read.continuous.position import Position  # noqa: E402

_ID = "00000000-0000-4000-8000-000000000000"


def items(count: int) -> Iterator[WorkItem]:
    """Yield splits of one file each."""
    for number in range(count):
        path = f"file:///warehouse/db/t/data/{number:08d}-{_ID}.parquet"
        file = FileSlice(path=path, size_bytes=9, record_count=1, spec_id=0)
        yield WorkItem(files=[file], bytes=9, records=1)


def main() -> None:
    """Write and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=200_000)
    parser.add_argument("--saves", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lake-bench-") as path:
        table = make_table(Path(path) / "warehouse")
        folder = StateFolder.at(f"{path}/state", clock=SystemClock(), ids=SystemIds())
        Path(folder.path).mkdir(exist_ok=True)
        settings = ReadSettings(
            projection=table.schema(), schema=table.schema(), specs=table.specs()
        )
        reading = WorkHeader(kind="append", projection=table.schema(), settings=settings)
        end = SavedPosition.of(Position(1, 1))
        header = SplitsHeader(
            state_id=_ID,
            discovery=1,
            kind="append",
            start=None,
            end=end,
            generation=0,
            replaces=False,
            snapshots=("1",),
            skipped=(),
            gap=None,
            records=chosen.splits,
            schema_id=0,
            reading=reading.to_plain(),
        )
        begun = time.perf_counter()
        pending = write_splits(folder, header, items(chosen.splits))
        written = time.perf_counter() - begun
        assert pending is not None
        store = StateStore(folder)
        state = State(
            state_id=_ID,
            table="db.t",
            table_uuid=str(table.metadata.table_uuid),
            branch="main",
            options={},
            output=Destination(kind="folder", path=f"{path}/out", format="parquet"),
            consumer=None,
            position=end,
            discovery=1,
            pending=(pending,),
        )
        taken = []
        for _ in range(chosen.saves):
            begun = time.perf_counter()
            state = store.save(state)
            taken.append(1000 * (time.perf_counter() - begun))
        found = {
            "splits": state.pending_splits,
            "write_splits_s": round(written, 2),
            "splits_file_mib": round(Path(folder.file(pending.file)).stat().st_size / 2**20, 1),
            "save_p50_ms": round(statistics.median(taken), 2),
            "save_max_ms": round(max(taken), 2),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()
