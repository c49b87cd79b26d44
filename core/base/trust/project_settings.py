"""The rule for `lake.toml` and `pyproject.toml`: which Spark settings and addresses they may choose.

A Spark cluster receives rows, storage credentials and connections that run code, so its address needs trust. Of
Spark's settings, only those that are sizes, counts, times and switches of the work count; most others name classes,
programs, files or addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lake.core.base import locations
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.base.trust.withheld import Withheld, names_code, needs_trust

MASTER, REMOTE, SPARK_CONF, WAREHOUSE = "master", "remote", "spark-conf", "warehouse"
_LOCAL_MASTER = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?")
# The stores whose addresses belong to the store's operator, who gave the credentials.
_STORES = frozenset({"s3", "s3a", "s3n", "gs"})
_SIZES = re.compile(
    r"spark\.(cores\.max|default\.parallelism|speculation(\.[\w.]+)?|app\.name"
    r"|driver\.(cores|memory|memoryOverhead|maxResultSize)"
    r"|executor\.(cores|instances|memory|memoryOverhead|heartbeatInterval)"
    r"|dynamicAllocation\.[\w.]+|excludeOnFailure\.[\w.]+|locality\.wait(\.\w+)?"
    r"|memory\.(fraction|storageFraction)|network\.timeout|rpc\.message\.maxSize"
    r"|scheduler\.(mode|minRegisteredResourcesRatio|maxRegisteredResourcesWaitingTime)"
    r"|sql\.shuffle\.partitions|stage\.maxConsecutiveAttempts|task\.(cpus|maxFailures)|yarn\.queue)"
)
_PLAIN_VALUE = re.compile(r"[\w.-]+")
# Settings with an address of this machine or of a store.
_ADDRESSES = re.compile(
    r"spark\.(driver\.(host|bindAddress|port)|blockManager\.port|driver\.blockManager\.port"
    r"|eventLog\.(enabled|dir)|kubernetes\.namespace)"
)
_PLACE = f"use {Option.SPARK_CONF}, or write it into Spark's own configuration (SPARK_CONF_DIR)"


def withheld_setting(name: str, value: Any, source: str, *, trusted: bool) -> Withheld | None:
    """Return why a setting does not count; None if it does.

    Args:
        name: ``master``, ``remote``, ``warehouse`` or another setting that is one text.
        value: its value.
        source: the path of the file.
        trusted: whether the user trusts the file's folder.
    """
    if trusted or not isinstance(value, str):
        return None
    folder = os.path.dirname(source)
    if name == REMOTE or (name == MASTER and not _LOCAL_MASTER.fullmatch(value)):
        reason = "would receive rows and the credentials of their storage"
        return needs_trust(name, source, folder, reason)
    if name == WAREHOUSE and is_foreign_place(value):
        return needs_trust(name, source, folder, "names a server that could receive your login")
    return None


def withheld_spark_settings(
    settings: Mapping[str, str], source: str, *, trusted: bool
) -> dict[str, Withheld]:
    """Return Spark's settings that do not count, by their names; see `withheld_setting`."""
    found = {}
    for key, value in settings.items():
        name = f"{SPARK_CONF} {key}"
        if _SIZES.fullmatch(key) and _PLAIN_VALUE.fullmatch(value):
            continue
        if not _ADDRESSES.fullmatch(key):
            found[key] = names_code(name, source, _PLACE)
        elif not trusted:
            reason = "names an address that receives data"
            found[key] = needs_trust(name, source, os.path.dirname(source), reason)
    return found


def is_foreign_place(location: str) -> bool:
    """Whether a location names a server of its own, instead of a folder of this machine or a bucket of a store."""
    if not locations.has_scheme(location):
        return False
    try:
        place = locations.parse(location)
    except BadInputError:
        return True
    if place.is_local:
        return bool(place.authority)
    return place.scheme.lower() not in _STORES or "@" in place.authority
