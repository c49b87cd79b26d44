"""Command lines in documents."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from lake.cli.main import main
from lake.core.base.errors import NotFoundError
from lake.core.base.settings import Settings
from lake.core.transaction.session import Session

_REACHED = "the command line was understood"


def complaint(words: Sequence[str]) -> str:
    """Return what `lake` says against a command line before it opens a catalog; empty for nothing."""

    def reached(_: Settings) -> Session:
        raise NotFoundError(_REACHED)

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        main(list(words), open_session=reached)
    return "" if _REACHED in said.getvalue() else said.getvalue() or "the command opened no catalog"
