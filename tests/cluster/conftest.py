"""One cluster for all tests here, one application of lake on it, and one Spark Connect server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.cli.lasting_engine import Lasting
from support.servers import spark_cluster
from support.servers.spark_cluster import ConnectServer, SparkCluster
from support.tiers import EVERY_POINT

from lake.core.base.settings import Settings
from lake.core.load.ingest import plan as planning
from lake.core.transaction.session import Session, open_session

# What the others show too, by another way to the same cluster: for ``LAKE_EVERY_POINT=1``.
_LONG = {
    "test_a_compaction_survives[master-executor]",
    "test_a_compaction_survives[server-worker]",
    "test_an_upsert_survives[master-copy-on-write]",
    "test_an_upsert_survives[master-equality]",
    "test_an_upsert_survives[server-equality]",
    "test_an_upsert_survives[server-position]",
    "test_an_ingest_survives_though_what_was_sent_is_lost[server]",
    "test_a_compaction_keeps_every_row_and_drops_the_deleted[server-2]",
    "test_a_compaction_keeps_every_row_and_drops_the_deleted[master-3]",
    "test_a_sorted_compaction_gives_each_task_a_range[server]",
    "test_of_two_attempts_at_a_time_one_counts_and_the_other_leaves_nothing[server]",
    "test_a_stopped_commands_tasks_write_nothing_more[master]",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the long ones."""
    if not EVERY_POINT:
        items[:] = [item for item in items if item.name not in _LONG]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows be work for two executors."""
    monkeypatch.setattr(planning, "_SMALLEST_TASK_BYTES", 1)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    if reason := spark_cluster.missing():
        if os.environ.get("CI"):
            pytest.fail(f"no test may skip on CI, but this machine lacks {reason}")
        pytest.skip(f"needs {reason}")
    running = SparkCluster(tmp_path_factory.mktemp("cluster"))
    yield running
    running.close()


@pytest.fixture(scope="package")
def server(cluster: SparkCluster) -> ConnectServer:
    return cluster.connect()


@pytest.fixture(scope="package", params=["master", "server"])
def there(request: pytest.FixtureRequest, cluster: SparkCluster) -> Iterator[Lasting]:
    """The cluster, by its master and by Spark Connect in turn: a process can have one of them at a time."""
    if request.param == "master":
        settings = Settings(master=cluster.master, spark_conf=cluster.conf())
    else:
        url = request.getfixturevalue("server").url
        settings = Settings(remote=url, spark_conf={"spark.default.parallelism": "2"})
    engine = Lasting(settings)
    yield engine
    engine.end()


@pytest.fixture
def lake_there(warehouse: Path, there: Lasting) -> CommandLine:
    """`lake` on the cluster."""

    def opened(settings: Settings) -> Session:
        session = open_session(settings)
        session._engine = there
        return session

    return CommandLine(warehouse, open_session=opened)
