"""The JVM of Spark: start it without Spark's launcher scripts, collect its output, and end it.

PySpark's own start runs two shells and a second JVM to compute the command line that is built here, and cannot pass
the options for a fast start. The process follows PySpark's protocol: the JVM writes the port and the secret of its
Py4J gateway to a file, and ends when its standard input is closed.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.errors import EngineError
from lake.core.engine.jvm.java import Java

_POLL_SECONDS = 0.01
_TAIL_BYTES = 16 * 1024

# Packages that Spark accesses by reflection, from org.apache.spark.launcher.JavaModuleOptions.
_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
# A short run does not benefit from the optimising compiler, nor a small heap from a parallel collector.
FAST_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "--enable-native-access=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "-Dlog4j2.disable.jmx=true",
)


class OutputTail:
    """Keeps the last lines of a process's output; reads all of it, so that the process never blocks.

    `descriptor` is the standard output and error of the process. `close_descriptor` closes this process's copy;
    reading ends when the last process with a copy has ended.
    """

    def __init__(self) -> None:
        self._source, self.descriptor = os.pipe()
        self._kept = b""
        self._thread = threading.Thread(target=self._read, name="jvm-output", daemon=True)
        self._thread.start()

    def close_descriptor(self) -> None:
        """Close this process's copy of the descriptor."""
        os.close(self.descriptor)

    def text(self) -> str:
        """Return the last lines."""
        return self._kept.decode("utf-8", "replace")

    def wait(self, seconds: float) -> None:
        """Wait until the process has closed its descriptor."""
        self._thread.join(seconds)

    def _read(self) -> None:
        with os.fdopen(self._source, "rb", buffering=0) as source:
            while part := source.read(_TAIL_BYTES):
                self._kept = (self._kept + part)[-_TAIL_BYTES:]


@dataclass(frozen=True, slots=True)
class Gateway:
    """The address of the JVM for PySpark."""

    port: int
    secret: str


class Jvm:
    """A running JVM.

    Args:
        process: the process, with a pipe as its standard input.
        output: its output.
    """

    def __init__(self, process: subprocess.Popen[Any], output: OutputTail) -> None:
        self.process = process
        self.output = output

    @classmethod
    def launch(
        cls,
        java: Java,
        class_path: Sequence[str],
        options: Sequence[str],
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
    ) -> Jvm:
        """Start Spark's gateway in ``folder``, where it writes its port to a file.

        In the working folder, files of other users could configure the JVM, Spark and Hadoop.
        It runs in its own session, so that Ctrl-C in a terminal reaches only lake.
        """
        command = [
            str(java.executable),
            "-cp",
            ":".join(class_path),
            *options,
            "org.apache.spark.deploy.SparkSubmit",
            *arguments,
            "pyspark-shell",
        ]
        output = OutputTail()
        try:
            process = subprocess.Popen(  # noqa: S603 - the Java that was found
                command,
                stdin=subprocess.PIPE,
                stdout=output.descriptor,
                stderr=output.descriptor,
                cwd=folder,
                env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_port_file(folder))},
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"cannot run {java.executable}: {error.strerror}") from error
        finally:
            output.close_descriptor()
        return cls(process, output)

    def gateway(
        self,
        folder: Path,
        stopped: threading.Event,
        seconds: float,
        clock: Clock | None = None,
    ) -> Gateway:
        """Wait for the gateway, for at most ``seconds``.

        Raises:
            EngineError: the JVM ended, took too long, or ``stopped`` was set.
        """
        clock = clock or SystemClock()
        deadline = clock.monotonic() + seconds
        port_file = _port_file(folder)
        while not port_file.exists():
            if ended := self.ended():
                raise EngineError(ended)
            if clock.monotonic() > deadline:
                raise EngineError(f"Java did not answer in {seconds:.0f} s")
            if stopped.wait(_POLL_SECONDS):
                raise EngineError("the engine was stopped")
        data = port_file.read_bytes()
        port_file.unlink()
        # A 4-byte port, then a text with a 4-byte length, in the format of PySpark's serialisers.
        port, length = struct.unpack_from(">ii", data)
        return Gateway(port, data[8 : 8 + length].decode())

    def ended(self, seconds: float = 0) -> str | None:
        """Return a message about its end, if it has ended or ends within ``seconds``."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.output.wait(1)
        return f"Java ended with {code}{self._last_words()}"

    def close(self, seconds: float) -> None:
        """Wait for its end; kill it if that takes longer than ``seconds``."""
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process. The parent of the Python workers ends when the JVM does."""
        if self.process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if os.getpgid(self.process.pid) == self.process.pid:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()

    def _last_words(self) -> str:
        lines = [line.strip() for line in self.output.text().splitlines() if line.strip()]
        return f": {' / '.join(lines[-3:])}" if lines else ""


def _port_file(folder: Path) -> Path:
    return folder / "gateway"
