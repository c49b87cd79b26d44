"""The settings of one invocation: catalog, engine, Spark. Immutable, checked, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lake.core.base.trust.withheld import Withheld

DEFAULT_WAREHOUSE = "warehouse"
DEFAULT_CATALOG = "lake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The global options.

    Args:
        catalog: a name in PyIceberg's configuration, or the embedded catalog's name.
        warehouse: folder of an embedded catalog; None to use PyIceberg's configuration.
        catalog_type: ``sql`` or ``hadoop``, for a warehouse folder.
        engine: ``auto``, ``spark`` or ``inline``.
        master: Spark master URL; None for all cores of this machine.
        remote: Spark Connect URL.
        spark_conf: Spark settings that override lake's own.
        verbose: report more, e.g. every file with its reason.
        withheld: settings of a file in the working folder that do not count; what needs one of them is refused.
    """

    catalog: str | None = None
    warehouse: str | None = None
    catalog_type: str = "sql"
    engine: str = "auto"
    master: str | None = None
    remote: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    withheld: tuple[Withheld, ...] = ()
