"""The options of a continuous scan as typed values, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lake.core.base.choices import STARTS, NonAppend, OnGap, Order, SchemaMode, TimeUnit
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.read.continuous.position import Start, Strategy
from lake.core.read.exports.destinations import Output
from lake.core.read.exports.formats import JSON
from lake.core.read.scan.plan import ScanOptions

if TYPE_CHECKING:
    from lake.core.read.scan.partner_keys import KeyOptions

_MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """When a follower stops; one of the fields is set.

    Args:
        after_ms: milliseconds after the start of the run.
        time_ms: a time, in milliseconds since 1970.
        snapshot: the last snapshot to read: its id, a tag, a branch, or ``@`` and a time.
    """

    after_ms: int | None = None
    time_ms: int | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """The options of a continuous scan. Sizes are in bytes, times in milliseconds.

    Args:
        scan: branch, filter, columns and splits.
        state: the folder that keeps the position; None to keep none.
        output: where rows go; None for a terminal.
        start: where to start without a saved position; None for ``table`` with a state, else
            ``latest-exclusive``.
        from_snapshot: read what was added after this snapshot.
        inclusive: read what `from_snapshot` itself added, too.
        start_at: read from the first snapshot of this time or later.
        changes: read the changes of all operations instead of appended rows.
        key: key columns that identify updates.
        order: the order of the splits of one discovery.
        watermark_column: the column of the watermark and of the order ``time``.
        watermark_unit: the unit of that column if its type is long.
        non_append: what to do with snapshots that an append scan cannot show.
        on_gap: what to do about a gap.
        schema: which schema rows have.
        monitor_interval: the time between two discoveries.
        max_planning_snapshots: the most snapshots of one discovery.
        max_planning_failures: the most failed discoveries in a row; -1 for any number.
        max_pending_splits: do not look for more if this many splits are pending; None for no limit.
        epoch_size: the size of an epoch's input.
        once: read what is there and end.
        until: when to stop.
        max_epochs: stop after this number of epochs.
        consumer: the name under which the table keeps what is not read yet.
        consumer_ttl: how long it does so after the last run.
        epoch_markers: mark the end of each epoch in a stream of JSON.
        metrics_file: the file for metrics.
        wait: wait this long for another run with the same state.
        prune_with: how rows are chosen by keys of partners; None for all rows.

    Raises:
        InvalidRequestError: a value is out of range or contradicts another.
    """

    scan: ScanOptions = field(default_factory=ScanOptions)
    state: str | None = None
    output: Output | None = None
    start: Strategy | None = None
    from_snapshot: str | None = None
    inclusive: bool = False
    start_at: int | None = None
    changes: bool = False
    key: tuple[str, ...] = ()
    order: Order = Order.FIFO
    watermark_column: str | None = None
    watermark_unit: TimeUnit | None = None
    non_append: NonAppend = NonAppend.SKIP
    on_gap: OnGap = OnGap.FAIL
    schema: SchemaMode = SchemaMode.FOLLOW
    monitor_interval: int = _MINUTE_MS
    max_planning_snapshots: int = 100
    max_planning_failures: int = 3
    max_pending_splits: int | None = None
    epoch_size: int = _GIB
    once: bool = False
    until: Until | None = None
    max_epochs: int | None = None
    consumer: str | None = None
    consumer_ttl: int = 30 * _DAY_MS
    epoch_markers: bool = False
    metrics_file: str | None = None
    wait: int | None = None
    prune_with: KeyOptions | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        self._check_start()
        self._check_scan()
        self._check_order()
        self._check_state()

    def _check_numbers(self) -> None:
        least = {
            Option.MAX_PLANNING_SNAPSHOTS: (self.max_planning_snapshots, 1),
            Option.MAX_PLANNING_FAILURES: (self.max_planning_failures, -1),
            Option.MAX_PENDING_SPLITS: (self.max_pending_splits, 1),
            Option.MONITOR_INTERVAL: (self.monitor_interval, 1),
            Option.EPOCH_SIZE: (self.epoch_size, 1),
            Option.MAX_EPOCHS: (self.max_epochs, 1),
        }
        for option, (value, bound) in least.items():
            if value is not None and value < bound:
                raise InvalidRequestError(f"{option} must be at least {bound}, not {value}")

    def _check_start(self) -> None:
        given = {
            Option.START: self.start not in (None, Strategy.SNAPSHOT, Strategy.TIME),
            Option.FROM_SNAPSHOT: self.from_snapshot is not None,
            Option.START_AT: self.start_at is not None,
        }
        chosen = [str(option) for option, there in given.items() if there]
        if len(chosen) > 1:
            raise InvalidRequestError(f"{chosen[0]} contradicts {chosen[1]}")
        needed = {Strategy.SNAPSHOT: Option.FROM_SNAPSHOT, Strategy.TIME: Option.START_AT}
        option = None if self.start is None else needed.get(self.start)
        if option is not None and not given[option]:
            raise InvalidRequestError(f"this {Option.START} needs {option}")
        if self.inclusive and self.from_snapshot is None:
            raise InvalidRequestError(f"{Option.INCLUSIVE} needs {Option.FROM_SNAPSHOT}")

    def _check_scan(self) -> None:
        given = {
            Option.SNAPSHOT: self.scan.snapshot,
            Option.TO_SNAPSHOT: self.scan.to_snapshot,
            Option.LIMIT: self.scan.limit,
        }
        for option, value in given.items():
            if value is not None:
                raise InvalidRequestError(f"{option} contradicts {Option.FOLLOW}")
        if self.key and not self.changes:
            raise InvalidRequestError(f"{Option.KEY} needs {Option.CHANGES}")

    def _check_order(self) -> None:
        if self.changes:
            for option, given in (
                (Option.ORDER, self.order is not Order.FIFO),
                (Option.WATERMARK_COLUMN, self.watermark_column is not None),
            ):
                if given:
                    raise InvalidRequestError(
                        f"{option} contradicts {Option.CHANGES}: changes are read commit by commit"
                    )
        if self.watermark_column is None:
            if self.order is Order.TIME:
                raise InvalidRequestError(f"{Option.ORDER} time needs {Option.WATERMARK_COLUMN}")
            if self.watermark_unit is not None:
                raise InvalidRequestError(
                    f"{Option.WATERMARK_UNIT} needs {Option.WATERMARK_COLUMN}"
                )

    def _check_state(self) -> None:
        if self.state is not None and "://" in self.state:
            raise InvalidRequestError(
                f"{Option.STATE} must be a folder on this machine, not {self.state}"
            )
        if self.state is None:
            for option, given in (
                (Option.OUTPUT, self.output is not None and self.output.stream is None),
                (Option.CONSUMER, self.consumer is not None),
            ):
                if given:
                    raise InvalidRequestError(f"{option} needs {Option.STATE}")
        output = self.output
        in_json = output is None or (output.stream is not None and output.format == JSON)
        if self.epoch_markers and not in_json:
            raise InvalidRequestError(f"{Option.EPOCH_MARKERS} needs a stream of JSON")
        if self.once and (self.until is not None or self.max_epochs is not None):
            other = Option.MAX_EPOCHS if self.until is None else Option.UNTIL
            raise InvalidRequestError(f"{Option.ONCE} contradicts {other}")

    @property
    def branch(self) -> str:
        """The branch to follow."""
        return self.scan.branch

    @property
    def first(self) -> Start:
        """Where to start without a saved position."""
        if self.from_snapshot is not None:
            return Start(
                strategy=Strategy.SNAPSHOT,
                snapshot=self.from_snapshot,
                inclusive=self.inclusive or self.start is Strategy.SNAPSHOT,
            )
        if self.start_at is not None:
            return Start(strategy=Strategy.TIME, time_ms=self.start_at)
        if self.start is not None:
            return Start(strategy=self.start)
        # Upstream starts with the latest snapshot, which omits the rows before it without a message.
        return Start(strategy=Strategy.LATEST_EXCLUSIVE if self.state is None else Strategy.TABLE)

    def pinned_choices(self) -> dict[str, Any]:
        """Return the options that may change only while nothing is pending, as JSON-ready values."""
        scan = self.scan
        return {
            "mode": "changes" if self.changes else "append",
            "key": list(self.key),
            "where": scan.where,
            "select": None if scan.select is None else list(scan.select),
            "ignore_case": scan.ignore_case,
            "order": self.order.value,
            "watermark": [self.watermark_column, self.watermark_unit],
            "schema": self.schema.value,
            "split": [scan.split_size, scan.split_lookback, scan.split_open_cost],
            "prune": None if self.prune_with is None else self.prune_with.to_plain(),
        }

    def changed_choices(self, saved: Mapping[str, Any]) -> Sequence[Option]:
        """Return the options that differ from saved `pinned_choices`."""
        now = self.pinned_choices()
        return [option for name, option in _CHOICES.items() if now[name] != saved.get(name)]


_CHOICES: Mapping[str, Option] = {
    "mode": Option.CHANGES,
    "key": Option.KEY,
    "where": Option.WHERE,
    "select": Option.SELECT,
    "ignore_case": Option.IGNORE_CASE,
    "order": Option.ORDER,
    "watermark": Option.WATERMARK_COLUMN,
    "schema": Option.SCHEMA,
    "split": Option.SPLIT_SIZE,
    "prune": Option.PRUNE_WITH,
}

_UPSTREAM: Mapping[str, Strategy] = {
    "TABLE_SCAN_THEN_INCREMENTAL": Strategy.TABLE,
    "INCREMENTAL_FROM_LATEST_SNAPSHOT": Strategy.LATEST,
    "INCREMENTAL_FROM_LATEST_SNAPSHOT_EXCLUSIVE": Strategy.LATEST_EXCLUSIVE,
    "INCREMENTAL_FROM_EARLIEST_SNAPSHOT": Strategy.EARLIEST,
    "INCREMENTAL_FROM_SNAPSHOT_ID": Strategy.SNAPSHOT,
    "INCREMENTAL_FROM_SNAPSHOT_TIMESTAMP": Strategy.TIME,
}


def parse_strategy(text: str) -> Strategy:
    """Return a strategy by its name or by Flink's name for it, in any case.

    Raises:
        InvalidRequestError: there is no such strategy.
    """
    if text.lower() in STARTS:
        return Strategy(text.lower())
    found = _UPSTREAM.get(text.upper().replace("-", "_"))
    if found is None:
        raise InvalidRequestError(f"{Option.START} is {text!r}, not one of {', '.join(STARTS)}")
    return found
