"""A Spark session: started as fast as the machine allows, as PySpark does it otherwise, or found remotely.

- A master of this machine, or a standalone one: the JVM is started directly, with the class archive if there
  is one. When that fails for any reason, PySpark's own start is tried.
- Another cluster manager, or a Spark of the user's own (SPARK_HOME, SPARK_CONF_DIR): PySpark's own start, which
  runs what the installation's scripts set up.
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

from lake.core.engine.jvm.class_archive import ClassArchive
from lake.core.engine.jvm.java import Java, find_java
from lake.core.engine.jvm.process import FAST_OPTIONS, Gateway, Jvm, Tail
from lake.core.engine.spark.code_archive import pack
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.preflight import require_master, require_server
from lake.core.engine.spark.pyspark_internals import (
    forget_server,
    reset_jvm_state,
    silence_shutdown,
    spark_errors,
)
from lake.core.errors import EngineError

_STOP_SECONDS = 10.0
_START_SECONDS = 120.0
# They tell of a Spark of the user's own.
_INSTALLED = ("SPARK_HOME", "SPARK_CONF_DIR")
# What PySpark's client for Spark Connect imports.
_CLIENT_MODULES = ("grpc", "grpc_status", "google.rpc", "zstandard")


@dataclass(slots=True)
class Running:
    """A session and what it takes to end it.

    Args:
        spark: the `pyspark.sql.SparkSession`.
        jvm: the driver's JVM; None when Spark runs elsewhere.
        is_local: tasks run on this machine and end with the JVM.
        java: what runs it, if the start was a direct one.
        archive: the class archive that a direct start uses or lacks.
    """

    spark: Any
    jvm: Jvm | None = None
    is_local: bool = False
    java: Java | None = None
    archive: ClassArchive | None = None

    def end(self) -> None:
        """End Spark; a local one is killed, for it has nothing to tell and its files lie in one folder."""
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
        """Have the class archive made aside, if this start lacked it."""
        if self.java and self.archive:
            self.archive.build_in_background(self.java)


@dataclass(slots=True)
class Attempt:
    """A start that is under way, and what it takes to give it up.

    Args:
        folder: private to this start; the caller removes it.
        answered: a JVM came up: what fails now, another way to start one does not mend.
        seconds: how long a JVM may take to come up.
    """

    folder: Path
    stopped: threading.Event = field(default_factory=threading.Event)
    jvms: list[Jvm] = field(default_factory=list)
    answered: bool = False
    seconds: float = _START_SECONDS

    def give_up(self) -> None:
        """Kill what was started; nothing more is."""
        self.stopped.set()
        for jvm in list(self.jvms):
            jvm.kill()

    def check(self) -> None:
        """Raise `EngineError` if the start was given up."""
        if self.stopped.is_set():
            raise EngineError("the engine was stopped")


def start(conf: SparkConf, attempt: Attempt) -> Running:
    """Start Spark, directly if that suits, else by PySpark's own means.

    Raises:
        EngineError: there is no Java, nobody listens where the master is, or Spark does not start.
    """
    java = find_java()
    require_master(conf.master)
    forget_server()
    # Py4J tells the root logger of calls that a stop cuts off; with no handler there, that would
    # make one which writes to the user's terminal.
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
            # Its scripts ask more of a Java; why the simple command failed says more.
            raise error from None


def connect(url: str, conf: SparkConf, folder: Path) -> Running:
    """Open a session on a Spark Connect server, and bring lake's code there.

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
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only when Spark is wanted

    with spark_errors("no session from the Spark Connect server"):
        spark = SparkSession.builder.remote(url).getOrCreate()
    for key, value in conf.session().items():
        # A server need not know, or allow, every setting of ours.
        with suppress(EngineError), spark_errors(f"setting {key}"):
            spark.conf.set(key, value)
    with spark_errors("the Spark Connect server takes no code"):
        spark.addArtifacts(str(pack(folder)), pyfile=True)
    return Running(spark)


def _start_with_archive(conf: SparkConf, attempt: Attempt, java: Java) -> Running:
    archive = None if conf.changes_classes else archive_for(java)
    options = archive.options() if archive else []
    if archive and options:
        # One that passes the JVM's checks may still be what a start fails for.
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
    """Whether a failed start is not to be tried in another way: the cluster, or the user, does not want it."""
    attempt.check()
    return attempt.answered and not conf.is_local


