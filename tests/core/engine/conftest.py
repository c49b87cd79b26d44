"""One Spark for the tests of a module: a JVM takes seconds to start, and a process has one at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.faults import engine_drill

from lake.core.base.settings import Settings
from lake.core.engine.inline import InlineEngine
from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.tasks import Engine

WORKER_PATH = Path(engine_drill.__file__).parent / "worker_path"
sys.modules["lake.core.drill"] = engine_drill


@pytest.fixture(scope="module", autouse=True)
def _workers_find_the_drill() -> Iterator[None]:
    """Let workers find the tests' task functions."""
    with pytest.MonkeyPatch.context() as patch:
        parts = [str(WORKER_PATH), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, parts)))
        yield


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkEngine]:
    engine = SparkEngine(Settings(master="local[2]"))
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def inline() -> Iterator[InlineEngine]:
    engine = InlineEngine(2)
    yield engine
    engine.stop()


@pytest.fixture(params=["inline", "spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found
