"""Spark's start on a thread of its own, so that planning goes on meanwhile, and its end."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.session import Attempt, Running, connect, start
from lake.core.errors import EngineError

# The main thread waits in steps, so that a signal's exception reaches it on every platform.
_WAIT_SECONDS = 0.2
_STOP_SECONDS = 2.0


class Launch:
    """One Spark from its start to its end; begun on construction.

    Args:
        conf: how it is set up.
        remote: a Spark Connect address, or None to start one.
    """

    def __init__(self, conf: SparkConf, remote: str | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lake-")).resolve()
        self._conf = conf
        self._remote = remote
        self._attempt = Attempt(self.folder)
        self._outcome: Running | BaseException | None = None
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._thread.start()

    def running(self) -> Running:
        """Return what was started, waiting for it.

        Raises:
            EngineError: it did not start, or `end` was called.
        """
        while self._thread.is_alive():
            self._attempt.check()
            self._thread.join(_WAIT_SECONDS)
        self._attempt.check()
        if isinstance(self._outcome, Running):
            return self._outcome
        raise self._outcome or EngineError("Spark's start came to nothing")

    def end(self) -> None:
        """End Spark, or its start; on this machine no process of it is left."""
        if isinstance(self._outcome, Running):
            self._outcome.end()
        self._attempt.give_up()
        self._thread.join(_STOP_SECONDS)

    def remove(self) -> None:
        """Remove what Spark kept on the disk; after `end`."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_archive(self) -> None:
        """Have the class archive made aside, if this start lacked it."""
        if isinstance(self._outcome, Running):
            self._outcome.make_archive()

    def _start(self) -> None:
        try:
            if self._remote:
                self._outcome = connect(self._remote, self._conf, self.folder)
            else:
                self._outcome = start(self._conf, self._attempt)
        except BaseException as error:  # noqa: BLE001 - raised again by whoever asks for the outcome
            self._outcome = error
