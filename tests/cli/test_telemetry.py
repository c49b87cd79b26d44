"""Traces and metrics of commands, as a receiver of OTLP over HTTP gets them; OpenTelemetry's classes parse them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, named_rows

from lake.cli.telemetry import sending
from lake.core.transaction.commit import attempt

VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CANARY = "canary-header-51d0"


class Receiver:
    """A server that parses what it gets.

    Args:
        hang: set to let it answer; None to answer at once.
    """

    def __init__(self, hang: threading.Event | None = None) -> None:
        received: list[ExportTraceServiceRequest] = []
        measured: list[ExportMetricsServiceRequest] = []
        headers: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/metrics":
                    measured.append(ExportMetricsServiceRequest.FromString(body))
                else:
                    received.append(ExportTraceServiceRequest.FromString(body))
                headers.append({**self.headers, "path": self.path})
                if hang is not None:
                    hang.wait(60)
                self.send_response(200)
                self.end_headers()

            def log_request(self, *_: object) -> None:
                pass

        self.received, self.measured, self.headers = received, measured, headers
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def spans(self) -> list[Any]:
        """All spans, in the order of their beginnings."""
        found = [
            span
            for request in self.received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    @property
    def points(self) -> list[tuple[str, dict[str, Any], Any]]:
        """The name, the attributes and the number of each point: of a histogram how often it was measured."""
        return [
            (
                metric.name,
                attributes_of(point),
                point.count if metric.HasField("histogram") else point.as_int,
            )
            for request in self.measured
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in getattr(metric, metric.WhichOneof("data")).data_points
        ]

    def children(self, parent: Any) -> list[Any]:
        """The spans in a span."""
        return [span for span in self.spans if span.parent_span_id == parent.span_id]

    def root(self) -> Any:
        """The span of the only command."""
        ids = {span.span_id for span in self.spans}
        (found,) = [span for span in self.spans if span.parent_span_id not in ids]
        return found


def attributes_of(span: Any) -> dict[str, Any]:
    """Return the attributes of a span."""
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes
    }


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that the environment names."""
    running = Receiver()
    # What the end of the process waits for arrives, however slow the machine is.
    monkeypatch.setattr(sending, "_LAST_SECONDS", 120)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.uri)
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_a_command_is_a_span_with_its_phases_and_counts(
    lake: CommandLine, receiver: Receiver
) -> None:
    lake.load("id\n1\n2\n3\n", "--create")

    root = receiver.root()
    found = attributes_of(root)
    head = lake.table().current_snapshot().snapshot_id
    assert root.name == "lake ingest"
    assert (found["lake.command"], found["lake.table"]) == ("ingest", "db.t")
    assert (found["lake.status"], found["process.exit.code"]) == ("done", 0)
    assert [one.string_value for one in found["lake.snapshot_ids"].values] == [str(head)]
    assert (found["lake.result.rows_written"], found["lake.catalog"]) == (3, "lake")
    phases = {span.name: attributes_of(span) for span in receiver.children(root)}
    assert {"reading metadata", "committing"} <= set(phases)
    assert any(counts.get("lake.rows") == 3 for counts in phases.values())
    (resource,) = {
        str(item.resource.attributes) for one in receiver.received for item in one.resource_spans
    }
    assert "service.name" in resource
    assert '"lake"' in resource
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in receiver.spans)
    assert {found["path"] for found in receiver.headers} == {"/v1/traces", "/v1/metrics"}


def test_a_command_is_measured_with_what_it_did(lake: CommandLine, receiver: Receiver) -> None:
    lake.load("id\n1\n2\n3\n", "--create")
    assert lake("scan", "db.t", "--where", "missing = 'canary-value'").exit_code == 7

    of = {"lake.command": "ingest", "lake.catalog": "lake", "lake.table": "db.t"}
    first, second = (found for found in receiver.points if found[0] == "lake.command.duration")
    assert first[1:] == ({**of, "lake.status": "done", "process.exit.code": 0}, 1)
    failed = {"lake.status": "failed", "error.type": "not-found", "process.exit.code": 7}
    assert second[1:] == ({**of, "lake.command": "scan", **failed}, 1)
    counts = {(name, found.get("lake.measure")): count for name, found, count in receiver.points}
    assert counts["lake.commits", None] == 1
    assert counts["lake.rows", "rows_written"] == 3
    assert ("lake.commit.retries", None) not in counts
    assert "canary-value" not in str(receiver.measured)
    assert '"lake"' in str(receiver.measured[0].resource_metrics[0].resource.attributes)


