"""A Spark of several processes for tests: a standalone master, two workers, and a Spark Connect server on them.

All of it listens on loopback, on free ports, and is ended by its own process ids. Tasks run on a Python that
has the libraries of lake but not lake, as a node of a cluster has: lake itself is shipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 300
_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Two: Spark gives a task a second attempt at the same time on another host only.
HOSTS = ("127.0.0.1", "127.0.0.2")


def missing() -> str | None:
    """Return what a cluster lacks on this machine, or None."""
    if not shutil.which("java") or not shutil.which("bash"):
        return "a JDK"
    return None


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for something that must happen; return what it gave."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} never happened"
        time.sleep(0.02)
    return found


def children(process: int) -> dict[int, str]:
    """Return the living children of a process with their command lines."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == process and fields[0] not in "ZX":
                command = path.with_name("cmdline").read_text().replace("\0", " ")
                found[int(path.parent.name)] = command
        except OSError:
            continue
    return found


def descendants(process: int) -> dict[int, str]:
    """Return all that a process started, and what that started."""
    found = children(process)
    for child in list(found):
        found |= descendants(child)
    return found


def bare_python(folder: Path) -> Path:
    """Make an environment with everything that lake needs, and not lake; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    # Folders named here are searched, but the files in them that would add lake are not read.
    wanted = [path for path in sys.path if path.endswith("-packages")]
    lines = [*wanted, str(Path(__file__).parent / "cluster_path"), "import lake_gate"]
    (packages / "shared.pth").write_text("\n".join(lines) + "\n")
    python = folder / "bin" / "python"
    found = subprocess.run([python, "-c", "import pyarrow, pyiceberg, pyspark"], check=False)
    lacks = subprocess.run([python, "-c", "import lake.core"], capture_output=True, check=False)
    assert (found.returncode, lacks.returncode) == (0, 1), lacks.stderr
    return python


def options(conf: dict[str, str]) -> list[str]:
    """Return settings as `lake` takes them."""
    return [part for key, value in conf.items() for part in ("--spark-conf", f"{key}={value}")]


class Gate:
    """How tests hold a task at the file that it opens, and learn where its lake came from.

    The tasks' side is ``cluster_path/lake_gate.py``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def arm(self, text: str) -> None:
        """Hold the next task that opens a file with the text in its name."""
        (self.folder / "released").unlink(missing_ok=True)
        draft = self.folder / "draft"
        draft.write_text(text)
        draft.rename(self.folder / "armed")

    def held(self, running: Future[Any] | None = None) -> int:
        """Wait until a task is held; return its process, also when it is gone.

        Args:
            running: what the task is part of; its error is raised if it ends before.
        """

        def found() -> Path | None:
            if running is not None and running.done():
                raise AssertionError(f"it ended before: {running.result()}")
            return next(self.folder.glob("held-*"), None)

        path: Path = until(found, "a held task")
        return int(path.name.partition("-")[2])

    def release(self) -> None:
        """Let the held task go on, and no other be held."""
        (self.folder / "armed").unlink(missing_ok=True)
        (self.folder / "released").touch()
        for path in self.folder.glob("held-*"):
            path.unlink(missing_ok=True)

    def origins(self) -> set[str]:
        """Return where processes loaded lake from."""
        return {path.read_text() for path in self.folder.glob("from-*")}


