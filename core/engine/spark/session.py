"""Open a Spark session: start Spark directly, with PySpark's own start, or connect to a server.

- A master of this machine, or a standalone one: the JVM is started directly, with the class archive if there
  is one. If that fails for any reason, PySpark's own start is tried.
- Another cluster manager, or a Spark of the user's own (SPARK_HOME, SPARK_CONF_DIR): PySpark's own start, which
  runs the installation's scripts.
- A Spark Connect address: nothing is started.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lake.core.base.errors import EngineError
from lake.core.engine.jvm.class_archive import ClassArchive
from lake.core.engine.jvm.java import Java, find_java
from lake.core.engine.jvm.process import FAST_OPTIONS, Gateway, Jvm, OutputTail
from lake.core.engine.spark.code_archive import pack
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.preflight import require_master, require_server
from lake.core.engine.spark.pyspark_internals import (
    forget_server,
    has_context,
    mark_own,
    pyspark_modules,
    reset_jvm_state,
    silence_shutdown,
    spark_errors,
)
from lake.core.engine.spark.worker_daemon import Preloaded

_STOP_SECONDS = 10.0
_START_SECONDS = 120.0
# These variables refer to the user's own Spark.
_INSTALLED = ("SPARK_HOME", "SPARK_CONF_DIR")
# The modules that PySpark's client for Spark Connect imports.
_CLIENT_MODULES = ("grpc", "grpc_status", "google.rpc", "zstandard")


@dataclass(slots=True)
class Running:
    """A session and the processes to end with it.

    Args:
        spark: the `pyspark.SparkContext` of a driver, or the `pyspark.sql.SparkSession` of a Spark Connect server.
        jvm: the driver's JVM; None if Spark runs elsewhere.
        is_local: whether tasks run on this machine and end with the JVM.
        java: the Java of a direct start.
        archive: the class archive of a direct start, which may not exist yet.
    """

    spark: Any
    jvm: Jvm | None = None
    is_local: bool = False
    java: Java | None = None
    archive: ClassArchive | None = None

    def end(self) -> None:
        """End Spark. A local Spark is killed, because all of its files are in one folder."""
        if self.jvm:
            silence_shutdown(self.spark)
        if not self.is_local:
            _stop_session(self.spark)
        if self.jvm:
            self.jvm.kill()
            reset_jvm_state()
        else:
            forget_server()

    def make_archive(self) -> None:
        """Build the class archive in the background if this start did not have it."""
        if self.java and self.archive:
            self.archive.build_in_background(self.java)


@dataclass(slots=True)
class Attempt:
    """A start in progress, which can be cancelled.

    Args:
        folder: a private folder of this start; the caller removes it.
        modules: the modules that workers of this machine import while the JVM starts.
        answered: whether a JVM answered, so that another kind of start would not help.
        seconds: the timeout of the JVM's start.
    """

    folder: Path
    modules: Sequence[str] = ()
    stopped: threading.Event = field(default_factory=threading.Event)
    jvms: list[Jvm] = field(default_factory=list)
    preloaded: Preloaded | None = None
    answered: bool = False
    seconds: float = _START_SECONDS

    def give_up(self) -> None:
        """Cancel the start and kill the processes that it started."""
        self.stopped.set()
        for jvm in list(self.jvms):
            jvm.kill()
        if self.preloaded:
            self.preloaded.end()

    def check(self) -> None:
        """Raise `EngineError` if the start was given up."""
        if self.stopped.is_set():
            raise EngineError("the engine was stopped")


def start(conf: SparkConf, attempt: Attempt) -> Running:
    """Start Spark, directly if possible, else with PySpark's own start.

    Raises:
        EngineError: there is no Java, the master does not answer, or Spark does not start.
    """
    if has_context():
        # Two cannot be in one process, and what follows would end the other one.
        raise EngineError(
            "another Spark runs in this process",
            hint="choose the engine inline, or stop the other Spark",
        )
    java = find_java()
    require_master(conf.master)
    forget_server()
    # Py4J logs calls that a stop interrupts to the root logger; without a handler there, logging would create
    # one that writes to the user's terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    if not conf.is_plain or any(os.environ.get(name) for name in _INSTALLED):
        return _start_ordinarily(conf, attempt, java)
    try:
        return _start_with_archive(conf, attempt, java)
    except EngineError as error:
        if _is_final(conf, attempt):
            raise
        try:
            return _start_ordinarily(conf, attempt, java)
        except EngineError:
            # PySpark's scripts need more of a Java, so the error of the direct start is more useful.
            raise error from None


def connect(url: str, conf: SparkConf, folder: Path) -> Running:
    """Open a session on a Spark Connect server, and send lake's code there.

    Raises:
        EngineError: PySpark's client for it is not installed, or the server does not answer.
    """
    missing = [name for name in _CLIENT_MODULES if not _importable(name)]
    if missing:
        raise EngineError(
            f"Spark Connect needs Python modules that are missing: {', '.join(missing)}",
            hint="pip install 'lake-iceberg[connect]'",
        )
    require_server(url)
    with spark_errors("no session from the Spark Connect server"):
        spark = pyspark_modules().sql.SparkSession.builder.remote(url).getOrCreate()
    for key, value in conf.session().items():
        # A server may not know or allow some of the settings.
        with suppress(EngineError), spark_errors(f"setting {key}"):
            spark.conf.set(key, value)
    with spark_errors("the Spark Connect server does not accept lake's code"):
        spark.addArtifacts(str(pack(folder)), pyfile=True)
    return Running(spark)


def _start_with_archive(conf: SparkConf, attempt: Attempt, java: Java) -> Running:
    archive = None if conf.changes_classes else archive_for(java)
    options = archive.options() if archive else []
    if archive and options:
        # An archive that passes the JVM's checks may still be the reason of a failed start.
        try:
            return replace(start_directly(conf, attempt, java, options), java=java, archive=archive)
        except EngineError:
            if _is_final(conf, attempt):
                raise
    running = start_directly(conf, attempt, java, [])
    if archive and options:
        archive.discard()
    return replace(running, java=java, archive=archive)


def _is_final(conf: SparkConf, attempt: Attempt) -> bool:
    """Whether a failed start must not be retried in another way, because of the cluster or the user."""
    attempt.check()
    return attempt.answered and not conf.is_local


def archive_for(java: Java) -> ClassArchive:
    """Return the class archive of direct starts with a Java."""
    return ClassArchive.of(java, [_spark_classes()], FAST_OPTIONS)


def start_directly(conf: SparkConf, attempt: Attempt, java: Java, more: Sequence[str]) -> Running:
    """Start Spark on this machine without PySpark's scripts, with additional JVM options.

    The caller must have called `forget_server`.
    """
    class_path = [*conf.class_path(), _spark_classes()]
    options = [*FAST_OPTIONS, *conf.java_options(), *more]
    folder, environment = attempt.folder, _jvm_environment()
    jvm = Jvm.launch(java, class_path, options, conf.arguments(), folder, environment)
    attempt.jvms.append(jvm)
    if conf.is_local and attempt.preloaded is None:
        with suppress(OSError):
            # Without it, Spark starts a daemon itself.
            attempt.preloaded = Preloaded(folder, attempt.modules, environment)
        if attempt.stopped.is_set():
            attempt.give_up()
    with _killed_on_failure(jvm):
        # Import PySpark while the JVM starts.
        pyspark_modules()
        gateway = jvm.gateway(folder, attempt.stopped, attempt.seconds)
        attempt.answered = True
        attempt.check()
        return Running(_context(conf, folder, gateway), jvm, conf.is_local)


def _start_ordinarily(conf: SparkConf, attempt: Attempt, java: Java) -> Running:
    pyspark = pyspark_modules()
    output = OutputTail()
    shown = pyspark.SparkConf(loadDefaults=False)
    shown.setAll([tuple(text.split("=", 1)) for text in conf.arguments()[1::2]])
    options = {"stdout": output.descriptor, "stderr": output.descriptor, "start_new_session": True}
    try:
        own = {
            "JAVA_HOME": str(java.home),
            # A gateway in the environment belongs to another process, which ends it.
            "PYSPARK_GATEWAY_PORT": None,
            # Workers import nothing from the folder in which they are started.
            "PYTHONSAFEPATH": "1",
            **_spark_folders(),
        }
        with _environment(own), spark_errors("Spark does not start"):
            gateway = pyspark.java_gateway.launch_gateway(
                conf=shown, popen_kwargs={**options, "cwd": attempt.folder}
            )
    finally:
        output.close_descriptor()
    jvm = Jvm(gateway.proc, output)
    attempt.jvms.append(jvm)
    with _killed_on_failure(jvm):
        attempt.check()
        return Running(_context_on(conf, attempt.folder, gateway), jvm, conf.is_local)


def _ship(context: Any, folder: Path) -> None:
    """Send lake's code to the executors, where it precedes an installed version."""
    before = list(sys.path)
    with spark_errors("Spark does not accept lake's code"):
        context.addPyFile(str(pack(folder)))
    # PySpark has added it to this process's path too, where it would outlive the file.
    sys.path[:] = before