def test_a_commit_that_is_tried_again_is_counted(
    lake: CommandLine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load("id\n1\n", "--create")
    send, refused = attempt._Attempt.send_uninterrupted, list[bool]()

    def once_refused(self: Any) -> Any:
        if refused:
            return send(self)
        refused.append(True)
        return None, "another commit was first"

    monkeypatch.setattr(attempt._Attempt, "send_uninterrupted", once_refused)

    lake.load("id\n2\n")

    (found,) = [item for item in receiver.points if item[0] == "lake.commit.retries"]
    assert found[1:] == ({"lake.command": "ingest"}, 1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_action_of_a_run_is_measured_with_its_table(
    lake: CommandLine, receiver: Receiver, tmp_path: Path, jobs: int
) -> None:
    for name in ("db.a", "db.b"):
        table = make_table(lake.warehouse, name)
        for number in range(3):
            table.append(named_rows(number))
    policy = tmp_path / "policy.toml"
    policy.write_text('["*".compact]\nwhen = "files > 1"\nmin-input-files = 2\n')

    lake.ok("maintain", "--only", "compact", "--policy", policy, "--jobs", jobs)

    found = [item for item in receiver.points if item[1]["lake.command"] == "compact"]
    for name in ("db.a", "db.b"):
        of = {"lake.command": "compact", "lake.table": name}
        assert ("lake.command.duration", {**of, "lake.status": "done"}, 1) in found
        assert ("lake.commits", of, 1) in found
        assert ("lake.files", {**of, "lake.measure": "rewritten_files"}, 3) in found
    (run,) = [item[1] for item in receiver.points if item[1]["lake.command"] == "maintain"]
    assert run["process.exit.code"] == 0


def test_each_action_of_a_run_is_a_span_in_that_of_the_run(
    lake: CommandLine, receiver: Receiver, tmp_path: Path
) -> None:
    table = make_table(lake.warehouse)
    for number in range(6):
        table.append(named_rows(number))
    policy = tmp_path / "policy.toml"
    policy.write_text('["*".compact]\nwhen = "files > 1"\n')

    lake.ok("maintain", "--only", "compact,clean", "--policy", policy)

    root = receiver.root()
    actions = [span for span in receiver.children(root) if "lake.table" in attributes_of(span)]
    assert [span.name for span in actions] == ["lake compact", "lake clean"]
    compact = attributes_of(actions[0])
    assert (compact["lake.status"], compact["lake.table"]) == ("done", "db.t")
    assert compact["lake.result.rewritten_files"] == 6
    phases = [span.name for span in receiver.children(actions[0])]
    assert phases[0] == "planning"
    assert {"rewriting", "committing"} <= set(phases)


def test_a_pattern_has_a_span_for_each_table(lake: CommandLine, receiver: Receiver) -> None:
    for name in ("db.a", "db.b"):
        make_table(lake.warehouse, name).append(named_rows(1))

    lake.ok("check", "db.*")

    tables = [attributes_of(span).get("lake.table") for span in receiver.children(receiver.root())]
    assert [name for name in tables if name] == ["db.a", "db.b"]


def test_a_failure_has_its_kind_and_neither_its_message_nor_a_filter(
    lake: CommandLine, receiver: Receiver
) -> None:
    lake.load("id\n1\n", "--create")
    receiver.received.clear()

    assert lake("scan", "db.t", "--where", "missing = 'canary-value'").exit_code == 7
    assert lake("scan", "db.t", "--where", "id < 987654321").exit_code == 0

    first, second = (span for span in receiver.spans if span.name == "lake scan")
    found = attributes_of(first)
    assert (found["lake.status"], found["error.type"]) == ("failed", "not-found")
    assert (first.status.message, found["process.exit.code"]) == ("not-found", 7)
    assert attributes_of(second)["lake.status"] == "done"
    sent = str(receiver.received)
    assert "canary-value" not in sent
    assert "987654321" not in sent


def test_the_parent_comes_from_the_environment_and_headers_stay_headers(
    lake: CommandLine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={CANARY}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")

    lake("tables")

    root = receiver.root()
    assert root.trace_id.hex() == PARENT.split("-")[1]
    assert root.parent_span_id.hex() == PARENT.split("-")[2]
    assert receiver.headers[0]["api-key"] == CANARY
    assert CANARY not in str(receiver.received)
    assert '"nightly"' in str(receiver.received)


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    ],
    ids=lambda found: next(iter(found)),
)
def test_standard_variables_switch_both_off(
    lake: CommandLine,
    receiver: Receiver,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert lake("tables").exit_code == 7
    assert (receiver.received, receiver.measured) == ([], [])


@pytest.mark.parametrize("off", ["TRACES", "METRICS"])
def test_each_is_switched_off_alone(
    lake: CommandLine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setenv(f"OTEL_{off}_EXPORTER", "none")

    lake("tables")

    assert (bool(receiver.received), bool(receiver.measured)) == (off != "TRACES", off == "TRACES")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "lake sends http/protobuf"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-4711", "does not accept the values"),
    ],
)
def test_variables_that_cannot_be_followed_are_a_warning(
    lake: CommandLine,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    words: str,
) -> None:
    make_table(lake.warehouse)
    monkeypatch.setenv(name, value)

    (warning,) = lake.ok("tables")["warnings"]

    assert words in warning
    assert "4711" not in warning
    assert lake("tables").stderr.count(words) == 1
    assert receiver.received == []


def test_a_missing_extra_is_a_warning(
    lake: CommandLine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake.warehouse)
    for name in ("recorders", "spans", "measures", "sending"):
        monkeypatch.delitem(sys.modules, f"lake.cli.telemetry.{name}")
        monkeypatch.delattr(f"lake.cli.telemetry.{name}")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    (warning,) = lake.ok("tables")["warnings"]

    assert "pip install 'lake-iceberg[otel]'" in warning
    assert receiver.received == []


def test_a_receiver_that_hangs_or_is_missing_changes_nothing(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake.warehouse)
    monkeypatch.setattr(sending, "_LAST_SECONDS", 0.05)
    answers = threading.Event()
    hanging = Receiver(answers)
    try:
        for uri in (hanging.uri, "http://127.0.0.1:1", "not an address"):
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", uri)
            result = lake("tables")
            assert (result.exit_code, "warning" in result.stderr) == (0, False), uri
    finally:
        answers.set()
        hanging.server.shutdown()
        hanging.server.server_close()


def test_without_the_variables_nothing_of_opentelemetry_is_imported(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    make_table(lake.warehouse)
    program = (
        "import sys; from lake.cli.main import main; code = main(sys.argv[1:]);"
        "print(code, [name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *lake.arguments("tables")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
