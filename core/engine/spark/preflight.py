"""Whether anybody listens where Spark is said to be: Spark itself would try for minutes, and tell little."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from lake.core.engine.spark.pyspark_internals import spark_errors
from lake.core.errors import EngineError

_ANSWER_SECONDS = 10.0
# For the first words of the protocol, which a server that just starts may be slow to say.
_READY_SECONDS = 60.0
_MASTER = "spark://"
_MASTER_PORT = 7077
_CONNECT_PORT = 15002
# Behind one of these a server may be reached though its address is not.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def require_master(master: str) -> None:
    """Refuse a standalone master, or several of which one leads, where nobody listens.

    Raises:
        EngineError: nobody does.
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
        hint="--master takes the address that the master's page shows, such as spark://host:7077",
    )


def require_server(url: str) -> None:
    """Refuse the address of a Spark Connect server at which none answers.

    Raises:
        EngineError: none does.
    """
    place = urlsplit(url).netloc.rpartition("@")[2]
    hint = "--remote takes an address such as sc://host:15002"
    if not any(os.environ.get(name) for name in _PROXIES):
        try:
            _probe_port(place.partition(";")[0], _CONNECT_PORT)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"no Spark Connect server answers at {place}: {error}", hint=hint
            ) from error
    if not _is_ready(url):
        raise EngineError(
            f"what listens at {place} is no Spark Connect server, or does not answer", hint=hint
        )


def _probe_port(address: str, usual_port: int) -> None:
    place = urlsplit(f"//{address}")
    host, port = place.hostname or "", place.port or usual_port
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
