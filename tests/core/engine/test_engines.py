"""What holds for every engine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support.faults import engine_drill as drill

from lake.core.base.errors import (
    CorruptFileError,
    EngineError,
    LakeError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.settings import Settings
from lake.core.data.sorting.range_partitioning import SampledKeys
from lake.core.engine.inline import InlineEngine
from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.task_functions import echo, resolve
from lake.core.engine.tasks import Engine, Task, TaskFunction, TaskResult
from lake.core.io.storage.storage import Storage

CANARY = "canary-8f3a6c1b"


def run(
    engine: Engine,
    function: TaskFunction,
    *payloads: dict[str, Any],
    storage: Storage | None = None,
) -> list[TaskResult]:
    tasks = [Task(payload) for payload in payloads]
    return list(engine.run(tasks, function, storage=storage or Storage()))


def test_every_value_of_every_task_comes_back_in_the_tasks_order(engine: Engine) -> None:
    results = run(engine, drill.twice, *({"n": n} for n in range(7)))

    for number in range(7):
        values = [result.value for result in results if result.task == number]
        assert [value["n"] for value in values] == [number, number]


def test_many_small_tasks_come_back_once_each(engine: Engine) -> None:
    results = run(engine, drill.twice, *({"n": n} for n in range(500)))

    assert sorted(result.task for result in results) == sorted([*range(500), *range(500)])


def test_no_tasks_give_no_results(engine: Engine) -> None:
    assert run(engine, drill.twice) == []


def test_attempts_never_repeat_within_an_engine(engine: Engine) -> None:
    attempts = [
        result.value["attempt"]
        for _ in range(2)
        for result in run(engine, drill.twice, {"n": 1}, {"n": 2})
        if "attempt" in result.value
    ]

    assert len(set(attempts)) == len(attempts) == 4


def test_results_come_before_the_last_task_has_ended(engine: Engine, tmp_path: Path) -> None:
    release = tmp_path / "release"
    tasks = [Task({"file": str(release)}), Task({})]
    results = engine.run(tasks, drill.wait_for, storage=Storage())

    # If results came at the end only, this would wait for a file that is never made.
    assert next(results).task == 1
    release.touch()
    assert [result.task for result in results] == [0]


@pytest.mark.parametrize("kind", [CorruptFileError, NotFoundError, RefusedError])
def test_an_error_of_lakes_keeps_class_message_and_hint(
    engine: Engine, kind: type[LakeError]
) -> None:
    payload = {"class": kind.__name__, "message": "bytes 4 to 8", "hint": "restore it"}

    with pytest.raises(kind) as caught:
        run(engine, drill.fail, {}, payload, {})

    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("bytes 4 to 8", "restore it")


def test_an_engine_works_on_after_an_error(engine: Engine) -> None:
    with pytest.raises(RefusedError):
        run(engine, drill.fail, {"class": "RefusedError", "message": "no"})

    assert [result.value for result in run(engine, drill.fail, {}, {})] == [{"fine": True}] * 2


def test_other_exceptions_are_raised_as_they_are_in_this_process(inline: InlineEngine) -> None:
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run(inline, drill.fail, {"raise": "a defect"})


def test_other_exceptions_on_spark_are_reported_with_their_trace(spark: SparkEngine) -> None:
    with pytest.raises(EngineError, match="ZeroDivisionError: a defect") as caught:
        run(spark, drill.fail, {"raise": "a defect"})

    assert "engine_drill.py" in "".join(caught.value.__notes__)


def test_a_result_that_json_cannot_hold_is_a_defect_of_its_task(engine: Engine) -> None:
    with pytest.raises((TypeError, EngineError), match="not JSON serializable"):
        run(engine, drill.unspeakable, {})


def test_results_are_rebuilt_as_the_type_that_the_function_yields(engine: Engine) -> None:
    results = run(engine, drill.report, {"n": 3}, {"n": 4})

    expected = [TaskResult(n, SampledKeys(rows=n + 3, keys=[bytes([n + 3])])) for n in (0, 1)]
    assert sorted(results, key=lambda result: result.task) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": 1, "extra": 2}, "misreport returned unknown fields: extra"),
        ({"keys": ["AA=="]}, "misreport returned an invalid SampledKeys: TypeError"),
        ({"rows": 1, "keys": [5]}, "misreport returned an invalid SampledKeys: TypeError"),
    ],
)
def test_results_of_another_shape_are_refused(
    inline: InlineEngine, value: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        run(inline, drill.misreport, {"value": value})


def _outside(payload: Any, context: Any) -> Any:
    """A function of a test's module."""


def _nested() -> TaskFunction:
    def function(payload: Any, context: Any) -> Any:
        """Have a name that no worker can import."""

    function.__module__ = drill.__name__
    return function


def _renamed(payload: Any, context: Any) -> Any:
    """Have the name of another function of the core."""


_renamed.__module__, _renamed.__qualname__ = echo.__module__, echo.__qualname__


@pytest.mark.parametrize("function", [_outside, _nested(), _renamed])
def test_only_functions_that_workers_can_import_from_the_core_are_run(
    engine: Engine, function: TaskFunction
) -> None:
    with pytest.raises(EngineError, match="task function"):
        list(engine.run([Task({})], function, storage=Storage()))


@pytest.mark.parametrize(
    "name",
    ["os:getcwd", "lake.cli.main:main", "lake.core.nothing:here", "lake.core.base.units:x", ""],
)
def test_a_name_selects_only_functions_of_the_core(name: str) -> None:
    with pytest.raises(EngineError, match="task function"):
        resolve(name)


def test_tasks_are_given_the_storages_properties(engine: Engine) -> None:
    storage = Storage({"s3.secret-access-key": CANARY})

    (result,) = run(engine, drill.secrets, {"key": "s3.secret-access-key"}, storage=storage)

    assert result.value == {"length": len(CANARY)}


def test_a_secret_in_a_tasks_exception_is_masked(spark: SparkEngine) -> None:
    storage = Storage({"s3.secret-access-key": CANARY})

    with pytest.raises(EngineError, match="the server said") as caught:
        run(spark, drill.leak, {"key": "s3.secret-access-key"}, storage=storage)

    assert CANARY not in str(caught.value) + "".join(caught.value.__notes__)


def test_closing_the_results_ends_the_tasks(engine: Engine, tmp_path: Path) -> None:
    tasks = [Task({}), *(Task({"file": str(tmp_path / "never")}) for _ in range(3))]
    results = engine.run(tasks, drill.wait_for, storage=Storage())
    next(results)

    results.close()  # type: ignore[attr-defined]

    assert run(engine, drill.twice, {"n": 1})


def test_nothing_is_written_after_the_results_were_closed(engine: Engine, tmp_path: Path) -> None:
    tasks = [Task({"folder": str(tmp_path), "n": n}) for n in range(2)]
    results = engine.run(tasks, drill.write_on, storage=Storage())
    next(results)
    while not list(tmp_path.iterdir()):
        threading.Event().wait(0.05)

    results.close()  # type: ignore[attr-defined]

    sizes = {path: path.stat().st_size for path in tmp_path.iterdir()}
    threading.Event().wait(0.3)
    assert {path: path.stat().st_size for path in tmp_path.iterdir()} == sizes


def test_a_stopped_engine_refuses_tasks() -> None:
    for engine in (InlineEngine(1), SparkEngine(Settings())):
        engine.stop()
        engine.stop()
        with pytest.raises(EngineError, match="stopped"):
            run(engine, drill.twice, {"n": 1})
