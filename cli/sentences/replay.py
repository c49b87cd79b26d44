"""What `lake replay` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.line import Line, branch_option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.load.replay.facts import JobsResult, PendingFacts, ReplayResult
from lake.core.table.flink.commits import LAKE_OPERATOR_ID


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = PendingFacts.of(outcome.plan), outcome.result
    if isinstance(result, JobsResult):
        jobs = counted(len(result.jobs), "job")
        return f"{jobs} with commits or checkpoints" if result.jobs else "no job wrote to it"
    if isinstance(result, ReplayResult):
        return _committed(outcome, result)
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would commit {counted(plan.pending, 'checkpoint')}; nothing was changed"
    found = counted(len(plan.checkpoints), "checkpoint")
    return f"{found}, {plan.pending:,} pending" if plan.checkpoints else "no uncommitted checkpoint"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    return () if PendingFacts.of(outcome.plan).pending else None


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the replay that commits pending checkpoints; `PATH` stands for a Flink job's completed checkpoint."""
    if outcome.status is Status.PARTIAL:
        return line.again("replay")
    plan = PendingFacts.of(outcome.plan)
    if outcome.status is not Status.DONE or not plan.pending:
        return None
    pending = [row for row in plan.checkpoints if row.state == "pending"]
    is_staged = all(row.operator_id == LAKE_OPERATOR_ID for row in pending)
    proof = ["--all-staged"] if is_staged else ["--checkpoint", "PATH"]
    return line.of("replay", outcome.table, *proof, *branch_option(outcome))


def _committed(outcome: Outcome, result: ReplayResult) -> str:
    done: Sequence[object] = outcome.snapshot_ids
    number, noun = result.committed_checkpoints, "checkpoint"
    if result.committed_runs is not None:
        done, number, noun = result.committed_runs, len(result.committed_runs), "staged run"
    text = f"committed {counted(number, noun)} with {counted(result.data_files, 'data file')}"
    if not done:
        text = "nothing to commit"
    if result.left_runs:
        return f"{text}; {counted(len(result.left_runs), 'run')} left"
    names = ", ".join(tag.name for tag in result.tags or ())
    return f"{text}; tagged as {names}" if names else text
