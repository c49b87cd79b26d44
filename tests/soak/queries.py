"""Streaming queries of Spark are killed at random times: each row of their source is in their tables once.

    cd tests && python -m soak.queries [--minutes 60] [--seed S]

Two queries read one table: one appends its rows to another table, and one upserts them into a third, which has a row
for each key. `lake` loads the source and maintains all tables meanwhile, in processes that are killed too. Spark's
driver is killed in Python or in Java, or one of its Python workers; the queries go on from their checkpoints.

PyIceberg judges the rows after each round.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_worker import CommandWorker
from support.peers.notebook import Notebook
from support.servers.spark_cluster import children
from support.tables.iceberg_tables import make_table, pyiceberg_table

_KEYS = 40
_ROUND_SECONDS = 120
_TRIES = 60
_SOURCE, _COPY, _NEWEST = "db.source", "db.copy", "db.newest"
# Both queries run for some time, or until one of them fails.
_CELL = """
import time
import lake.spark

lake.spark.register(spark)
each = lake.spark.upsert(newest, key=['k'], order_by=['id'], warehouse=warehouse)
limits = {} if seconds is None else {'max-files-per-batch': '3'}
rows = spark.readStream.format('lake').options(warehouse=warehouse, **limits).load(source)
trigger = {'availableNow': True} if seconds is None else {'processingTime': '200 milliseconds'}
copied = rows.writeStream.format('lake').options(warehouse=warehouse, checkpointLocation=folder + '/copy')
keyed = rows.selectExpr(f'id % {keys} AS k', 'id', 'name').writeStream.foreachBatch(each)
keyed = keyed.option('checkpointLocation', folder + '/newest')
running = [copied.trigger(**trigger).start(copy), keyed.trigger(**trigger).start()]
end = time.monotonic() + (3600 if seconds is None else seconds)
while time.monotonic() < end and (any if seconds is None else all)(one.isActive for one in running):
    time.sleep(0.1)
failures = [str(one.exception()) for one in running if one.exception() is not None]
for one in running:
    one.stop()
