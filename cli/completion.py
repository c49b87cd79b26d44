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
    found = [_option(item) for item in command.params if item.param_type_name == "option"]
    help_option = _Option(
        names=("--help", "-h"),
        summary="Show this message and exit",
        takes_value=False,
        choices=(),
        folders=False,
        repeatable=False,
    )
    return (*found, help_option)


def _option(item: Any) -> _Option:
    metavar = item.metavar or ""
    return _Option(
        names=(*item.opts, *item.secondary_opts),
        summary=_plain((item.help or "").split(". ")[0].rstrip(".")),
        takes_value=not item.is_flag,
        choices=tuple(metavar.split("|")) if _CHOICES.fullmatch(metavar) else (),
        folders=metavar in _FOLDERS,
        repeatable=item.multiple,
    )


def _plain(text: str) -> str:
    """Return a help text without the characters that shells read."""
    return re.sub(r"[^\w ,.;|()=/@<>*+-]", "", text)


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
    lines = []
    for option in options:
        pattern = "|".join(f'"{verb} {name}"' for name in option.names)
        if option.choices:
            lines.append(f'        {pattern}) words="{" ".join(option.choices)}" ;;')
        elif option.takes_value:
            flag = "-d" if option.folders else "-f"
            lines.append(
                f'        {pattern}) mapfile -t COMPREPLY < <(compgen {flag} -- "$current");'
                " return ;;"
            )
    return lines


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
        *(f"        '{verb.name}:{verb.summary}'" for verb in verbs),
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
    summary = option.summary.replace(":", " ")
    return [f"'{star}{name}[{summary}]{value}'" for name in option.names]


def _fish(root: Sequence[_Option], verbs: Sequence[_Verb]) -> list[str]:
    first = "-n __fish_use_subcommand"
    lines = [f"# {_HEADER}", f"complete -c lake {first} -f"]
    lines += [f"complete -c lake {first} -a {verb.name} -d '{verb.summary}'" for verb in verbs]
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
    return " ".join([*names, *value, f"-d '{option.summary}'"])


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
