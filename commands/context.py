"""Access to the session of the current invocation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from lake.core.session import Session


def session_of(context: typer.Context, **changes: Any) -> Session:
    """Return the invocation's session, opening it on first use.

    Args:
        context: the context of the verb.
        changes: settings that override the global options.

    Raises:
        InvalidRequestError: several catalogs are configured and none was chosen.
        NotFoundError: the chosen catalog is not configured.
    """
    state = context.obj
    if changes:
        state.settings = replace(state.settings, **changes)
    return cast("Session", state.session)