@contextmanager
def _killed_on_failure(jvm: Jvm) -> Iterator[None]:
    try:
        yield
    except BaseException:
        jvm.kill()
        reset_jvm_state()
        raise


def _spark_classes() -> str:
    return str(_spark_package() / "jars" / "*")


def _spark_package() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineError("PySpark is not installed")
    return Path(spec.origin).parent


def _spark_folders() -> dict[str, str | None]:
    """Return the variables with the folders of the Spark to start, whatever the working folder is.

    Without SPARK_HOME, PySpark would first look for a Spark in the folder above the working folder, and run it.
    """
    named = {name: os.path.abspath(os.environ[name]) for name in _INSTALLED if os.environ.get(name)}
    package = _spark_package()
    homes = (package / "spark-distribution", package)
    found = next((home for home in homes if (home / "bin" / "spark-submit").is_file()), package)
    return {"SPARK_HOME": str(found), **named}


def _context(conf: SparkConf, folder: Path, gateway: Gateway) -> Any:
    address = {
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.secret,
    }
    with _environment(address), spark_errors("Spark's gateway does not answer"):
        connection = pyspark_modules().java_gateway.launch_gateway()
    return _context_on(conf, folder, connection)


def _context_on(conf: SparkConf, folder: Path, connection: Any) -> Any:
    pyspark = pyspark_modules()
    settings = conf.complete(folder)
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if not python or conf.is_local:
        # Another Python would not have lake's dependencies.
        python = sys.executable
    wanted = pyspark.SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _environment({"PYSPARK_PYTHON": python}), spark_errors("Spark does not start"):
        context = pyspark.SparkContext(conf=wanted, gateway=connection)
        mark_own(context)
    if not conf.is_local:
        _ship(context, folder)
    return context