answer = failures
"""


@dataclass
class Ledger:
    """What was loaded, how commands ended, and what is wrong."""

    ids: list[int] = field(default_factory=list)
    reports: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Soak:
    """The tables of a folder, and the processes that change them."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.ledger = Ledger()
        self._folder = folder
        self._warehouse = folder / "warehouse"
        self._random = random.Random(seed)
        self._notebook: Notebook | None = None
        self._numbers = 0

    def run(self, minutes: float) -> None:
        """Make the tables, and judge after each round until the time has passed."""
        self._make_tables()
        # Spark does not go on from a checkpoint whose first batch was killed while Spark wrote it down.
        worker = CommandWorker()
        self._load(worker, random.Random(self._random.random()))
        worker.close()
        self.judge()
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end and not self.ledger.problems:
            self._round(min(end, time.monotonic() + _ROUND_SECONDS))
            self.judge()
        if self._notebook is not None:
            self._notebook.close()

    def judge(self) -> None:
        """Let the queries read all of the source, and compare the tables."""
        expected = sorted(self.ledger.ids)
        for _ in range(_TRIES):
            # Before PySpark 4.2, a run to the end is one batch.
            ended = self._query(None) == []
            if ended and max(expected) in {*self._ids(_COPY)} & {*self._ids(_NEWEST)}:
                break
        newest = {one % _KEYS: one for one in expected}
        self._same(_SOURCE, expected, self._ids(_SOURCE))
        self._same(_COPY, expected, self._ids(_COPY))
        self._same(_NEWEST, sorted(newest.values()), self._ids(_NEWEST))
        print(f"{len(expected)} rows: {dict(sorted(self.ledger.reports.items()))}", flush=True)

    def _same(self, name: str, expected: list[int], found: list[int]) -> None:
        if expected != found:
            missing = [*(Counter(expected) - Counter(found)).elements()]
            more = [*(Counter(found) - Counter(expected)).elements()]
            self.ledger.problems.append(
                f"{name}: {len(missing)} missing, as {missing[:9]}, and {len(more)} more, as {more[:9]}"
            )

    def _ids(self, name: str) -> list[int]:
        return sorted(pyiceberg_table(self._warehouse, name).scan().to_arrow()["id"].to_pylist())

    def _make_tables(self) -> None:
        row = [NestedField(1, "id", LongType()), NestedField(2, "name", StringType())]
        for name in (_SOURCE, _COPY):
            make_table(self._warehouse, name, Schema(*row))
        make_table(self._warehouse, _NEWEST, Schema(*row, NestedField(3, "k", LongType())))

    @property
    def _prefix(self) -> list[str]:
        return ["--warehouse", str(self._warehouse), "--engine", "inline"]

    def _round(self, end: float) -> None:
        beside = [
            threading.Thread(target=self._repeat, args=(step, self._random.random(), end))
            for step in (self._load, self._maintain)
        ]
        for one in beside:
            one.start()
        while time.monotonic() < end:
            self._query(self._random.uniform(4, 20))
        for one in beside:
            one.join()

    # The queries

    def _query(self, seconds: float | None) -> list[str] | None:
        """Run the queries, for some time or to the end of their source; None if their process was killed."""
        self._numbers += 1
        if self._notebook is None:
            place = self._folder / f"notebook-{self._numbers}"
            place.mkdir()
            self._notebook = Notebook(place)
        notebook = self._notebook
        delay, kind = None, self._random.choice(["python", "java", "worker", "worker"])
        if seconds is not None and self._random.random() < 0.8:
            # Spark takes some seconds to start.
            delay = self._random.uniform(1, seconds + 8)
        names = {"source": _SOURCE, "copy": _COPY, "newest": _NEWEST, "keys": _KEYS}
        places = {"warehouse": str(self._warehouse), "folder": str(self._folder)}
        try:
            with _later(delay, self._kill, notebook, kind):
                found: list[str] = notebook.run(_CELL, seconds=seconds, **names, **places)
        except RuntimeError as error:
            self._count("queries", str(error))
            notebook.kill()
            self._notebook = None
            return None
        for text in found or ["ended"]:
            self._count("queries", text)
        return found

    def _kill(self, notebook: Notebook, kind: str) -> None:
        """Kill the driver, or a Python worker if there is one."""
        java = list(children(notebook.pid))
        below = [one for parent in java for child in children(parent) for one in children(child)]
        chosen = {"python": [notebook.pid], "java": java, "worker": below}[kind]
        if chosen:
            self.ledger.reports[f"killed: {kind}"] += 1
            with suppress(ProcessLookupError):
                os.kill(self._random.choice(chosen), signal.SIGKILL)

    # What runs beside them

    def _repeat(
        self, step: Callable[[CommandWorker, random.Random], bool], seed: float, end: float
    ) -> None:
        """Repeat a step in a process, a new one after it was killed."""
        chosen, worker = random.Random(seed), CommandWorker()
        while time.monotonic() < end:
            if not step(worker, chosen):
                worker.close()
                worker = CommandWorker()
            time.sleep(chosen.uniform(0, 1))
        worker.close()

    def _load(self, worker: CommandWorker, chosen: random.Random) -> bool:
        first = len(self.ledger.ids)
        ids = range(first, first + chosen.randint(1, 30))
        path = self._folder / f"{first}.csv"
        path.write_text("".join(["id,name\n", *(f"{one},n{one}\n" for one in ids)]))
        words = ["ingest", _SOURCE, str(path), "--run-id", f"run-{first}"]
        while (code := self._ended(worker, words, chosen)) not in {0, None}:
            pass
        if code is None:
            # A run that was killed is repeated, with the same id.
            again = CommandWorker()
            while self._ended(again, words, None) != 0:
                pass
            again.close()
        self.ledger.ids += ids
        path.unlink()
        return code == 0

    def _maintain(self, worker: CommandWorker, chosen: random.Random) -> bool:
        name = chosen.choice([_SOURCE, _COPY, _NEWEST])
        compact = ["compact", name, "--min-input-files", "3", "--delete-file-threshold", "1"]
        expire = ["expire", name, "--older-than", "0s", "--retain-last", "1", "--unsafe-retention"]
        # A query that has not read a snapshot of its source could not go on.
        verbs = [compact] if name == _SOURCE else [compact, expire, ["manifests", name]]
        return self._ended(worker, chosen.choice(verbs), chosen) is not None

    def _ended(
        self, worker: CommandWorker, words: list[str], chosen: random.Random | None
    ) -> int | None:
        """Run a command, which may be killed; return its exit code, None if it was killed."""
        is_killed = chosen is not None and chosen.random() < 0.1
        with _later(chosen.uniform(0, 1) if chosen and is_killed else None, worker.kill):
            ended = worker.run([*self._prefix, *words])
        code = None if ended is None else int(ended["code"])
        self.ledger.reports[f"{words[0]}: {'killed' if code is None else code}"] += 1
        return code

    def _count(self, what: str, text: str) -> None:
        """Count how something ended, by the kind of its error."""
        known = (
            "ended",
            "failed to connect back",
            "the peer died",
            "PYTHON_DATA_SOURCE_ERROR",
            "Python worker exited",
            "STREAM_FAILED",
        )
        kind = next((one for one in known if one in text), text[:200])
        self.ledger.reports[f"{what}: {kind}"] += 1


@contextmanager
def _later(seconds: float | None, call: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Call a function after some seconds, unless the block ends before that; None for no call."""
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, call, arguments)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def main() -> int:
    """Run the queries and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", default="queries")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lake-queries-"))
    soak = Soak(folder, options.seed)
    soak.run(options.minutes)
    print(json.dumps(dict(sorted(soak.ledger.reports.items())), indent=1))
    for problem in soak.ledger.problems:
        print(f"PROBLEM: {problem}")
    if soak.ledger.problems:
        print(f"the tables are kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
