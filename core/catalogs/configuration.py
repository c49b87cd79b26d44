"""Read PyIceberg's configuration; errors report the position, never the text, which may contain secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lake.core.errors import BadInputError

_HINT = (
    "it is .pyiceberg.yaml, in PYICEBERG_HOME, the home folder or here, "
    "and the variables PYICEBERG_CATALOG__NAME__KEY"
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the user configured.

    Args:
        catalogs: properties of each by its name.
        default: the name of the one to take where none is chosen.
    """

    catalogs: Mapping[str, Mapping[str, Any]] = field(repr=False)
    default: str


def read_configuration() -> Configuration:
    """Read the files and variables that PyIceberg reads.

    Raises:
        BadInputError: they hold something else than catalogs.
    """
    from pyiceberg.utils.config import Config  # noqa: PLC0415
    from strictyaml import YAMLError  # noqa: PLC0415

    try:
        found = Config()
        catalogs = {
            name: found.get_catalog_config(name) or {} for name in found.get_known_catalogs()
        }
        return Configuration(catalogs, found.get_default_catalog_name())
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        raise BadInputError(
            f"PyIceberg's configuration cannot be read{place}: not such YAML as it takes",
            hint=_HINT,
        ) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInputError(
            "PyIceberg's configuration cannot be read: it does not consist of catalogs with properties",
            hint=_HINT,
        ) from error