class Daemon:
    """A process of Spark's that says in its log where it listens."""

    def __init__(self, name: str, folder: Path, *command: str, **variables: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        unwanted = {"PYTHONPATH", "SPARK_REMOTE", "PYSPARK_PYTHON", "SPARK_CONF_DIR"}
        environment = {key: value for key, value in os.environ.items() if key not in unwanted}
        environment |= {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_SMALL} -Dspark.master.rest.enabled=false",
            "SPARK_LAUNCHER_OPTS": _SMALL,
            **variables,
        }
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["bash", home / "bin" / "spark-class", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    def logged(self, pattern: str) -> str:
        """Wait for a line of the log; return the pattern's group."""

        def found() -> re.Match[str] | None:
            assert self.process.poll() is None, self.log.read_text()
            return re.search(pattern, self.log.read_text())

        return str(until(found, pattern)[1])

    def close(self) -> None:
        """End it and what it started."""
        below = list(descendants(self.process.pid))
        self.process.kill()
        self.process.wait()
        for process in below:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


class SparkCluster:
    """A standalone master with two workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = bare_python(folder / "python")
        self.gate = Gate(folder / "gate")
        self._daemons: list[Daemon] = []
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        master = self._daemon("master", _MASTER, *_listening("127.0.0.1"))
        self.master = master.logged(r"Starting Spark master at (spark://\S+)")
        self._page = master.logged(r"started at http://[^:]+:(\d+)")
        self.workers = [
            self._daemon(
                f"worker-{number}",
                _WORKER,
                *_listening(host),
                *("--cores", "8", "--memory", "4g", "--work-dir", str(self.folder / "work")),
                self.master,
                LAKE_GATE=str(self.gate.folder),
                SPARK_LOCAL_IP=host,
            )
            for number, host in enumerate(HOSTS)
        ]
        for worker in self.workers:
            worker.logged(r"Successfully registered with (master)")

    def _daemon(self, name: str, *command: str, **variables: str) -> Daemon:
        daemon = Daemon(name, self.folder, *command, **variables)
        self._daemons.append(daemon)
        return daemon

    def conf(self) -> dict[str, str]:
        """Return the settings of a small application: an executor with one core on each worker."""
        events = self.folder / "events"
        events.mkdir(exist_ok=True)
        return {
            "spark.pyspark.python": str(self.python),
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(len(HOSTS)),
            "spark.default.parallelism": str(len(HOSTS)),
            "spark.executor.extraJavaOptions": _SMALL,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def connect(self, conf: dict[str, str] | None = None) -> ConnectServer:
        """Start a Spark Connect server on the cluster; `close` ends it too."""
        server = ConnectServer(self, conf or self.conf())
        self._daemons.append(server.daemon)
        return server

    def written(self) -> Iterator[str]:
        """Yield what daemons, executors and applications wrote down for people to read."""
        for pattern in ("*.log", "events/*", "work/*/*/std*"):
            for path in self.folder.glob(pattern):
                yield path.read_text(errors="replace")

    def status(self) -> dict[str, Any]:
        """Return what the master reports about itself."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/") as answer:
            found = json.load(answer)
        assert isinstance(found, dict)
        return found

    def executors(self) -> dict[int, str]:
        """Return the living executors of all applications, with their command lines."""
        found = {}
        for worker in self.workers:
            found |= children(worker.process.pid)
        return {
            process: command
            for process, command in found.items()
            if "CoarseGrainedExecutorBackend" in command
        }

    def events(self, kind: str, application: str = "") -> Iterator[dict[str, Any]]:
        """Yield the events of a kind that an application, or all of them, logged."""
        for path in sorted((self.folder / "events").glob(f"{application}*")):
            for line in path.read_text().splitlines():
                if f'"{kind}"' in line[:100]:
                    yield json.loads(line)

    def close(self) -> None:
        """End every process."""
        while self._daemons:
            self._daemons.pop().close()


def executor_of(cluster: SparkCluster, worker: int) -> int:
    """Return the JVM whose daemon forked a Python worker."""
    for executor in cluster.executors():
        for daemon in children(executor):
            if worker in children(daemon):
                return executor
    raise AssertionError(f"unknown worker: {worker}")


def _listening(host: str) -> list[str]:
    return ["--host", host, "--port", "0", "--webui-port", "0"]


class ConnectServer:
    """A Spark Connect server whose executors are the cluster's."""

    def __init__(self, cluster: SparkCluster, conf: dict[str, str]) -> None:
        settings = {
            **conf,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.ui.port": "0",
            "spark.log.level": "INFO",
        }
        options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        self.daemon = Daemon(
            "connect",
            cluster.folder,
            *(_SUBMIT, "--master", cluster.master, *options),
            *("--class", _CONNECT, "--name", "connect", "spark-internal"),
            PYSPARK_PYTHON=str(cluster.python),
            SPARK_DAEMON_MEMORY="512m",
        )
        ui = self.daemon.logged(r"service 'SparkUI' on port (\d+)")
        self.page = f"http://127.0.0.1:{ui}"
        port = self.daemon.logged(r"Spark Connect server started at: \S*?:(\d+)")
        self.url = f"sc://127.0.0.1:{port}"
