"""Choose the engine for a plan."""

from __future__ import annotations

from lake.core.base.settings import Settings
from lake.core.base.trust.project_settings import MASTER, REMOTE, WAREHOUSE
from lake.core.base.trust.withheld import refuse
from lake.core.engine.inline import InlineEngine
from lake.core.engine.jvm.java import find_java
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.tasks import Engine

# For fewer bytes, the start of a JVM takes longer than the work.
INLINE_BYTES = 64 * 1024 * 1024
# Fewer bytes of manifests are read by this process before the executors of a cluster have begun.
MANIFEST_BYTES = 512 * 1024 * 1024


def choose_engine(kind: str, input_bytes: int, settings: Settings) -> Engine:
    """Return the engine that was asked for, or the one that suits the plan's input.

    Raises:
        EngineError: Spark was asked for and there is no Java.
        RefusedError: a file in the working folder chooses a Spark, or its code, and does not count.
    """
    withheld = [item for item in settings.withheld if item.name != WAREHOUSE]
    if kind != InlineEngine.name and any(item.name in {MASTER, REMOTE} for item in withheld):
        refuse(withheld)
    if engine_name(kind, input_bytes, settings) == InlineEngine.name:
        return InlineEngine()
    refuse(withheld)
    if not settings.remote:
        # Before any work: the answer costs nothing, and starts nothing where Java is where it should be.
        find_java()
    from lake.core.engine.spark.engine import SparkEngine  # noqa: PLC0415 - only when Spark is wanted

    return SparkEngine(settings)


def reads_manifests_on_spark(size: int, settings: Settings) -> bool:
    """Return whether Spark's executors read manifests of some bytes.

    By itself, `auto` starts no Spark of this machine for them: this process uses all cores too.
    """
    if settings.engine != "auto" or size <= MANIFEST_BYTES:
        return settings.engine == "spark"
    is_cluster = not SparkConf.of(settings.master, settings.spark_conf).is_local
    return is_cluster or settings.remote is not None


def engine_name(kind: str, input_bytes: int, settings: Settings) -> str:
    """Return the name of the engine that `choose_engine` gives, starting nothing."""
    small = input_bytes <= INLINE_BYTES and not (settings.master or settings.remote)
    return InlineEngine.name if kind == "inline" or (kind == "auto" and small) else "spark"
