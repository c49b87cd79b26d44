"""Global options are found anywhere on the line, and nothing else is moved."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.cli.arguments import arrange
from lake.core.base.errors import InvalidRequestError

ROOT = {"--json": False, "--quiet": False, "-q": False, "-v": False, "--catalog": True, "-h": False}
SCAN = {"--where": True, "--plan": False, "-h": False, "--help": False}


def options_of(command: str) -> Mapping[str, bool]:
    return SCAN if command == "scan" else {}


@pytest.mark.parametrize(
    ("given_line", "arranged"),
    [
        ("scan db.t -q", "-q scan db.t"),
        ("scan db.t --plan --catalog prod --json", "--catalog prod --json scan db.t --plan"),
        ("scan --catalog=prod db.t", "--catalog=prod scan db.t"),
        ("--catalog prod scan db.t -qv", "--catalog prod -qv scan db.t"),
        ("scan db.t --where -q", "scan db.t --where -q"),
        ("scan db.t --where=-q -q", "-q scan db.t --where=-q"),
        ("scan db.t -- -q", "scan db.t -- -q"),
        ("scan db.t -h", "scan db.t -h"),
        ("scan - -q", "-q scan -"),
        ("scan db.t --unknown -q", "-q scan db.t --unknown"),
        ("nosuch db.t --json", "--json nosuch db.t"),
        ("--json", "--json"),
        ("", ""),
    ],
)
def test_global_options_move_in_front_of_the_command(given_line: str, arranged: str) -> None:
    assert arrange(given_line.split(), ROOT, options_of).arguments == arranged.split()


@given(st.lists(st.sampled_from([*ROOT, *SCAN, "scan", "db.t", "--", "-", "--where=x", "value"])))
def test_no_argument_is_lost_or_made_up(line: list[str]) -> None:
    try:
        arranged = arrange(line, ROOT, options_of)
    except InvalidRequestError:
        # The last option lacks its value.
        assert line[-1] in {"--catalog", "--where"}
        return

    assert sorted(arranged.arguments) == sorted(line)
    assert arrange(arranged.arguments, ROOT, options_of).arguments == arranged.arguments


def test_an_option_without_its_value_is_an_error() -> None:
    with pytest.raises(InvalidRequestError, match="--catalog needs a value"):
        arrange(["scan", "db.t", "--catalog"], ROOT, options_of)
