"""What holds for every engine."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from lake.core.engine.inline import InlineEngine
from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.tasks import Engine, Task, TaskResult
from lake.core.errors import CorruptFileError, EngineError, LakeError, NotFoundError, RefusedError
from lake.core.settings import Settings
from lake.core.storage.storage import Storage

DRILL = "lake.core.drill:"
CANARY = "canary-8f3a6c1b"


def run(
    engine: Engine, function: str, *payloads: dict[str, Any], storage: Storage | None = None
) -> list[TaskResult]:
    tasks = [Task(payload) for payload in payloads]
    return list(engine.run(tasks, DRILL + function, storage=storage or Storage()))


def test_every_value_of_every_task_comes_back_in_the_tasks_order(engine: Engine) -> None:
    results = run(engine, "twice", *({"n": n} for n in range(7)))

    for number in range(7):
        values = [result.value for result in results if result.task == number]
        assert [value["n"] for value in values] == [number, number]


def test_many_small_tasks_come_back_once_each(engine: Engine) -> None:
    results = run(engine, "twice", *({"n": n} for n in range(500)))

    assert sorted(result.task for result in results) == sorted([*range(500), *range(500)])


def test_no_tasks_give_no_results(engine: Engine) -> None:
    assert run(engine, "twice") == []


def test_attempts_never_repeat_within_an_engine(engine: Engine) -> None:
    attempts = [
        result.value["attempt"]
        for _ in range(2)
        for result in run(engine, "twice", {"n": 1}, {"n": 2})
        if "attempt" in result.value
    ]

    assert len(set(attempts)) == len(attempts) == 4


def test_results_come_before_the_last_task_has_ended(engine: Engine, tmp_path: Path) -> None:
    release = tmp_path / "release"
    tasks = [Task({"file": str(release)}), Task({})]
    results = engine.run(tasks, DRILL + "wait_for", storage=Storage())

    # If results came at the end only, this would wait for a file that nobody makes.
    assert next(results).task == 1
    release.touch()
    assert [result.task for result in results] == [0]


@pytest.mark.parametrize("kind", [CorruptFileError, NotFoundError, RefusedError])
def test_an_error_of_lakes_keeps_class_message_and_hint(
    engine: Engine, kind: type[LakeError]
) -> None:
    payload = {"class": kind.__name__, "message": "bytes 4 to 8", "hint": "restore it"}

    with pytest.raises(kind) as caught:
        run(engine, "fail", {}, payload, {})

    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("bytes 4 to 8", "restore it")


def test_an_engine_works_on_after_an_error(engine: Engine) -> None:
    with pytest.raises(RefusedError):
        run(engine, "fail", {"class": "RefusedError", "message": "no"})

    assert [result.value for result in run(engine, "fail", {}, {})] == [{"fine": True}] * 2


def test_other_exceptions_are_raised_as_they_are_in_this_process(inline: InlineEngine) -> None:
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run(inline, "fail", {"raise": "a defect"})


def test_other_exceptions_on_spark_are_told_with_their_trace(spark: SparkEngine) -> None:
    with pytest.raises(EngineError, match="ZeroDivisionError: a defect") as caught:
        run(spark, "fail", {"raise": "a defect"})

    assert "engine_drill.py" in "".join(caught.value.__notes__)


def test_a_result_that_json_cannot_hold_is_a_defect_of_its_task(engine: Engine) -> None:
    with pytest.raises((TypeError, EngineError), match="not JSON serializable"):
        run(engine, "unspeakable", {})


@pytest.mark.parametrize(
    "name", ["os:getcwd", "lake.cli.main:main", "lake.core.nothing:here", "lake.core.units:x", ""]
)
def test_only_functions_of_the_core_are_run(engine: Engine, name: str) -> None:
    with pytest.raises(EngineError, match="task function"):
        list(engine.run([Task({})], name, storage=Storage()))


def test_tasks_are_given_the_storages_properties(engine: Engine) -> None:
    storage = Storage({"s3.secret-access-key": CANARY})

    (result,) = run(engine, "secrets", {"key": "s3.secret-access-key"}, storage=storage)

    assert result.value == {"length": len(CANARY)}


def test_a_secret_in_a_tasks_exception_is_masked(spark: SparkEngine) -> None:
    storage = Storage({"s3.secret-access-key": CANARY})

    with pytest.raises(EngineError, match="the server said") as caught:
        run(spark, "leak", {"key": "s3.secret-access-key"}, storage=storage)

    assert CANARY not in str(caught.value) + "".join(caught.value.__notes__)


def test_closing_the_results_ends_the_tasks(engine: Engine, tmp_path: Path) -> None:
    tasks = [Task({}), *(Task({"file": str(tmp_path / "never")}) for _ in range(3))]
    results = engine.run(tasks, DRILL + "wait_for", storage=Storage())
    next(results)

    results.close()  # type: ignore[attr-defined]

    assert run(engine, "twice", {"n": 1})


def test_nothing_is_written_after_the_results_were_closed(engine: Engine, tmp_path: Path) -> None:
    tasks = [Task({"folder": str(tmp_path), "n": n}) for n in range(2)]
    results = engine.run(tasks, DRILL + "write_on", storage=Storage())
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
            run(engine, "twice", {"n": 1})
