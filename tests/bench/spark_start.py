"""How long Spark takes to its first Python result: PySpark's own start, lake's, and lake's with its archive.

    python tests/bench/spark_start.py [ROUNDS]

Each start is a process of its own; the three alternate, and times are seconds from the process's launch.
The archive is made first, in a folder that is removed again.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lake.core.engine.jvm.java import find_java

_BUILDER = """
from pyspark.sql import SparkSession
from lake.core.engine.spark.worker import RESULT_ROWS, TASK_ROWS, run_tasks
spark = SparkSession.builder.master("local[2]").getOrCreate()
row = ('[[0, {}]]', 'lake.core.engine.task_functions:echo', 'b', '', b'{}', b'')
frame = spark.createDataFrame([row], TASK_ROWS).mapInArrow(run_tasks, RESULT_ROWS)
assert frame.collect()
print("result", flush=True)
spark.stop()
"""
_LAKE = """
from lake.core.engine.task_functions import echo
from lake.core.engine.tasks import Task
from lake.core.engine.spark.engine import SparkEngine
from lake.core.base.settings import Settings
from lake.core.io.storage.storage import Storage
engine = SparkEngine(Settings(master="local[2]"))
assert list(engine.run([Task({})], echo, storage=Storage()))
print("result", flush=True)
engine.stop()
"""
_JOBS = """
import time
from lake.core.engine.task_functions import echo
from lake.core.engine.tasks import Task
from lake.core.engine.spark.engine import SparkEngine
from lake.core.base.settings import Settings
from lake.core.io.storage.storage import Storage
engine = SparkEngine(Settings(master="local[2]"))
for count in (2, 32, 3000, 2, 32, 3000):
    before = time.monotonic()
    tasks = [Task({}) for _ in range(count)]
    assert len(list(engine.run(tasks, echo, storage=Storage()))) == count
    print(f"{count:5d} empty tasks: {time.monotonic() - before:.2f} s", flush=True)
engine.stop()
"""


def first_result(code: str, cache: Path) -> tuple[float, float]:
    """Return seconds to the first result and to the end of the process."""
    environment = {**os.environ, "LAKE_CACHE_DIR": str(cache), "PYSPARK_PYTHON": sys.executable}
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "result\n"
    result = time.monotonic() - begun
    process.stdout.read()
    assert process.wait() == 0
    return result, time.monotonic() - begun


def main(rounds: int) -> None:
    """Print medians and extremes."""
    with tempfile.TemporaryDirectory() as folder:
        archived, nothing = Path(folder, "archived"), Path(folder, "file", "nothing")
        archived.mkdir(mode=0o700)
        nothing.parent.touch()
        command = [
            sys.executable,
            "-m",
            "lake.core.engine.spark.build_class_archive",
            str(find_java().home),
        ]
        begun = time.monotonic()
        subprocess.run(command, check=True, env={**os.environ, "LAKE_CACHE_DIR": str(archived)})
        print(f"making the archive: {time.monotonic() - begun:.1f} s")
        ways = {
            "PySpark's own start": (_BUILDER, nothing),
            "lake without archive": (_LAKE, nothing),
            "lake with archive": (_LAKE, archived),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (code, cache) in ways.items():
                times[name].append(first_result(code, cache))
        for name, pairs in times.items():
            for what, values in zip(
                ("first result", "process"), zip(*pairs, strict=True), strict=True
            ):
                middle = statistics.median(values)
                print(
                    f"{name:22} {what:12} {middle:5.2f} s ({min(values):.2f} to {max(values):.2f})"
                )
        subprocess.run(
            [sys.executable, "-c", _JOBS],
            check=True,
            env={**os.environ, "LAKE_CACHE_DIR": str(archived)},
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
