"""The last line for people: a sentence in the past tense, without zeros, with words that follow the count."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from lake.cli import sentences
from lake.cli.app import VERBS
from lake.cli.render import sentence
from lake.cli.sentences.next_step import next_step
from lake.commands.reports.facts import DemoResult
from lake.core.base.facts import AlreadyRunning, EarlierRunFacts, RunFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.load.ingest.facts import (
    IngestFacts,
    IngestResult,
    RemovedRows,
    StagedRunFacts,
    UpsertFacts,
)
from lake.core.maintain.branching.facts import RefChangeFacts, TagsFacts
from lake.core.maintain.compaction.facts import CompactionFacts, CompactionResult
from lake.core.maintain.definition.facts import AlterationFacts
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.run_log.facts import ActionFacts, RunsResult
from lake.core.read.exports.facts import ReadResult
from lake.core.read.inspection.facts import DeletesResult, TablesResult
from lake.core.read.scan.facts import RowBounds, ScanFacts

CHANGED_REF = RefChangeFacts(ref="gold", type="tag", from_snapshot="6", to_snapshot="7")
ALTERED = AlterationFacts(
    added_columns=["a long"],
    partition_by=["bucket(4, id)"],
    sort_by=[],
    set={"a": "b"},
    unset=["c"],
    format_version=3,
)
COMPACTED = CompactionResult(
    rewritten_files=36,
    added_files=6,
    rewritten_bytes=103 << 20,
    added_bytes=84 << 20,
    rows_in=3_600_000,
    rows_out=3_600_000,
)
LOADED = IngestResult(
    rows_read=1000, rows_written=1000, rows_inserted=1000, data_files=1, bytes_written=15_667
)
USEFUL = ActionFacts(
    action="compact",
    runs=1,
    failed=0,
    seconds=65.0,
    bytes=1 << 30,
    saved_seconds=2.5,
    saved_per_gb=2.5,
    saved_per_second=0.038,
)
USELESS = replace(USEFUL, action="expire", runs=4, failed=3, seconds=1.0, saved_seconds=None)
BY_KEY = UpsertFacts(key=["id"], order_by=[], deletes="position", table_bytes=0)


def outcome(command: str, status: Status = Status.DONE, **changes: Any) -> Outcome:
    return Outcome(command=command, table="db.t", status=status, **changes)


def rows(number: int | None) -> ScanFacts:
    return ScanFacts(bounds=RowBounds(rows=number))


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (
            outcome("ingest", plan=IngestFacts(mode="append"), result=LOADED),
            "loaded 1,000 rows in 1 file (15.3 KB)",
        ),
        (
            outcome(
                "ingest",
                plan=IngestFacts(mode="upsert", by_key=BY_KEY),
                result=replace(LOADED, rows_read=3, rows_updated=1, rows_inserted=0),
            ),
            "1 row updated (3 read)",
        ),
        (
            outcome(
                "ingest",
                plan=IngestFacts(mode="upsert", by_key=BY_KEY),
                result=replace(LOADED, rows_read=3, rows_updated=1, rows_inserted=1),
            ),
            "1 row updated, 1 inserted (3 read)",
        ),
        (
            outcome(
                "ingest",
                plan=IngestFacts(mode="overwrite"),
                result=replace(LOADED, removed_files=12, removed=RemovedRows(removed_rows=30_000)),
            ),
            "replaced 30,000 rows by 1,000 in 1 file (15.3 KB)",
        ),
        (
            outcome(
                "ingest",
                plan=IngestFacts(mode="overwrite-where"),
                result=replace(
                    LOADED, rewritten_files=1, removed=RemovedRows(removed_rows_at_most=7)
                ),
            ),
            "replaced up to 7 rows by 1,000, rewrote 1 file",
        ),
        (
            outcome(
                "ingest",
                plan=IngestFacts(mode="overwrite"),
                result=replace(LOADED, removed_files=0),
            ),
            "loaded 1,000 rows in 1 file (15.3 KB); no row was replaced",
        ),
        (outcome("ingest", Status.NOTHING_TO_DO, result=LOADED), "nothing to load"),
        (
            outcome("ref", plan=replace(CHANGED_REF, from_snapshot=None)),
            "created tag gold at snapshot 7",
        ),
        (
            outcome("ref", Status.DRY_RUN, plan=replace(CHANGED_REF, to_snapshot=None)),
            "dry run: would drop tag gold; nothing was written",
        ),
        (
            outcome(
                "ref",
                plan=replace(CHANGED_REF, type="branch", hidden_snapshots=["5", "6"]),
            ),
            "moved branch gold forward to snapshot 7; no branch or tag contains 2 snapshots now",
        ),
        (
            outcome("compact", result=COMPACTED),
            "36 files → 6, 103.0 MB → 84.0 MB, 3,600,000 rows unchanged",
        ),
        (
            outcome("compact", result=replace(COMPACTED, copied_row_groups=12)),
            "36 files → 6, 103.0 MB → 84.0 MB, 3,600,000 rows unchanged, 12 row groups copied",
        ),
        (
            outcome("compact", Status.PARTIAL, result=replace(COMPACTED, failed_groups=2)),
            "36 files → 6, 103.0 MB → 84.0 MB, 3,600,000 rows unchanged; 2 groups failed",
        ),
        (
            outcome(
                "expire",
                result=ExpirationFacts(snapshots=3, data_files=42, manifests=8, bytes=188 << 20),
            ),
            "expired 3 snapshots, deleted 50 files, freed 188.0 MB",
        ),
        (
            outcome("expire", Status.DRY_RUN, plan=ExpirationFacts(snapshots=1, manifest_lists=1)),
            "dry run: would expire 1 snapshot and delete 1 file; nothing was changed",
        ),
        (
            outcome(
                "expire",
                plan=ExpirationFacts(kept_snapshots={"recent": 1}),
                result=ExpirationFacts(snapshots=3),
            ),
            "expired 3 of 4 snapshots, deleted no files",
        ),
        (
            outcome(
                "expire",
                Status.NOTHING_TO_DO,
                plan=ExpirationFacts(
                    kept_snapshots={"recent": 3, "referenced": 1},
                    kept_refs=["main"],
                    max_snapshot_age_ms=5 * 86_400_000,
                ),
            ),
            "nothing to expire; 3 snapshots are younger than 5 days, 1 is the head of main",
        ),
        (
            outcome(
                "compact",
                Status.NOTHING_TO_DO,
                plan=CompactionFacts(total_data_files=6, total_files_size=6 * 14_785_000),
            ),
            "already compact (6 files, 14.1 MB on average)",
        ),
        (outcome("compact", Status.NOTHING_TO_DO), "nothing to compact"),
        (
            outcome(
                "ingest",
                Status.NOTHING_TO_DO,
                plan=IngestFacts(
                    loaded_run=EarlierRunFacts(
                        run_id="h1",
                        snapshot_id="44189599",
                        committed_at="2026-11-22T08:31:07.123Z",
                    )
                ),
            ),
            'run "h1" was loaded on 2026-11-22 08:31:07 UTC (snapshot 44189599); nothing to do',
        ),
        (
            outcome(
                "ingest",
                Status.NOTHING_TO_DO,
                plan=IngestFacts(
                    loaded_run=EarlierRunFacts(run_id="h1", snapshot_id=None, committed_at=None)
                ),
            ),
            'run "h1" was loaded before; nothing to do',
        ),
        (
            outcome("scan", plan=rows(1000), result=ReadResult(rows=20, preview=[])),
            "20 of 1,000 rows · --limit N for more, --output FILE for all",
        ),
        (
            outcome(
                "scan",
                plan=ScanFacts(bounds=RowBounds(rows_at_most=1000)),
                result=ReadResult(rows=20, preview=[]),
            ),
            "20 of at most 1,000 rows · --limit N for more, --output FILE for all",
        ),
        (
            outcome("scan", plan=rows(20_000), result=ReadResult(rows=10_000, preview=[])),
            "10,000 of 20,000 rows · --output FILE for all",
        ),
        (outcome("scan", plan=rows(20), result=ReadResult(rows=20, preview=[])), "20 rows"),
        (
            outcome("scan", plan=rows(None), result=ReadResult(rows=20, preview=[])),
            "20 rows · --limit N for more, --output FILE for all",
        ),
        (
            outcome(
                "compact",
                Status.ALREADY_RUNNING,
                result=AlreadyRunning(
                    RunFacts(
                        command="expire", host="etl-1", pid=77, since="2026-11-20 08:00:00 UTC"
                    )
                ),
            ),
            "already running: lake expire on etl-1 (process 77) since 2026-11-20 08:00:00 UTC; nothing to do",
        ),
        (outcome("expire", Status.NOTHING_TO_DO), "nothing to expire"),
        (
            outcome("compact", Status.ALREADY_RUNNING),
            "already running: another command of lake works on this table",
        ),
        (
            outcome("alter", plan=ALTERED),
            (
                "added 1 column, new files are partitioned by bucket(4, id), new files are not sorted, "
                "changed 2 properties, upgraded the table to format version 3"
            ),
        ),
        (
            outcome("alter", Status.DRY_RUN, plan=ALTERED),
            (
                "dry run: would add 1 column, write new files partitioned by bucket(4, id), "
                "write new files not sorted, change 2 properties, "
                "upgrade the table to format version 3; nothing was written"
            ),
        ),
        (outcome("tag", result=TagsFacts(tags=[])), "no tags"),
        (outcome("tables", result=TablesResult()), "no tables"),
        (outcome("runs", result=RunsResult(log="/x", found=False)), "no runs; there is no log /x"),
        (outcome("runs", result=RunsResult(log="/x")), "no runs in /x"),
        (
            outcome("runs", result=RunsResult(matching=1, actions=[USEFUL])),
            "1 run; 1m 05s of work saved scans 2.5s",
        ),
        (
            outcome("runs", result=RunsResult(matching=5, actions=[USEFUL, USELESS])),
            "5 runs, 3 failed; 1m 06s of work saved scans 2.5s",
        ),
        (
            outcome("runs", result=RunsResult(matching=4, actions=[USELESS])),
            "4 runs, 3 failed; 1.0s of work",
        ),
        (outcome("deletes", result=DeletesResult()), "no delete files"),
    ],
)
def test_a_sentence_says_what_was_done(ended: Outcome, words: str) -> None:
    assert sentence(ended) == words


def test_a_staged_run_names_the_command_that_commits_it() -> None:
    run = StagedRunFacts(run_id="r", job_id="3e23", checkpoint_id="1")
    staged = replace(LOADED, staged=run)

    assert (
        next_step(outcome("ingest", result=staged)) == "lake replay db.t --job 3e23 --completed 1"
    )
    assert next_step(outcome("ingest", result=LOADED)) is None


def test_a_dry_run_that_found_something_names_the_command_that_does_it() -> None:
    typed = (["--warehouse", "my lake"], ["db.t", "--where", "a > 1", "--dry-run"])
    found = outcome("compact", Status.DRY_RUN, plan=CompactionFacts(groups=2))
    nothing = outcome("compact", Status.DRY_RUN, plan=CompactionFacts())

    assert next_step(found, *typed) == "lake --warehouse 'my lake' compact db.t --where 'a > 1'"
    assert next_step(nothing, *typed) is None


def test_the_demo_names_the_warehouse_of_its_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = outcome("demo", result=DemoResult(folder=str(tmp_path / "lake-demo")))

    assert next_step(ended) == "lake --warehouse lake-demo snapshots db.t"


@pytest.mark.parametrize(
    "command", ["ingest", "compact", "expire", "scan", "snapshots", "replay", "config", "demo"]
)
@pytest.mark.parametrize("status", list(Status))
def test_a_missing_count_fails_no_command(command: str, status: Status) -> None:
    assert sentence(outcome(command, status))


def test_words_follow_the_count() -> None:
    assert [counted(n, "row") for n in (0, 1, 1000)] == ["0 rows", "1 row", "1,000 rows"]


def test_each_command_has_its_sentence_in_the_module_with_its_name() -> None:
    shared = {
        "__init__",
        "conditions",
        "each_table",
        "line",
        "modules",
        "next_step",
        "sentence",
        "words",
    }
    modules = {path.stem for path in Path(sentences.__path__[0]).glob("*.py")}

    assert modules - shared == {verb.replace("-", "_") for verb in VERBS}
    for name in modules - shared:
        assert callable(import_module(f"{sentences.__name__}.{name}").sentence)
