"""Check that a Spark server listens at an address; Spark itself would retry for minutes without a clear error."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from lake.core.base.errors import EngineError
from lake.core.base.options import Option
from lake.core.engine.spark.pyspark_internals import spark_errors

_ANSWER_SECONDS = 10.0
# The timeout of the protocol's first messages; a starting server may be slow.
_READY_SECONDS = 60.0
_MASTER = "spark://"
_MASTER_PORT = 7077
_CONNECT_PORT = 15002
# With one of these settings a server may be reachable although its address is not.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def require_master(master: str) -> None:
    """Refuse the address of a standalone master, or of several, if none answers.

    Raises:
        EngineError: no master answers.
    """
    if not master.startswith(_MASTER):
        return
    reasons = []
    for address in master.removeprefix(_MASTER).split(","):
        try:
            _probe_port(address, _MASTER_PORT)
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    raise EngineError(
        f"no Spark master answers at {'; '.join(reasons)}",
        hint=f"{Option.MASTER} takes the address on the master's web page, such as spark://host:7077",
    )


def require_server(url: str) -> None:
    """Refuse the address of a Spark Connect server that does not answer.

    Raises:
        EngineError: no server answers.
    """
    address = urlsplit(url).netloc.rpartition("@")[2]
    hint = f"{Option.REMOTE} takes an address such as sc://host:15002"
    if not any(os.environ.get(name) for name in _PROXIES):
        try:
            _probe_port(address.partition(";")[0], _CONNECT_PORT)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"no Spark Connect server answers at {address}: {error}", hint=hint
            ) from error
    if not _is_ready(url):
        raise EngineError(f"{address} does not answer as a Spark Connect server", hint=hint)


def _probe_port(address: str, usual_port: int) -> None:
    parsed = urlsplit(f"//{address}")
    host, port = parsed.hostname or "", parsed.port or usual_port
    socket.create_connection((host, port), _ANSWER_SECONDS).close()


def _is_ready(url: str) -> bool:
    import grpc  # noqa: PLC0415 - only with Spark Connect
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415

    with spark_errors("the address of the Spark Connect server"):
        channel = DefaultChannelBuilder(url).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=_READY_SECONDS)
    except grpc.FutureTimeoutError:
        return False
    finally:
        channel.close()
    return True
