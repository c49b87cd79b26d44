"""Spark from its start to its end: what runs, what is left, and what anyone can read meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.faults import engine_drill as drill

from lake.core.base.errors import EngineError
from lake.core.base.options import quote_options
from lake.core.base.progress import Meter
from lake.core.base.settings import Settings
from lake.core.engine import task_functions
from lake.core.engine.jvm.class_archive import ClassArchive
from lake.core.engine.jvm.java import find_java
from lake.core.engine.jvm.process import Jvm
from lake.core.engine.spark import plans, preflight
from lake.core.engine.spark import session as spark_start
from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.spark.preflight import require_master
from lake.core.engine.spark.pyspark_internals import frame_of, pyspark_modules
from lake.core.engine.spark.session import archive_for
from lake.core.engine.spark.worker import TASK_ROWS
from lake.core.engine.spark.worker_daemon import Preloaded
from lake.core.engine.task_functions import name_of
from lake.core.engine.tasks import Task
from lake.core.io.storage.storage import Storage

pytestmark = pytest.mark.spark

CANARY = "canary-51f0d7e2"
_PATIENCE_SECONDS = 300.0


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must happen."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def processes_of(*leaders: int) -> list[int]:
    """Return the living processes of sessions and groups: the JVM leads a session, and its daemon a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if {int(fields[2]), int(fields[3])} & {*leaders} and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


def jvm_of(engine: SparkEngine) -> Jvm:
    assert engine._launch
    jvm = engine._launch.running().jvm
    assert jvm
    return jvm


def daemon_of(engine: SparkEngine) -> Preloaded:
    assert engine._launch
    preloaded = engine._launch._attempt.preloaded
    assert preloaded
    return preloaded


def echo(engine: SparkEngine, storage: Storage | None = None) -> None:
    (result,) = engine.run([Task({"n": 1})], task_functions.echo, storage=storage or Storage())
    assert result.value["payload"] == {"n": 1}


