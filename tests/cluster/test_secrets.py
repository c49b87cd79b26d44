"""What anyone may read of a cluster's work: no storage property is in it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

from support.servers.spark_cluster import ConnectServer, SparkCluster

from lake.core.engine.task_functions import echo, gather, scatter
from lake.core.engine.tasks import Engine, Task
from lake.core.io.storage.storage import Storage

CANARY = "canary-7d41b0c9"


def pages(address: str) -> Iterator[str]:
    """Yield what Spark's pages show of an application, to people and to programs."""
    for path in ("/jobs/", "/stages/", "/environment/", "/SQL/", "/connect/"):
        yield read(address + path)
    (application,) = json.loads(read(f"{address}/api/v1/applications"))
    for path in ("sql?details=true&planDescription=true", "environment", "jobs", "stages"):
        yield read(f"{address}/api/v1/applications/{application['id']}/{path}")


def read(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        text: str = answer.read().decode()
    return text


def test_no_property_of_the_storage_is_in_plans_logs_or_pages(
    there: Engine, cluster: SparkCluster, server: ConnectServer
) -> None:
    storage = Storage({"s3.secret-access-key": CANARY, "s3.session-token": f"{CANARY}-token"})
    tasks = [Task({"n": 0, "blobs": [[0, "x"], [1, "y"]]}), Task({"n": 1, "blobs": [[1, "z"]]})]

    echoed = list(there.run(tasks, echo, storage=storage))
    gathered = list(there.exchange(tasks, scatter, gather, [{}, {}], storage=storage))

    assert (len(echoed), len(gathered)) == (2, 2)
    shown = "\n".join([*cluster.written(), *pages(server.page)])
    assert "MapInArrow" in shown
    assert CANARY not in shown
    assert CANARY.encode().hex() not in shown.lower()