def archive_for(java: Java) -> ClassArchive:
    """Return the class archive of direct starts on a Java."""
    return ClassArchive.of(java, [_spark_classes()], FAST_OPTIONS)


def start_directly(conf: SparkConf, attempt: Attempt, java: Java, more: Sequence[str]) -> Running:
    """Start a Spark of this machine without PySpark's scripts, with further JVM options.

    Whoever calls it has called `forget_server`.
    """
    class_path = [*conf.class_path(), _spark_classes()]
    options = [*FAST_OPTIONS, *conf.java_options(), *more]
    folder = attempt.folder
    jvm = Jvm.launch(java, class_path, options, conf.arguments(), folder, _jvm_environment())
    attempt.jvms.append(jvm)
    with _killed_on_failure(jvm):
        # Loaded while the JVM starts.
        import pyspark.java_gateway  # noqa: PLC0415
        import pyspark.sql  # noqa: F401, PLC0415

        gateway = jvm.gateway(folder, attempt.stopped, attempt.seconds)
        attempt.answered = True
        attempt.check()
        return Running(_session(conf, folder, gateway), jvm, conf.is_local)


def _start_ordinarily(conf: SparkConf, attempt: Attempt, java: Java) -> Running:
    from pyspark import SparkConf as PySparkConf  # noqa: PLC0415 - only when Spark is wanted
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    output = Tail()
    shown = PySparkConf(loadDefaults=False)
    shown.setAll([tuple(text.split("=", 1)) for text in conf.arguments()[1::2]])
    streams = {"stdout": output.descriptor, "stderr": output.descriptor, "start_new_session": True}
    try:
        # A gateway that someone else announced is not ours to end.
        own = {"JAVA_HOME": str(java.home), "PYSPARK_GATEWAY_PORT": None}
        with _environment(own), spark_errors("Spark does not start"):
            gateway = launch_gateway(conf=shown, popen_kwargs=streams)
    finally:
        output.close_descriptor()
    jvm = Jvm(gateway.proc, output)
    attempt.jvms.append(jvm)
    with _killed_on_failure(jvm):
        attempt.check()
        return Running(_session_on(conf, attempt.folder, gateway), jvm, conf.is_local)


def _ship(spark: Any, folder: Path) -> None:
    """Bring lake's code to the executors, before what may be installed there."""
    before = list(sys.path)
    with spark_errors("Spark does not take lake's code"):
        spark.sparkContext.addPyFile(str(pack(folder)))
    # PySpark has put it on this process's path too, where it outlives the file.
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
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineError("PySpark is not installed")
    return str(Path(spec.origin).parent / "jars" / "*")


def _session(conf: SparkConf, folder: Path, gateway: Gateway) -> Any:
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - only when Spark is wanted

    address = {
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.secret,
    }
    with _environment(address), spark_errors("Spark's gateway does not answer"):
        connection = launch_gateway()
    return _session_on(conf, folder, connection)


def _session_on(conf: SparkConf, folder: Path, connection: Any) -> Any:
    from pyspark import SparkConf as PySparkConf  # noqa: PLC0415 - only when Spark is wanted
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    settings = conf.complete(folder)
    python = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if not python or conf.is_local:
        # Tasks on another Python would miss what lake is made of.
        python = sys.executable
    wanted = PySparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _environment({"PYSPARK_PYTHON": python}), spark_errors("Spark does not start"):
        spark = SparkSession(SparkContext(conf=wanted, gateway=connection))
    if not conf.is_local:
        _ship(spark, folder)
    return spark


def _jvm_environment() -> dict[str, str]:
    # Spark's class for a missing build is skipped, and a worker takes no module from the current folder.
    added = {"SPARK_SCALA_VERSION": "2.13", "PYTHONSAFEPATH": "1", "SPARK_CONNECT_MODE": "0"}
    unwanted = {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**kept, **added}


def _stop_session(spark: Any) -> None:
    """Tell the cluster, which takes a moment; one that does not answer is left."""
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
    """Set variables for the block, or unset them: PySpark takes some arguments from there only."""
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
