"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.cli.lasting_engine import end_shared_spark
from support.peers import flink_peer, java_peer
from support.tables import flink_fixtures

# Long files come first, so that no process is left with one of them when the others have ended.
_LONGEST = ("cluster", "services", "java", "world", "commands")
_ALL = bool(os.environ.get("LAKE_SOAK"))
_ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the user's own catalogs and working directory from the tests."""
    for name in [name for name in os.environ if name.startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("PYICEBERG_HOME", str(home))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def _spark_ends_with_its_file() -> Iterator[None]:
    """Let the Spark that a file's commands share end with the file."""
    yield
    end_shared_spark()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of an embedded catalog; nothing is in it."""
    return tmp_path / "warehouse"


@pytest.fixture
def lake(warehouse: Path) -> CommandLine:
    """`lake` on the warehouse, run in this process."""
    return CommandLine(warehouse)


@pytest.fixture(params=["inline", "spark"])
def lake_on(request: pytest.FixtureRequest, warehouse: Path) -> CommandLine:
    """`lake` on each engine in turn."""
    return CommandLine(warehouse, engine=request.param)


@pytest.fixture
def flink() -> Iterator[Callable[[str], flink_fixtures.FlinkFixture]]:
    """Give Flink's tables by name, for reading until the test ends."""
    with ExitStack() as held:
        yield lambda name: held.enter_context(flink_fixtures.shared(name))


@pytest.fixture
def flink_lent() -> Iterator[Callable[[str], flink_fixtures.FlinkFixture]]:
    """Give Flink's tables by name, for writing: nobody else has them until the test ends."""
    with ExitStack() as held:
        yield lambda name: held.enter_context(flink_fixtures.lent(name))


@pytest.fixture(scope="session")
def java() -> Iterator[Any]:
    """Iceberg Java, started once for all tests; use the marker ``java`` with it."""
    _need_java()
    peer = java_peer.JavaPeer()
    yield peer
    peer.close()


@pytest.fixture(scope="session")
def java_jars() -> list[str]:
    """Iceberg Java's jars, fetched on first use; use the marker ``java`` with it."""
    _need_java()
    return java_peer.jars().split(",")


@pytest.fixture(scope="module")
def flink_jobs() -> Iterator[flink_peer.FlinkPeer]:
    """A real Flink; use the marker ``java`` with it."""
    _need_java()
    peer = flink_peer.FlinkPeer()
    yield peer
    peer.close()


def _need_java() -> None:
    if reason := java_peer.missing():
        if _ON_CI:
            pytest.fail(f"no test may skip on CI, but this machine lacks {reason}")
        pytest.skip(f"needs {reason}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave long tests out unless they are asked for; order the files by how long their folders' take."""
    left = [item for item in items if not _ALL and item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]
    here = Path(__file__).parent
    places = {name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path.relative_to(here).parts[0], len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests of the Spark cluster to one process: each that has any starts a cluster."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc,no-any-unimported]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            folder = os.path.dirname(file)
            return folder if os.path.basename(folder) == "cluster" else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Let no test skip on CI: what is skipped there is tested nowhere."""
    report = yield
    if _ON_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped on CI: {report.longrepr}"
    return report
