"""A slice of the faults: `python -m soak` lets every call fail in every way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from world.creations import Creations
from world.faults import FAULTS, Faults, base_table, chosen
from world.faulty import DELETE, LIST, LOOK, READ, SYNC, WRITE
from world.races import Races


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Races:
    return base_table(tmp_path_factory.mktemp("faults"), 2)


def test_every_kind_of_call_has_its_faults() -> None:
    kinds = Counter(fault.kind for fault in FAULTS.values())

    assert kinds.keys() == {READ, LOOK, LIST, WRITE, SYNC, DELETE, "load", "commit", "clock"}
    assert min(kinds.values()) > 5


@pytest.mark.parametrize(
    "name", ["upsert by position", "delete by copying", "replay", "compact", "expire"]
)
def test_a_fault_changes_all_or_nothing_and_the_next_run_ends_it(base: Races, name: str) -> None:
    table = Faults(base, name)
    for fault in chosen(table, 3, "everyday"):
        table.fault(fault)


@pytest.mark.parametrize("ids", [(1, 2, 3), ()], ids=["rows", "no rows"])
def test_a_fault_makes_a_table_with_all_its_rows_or_none(
    tmp_path: Path, ids: tuple[int, ...]
) -> None:
    made = Creations(tmp_path, 2, ids)
    for fault in chosen(made, 4, "everyday"):
        made.fault(fault)


def test_a_rewrite_of_manifests_that_is_committed_does_not_fail_when_a_file_cannot_be_read(
    base: Races,
) -> None:
    table = Faults(base, "rewrite manifests")
    for number in range(table.calls[READ]):
        table.fault(("open: too many files", number))


def test_a_discard_that_cannot_take_its_marker_back_warns_of_it(base: Races) -> None:
    table = Faults(base, "discard")
    for number in range(table.calls[READ]):
        table.fault(("delete: too many files", 0), ("open: too many files", number))
