"""Tiers of tests: CI runs all of them, a call that leaves some out reports it, and every marker is a tier."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiers

ROOT = Path(__file__).parent.parent


def call(*arguments: str) -> Any:
    """Return the configuration of a call of pytest in the root."""
    source = pytest.Config.ArgsSource.ARGS if arguments else pytest.Config.ArgsSource.TESTPATHS
    return SimpleNamespace(
        args=list(arguments) or ["tests"],
        args_source=source,
        invocation_params=SimpleNamespace(dir=ROOT),
    )


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        ((), "quick"),
        (("tests",), "quick"),
        (("tests/java",), "not slow"),
        (("tests/core/test_units.py", "tests/cli"), "not slow"),
        (("tests/core/transaction/commit/test_pairs.py::test_pairs",), ""),
    ],
)
def test_a_call_without_paths_runs_the_quick_tier_and_one_with_paths_more(
    arguments: tuple[str, ...], selection: str
) -> None:
    assert tiers.default_selection(call(*arguments)) == selection
    assert tiers.is_whole_run(call(*arguments)) == (selection == "quick")


def test_ci_runs_the_quick_tier_and_then_every_other_test() -> None:
    lines = (ROOT / ".ci/run").read_text()

    assert ".venv/bin/pytest || failed+=(quick)\n" in lines
    assert "\n.venv/bin/pytest -m 'not quick' || failed+=(tests)\n" in lines


def test_every_marker_is_a_tier() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]

    names = [marker.partition(":")[0] for marker in options["markers"]]
    assert sorted(names) == sorted([tiers.QUICK, *tiers.OTHERS])


def test_the_report_counts_what_did_not_run_and_names_the_commands() -> None:
    some = tiers.report_of(Counter({"java": 1200, "slow": 3}))
    every = tiers.report_of(Counter(dict.fromkeys(tiers.OTHERS, 2)))

    assert some == [
        "not run: 1,203 tests (3 slow, 1,200 java)",
        "run them: pytest -m 'slow or java'; run all tests: pytest -m ''",
    ]
    assert every[-1] == "run them: pytest -m 'not quick'; run all tests: pytest -m ''"
    assert tiers.report_of(Counter()) == []


def test_a_run_of_the_quick_tier_names_its_expensive_tests() -> None:
    def report(name: str, seconds: float, allowed: float = 6.0) -> pytest.TestReport:
        used = [(tiers.CPU_SECONDS, seconds), (tiers.CPU_SECONDS_ALLOWED, allowed)]
        return pytest.TestReport(
            name, ("", 0, name), {}, "passed", None, "call", user_properties=used
        )

    assert tiers.expensive([report("a", 5.9), report("b", 7.25), report("c", 7.25, 30.0)]) == [
        "b took 7.2 s of the processor: make it cheaper, or mark it as slow"
    ]


@given(st.none())
def property_test(_nothing: None) -> None:
    """Stand for a property test."""


@pytest.mark.parametrize(
    ("on_ci", "test", "module", "allowed"),
    [
        (True, property_test, {"examples": tiers.examples}, 12.0),
        (True, property_test, {}, 6.0),
        (True, call, {"examples": tiers.examples}, 6.0),
        (False, property_test, {"examples": tiers.examples}, 6.0),
    ],
)
def test_a_property_test_may_take_longer_where_it_tries_more_examples(
    on_ci: bool,
    test: object,
    module: dict[str, object],
    allowed: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAKE_SOAK", raising=False)
    monkeypatch.setattr(tiers, "ON_CI", on_ci)
    item: Any = SimpleNamespace(obj=test, module=SimpleNamespace(**module))

    assert tiers.cpu_seconds_allowed(item) == allowed


def test_property_tests_try_more_examples_on_ci_and_every_one_in_long_searches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LAKE_SOAK", raising=False)
    monkeypatch.setattr(tiers, "ON_CI", False)
    assert [tiers.examples(count) for count in (6, 30, 60, 300)] == [6, 10, 12, 60]

    monkeypatch.setattr(tiers, "ON_CI", True)
    assert [tiers.examples(count) for count in (6, 30, 60, 300)] == [6, 12, 24, 120]

    monkeypatch.setenv("LAKE_SOAK", "1")
    assert [tiers.examples(count) for count in (6, 300)] == [6, 300]
