"""One cluster for all tests here, one application of lake on it, and one Spark Connect server."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import spark_cluster
from command_line import CommandLine
from spark_cluster import ConnectServer, SparkCluster

from lake.core.engine import Task, TaskResult
from lake.core.engine.spark import SparkEngine
from lake.core.ingest import plan as planning
from lake.core.session import Session, open_session
from lake.core.settings import Settings
from lake.core.table.storage import Storage


class Lasting:
    """An engine that stays when a command ends: an application takes seconds to start."""

    def __init__(self, settings: Settings) -> None:
        self._engine = SparkEngine(settings)
        self.name = self._engine.name
        self.parallelism = self._engine.parallelism
        self.stopped = 0

    @property
    def may_have_lost_attempts(self) -> bool:
        return self._engine.may_have_lost_attempts

    def run(
        self, tasks: Sequence[Task], function: str, *, storage: Storage
    ) -> Iterator[TaskResult]:
        return self._engine.run(tasks, function, storage=storage)

    def exchange(
        self,
        tasks: Sequence[Task],
        map_function: str,
        reduce_function: str,
        reduce_payloads: Sequence[Mapping[str, Any]],
        *,
        storage: Storage,
    ) -> Iterator[TaskResult]:
        return self._engine.exchange(
            tasks, map_function, reduce_function, reduce_payloads, storage=storage
        )

    def stop(self) -> None:
        self.stopped += 1

    def end(self) -> None:
        self._engine.stop()


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
        settings = Settings(remote=request.getfixturevalue("server").url)
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
