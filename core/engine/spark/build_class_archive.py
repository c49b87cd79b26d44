"""Build the class archive. lake runs this module in a separate process with ``JAVA_HOME`` as its argument.

It runs typical Spark tasks of lake, which load the classes; the JVM writes the archive at its normal end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lake.core.base.clock import SystemClock
from lake.core.base.errors import EngineError, LakeError
from lake.core.engine.jvm.class_archive import ClassArchive, build_lock, remove_unused
from lake.core.engine.jvm.java import Java, find_java
from lake.core.engine.jvm.process import FAST_OPTIONS
from lake.core.engine.spark import plans
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.jobs import DriverJobs
from lake.core.engine.spark.pyspark_internals import forget_server
from lake.core.engine.spark.session import Attempt, archive_for, start_directly
from lake.core.engine.task_functions import echo, gather, name_of, scatter
from lake.core.engine.tasks import Task
from lake.core.io.storage.credentials import Credentials

_LOWEST_PRIORITY = 19
# The timeout of each step. With the lowest priority, it may wait long on a busy machine.
_PATIENCE_SECONDS = 1800.0


def main(java_home: str) -> None:
    """Build the archive, unless it exists or another process is building it."""
    os.nice(_LOWEST_PRIORITY)
    forget_server()
    java = find_java({"JAVA_HOME": java_home})
    archive = archive_for(java)
    with build_lock(archive) as allowed:
        if not allowed or archive.options():
            return
        try:
            make(archive, java)
        except (LakeError, OSError, subprocess.SubprocessError) as error:
            archive.failure.write_text(f"{error}\n", encoding="utf-8")
        else:
            archive.failure.unlink(missing_ok=True)
            remove_unused(archive.folder, SystemClock())


def make(archive: ClassArchive, java: Java) -> None:
    """Write the archive, and before it that of Java's own classes if it is missing.

    Raises:
        EngineError: Spark does not start, or the JVM did not write an archive.
    """
    options = []
    if archive.needs_base:
        _make_base(archive, java)
        options.append(f"-XX:SharedArchiveFile={archive.base}")
    made = archive.path.with_suffix(".new")
    with tempfile.TemporaryDirectory(prefix="lake-train-") as folder:
        _run_spark(java, Path(folder), [*options, f"-XX:ArchiveClassesAtExit={made}"])
    if not made.is_file():
        raise EngineError("Java did not write a class archive")
    made.replace(archive.path)


def _make_base(archive: ClassArchive, java: Java) -> None:
    made = archive.base.with_suffix(".new")
    subprocess.run(  # noqa: S603 - the Java that lake was given
        [str(java.executable), *FAST_OPTIONS, "-Xshare:dump", f"-XX:SharedArchiveFile={made}"],
        check=True,
        capture_output=True,
        timeout=_PATIENCE_SECONDS,
    )
    made.replace(archive.base)


def _run_spark(java: Java, folder: Path, options: list[str]) -> None:
    attempt = Attempt(folder.resolve(), seconds=_PATIENCE_SECONDS)
    running = start_directly(SparkConf.of(None, {}), attempt, java, options)
    tasks = [Task({"blobs": [[0, ""], [1, ""]]}), Task({"blobs": [[1, ""]]})]
    jobs = DriverJobs(running.spark)
    for plan in (
        plans.run(tasks, name_of(echo), 2),
        plans.exchange(tasks, name_of(scatter), name_of(gather), [{}, {}], 2),
    ):
        for piece in jobs.pieces(plan.rows("train", "", Credentials({})), plan):
            piece()
    running.spark.stop()
    if running.jvm:
        running.jvm.close(_PATIENCE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
