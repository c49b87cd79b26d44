"""Record a command as spans of OpenTelemetry, and send them over HTTP in the background.

The span of the command contains one for each table of a command that works on several, and these contain one for each
phase. Attributes are names, ids, counts and kinds of errors: no message, no value of a row or a filter.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lake.cli.telemetry.sending import LONGEST_TEXT, resource_of
from lake.cli.telemetry.trace import Ending, Trace, described
from lake.core.base.facts import Facts
from lake.core.base.outcome import Outcome
from lake.core.base.progress import Meter, Progress, Step

_PLANNING = "planning"
_MOST_IDS = 100
_PARENT = {"traceparent": "TRACEPARENT", "tracestate": "TRACESTATE"}


class Spans(Trace):
    """Records a command; see `begun` of `begin`."""

    def __init__(
        self,
        command: str,
        variables: Mapping[str, str],
        version: str,
        clean: Callable[[str], str],
    ) -> None:
        found = {key: variables[name] for key, name in _PARENT.items() if name in variables}
        self._outside = TraceContextTextMapPropagator().extract(found, Context())
        resource = resource_of(variables, version)
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self.provider.get_tracer("lake", version)
        self._command, self._clean = command, clean
        # One thread shows phases while another one may end the command.
        self._lock = threading.RLock()
        self._table: Span | None = None
        self._phase: tuple[Span, Meter | None] | None = None
        self._seen: WeakSet[Meter] = WeakSet()
        self._root = self._begin(command, self._outside)

    def progress(self, display: Progress) -> Progress:
        """Return a display that also records the phases."""
        return _Recording(display, self.show)

    def begin_table(self, command: str, table: str) -> None:
        """Begin the work on one of several tables; it is planned until its first phase begins."""
        with self._lock:
            self._end_phase()
            self._end_table()
            self._table = self._begin(command, set_span_in_context(self._root, Context()))
            self._set(self._table, {"lake.command": command, "lake.table": table})
            self._phase = (self._begin_phase(_PLANNING), None)

    def end_table(self, ending: Ending) -> None:
        """End the work on one of several tables."""
        with self._lock:
            self._end_phase()
            if self._table is not None:
                self._describe(self._table, ending)
            self._end_table()

    def end_round(self, ending: Ending) -> None:
        """End one of the rounds, and begin the next one."""
        with self._lock:
            self._end_all(ending, {})
            self._root = self._begin(self._command, self._outside)

    def end(self, ending: Ending, code: int, facts: Mapping[str, str | None]) -> None:
        """End the command."""
        with self._lock:
            named = {f"lake.{name}": value for name, value in facts.items()}
            self._end_all(ending, {**named, "process.exit.code": code})

    def show(self, meter: Meter | None) -> None:
        """Record that a phase begins instead of the present one; one that is shown again has ended before."""
        with self._lock:
            is_planning = self._phase is not None and self._phase[1] is None
            if is_planning and (meter is None or meter in self._seen):
                return
            self._end_phase()
            if meter is not None and meter not in self._seen:
                self._seen.add(meter)
                self._phase = (self._begin_phase(meter.read().phase), meter)

    def _begin(self, name: str, parent: Context) -> Span:
        return self._tracer.start_span(f"lake {name}", parent)

    def _begin_phase(self, name: str) -> Span:
        parent = set_span_in_context(self._table or self._root, Context())
        return self._tracer.start_span(name[:LONGEST_TEXT], parent)

    def _end_phase(self) -> None:
        if self._phase is None:
            return
        (span, meter), self._phase = self._phase, None
        if meter is not None:
            work = meter.read()
            counts = {
                "lake.tasks": work.tasks,
                "lake.bytes": work.done_bytes,
                "lake.rows": work.rows,
            }
            self._set(span, {name: count for name, count in counts.items() if count})
        span.end()

    def _end_table(self) -> None:
        if self._table is not None:
            self._table.end()
            self._table = None

    def _end_all(self, ending: Ending, facts: Mapping[str, Any]) -> None:
        self._end_phase()
        self._end_table()
        self._set(self._root, {"lake.command": self._command, **facts})
        self._describe(self._root, ending)
        self._root.end()

    def _describe(self, span: Span, ending: Ending) -> None:
        """Set how something ended: its status, its ids and counts, or the kind of its error."""
        how = described(ending)
        self._set(span, how)
        if isinstance(ending, Outcome):
            ids = [str(item) for item in ending.snapshot_ids][:_MOST_IDS]
            self._set(
                span,
                {
                    "lake.operation_id": ending.operation_id,
                    "lake.snapshot_ids": ids or None,
                    **_counts("plan", ending.plan),
                    **_counts("result", ending.result),
                },
            )
        if kind := how.get("error.type"):
            # Its message may contain values.
            span.set_status(StatusCode.ERROR, kind)

    def _set(self, span: Span, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, str):
                span.set_attribute(name, self._clean(value)[:LONGEST_TEXT])
            elif value is not None:
                span.set_attribute(name, value)


class _Recording:
    """A display of progress that also records the phases.

    Args:
        display: what shows them.
        show: is called with each phase that is shown.
    """

    def __init__(self, display: Progress, show: Callable[[Meter | None], None]) -> None:
        self._display, self._show = display, show

    @property
    def meter(self) -> Meter | None:
        """The phase that is shown."""
        return self._display.meter

    @meter.setter
    def meter(self, meter: Meter | None) -> None:
        self._display.meter = meter

    @property
    def step(self) -> Step | None:
        """The step that is shown."""
        return self._display.step

    @step.setter
    def step(self, step: Step | None) -> None:
        self._display.step = step

    def show(self, meter: Meter | None) -> None:
        """Show a phase instead of the present one, and record it."""
        self._display.show(meter)
        self._show(meter)


def _counts(part: str, facts: Facts) -> dict[str, int | float]:
    """Return the numbers of a plan or a result by their names; what is nested is left out."""
    return {
        f"lake.{part}.{name}": value
        for name, value in facts.values().items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
