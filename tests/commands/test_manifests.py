"""`lake manifests`: the same files in fewer manifests, whatever others commit meanwhile."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.iceberg_tables import (
    after,
    inject,
    open_session,
    pyiceberg_table,
)

from lake.core.base.errors import CommitConflictError
from lake.core.io.storage.storage import Storage
from lake.core.maintain.manifest_rewrite import execute as rewriting
from lake.core.maintain.manifest_rewrite.plan import ManifestOptions
from lake.core.table.manifests.clusters import by_partition, even_pieces


class Spread:
    """A partitioned table of several loads, each with its own manifest."""

    def __init__(self, folder: Path) -> None:
        self.warehouse, self.folder = folder / "warehouse", folder
        self.lake = CommandLine(self.warehouse, engine="inline")

    def create(self, version: int) -> None:
        for number in range(4):
            new = ("--create", "--partition-by", "day", "--property", f"format-version={version}")
            self.load(number, *new)

    def load(self, number: int, *more: str) -> None:
        file = self.folder / "rows.csv"
        file.write_text(f"id,day\n{number},a\n{number + 10},b\n{number + 20},\n")
        self.lake.ok("ingest", "db.t", file, *more)

    @property
    def table(self) -> Any:
        return pyiceberg_table(self.warehouse)

    def entries(self) -> set[tuple[Any, ...]]:
        """Return what PyIceberg reads of the live entries, without their status."""
        table = self.table
        found = set()
        for manifest in table.current_snapshot().manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                file = entry.data_file
                found.add(
                    (
                        *(entry.snapshot_id, entry.sequence_number, entry.file_sequence_number),
                        *(file.content, file.file_path, file.record_count, str(file.partition)),
                        getattr(file, "first_row_id", None),
                    )
                )
        return found

    def manifests(self) -> list[Any]:
        table = self.table
        return list(table.current_snapshot().manifests(table.io))


def in_version(built_once: BuiltOnce, version: int) -> Spread:
    name = f"version {version}"
    return Spread(built_once.folder(name, lambda folder: Spread(folder).create(version)))


@pytest.fixture
def spread(built_once: BuiltOnce) -> Spread:
    return in_version(built_once, 2)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_same_entries_are_in_fewer_manifests(built_once: BuiltOnce, version: int) -> None:
    spread = in_version(built_once, version)
    before, rows = spread.entries(), spread.lake.ok("scan", "db.t")["result"]["preview"]

    planned = spread.lake.ok("manifests", "db.t", "--dry-run")
    assert len(spread.manifests()) == 4
    done = spread.lake.ok("manifests", "db.t")

    assert planned["plan"] == done["plan"]
    assert done["plan"]["groups"][0]["per_partition"] == 4
    assert done["result"] == {"rewritten": 4, "manifests": 1}
    assert spread.entries() == before
    assert sorted(map(str, spread.lake.ok("scan", "db.t")["result"]["preview"])) == sorted(
        map(str, rows)
    )
    snapshot = spread.table.current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-data-files"] == "12"
    assert spread.lake.ok("manifests", "db.t")["status"] == "nothing-to-do"


@pytest.mark.parametrize("more", [(), ("--rewrite-all",), ("--if", "manifests > 3")])
def test_manifests_whose_number_decides_are_read_once(
    spread: Spread, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    paths = {manifest.manifest_path for manifest in spread.manifests()}
    read: Counter[str] = Counter()
    real = Storage.read

    def counted(self: Storage, location: str, **how: Any) -> bytes:
        read[location] += 1
        return real(self, location, **how)

    monkeypatch.setattr(Storage, "read", counted)
    spread.lake.ok("manifests", "db.t", *more)

    assert {
        location: number for location, number in read.items() if location in paths
    } == dict.fromkeys(paths, 1)


@pytest.mark.parametrize(
    ("condition", "due", "values"),
    [
        ("manifests > 4", False, {"manifests": [4, 4]}),
        ("manifests >= 4", True, {"manifests": [4, 4]}),
        ("overlap > 4", False, {"overlap": [4.0, 4.0]}),
        ("manifests > 100 OR overlap > 3.5", True, {"manifests": [4, 100], "overlap": [4.0, 3.5]}),
        ("manifests > 100 or overlap > 5", False, {"manifests": [4, 100], "overlap": [4.0, 5.0]}),
        ("manifests > 3 and overlap > 3", True, {"manifests": [4, 3], "overlap": [4.0, 3.0]}),
        ("overlap > 3 and manifests > 4", False, {"manifests": [4, 4], "overlap": [None, 3.0]}),
        ("overlap > 9 or not manifests < 4", True, {"manifests": [4, 4], "overlap": [None, 9.0]}),
    ],
)
def test_a_condition_decides_with_the_measured_values(
    spread: Spread, condition: str, due: bool, values: dict[str, list[float]]
) -> None:
    planned = spread.lake.ok("manifests", "db.t", "--if", condition, "--dry-run")
    done = spread.lake.ok("manifests", "db.t", "--if", condition)
    assert planned["plan"] == done["plan"]
    assert (done["plan"]["is_due"], done["plan"]["triggers"]) == (due, values)
    assert done["status"] == ("done" if due else "nothing-to-do")
    assert len(spread.manifests()) == (1 if due else 4)
    told = spread.lake("manifests", "db.t", "--if", "manifests > 9")
    assert (
        f"a rewrite is not due: manifests {1 if due else 4} (needs > 9)"
        in told.stdout + told.stderr
    )


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "files > 1",
        "manifests > 1.5",
        "overlap > x",
        "overlap = 2",
        "overlap > 1 and",
    ],
)
def test_a_condition_that_is_not_one_is_refused(spread: Spread, condition: str) -> None:
    refused = spread.lake("manifests", "db.t", "--if", condition)
    assert refused.exit_code == 2
    assert "cannot read the condition of --if at" in refused.stderr
    assert len(spread.manifests()) == 4


def test_the_manifests_are_read_only_if_the_overlap_decides(spread: Spread) -> None:
    Path(spread.manifests()[0].manifest_path.removeprefix("file://")).unlink()

    undecided = spread.lake("manifests", "db.t", "--if", "overlap > 2 or manifests > 9")
    assert undecided.exit_code == 7
    decided = spread.lake.ok("manifests", "db.t", "--if", "overlap > 2 and manifests > 9")
    assert decided["status"] == "nothing-to-do"
    measured = [{"condition": "manifests > 9", "value": 4, "holds": False}]
    assert decided["plan"]["conditions"] == measured


def test_each_partition_is_in_one_of_the_small_manifests(spread: Spread) -> None:
    done = spread.lake.ok("manifests", "db.t", "--target-size", "10KB")

    group = done["plan"]["groups"][0]
    assert group["manifests_after"] > 1
    assert group["per_partition_after"] == 1
    assert len(spread.manifests()) == group["manifests_after"]


def test_delete_manifests_are_rewritten_too(spread: Spread) -> None:
    for number in range(3):
        file = spread.folder / "changed.csv"
        file.write_text(f"id,day\n{number},a\n")
        spread.lake.ok(
            "ingest", "db.t", file, *("--upsert", "--key", "id", "--deletes", "position")
        )
    before = spread.entries()
    rows = spread.table.scan().to_arrow().num_rows

    done = spread.lake.ok("manifests", "db.t")

    assert {group["content"] for group in done["plan"]["groups"]} == {"data", "deletes"}
    assert spread.entries() == before
    assert spread.table.scan().to_arrow().num_rows == rows == 12
    assert sorted(item.content.value for item in spread.manifests()) == [0, 1]


def test_a_file_that_arrives_meanwhile_stays_in_its_own_manifest(spread: Spread) -> None:
    session = open_session(spread.warehouse)
    inject(session, [after(lambda: spread.load(30))])

    rewriting.execute(session, session.table("db.t"), ManifestOptions(), session.ids.uuid())

    assert len(spread.manifests()) == 2
    assert spread.table.scan().to_arrow().num_rows == 15


def test_the_plan_is_made_again_if_another_writer_replaces_a_manifest(spread: Spread) -> None:
    def other() -> None:
        spread.lake.ok("compact", "db.t", "--rewrite-all", "--where", "day = 'a'")

    session = open_session(spread.warehouse)
    inject(session, [after(other)])

    rewriting.execute(session, session.table("db.t"), ManifestOptions(), session.ids.uuid())

    rows = spread.table.scan().to_arrow()
    assert sorted(rows["id"].to_pylist()) == sorted(
        number + add for number in range(4) for add in (0, 10, 20)
    )
    assert spread.lake.ok("manifests", "db.t")["status"] == "nothing-to-do"


def test_a_manifest_that_always_changes_is_a_conflict(
    spread: Spread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def conflicting(*_: Any, **__: Any) -> None:
        raise CommitConflictError("another writer replaced a manifest")

    monkeypatch.setattr(rewriting, "commit_snapshot", conflicting)

    assert spread.lake("--json", "manifests", "db.t").exit_code == 4
    assert len(spread.manifests()) == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--spec-id", "7"], 7),
        (["--sort-by", "id"], 2),
        (["--target-size", "lots"], 2),
        (["--branch", "none"], 7),
    ],
)
def test_what_is_not_there_has_its_code(spread: Spread, arguments: list[str], code: int) -> None:
    assert spread.lake("--json", "manifests", "db.t", *arguments).exit_code == code


def test_each_spec_has_manifests_of_its_own(spread: Spread) -> None:
    with spread.table.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "false"})
    with spread.table.update_spec() as update:
        update.add_identity("id")
    for number in range(2):
        spread.load(40 + number)
    before = spread.entries()

    done = spread.lake.ok("manifests", "db.t", "--spec-id", "0")
    assert [group["spec_id"] for group in done["plan"]["groups"]] == [0]
    spread.lake.ok("manifests", "db.t")

    assert sorted(item.partition_spec_id for item in spread.manifests()) == [0, 1]
    assert spread.entries() == before


_COLUMNS = [
    st.tuples(st.just(kind), st.lists(st.none() | values, max_size=12))
    for kind, values in (
        (pa.int32(), st.integers(-3, 3)),
        (pa.string(), st.sampled_from(["", "a", "ab", "ä", "\0"])),
        (pa.bool_(), st.booleans()),
        (pa.binary(2), st.sampled_from([b"\0\0", b"ab", b"\xff\xff"])),
        (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), float("nan")])),
    )
]


@given(st.one_of(_COLUMNS), st.integers(1, 7))
def test_pieces_hold_each_entry_once_and_equal_values_together(
    column: tuple[pa.DataType, list[Any]], most: int
) -> None:
    kind, values = column
    partition = pa.StructArray.from_arrays([pa.array(values, kind)], ["field"])
    entries = pa.table({"partition": partition, "number": range(len(values))})

    pieces = even_pieces(by_partition(entries), most)

    numbers = [number for piece in pieces for number in piece["number"].to_pylist()]
    assert sorted(numbers) == list(range(len(values)))
    assert all(0 < piece.num_rows <= most for piece in pieces)
    assert len(pieces) == -(-len(values) // most)
    # -0.0 and 0.0 are partitions of their own, which readers find side by side.
    shown = [repr(values[number]).replace("-0.0", "0.0") for number in numbers]
    groups = [text for text, before in zip(shown, [None, *shown], strict=False) if text != before]
    assert len(groups) == len(set(groups))
