"""What `lake replay` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.line import Line, branch_option
from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome, Status
from lake.core.table.flink.commits import LAKE_OPERATOR_ID


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if "jobs" in result:
        jobs = counted(len(result["jobs"]), "job")
        return f"{jobs} with commits or checkpoints" if result["jobs"] else "no job wrote to it"
    if "committed_runs" in result:
        return _all_staged(result)
    if "committed_checkpoints" in result:
        text = "nothing to commit"
        if outcome.snapshot_ids:
            files = counted(result["data_files"], "data file")
            text = (
                f"committed {counted(result['committed_checkpoints'], 'checkpoint')} with {files}"
            )
        names = ", ".join(tag["name"] for tag in result["tags"] or ())
        return f"{text}; tagged as {names}" if names else text
    pending = plan["pending"]
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would commit {counted(pending, 'checkpoint')}; nothing was changed"
    found = counted(len(plan["checkpoints"] or ()), "checkpoint")
    return f"{found}, {pending:,} pending" if plan["checkpoints"] else "no uncommitted checkpoint"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    plan = Facts(outcome.plan)
    return () if plan["pending"] else None


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the replay that commits pending checkpoints; `PATH` stands for a Flink job's completed checkpoint."""
    if outcome.status is Status.PARTIAL:
        return line.again("replay")
    if outcome.status is not Status.DONE or not outcome.plan.get("pending"):
        return None
    pending = [row for row in outcome.plan["checkpoints"] if row["state"] == "pending"]
    is_staged = all(row["operator_id"] == LAKE_OPERATOR_ID for row in pending)
    proof = ["--all-staged"] if is_staged else ["--checkpoint", "PATH"]
    return line.of("replay", outcome.table, *proof, *branch_option(outcome))


def _all_staged(result: Facts) -> str:
    text = "nothing to commit"
    if runs := len(result["committed_runs"]):
        text = f"committed {counted(runs, 'staged run')} with {counted(result['data_files'], 'data file')}"
    left = len(result["left_runs"])
    return f"{text}; {counted(left, 'run')} left" if left else text
