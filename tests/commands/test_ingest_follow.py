"""`lake ingest --from-table --follow`: rows that are added to a table are in another one once, with the position."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine, Result
from support.tables.iceberg_tables import after, inject, open_session, pyiceberg_catalog

from lake.core.base.clock import SystemClock
from lake.core.base.errors import StoppedError
from lake.core.base.outcome import Outcome
from lake.core.base.settings import Settings
from lake.core.load.continuous.totals import Totals
from lake.core.table.metadata.snapshot_updates import RemoveSnapshots
from lake.core.transaction.session import Session


class Copy:
    """A table, and one that follows it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = CommandLine(folder / "warehouse", engine="inline")

    def add(self, *ids: int, table: str = "db.s", words: tuple[str, ...] = ()) -> None:
        path = self.folder / "rows.csv"
        path.write_text("id,name\n" + "".join(f"{one},a\n" for one in ids))
        self.lake.ok("ingest", table, "--create", path, *words)

    def words(self, *more: object) -> list[object]:
        own = ["ingest", "db.t", "--create", "--from-table", "db.s", "--follow", "--stream", "c"]
        return [*own, "--once", *more]

    def load(self, *more: object) -> dict[str, Any]:
        return self.lake.ok(*self.words(*more))

    def fail(self, *more: object) -> Result:
        return self.lake("--json", *self.words(*more))

    def table(self, name: str = "db.t") -> Any:
        return pyiceberg_catalog(self.folder / "warehouse").load_table(name)

    @property
    def ids(self) -> list[int]:
        return sorted(self.table().scan().to_arrow().column("id").to_pylist())

    def expire(self, name: str) -> None:
        """Remove all snapshots but the head, as another engine does."""
        table = self.table(name)
        head = table.metadata.current_snapshot_id
        gone = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id != head]
        table.catalog.commit_table(table, (), (RemoveSnapshots(snapshot_ids=gone),))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    made = Copy(tmp_path)
    made.add(1, 2)
    return made


def test_rows_are_loaded_once_and_the_position_with_them(copy: Copy) -> None:
    first = copy.load()
    assert copy.load()["status"] == "nothing-to-do"
    copy.add(3)
    copy.add(4)
    second = copy.load()

    assert copy.ids == [1, 2, 3, 4]
    assert [first["result"]["rows_written"], second["result"]["rows_written"]] == [2, 2]
    head = str(copy.table("db.s").metadata.current_snapshot_id)
    assert second["result"]["position"]["snapshot_id"] == head
    assert second["result"]["lag"] == {"snapshots": 0, "rows": 0, "ms": 0}
    assert copy.load()["status"] == "nothing-to-do"


def test_a_compaction_of_the_source_adds_nothing_and_an_overwrite_is_named(copy: Copy) -> None:
    copy.load()
    copy.add(3)
    copy.lake.ok("compact", "db.s", "--rewrite-all")
    copy.add(4)
    copy.load()
    assert copy.ids == [1, 2, 3, 4]

    copy.add(9, words=("--overwrite",))
    copy.add(10)
    done = copy.load()

    assert copy.ids == [1, 2, 3, 4, 10]
    assert "are not appends" in " ".join(done["warnings"])


def test_the_position_goes_back_with_the_target(copy: Copy) -> None:
    copy.load()
    before = copy.table().metadata.current_snapshot_id
    copy.add(3)
    copy.load()
    copy.table().manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
    copy.add(4)
    copy.load()

    assert copy.ids == [1, 2, 3, 4]


def test_the_position_outlives_the_snapshot_of_its_epoch(copy: Copy) -> None:
    copy.load()
    copy.add(9, table="db.t")
    copy.expire("db.t")
    copy.add(3)
    copy.load()
    copy.add(8, table="db.t")
    copy.lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    assert copy.load()["status"] == "nothing-to-do"

    assert copy.ids == [1, 2, 3, 8, 9]


def test_a_gap_ends_the_load_or_is_passed_on_purpose(copy: Copy) -> None:
    copy.load()
    copy.add(3)
    copy.add(4)
    copy.add(5)
    copy.expire("db.s")

    failed = copy.fail()
    assert (failed.exit_code, failed.json()["error"]["kind"]) == (7, "gap")
    assert copy.ids == [1, 2]
    skipped = copy.fail("--on-gap", "skip")
    assert (skipped.exit_code, skipped.json()["status"]) == (6, "partial")
    assert skipped.json()["result"]["gaps"][0]["kind"] == "expired"
    assert "rows of expired snapshots are missing" in " ".join(skipped.json()["warnings"])
    assert copy.ids == [1, 2, 5]
    assert copy.load()["status"] == "nothing-to-do"


