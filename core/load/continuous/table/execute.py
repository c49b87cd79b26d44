"""Load what is added to another table, epoch by epoch: rows and the position in one snapshot of the target.

The position is in the summary of each epoch's snapshot, so no other state exists. If the target is rolled back, the
position goes back with it, and the rows come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base.choices import OnGap
from lake.core.base.errors import LakeError, NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.load.continuous.facts import CopyFacts, CopyResult, CopyStatus
from lake.core.load.continuous.loader import between_epochs
from lake.core.load.continuous.options import check_stream
from lake.core.load.continuous.runner import ContinuousLoad
from lake.core.load.continuous.totals import commit_mark
from lake.core.load.ingest.facts import IngestResult
from lake.core.load.ingest.options import OVERWRITE, LoadRequest
from lake.core.read.continuous.discovery import Discovery, discover
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Gap, Lag, Position, Strategy, effect_of_skipping
from lake.core.read.continuous.report import gap_warnings, lag_of
from lake.core.read.scan.plan import ScanPlan
from lake.core.spec.properties.table_properties import UPSERT_ENABLED
from lake.core.table.catalogs.names import with_new_name
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.branch_notes import history_of
from lake.core.table.snapshots.live_files import LiveFiles, no_files
from lake.core.table.snapshots.streams import STREAM, StreamEpoch

if TYPE_CHECKING:
    from lake.core.load.continuous.loader import Loader
    from lake.core.table.catalogs.catalog import Table

_TABLE = "table_uuid"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options of a load that follows a table.

    Args:
        source: the table to follow.
        stream: the stream's id.
        branch: the branch of the target.
        commit_interval: how often to look for new rows, in milliseconds.
        on_gap: what to do about a gap in the source's history.
        once: load what is there and end.
        start: where a new stream starts; None for all rows of the source.
        from_snapshot: start with what was added after this snapshot of the source.
        inclusive: load what `from_snapshot` itself added, too.
        start_at: start with the first snapshot of this time or later.
        metrics_file: a file of metrics, replaced at each look; None to write none.
        quiet: print no line at the start and after commits.

    Raises:
        InvalidRequestError: a value is not valid or contradicts another.
    """

    source: str
    stream: str
    branch: str = ancestry.MAIN
    commit_interval: int = 60_000
    on_gap: OnGap = OnGap.FAIL
    once: bool = False
    start: Strategy | None = None
    from_snapshot: str | None = None
    inclusive: bool = False
    start_at: int | None = None
    metrics_file: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        check_stream(self.stream)
        _ = self.follow

    @property
    def follow(self) -> FollowOptions:
        """How the source is followed."""
        chosen = (self.start, self.from_snapshot, self.start_at)
        return FollowOptions(
            start=Strategy.TABLE if chosen == (None, None, None) else self.start,
            from_snapshot=self.from_snapshot,
            inclusive=self.inclusive,
            start_at=self.start_at,
            on_gap=self.on_gap,
        )


def preview_copy(loader: Loader, options: CopyOptions) -> Outcome:
    """Describe what the next epoch would load; nothing is written."""
    copy = _Copy(loader=loader, options=options)
    copy.plan = copy.planned(copy.next_discovery(None))
    return copy.outcome(Status.DRY_RUN)


def copy_status(loader: Loader, options: CopyOptions) -> Outcome:
    """Report where a load that follows a table is; nothing is written.

    A gap, at which the next run would end, makes the outcome suspect.

    Raises:
        RefusedError: the position of the stream is not known, or belongs to another table.
    """
    copy = _Copy(loader=loader, options=options)
    copy.look()
    copy.plan = copy.place()
    lag = copy.lag()
    gap = None if lag is None else lag.gap
    return replace(
        copy.outcome(Status.DONE if gap is None else Status.SUSPECT),
        result=copy.standing(),
        warnings=gap_warnings(lag, options.source, ancestry.MAIN),
    )


def run_copy(
    loader: Loader, options: CopyOptions, compact: Callable[[], Outcome] | None
) -> Outcome:
    """Load what was added to the source, epoch by epoch.

    Args:
        loader: loads the epochs.
        options: the source, and how it is followed.
        compact: compacts the table if that is due; None to never do it.

    Raises:
        GapError: history of the source that was not loaded does not exist any more.
        RefusedError: the position of the stream is not known, or belongs to another table.
        CommitUnknownError: the outcome of an epoch is unknown; the next run finds out.
    """
    return _Copy(loader=loader, options=options).run(compact)


