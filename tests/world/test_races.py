"""A slice of the races: `python -m soak` runs them all."""

from __future__ import annotations

from itertools import islice, product
from pathlib import Path

import pytest
from support.tiers import chosen

from world.races import ENTRIES, ISOLATIONS, OTHER_ENTRIES, Races, pairs, singles


def test_there_are_as_many_races_as_there_should_be() -> None:
    assert len(list(singles())) == 12_082
    assert len(list(pairs())) == 374_302


@pytest.mark.parametrize(
    ("isolation", "version"),
    chosen(list(zip(ISOLATIONS, (2, 3), strict=True)), list(product(ISOLATIONS, (2, 3)))),
)
def test_a_race_leaves_what_one_order_leaves(tmp_path: Path, isolation: str, version: int) -> None:
    races = Races(tmp_path, isolation, version)
    mine = [race for race in singles() if race[0] == isolation]
    # Not a divisor of any factor: every command, phase and operation comes.
    for _, command, phase, others in islice(mine, version, None, 113):
        races.race(command, phase, others)


def test_a_table_that_is_dropped_renamed_or_registered_meanwhile_is_not_changed(
    tmp_path: Path,
) -> None:
    races = Races(tmp_path, "serializable", 2)
    mine = [race for race in singles() if race[0] == "serializable"]
    entries = [race for race in mine if race[1] in ENTRIES and race[3][0] in OTHER_ENTRIES]
    commands = [race for race in mine if race[1] not in ENTRIES and race[3][0] in OTHER_ENTRIES]
    for _, command, phase, others in (*entries[::2], *commands[::31]):
        races.race(command, phase, others)
    for command in ("compact", "expire partitions"):
        races.race(command, "before commit", ("tag", "purge", "another table"))
    # What another writer writes inside of a commit is not a file of this commit.
    races.race("overwrite", "before commit", ("roll back", "drop"))