def test_another_table_with_the_name_of_the_source_is_refused(copy: Copy) -> None:
    copy.load()
    pyiceberg_catalog(copy.folder / "warehouse").drop_table("db.s")
    copy.add(7)

    assert copy.fail().exit_code == 3
    assert copy.ids == [1, 2]


def test_a_renamed_source_is_followed_under_its_new_name(copy: Copy) -> None:
    copy.load()
    copy.lake.ok("rename", "db.s", "db.moved")
    failed = copy.fail()
    assert failed.exit_code == 7
    assert "has the name db.moved now" in failed.json()["error"]["message"]

    copy.add(3, table="db.moved")
    copy.lake.ok(*(word if word != "db.s" else "db.moved" for word in copy.words()))
    assert copy.ids == [1, 2, 3]


def test_of_two_runs_at_once_one_loads(copy: Copy) -> None:
    copy.load()
    copy.add(3)
    other = CommandLine(copy.folder / "warehouse", engine="inline")

    def opened(_settings: Settings) -> Session:
        session = open_session(copy.folder / "warehouse")
        inject(session, [after(lambda: other.ok(*copy.words()))])
        return session

    copy.lake.open_session = opened
    done = copy.load()

    assert done["result"]["epochs"] == 0
    assert copy.ids == [1, 2, 3]


def test_upserts_follow_a_table(copy: Copy) -> None:
    copy.load("--upsert", "--key", "id")
    copy.add(2, 3)
    copy.load("--upsert", "--key", "id")

    assert copy.ids == [1, 2, 3]


def test_of_rows_with_one_key_the_one_of_the_newest_commit_counts(copy: Copy) -> None:
    for number in range(3, 6):
        path = copy.folder / "more.csv"
        path.write_text(f"id,name\n1,{number}\n{number},a\n")
        copy.lake.ok("ingest", "db.s", path)

    copy.load("--upsert", "--key", "id")

    assert dict(zip(*copy.table().scan().to_arrow().to_pydict().values(), strict=True))[1] == "5"


@pytest.mark.parametrize(
    "words",
    [
        ("--state", "x"),
        ("--done", "keep"),
        ("--overwrite",),
        ("--watch", "x"),
        ("--on-gap", "table", "--upsert", "--key", "id"),
        ("--start", "latest", "--from-snapshot", "1"),
        ("--start", "later"),
        ("--inclusive",),
    ],
)
def test_what_contradicts_following_is_a_usage_error(copy: Copy, words: tuple[str, ...]) -> None:
    assert copy.fail(*words).exit_code == 2


def test_after_a_gap_the_rows_of_the_stream_can_be_replaced_in_one_commit(copy: Copy) -> None:
    copy.load()
    copy.add(9, words=("--overwrite",))
    copy.add(4)
    copy.expire("db.s")

    replaced = copy.fail("--on-gap", "table")
    assert (replaced.exit_code, replaced.json()["result"]["gaps"][0]["kind"]) == (6, "expired")
    assert copy.ids == [4, 9]
    assert [str(one.summary.operation.value) for one in copy.table().snapshots()] == [
        "append",
        "overwrite",
    ]
    assert copy.load("--on-gap", "table")["status"] == "nothing-to-do"
    copy.add(5)
    copy.load()
    assert copy.ids == [4, 5, 9]


def test_rows_of_other_writers_are_not_replaced(copy: Copy) -> None:
    copy.load()
    copy.add(8, table="db.t")
    copy.add(3)
    copy.add(4)
    copy.expire("db.s")

    refused = copy.fail("--on-gap", "table")
    assert (refused.exit_code, refused.json()["error"]["kind"]) == (3, "refused")
    assert copy.ids == [1, 2, 8]


def test_rows_that_arrive_while_rows_are_replaced_are_kept(copy: Copy) -> None:
    copy.load()
    copy.add(3)
    copy.add(4)
    copy.expire("db.s")
    other = CommandLine(copy.folder / "warehouse", engine="inline")
    path = copy.folder / "eight.csv"
    path.write_text("id,name\n8,a\n")

    def opened(_settings: Settings) -> Session:
        session = open_session(copy.folder / "warehouse")
        inject(session, [after(lambda: other.ok("ingest", "db.t", path))])
        return session

    copy.lake.open_session = opened
    assert copy.fail("--on-gap", "table").exit_code == 3
    assert copy.ids == [1, 2, 8]


