"""`lake help TOPIC --manual` shows a section of the manual."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine

from lake.cli.app import VERBS
from lake.cli.main import main
from lake.cli.manual import manual_sections

_MANUAL = Path(__file__).parents[2] / "commands" / "README.md"


def _manual() -> str:
    """Return the manual without the marks of the programs that write parts of it."""
    lines = _MANUAL.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("<!--"))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_section_of_a_command_is_printed_as_it_is_written(lake: CommandLine) -> None:
    shown = lake("help", "rename", "--manual")

    assert shown.exit_code == 0
    assert shown.stdout.startswith("## `lake rename`\n")
    assert shown.stdout.rstrip() in _manual()
    assert shown.stdout.count("\n## ") == 0


def test_each_command_has_a_section_and_the_sections_are_the_whole_manual(
    lake: CommandLine,
) -> None:
    sections = manual_sections()
    text = _manual()

    assert set(VERBS) <= set(sections)
    assert lake("help", "--manual").stdout.split() == list(sections)
    assert "\n\n".join(one.rstrip() for one in sections.values()) in text
    assert text.rstrip().endswith(list(sections.values())[-1].rstrip())


def test_a_section_without_a_command_is_found_by_its_title(lake: CommandLine) -> None:
    assert lake("help", "exit-codes", "--manual").stdout.startswith("## Exit codes\n")


def test_an_unknown_section_is_refused_with_a_similar_name(lake: CommandLine) -> None:
    refused = lake("help", "exitcodes", "--manual")

    assert refused.exit_code == 2
    assert "did you mean exit-codes?" in refused.stderr


@pytest.mark.parametrize(
    ("topic", "hint"),
    [
        ("nonsense", "see lake --help for the commands and options"),
        ("compct", "did you mean compact?"),
        ("exit-codes", "lake help exit-codes --manual"),
    ],
)
def test_help_about_what_is_not_a_command_is_refused(
    lake: CommandLine, topic: str, hint: str
) -> None:
    refused = lake("help", topic, "--json")

    assert refused.exit_code == 2
    assert refused.json()["error"]["message"] == f"no such command {topic!r}"
    assert refused.json()["error"]["hint"] == hint


@pytest.mark.parametrize("topic", ["", "help", "version"])
def test_help_about_help_lists_the_commands(lake: CommandLine, topic: str) -> None:
    shown = lake("help", *topic.split())

    assert (shown.exit_code, shown.stdout) == (0, lake("--help").stdout)


def test_a_terminal_shows_the_section_formatted_and_without_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = _Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")

    with contextlib.redirect_stdout(screen):
        assert main(["help", "exit-codes", "--manual"]) == 0

    shown = screen.getvalue()
    assert "Exit codes" in shown
    assert "## Exit codes" not in shown
    assert "](#" not in shown
    assert "\x1b]8" not in shown
    assert max(map(len, shown.splitlines())) <= 80
