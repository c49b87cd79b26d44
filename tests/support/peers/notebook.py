"""A notebook on Spark: cells of Python that see one another's names and a session, in a process of its own.

notebook.py FOLDER [REMOTE]    (one JSON document with a cell a line; the answer is what the cell gives `answer`)
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run by its path, Python looks for modules beside this file only.
    sys.path[0] = str(Path(__file__).parents[2])

from lake.core.engine.jvm.java import find_java
from support.peers.peer_process import PeerProcess

ROOT = Path(__file__).parents[3]


class Notebook(PeerProcess):
    """The process. Spark finds the data source in a folder of the import path, as where a wheel is installed."""

    def __init__(self, folder: Path, remote: str | None = None) -> None:
        """Start it.

        Args:
            folder: where to work.
            remote: the address of a Spark Connect server; None for a Spark of its own.
        """
        packages = folder / "packages"
        packages.mkdir()
        (packages / "pyspark_lake").symlink_to(ROOT / "commands/spark/pyspark_lake")
        environment = {
            "JAVA_HOME": str(find_java().home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(packages),
        }
        named = [f"{name}={value}" for name, value in environment.items()]
        words = [__file__, str(folder), *([remote] if remote else ())]
        super().__init__(["env", *named, sys.executable, *words], '{"')

    def run(self, cell: str, **names: Any) -> Any:
        """Run a cell, which sees the names, and return what it gives `answer`.

        Raises:
            RuntimeError: the cell fails; the message is the error's.
        """
        return self.ask({"cell": cell, "names": names})["answer"]


def main() -> None:
    """Answer cells until the input ends."""
    from pyspark.sql import SparkSession

    folder, *remote = sys.argv[1:]
    os.chdir(folder)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/spark",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder
    if remote:
        builder = builder.remote(remote[0])
    else:
        builder = builder.master("local[2]")
        for name, value in settings.items():
            builder = builder.config(name, value)
    names: dict[str, Any] = {"spark": builder.getOrCreate()}
    for line in sys.stdin:
        request = json.loads(line)
        names |= {"answer": None, **request["names"]}
        try:
            exec(request["cell"], names)
            answer = {"answer": names["answer"]}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
