"""What a verb gets from the application around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import typer

if TYPE_CHECKING:
    from lake.core.session import Session


def session_of(context: typer.Context) -> Session:
    """Return the invocation's session, opening it on first use.

    Raises:
        InvalidRequestError: several catalogs are configured and none was chosen.
        NotFoundError: the chosen catalog is not configured.
    """
    return cast("Session", context.obj.session)
