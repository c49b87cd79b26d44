"""`lake help TOPIC --manual`: a section of the manual, which is installed beside the commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.resources import files

from lake.cli.display import Display
from lake.core.base.errors import InvalidRequestError, did_you_mean

_SECTION = "## "
_FENCE = "```"
# Marks of the programs that write parts of the manual.
_MARK = "<!--"
# A link to another section, which a terminal cannot follow.
_LINK = re.compile(r"\[([^\]]+)\]\(#[^)]*\)")
_NOT_IN_TOPICS = re.compile(r"[^a-z0-9.]+")


def show_manual(topic: str) -> None:
    """Print a section of the manual, or the names of all sections if the topic is empty.

    A terminal gets it formatted, anything else as it is written, in Markdown.

    Raises:
        InvalidRequestError: the manual does not contain the section.
    """
    sections = manual_sections()
    if not topic:
        sys.stdout.write("".join(f"{name}\n" for name in sections))
        return
    if topic not in sections:
        raise InvalidRequestError(
            f"the manual has no section {topic!r}",
            hint=did_you_mean(topic, sections, "lake help --manual lists the sections"),
        )
    if not sys.stdout.isatty():
        sys.stdout.write(sections[topic])
        return
    from rich.markdown import Markdown  # noqa: PLC0415 - only a terminal needs it

    text = _LINK.sub(r"\1", sections[topic])
    Display().console(sys.stdout).print(Markdown(text), soft_wrap=False)


def manual_sections() -> Mapping[str, str]:
    """Return the text of each section, by the command that it describes or by its title: ``exit-codes``."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    is_code = False
    for line in files("lake.commands").joinpath("README.md").read_text().splitlines(keepends=True):
        is_code ^= line.startswith(_FENCE)
        if line.startswith(_SECTION) and not is_code:
            lines = found[_topic(line.removeprefix(_SECTION))] = []
        if not line.startswith(_MARK):
            lines.append(line)
    return {name: "".join(text).rstrip() + "\n" for name, text in found.items()}


def _topic(title: str) -> str:
    return _NOT_IN_TOPICS.sub("-", title.lower().replace("`lake ", "")).strip("-")
