"""Read PyIceberg's configuration. Errors report the position and not the text, which may contain secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.utils.config import Config
from strictyaml import YAMLError

from lake.core.errors import BadInputError

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
    """

    catalogs: Mapping[str, Mapping[str, Any]] = field(repr=False)
    default: str


def configuration_file() -> str | None:
    """Return the file that PyIceberg reads: the first that exists and is not empty; None if there is none."""
    return next((path for path in _files() if os.path.getsize(path)), None)


def _files() -> Iterator[str]:
    """Yield the files of this name in the folders in which PyIceberg searches, the first one that it reads first."""
    for folder in (os.environ.get("PYICEBERG_HOME"), os.path.expanduser("~"), os.getcwd()):
        path = os.path.join(folder, _FILE) if folder else ""
        if os.path.isfile(path):
            yield path
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


def read_configuration() -> Configuration:
    """Read the files and variables that PyIceberg reads.

    Raises:
        BadInputError: the configuration is not valid YAML or does not consist of catalogs, or the working folder, in
            which PyIceberg searches for it, was removed.
    """
    try:
        # PyIceberg refuses an empty file, and does not say so.
        if (first := next(_files(), None)) and not os.path.getsize(first):
            raise BadInputError(
                f"{shortened(first)} is empty", hint="remove it, or write catalogs into it"
            )
        found = Config()
        catalogs = {
            name: found.get_catalog_config(name) or {} for name in found.get_known_catalogs()
        }
        return Configuration(catalogs, found.get_default_catalog_name())
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
