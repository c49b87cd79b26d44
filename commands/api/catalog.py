"""Catalogs: where an interface's work begins."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from lake.commands.api.calls import Calls, Option, settings_from
from lake.commands.api.table import Run, Table
from lake.core.base.facts import NoFacts
from lake.core.engine.spark.pyspark_internals import has_context
from lake.core.maintain.health.facts import HealthResult


def connect(
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    catalog_type: str | None = None,
    engine: str | None = None,
    master: str | None = None,
    remote: str | None = None,
    spark_conf: Mapping[str, str] | None = None,
) -> Catalog:
    """Return a catalog. Its tables are loaded when they are used.

    The defaults are those of the command line: the environment, and the project file of the working folder. If Spark
    runs in this process, the default of the engine is ``inline``: a second Spark cannot start there.

    Args:
        catalog: a name in PyIceberg's configuration.
        warehouse: a folder with tables and their own catalog.
        catalog_type: ``sql`` or ``hadoop``, of a warehouse.
        engine: ``auto``, ``spark`` or ``inline``.
        master: the Spark master of lake's own Spark.
        remote: the address of a Spark Connect server.
        spark_conf: settings of Spark.

    Raises:
        InvalidRequestError: several catalogs are configured and none was chosen, or arguments contradict each other.
        NotFoundError: the catalog is not configured.
        BadInputError: the configuration cannot be read.
    """
    if engine is None and has_context():
        engine = "inline"
    options = {
        "catalog": catalog,
        "warehouse": warehouse,
        "catalog-type": catalog_type,
        "engine": engine,
        "master": master,
        "remote": remote,
        "spark-conf": spark_conf,
    }
    return Catalog(Calls(settings_from(options)))


class Catalog:
    """A catalog and its tables. One thread uses it at a time; close it to end the engine that it started."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def name(self) -> str:
        """The catalog's name."""
        return self._calls.session.catalog.name

    def table(self, name: str) -> Table:
        """Return a table by ``namespace.table``; it need not exist yet."""
        return Table(self._calls, name)

    def health(self, *patterns: str, **options: Option) -> Run[NoFacts, HealthResult]:
        """Grade the tables that match the patterns, or all; see `lake health`."""
        outcome = self._calls.verb("health", list(patterns), options=options)
        return Run.of(outcome, NoFacts, HealthResult)

    def close(self) -> None:
        """End the engine; the catalog can be used further."""
        self._calls.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
