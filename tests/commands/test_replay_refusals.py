"""What `lake replay` does not commit, and what it commits only if an option states that it was never committed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.flink_fixtures import FlinkFixture, canonical_rows, shared
from support.tables.iceberg_tables import FixedClock, after, pyiceberg_catalog, pyiceberg_table

from lake.core.base.errors import LakeError, NotAuthorisedError, TimedOutError
from lake.core.base.settings import Settings
from lake.core.load.replay import checkpoint_selection
from lake.core.table.catalogs.selection import open_catalog
from lake.core.table.flink.manifest_names import END_OF_INPUT
from lake.core.transaction.session import Session

Flink = Callable[[str], FlinkFixture]


class Replay:
    """A fixture that a test may change, and `lake replay` on it."""

    def __init__(self, fixture: FlinkFixture, clock: FixedClock | None = None) -> None:
        self.fixture = fixture
        self.truth = fixture.truth
        self.job = str(self.truth["replay"]["job"])
        self.operator = str(self.truth["temp_manifests"][0]["operator"])
        self.checkpoint = fixture.root / self.truth["replay"]["from_checkpoint"]
        self.lake = CommandLine(
            fixture.warehouse,
            catalog_type=fixture.catalog_type,
            open_session=None if clock is None else lambda settings: _session(settings, clock),
        )

    @property
    def manifests(self) -> list[Path]:
        """The paths of the manifests to replay, by checkpoint."""
        found = [item for item in self.truth["temp_manifests"] if item["must_replay"]]
        return [_local(item["path"]) for item in sorted(found, key=lambda item: item["seq"])]

    @property
    def files(self) -> list[Path]:
        """The paths of their files."""
        found = [item for item in self.truth["temp_manifests"] if item["must_replay"]]
        return [_local(path) for item in found for path in item["files"]]

    def table(self) -> Any:
        """Load the table by PyIceberg."""
        return pyiceberg_table(self.fixture.warehouse, self.fixture.table)

    def commit(self, *more: object, path: Path | None = None) -> Any:
        """Replay the newest checkpoint, or another one."""
        given = ["--checkpoint", path or self.checkpoint]
        return self.lake("--json", "replay", self.fixture.table, *given, *more)

    def on_word(self, completed: int, *more: object) -> Any:
        """Replay on the operator's word."""
        given = ["--job", self.job, "--completed", completed]
        return self.lake("--json", "replay", self.fixture.table, *given, *more)

    def states(self, *more: object) -> list[tuple[int, str]]:
        """Return number and state of what is listed."""
        document = self.lake.ok("replay", self.fixture.table, *more)
        return [
            (int(item["checkpoint_id"]), item["state"]) for item in document["plan"]["checkpoints"]
        ]

    def reasons(self, *more: object) -> str:
        """Return the reasons of what is listed."""
        document = self.lake.ok("replay", self.fixture.table, *more)
        return "\n".join(item["reason"] for item in document["plan"]["checkpoints"])

    def status(self) -> dict[str, Any]:
        """Return what the status shows of the only job."""
        jobs = self.lake.ok("replay", self.fixture.table, "--status")["result"]["jobs"]
        return dict(jobs[0]) if len(jobs) == 1 else {}

    def rows(self, folder: Path) -> list[str]:
        """Return the table's rows."""
        output = folder / "rows.parquet"
        self.lake.ok("scan", self.fixture.table, "--output", output, "--replace")
        return canonical_rows(pq.read_table(output))

    def is_untouched(self, folder: Path) -> bool:
        """Whether the table has its rows, and every manifest that was there is."""
        return self.rows(folder) == self.fixture.rows()


def _session(settings: Settings, clock: FixedClock) -> Session:
    return Session(settings=settings, catalog=open_catalog(settings), clock=clock)


def _local(location: str) -> Path:
    return Path(location.removeprefix("file://").removeprefix("file:"))


@pytest.fixture
def pending(flink_lent: Flink) -> Replay:
    """Three pending checkpoints, 4 to 6, of an appending FlinkSink."""
    return Replay(flink_lent("b-append-pending"))


def refused(result: Any, *words: str) -> None:
    assert result.exit_code == 3, result
    document = result.json()
    assert document["status"] == "refused"
    text = f"{document['error']['message']} {document['error']['hint']}"
    assert [word for word in words if word not in text] == [], text


# Files and manifests.


