"""Choose the catalog that the options and PyIceberg's configuration name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from lake.core.base import locations
from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError
from lake.core.base.options import Option
from lake.core.base.settings import DEFAULT_CATALOG, DEFAULT_WAREHOUSE, Settings
from lake.core.base.trust.project_settings import WAREHOUSE
from lake.core.base.trust.withheld import refuse
from lake.core.io.objects.s3_connection import completed
from lake.core.table.catalogs.configuration import (
    Configuration,
    configuration_file,
    how_to_add,
    place_of,
    read_configuration,
    shortened,
)
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.hadoop import HadoopBackend
from lake.core.table.catalogs.metastores.other import OtherBackend

if TYPE_CHECKING:
    from lake.core.base.clock import Clock, Ids
    from lake.core.table.catalogs.catalog import Catalog

HADOOP = "hadoop"
# Percent-encoding in an address.
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
_SQL_ADDRESSES = ("sqlite", "postgresql")
_Time: TypeAlias = "tuple[Clock | None, Ids | None]"
# Types that lake uses only through PyIceberg.
OTHER_TYPES = frozenset({"dynamodb", "bigquery"})
_IN_MEMORY, _OTHER = "in-memory", "other"
_TYPES = {
    **{name: name for name in ("rest", "sql", "glue", "hive", HADOOP)},
    _IN_MEMORY: "sql",
}


def open_catalog(settings: Settings, clock: Clock | None = None, ids: Ids | None = None) -> Catalog:
    """Return the catalog that the options and PyIceberg's configuration name; nothing is opened yet.

    Args:
        settings: the global options.
        clock: the time of the catalog's requests; the system's by default.
        ids: the source of its identifiers; the system by default.

    Raises:
        InvalidRequestError: several catalogs are configured and none was chosen.
        NotFoundError: the chosen catalog is not configured.
        BadInputError: the configuration cannot be read.
        RefusedError: a file in the working folder chooses code, or an address for the user's secrets.
    """
    time = (clock, ids)
    refuse([item for item in settings.withheld if item.name == WAREHOUSE])
    # PyIceberg cannot be imported if it does not accept its configuration.
    configuration = read_configuration(working_folder=settings.warehouse is None)
    name = chosen_name(settings, configuration)
    if settings.warehouse is None:
        refuse(configuration.withheld.get(name, ()))
    if settings.warehouse is not None or not configuration.catalogs:
        return _embedded(name, settings, time)
    return _configured(name, completed(configuration.catalogs[name]), time)


def chosen_name(settings: Settings, configuration: Configuration) -> str:
    """Return the name of the catalog that is used.

    Raises:
        InvalidRequestError: several catalogs are configured and none was chosen.
        NotFoundError: the chosen catalog is not configured.
    """
    if settings.warehouse is not None:
        return settings.catalog or DEFAULT_CATALOG
    configured, default = sorted(configuration.catalogs), configuration.default
    name = settings.catalog
    if name is None and not configured:
        return DEFAULT_CATALOG
    if name is None and default in configured:
        return default
    if name is None and len(configured) == 1:
        return configured[0]
    if name is None:
        raise InvalidRequestError(
            "several catalogs are configured",
            hint=f"choose with {Option.CATALOG}: {', '.join(configured)}",
        )
    if name not in configured and (configured or name != DEFAULT_CATALOG):
        raise NotFoundError(
            f"no catalog named {name} is configured",
            hint=f"configured: {', '.join(configured) or 'none'} ({_configuration_place()}); {how_to_add(name)}",
        )
    return name


def _configuration_place() -> str:
    file = configuration_file()
    return f"in {shortened(file)}" if file else "there is no .pyiceberg.yaml"


def _configured(name: str, properties: Mapping[str, Any], time: _Time) -> Catalog:
    """Return the backend for a catalog's type. Only that backend's libraries are imported.

    Raises:
        BadInputError: the catalog's type is missing or unknown, its address is missing, or a package that it needs.
    """
    backend = _backend_of(properties)
    in_memory = str(properties.get("type")).lower() == _IN_MEMORY
    if backend in {"rest", "sql", "hive"} and not in_memory and not properties.get("uri"):
        raise BadInputError(
            f"catalog {name} has no address",
            hint=f"set {place_of(name, 'uri')} to the catalog's address",
        )
    match backend:
        case "hadoop":
            return HadoopBackend(name, properties, *time)
        case "rest":
            from lake.core.table.catalogs.rest import RestBackend  # noqa: PLC0415

            return RestBackend(name, properties, *time)
        case "sql":
            from lake.core.table.catalogs.sql import SqlBackend  # noqa: PLC0415

            return SqlBackend(name, properties, *time)
        case "glue":
            with catalog_errors(f"catalog {name}"):
                from lake.core.table.catalogs.metastores.glue import GlueBackend  # noqa: PLC0415

            return GlueBackend(name, properties, *time)
        case "hive":
            _check_hosts(name, str(properties["uri"]))
            with catalog_errors(f"catalog {name}"):
                from lake.core.table.catalogs.metastores.hive import HiveBackend  # noqa: PLC0415

            return HiveBackend(name, properties, *time)
        case _:
            _check_type(name, properties)
            return OtherBackend(name, properties, *time)


def _check_hosts(name: str, addresses: str) -> None:
    """Refuse an address without a host, by which the client would connect to this machine."""
    for address in addresses.split(","):
        if not urlsplit(address.strip()).hostname:
            raise BadInputError(
                f"the address of catalog {name} has no host: {address}",
                hint=f"set {place_of(name, 'uri')} to thrift://HOST:9083",
            )


def _backend_of(properties: Mapping[str, Any]) -> str:
    """Return the backend for a catalog's type; a missing type is inferred from the address as in PyIceberg."""
    if kind := properties.get("type"):
        return _TYPES.get(str(kind).lower(), _OTHER)
    address = str(properties.get("uri", ""))
    if "py-catalog-impl" in properties:
        return _OTHER
    if address.startswith("http"):
        return "rest"
    if address.startswith("thrift"):
        return "hive"
    return "sql" if address.startswith(_SQL_ADDRESSES) else _OTHER


