"""Which engine a plan gets."""

from __future__ import annotations

from lake.core.engine import Engine
from lake.core.engine.inline import InlineEngine
from lake.core.settings import Settings

# Below this a JVM's start costs more than the work.
INLINE_BYTES = 64 * 1024 * 1024


def choose_engine(kind: str, input_bytes: int, settings: Settings) -> Engine:
    """Return the engine that was asked for, or the one that suits the plan's input.

    Raises:
        EngineError: Spark was asked for and there is no Java.
    """
    if kind == "inline" or (
        kind == "auto" and input_bytes <= INLINE_BYTES and not (settings.master or settings.remote)
    ):
        return InlineEngine()
    from lake.core.engine.spark import SparkEngine  # noqa: PLC0415 - loads PySpark

    return SparkEngine(settings)
