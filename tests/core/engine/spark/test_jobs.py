"""Jobs of a driver whose JVM ends at any moment."""

from __future__ import annotations

import socket
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.util import _load_from_socket

from lake.core.base.errors import EngineError
from lake.core.engine.spark import plans
from lake.core.engine.spark.jobs import DriverJobs
from lake.core.engine.tasks import Task
from lake.core.io.storage.credentials import Credentials


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\2ok\0\0"], ids=range(3))
def test_a_jvm_that_ends_while_it_sends_results_is_an_error_of_the_engine(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as peer:
                peer.recv(64)
                peer.sendall(sent)

        def run_job(*_: Any) -> list[Any]:
            address: Any = (server.getsockname()[1], "secret")
            return list(_load_from_socket(address, CPickleSerializer()))

        rows = SimpleNamespace(mapPartitions=lambda _: None)
        context = SimpleNamespace(parallelize=lambda *_: rows, runJob=run_job)
        plan = plans.run([Task({})], "echo", 1)
        (piece,) = DriverJobs(context).pieces(plan.rows("x", "", Credentials({})), plan)
        thread = Thread(target=answer)
        thread.start()

        with pytest.raises(EngineError, match="Spark lost a task"):
            piece()
        thread.join()
