"""A first policy file: what is allowed by default, and what the tables need now, as comments to edit."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from glob import escape
from typing import TYPE_CHECKING

from lake.core.base.errors import RefusedError
from lake.core.base.redaction import one_line
from lake.core.io.storage import atomic_files
from lake.core.io.storage.atomic_files import NotCreatedError
from lake.core.io.storage.errors import translate_errors
from lake.core.maintain.policies.policy import ACTIONS

if TYPE_CHECKING:
    from lake.core.base.clock import Ids
    from lake.core.maintain.rounds.facts import RoundFacts

_HEAD = """\
# The policy of lake maintain. It has a table for each pattern of names; of the patterns that match a table, the first
# one that has a setting wins. What is not set has its default: an action is done if it makes scans noticeably faster.
#
# Settings of tables and of actions: enabled, window, every.
# Settings of actions only: when, and the options of the command with this name without dashes.
# The owner of a table may set the same as properties of the table: lake.maintain.enabled=false is final.

# The table to which all runs are appended.
# runs-table = "ops.lake_runs"
"""
_DEFAULTS = """
["*"]
# window = "22:00-06:00 Europe/Berlin"

["*".expire]
# older-than = "7d"
# retain-last = 10

["*".compact]
# when = "small_files > 100 or delete_ratio > 0.1"
# target-size = "256MB"

["*".clean]
# every = "7d"
"""


def write_first_policy(path: str, plan: RoundFacts, names: Sequence[str], ids: Ids) -> None:
    """Create a policy file that changes nothing.

    Raises:
        RefusedError: it exists.
        LakeError: it cannot be written.
    """
    data = _text(plan, names).encode()
    if os.path.lexists(path):
        raise RefusedError(f"{path} exists already", hint="choose another name")
    with translate_errors(path):
        try:
            atomic_files.create(os.path.abspath(path), data, ids=ids)
        except NotCreatedError as error:
            raise RefusedError(str(error)) from error


def _text(plan: RoundFacts, names: Sequence[str]) -> str:
    sections = [_HEAD]
    for namespace in sorted({name.rpartition(".")[0] for name in names}):
        inside = [name for name in names if name.rpartition(".")[0] == namespace]
        due = Counter(item.action for item in plan.due if item.table in set(inside))
        needs = ", ".join(f"{action} {due[action]:,}" for action in ACTIONS if due[action])
        pattern = _text_of_toml(f"{escape(namespace)}.*")
        comment = one_line(f"# {len(inside):,} tables; due now: {needs or 'nothing'}.")
        sections.append(f"\n{comment}\n[{pattern}]\n# enabled = true\n")
    return "".join([*sections, _DEFAULTS])


def _text_of_toml(text: str) -> str:
    """Return a text in TOML, whose escapes are those of JSON, except for pairs of surrogates and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