def test_with_a_manifest_missing_nothing_is_committed(pending: Replay, tmp_path: Path) -> None:
    pending.manifests[1].unlink()

    refused(pending.commit(), "checkpoint 5", "missing")

    assert pending.is_untouched(tmp_path)
    assert pending.states() == [(4, "pending"), (6, "pending")]
    # Their numbers show it without the checkpoint's state.
    refused(pending.on_word(6), "manifest number 5 of job", "--checkpoint")
    assert pending.is_untouched(tmp_path)


def test_with_a_manifest_cut_short_nothing_is_committed(pending: Replay, tmp_path: Path) -> None:
    whole = pending.manifests[2].read_bytes()
    pending.manifests[2].write_bytes(whole[:-20])

    refused(pending.commit("--quiet-time", "0s"), "checkpoint 6", "cut short")

    assert pending.is_untouched(tmp_path)
    assert pending.states()[-1] == (6, "broken")
    status = pending.status()
    assert (status["pending_checkpoints"], status["damaged_checkpoints"]) == (["4", "5"], ["6"])


def test_a_manifest_of_another_length_than_the_checkpoint_says_is_refused(
    pending: Replay, tmp_path: Path
) -> None:
    shutil.copy(pending.manifests[1], pending.manifests[2])

    refused(pending.commit("--quiet-time", "0s"), "checkpoint 6", "bytes, but the checkpoint says")

    assert pending.is_untouched(tmp_path)


@pytest.mark.parametrize("name", ["b-append-pending", "c2-upsert-part", "h-refused"])
def test_with_a_file_missing_nothing_is_committed(
    flink_lent: Flink, name: str, tmp_path: Path
) -> None:
    replay = Replay(flink_lent(name))
    replay.files[-1].unlink()

    refused(replay.commit(), "is missing")

    assert replay.is_untouched(tmp_path)
    assert replay.states()[-1][1] == "broken"


@pytest.mark.parametrize("name", ["b-append-pending", "c3-upsert-v3"])
def test_with_a_file_cut_short_nothing_is_committed(
    flink_lent: Flink, name: str, tmp_path: Path
) -> None:
    replay = Replay(flink_lent(name))
    file = replay.files[-1]
    with file.open("r+b") as data:
        data.truncate(file.stat().st_size - 1)

    refused(replay.commit("--quiet-time", "0s"), "bytes, but its entry says")

    assert replay.is_untouched(tmp_path)


def test_a_manifest_of_a_partition_spec_that_the_table_lacks_is_refused(
    pending: Replay, tmp_path: Path
) -> None:
    path = pending.manifests[0]
    old = path.read_bytes()
    path.write_bytes(old.replace(b"partition-spec-id\x020", b"partition-spec-id\x027"))
    assert path.read_bytes() != old

    refused(pending.on_word(6, "--quiet-time", "0s"), "partition spec 7")

    assert pending.is_untouched(tmp_path)


# Numbers.


def _recreated(replay: Replay) -> Any:
    """Let the table forget all its snapshots."""
    catalog = pyiceberg_catalog(replay.fixture.warehouse)
    old = replay.table()
    catalog.drop_table(replay.fixture.table)
    return catalog.create_table(
        replay.fixture.table, old.schema(), location=old.location(), partition_spec=old.spec()
    )


def _commit_as(replay: Replay, number: int, branch: str = "main") -> None:
    """Let the job say that it has committed a checkpoint."""
    table = replay.table()
    rows = table.scan(limit=1).to_arrow()
    labels = {
        "flink.job-id": replay.job,
        "flink.operator-id": replay.operator,
        "flink.max-committed-checkpoint-id": str(number),
    }
    table.append(
        rows, branch=branch, snapshot_properties={**labels, "lake.operation-id": "made by a test"}
    )


@pytest.mark.parametrize("number", [6, 10, 13304])
def test_what_a_restarted_counter_left_is_unproven_until_it_is_assumed_uncommitted(
    pending: Replay, number: int, tmp_path: Path
) -> None:
    _commit_as(pending, number)
    before = pending.rows(tmp_path)

    assert pending.states() == [(4, "unproven"), (5, "unproven"), (6, "unproven")]
    assert "counter restarted" in pending.reasons()
    status = pending.status()
    assert (status["pending_checkpoints"], status["unproven_checkpoints"]) == ([], ["4", "5", "6"])
    document = pending.commit().json()
    assert (document["status"], document["result"]["skipped_checkpoints"]) == ("nothing-to-do", 3)
    assert "--assume-uncommitted" in document["warnings"][0]
    assert pending.rows(tmp_path) == before

    document = pending.commit("--assume-uncommitted").json()

    assert (document["status"], document["result"]["committed_checkpoints"]) == ("done", 3)
    assert len(pending.rows(tmp_path)) == len(pending.fixture.rows("full")) + 1
    label = pending.table().current_snapshot().summary.additional_properties
    assert label["flink.max-committed-checkpoint-id"] == str(number)
    assert pending.commit("--assume-uncommitted").json()["status"] == "nothing-to-do"


