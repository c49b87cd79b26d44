"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from support import seconds, tiers
from support.cli.command_line import CommandLine
from support.cli.lasting_engine import end_shared_spark
from support.peers import flink_peer, java_peer
from support.tables import flink_fixtures, sql_engines
from support.tables.built_once import BuiltOnce
from support.tables.neglected_tables import Warehouse

from lake.core.engine.spark.engine import SparkEngine
from lake.core.maintain.health import costs
from lake.core.transaction.garbage import other_histories

# How long an example takes depends on what else the machine does.
settings.register_profile(
    "lake",
    deadline=None,
    max_examples=tiers.examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("lake")

_LEFT_OUT = pytest.StashKey[Counter[str]]()
_CPU_SECONDS = pytest.StashKey[float]()


@pytest.fixture(scope="session")
def _no_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Java that Spark would choose and that does not start."""
    home = tmp_path_factory.mktemp("no-java")
    (home / "release").write_text('JAVA_VERSION="17.0.0"\n')
    (home / "bin").mkdir()
    program = home / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'a test of the quick tier started Java' >&2\nexit 1\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _no_java_in_the_quick_tier(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a test that starts Spark fail if it lacks the marker of its tier."""
    if not tiers.needs_java(request.node):
        monkeypatch.setenv("JAVA_HOME", str(request.getfixturevalue("_no_java")))


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the user's own catalogs and working directory from the tests."""
    for name in [name for name in os.environ if name.startswith("PYICEBERG_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("PYICEBERG_HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="session")
def _no_state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let fixtures that several tests share neither read nor write the user's home."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            patched.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(autouse=True)
def _commits_of_others_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process not wait long for commits that no test makes at the same time."""
    monkeypatch.setattr(other_histories, "_WAITS", (0.2, 0.8))


@pytest.fixture(autouse=True, scope="session")
def _sql_statements_are_compiled_once() -> Iterator[None]:
    """Let the SQLite catalogs that tests open share what does not depend on the database."""
    with pytest.MonkeyPatch.context() as patched:
        sql_engines.share_statements(patched)
        yield


@pytest.fixture(autouse=True, scope="session")
def _disks_are_not_flushed() -> Iterator[None]:
    """Do not wait for the disk in this process: only a power failure shows a difference."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _shared_spark_ends() -> Iterator[None]:
    """Let the Spark that commands share end before another one starts, and with the last test."""
    start = SparkEngine.__init__

    def started(engine: SparkEngine, *arguments: Any, **options: Any) -> None:
        end_shared_spark()
        start(engine, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SparkEngine, "__init__", started)
        yield
    end_shared_spark()


@pytest.fixture(scope="module")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> BuiltOnce:
    """Folders that the tests of a file share: each is built once and put back for each test."""
    return BuiltOnce(tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("kept"))


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """The folder of an embedded catalog; nothing is in it."""
    return tmp_path / "warehouse"


@pytest.fixture
def lake(warehouse: Path) -> CommandLine:
    """`lake` on the warehouse, run in this process."""
    return CommandLine(warehouse)


@pytest.fixture(scope="module")
def neglected(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Tables that need maintenance, made once for all tests of a file."""
    return Warehouse(tmp_path_factory.mktemp("neglected"))


@pytest.fixture
def in_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few files be worth an action of maintenance, as in an object store."""
    monkeypatch.setattr("lake.core.maintain.health.measure.costs_of", lambda _: costs.OBJECT_STORE)


@pytest.fixture
def unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands run without the table lock, as on a store that has none."""
    monkeypatch.setattr("lake.core.transaction.locks.table_lock._acquire", lambda *_: None)


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
    """Give Flink's tables by name, for writing: no other test has them until the test ends."""
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
        if tiers.ON_CI:
            pytest.fail(f"no test may skip on CI, but this machine lacks {reason}")
        pytest.skip(f"needs {reason}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records how long the files took."""
    parser.addoption(
        "--record-seconds", action="store_true", help="write the seconds of each file to tests/data"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Select the quick tier, and two processes, for a call that names neither tests nor a selection."""
    if not any(word.startswith("-m") for word in config.invocation_params.args):
        config.option.markexpr = tiers.default_selection(config)
    # A process of xdist parses the same arguments, and starts no others.
    is_worker = hasattr(config, "workerinput")
    if getattr(config.option, "numprocesses", 0) is None and not is_worker:
        # One file runs in this process, so that --pdb and -s work.
        distributed = tiers.is_whole_run(config) and not config.option.usepdb
        config.option.numprocesses = 2 if distributed else 0
    if tiers.is_whole_run(config):
        # Containers often set this. Each of the hundreds of processes would compile lake and its tests again.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False


def pytest_configure(config: pytest.Config) -> None:
    """Count the tests that a selection leaves out; a process of xdist reports its own."""
    config.stash[_LEFT_OUT] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark the tiers; order the files of the selected tests."""
    tiers.mark(items)
    yield
    seconds.longest_first(items, seconds.recorded())


def pytest_collection_finish() -> None:
    """Let garbage collections pass by the collected tests, which live until the process ends, and be rare.

    They are as rare as in `lake.cli.__main__`, which sets signal handlers when it is imported.
    """
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Remember what is left out, for the report at the end."""
    if items:
        items[0].config.stash[_LEFT_OUT] += tiers.counts_of(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report from a process of xdist what it left out."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["left_out"] = dict(session.config.stash[_LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of xdist left out: all of them collect the same tests."""
    reported = getattr(node, "workeroutput", {}).get("left_out")
    if reported is not None:
        node.config.stash[_LEFT_OUT] = Counter(reported)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """End with the seconds of each tier, tests that take long for the quick one, and those that did not run."""
    reports = [one for kind in terminalreporter.stats.values() for one in kind]
    spent = seconds.measured(one for one in reports if isinstance(one, pytest.TestReport))
    if config.option.record_seconds:
        seconds.record(spent)
    for line in seconds.report_of(spent):
        terminalreporter.write_line(line)
    if config.option.markexpr == tiers.QUICK:
        passed = terminalreporter.getreports("passed")
        for line in tiers.expensive(report for report in passed if report.when == "call"):
            terminalreporter.write_line(line, yellow=True)
    for line in tiers.report_of(config.stash[_LEFT_OUT]):
        terminalreporter.write_line(line, yellow=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all tests of the Spark cluster to one process."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc,no-any-unimported]
        def _split_scope(self, nodeid: str) -> str:
            return tiers.unit_of(super()._split_scope(nodeid))

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure the processor time of a test, with that of the processes that it waited for."""
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        item.stash[_CPU_SECONDS] = _cpu_seconds() - before


def _cpu_seconds() -> float:
    used = [resource.getrusage(kind) for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Let no test skip on CI."""
    report = yield
    report.user_properties += [
        (tiers.CPU_SECONDS, item.stash.get(_CPU_SECONDS, 0.0)),
        (tiers.CPU_SECONDS_ALLOWED, tiers.cpu_seconds_allowed(item)),
        (seconds.TIER, tiers.tier_of(item)),
    ]
    if not tiers.ON_CI:
        return report
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped on CI: {report.longrepr}"
    return report
