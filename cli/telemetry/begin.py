"""Decide by the environment whether a command is recorded.

Source of the variables: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ and
https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.telemetry.trace import Trace

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP, _PROTOCOL = "otlp", "http/protobuf"


def begun(
    command: str,
    variables: Mapping[str, str],
    version: Callable[[], str],
    clean: Callable[[str], str],
    warn: Callable[[str], None],
) -> Trace:
    """Return the trace of a command that begins.

    Args:
        command: the verb.
        variables: the environment.
        version: returns the version of lake.
        clean: returns a text without secrets.
        warn: is called with why nothing can be recorded, although it is wanted.
    """
    if not _is_wanted(variables, warn):
        return Trace()
    try:
        from lake.cli.telemetry.spans import Spans  # noqa: PLC0415 - door: takes half a second
    except ImportError:
        warn(
            "the environment asks for traces, and OpenTelemetry is not installed: pip install 'lake-iceberg[otel]', "
            "or set OTEL_SDK_DISABLED=true"
        )
        return Trace()
    try:
        return Spans(command, variables, version(), clean)
    except (ValueError, TypeError, OSError):
        # Its message may contain a header with a secret.
        warn("no trace is sent: OpenTelemetry does not accept the values of its variables (OTEL_…)")
        return Trace()


def _is_wanted(variables: Mapping[str, str], warn: Callable[[str], None]) -> bool:
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    named = variables.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    exporters = {word.strip() for word in named.split(",") if word.strip()}
    if exporters and _OTLP not in exporters:
        return False
    if not exporters and not any(variables.get(name, "").strip() for name in _ENDPOINTS):
        return False
    protocol = next(filter(None, (variables.get(name, "").strip() for name in _PROTOCOLS)), "")
    if protocol and protocol != _PROTOCOL:
        warn(f"no trace is sent: lake sends {_PROTOCOL}, and OTEL_EXPORTER_OTLP_PROTOCOL differs")
        return False
    return True
