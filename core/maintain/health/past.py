"""What past runs of `lake maintain` show about costs: how fast a store answers, and how long actions take.

The costs of readers are the stated ones (`core/maintain/health/costs.py`), corrected by what runs on the same store
measured. An action on a store without a local disk shows how long the store takes to answer, by the time in which the
table's manifests were read after it, one after the other. A rewrite shows how fast bytes are read and written. The
seconds of an action come from runs on the same table, else on the same store. Medians of the newest runs are used,
nothing from fewer than `LEAST_RUNS` runs of a store, and corrections are bounded: a log may contain anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from lake.core.base import locations
from lake.core.base.outcome import Status
from lake.core.maintain.health.costs import AT_ONCE, LOCAL, REQUESTS_PER_FILE, Costs
from lake.core.maintain.run_log.entries import Entry

# Fewer runs show a busy hour, and not a store. Runs on the same table differ less.
LEAST_RUNS, LEAST_OWN_RUNS = 5, 2
# Of more runs, only the newest count.
_MOST_RUNS = 50
_LONGEST_LATENCY, _MOST_TIMES = 2.0, 4.0
# A shorter rewrite shows what it takes to start, and not how fast bytes are read and written.
_LEAST_BYTES = 16 * 1024 * 1024
_FIXED_SECONDS, _BYTES_PER_SECOND = 0.2, 50e6
# What lake itself takes for each file in a manifest: 1 to 9 µs on tables of 10,000 and 100,000 files.
_FILE_SECONDS = 4e-6
# The metadata file's size and the manifest list are two requests.
_OTHER_REQUESTS = 2
# An action of one run took between these many times what is assumed for it.
_LEAST_FACTOR, _MOST_FACTOR = 0.02, 50.0
_DIVISIBLE = "compact"
_DONE = frozenset(map(str, (Status.DONE, Status.PARTIAL)))


@dataclass(frozen=True, slots=True)
class Work:
    """How long an action is expected to take.

    Args:
        seconds: the time.
        runs: the number of runs that show it; 0 for rough costs of the work.
    """

    seconds: float
    runs: int = 0


@dataclass(slots=True)
class _Store:
    """What the runs on a store show, the oldest first.

    Args:
        latencies: seconds to the first byte of an answer.
        rates: how many times as long as assumed a byte of a rewrite took.
        factors: how many times as long as assumed each action took.
    """

    latencies: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    factors: dict[str, list[float]] = field(default_factory=dict)


class Past:
    """What a run log shows.

    Args:
        entries: its entries, the oldest first.
    """

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._stores: dict[str, _Store] = {}
        self._tables: dict[tuple[str, str], list[float]] = {}
        for entry in entries:
            if entry.error is None and entry.status in _DONE:
                self._add(entry)

    def costs(self, stated: Costs, location: str) -> Costs:
        """Return the costs of a table's store: the stated ones, corrected by past runs."""
        found = self._stores.get(store_name(location))
        if found is None:
            return stated
        runs, changed = 0, stated
        if len(found.latencies) >= LEAST_RUNS and stated.storage != LOCAL.storage:
            first_byte, runs = _newest(found.latencies)
            changed = replace(
                changed,
                file=LOCAL.file + REQUESTS_PER_FILE * first_byte / AT_ONCE,
                manifest=LOCAL.manifest + first_byte / AT_ONCE,
            )
        if len(found.rates) >= LEAST_RUNS:
            times, rewrites = _newest(found.rates)
            times = min(max(times, 1 / _MOST_TIMES), _MOST_TIMES)
            changed = replace(changed, data_byte=stated.data_byte * times)
            runs = max(runs, rewrites)
        return replace(changed, runs=runs)

    def work(self, table_uuid: str, location: str, action: str, size: int) -> Work:
        """Return how long an action takes that reads some bytes to rewrite them."""
        own = self._tables.get((table_uuid, action), [])
        store = self._stores.get(store_name(location), _Store())
        others = store.factors.get(action, [])
        factor, runs = 1.0, 0
        if len(own) >= LEAST_OWN_RUNS:
            factor, runs = _newest(own)
        elif len(others) >= LEAST_RUNS:
            factor, runs = _newest(others)
        return Work(round(work_seconds(size) * factor, 3), runs)

    def _add(self, entry: Entry) -> None:
        # A budget may let a compaction do a part of its forecast.
        size = entry.forecast.bytes if entry.forecast else 0
        if entry.action == _DIVISIBLE and entry.bytes is not None:
            size = entry.bytes
        factor = min(max(entry.seconds / work_seconds(size), _LEAST_FACTOR), _MOST_FACTOR)
        self._tables.setdefault((entry.table_uuid, entry.action), []).append(factor)
        if entry.store is None:
            return
        store = self._stores.setdefault(entry.store, _Store())
        store.factors.setdefault(entry.action, []).append(factor)
        if entry.bytes is not None and entry.bytes >= _LEAST_BYTES:
            took = max(entry.seconds - _FIXED_SECONDS, 0.0)
            store.rates.append(took / (entry.bytes / _BYTES_PER_SECOND))
        store.latencies += _latencies(entry)


NOTHING = Past()


def work_seconds(size: int) -> float:
    """Return the rough time of an action that rewrites some bytes."""
    return _FIXED_SECONDS + size / _BYTES_PER_SECOND


def store_name(location: str) -> str:
    """Return the name of the store of a location, without a user: a scheme and the name of a bucket or a host."""
    scheme, authority = locations.store_of(location)
    return f"{scheme}://{authority.rpartition('@')[2]}"


def _latencies(entry: Entry) -> Iterator[float]:
    """Yield how long the store took for an answer, if the table was measured after the action."""
    after = entry.after
    if after is None or after.measured_seconds is None or after.manifests is None:
        return
    computed = (
        after.manifests * LOCAL.manifest
        + (after.manifest_bytes or 0) * LOCAL.manifest_byte
        + ((after.files or 0) + (after.delete_files or 0)) * _FILE_SECONDS
    )
    waited = max(after.measured_seconds - computed, 0.0)
    yield min(waited / (after.manifests + _OTHER_REQUESTS), _LONGEST_LATENCY)


def _newest(values: Sequence[float]) -> tuple[float, int]:
    """Return the median of the newest values, and their number."""
    newest = values[-_MOST_RUNS:]
    return median(newest), len(newest)
