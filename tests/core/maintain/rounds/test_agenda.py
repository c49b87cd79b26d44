"""The steps that a round shows, for actions one after the other and at the same time."""

from __future__ import annotations

from support.tables.iceberg_tables import FixedClock

from lake.core.base.progress import Step
from lake.core.maintain.health.facts import ForecastFacts
from lake.core.maintain.rounds.agenda import Agenda
from lake.core.maintain.rounds.decisions import Decision


def decision(table: str, action: str, size: int = 0) -> Decision:
    """Return an action that reads some bytes."""
    forecast = ForecastFacts(
        command=action,
        pays=True,
        before=2,
        after=1,
        bytes=size,
        seconds=1.0,
        partition_seconds=None,
    )
    return Decision(
        table=table, action=action, is_due=True, reason="", options={}, forecast=forecast
    )


EXPECTED = [
    decision("a", "expire"),
    decision("a", "compact"),
    decision("b", "expire"),
    decision("b", "clean"),
]


def test_steps_one_after_the_other_are_numbered_and_name_what_follows() -> None:
    clock = FixedClock()
    agenda = Agenda(clock, EXPECTED)

    assert agenda.begin(EXPECTED[0]) == Step(1, 4, "expire a", "compact a")
    assert agenda.end(EXPECTED[0]) is None
    clock.sleep(10)
    # The compaction of a was not due any more.
    agenda.leave("a")
    assert agenda.begin(EXPECTED[2]) == Step(3, 4, "expire b", "clean b", 10.0)
    agenda.end(EXPECTED[2])
    # What follows from the work before was not expected.
    assert agenda.begin(decision("b", "manifests")).number == 3
    agenda.end(decision("b", "manifests"))
    assert agenda.begin(EXPECTED[3]) == Step(4, 4, "clean b", "", 3.3)


def test_the_actions_that_run_at_the_same_time_are_named() -> None:
    agenda = Agenda(FixedClock(), EXPECTED)

    agenda.begin(EXPECTED[0])
    step = agenda.begin(EXPECTED[2])

    assert step == Step(2, 4, "expire a, expire b", "compact a")
    assert agenda.running() == [("a", "expire"), ("b", "expire")]
    agenda.end(EXPECTED[0])
    assert agenda.begin(EXPECTED[1]) == Step(3, 4, "expire b, compact a", "clean b")
    assert agenda.end(EXPECTED[2]) == Step(3, 4, "compact a", "clean b")


def test_of_many_actions_three_are_named() -> None:
    many = [decision(name, "expire") for name in "abcde"]
    agenda = Agenda(FixedClock(), many)

    for item in many[:-1]:
        step = agenda.begin(item)

    assert step == Step(4, 5, "expire a, expire b, expire c and 1 more", "expire e")
