"""The module of each command's sentence."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lake.core.base.outcome import Outcome, Status


def module_of(command: str) -> Any:
    """Return the module of a command's sentence; only the command that ran needs its own."""
    return import_module(f"lake.cli.sentences.{command.replace('-', '_')}")


def found_nothing(outcome: Outcome) -> bool:
    """Whether a command, or its dry run, had nothing to do."""
    if outcome.status is not Status.DRY_RUN:
        return outcome.status is Status.NOTHING_TO_DO
    module = module_of(outcome.command)
    return hasattr(module, "after_dry_run") and module.after_dry_run(outcome) is None