def _jvm_environment() -> dict[str, str]:
    # Skip Spark's check for a build, and keep workers from importing modules of the current folder.
    added = {"SPARK_SCALA_VERSION": "2.13", "PYTHONSAFEPATH": "1", "SPARK_CONNECT_MODE": "0"}
    # Workers use memory again within these milliseconds, which takes less time than to return it and get it back.
    defaults = {"MIMALLOC_PURGE_DELAY": "5000"}
    unwanted = {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"}
    # Another thread may remove a variable meanwhile.
    found = {key: os.environ.get(key) for key in tuple(os.environ) if key not in unwanted}
    return defaults | {key: value for key, value in found.items() if value is not None} | added


def _stop_session(spark: Any) -> None:
    """Stop the session on the cluster, which takes a moment; do not wait for a cluster that does not answer."""
    thread = threading.Thread(target=_quietly, args=(spark.stop,), daemon=True)
    thread.start()
    thread.join(_STOP_SECONDS)


def _quietly(action: Any) -> None:
    with suppress(EngineError), spark_errors("Spark does not stop"):
        action()


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set or unset environment variables in the block, because PySpark reads some arguments only from there."""
    before = {key: os.environ.get(key) for key in values}
    _put(values)
    try:
        yield
    finally:
        _put(before)


def _put(values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
