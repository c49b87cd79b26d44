"""Read PyIceberg's configuration. Errors report the position and not the text, which may contain secrets.

PyIceberg reads its files and variables itself, when it is imported and later. `read_configuration` decides what it
reads: the properties of a file in the working folder count by the rule of `lake.core.base.trust`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import strictyaml
from pyiceberg.utils.config import Config, _lowercase_dictionary_keys
from strictyaml import YAMLError

from lake.core.base.errors import BadInputError
from lake.core.base.trust.catalog_properties import withheld_properties
from lake.core.base.trust.folders import FoundFile, read_file, require_closed, trusted_folders
from lake.core.base.trust.withheld import Withheld

_FILE = ".pyiceberg.yaml"
_VARIABLES = "pyiceberg_"
_HINT = (
    "check .pyiceberg.yaml in PYICEBERG_HOME, in the home folder or in this folder, and the environment variables "
    "PYICEBERG_CATALOG__NAME__KEY"
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """The catalogs that the user configured.

    Args:
        catalogs: the properties of each catalog by its name.
        default: the name of the catalog that is used if none is chosen.
        withheld: the properties that do not count, by the name of their catalog.
        is_found: whether a file of the working folder counts, and the folder is not trusted.
    """

    catalogs: Mapping[str, Mapping[str, Any]] = field(repr=False)
    default: str
    withheld: Mapping[str, tuple[Withheld, ...]] = field(default_factory=dict)
    is_found: bool = False


def configuration_file() -> str | None:
    """Return the file that PyIceberg reads: the first that exists and is not empty; None if there is none."""
    return next((path for path, _ in _files() if os.path.getsize(path)), None)


def _files() -> Iterator[tuple[str, bool]]:
    """Yield the files of this name where PyIceberg searches, the first one that it reads first.

    With each comes whether it was found in the working folder, which the user did not name.
    """
    named = (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~"))
    for folder, is_found in (*((folder, False) for folder in named), (os.getcwd(), True)):
        path = os.path.join(folder, _FILE) if folder else ""
        if os.path.isfile(path):
            yield path, is_found
        elif os.path.lexists(path):
            # PyIceberg passes it by. Without its catalogs, the command would work in another one.
            raise BadInputError(f"{path} is not a regular file, or a link that leads nowhere")


def variable_of(catalog: str, key: str) -> str | None:
    """Return the name of the environment variable that sets a catalog's property; None if there is none."""
    wanted = ["catalog", catalog.lower(), key.lower()]
    return next((name for name in os.environ if _parts(name) == wanted), None)


def place_of(catalog: str, key: str) -> str:
    """Return where a property of a catalog is set, or can be set, for a message: ``'uri' of catalog c in FILE``."""
    if variable := variable_of(catalog, key):
        return f"the variable {variable}"
    file = configuration_file()
    if file is None:
        letters = key.upper().replace("-", "_").replace(".", "__")
        return f"the variable PYICEBERG_CATALOG__{catalog.upper()}__{letters}"
    return f"'{key}' of catalog {catalog} in {shortened(file)}"


def sources_of(catalog: str, configuration: Configuration) -> list[str]:
    """Return the file and the variables that contain a catalog's properties; nothing if it is not configured."""
    variables = sorted(
        name for name in os.environ if (_parts(name) or [])[:2] == ["catalog", catalog]
    )
    set_there = {(_parts(name) or [])[2] for name in variables}
    properties = configuration.catalogs.get(catalog, {})
    file = configuration_file() if properties.keys() - set_there else None
    return [*([file] if file else []), *variables]


def how_to_add(name: str) -> str:
    """Return where a catalog is configured, and what is written there."""
    file = configuration_file()
    folder = os.environ.get("PYICEBERG_HOME") or "~"
    place = shortened(file) if file else f"{folder.rstrip('/')}/.pyiceberg.yaml"
    kind = "type: rest, uri: 'https://catalog.example.com'"
    return f"to add it, write into {place}: catalog: {{{name}: {{{kind}}}}}"


def shortened(path: str) -> str:
    """Return a path for a message, with ``~`` for the home folder."""
    home = os.path.expanduser("~").rstrip("/")
    return f"~{path.removeprefix(home)}" if home and path.startswith(f"{home}/") else path