@dataclass(slots=True, kw_only=True)
class _Copy(ContinuousLoad[Discovery]):
    options: CopyOptions
    gaps: list[Gap] = field(default_factory=list)
    position: Position | None = None
    # Where snapshots without rows end that follow the newest epoch.
    _passed: tuple[Position | None, Position] | None = None
    _epoch: int = 0
    # Whether all rows of the last discovery were rejected.
    _rejected: bool = False
    _source: Table | None = None
    # The first discovery, until it is loaded; and the head of the source to end at, None not to end.
    _first: Discovery | None = None
    _target: int | None = None
    # Whether the last discovery reached the head of the source.
    _is_at_end: bool = False

    @property
    def stream(self) -> CopyOptions:
        """The options of the stream."""
        return self.options

    @property
    def epoch_number(self) -> int:
        """The number of the last epoch in the target."""
        return self._epoch

    def begin(self) -> None:
        """Look at both tables, and determine what to load first."""
        with between_epochs(self.session):
            if self.options.once:
                self._target = ancestry.head_id(self._source_table().metadata, ancestry.MAIN)
            self._first = self._discover()
        self.plan = self.planned(self._first)

    def next_work(self) -> Discovery | None:
        """Return what follows the position, after a wait until there is something."""
        found, self._first = self._first, None
        while found is None:
            if self._is_at_end:
                if self.options.once:
                    return None
                self.session.clock.sleep(self.options.commit_interval / 1000)
            found = self._discover()
            self.show()
        return found

    def _discover(self) -> Discovery | None:
        found = self.next_discovery(self._target)
        self._is_at_end = found is None or found.reached_target
        return found

    def load(self, work: Discovery) -> Mapping[str, int] | None:
        """Load a discovery as the next epoch; if another run of the stream was faster, nothing happens."""
        epochs, files = self.totals.epochs, self.totals.files
        self._take(work)
        self._epoch += self.totals.epochs - epochs
        return {"files": self.totals.files - files} if self.totals.epochs > epochs else None

    # The position

    def next_discovery(self, target: int | None) -> Discovery | None:
        """Return what follows the position in the target; None if there is nothing."""
        source, now_ms = self.look(), self.session.clock.now_ms()
        return discover(source, self.position, self.options.follow, now_ms=now_ms, target=target)

    def look(self) -> Table:
        """Load the source, and determine the position in it."""
        self._source = source = self._source_table()
        saved = self._position(source)
        if self._passed is not None and self._passed[0] == saved:
            saved = self._passed[1]
        self.position = saved
        return source

    def _position(self, source: Table) -> Position | None:
        """Return the position of the stream's newest epoch in the target; None if it has none.

        Raises:
            RefusedError: it is not known, or belongs to another table.
        """
        table, newest = self.newest()
        self._epoch = newest.number if newest else 0
        if newest is None:
            if table is not None:
                self.require_no_epoch(table)
                if self.is_noted(table) and not self._starts_with_table:
                    raise self.lost_start()
            return None
        try:
            position = Position.from_plain(newest.offsets)
        except ValueError:
            position = None
        if position is None or newest.offsets.get(_TABLE) != str(source.metadata.table_uuid):
            raise RefusedError(
                f"{newest} of {self.table} was not loaded from {self.options.source} as it is now",
                hint=f"the source is another table with that name; choose another {Option.STREAM}",
            )
        return position

    def _source_table(self) -> Table:
        """Load the source; the stream's position belongs to its UUID.

        Raises:
            NotFoundError: it does not exist; if it has another name now, the error says so.
        """
        try:
            return self.session.table(self.options.source)
        except NotFoundError as error:
            _, newest = self.newest()
            uuid = newest.offsets.get(_TABLE) if newest else None
            if not isinstance(uuid, str):
                raise
            raise with_new_name(error, self.session.catalog, self.options.source, uuid) from error

    @property
    def _starts_with_table(self) -> bool:
        return self.options.follow.first.strategy is Strategy.TABLE

    # Epochs

    def _take(self, found: Discovery) -> None:
        """Load a discovery, and determine the position after it."""
        if found.gap is not None:
            self.gaps.append(found.gap)
            effect = effect_of_skipping(found.gap, "loaded")
            self.session.warn(
                f"gap {found.gap.kind} in {self.options.source} after {found.gap.position}: "
                f"{'all of its rows are loaded' if found.replaces else effect}; "
                f"the load goes on after {found.gap.resumed_at}"
            )
        if found.skipped:
            self.session.warn(
                f"{len(found.skipped)} snapshots of {self.options.source} are not appends, and their changes are not "
                f"loaded: {found.skipped[0].snapshot_id} ({found.skipped[0].operation})"
            )
        before = self.position if self._passed is None else self._passed[0]
        files = self._files(found)
        self._rejected = False
        is_loaded = files is not None and self._load(found, files)
        self._passed = None if is_loaded else (before, found.end)
        self.position = found.end
        if is_loaded or self._has_later_epoch():
            return
        # Without an epoch, the next run would start later, find the gap again, or reject the rows again.
        is_start = before is None and not self._starts_with_table
        if found.gap is not None or is_start or self._rejected:
            self._mark(found)
            self._passed = None

    def _files(self, found: Discovery) -> LiveFiles | None:
        """Return the files to load; None if there are none."""
        if isinstance(found.plan, ScanPlan):
            return found.plan.found
        return self._no_files() if self._replaces(found) else None

    def _no_files(self) -> LiveFiles:
        return no_files(self._looked_at)

    @property
    def _looked_at(self) -> Table:
        """The source as it was at the last discovery."""
        if self._source is None:
            raise LakeError("nothing was discovered yet")
        return self._source

    def _replaces(self, found: Discovery) -> bool:
        """Whether rows replace those of earlier epochs; a new stream has none."""
        return found.replaces and self.position is not None

    def _load(self, found: Discovery, files: LiveFiles) -> bool:
        """Load files as the next epoch, and return whether this run committed it."""
        epoch = self._next_epoch(found)

        def requested() -> LoadRequest:
            options = self.loader.options
            request = LoadRequest(options=options, epoch=epoch, table_files=files)
            if not self._replaces(found):
                return request
            options = replace(options, mode=OVERWRITE, allow_empty=True)
            return replace(request, options=options, replaced_head=self._require_own_rows())

        outcome = self.loader.load(requested)
        if outcome.status is Status.NOTHING_TO_DO:
            self._rejected = bool(IngestResult.of(outcome.result).rows_rejected)
            return False
        self.totals.add(outcome, files.count)
        return True

    def _next_epoch(self, found: Discovery) -> StreamEpoch:
        offsets = {**found.end.document(), _TABLE: str(self._looked_at.metadata.table_uuid)}
        return StreamEpoch(self.options.stream, self._epoch + 1, offsets)

    def _has_later_epoch(self) -> bool:
        """Whether the target has an epoch after the position: another run of the stream may be faster."""
        _, newest = self.newest()
        return newest is not None and newest.number > self._epoch

    def _mark(self, found: Discovery) -> None:
        """Commit an epoch without rows, whose position is where the next run continues."""
        epoch, table = self._next_epoch(found), self.table_now()
        if table is None:
            request = LoadRequest(
                options=self.loader.options, epoch=epoch, table_files=self._no_files()
            )
            self.totals.add(self.loader.load(lambda: request), 0)
        else:
            self.totals.mark(commit_mark(self.session, table, self.options.branch, epoch))

    def _require_own_rows(self) -> int | None:
        """Return the head of the target; check that all retained snapshots of it are the stream's, or compactions.

        Raises:
            RefusedError: another writer changed the target: its changes would be lost.
        """
        table, stream = self.session.table(self.table), self.options.stream
        if UPSERT_ENABLED.of(table.properties) and table.schema.identifier_field_ids:
            raise RefusedError(
                f"{Option.ON_GAP} table cannot replace the rows of {self.table} by key, which its property "
                f"{UPSERT_ENABLED.name} asks for",
                hint=f"{Option.ON_GAP} skip goes on with the snapshots that are left",
            )
        for snapshot in history_of(table.metadata, self.options.branch):
            epoch = StreamEpoch.of_text(properties_of(snapshot).get(STREAM))
            is_own = epoch is not None and epoch.stream == stream
            if not is_own and ancestry.operation_of(snapshot) != "replace":
                raise RefusedError(
                    f"{Option.ON_GAP} table replaces all rows of {self.table}, but snapshot "
                    f"{snapshot.snapshot_id} is not one of stream {stream}",
                    hint=f"{Option.ON_GAP} skip keeps the rows and goes on; or load {self.options.source} into "
                    "another table",
                )
        return ancestry.head_id(table.metadata, self.options.branch)

    # The outcome

    def lag(self) -> Lag | None:
        """Return what the source has after the position; None if there is no position yet."""
        if self._source is None:
            return None
        return lag_of(self._source.metadata, ancestry.MAIN, self.position)

    def describe(self) -> str:
        """Return what is followed."""
        return f"following {self.options.source}"

    def count_waiting(self) -> tuple[str, int | None]:
        """Return how many snapshots of the source wait."""
        lag = self.lag()
        return "snapshots", None if lag is None else lag.snapshots

    @property
    def is_odd(self) -> bool:
        """Whether rows were passed over."""
        return bool(self.gaps)

    def standing(self) -> CopyStatus:
        """Return where the stream is."""
        lag = self.lag()
        gap = lag.gap if lag else None
        return CopyStatus(epoch=self._epoch, position=self.position, lag=lag, gap=gap)

    def metrics(self) -> Mapping[str, float | None]:
        """Return what the file of metrics contains."""
        lag = self.lag()
        return {
            "epoch": self._epoch,
            **({f"lag_{name}": value for name, value in lag.document().items()} if lag else {}),
            "gap": int(lag is not None and lag.gap is not None),
            "gaps": len(self.gaps),
        }

    def planned(self, found: Discovery | None) -> CopyFacts:
        """Return the plan as it is shown."""
        files = found.plan.found if found and isinstance(found.plan, ScanPlan) else None
        return replace(
            self.place(),
            snapshots=len(found.snapshots) if found else 0,
            files=files.count if files else 0,
            bytes=files.bytes if files else 0,
        )

    def place(self) -> CopyFacts:
        """Return what is loaded, and up to where it is."""
        return CopyFacts(
            source=self.options.source,
            stream=self.options.stream,
            epoch=self._epoch,
            position=self.position,
        )

    def facts(self) -> CopyResult:
        """Return the result."""
        return CopyResult(
            rows=self.totals.rows,
            epochs=self.totals.epochs,
            files_loaded=self.totals.files,
            position=self.position,
            lag=self.lag(),
            gaps=self.gaps,
            compactions=self.compactions,
            stopped_by=self.stopped_by,
        )