STARTS = [
    (("--start", "table"), [1, 2, 3, 4]),
    (("--start", "earliest"), [1, 2, 3, 4]),
    (("--start", "INCREMENTAL_FROM_LATEST_SNAPSHOT"), [3, 4]),
    (("--start", "latest-exclusive"), [4]),
    (("--start-at", "2020-01-01T00:00:00Z"), [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("words", "ids"), STARTS, ids=[" ".join(words) for words, _ in STARTS])
def test_a_start_counts_for_a_new_stream_only(
    copy: Copy, words: tuple[str, ...], ids: list[int]
) -> None:
    copy.add(3)
    copy.load(*words)
    copy.add(4)
    copy.load(*words)

    assert copy.ids == ids
    assert copy.load(*words)["status"] == "nothing-to-do"


def test_a_stream_starts_after_or_with_a_snapshot(copy: Copy) -> None:
    first = copy.table("db.s").metadata.current_snapshot_id
    copy.add(3)
    second = copy.table("db.s").metadata.current_snapshot_id
    copy.add(4)
    copy.load("--from-snapshot", first)
    assert copy.ids == [3, 4]

    with_second = ("--stream", "d", "--from-snapshot", second)
    copy.load(*with_second, "--start", "INCREMENTAL_FROM_SNAPSHOT_ID")
    assert copy.ids == [3, 3, 4, 4]


def test_a_start_without_rows_is_kept_in_the_table(copy: Copy) -> None:
    begun = copy.load("--start", "latest-exclusive")

    assert (begun["status"], begun["result"]["epochs"]) == ("done", 1)
    assert copy.ids == []
    copy.add(3)
    copy.add(4)
    copy.load("--start", "latest-exclusive")
    assert copy.ids == [3, 4]


def test_a_stream_that_was_rolled_back_to_before_its_start_does_not_guess_it(copy: Copy) -> None:
    copy.add(8, table="db.t")
    before_start = copy.table().metadata.current_snapshot_id
    copy.load("--start", "latest-exclusive")
    copy.table().manage_snapshots().set_current_snapshot(snapshot_id=before_start).commit()
    copy.add(3)

    assert copy.fail("--start", "latest-exclusive").exit_code == 3
    assert copy.ids == [8]


def test_a_gap_without_rows_behind_it_is_passed_once(copy: Copy) -> None:
    first = copy.table("db.s").metadata.current_snapshot_id
    copy.add(3)
    copy.load()
    copy.table("db.s").manage_snapshots().set_current_snapshot(snapshot_id=first).commit()

    skipped = copy.fail("--on-gap", "skip")
    assert skipped.exit_code == 6
    assert "too many rows were loaded" in " ".join(skipped.json()["warnings"])
    assert "missing" not in " ".join(skipped.json()["warnings"])
    assert copy.load("--on-gap", "skip")["status"] == "nothing-to-do"
    copy.add(4)
    copy.load()
    assert copy.ids == [1, 2, 3, 4]


@pytest.mark.parametrize("option", [("--on-gap", "skip"), ("--on-gap=skip",)])
def test_the_next_step_does_not_pass_other_gaps(copy: Copy, option: tuple[str, ...]) -> None:
    copy.load()
    copy.add(3)
    copy.add(4)
    copy.expire("db.s")

    skipped = copy.lake(*copy.words(*option))

    (following,) = [one for one in skipped.stdout.splitlines() if one.startswith("next: ")]
    assert following.endswith("--stream c --once")


# Monitoring


def test_a_status_shows_what_is_not_loaded_and_loads_nothing(copy: Copy) -> None:
    new = copy.load("--status")
    copy.load()
    copy.add(3)
    copy.add(4, 5)
    before = copy.table().metadata.current_snapshot_id

    found = copy.load("--status")
    shown = copy.lake(*copy.words("--status"))

    assert (new["result"]["epoch"], new["result"]["position"]) == (0, None)
    assert found["status"] == "done"
    assert found["result"]["epoch"] == 1
    assert found["result"]["lag"] == {"snapshots": 2, "rows": 3, "ms": found["result"]["lag"]["ms"]}
    assert found["result"]["gap"] is None
    assert set(found["plan"]) == {"source", "stream", "epoch", "position"}
    assert "epoch 1, at snapshot" in shown.stdout
    assert "2 snapshots behind (3 rows)" in shown.stdout
    assert copy.table().metadata.current_snapshot_id == before


def test_a_status_reports_a_gap_at_which_the_next_run_ends(copy: Copy) -> None:
    copy.load()
    copy.add(3)
    copy.add(4)
    copy.expire("db.s")

    status = copy.fail("--status")
    shown = copy.lake(*copy.words("--status"))

    assert (status.exit_code, status.json()["status"]) == (6, "suspect")
    assert status.json()["result"]["gap"]["kind"] == "expired"
    assert status.json()["result"]["lag"]["rows"] is None
    assert "gap in db.s" in status.json()["warnings"][0]
    assert "gap expired" in shown.stdout
    assert copy.ids == [1, 2]


def test_metrics_show_the_epoch_the_lag_and_a_failure(copy: Copy) -> None:
    metrics = copy.folder / "m.prom"
    labels = '{table="db.t",branch="main",stream="c"}'

    copy.load("--metrics-file", metrics)
    done = metrics.read_text()
    copy.add(3)
    copy.add(4)
    copy.expire("db.s")
    failed = copy.fail("--metrics-file", metrics)
    text = metrics.read_text()

    for line in ("epoch", "epochs_total", "up"):
        assert f"lake_ingest_{line}{labels} 1" in done
    assert f"lake_ingest_rows_total{labels} 2" in done
    assert f"lake_ingest_lag_snapshots{labels} 0" in done
    assert f"lake_ingest_gap{labels} 0" in done
    assert f"lake_ingest_last_look_seconds{labels}" in done
    assert failed.exit_code == 7
    assert f"lake_ingest_up{labels} 0" in text
    assert f"lake_ingest_gap{labels} 1" in text
    assert f"lake_ingest_epoch{labels} 1" in text


def test_a_service_prints_a_line_at_its_start_and_after_each_commit(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_clock: SystemClock, _seconds: float) -> None:
        raise StoppedError(15)

    copy.load()
    copy.add(3)
    words = [word for word in copy.words() if word != "--once"]
    monkeypatch.setattr(SystemClock, "sleep", stopped)
    shown = copy.lake(*words).stderr
    quiet = copy.lake("-q", *words).stderr

    assert "following db.s as stream c after epoch 1; snapshots waiting: 1" in shown
    assert "epoch 2: files: 1; snapshots waiting: 0" in shown
    assert quiet == ""
    assert copy.ids == [1, 2, 3]


def test_a_stop_right_after_a_commit_ends_the_run_in_order(
    copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Totals.add

    def stopped(totals: Totals, outcome: Outcome, files: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        add(totals, outcome, files)

    copy.load()
    copy.add(3)
    with monkeypatch.context() as patch:
        patch.setattr(Totals, "add", stopped)
        result = copy.load()["result"]

    assert (result["stopped_by"], result["epochs"]) == ("signal", 1)
    assert copy.load()["result"]["epochs"] == 0
    assert copy.ids == [1, 2, 3]


def test_rows_that_do_not_fit_are_set_aside_once(copy: Copy) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    pyiceberg_catalog(copy.folder / "warehouse").create_table("db.t", schema)
    copy.add(3)
    path = copy.folder / "null.csv"
    path.write_text("id,name\n,b\n")
    copy.lake.ok("ingest", "db.s", path)
    rejects = ("--rejects", copy.folder / "bad.csv", "--start", "latest")

    done = copy.load(*rejects)
    again = copy.load(*rejects)

    assert (done["status"], again["status"]) == ("done", "nothing-to-do")
    assert copy.ids == []
    assert len(list(copy.folder.glob("bad-epoch-*.csv"))) == 1


NOW = ("--older-than", "0s", "--unsafe-retention")


@pytest.mark.parametrize("commit", [False, True], ids=["rollback", "then a commit"])
@pytest.mark.parametrize("by", ["lake", "another engine"])
def test_rows_are_not_loaded_again_after_an_expiry_and_a_rollback(
    copy: Copy, by: str, *, commit: bool
) -> None:
    copy.load()
    copy.add(3)
    copy.load()
    copy.lake.ok("compact", "db.t", "--rewrite-all")
    copy.add(4)
    copy.load()
    if by == "lake":
        copy.lake.ok("expire", "db.t", *NOW, "--retain-last", "2")
    else:
        table = copy.table()
        gone = [one.snapshot_id for one in table.metadata.snapshots[:-2]]
        table.catalog.commit_table(table, (), (RemoveSnapshots(snapshot_ids=gone),))
    copy.lake.ok("rollback", "db.t", "main~1")
    before = [1, 2, 3]
    if commit:
        copy.add(9, table="db.t")
        copy.lake.ok("expire", "db.t", *NOW)
        before.append(9)
    assert copy.ids == before
    done = copy.fail()

    # Which epochs the oldest snapshot contains is not known if another engine removed them.
    assert done.exit_code == (0 if by == "lake" else 3), done.stderr
    assert copy.ids == (sorted([*before, 4]) if by == "lake" else before)
