"""Defaults of the global options: environment variables and a project file.

An option that is given wins over the environment, the environment over the project file, and the file over the
built-in default. The project file is the nearest ``lake.toml``, or ``pyproject.toml`` with a table ``[tool.lake]``,
in the working folder or a folder above it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lake.commands.parsing import parse_choice
from lake.core.base.errors import BadInputError, InvalidRequestError, RefusedError, did_you_mean
from lake.core.base.options import Option
from lake.core.base.redaction import is_secret
from lake.core.base.settings import Settings
from lake.core.base.trust.folders import FoundFile, read_file, read_named, trusted_folders
from lake.core.base.trust.project_settings import (
    SPARK_CONF,
    withheld_setting,
    withheld_spark_settings,
)
from lake.core.base.trust.withheld import Withheld

CATALOG_TYPES = ("sql", "hadoop")
ENGINES = ("auto", "spark", "inline")
COLUMNS = ("fit", "all")
COLORS = ("auto", "always", "never")
CHOICES = {
    "catalog-type": CATALOG_TYPES,
    "engine": ENGINES,
    "columns": COLUMNS,
    "color": COLORS,
}
# The settings, in the order of the help text, with their built-in defaults.
BUILT_IN: Mapping[str, Any] = MappingProxyType(
    {
        "catalog": None,
        "warehouse": None,
        "catalog-type": "sql",
        "engine": "auto",
        "master": None,
        "remote": None,
        "spark-conf": MappingProxyType({}),
        "columns": "fit",
        "color": "auto",
    }
)
VARIABLES = {"LAKE_CATALOG": "catalog", "LAKE_WAREHOUSE": "warehouse"}
# If a source sets one of the first settings, less important sources set none of the second: a catalog that is named
# on the command line must not be searched for in the warehouse folder of the project file.
_TOGETHER = (
    (frozenset({"catalog", "warehouse"}), frozenset({"catalog", "warehouse", "catalog-type"})),
    (frozenset({"master", "remote"}), frozenset({"master", "remote"})),
)
# The part of a project file that `lake maintain` reads.
POLICY = "maintain"
_OWN_FILE, _SHARED_FILE = "lake.toml", "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of a global option and where it comes from: an option, a variable, a file, or ``default``.

    ``withheld`` are the parts of a file's value that do not count, which ``value`` does not contain.
    """

    name: str
    value: Any
    source: str
    withheld: tuple[Withheld, ...] = ()


def effective(given: Mapping[str, Any]) -> dict[str, Setting]:
    """Return every setting by its name.

    Args:
        given: the options of the command line, by name.

    Raises:
        InvalidRequestError: the project file contains an unknown name or a value that is not allowed.
        BadInputError: the project file cannot be read.
        RefusedError: the project file contains a secret, or belongs to another user.
    """
    in_file = project_settings(working_folder())
    in_environment = {
        name: Setting(name, value, variable)
        for variable, name in VARIABLES.items()
        if (value := os.environ.get(variable))
    }
    sources = (
        {name: Setting(name, value, f"--{name}") for name, value in given.items()},
        in_environment,
        in_file,
    )
    found: dict[str, Setting] = {}
    for settings in sources:
        decided = [names for deciding, names in _TOGETHER if deciding & found.keys()]
        found |= {
            name: setting
            for name, setting in settings.items()
            if name not in found and not any(name in names for names in decided)
        }
    if "master" in found and "remote" in found:
        raise InvalidRequestError(
            f"{found['master'].source} and {found['remote'].source} contradict each other"
            if found["master"].source != found["remote"].source
            else f"master and remote in {found['master'].source} contradict each other"
        )
    return {
        name: found.get(name, Setting(name, value, "default")) for name, value in BUILT_IN.items()
    }


def settings_of(found: Mapping[str, Setting], *, verbose: bool) -> Settings:
    """Return the core's settings."""
    values = {name: setting.value for name, setting in found.items()}
    return Settings(
        catalog=values["catalog"],
        warehouse=values["warehouse"],
        catalog_type=values["catalog-type"],
        engine=values["engine"],
        master=values["master"],
        remote=values["remote"],
        spark_conf=values["spark-conf"],
        verbose=verbose,
        withheld=tuple(item for setting in found.values() for item in setting.withheld),
    )


