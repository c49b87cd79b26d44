"""How Spark is set up: lake's own settings, under those of the user."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lake.core.engine.inline import usable_cores
from lake.core.properties.values import whole
from lake.core.redaction import Redactor
from lake.core.units import natural_number

_MEMORY = "spark.driver.memory"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CLASS_PATH = "spark.driver.extraClassPath"
# S1's words, so that neither Spark's log nor its UI shows the value of a setting that has one in its name.
_REDACTED = (
    "(?i)secret|password|passwd|passphrase|token|credential|access[.-]?key|account[.-]?key|api[.-]?key"
    "|private|authorization|sas|session[.-]?key|signature|oauth"
)
# The longest path that a Unix socket may have on every system, and what Spark appends to its folder.
_SOCKET_PATH = 103
_SOCKET_NAME = 43
# Unless the user says how wide a cluster is.
_PARALLELISM = whole("spark.default.parallelism", 32, least=1)
_MOST_THREADS = 256

_ALWAYS = {
    "spark.app.name": "lake",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # A shuffle's files hold the storage's secrets, for those who reduce.
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
    # Rows may hold megabytes, so a batch of them is bounded twice.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    "spark.sql.adaptive.enabled": "false",
    # No rows are computed in the JVM: compiling code for them costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True)
class SparkConf:
    """What Spark is told.

    Args:
        master: a master URL.
        given: the user's settings, which win.
    """

    master: str
    given: Mapping[str, str]

    @classmethod
    def of(cls, master: str | None, given: Mapping[str, str]) -> SparkConf:
        """Return the settings for a master; by default all cores of this machine."""
        return cls(master or given.get("spark.master") or f"local[{usable_cores()}]", given)

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, as children of the driver."""
        # local-cluster is for Spark's own tests and needs a built Spark.
        return self.master == "local" or self.master.startswith("local[")

    @property
    def is_plain(self) -> bool:
        """Whether a driver needs nothing of an installation's scripts, as those of YARN and Kubernetes may."""
        return self.is_local or self.master.startswith("spark://")

    @property
    def parallelism(self) -> int:
        """How many tasks run at once, as far as can be known before a start; each is waited for by a thread."""
        if self.is_local:
            threads = self.master.partition("[")[2].partition("]")[0].partition(",")[0]
            return natural_number(threads) or (usable_cores() if threads else 1)
        return self.cluster_parallelism

    @property
    def cluster_parallelism(self) -> int:
        """How many tasks run at once on a cluster: what the user says, for nobody else knows before a start."""
        return min(_PARALLELISM.of(self.given), _MOST_THREADS)

    @property
    def speculates(self) -> bool:
        """Whether Spark begins a slow task a second time while the first attempt runs on."""
        return self.given.get("spark.speculation", "").strip().lower() == "true"

    def complete(self, folder: Path) -> dict[str, str]:
        """Return all settings; what Spark writes down lies in the folder if it runs here."""
        local = self._local(folder) if self.is_local else {}
        return {**_ALWAYS, **_OF_SESSION, **local, **self.given, "spark.master": self.master}

    def session(self) -> dict[str, str]:
        """Return the settings that a running server takes."""
        return {**_OF_SESSION, **self.given}

    def arguments(self) -> list[str]:
        """Return the user's settings for a command line, where all can read them: without secrets."""
        redact = Redactor()
        redact.learn(self.given)
        settings = {**self.given, "spark.master": self.master}
        texts = [f"{key}={value}" for key, value in settings.items()]
        shown = [text for text in texts if redact(text, limit=None) == text]
        return [part for text in shown for part in ("--conf", text)]

    @property
    def changes_classes(self) -> bool:
        """Whether the user has the JVM load other classes, or load them otherwise, than lake alone does."""
        return bool(self.given.get(_JAVA_OPTIONS) or self.given.get(_CLASS_PATH))

    def java_options(self) -> list[str]:
        """Return the options that the user's settings mean for the JVM itself."""
        return [f"-Xmx{self._memory()}", *shlex.split(self.given.get(_JAVA_OPTIONS, ""))]

    def class_path(self) -> list[str]:
        """Return what the user puts before Spark's own classes."""
        return [part for part in self.given.get(_CLASS_PATH, "").split(":") if part]

    def _memory(self) -> str:
        # Spark takes "1024", "1g" and "1gb"; Java "1024m" and "1g".
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
            # By TCP each small message waits 40 ms for its acknowledgement.
            "spark.python.unix.domain.socket.enabled": "true" if short else "false",
            "spark.python.unix.domain.socket.dir": str(folder),
        }
