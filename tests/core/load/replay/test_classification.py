"""The classification of temporary manifests: each state and its reason, and what holds for every one."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.load.replay.classification import (
    CheckpointUse,
    ClassificationContext,
    Classified,
    Doubt,
    Evidence,
    classify,
)
from lake.core.load.replay.model import (
    BROKEN,
    COMMITTED_LEFTOVER,
    FOREIGN,
    PARTIAL,
    PENDING,
    SUPERSEDED,
    UNPROVEN,
)
from lake.core.table.flink.manifest_names import END_OF_INPUT
from lake.core.transaction.staging.temporary_manifests import TemporaryManifest

JOB, OTHER, OPERATOR = "1" * 32, "2" * 32, "a" * 32
KEY = (JOB, OPERATOR)


def manifest(files: int = 2) -> TemporaryManifest:
    entries = pa.table({"file_path": [f"/t/data/{n}.parquet" for n in range(files)]})
    return TemporaryManifest(
        path="/t/metadata/m.avro", length=1, modified_ms=0, content=0, spec_id=0, entries=entries
    )


def evidence(checkpoint_id: int, **more: Any) -> Evidence:
    given_ = {"attempt": 0, "manifests": (manifest(),), "written_ms": 1000 + checkpoint_id}
    found = Evidence(job_id=JOB, operator_id=OPERATOR, checkpoint_id=checkpoint_id)
    return replace(found, **{**given_, **more})


def empty(checkpoint_id: int, **more: Any) -> Evidence:
    return evidence(checkpoint_id, manifests=(), written_ms=None, **more)


def classified(item: Evidence, *others: Evidence, **context: Any) -> Classified:
    found = classify([*others, item], ClassificationContext(**context))
    return next(one for one in found if one.evidence is item)


def state(item: Evidence, *others: Evidence, **context: Any) -> str:
    return classified(item, *others, **context).found.state


# What the files show.


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, PENDING),
        ({"problem": "cut short"}, BROKEN),
        ({"has_missing_manifests": True}, BROKEN),
        ({"missing": "a file is gone"}, BROKEN),
        ({"foreign": "elsewhere"}, FOREIGN),
        ({"foreign": "elsewhere", "problem": "cut short"}, FOREIGN),
        ({"known_files": 2}, COMMITTED_LEFTOVER),
        # Compaction and expiration remove the files of a committed checkpoint: missing files are not damage.
        ({"known_files": 2, "missing": "a file is gone"}, COMMITTED_LEFTOVER),
        ({"known_files": 1}, PARTIAL),
        ({"known_files": 1, "missing": "a file is gone"}, PARTIAL),
        ({"ran": True, "run": "r"}, SUPERSEDED),
        ({"ran": True, "run": "r", "known_files": 2}, COMMITTED_LEFTOVER),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_files_decide_first(more: dict[str, Any], expected: str, *, named: bool) -> None:
    assert state(evidence(5, named=named, **more), committed={KEY: 4}) == expected


@pytest.mark.parametrize("number", [3, 4])
def test_files_in_a_snapshot_decide_whatever_the_number(number: int) -> None:
    assert state(evidence(number, known_files=2), committed={KEY: 4}) == COMMITTED_LEFTOVER
    assert state(evidence(number + 9, known_files=2), committed={KEY: 4}) == COMMITTED_LEFTOVER


@pytest.mark.parametrize(
    ("number", "known", "left", "expected"),
    [
        (4, 0, 0, COMMITTED_LEFTOVER),
        (4, 2, 1, COMMITTED_LEFTOVER),
        (4, 0, 1, BROKEN),
        (4, 1, 1, BROKEN),
        (5, 0, 0, BROKEN),
        (5, 2, 1, BROKEN),
    ],
)
def test_missing_manifests_are_not_damage_if_the_checkpoint_was_committed(
    number: int, known: int, left: int, expected: str
) -> None:
    item = evidence(
        number,
        named=True,
        has_missing_manifests=True,
        manifests=(manifest(),) * left,
        known_files=known,
    )

    assert state(item, committed={KEY: 4}) == expected


# What a completed checkpoint's state shows.


def test_what_a_state_names_above_the_committed_number_is_pending() -> None:
    assert state(evidence(5, named=True), committed={KEY: 4}, given={KEY: 6}) == PENDING


def test_what_a_state_names_at_the_committed_number_or_below_is_unproven() -> None:
    for number in (1, 50):
        found = classified(evidence(number, named=True), committed={KEY: 13304}, given={KEY: 50})
        assert (found.found.state, found.doubt) == (UNPROVEN, Doubt.NUMBER)
        assert "13304" in found.found.reason
        assert "counter restarted" in found.found.reason


def test_an_empty_checkpoint_is_pending_until_its_number_is_committed() -> None:
    assert state(empty(5, named=True), committed={KEY: 4}) == PENDING
    assert state(empty(5, named=True), committed={KEY: 5}) == COMMITTED_LEFTOVER


def test_what_the_newest_given_checkpoint_does_not_name_is_superseded_or_unproven() -> None:
    context: dict[str, Any] = {"committed": {KEY: 2}, "given": {KEY: 5}}

    assert state(evidence(4), **context) == SUPERSEDED
    assert state(evidence(5), **context) == SUPERSEDED
    assert classified(evidence(6), **context).doubt is Doubt.LATER
    # Of another operator it says nothing.
    assert state(evidence(4, operator_id="b" * 32), **context) == PENDING


# What is known of attempts and other jobs.


def test_an_older_attempt_is_superseded_by_one_that_wrote_on() -> None:
    old, new = evidence(3), evidence(4, attempt=1)

    assert state(old, new, committed={KEY: 2}) == SUPERSEDED
    assert state(new, old, committed={KEY: 2}) == PENDING
    assert classified(old, new, committed={KEY: 2}).is_superseded


def test_a_newer_attempt_of_another_operator_says_nothing() -> None:
    other = evidence(4, attempt=1, operator_id="b" * 32)

    assert state(evidence(3), other, committed={KEY: 2}) == PENDING


def test_attempts_that_were_numbered_again_are_distinguished_by_their_times() -> None:
    # The job was started again without its state: attempt 0, checkpoint 1.
    before = evidence(13305, attempt=3, written_ms=1000)
    after = evidence(2, attempt=0, written_ms=2000)

    assert state(after, before, committed={KEY: 13304}) == UNPROVEN
    assert state(replace(after, written_ms=500), before, committed={KEY: 13304}) == SUPERSEDED
    assert state(replace(after, written_ms=None), before, committed={KEY: 13304}) == SUPERSEDED


def test_a_job_that_goes_on_from_an_earlier_checkpoint_supersedes() -> None:
    old, new = evidence(4, written_ms=1000), evidence(4, job_id=OTHER, written_ms=2000)

    assert state(old, new, committed={KEY: 3}) == SUPERSEDED
    assert state(new, old, committed={KEY: 3}) == PENDING


@pytest.mark.parametrize(
    "use",
    [
        # It started again, wrote before, continued later, or belongs to another operator.
        CheckpointUse(OTHER, OPERATOR, 1, 2000),
        CheckpointUse(OTHER, OPERATOR, 4, 500),
        CheckpointUse(OTHER, OPERATOR, 5, 2000),
        CheckpointUse(OTHER, "b" * 32, 4, 2000),
    ],
)
def test_other_jobs_do_not(use: CheckpointUse) -> None:
    item = evidence(4, written_ms=1000)

    assert state(item, committed={KEY: 3}, uses=[use]) == PENDING


def test_a_job_does_not_take_over_from_one_that_committed_beyond_its_start() -> None:
    item = evidence(80, written_ms=1000)
    beside = CheckpointUse(OTHER, OPERATOR, 50, 2000)

    assert state(item, committed={KEY: 79}, uses=[beside]) == PENDING
    assert state(item, committed={KEY: 49}, uses=[beside]) == SUPERSEDED


# What remains.


def test_without_a_checkpoint_a_larger_number_is_pending() -> None:
    assert state(evidence(5), committed={KEY: 4}) == PENDING


def test_the_end_of_a_bounded_input_needs_a_word_of_its_own() -> None:
    end = evidence(END_OF_INPUT)

    assert classified(end, committed={KEY: 4}).doubt is Doubt.END
    assert (
        classified(end, committed={KEY: 4}, operator_assertion=(JOB, END_OF_INPUT - 1)).doubt
        is Doubt.END
    )
    assert state(end, committed={KEY: 4}, operator_assertion=(JOB, END_OF_INPUT)) == PENDING
    assert state(replace(end, named=True), committed={KEY: 4}) == PENDING


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("since", "written", "committed", "doubt"),
    [
        (None, 1000, {}, None),
        (None, None, {}, None),
        (999, 1001, {}, None),
        (1001, 1001, {}, None),
        (1002, 1001, {}, Doubt.HISTORY),
        (1002, 1001, {KEY: 4}, Doubt.HISTORY),
        # A time in whole seconds may be any of that second.
        (1999, 1000, {}, None),
        (2000, 1000, {}, Doubt.HISTORY),
        (1, None, {}, Doubt.HISTORY),
    ],
)
def test_history_must_reach_back_to_the_manifest(
    since: int | None,
    written: int | None,
    committed: dict[Any, int],
    doubt: Doubt | None,
    *,
    named: bool,
) -> None:
    item = evidence(5, written_ms=written, named=named)

    found = classified(item, committed=committed, retained_since_ms=since)

    assert found.doubt is doubt
    assert found.found.state == (PENDING if doubt is None else UNPROVEN)


# What holds of every judgement.

_KEYS = [(JOB, OPERATOR), (JOB, "b" * 32), (OTHER, OPERATOR)]


@st.composite
def items(draw: st.DrawFn) -> Evidence:
    job_id, operator_id = draw(st.sampled_from(_KEYS))
    files = draw(st.integers(0, 3))
    return Evidence(
        job_id=job_id,
        operator_id=operator_id,
        checkpoint_id=draw(st.integers(1, 8) | st.just(END_OF_INPUT)),
        attempt=draw(st.none() | st.integers(0, 2)),
        manifests=(manifest(files),) if files else (),
        named=draw(st.booleans()),
        written_ms=draw(st.none() | st.integers(0, 50)),
        problem=draw(st.sampled_from([None, None, "p"])),
        has_missing_manifests=draw(st.sampled_from([False, False, True])),
        foreign=draw(st.sampled_from([None, None, "f"])),
        known_files=draw(st.integers(0, files)),
        missing=draw(st.sampled_from([None, None, "m"])),
    )


@st.composite
def surroundings(draw: st.DrawFn) -> ClassificationContext:
    numbers = st.dictionaries(st.sampled_from(_KEYS), st.integers(1, 8))
    return ClassificationContext(
        committed=draw(numbers),
        given=draw(numbers),
        operator_assertion=draw(
            st.none() | st.tuples(st.sampled_from([JOB, OTHER]), st.integers(0, 9))
        ),
        retained_since_ms=draw(st.none() | st.integers(0, 50)),
    )


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(items(), max_size=8), surroundings())
def test_no_judgement_commits_what_snapshots_have(
    found: list[Evidence], context: ClassificationContext
) -> None:
    result = classify(found, context)

    assert len(result) == len(found)
    for one in result:
        item, verdict = one.evidence, one.found
        if item.known_files:
            assert verdict.state in {COMMITTED_LEFTOVER, PARTIAL, BROKEN, FOREIGN}
        if verdict.state in {PENDING, UNPROVEN}:
            assert (item.problem, item.foreign, item.missing, item.has_missing_manifests) == (
                None,
                None,
                None,
                False,
            )
        if verdict.state == PENDING:
            assert item.checkpoint_id > context.committed_by(item.job)
        assert (one.doubt is not None) == (verdict.state == UNPROVEN)
        assert verdict.reason
    keys = [(one.evidence.job, one.found.checkpoint_id) for one in result]
    assert keys == sorted(keys)


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(
        items(), max_size=8, unique_by=lambda item: (item.job, item.checkpoint_id, item.attempt)
    ),
    surroundings(),
    st.randoms(),
)
def test_the_order_in_which_things_are_found_changes_nothing(
    found: list[Evidence], context: ClassificationContext, shuffle: random.Random
) -> None:
    expected = {id(one.evidence): (one.found.state, one.doubt) for one in classify(found, context)}
    mixed = list(found)
    shuffle.shuffle(mixed)

    result = classify(mixed, context)

    assert {id(one.evidence): (one.found.state, one.doubt) for one in result} == expected


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(items(), max_size=8), surroundings(), st.integers(1, 10**9).map(lambda n: n * 1000))
def test_only_the_distance_of_times_matters(
    found: list[Evidence], context: ClassificationContext, shift: int
) -> None:
    def later(moment: int | None) -> int | None:
        return None if moment is None else moment + shift

    moved = [replace(item, written_ms=later(item.written_ms)) for item in found]
    then = replace(context, retained_since_ms=later(context.retained_since_ms))

    before = [(one.found.state, one.found.reason) for one in classify(found, context)]
    assert [(one.found.state, one.found.reason) for one in classify(moved, then)] == before
