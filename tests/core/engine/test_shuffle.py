"""Exchanges of every kind, judged by a model: all that was sent, by reducer, in the tasks' order."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.faults import engine_drill as drill
from support.tiers import examples

from lake.core.base.errors import CorruptFileError, EngineError, NotFoundError
from lake.core.base.progress import Meter
from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.tasks import Engine, MapFunction, ReduceFunction, Task
from lake.core.io.storage.storage import Storage

Sent = list[list[tuple[int, str]]]


@pytest.fixture
def shuffle(spark: SparkEngine) -> Engine:
    """An engine that exchanges through Spark's shuffle, as a cluster does."""
    return cast(
        "Engine", SimpleNamespace(exchange=partial(spark._shuffle, meter=Meter("exchanging")))
    )


@pytest.fixture(params=["inline", "spark", pytest.param("shuffle", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(request.param)
    return found


def exchange(
    engine: Engine,
    payloads: list[dict[str, Any]],
    reducers: int,
    *,
    send: MapFunction = drill.send,
    receive: ReduceFunction = drill.receive,
    parts: int = 1,
) -> dict[int, Any]:
    results = list(
        engine.exchange(
            [Task(payload) for payload in payloads],
            send,
            receive,
            [{"r": number} for number in range(reducers)],
            storage=Storage(),
            parts=parts,
        )
    )
    assert len({result.task for result in results}) == len(results)
    return {result.task: result.value for result in results}


def model(sent: Sent, parts: int = 1) -> dict[int, Any]:
    received: dict[int, Any] = {}
    every = [blob for blobs in sent for blob in blobs]
    for slot, text in sorted(every, key=itemgetter(0)):
        reducer = slot // parts
        value = received.setdefault(reducer, {"payload": {"r": reducer}, "texts": []})
        value["texts"].append(text)
    return received


@st.composite
def _sent(draw: st.DrawFn, most: int = 40) -> tuple[Sent, int, int]:
    reducers, parts = draw(st.integers(1, most)), draw(st.integers(1, 3))
    blob = st.tuples(st.integers(0, reducers * parts - 1), st.text(max_size=5))
    return draw(st.lists(st.lists(blob, max_size=12), max_size=6)), reducers, parts


def check(engine: Engine, sent: Sent, reducers: int, parts: int = 1) -> None:
    payloads = [{"n": number, "blobs": blobs} for number, blobs in enumerate(sent)]
    assert exchange(engine, payloads, reducers, parts=parts) == model(sent, parts)


@given(case=_sent())
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_inline_reducers_get_what_was_sent_to_them(
    inline: Engine, case: tuple[Sent, int, int]
) -> None:
    check(inline, *case)


# Spark takes long for a reducer.
@given(case=_sent(most=8))
@settings(
    max_examples=examples(4),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_spark_reducers_get_what_was_sent_to_them(
    spark: Engine, shuffle: Engine, case: tuple[Sent, int, int]
) -> None:
    check(spark, *case)
    check(shuffle, *case)


def test_many_reducers_share_partitions(engine: Engine) -> None:
    sent = [[(number % 300, f"{task}-{number}") for number in range(600)] for task in range(3)]

    check(engine, sent, 300)


def test_a_reducer_gets_the_blobs_of_all_tasks_slot_by_slot(engine: Engine) -> None:
    sent = [[(slot, f"{task}-{slot}") for slot in (5, 1, 0, 4, 1)] for task in range(3)]

    check(engine, sent, 2, parts=3)


def test_each_task_sends_once(engine: Engine, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    payloads = [
        {"n": number, "blobs": [[r, "x"] for r in range(8)], "calls": str(calls)}
        for number in range(5)
    ]

    exchange(engine, payloads, 8)

    assert sorted(calls.read_text().split()) == ["0", "1", "2", "3", "4"]


def test_a_reducer_may_leave_blobs_unread(engine: Engine) -> None:
    blobs = [[0, "a"], [0, "b"], [1, "c"], [1, "d"]]

    received = exchange(engine, [{"n": 0, "blobs": blobs}], 2, receive=drill.receive_first)

    assert received == {0: {"first": "a"}, 1: {"first": "c"}}


def test_megabytes_pass_through(engine: Engine) -> None:
    payload = {"count": 12, "reducers": 3, "bytes": 5_000_000}

    received = exchange(engine, [payload, payload], 3, send=drill.send_much, receive=drill.measure)

    assert received == {number: {"bytes": 40_000_000} for number in range(3)}


def test_an_error_while_sending_reduces_nothing(engine: Engine) -> None:
    payloads = [
        {"n": 0, "blobs": [[r, "x"] for r in range(4)]},
        {"n": 1, "class": "NotFoundError", "message": "no such source"},
    ]
    results = engine.exchange(
        [Task(payload) for payload in payloads],
        drill.send,
        drill.receive,
        [{}] * 4,
        storage=Storage(),
    )

    with pytest.raises(NotFoundError, match="no such source"):
        next(results)


def test_an_error_while_reducing_keeps_its_class(engine: Engine) -> None:
    with pytest.raises(CorruptFileError) as caught:
        exchange(engine, [{"n": 0, "blobs": [[0, "x"]]}], 1, receive=drill.fail_reducer)

    assert caught.value.hint == "look"


def test_sending_to_a_reducer_that_is_not_there_is_a_defect(engine: Engine) -> None:
    with pytest.raises(EngineError, match="reducer 2 of 2"):
        exchange(engine, [{"n": 0, "blobs": [[8, "x"]]}], 2, parts=4)


def test_an_exchange_of_nothing_gives_nothing(engine: Engine) -> None:
    assert exchange(engine, [], 3) == {}
    assert exchange(engine, [{"n": 0, "blobs": []}], 3) == {}


def test_spark_computes_the_shuffle_once_for_all_its_jobs(shuffle: Engine, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    blobs = [[r, "x"] for r in range(32)]

    received = exchange(shuffle, [{"n": 7, "blobs": blobs, "calls": str(calls)}], 32)

    assert len(received) == 32
    assert calls.read_text().split() == ["7"]


def test_no_file_of_an_exchange_is_left_on_this_machine(spark: SparkEngine) -> None:
    payload = {"n": 0, "blobs": [[0, "x"], [1, "y"]]}

    exchange(spark, [payload, payload], 2)
    with pytest.raises(CorruptFileError):
        exchange(spark, [payload], 2, receive=drill.fail_reducer)

    assert spark._launch
    assert not list(spark._launch.folder.glob("exchange-*"))
