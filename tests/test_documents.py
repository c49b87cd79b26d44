"""The documents say what is so: options, examples, sessions, files and links."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.cli.document_sessions import Terminal, sessions
from support.cli.examples import complaint
from support.cli.help_text import help_of

from lake.cli.app import VERBS

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "commands/README.md",
    "commands/CHANGES.md",
    "commands/NOTEBOOKS.md",
    "core/README.md",
    "tests/README.md",
)
MANUAL = (ROOT / "commands/README.md").read_text()
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# A path of the project in backquotes; a name in capitals stands for any.
_PATH = re.compile(r"`((?:cli|commands|completions|core|tests|\.ci)/[\w./-]*|pyproject\.toml)`")


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def anchors(path: Path) -> set[str]:
    prose = _FENCED.sub("", path.read_text())
    return {slug(found) for found in re.findall(r"^#+ (.*)$", prose, re.M)}


def section(verb: str) -> str:
    """Return the manual's section about a verb."""
    found = re.search(rf"^## `lake {verb}`$(.*?)(?=^## )", MANUAL, re.M | re.S)
    assert found is not None, verb
    return found[1]


def options_in_table(text: str) -> list[str]:
    """Return the options in the first column of a table, in their order."""
    rows = re.findall(r"^\| (`-.*?) \|", text, re.M)
    return [option for row in rows for option in _OPTION.findall(row)]


def options_of(*arguments: str) -> set[str]:
    declared = re.findall(r"^  (-.*?)(?:  |$)", help_of(*arguments), re.M)
    return {option for line in declared for option in _OPTION.findall(line)}


def examples(document: str) -> Iterator[str]:
    """Yield the commands of a document that are not run: those of shell blocks and crontabs."""
    for block in re.findall(r"^```(?:sh|cron)\n(.*?)^```$", text_of(document), re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            # Behind the times of a crontab, behind a pipe or a folder; up to a comment, a pipe or the end.
            yield from re.findall(r"(?<![\w./-])lake -?[a-z].*", line)


@pytest.mark.parametrize("verb", VERBS)
def test_the_manual_lists_every_option_of_a_command_and_no_other(verb: str) -> None:
    listed = options_in_table(section(verb))

    assert len(listed) == len(set(listed))
    assert set(listed) == options_of(verb) - {"--help"}


def test_the_manual_lists_every_global_option_and_no_other() -> None:
    found = re.search(r"^## Global options$(.*?)(?=^## )", MANUAL, re.M | re.S)

    assert found is not None
    assert set(options_in_table(found[1])) == options_of()


# Other documents name options of other programs too.
@pytest.mark.parametrize("document", ["README.md", "commands/README.md"])
def test_options_in_prose_exist(document: str) -> None:
    spans = re.findall(r"`([^`\n]+)`", _FENCED.sub("", text_of(document)))
    known = set[str]().union(options_of(), *(options_of(verb) for verb in VERBS))
    named = {word for span in spans if span.startswith("--") for word in _OPTION.findall(span)}

    assert named - known == set()


@pytest.mark.parametrize("document", ["README.md", "commands/README.md"])
def test_examples_are_command_lines_that_lake_understands(document: str) -> None:
    found = list(examples(document))
    assert found
    for command in found:
        plain = re.sub(r"\$\([^)]*\)", "2026", command)
        words = shlex.split(plain, comments=True)
        ends = [n for n, word in enumerate(words) if word == "|" or word.startswith(">")]
        words = words[: min(ends, default=len(words))]
        if not {"config", "demo", "runs"}.intersection(words) and "-" not in words:
            assert complaint(words[1:]) == "", command


def test_the_session_that_can_be_pasted_is_the_one_whose_output_is_shown() -> None:
    text = text_of("README.md")
    pasted = re.findall(r"^```sh\nPATH=.*?\n(.*?)^```$", text, re.M | re.S)

    shown = [command.text for session in sessions(text) for command in session]
    assert [block.splitlines() for block in pasted] == [shown]


@pytest.mark.parametrize("document", ["README.md", "commands/README.md"])
def test_sessions_print_what_they_show(document: str, tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    terminal = Terminal(folder)

    found = sessions(text_of(document))
    assert found
    for command in (command for session in found for command in session):
        differences = terminal.differences(command, terminal.run(command.text))
        hint = f"PYTHONPATH=tests python -m support.cli.document_sessions {document}"
        assert differences == [], f"$ {command.text}\nwrites the new output: {hint}"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rows 3 · 0.8s", "rows 4 · 0.8s"),
        ("bytes 2.1 KB", "bytes 2.1 MB"),
        ("bytes 2.1 KB", "bytes 4.1 KB"),
        ("day 2026-01-30", "day 2026-01-31"),
        ("ts 2026-01-30T08:00:00.000000Z", "ts 2026-01-30T08:00:00.000001Z"),
        ("snapshot 1111111111111111 parent 1111111111111111", "snapshot 2222222222222222 parent 33333333333333333"),
        ("parent 1111111111111111 snapshot 3333333333333333", "parent 2222222222222222 snapshot 2222222222222222"),
        ("snapshot 1111111111111111", "snapshot 12"),
    ],
)  # fmt: skip
def test_a_session_notices_what_changed(shown: str, printed: str, tmp_path: Path) -> None:
    assert Terminal(tmp_path).same(shown, shown)
    assert not Terminal(tmp_path / "new").same(shown, printed)


def test_a_session_leaves_ids_times_and_widths_open(tmp_path: Path) -> None:
    shown = "  1111111111111111     2026-11-22 14:58:23   append  2.1 KB  0.8s ──────"
    printed = "  333333333333333333   2027-01-01 00:00:00   append  2.2 KB  11.0s ────────"

    assert Terminal(tmp_path).same(shown, printed)


@pytest.mark.parametrize("verb", VERBS)
def test_the_readme_links_to_the_section_of_every_command(verb: str) -> None:
    assert f"| [`lake {verb}`](commands/README.md#lake-{verb}) |" in text_of("README.md")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_of_documents_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for link in _LINK.findall(_FENCED.sub("", path.read_text())):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_documents_name_exist(document: str) -> None:
    named = [name for name in _PATH.findall(text_of(document)) if "NAME" not in name]

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 210


def test_the_manual_shows_catalogs_that_can_be_copied() -> None:
    found = re.search(r"<!-- catalogs -->\n```yaml\n(.*?)```", MANUAL, re.S)

    assert found is not None
    assert set(yaml.safe_load(found[1])["catalog"]) == {"rest", "postgres"}


def test_the_recording_shows_the_commands_of_readmes_session() -> None:
    header, *events = map(json.loads, (ROOT / "tests/data/session.cast").read_text().splitlines())
    received = "".join(text for _, _, text in events)

    assert (header["version"], header["width"]) == (2, 120)
    assert [seconds for seconds, _, _ in events] == sorted(seconds for seconds, _, _ in events)
    typed = [
        re.sub(r"\d{15,}", "ID", command.text)
        for session in sessions(text_of("README.md"))
        for command in session
    ]
    shown = re.findall(r"^\$ (.*)\r$", received, re.M)
    assert [re.sub(r"\d{15,}", "ID", line) for line in shown] == typed
    assert str(ROOT) not in received
    assert "Traceback" not in received