def _parts(variable: str) -> list[str] | None:
    """Return the path that PyIceberg derives from a variable's name: ``catalog``, name, key; None for other names."""
    name = variable.lower()
    if not name.startswith(_VARIABLES):
        return None
    parts = name.removeprefix(_VARIABLES).split("__", maxsplit=2)
    return [part.replace("__", ".").replace("_", "-") for part in parts]


def read_configuration(*, working_folder: bool = True) -> Configuration:
    """Read the files and variables that PyIceberg reads, and let PyIceberg read nothing else.

    Args:
        working_folder: whether a file in the working folder counts.

    Raises:
        BadInputError: the configuration is not valid YAML or does not consist of catalogs, or the working folder, in
            which PyIceberg searches for it, was removed.
        RefusedError: a file belongs to another user, or every user can change it.
    """
    try:
        return _configuration(working_folder=working_folder)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise BadInputError(
            f"{shortened(configuration_file() or _FILE)}{place}: invalid YAML for PyIceberg's configuration",
            hint="PyIceberg reads a subset of YAML: blocks of names and values, without tags, anchors and braces",
        ) from error
    except RecursionError as error:
        raise BadInputError(
            f"{shortened(configuration_file() or _FILE)}: PyIceberg's configuration is nested too deeply",
            hint=_HINT,
        ) from error
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{shortened(configuration_file() or _FILE)} is not text in UTF-8", hint=_HINT
        ) from error
    except FileNotFoundError as error:
        raise BadInputError(
            "the working folder does not exist any more", hint="change to a folder that exists"
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInputError(
            "PyIceberg's configuration cannot be read: it does not consist of catalogs with properties",
            hint=_HINT,
        ) from error


def _configuration(*, working_folder: bool) -> Configuration:
    files = [item for item in _files() if working_folder or not item[1]]
    path, is_found = files[0] if files else (None, False)
    in_file: dict[str, Any] = {}
    withheld: dict[str, tuple[Withheld, ...]] = {}
    if path:
        file = read_file(path)
        if is_found:
            folders = trusted_folders()
            folders.require_own(file)
            in_file = _parsed(file)
            is_trusted = folders.covers(file.folder)
            withheld = _withhold(in_file, path, trusted=is_trusted)
            is_found = not is_trusted
        else:
            require_closed(file)
            in_file = _parsed(file)
    # PyIceberg changes the mapping that it gets.
    Config._from_configuration_files = staticmethod(lambda: deepcopy(in_file))  # type: ignore[method-assign]  # noqa: SLF001
    found = Config()
    catalogs = {name: found.get_catalog_config(name) or {} for name in found.get_known_catalogs()}
    return Configuration(catalogs, found.get_default_catalog_name(), withheld, is_found)


def _parsed(file: FoundFile) -> dict[str, Any]:
    # PyIceberg refuses an empty file, and does not say so.
    if not file.data:
        raise BadInputError(
            f"{shortened(file.path)} is empty", hint="remove it, or write catalogs into it"
        )
    if file.is_too_large:
        raise BadInputError(f"{shortened(file.path)} is larger than 1 MB")
    found: Any = strictyaml.load(file.data.decode()).data
    lower: dict[str, Any] = _lowercase_dictionary_keys(found)
    return lower


def _withhold(
    in_file: dict[str, Any], path: str, *, trusted: bool
) -> dict[str, tuple[Withheld, ...]]:
    """Remove the properties that do not count from a file's content; return them by their catalog."""
    variables = Config._from_environment_variables({}).get("catalog")  # noqa: SLF001
    above = variables if isinstance(variables, Mapping) else {}
    catalogs = in_file.get("catalog")
    withheld = {}
    for name, found in catalogs.items() if isinstance(catalogs, Mapping) else ():
        more_trusted = above.get(name)
        judged = withheld_properties(
            name,
            found if isinstance(found, Mapping) else {},
            more_trusted if isinstance(more_trusted, Mapping) else {},
            path,
            trusted=trusted,
        )
        for key in judged:
            del found[key]
        if judged:
            withheld[name] = tuple(judged.values())
    return withheld
