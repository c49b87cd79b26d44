"""Start Spark in a thread, so that planning continues meanwhile, and end it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from lake.core.base.errors import EngineError
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.session import Attempt, Running, connect, start

# The main thread waits in steps, so that it handles signals on every platform.
_WAIT_SECONDS = 0.2
_STOP_SECONDS = 2.0


class Launch:
    """One Spark from its start to its end. The constructor begins the start.

    Args:
        conf: the configuration.
        remote: a Spark Connect address; None to start a Spark.
        modules: the modules that workers of this machine import while Spark starts.
    """

    def __init__(self, conf: SparkConf, remote: str | None, modules: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lake-")).resolve()
        self._conf = conf
        self._remote = remote
        self._attempt = Attempt(self.folder, modules)
        self._outcome: Running | BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._thread.start()

    def running(self) -> Running:
        """Wait for the start and return the session.

        Raises:
            EngineError: it did not start, or `end` was called.
        """
        while self._thread.is_alive():
            self._attempt.check()
            self._thread.join(_WAIT_SECONDS)
        self._attempt.check()
        if isinstance(self._outcome, Running):
            return self._outcome
        raise self._outcome or EngineError("Spark did not start")

    def end(self) -> None:
        """End Spark, or its start, and all of its processes on this machine."""
        if isinstance(self._outcome, Running):
            self._outcome.end()
        self._attempt.give_up()
        self._thread.join(_STOP_SECONDS)

    def remove(self) -> None:
        """Remove Spark's files; to be called after `end`."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_archive(self) -> None:
        """Build the class archive in the background if this start did not have it."""
        if isinstance(self._outcome, Running):
            self._outcome.make_archive()

    def _start(self) -> None:
        try:
            if self._remote:
                self._outcome = connect(self._remote, self._conf, self.folder)
            else:
                self._outcome = start(self._conf, self._attempt)
        except BaseException as error:  # noqa: BLE001 - `running` raises it again
            self._outcome = error
