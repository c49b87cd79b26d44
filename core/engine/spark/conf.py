"""The configuration of Spark: lake's defaults, overridden by the user's settings."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lake.core.base.redaction import Redactor
from lake.core.base.units import natural_number
from lake.core.engine.inline import usable_cores
from lake.core.spec.properties.values import whole

_MEMORY = "spark.driver.memory"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
# Spark's log and UI redact the values of settings whose names contain one of these words.
_REDACTED = (
    "(?i)secret|password|passwd|passphrase|token|credential|access[.-]?key|account[.-]?key|api[.-]?key"
    "|private|authorization|sas|session[.-]?key|signature|oauth"
)
# The maximum length of a Unix socket's path on all systems, and the suffix that Spark appends to its folder.
_SOCKET_PATH = 103
_SOCKET_NAME = 43
# The default if the user does not configure the size of the cluster.
_PARALLELISM = whole("spark.default.parallelism", 32, least=1)
_MOST_THREADS = 256

# Settings that are paths of this machine, or URLs, and what separates them.
_PATHS = {
    **dict.fromkeys(("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles"), ","),
    **dict.fromkeys((f"spark.yarn.dist.{kind}" for kind in ("files", "archives", "jars")), ","),
    **dict.fromkeys(("spark.eventLog.dir", "spark.kerberos.keytab", "spark.metrics.conf"), ","),
    **dict.fromkeys((_CLASS_PATH, "spark.driver.extraLibraryPath"), ":"),
}
_ALWAYS = {
    "spark.app.name": "lake",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # Shuffle files contain the storage's secrets for the reducers.
    "spark.io.encryption.enabled": "true",
    "spark.log.level": "ERROR",
    "spark.redaction.regex": _REDACTED,
    "spark.sql.redaction.options.regex": _REDACTED,
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.worker.reuse": "true",
}
_OF_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A row may have megabytes, so batches are bounded by rows and by bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    "spark.sql.adaptive.enabled": "false",
    # The JVM computes no rows, so code generation costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def _absolute(key: str, value: str) -> str:
    """Return a setting with absolute paths, if it is a list of paths of this machine."""
    separator = _PATHS.get(key)
    if separator is None:
        return value
    parts = [part.strip() for part in value.split(separator) if part.strip()]
    return separator.join(
        part if ":" in part and separator == "," else os.path.abspath(part) for part in parts
    )


@dataclass(frozen=True, slots=True)
class SparkConf:
    """The settings of Spark.

    Args:
        master: a master URL.
        given: the user's settings, which override lake's.
    """

    master: str
    given: Mapping[str, str]

    @classmethod
    def of(cls, master: str | None, given: Mapping[str, str]) -> SparkConf:
        """Return the settings for a master; by default all cores of this machine.

        Relative paths become absolute ones, because Spark does not start in the working folder.
        """
        absolute = {key: _absolute(key, value) for key, value in given.items()}
        return cls(master or given.get("spark.master") or f"local[{usable_cores()}]", absolute)

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, as children of the driver."""
        # local-cluster is for Spark's own tests and needs a build of Spark.
        return self.master == "local" or self.master.startswith("local[")

    @property
    def is_plain(self) -> bool:
        """Whether the driver starts without the scripts of an installation, which YARN and Kubernetes may need."""
        return self.is_local or self.master.startswith("spark://")

    @property
    def parallelism(self) -> int:
        """The number of concurrent tasks, as far as it is known before the start; a thread waits for each."""
        if self.is_local:
            threads = self.master.partition("[")[2].partition("]")[0].partition(",")[0]
            return natural_number(threads) or (usable_cores() if threads else 1)
        return self.cluster_parallelism

    @property
    def cluster_parallelism(self) -> int:
        """The number of concurrent tasks on a cluster, which only the user's settings define before the start."""
        return min(_PARALLELISM.of(self.given), _MOST_THREADS)

    @property
    def speculates(self) -> bool:
        """Whether Spark starts a second attempt at a slow task while the first one continues."""
        return self.given.get("spark.speculation", "").strip().lower() == "true"

    def complete(self, folder: Path) -> dict[str, str]:
        """Return all settings; a local Spark writes its files to the folder."""
        local = self._local(folder) if self.is_local else {}
        return {**_ALWAYS, **_OF_SESSION, **local, **self.given, "spark.master": self.master}

    def session(self) -> dict[str, str]:
        """Return the settings that a running server accepts."""
        return {**_OF_SESSION, **self.given}

    def arguments(self) -> list[str]:
        """Return the user's settings for a command line, without secrets, because other users can read it."""
        redact = Redactor()
        redact.learn(self.given)
        settings = {**self.given, "spark.master": self.master}
        texts = [f"{key}={value}" for key, value in settings.items()]
        shown = [text for text in texts if redact(text, limit=None) == text]
        return [part for text in shown for part in ("--conf", text)]

    @property
    def changes_classes(self) -> bool:
        """Whether the user's settings change the classes of the JVM or how it loads them."""
        return bool(self.given.get(_JAVA_OPTIONS) or self.given.get(_CLASS_PATH))

    def java_options(self) -> list[str]:
        """Return the JVM options of the user's settings."""
        return [f"-Xmx{self._memory()}", *shlex.split(self.given.get(_JAVA_OPTIONS, ""))]

    def class_path(self) -> list[str]:
        """Return the user's entries of the class path, which precede Spark's."""
        return [part for part in self.given.get(_CLASS_PATH, "").split(":") if part]

    def _memory(self) -> str:
        # Spark accepts "1024", "1g" and "1gb"; Java "1024m" and "1g".
        wanted = self.given.get(_MEMORY, "1g").strip().lower()
        return f"{wanted}m" if wanted.isdigit() else wanted.removesuffix("b")

    @staticmethod
    def _local(folder: Path) -> dict[str, str]:
        short = len(str(folder)) + _SOCKET_NAME <= _SOCKET_PATH
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.python.daemon.module": "lake.core.engine.spark.worker_daemon",
            # With TCP each small message waits 40 ms for its acknowledgement.
            "spark.python.unix.domain.socket.enabled": "true" if short else "false",
            "spark.python.unix.domain.socket.dir": str(folder),
        }
