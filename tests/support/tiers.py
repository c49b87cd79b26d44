"""Tiers of tests: which ones a call of pytest runs by default, and which tier a test belongs to.

A test belongs to the quick tier unless a marker says otherwise. The other tiers need a JDK, servers or minutes; the
tier of cases has those of a test with parameters but the first, which is quick. Markers follow from the folder of a
test and from its parameters (`mark`); a test that uses Spark or Java without a parameter that says so is marked in
its file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import is_hypothesis_test

T = TypeVar("T")
QUICK, CASES = "quick", "cases"
# A test with markers of several tiers is counted in the first one.
OTHERS = ("slow", "cluster", "services", "java", "simulation", "spark", CASES)
ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
# Whether tests of kills, races and combinations of options try all of their cases.
EVERY_POINT = bool(os.environ.get("LAKE_EVERY_POINT"))
# The properties of a report with the seconds of processor time of the test and of its processes, and those allowed.
CPU_SECONDS, CPU_SECONDS_ALLOWED = "cpu_seconds", "cpu_seconds_allowed"
# A test of the quick tier with more of them is named at the end of a run. It does not fail: even this time doubles
# on a busy machine.
_QUICK_CPU_SECONDS = 6.0
# Long searches, and CI, try this many times the examples that a property test tries elsewhere, and CI no fewer than
# the second of these numbers, elsewhere the first.
_MORE_EXAMPLES, _MORE_ON_CI = 10, 2
_FEWEST_EXAMPLES, _FEWEST_ON_CI = 5, 10

_TESTS = Path(__file__).parents[1]
_FOLDERS = {
    "cluster": "cluster",
    "services": "services",
    "java": "java",
    "world": "simulation",
    "hostile": "simulation",
}


def examples(count: int) -> int:
    """Return how many examples a property test tries: ``count`` in long searches, less on CI and least elsewhere."""
    fewest = _FEWEST_ON_CI if ON_CI else _FEWEST_EXAMPLES
    return max(min(count, fewest), count * _times_the_examples() // _MORE_EXAMPLES)


def _times_the_examples() -> int:
    """Return how many times the fewest examples a property test tries."""
    if "LAKE_SOAK" in os.environ:
        return _MORE_EXAMPLES
    return _MORE_ON_CI if ON_CI else 1


def chosen(everyday: Sequence[T], every: Sequence[T]) -> Sequence[T]:
    """Return the cases of a test: ``every`` one with ``LAKE_EVERY_POINT=1``, else the ``everyday`` ones."""
    return every if EVERY_POINT else everyday


def in_turn(cases: Iterable[tuple[Any, ...]], others: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
    """Return cases of a test, each with one of the others in turn; all pairs with ``LAKE_EVERY_POINT=1``."""
    every = list(cases)
    turns = [(*case, others[number % len(others)]) for number, case in enumerate(every)]
    return chosen(turns, [(*case, other) for case in every for other in others])


def is_whole_run(config: pytest.Config) -> bool:
    """Return whether a call names no test, or the whole folder of tests."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return True
    given = {Path(config.invocation_params.dir, argument).resolve() for argument in config.args}
    return given <= {_TESTS, _TESTS.parent}


def default_selection(config: pytest.Config) -> str:
    """Return the marker expression of a call that has none.

    A whole run consists of the quick tier. A call that names files or folders runs all of them but slow tests,
    and one that names a test (``file::test``) runs it, whatever its tier.
    """
    if is_whole_run(config):
        return QUICK
    return "" if any("::" in argument for argument in config.args) else "not slow"


def mark(items: Iterable[pytest.Item]) -> None:
    """Add the markers of tiers: of a test with parameters, the first case that needs nothing is a quick one."""
    begun: set[str] = set()
    for item in items:
        folder = item.path.relative_to(_TESTS).parts[0]
        if folder in _FOLDERS:
            item.add_marker(_FOLDERS[folder])
        if _uses_spark(item):
            item.add_marker("spark")
        if tier_of(item) == QUICK:
            test = item.nodeid.partition("[")[0]
            # The files beside the folders check the project itself: each of their cases is one of its parts.
            further = test in begun and item.path.parent != _TESTS
            item.add_marker(CASES if further else QUICK)
            begun.add(test)


def _uses_spark(item: pytest.Item) -> bool:
    if "spark" in getattr(item, "fixturenames", ()):
        return True
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "spark" in [
        value for value in callspec.params.values() if isinstance(value, str)
    ]


def tier_of(item: pytest.Item) -> str:
    """Return the tier in which a test is counted."""
    return next((name for name in OTHERS if item.get_closest_marker(name)), QUICK)


def needs_java(item: pytest.Item) -> bool:
    """Return whether a test may start Java."""
    return tier_of(item) not in {QUICK, CASES}


def unit_of(file: str) -> str:
    """Return what one process runs as a whole: a file, or all files of the Spark cluster.

    Each process that has a test of the cluster starts one.
    """
    folder = os.path.dirname(file)
    return folder if os.path.basename(folder) == "cluster" else file


def cpu_seconds_allowed(item: pytest.Item) -> float:
    """Return how much processor time a test may take; more where a property test tries more `examples`."""
    test, module = getattr(item, "obj", None), getattr(item, "module", None)
    has_more = is_hypothesis_test(test) and getattr(module, "examples", None) is examples
    return _QUICK_CPU_SECONDS * (_times_the_examples() if has_more else 1)


def expensive(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return a line for each test that takes too much of the processor for the quick tier."""
    named = []
    for report in reports:
        used = {name: value for name, value in report.user_properties if isinstance(value, float)}
        seconds = used.get(CPU_SECONDS, 0.0)
        if seconds > used.get(CPU_SECONDS_ALLOWED, _QUICK_CPU_SECONDS):
            named.append(
                f"{report.nodeid} took {seconds:.1f} s of the processor: make it cheaper, or mark it as slow"
            )
    return named


def counts_of(items: Iterable[pytest.Item]) -> Counter[str]:
    """Return the number of tests in each tier."""
    return Counter(tier_of(item) for item in items)


def report_of(left_out: Counter[str]) -> list[str]:
    """Return the lines that say which tests did not run and how to run them."""
    if not left_out:
        return []
    counts = [f"{left_out[name]:,} {name}" for name in (QUICK, *OTHERS) if left_out[name]]
    lines = [f"not run: {left_out.total():,} tests ({', '.join(counts)})"]
    if left_out[QUICK]:
        return [*lines, "run all tests: pytest -m ''"]
    names = [name for name in OTHERS if left_out[name]]
    wanted = " or ".join(names) if len(names) < len(OTHERS) else f"not {QUICK}"
    return [*lines, f"run them: pytest -m '{wanted}'; run all tests: pytest -m ''"]
