"""Completion scripts for bash, zsh and fish, made from the commands themselves.

They hold every word, so that no Python starts when someone presses the tab key. After a change of
options, ``python -m lake.cli.completion completions`` writes them anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from lake.cli.app import VERBS, build_app, load_verb

_CHOICES = re.compile(r"[a-z-]+(\|[a-z-]+)+")
_FOLDERS = {"DIR"}
_HEADER = "Made by lake.cli.completion; do not edit."


@dataclass(frozen=True, slots=True)
class _Option:
    """An option as a shell sees it.

    Args:
        names: how it may be written.
        summary: one line on what it does.
        takes_value: whether a word follows.
        choices: the words that may follow, where they are few.
        folders: whether a folder follows.
        repeatable: whether it may come again.
    """

    names: tuple[str, ...]
    summary: str
    takes_value: bool
    choices: tuple[str, ...]
    folders: bool
    repeatable: bool


@dataclass(frozen=True, slots=True)
class _Verb:
    name: str
    summary: str
    options: tuple[_Option, ...]


def script(shell: str) -> str:
    """Return the completion script of ``bash``, ``zsh`` or ``fish``."""
    writer = SCRIPTS[shell][1]
    root = _options(typer.main.get_command(build_app()))
    verbs = [_verb(load_verb(name)) for name in VERBS]
    return "\n".join(writer(root, verbs)) + "\n"


def _verb(command: Any) -> _Verb:
    return _Verb(command.name, command.get_short_help_str(limit=100).rstrip("."), _options(command))


def _options(command: Any) -> tuple[_Option, ...]:
    shown = (item for item in command.params if isinstance(item, TyperOption) and not item.hidden)
    help_option = _Option(
        names=("--help", "-h"),
        summary="Show this message and exit",
        takes_value=False,
        choices=(),
        folders=False,
        repeatable=False,
    )
    return (*map(_option, shown), help_option)


def _option(item: TyperOption) -> _Option:
    metavar = item.metavar or ""
    return _Option(
        names=(*item.opts, *item.secondary_opts),
        summary=(item.help or "").rstrip("."),
        takes_value=not item.is_flag,
        choices=tuple(metavar.split("|")) if _CHOICES.fullmatch(metavar) else (),
        folders=metavar in _FOLDERS,
        repeatable=item.multiple,
    )


def _bash(root: Sequence[_Option], verbs: Sequence[_Verb]) -> list[str]:
    names = " ".join(verb.name for verb in verbs)
    return [
        f"# {_HEADER}",
        "_lake() {",
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}",
        "    local verb= word words=",
        "    COMPREPLY=()",
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "$word" in',
        f"            {names.replace(' ', '|')}) verb=$word; break ;;",
        "        esac",
        "    done",
        '    case "$verb $previous" in',
        *_bash_values("", root),
        *(line for verb in verbs for line in _bash_values(verb.name, verb.options)),
        "    esac",
        '    if [[ -z "$words" ]]; then',
        '        case "$verb" in',
        f'            "") words="{names} {_words(root)}" ;;',
        *(f'            {verb.name}) words="{_words(verb.options)}" ;;' for verb in verbs),
        "        esac",
        # Behind a verb, a word that is no option is a table or a file.
        '        [[ -n "$verb" && "$current" != -* ]] && return',
        "    fi",
        '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")',
        "}",
        "complete -o default -F _lake lake",
    ]


def _bash_values(verb: str, options: Sequence[_Option]) -> list[str]:
    lines = [
        f'        {_patterns(verb, [option])}) words="{" ".join(option.choices)}" ;;'
        for option in options
        if option.choices
    ]
    # With nothing to say, bash offers file names: as good a guess as any at another value.
    others = [option for option in options if option.takes_value and not option.choices]
    return [*lines, f"        {_patterns(verb, others)}) return ;;"] if others else lines


def _patterns(verb: str, options: Sequence[_Option]) -> str:
    return "|".join(f'"{verb} {name}"' for option in options for name in option.names)


def _words(options: Sequence[_Option]) -> str:
    return " ".join(name for option in options for name in option.names)


def _zsh(root: Sequence[_Option], verbs: Sequence[_Verb]) -> list[str]:
    return [
        "#compdef lake",
        f"# {_HEADER}",
        "_lake() {",
        "    local context state line",
        "    typeset -A opt_args",
        "    local -a verbs",
        "    verbs=(",
        *("        " + _quoted(f"{verb.name}:{verb.summary}") for verb in verbs),
        "    )",
        "    _arguments -C \\",
        *(f"        {spec} \\" for option in root for spec in _zsh_specs(option)),
        "        '1:command:->verb' '*::argument:->rest'",
        '    case "$state" in',
        "        verb) _describe command verbs ;;",
        '        rest) case "$line[1]" in',
        *(line for verb in verbs for line in _zsh_verb(verb)),
        "        esac ;;",
        "    esac",
        "}",
        '_lake "$@"',
    ]


def _zsh_verb(verb: _Verb) -> list[str]:
    return [
        f"            {verb.name}) _arguments \\",
        *(f"                {spec} \\" for option in verb.options for spec in _zsh_specs(option)),
        "                '*:file:_files' ;;",
    ]


def _zsh_specs(option: _Option) -> list[str]:
    value = ""
    if option.takes_value:
        words = f"({' '.join(option.choices)})" if option.choices else "_files"
        value = ":value:" + ("_files -/" if option.folders else words)
    star = "*" if option.repeatable else ""
    summary = re.sub(r"([\\:\[\]])", r"\\\1", option.summary)
    return [_quoted(f"{star}{name}[{summary}]{value}") for name in option.names]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(root: Sequence[_Option], verbs: Sequence[_Verb]) -> list[str]:
    first = "-n __fish_use_subcommand"
    lines = [f"# {_HEADER}", f"complete -c lake {first} -f"]
    lines += [
        f"complete -c lake {first} -a {verb.name} -d {_fish_quoted(verb.summary)}" for verb in verbs
    ]
    lines += [f"complete -c lake {first} {_fish_option(option)}" for option in root]
    for verb in verbs:
        behind = f"-n '__fish_seen_subcommand_from {verb.name}'"
        lines += [f"complete -c lake {behind} {_fish_option(option)}" for option in verb.options]
    return lines


def _fish_option(option: _Option) -> str:
    names = [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names]
    value = []
    if option.choices:
        value = [f"-x -a '{' '.join(option.choices)}'"]
    elif option.takes_value:
        value = ["-x -a '(__fish_complete_directories)'" if option.folders else "-r -F"]
    return " ".join([*names, *value, f"-d {_fish_quoted(option.summary)}"])


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# The file of each shell's script below `completions`, and what writes it.
SCRIPTS: dict[str, tuple[str, Callable[[Sequence[_Option], Sequence[_Verb]], list[str]]]] = {
    "bash": ("lake.bash", _bash),
    "zsh": ("_lake", _zsh),
    "fish": ("lake.fish", _fish),
}


def write_scripts(folder: Path) -> None:
    """Write all scripts into a folder."""
    for shell, (name, _) in SCRIPTS.items():
        (folder / name).write_text(script(shell))


if __name__ == "__main__":
    write_scripts(Path(sys.argv[1]))