def type_of(properties: Mapping[str, Any]) -> str | None:
    """Return a catalog's type, as it is configured or as it is inferred; None if neither says it."""
    if kind := properties.get("type"):
        return str(kind).lower()
    backend = _backend_of(properties)
    return None if backend == _OTHER else backend


def _check_type(name: str, properties: Mapping[str, Any]) -> None:
    """Refuse a catalog of an unknown type, or one whose type cannot be inferred."""
    given, address = properties.get("type"), properties.get("uri")
    if given is None and "py-catalog-impl" in properties:
        return
    if given is not None and str(given).lower() in OTHER_TYPES:
        return
    known = sorted({*_TYPES, *OTHER_TYPES})
    hint = f"set {place_of(name, 'type')} to one of: {', '.join(known)}"
    if given is not None:
        raise BadInputError(f"catalog {name} has the unknown type {given!r}", hint=hint)
    reason = f"cannot be inferred from the address {address}" if address else "is missing"
    raise BadInputError(f"the type of catalog {name} {reason}", hint=hint)


def _embedded(name: str, settings: Settings, time: _Time) -> Catalog:
    if settings.catalog_type == HADOOP:
        warehouse = settings.warehouse or DEFAULT_WAREHOUSE
        located = warehouse if ":/" in warehouse else os.path.abspath(warehouse)
        return _configured(name, {"type": HADOOP, "warehouse": located}, time)
    folder = _local_folder(settings.warehouse or DEFAULT_WAREHOUSE)
    if locations.is_truncated(folder) or _ESCAPED.search(folder):
        raise InvalidRequestError(
            f"a catalog's address cannot name the folder {folder!r}",
            hint=f"choose a folder without #, ?, % and control characters, or use {Option.CATALOG_TYPE} hadoop",
        )
    from lake.core.table.catalogs.sql import EmbeddedBackend  # noqa: PLC0415

    return EmbeddedBackend(name, folder, *time)


def _local_folder(warehouse: str) -> str:
    if not locations.has_scheme(warehouse):
        return os.path.abspath(warehouse)
    place = locations.parse(warehouse)
    if not place.is_local or place.authority:
        raise InvalidRequestError(
            f"{Option.WAREHOUSE} must be a folder of this machine, not {warehouse!r}",
            hint=f"configure a catalog for tables in other places, or use {Option.CATALOG_TYPE} hadoop",
        )
    return os.path.abspath(place.path)