def test_two_sinks_of_one_job_are_distinguished(pending: Replay, tmp_path: Path) -> None:
    other = pending.operator[::-1]
    for number, path in enumerate(pending.manifests):
        shutil.copy2(path, path.with_name(path.name.replace(pending.operator, other)))
        path.unlink() if number else None

    # Both wrote under checkpoint 4; one of them committed it.
    _commit_as(pending, 4)

    document = pending.lake.ok("replay", pending.fixture.table)
    states = {
        (item["operator_id"], item["checkpoint_id"]): item["state"]
        for item in document["plan"]["checkpoints"]
    }
    assert states[pending.operator, "4"] == "unproven"
    assert {states[other, number] for number in ("4", "5", "6")} == {"pending"}


# History.


def _replayed_and_kept(replay: Replay) -> None:
    """Replay, and restore the manifests: as after a crash before they were removed."""
    kept = [(path, path.read_bytes(), path.stat().st_mtime) for path in replay.manifests]
    assert replay.commit().exit_code == 0
    for path, content, changed in kept:
        path.write_bytes(content)
        os.utime(path, (changed, changed))


def _expire_all_but_the_head(replay: Replay) -> None:
    table = replay.table()
    old = [item.snapshot_id for item in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def test_what_was_committed_and_deleted_since_is_a_leftover(
    pending: Replay, tmp_path: Path
) -> None:
    _replayed_and_kept(pending)
    pending.table().delete()
    _expire_all_but_the_head(pending)
    for file in pending.files:
        file.unlink()

    assert {state for _, state in pending.states()} == {"committed-leftover"}
    assert pending.commit("--assume-uncommitted").json()["status"] == "nothing-to-do"
    assert pending.rows(tmp_path) == []


def test_with_a_history_too_short_nothing_is_committed_unless_it_is_assumed(
    pending: Replay, tmp_path: Path
) -> None:
    _replayed_and_kept(pending)
    table = pending.table()
    one = table.scan(limit=1).to_arrow()
    table.delete()
    table.append(one)
    _expire_all_but_the_head(pending)

    assert {state for _, state in pending.states()} == {"unproven"}
    refused(pending.commit(), "expired", "--assume-uncommitted")
    assert len(pending.rows(tmp_path)) == 1

    assert pending.commit("--assume-uncommitted").json()["status"] == "done"
    assert len(pending.rows(tmp_path)) == 241


def test_an_expired_history_that_reaches_behind_the_manifests_is_long_enough(
    pending: Replay, tmp_path: Path
) -> None:
    _expire_all_but_the_head(pending)

    assert pending.commit().json()["status"] == "done"

    assert pending.rows(tmp_path) == pending.fixture.rows("full")


def test_manifests_older_than_the_expired_history_need_the_assumption(
    pending: Replay, tmp_path: Path
) -> None:
    _expire_all_but_the_head(pending)
    for path in pending.manifests:
        os.utime(path, (path.stat().st_mtime - 3600,) * 2)

    refused(pending.commit(), "expired", "--assume-uncommitted")
    refused(pending.on_word(6), "expired", "--assume-uncommitted")

    assert pending.is_untouched(tmp_path)
    assert pending.commit("--assume-uncommitted").json()["status"] == "done"
    assert pending.rows(tmp_path) == pending.fixture.rows("full")


def test_a_table_without_a_snapshot_has_its_whole_history(pending: Replay, tmp_path: Path) -> None:
    _recreated(pending)

    assert pending.commit().json()["status"] == "done"

    assert len(pending.rows(tmp_path)) == 240


def test_a_checkpoint_of_which_a_part_was_committed_stops_everything(
    pending: Replay, tmp_path: Path
) -> None:
    file = pending.files[5]
    pending.table().add_files([str(file)])
    before = pending.rows(tmp_path)

    assert pending.states() == [(4, "pending"), (5, "partial"), (6, "pending")]
    refused(pending.commit(), "checkpoint 5", "partial", "1 of its 4 files")
    refused(pending.on_word(6), "partial")
    assert pending.rows(tmp_path) == before
    assert pending.on_word(4).json()["result"]["committed_checkpoints"] == 1


# Who else is there.


@pytest.mark.parametrize(
    ("minutes", "more", "status"),
    [
        (9, (), "refused"),
        (11, (), "done"),
        (9, ("--quiet-time", "8m"), "done"),
        (11, ("--quiet-time", "1h"), "refused"),
        (0, ("--quiet-time", "0s"), "done"),
    ],
)
def test_a_job_that_was_quiet_for_too_short_a_time_is_left_alone(
    flink_lent: Flink, minutes: int, more: tuple[str, ...], status: str
) -> None:
    fixture = flink_lent("b-append-pending")
    signs = [*Replay(fixture).manifests, *Replay(fixture).files, *fixture.root.rglob("_metadata")]
    newest = max(int(path.stat().st_mtime * 1000) for path in signs)
    replay = Replay(fixture, FixedClock(newest + minutes * 60_000))

    result = replay.commit(*more)

    assert result.json()["status"] == status
    if status == "refused":
        refused(result, replay.job, "may still be running")


@pytest.mark.parametrize(
    "sign", ["manifest", "data file", "new file", "checkpoint", "later", "commit"]
)
def test_any_sign_of_the_job_counts(flink_lent: Flink, sign: str) -> None:
    fixture = flink_lent("b-append-pending")
    replay = Replay(fixture, FixedClock(2_000_000_000_000))
    replay.lake = CommandLine(
        fixture.warehouse,
        open_session=lambda settings: _session(settings, FixedClock(2_000_000_000_000)),
    )
    moment = 2_000_000_000 - 60
    paths = {
        "manifest": replay.manifests[0],
        "data file": replay.files[0],
        "checkpoint": replay.checkpoint / "_metadata",
    }
    if sign == "new file":
        # Of the same writer, in no manifest yet.
        paths[sign] = replay.files[-1].with_name(replay.files[-1].name.replace("-000", "-009"))
        paths[sign].write_bytes(b"x")
    if sign == "later":
        paths[sign] = replay.checkpoint.with_name("chk-99") / "_metadata"
        paths[sign].parent.mkdir()
        paths[sign].write_bytes(b"x")
    if sign in paths:
        os.utime(paths[sign], (moment, moment))
    else:
        table = replay.table()
        labels = {
            "flink.job-id": replay.job,
            "flink.operator-id": replay.operator,
            "flink.max-committed-checkpoint-id": "3",
        }
        with mock.patch.object(time, "time", return_value=float(moment)):
            table.append(table.scan(limit=1).to_arrow(), snapshot_properties=labels)

    refused(replay.commit(), "may still be running")


def test_a_listing_and_a_replay_with_nothing_to_do_disturb_no_running_job(
    flink_lent: Flink,
) -> None:
    fixture = flink_lent("g-leftover")
    replay = Replay(fixture, FixedClock(0))

    assert replay.states() == [(3, "committed-leftover")]
    assert replay.commit().json()["status"] == "nothing-to-do"


def test_a_later_checkpoint_beside_the_given_one_is_reported(pending: Replay) -> None:
    older = pending.checkpoint.with_name("chk-5")

    document = pending.commit(path=older).json()

    assert document["result"]["committed_checkpoints"] == 2
    assert "checkpoint 6 completed after the given 5" in document["warnings"][0]
    assert pending.commit().json()["result"]["committed_checkpoints"] == 1


@pytest.mark.parametrize(
    ("error", "code"), [(TimedOutError("busy"), 10), (NotAuthorisedError("no"), 0)]
)
def test_a_folder_of_checkpoints_that_does_not_answer_may_contain_a_later_one(
    pending: Replay, monkeypatch: pytest.MonkeyPatch, error: LakeError, code: int
) -> None:
    def listed(*_: object) -> dict[int, str]:
        raise error

    monkeypatch.setattr(checkpoint_selection, "metadata_below", listed)

    assert pending.commit().exit_code == code


def test_a_job_of_another_branch_is_not_committed_to_this_one(
    pending: Replay, tmp_path: Path
) -> None:
    one = pending.table().scan(limit=1).to_arrow()
    table = _recreated(pending)
    table.append(one)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    _commit_as(pending, 3, branch="audit")

    refused(pending.commit(), "commits to branch audit", "--branch audit")
    assert len(pending.rows(tmp_path)) == 1

    assert pending.commit("--branch", "audit").json()["status"] == "done"
    assert len(pending.rows(tmp_path)) == 1


# How the job wrote.


def test_a_job_that_replaced_partitions_is_replayed_only_in_the_same_way(
    flink_lent: Flink, tmp_path: Path
) -> None:
    replay = Replay(flink_lent("f2-overwrite-pending"))

    refused(replay.commit(), "--replace-partitions")
    refused(replay.on_word(3), "--replace-partitions")
    refused(replay.on_word(3, "--replace-partitions"), "--checkpoint")

    assert replay.is_untouched(tmp_path)


def test_a_job_replaces_no_partition_of_which_rows_are_in_files_of_another_spec(
    flink_lent: Flink, tmp_path: Path
) -> None:
    replay = Replay(flink_lent("f2-overwrite-pending"))
    name, files = replay.fixture.table, {}
    for region in ("emea", "amer"):
        files[region] = tmp_path / f"{region}.parquet"
        where = ("--where", f"region = '{region}'", "--limit", 1)
        replay.lake.ok("scan", name, *where, "--output", files[region])
    replay.lake.ok("alter", name, "--partition-by", "region, bucket(2, id)")
    replay.lake.ok("ingest", name, files["amer"])
    for more in (["--dry-run"], []):
        refused(replay.commit("--replace-partitions", *more), "of another partition spec")
    assert len(replay.rows(tmp_path)) == 83

    replay.lake.ok("compact", name, "--where", "region = 'amer'", "--rewrite-all")
    refused(replay.commit("--replace-partitions"), "of another partition spec")
    replay.lake.ok("delete", name, "--where", "region = 'amer'")
    replay.lake.ok("ingest", name, files["emea"])

    assert replay.commit("--replace-partitions").json()["status"] == "done"
    assert len(replay.rows(tmp_path)) == 44


def move_to_buckets(lake: CommandLine, name: str) -> None:
    lake.ok("alter", name, "--partition-by", "bucket(3, id)")
    lake.ok("compact", name, "--rewrite-all")


def test_equality_deletes_leave_no_old_rows_in_files_of_another_spec(
    flink_lent: Flink, tmp_path: Path
) -> None:
    replay = Replay(flink_lent("c2-upsert-part"))
    name = replay.fixture.table
    move_to_buckets(replay.lake, name)
    before = replay.rows(tmp_path)

    for more in (["--dry-run"], []):
        refused(replay.commit(*more), "of another partition spec")
    assert replay.rows(tmp_path) == before
    replay.lake.ok("compact", name, "--rewrite-all", "--spec-id", "0")

    assert replay.commit().json()["status"] == "done"
    assert replay.rows(tmp_path) == replay.fixture.rows("full")


def test_equality_deletes_are_refused_if_the_rows_move_to_another_spec_meanwhile(
    flink_lent: Flink, tmp_path: Path
) -> None:
    replay = Replay(flink_lent("c2-upsert-part"))
    calm = replay.lake
    replay.lake = calm.with_faults(after(lambda: move_to_buckets(calm, replay.fixture.table)))

    refused(replay.commit(), "of another partition spec")

    replay.lake = calm
    assert replay.rows(tmp_path) == replay.fixture.rows("committed")


def test_a_job_that_appended_replaces_no_partitions(pending: Replay, tmp_path: Path) -> None:
    refused(pending.commit("--replace-partitions"), "did not replace partitions")

    assert pending.is_untouched(tmp_path)


def test_checkpoints_with_deletes_replace_no_partitions(flink_lent: Flink, tmp_path: Path) -> None:
    replay = Replay(flink_lent("c2-upsert-part"))

    refused(replay.commit("--replace-partitions"))

    assert replay.is_untouched(tmp_path)


# Locations.


def test_manifests_are_found_where_the_table_says(pending: Replay, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    for path in pending.manifests:
        shutil.move(path, folder / path.name)
    with pending.table().transaction() as change:
        change.set_properties({"flink.manifests.location": f"file://{folder}/"})

    assert pending.on_word(6).json()["result"]["committed_checkpoints"] == 3

    assert pending.rows(tmp_path) == pending.fixture.rows("full")
    assert list(folder.iterdir()) == []


def test_manifests_of_other_tables_in_a_shared_place_are_foreign(
    pending: Replay, tmp_path: Path
) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    with pending.table().transaction() as change:
        change.set_properties({"flink.manifests.location": str(folder)})
    with shared("e2-crash-superseded") as other:
        for item in other.truth["temp_manifests"]:
            shutil.copy2(item["path"], folder)
        job, number = other.truth["replay"]["job"], 5

        states = pending.states()
        result = pending.lake(
            "--json", "replay", pending.fixture.table, "--job", job, "--completed", number
        )

    assert sorted(states) == [
        *((n, "foreign") for n in (3, 4)),
        (4, "pending"),
        (5, "foreign"),
        (5, "pending"),
        (6, "pending"),
    ]
    refused(result, f"of job {job}", "is outside the table's folders")
    assert pending.is_untouched(tmp_path)


def test_a_checkpoint_of_another_table_is_refused(pending: Replay, tmp_path: Path) -> None:
    with shared("e2-crash-superseded") as other:
        path = other.root / other.truth["replay"]["from_checkpoint"]
        result = pending.commit(path=path)
        both = pending.commit("--checkpoint", path)

    refused(result, f"{path}/_metadata", "are outside the table's folders", pending.fixture.table)
    refused(both, f"{path}/_metadata")
    assert pending.is_untouched(tmp_path)


def test_links_are_not_followed_out_of_the_table(pending: Replay, tmp_path: Path) -> None:
    path = pending.manifests[0]
    shutil.move(path, tmp_path / path.name)
    path.symlink_to(tmp_path / path.name)

    assert pending.states() == [(5, "pending"), (6, "pending")]


# Requests.


@pytest.mark.parametrize(
    "given",
    [
        ["--checkpoint", "/x", "--job", "1" * 32, "--completed", "1"],
        ["--job", "1" * 32],
        ["--completed", "3"],
        ["--job", "1" * 32, "--completed", "-1"],
        ["--job", "1" * 32, "--completed", str(2**63)],
        ["--status", "--checkpoint", "/x"],
        ["--status", "--job", "1" * 32, "--completed", "1"],
        ["--status", "--dry-run"],
        ["--replace-partitions"],
        ["--assume-uncommitted"],
        ["--checkpoint", "/x", "--quiet-time", "soon"],
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(
    flink: Flink, given: list[str]
) -> None:
    fixture = flink("b-append-pending")

    result = CommandLine(fixture.warehouse)("replay", fixture.table, *given)

    assert result.exit_code == 2, result


@pytest.mark.parametrize(
    "given",
    [
        ["--checkpoint", "/tmp/no/such/chk-1"],
        ["--branch", "nowhere"],
        ["--checkpoint", __file__],
    ],
)
def test_what_is_not_there_or_no_checkpoint_is_bad_input(flink: Flink, given: list[str]) -> None:
    fixture = flink("b-append-pending")

    result = CommandLine(fixture.warehouse)("replay", fixture.table, *given)

    assert result.exit_code == 7, result


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_job_that_the_table_does_not_know_is_not_found(flink: Flink, dry: list[str]) -> None:
    fixture = flink("b-append-pending")
    known = f"{fixture.truth['replay']['job']} (up to 6)"

    result = CommandLine(fixture.warehouse)(
        *("--json", "replay", fixture.table, "--job", "1" * 32, "--completed", 9, *dry)
    )

    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "not-found"), result
    assert "1" * 32 in result.json()["error"]["message"]
    assert known in result.json()["error"]["hint"]


def test_a_number_above_all_of_the_job_is_refused(pending: Replay, tmp_path: Path) -> None:
    refused(pending.on_word(7), "--completed 7", "above 6", "give --completed 6")
    refused(pending.on_word(END_OF_INPUT), "above 6")
    assert pending.is_untouched(tmp_path)

    assert pending.on_word(6).json()["result"]["committed_checkpoints"] == 3
    refused(pending.on_word(7), "above 6")
    assert pending.on_word(6).json()["status"] == "nothing-to-do"


def test_a_repeated_replay_has_nothing_to_do_after_its_snapshots_expired(pending: Replay) -> None:
    lake, name = pending.lake, pending.fixture.table
    assert pending.on_word(6).json()["status"] == "done"
    rows = pending.table().scan(limit=1).to_arrow()
    for _ in range(2):
        # Commits of others, so that no snapshot of the job is the newest one.
        pending.table().append(rows)
    expired = lake.ok(
        *("expire", name, "--older-than", "0s", "--unsafe-retention", "--retain-last", 1),
        *("--keep-checkpoints", "0s"),
    )
    assert expired["result"]["snapshots"] > 0, expired

    document = pending.on_word(6).json()

    assert document["status"] == "nothing-to-do"
    assert pending.job in document["warnings"][0]
