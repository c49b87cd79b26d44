"""Decide by the environment whether a command is recorded.

Source of the variables: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ and
https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.telemetry.trace import Trace

_SIGNALS = ("traces", "metrics")
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
    wanted = [signal for signal in _SIGNALS if _is_wanted(signal, variables)]
    if other := [signal for signal in wanted if _protocol(signal, variables) != _PROTOCOL]:
        warn(
            f"no {' and '.join(other)} are sent: lake sends {_PROTOCOL}, and OTEL_EXPORTER_OTLP_PROTOCOL differs"
        )
    wanted = [signal for signal in wanted if signal not in other]
    if not wanted:
        return Trace()
    try:
        from lake.cli.telemetry.recorders import (  # noqa: PLC0415 - door: takes half a second
            RECORDERS,
            Recorders,
        )
    except ImportError:
        warn(
            f"the environment asks for {' and '.join(wanted)}, and OpenTelemetry is not installed: "
            "pip install 'lake-iceberg[otel]', or set OTEL_SDK_DISABLED=true"
        )
        return Trace()
    found = []
    for signal in wanted:
        try:
            found.append(RECORDERS[signal](command, variables, version(), clean))
        except (ValueError, TypeError, OSError):
            # Its message may contain a header with a secret.
            warn(
                f"no {signal} are sent: OpenTelemetry does not accept the values of its variables (OTEL_…)"
            )
    return Recorders(found)


def _is_wanted(signal: str, variables: Mapping[str, str]) -> bool:
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    named = variables.get(f"OTEL_{signal.upper()}_EXPORTER", "").strip().lower()
    exporters = {word.strip() for word in named.split(",") if word.strip()}
    if exporters:
        return _OTLP in exporters
    return bool(_of_exporter("ENDPOINT", signal, variables))


def _protocol(signal: str, variables: Mapping[str, str]) -> str:
    return _of_exporter("PROTOCOL", signal, variables) or _PROTOCOL


def _of_exporter(name: str, signal: str, variables: Mapping[str, str]) -> str:
    """Return a setting of the exporter, of this signal or of all."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", f"OTEL_EXPORTER_OTLP_{name}")
    return next(filter(None, (variables.get(one, "").strip() for one in names)), "")
