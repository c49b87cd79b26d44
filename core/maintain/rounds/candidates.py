"""Look at a table: what it needs, what its policy says, and what is left of dead jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lake.core.base.facts import Facts
from lake.core.base.units import parse_time_ms
from lake.core.maintain.expiration.retention import check_floor
from lake.core.maintain.health.grade import wasted
from lake.core.maintain.health.measure import measured
from lake.core.maintain.health.past import NOTHING, Past, store_name
from lake.core.maintain.rounds.statistics_age import StatisticsAge, statistics_age
from lake.core.maintain.run_log.entries import ExpectedFacts, Measures

if TYPE_CHECKING:
    from lake.core.base.facts import ErrorFacts
    from lake.core.maintain.health.facts import ForecastFacts, HealthFacts
    from lake.core.maintain.health.measure import Asked
    from lake.core.maintain.health.survey import Survey
    from lake.core.maintain.policies.policy import TablePolicy
    from lake.core.spec.expressions.conditions import Value
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Base(Facts):
    """The state of a table that a plan was made for."""

    base_snapshot_id: str | None
    """The current snapshot; null without one."""
    schema_id: int
    """The current schema."""
    spec_id: int

    def drift(self, now: Base) -> str:
        """Return what has changed since; empty if nothing has."""
        if now.schema_id != self.schema_id:
            return f"the schema was {self.schema_id} and is {now.schema_id}"
        if now.spec_id != self.spec_id:
            return f"the partition spec was {self.spec_id} and is {now.spec_id}"
        if now.base_snapshot_id != self.base_snapshot_id:
            return f"the snapshot was {self.base_snapshot_id} and is {now.base_snapshot_id}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A table that may get maintenance.

    Args:
        namespace: the name of its namespace.
        table: its name.
        uuid: its UUID.
        base: its snapshot, schema and partition spec.
        store: the store of its files.
        row: what `lake health` measures.
        policy: what may be done.
        busy: the partitions that a compaction would leave alone, and why; empty for none.
        statistics: the age of its statistics of columns; None if it has none.
        pending: the number of checkpoints that were never committed.
        replay_error: why they could not be counted.
        manifest_bytes: the bytes of its manifests with live files; None if they were not read.
        measured_seconds: how long they took to be read; None if other tables were read beside.
    """

    namespace: str
    table: str
    uuid: str
    store: str
    base: Base
    row: HealthFacts
    policy: TablePolicy
    statistics: StatisticsAge | None
    busy: str = ""
    pending: int = 0
    replay_error: ErrorFacts | None = None
    manifest_bytes: int | None = None
    measured_seconds: float | None = None

    def forecast(self, action: str) -> ForecastFacts | None:
        """Return the forecast of an action; None if it would do nothing, or has no forecast."""
        return next((item for item in self.row.forecasts if item.command == action), None)

    @property
    def gain_per_second(self) -> float:
        """The seconds that all paying actions save a scan, for each second of their work."""
        paying = [item for item in self.row.forecasts if item.pays]
        saved = sum(max(item.seconds, item.partition_seconds or 0.0) for item in paying)
        return saved / sum((item.work_seconds or 0.0 for item in paying), _LEAST_WORK)

    def following(self, before: Candidate) -> Candidate:
        """Return the table after an action; statistics that expired with their snapshot are computed again."""
        if self.statistics is not None or before.statistics is None:
            return self
        return replace(self, statistics=replace(before.statistics, has_expired=True))

    def measures(self) -> Measures:
        """Return the measures for the run log."""
        row, reading = self.row, self.row.reading
        return Measures(
            files=reading.files,
            small_files=reading.small_files,
            bytes=reading.bytes,
            delete_files=reading.delete_files,
            deleted_rows=reading.deleted_rows_at_most,
            manifests=reading.manifests,
            snapshots=row.snapshots,
            metadata_bytes=row.metadata_bytes,
            scan_seconds=row.scan.seconds if row.scan else None,
            partition_scan_seconds=row.partition_scan.seconds if row.partition_scan else None,
            manifest_bytes=self.manifest_bytes,
            measured_seconds=self.measured_seconds,
        )


# No work takes no time.
_LEAST_WORK = 0.001


def look(  # noqa: PLR0913 - each option is used alone
    table: Table,
    namespace: str,
    policy: TablePolicy,
    now_ms: int,
    past: Past = NOTHING,
    *,
    most_entries: int | None,
    asked: Asked,
    earlier: Survey | None = None,
) -> tuple[Candidate, Survey | None]:
    """Measure a table; return what its manifests contain too, if they were read.

    Args:
        table: the table.
        namespace: the name of its namespace.
        policy: what may be done to it.
        now_ms: the time, in ms since 1970.
        past: what past runs show about costs.
        most_entries: the most entries of manifests that are read; None for all.
        asked: what the policy asks the actions to do.
        earlier: what its manifests contained before, see `survey`.

    Raises:
        RefusedError: its policy would expire snapshots of the last 24 hours.
        LakeError: its manifests cannot be read, or a property has a value that is not allowed.
    """
    check_floor(asked.retention, now_ms)
    row, found = measured(
        table,
        namespace,
        now_ms,
        most_entries=most_entries,
        asked=asked,
        past=past,
        earlier=earlier,
    )
    seen = Candidate(
        namespace=namespace,
        table=table.identifier,
        uuid=str(table.metadata.table_uuid),
        store=store_name(table.metadata.location),
        base=_base(table),
        row=row,
        policy=policy,
        statistics=statistics_age(table.metadata),
        busy=found.busy.text if found is not None and found.busy is not None else "",
        manifest_bytes=None if found is None else found.manifest_bytes,
    )
    return seen, found


def _base(table: Table) -> Base:
    head = table.metadata.current_snapshot()
    return Base(
        base_snapshot_id=None if head is None else str(head.snapshot_id),
        schema_id=table.metadata.current_schema_id,
        spec_id=table.metadata.default_spec_id,
    )


def expected(forecast: ForecastFacts | None) -> ExpectedFacts | None:
    """Return a forecast as the run log has it."""
    if forecast is None:
        return None
    return ExpectedFacts(
        before=forecast.before,
        after=forecast.after,
        bytes=forecast.bytes,
        seconds=forecast.seconds,
        partition_seconds=forecast.partition_seconds,
        work_seconds=forecast.work_seconds,
    )


def condition_values(row: HealthFacts, now_ms: int) -> Mapping[str, Value]:
    """Return the values that the conditions of policies compare, by their names."""
    reading = row.reading
    return {
        **{name: getattr(reading, name) for name in _READ},
        "snapshots": row.snapshots,
        "metadata_bytes": row.metadata_bytes,
        "growth_bytes": row.growth_bytes,
        "small_ratio": _ratio(reading.small_files, reading.files),
        "delete_ratio": _ratio(reading.deleted_rows_at_most, reading.rows),
        "wasted_seconds": wasted(row) if row.scan else None,
        "oldest_snapshot": _age(row.oldest_snapshot, now_ms),
        "last_commit": _age(row.last_commit, now_ms),
    }


_READ: Sequence[str] = (
    *("files", "small_files", "bytes", "rows", "partitions", "delete_files", "manifests"),
    *("position_delete_files", "equality_delete_files", "deletion_vectors"),
)


def _ratio(part: int | None, whole: int | None) -> float | None:
    if part is None or whole is None:
        return None
    return part / whole if whole else 0.0


def _age(time: str | None, now_ms: int) -> int | None:
    return None if time is None else max(now_ms - parse_time_ms(time), 0)
