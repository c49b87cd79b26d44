"""Help as a command line prints it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from lake.cli.app import State, build_app


def help_of(*arguments: str) -> str:
    """Return the help of a verb, or of the whole command; it must open no session."""
    state = State(open_session=lambda *_: pytest.fail("help opened a session"))
    result = CliRunner().invoke(build_app(), [*arguments, "--help"], obj=state)
    assert result.exit_code == 0, result.output
    return result.output
