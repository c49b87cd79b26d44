"""An engine that stays when a command ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lake.core.base.progress import Meter
from lake.core.base.settings import Settings
from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.tasks import (
    MapFunction,
    Payload,
    ReduceFunction,
    ReducePayload,
    Result,
    Task,
    TaskFunction,
    TaskResult,
)
from lake.core.io.storage.storage import Storage
from lake.core.transaction.session import Session, open_session


class Lasting:
    """An engine that stays when a command ends: an application takes seconds to start."""

    def __init__(self, settings: Settings) -> None:
        self._engine = SparkEngine(settings)
        self.name = self._engine.name
        self.parallelism = self._engine.parallelism
        self.is_shared = settings.remote is not None

    @property
    def may_have_lost_attempts(self) -> bool:
        return self._engine.may_have_lost_attempts

    def start_in_background(self, modules: Sequence[str] = ()) -> None:
        self._engine.start_in_background(modules)

    def run(
        self,
        tasks: Sequence[Task[Payload]],
        function: TaskFunction[Payload, Result],
        *,
        storage: Storage,
        meter: Meter | None = None,
        shared: bytes = b"",
    ) -> Iterator[TaskResult[Result]]:
        return self._engine.run(tasks, function, storage=storage, meter=meter, shared=shared)

    def exchange(
        self,
        tasks: Sequence[Task[Payload]],
        map_function: MapFunction[Payload],
        reduce_function: ReduceFunction[ReducePayload, Result],
        reduce_payloads: Sequence[ReducePayload],
        *,
        storage: Storage,
        meter: Meter | None = None,
        parts: int = 1,
    ) -> Iterator[TaskResult[Result]]:
        return self._engine.exchange(
            tasks,
            map_function,
            reduce_function,
            reduce_payloads,
            storage=storage,
            meter=meter,
            parts=parts,
        )

    def stop(self) -> None:
        """Stay."""

    def end(self) -> None:
        self._engine.stop()


_SHARED: list[Lasting] = []


def session_on_shared_spark(settings: Settings) -> Session:
    """Open a session whose Spark, where it needs one, stays for the next until `end_shared_spark`."""
    session = open_session(settings)

    def started(_: int) -> Lasting:
        if not _SHARED:
            _SHARED.append(Lasting(settings))
        return _SHARED[0]

    session.started = started  # type: ignore[method-assign]
    return session


def end_shared_spark() -> None:
    """End the Spark that commands of this process share; a process can have one at a time."""
    while _SHARED:
        _SHARED.pop().end()
