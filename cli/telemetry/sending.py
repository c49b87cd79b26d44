"""What is the same for traces and metrics: the program that they are from, and how the rest is sent at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

_SERVICE = "lake"
# The end of the process waits this long for what is not sent yet.
_LAST_SECONDS = 2.0
LONGEST_TEXT = 256


def resource_of(variables: Mapping[str, str], version: str) -> Resource:
    """Return the name and the version of the program; the environment may give it another name."""
    named = "OTEL_SERVICE_NAME" in variables or "service.name=" in variables.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create(
        {SERVICE_VERSION: version, **({} if named else {SERVICE_NAME: _SERVICE})}
    )


def send_rest(shutdowns: Sequence[Callable[[], None]]) -> None:
    """Send what is not sent yet, and wait a little for it: a server that hangs would keep the process."""
    until = time.monotonic() + _LAST_SECONDS
    started = []
    for shutdown in shutdowns:
        sending = threading.Thread(target=shutdown, name="lake-telemetry", daemon=True)
        with suppress(RuntimeError):
            sending.start()
            started.append(sending)
    for sending in started:
        sending.join(max(until - time.monotonic(), 0))
