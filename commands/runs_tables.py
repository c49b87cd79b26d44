"""Where the name of the table of runs comes from: policy files, the project file, or the catalog's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lake.commands.defaults import project_policy, working_folder
from lake.commands.parsing import parse_table
from lake.core.base.errors import InvalidRequestError, RefusedError

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

# Its name among the patterns of a policy, and as a property of a catalog.
_NAME, _PROPERTY = "runs-table", "lake.runs-table"


def split_runs_table(policy: Mapping[str, Any], place: str) -> tuple[str | None, Mapping[str, Any]]:
    """Return the table of runs that a policy names, and its rules.

    Raises:
        InvalidRequestError: the name is not that of a table.
    """
    if isinstance(policy.get(_NAME), Mapping):
        # The rules of tables with this name.
        return None, policy
    rules = {name: value for name, value in policy.items() if name != _NAME}
    return _named(policy.get(_NAME), f"{_NAME} in {place}"), rules


def catalog_runs_table(session: Session) -> str | None:
    """Return the table of runs that the user's configuration of the catalog names; None without one.

    Raises:
        InvalidRequestError: the name is not that of a table.
    """
    catalog = session.catalog
    return _named(catalog.configured.get(_PROPERTY), f"{_PROPERTY} of catalog {catalog.name}")


def configured_runs_table(session: Session) -> str | None:
    """Return the table of runs that the project file names, else that of the catalog; None without one.

    Raises:
        InvalidRequestError: the name is not that of a table.
        BadInputError: the project file cannot be read.
    """
    named = None
    try:
        project = project_policy(working_folder())
    except RefusedError as error:
        # Its rules are not needed here.
        session.warn(f"{error.message}: it names no table of runs")
    else:
        named = split_runs_table(project[1], project[0])[0] if project else None
    return named or catalog_runs_table(session)


def _named(value: Any, place: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidRequestError(f"{place} is not the name of a table")
    try:
        return parse_table(value)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{place}: {error.message}", hint=error.hint) from error
