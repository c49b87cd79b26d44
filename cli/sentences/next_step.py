"""The command that continues what a command did."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from lake.cli.sentences.words import Facts
from lake.core.base.outcome import Outcome, Status
from lake.core.table.flink.commits import LAKE_OPERATOR_ID

# Options that a dry run has, and the command that it prepares has not.
_OF_DRY_RUNS = frozenset({"--count", "--dry-run"})
# What to do about one gap: about another one, it is decided again.
_OF_ONE_GAP = "--on-gap"


def next_step(
    outcome: Outcome, options: Sequence[str] = (), rest: Sequence[str] = ()
) -> str | None:
    """Return the command that continues what was done; None if nothing is left to do.

    Args:
        outcome: what was done.
        options: the global options that were given.
        rest: the arguments of the command that were given.
    """
    result, command = outcome.result, outcome.command
    if command == "clean" and outcome.plan.get("mode") == "list":
        orphans = outcome.status is Status.DRY_RUN and outcome.plan.get("orphans") and rest
        return _line(options, command, *rest, "--quarantine") if orphans else None
    if outcome.status is Status.DRY_RUN and _would_change(outcome) and rest:
        given = [text for text in rest if text not in _OF_DRY_RUNS]
        needs_yes = (command == "drop" and outcome.plan.get("purge")) or command == "check"
        confirmed = needs_yes and "--yes" not in given
        return _line(options, command, *given, *(["--yes"] if confirmed else []))
    if command == "scan" and "pending_splits" in result:
        given = [text for text in _again(rest) if text != "--status"]
        return _line(options, command, *given) if _waits(result) and given else None
    if "route" in outcome.plan and not outcome.plan.get("run_id"):
        # A repetition would load the rows of the other tables again.
        return None
    if command == "check" and rest:
        return _after_check(outcome, options)
    if outcome.status is Status.PARTIAL and rest and command not in {"tables", "drop"}:
        return _line(options, command, *_again(rest))
    if command == "ingest" and outcome.status is Status.DONE and "checkpoint_id" in result:
        if "removed_files" in result:
            return None
        job, number = str(result["job_id"]), str(result["checkpoint_id"])
        return _line(options, "replay", outcome.table, "--job", job, "--completed", number)
    if command == "delete" and outcome.status is Status.DONE and outcome.base_snapshot_id:
        before = str(outcome.base_snapshot_id)
        return _line(options, "rollback", outcome.table, before, *_branch(outcome))
    if command == "replay" and outcome.plan.get("pending") and outcome.status is Status.DONE:
        return _after_listing(outcome, options)
    if command == "demo" and outcome.status is Status.DONE:
        folder = os.path.relpath(str(result.get("folder", "")))
        return _line(["--warehouse", folder], "snapshots", outcome.table)
    return None


def _after_listing(outcome: Outcome, options: Sequence[str]) -> str:
    """Return the replay that commits pending checkpoints; `PATH` stands for a Flink job's completed checkpoint."""
    pending = [row for row in outcome.plan["checkpoints"] if row["state"] == "pending"]
    is_staged = all(row["operator_id"] == LAKE_OPERATOR_ID for row in pending)
    proof = ["--all-staged"] if is_staged else ["--checkpoint", "PATH"]
    return _line(options, "replay", outcome.table, *proof, *_branch(outcome))


def _branch(outcome: Outcome) -> list[str]:
    return [] if outcome.branch in {None, "main"} else ["--branch", str(outcome.branch)]


def _after_check(outcome: Outcome, options: Sequence[str]) -> str | None:
    """Return the repairs that mend some of what a check found, or the check that shows what a repair left."""
    repairs = outcome.result.get("repairs")
    if repairs is not None:
        with_files = any(item["repair"] == "missing-files" for item in repairs)
        return _line(options, "check", outcome.table, *(["--files"] if with_files else []))
    found = outcome.result.get("findings", ())
    names = dict.fromkeys(item["repair"] for item in found if item.get("repair"))
    chosen = [text for name in names for text in ("--repair", name)]
    return _line(options, "check", outcome.table, *chosen) if chosen else None


def _again(rest: Sequence[str]) -> list[str]:
    """Return the arguments of a command that repeats one, without a decision that was made for it alone."""
    given, is_value = [], False
    for text in rest:
        if not is_value and text != _OF_ONE_GAP and not text.startswith(f"{_OF_ONE_GAP}="):
            given.append(text)
        is_value = text == _OF_ONE_GAP
    return given


def _waits(result: Mapping[str, Any]) -> bool:
    """Whether a follow ended although it knows of rows that it has not handed over."""
    lag = result.get("lag") or {}
    return bool(result["pending_splits"] or lag.get("snapshots"))


def _line(options: Sequence[str], command: str, *arguments: str) -> str:
    return shlex.join(["lake", *options, command, *arguments])


def _would_change(outcome: Outcome) -> bool:
    """Whether a dry run found something to do."""
    plan = Facts(outcome.plan)
    changes = {
        "clean": plan["orphans"],
        "compact": plan["groups"],
        "delete": plan["data_files_removed"] + plan["data_files_examined"],
        "deletes": plan["equality_deletes"] + plan["position_deletes"] + plan["remaining_files"],
        "expire": plan["snapshots"] + plan["refs"],
        "expire-partitions": plan["data_files"],
        "manifests": plan["rewritten"],
        "replay": plan["pending"],
    }
    return bool(changes.get(outcome.command, 1))