def working_folder() -> str:
    """Return the working folder; the root if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


def project_settings(folder: str) -> dict[str, Setting]:
    """Return the settings of the nearest project file; nothing without one.

    Raises:
        InvalidRequestError: it contains an unknown name or a value that is not allowed.
        BadInputError: it cannot be read.
        RefusedError: it contains a secret, or belongs to another user.
    """
    found = _project_file(folder)
    if found is None:
        return {}
    file, table = found
    folders = trusted_folders()
    folders.require_own(file)
    trusted = folders.covers(file.folder)
    return {
        name: _setting(file.path, name, value, trusted=trusted)
        for name, value in table.items()
        if name != POLICY
    }


def project_policy(folder: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the path of the nearest project file and its rules of maintenance; None if it has none.

    Raises:
        RefusedError: the user does not trust the folder. Without the rules, tables that they exclude would change.
        BadInputError: the file cannot be read, or its rules are not a table.
    """
    found = _project_file(folder)
    if found is None or POLICY not in found[1]:
        return None
    file, table = found
    folders = trusted_folders()
    folders.require_own(file)
    if not folders.covers(file.folder):
        raise RefusedError(
            f"the user does not trust {file.folder}, and {file.path} contains [{POLICY}]",
            hint=f"check the file, then use {Option.TRUST} there, or give it by --policy",
        )
    if not isinstance(table[POLICY], dict):
        raise BadInputError(f"{POLICY} in {file.path} is not a table")
    return file.path, table[POLICY]


def policy_file(path: str) -> Mapping[str, Any]:
    """Return the rules of a file; those of a project file are in its table ``maintain``.

    Raises:
        BadInputError: it cannot be read.
        RefusedError: every user can change it.
    """
    # Without its rules, tables that they exclude would change.
    document = _parsed(
        path, read_named(path, made_by="lake maintain --init FILE writes a first policy")
    )
    rules = document.get(POLICY, {}) if os.path.basename(path) == _OWN_FILE else document
    if not isinstance(rules, dict):
        raise BadInputError(f"{POLICY} in {path} is not a table")
    return rules


def project_folder(folder: str) -> str | None:
    """Return the folder of the nearest project file, also if it is another user's; None without one.

    Raises:
        BadInputError: a project file cannot be read.
    """
    found = _project_file(folder)
    return found[0].folder if found else None


def _project_file(folder: str) -> tuple[FoundFile, dict[str, Any]] | None:
    for path in _candidates(folder):
        if (
            os.path.basename(path) == _OWN_FILE
            and os.path.lexists(path)
            and not os.path.isfile(path)
        ):
            # Without its settings, the command would work in another catalog.
            raise BadInputError(f"{path} is not a regular file, or a link that leads nowhere")
        if os.path.isfile(path) and (found := _read(path)):
            return found
    return None


def _candidates(folder: str) -> Iterator[str]:
    while True:
        yield os.path.join(folder, _OWN_FILE)
        yield os.path.join(folder, _SHARED_FILE)
        above = os.path.dirname(folder)
        if above == folder:
            return
        folder = above


def _read(path: str) -> tuple[FoundFile, dict[str, Any]] | None:
    """Return a file and its settings; None if it is another program's."""
    own = os.path.basename(path) == _OWN_FILE
    try:
        file = read_file(path)
    except OSError as error:
        if own:
            raise BadInputError(f"{path} cannot be read: {error.strerror}") from error
        return None
    if not own and b"lake" not in file.data:
        return None
    if file.is_too_large:
        if own:
            raise BadInputError(f"{path} is larger than 1 MB")
        return None
    document = _parsed(path, file.data)
    if own:
        return file, document
    tools = document.get("tool")
    table = tools.get("lake") if isinstance(tools, dict) else None
    return (file, table) if isinstance(table, dict) else None


def _parsed(path: str, data: bytes) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path} cannot be read: it is not text in UTF-8") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error


def _setting(path: str, name: str, value: Any, *, trusted: bool) -> Setting:
    checked = _checked(path, name, value)
    if name == SPARK_CONF:
        withheld = withheld_spark_settings(checked, path, trusted=trusted)
        kept = {key: text for key, text in checked.items() if key not in withheld}
        return Setting(name, kept, path, tuple(withheld.values()))
    if item := withheld_setting(name, value, path, trusted=trusted):
        return Setting(name, BUILT_IN[name], path, (item,))
    return Setting(name, checked, path)


def _checked(path: str, name: str, value: Any) -> Any:
    where = f"{name} in {path}"
    if name not in BUILT_IN:
        hint = did_you_mean(name, BUILT_IN) or f"known are: {', '.join(BUILT_IN)}"
        raise InvalidRequestError(f"{path} contains the unknown setting {name}", hint=hint)
    if name == SPARK_CONF:
        return _checked_spark_conf(where, value)
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(f"{where} must be text")
    if name in {"master", "remote", "warehouse"} and ("@" in value or "token=" in value):
        raise RefusedError(f"{where} contains a secret", hint="project files are shared")
    if name == "warehouse" and "://" not in value:
        return os.path.join(os.path.dirname(path), os.path.expanduser(value))
    return parse_choice(value, where, CHOICES[name]) if name in CHOICES else value


def _checked_spark_conf(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise InvalidRequestError(
            f"{where} must be a table of texts", hint='"spark.cores.max" = "4", with quotes'
        )
    if secrets := [key for key in value if is_secret(key)]:
        raise RefusedError(
            f"{where} contains a secret: {secrets[0]}",
            hint="set it in Spark's own configuration files",
        )
    return value