@pytest.fixture(scope="module", autouse=True)
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with the class archive in it, for the Java of the extra; starts here use it."""
    folder = tmp_path_factory.mktemp("archived")
    bundled = find_java({"PATH": "/nonexistent"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKE_CACHE_DIR", str(folder))
        patch.setenv("JAVA_HOME", str(bundled.home))
        # At the lowest priority, this process would wait for all others.
        code = (
            "import os, sys; os.nice = lambda _: 0\n"
            "from lake.core.engine.spark.build_class_archive import main; main(sys.argv[1])"
        )
        command = [sys.executable, "-P", "-c", code, str(bundled.home)]
        # As a session on a server leaves it, or the user's shell says it.
        server = {"SPARK_CONNECT_MODE_ENABLED": "1", "SPARK_REMOTE": "sc://127.0.0.1:1"}
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **server})
        assert [path.read_text() for path in folder.glob("*.failed")] == []
        yield folder


@pytest.fixture
def own() -> Iterator[SparkEngine]:
    engine = SparkEngine(Settings(master="local[2]"))
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def lasting(archived: Path) -> Iterator[SparkEngine]:
    """A Spark for the tests after which it runs on; a process has one at a time, so they come first.

    It tries a task twice.
    """
    engine = SparkEngine(Settings(master="local[2,2]"))
    yield engine
    engine.stop()


def test_a_start_uses_the_archive_that_was_made(lasting: SparkEngine, archived: Path) -> None:
    assert sorted(path.suffix for path in archived.iterdir()) == [".jsa", ".jsa", ".lock"]

    echo(lasting)

    # The JVM has mapped them: it took them for fitting ones.
    maps = Path(f"/proc/{jvm_of(lasting).process.pid}/maps").read_text()
    assert all(str(path) in maps for path in archived.glob("*.jsa"))


def test_an_attempt_that_was_lost_is_noticed(lasting: SparkEngine, tmp_path: Path) -> None:
    tasks = [Task({"n": n, "blobs": [[n, "x"]]}) for n in range(3)]
    list(lasting.run(tasks, drill.twice, storage=Storage()))
    list(lasting.exchange(tasks, drill.send, drill.receive, [{}] * 3, storage=Storage()))
    assert not lasting.may_have_lost_attempts

    dying = [Task({"n": 1, "died": str(tmp_path / "died")})]
    (result,) = lasting.run(dying, drill.die_once, storage=Storage())

    assert result.value == {"n": 1}
    assert lasting.may_have_lost_attempts


def test_a_worker_that_dies_is_an_error_of_the_engine(lasting: SparkEngine) -> None:
    with pytest.raises(EngineError, match="lost a task") as caught:
        list(lasting.run([Task({})], drill.die, storage=Storage()))

    assert "memory" in (caught.value.hint or "")
    echo(lasting)


def test_a_signals_exception_comes_through_while_waiting(lasting: SparkEngine) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    echo(lasting)
    waiting = lasting.run([Task({"file": "/never"})], drill.wait_for, storage=Storage())
    signalling = threading.Timer(1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with pytest.raises(KeyboardInterrupt):
            signalling.start()
            next(waiting)
    finally:
        signal.signal(signal.SIGUSR1, before)

    echo(lasting)


def test_a_stop_while_waiting_for_results_is_felt_and_spark_can_start_again(
    lasting: SparkEngine,
) -> None:
    results = lasting.run([Task({"n": 0})], drill.twice, storage=Storage())
    next(results)
    waiting = lasting.run([Task({"file": "/never"})], drill.wait_for, storage=Storage())
    threading.Timer(1, lasting.stop).start()

    with pytest.raises(EngineError, match="stopped"):
        next(waiting)

    second = SparkEngine(Settings(master="local[1]"))
    echo(second)
    second.stop()


def test_stop_leaves_no_process_and_no_file_and_no_more_writing(
    own: SparkEngine, tmp_path: Path
) -> None:
    written = tmp_path / "written"
    written.mkdir()
    tasks = [Task({"folder": str(written), "n": n}) for n in (0, 1, 2)]
    results = own.run(tasks, drill.write_on, storage=Storage())
    next(results)
    until(lambda: len(list(written.iterdir())) == 2)
    session, folder = jvm_of(own).process.pid, own._launch.folder  # type: ignore[union-attr]
    daemon = daemon_of(own).process.pid
    workers = {int(path.name.split("-")[1]) for path in written.iterdir()}
    assert workers < set(processes_of(daemon))

    own.stop()

    sizes = {path: path.stat().st_size for path in written.iterdir()}
    assert not processes_of(daemon)
    assert not folder.exists()
    until(lambda: not processes_of(session))
    assert {path: path.stat().st_size for path in written.iterdir()} == sizes
    with pytest.raises(EngineError, match="stopped"):
        next(results)


def test_stop_during_the_start_leaves_no_process(own: SparkEngine) -> None:
    own.start_in_background()
    launch = own._launch
    assert launch
    until(lambda: launch._attempt.jvms)
    until(lambda: launch._attempt.preloaded)
    leaders = launch._attempt.jvms[0].process.pid, daemon_of(own).process.pid

    own.stop()

    assert not processes_of(*leaders)
    assert not launch.folder.exists()


def test_workers_start_without_the_process_that_waits_for_them(own: SparkEngine) -> None:
    own.start_in_background()
    jvm_of(own)
    daemon_of(own).end()

    echo(own)


def test_secrets_of_the_storage_are_in_nothing_that_spark_shows(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.log.level": "INFO",
        "spark.hadoop.fs.s3a.secret.key": f"{CANARY}-of-spark",
    }
    engine = SparkEngine(Settings(master="local[2]", spark_conf=conf))
    storage = Storage({"s3.secret-access-key": CANARY})
    tasks = [Task({"n": 0, "blobs": [[0, "x"]]})]
    list(engine.run(tasks, drill.twice, storage=storage))
    list(engine._shuffle(tasks, drill.send, drill.receive, [{}], storage=storage, meter=Meter("x")))
    folder = engine._launch.folder  # type: ignore[union-attr]
    shuffled = [path.read_bytes() for path in folder.rglob("shuffle_*.data")]
    assert any(shuffled)
    assert not any(CANARY.encode() in data for data in shuffled)
    jvm, context = jvm_of(engine), engine._launch.running().spark  # type: ignore[union-attr]
    spark = pyspark_modules().sql.SparkSession(context)
    plan = plans.exchange(tasks, name_of(drill.send), name_of(drill.receive), [{}], 2)
    frame = plan.build(frame_of(spark, plan.rows("x", "", storage.credentials), TASK_ROWS))
    shown = [
        frame._jdf.queryExecution().toString(),
        frame._jdf.queryExecution().logical().toJSON(),
        Path(f"/proc/{jvm.process.pid}/cmdline").read_text(),
        Path(f"/proc/{jvm.process.pid}/environ").read_text(),
        jvm.output.text(),
    ]
    assert "MapInArrow" in shown[0]
    spark.stop()
    engine.stop()
    shown += [path.read_text() for path in events.rglob("*") if path.is_file()]

    assert "SparkListenerJobEnd" in "".join(shown)
    assert CANARY not in "".join(shown)


def test_no_word_of_java_reaches_the_terminal(tmp_path: Path) -> None:
    code = (
        "from lake.core.engine.task_functions import echo\n"
        "from lake.core.engine.tasks import Task\n"
        "from lake.core.engine.spark.engine import SparkEngine\n"
        "from lake.core.base.settings import Settings\n"
        "from lake.core.io.storage.storage import Storage\n"
        "engine = SparkEngine(Settings(master='local[1]'))\n"
        "print(len(list(engine.run([Task({})], echo, storage=Storage()))))\n"
        "engine.stop()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True
    )

    assert (done.stdout, done.stderr) == ("1\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_nothing_survives_a_driver_that_is_killed(tmp_path: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    code = (
        "import sys\n"
        "from lake.core.drill import write_on\n"
        "from lake.core.engine.tasks import Task\n"
        "from lake.core.engine.spark.engine import SparkEngine\n"
        "from lake.core.base.settings import Settings\n"
        "from lake.core.io.storage.storage import Storage\n"
        "engine = SparkEngine(Settings(master='local[2]'))\n"
        "engine.start_in_background()\n"
        "session = engine._launch.running().jvm.process.pid\n"
        "print(session, engine._launch._attempt.preloaded.process.pid, flush=True)\n"
        "task = Task({'folder': sys.argv[1], 'n': 1})\n"
        "list(engine.run([task], write_on, storage=Storage()))\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", code, str(written)], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout
    leaders = [int(text) for text in driver.stdout.readline().split()]
    until(lambda: list(written.iterdir()))

    driver.send_signal(signal.SIGKILL)

    driver.wait()
    driver.stdout.close()
    until(lambda: not processes_of(*leaders))


@pytest.mark.slow
def test_sparks_own_start_does_when_the_direct_one_fails(
    own: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(*_: object) -> Jvm:
        raise EngineError("no")

    monkeypatch.delenv("JAVA_HOME")
    if not shutil.which("java"):
        pytest.skip("needs a whole Java: Spark's scripts want a module that the extra's lacks")
    monkeypatch.setattr(Jvm, "launch", launch)

    echo(own)

    session = jvm_of(own).process.pid
    own.stop()
    until(lambda: not processes_of(session))


def test_a_cluster_that_takes_no_application_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    launch = Jvm.launch

    def counted(*arguments: Any) -> Jvm:
        launched.append(launch(*arguments))
        return launched[-1]

    def refused(*_: object) -> None:
        raise EngineError("the masters do not answer")

    monkeypatch.setattr(Jvm, "launch", counted)
    monkeypatch.setattr(spark_start, "_context_on", refused)
    monkeypatch.setattr(spark_start, "require_master", lambda _: None)
    engine = SparkEngine(Settings(master="spark://127.0.0.1:1"))

    with pytest.raises(EngineError, match="do not answer"):
        echo(engine)

    engine.stop()
    assert [jvm.process.poll() is not None for jvm in launched] == [True]


@pytest.mark.parametrize("url", ["sc://127.0.0.1:1", "sc://127.0.0.1:x", "sc://"])
def test_a_server_that_does_not_answer_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    engine = SparkEngine(Settings(remote=url))

    with pytest.raises(EngineError, match="no Spark Connect server answers"):
        echo(engine)

    engine.stop()


@pytest.mark.parametrize(
    "master",
    ["spark://127.0.0.1:1", "spark://127.0.0.1:1,127.0.0.1:2", "spark://no.such.host.invalid"],
)
def test_a_master_that_does_not_answer_is_reported_before_java_starts(
    monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    launched: list[object] = []
    monkeypatch.setattr(Jvm, "launch", launched.append)
    engine = SparkEngine(Settings(master=master))

    with pytest.raises(EngineError, match="no Spark master answers at") as caught:
        echo(engine)

    engine.stop()
    assert "`master`" in quote_options(caught.value.hint or "")
    assert launched == []


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        require_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    require_master("local[2]")
    require_master("k8s://https://missing:1")


def test_another_program_that_listens_is_not_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_READY_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"sc://127.0.0.1:{listening.getsockname()[1]}"
        engine = SparkEngine(Settings(remote=url))

        with pytest.raises(EngineError, match="does not answer as a Spark Connect server"):
            echo(engine)

        engine.stop()


def test_a_start_that_never_works_reports_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = {"spark.driver.extraJavaOptions": "-XX:MaxDirectMemorySize=nonsense"}
    engine = SparkEngine(Settings(spark_conf=conf))

    with pytest.raises(EngineError, match="Java ended with 1: .*MaxDirectMemorySize"):
        echo(engine)

    engine.stop()


def test_a_java_that_is_killed_meanwhile_is_reported_as_killed(
    own: SparkEngine, tmp_path: Path
) -> None:
    tasks = [Task({"folder": str(tmp_path), "n": n}) for n in (0, 1)]
    results = own.run(tasks, drill.write_on, storage=Storage())
    next(results)
    jvm_of(own).process.kill()

    with pytest.raises(EngineError, match="Java ended with -9") as caught:
        list(results)

    assert "memory" in str(caught.value.hint)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("garbage", marks=pytest.mark.slow),
        pytest.param("cut", marks=pytest.mark.slow),
        "flipped",
    ],
)
def test_a_damaged_archive_does_not_break_the_start(
    own: SparkEngine,
    archived: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: str,
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for path in archived.glob("*.jsa"):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        changed = {
            "garbage": os.urandom(len(content) // 50),
            "cut": content[:middle],
            "flipped": content[:middle]
            + bytes(byte ^ 0xFF for byte in content[middle : middle + 4096])
            + content[middle + 4096 :],
        }
        (folder / path.name).write_bytes(changed[damage])
    monkeypatch.setenv("LAKE_CACHE_DIR", str(folder))

    echo(own)

    assert any("SharedArchiveFile" in word for word in _command(own))


@pytest.mark.slow
def test_an_archive_that_breaks_the_start_is_removed(
    own: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("LAKE_CACHE_DIR", str(folder))
    monkeypatch.setattr(ClassArchive, "build_in_background", lambda *_: None)
    archive = archive_for(find_java())
    archive.path.touch()
    broken = ["-Xmx1z"]
    monkeypatch.setattr(ClassArchive, "options", lambda self: broken if self.path.exists() else [])

    echo(own)

    assert not archive.path.exists()


def _command(engine: SparkEngine) -> list[str]:
    return Path(f"/proc/{jvm_of(engine).process.pid}/cmdline").read_text().split("\0")
