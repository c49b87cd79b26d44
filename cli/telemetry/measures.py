"""Record a command as metrics of OpenTelemetry, and send them over HTTP in the background.

Attributes are names, numbers and kinds of errors: no message, no value of a row or a filter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from lake.cli.telemetry.sending import LONGEST_TEXT, resource_of
from lake.cli.telemetry.trace import Ending, Trace, described
from lake.core.base.outcome import Outcome

# Commands take from a tenth of a second to hours.
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400)
# The counters of what results count, by a word in the names of their numbers, and the units.
_COUNTED = {"rows": "{row}", "files": "{file}", "bytes": "By"}


class Measures(Trace):
    """Measures a command; see `begun` of `begin`."""

    def __init__(
        self,
        command: str,
        variables: Mapping[str, str],
        version: str,
        clean: Callable[[str], str],
    ) -> None:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        resource = resource_of(variables, version)
        self.provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self.provider.get_meter("lake", version)
        self._duration = meter.create_histogram(
            "lake.command.duration",
            "s",
            "Commands, and their work on one of several tables",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._commits = meter.create_counter("lake.commits", "{commit}", "Snapshots")
        self._retries = meter.create_counter(
            "lake.commit.retries", "{retry}", "Commits that were tried again"
        )
        self._counters = {
            word: meter.create_counter(f"lake.{word}", unit, f"What results count as {word}")
            for word, unit in _COUNTED.items()
        }
        self._command, self._clean = command, clean
        self._begun = time.monotonic()
        # Several threads may each work on a table: the command, the table, and when it began.
        self._of_thread = threading.local()

    def begin_table(self, command: str, table: str) -> None:
        """Begin the work on one of several tables."""
        self._of_thread.table = command, table, time.monotonic()

    def end_table(self, ending: Ending) -> None:
        """End the work on one of several tables."""
        command, table, begun = getattr(self._of_thread, "table", None) or (None, None, 0.0)
        self._of_thread.table = None
        if command is not None:
            self._record({"lake.command": command, "lake.table": table}, begun, ending)

    def retried(self) -> None:
        """Count a commit that is tried again."""
        command, table, _ = getattr(self._of_thread, "table", None) or (self._command, None, 0.0)
        self._retries.add(1, self._attributes({"lake.command": command, "lake.table": table}))

    def end_round(self, ending: Ending) -> None:
        """End one of the rounds, and begin the next one."""
        self._record({"lake.command": self._command}, self._begun, ending)
        self._begun = time.monotonic()

    def end(self, ending: Ending, code: int, facts: Mapping[str, str | None]) -> None:
        """End the command."""
        known = {f"lake.{name}": value for name, value in facts.items()}
        self._record({"lake.command": self._command, **known}, self._begun, ending, code)

    def _record(
        self,
        of: Mapping[str, str | None],
        begun: float,
        ending: Ending,
        code: int | None = None,
    ) -> None:
        of = self._attributes(of)
        how: dict[str, Any] = {} if code is None else {"process.exit.code": code}
        self._duration.record(time.monotonic() - begun, {**of, **described(ending), **how})
        if not isinstance(ending, Outcome):
            return
        if ending.snapshot_ids:
            self._commits.add(len(ending.snapshot_ids), of)
        for name, value in ending.result.values().items():
            for word in _COUNTED.keys() & set(name.split("_")):
                if isinstance(value, int) and value > 0:
                    self._counters[word].add(value, {**of, "lake.measure": name})

    def _attributes(self, found: Mapping[str, str | None]) -> dict[str, str]:
        return {name: self._clean(text)[:LONGEST_TEXT] for name, text in found.items() if text}
