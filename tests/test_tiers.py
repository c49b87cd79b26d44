"""Tiers of tests: CI runs all of them, a call that leaves some out reports it, and every marker is a tier."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import seconds, tiers

ROOT = Path(__file__).parent.parent


def call(*arguments: str) -> Any:
    """Return the configuration of a call of pytest in the root."""
    source = pytest.Config.ArgsSource.ARGS if arguments else pytest.Config.ArgsSource.TESTPATHS
    return SimpleNamespace(
        args=list(arguments) or ["tests"],
        args_source=source,
        invocation_params=SimpleNamespace(dir=ROOT),
    )


class Item:
    """A collected test."""

    def __init__(self, nodeid: str, *markers: str, obj: object = None) -> None:
        self.nodeid, self.path, self.obj = nodeid, ROOT / nodeid.partition("::")[0], obj
        self.markers = list(markers)

    def add_marker(self, name: str) -> None:
        self.markers.append(name)

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers


def test_the_quick_tier_has_the_first_case_that_needs_nothing_of_each_test() -> None:
    items: Any = [
        Item("tests/core/a.py::test_one"),
        Item("tests/core/a.py::test_two[a]", "spark"),
        Item("tests/core/a.py::test_two[b]"),
        Item("tests/core/a.py::test_two[c]"),
        Item("tests/core/b.py::test_two[c]", obj=property_test),
        Item("tests/commands/b.py::test_two[c]", obj=property_test),
        Item("tests/java/c.py::test_three[a]"),
        Item("tests/java/c.py::test_three[b]"),
        Item("tests/test_d.py::test_four[a]"),
        Item("tests/test_d.py::test_four[b]"),
    ]

    tiers.mark(items)

    assert [item.markers for item in items] == [
        ["quick"],
        ["spark"],
        ["quick"],
        ["cases"],
        ["quick"],
        ["cases"],
        ["java"],
        ["java"],
        ["quick"],
        ["quick"],
    ]
    assert [tiers.needs_java(item) for item in items] == [
        *[False, True, False, False, False, False],
        *[True, True, False, False],
    ]


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
    text = (ROOT / ".ci/run").read_text()

    assert " && .venv/bin/pytest\n}\n" in text
    assert "\nothers() {\n    .venv/bin/pytest -m 'not quick'\n}\n" in text
    assert text.index("\nstep quick\n") < text.index("\nstep others\n")


def test_ci_prints_the_seconds_of_each_step_and_fails_if_one_does(tmp_path: Path) -> None:
    text = (ROOT / ".ci/run").read_text()
    steps = re.findall(r"^(\w+)\(\) \{\n(.*?)\n\}\n", text, re.M | re.S)
    names = [name for name, _ in steps if name != "step"]
    for name, body in steps:
        if name != "step":
            text = text.replace(body, f"    {'false' if name in {'soak', 'types'} else 'true'}")
    script = tmp_path / "ci" / "run"
    script.parent.mkdir()
    script.write_text(text[: text.index("if ! compgen")] + text[text.index("# Runs a function") :])

    done = subprocess.run(["bash", script], capture_output=True, text=True, check=False)

    printed = re.findall(r"^(\w+) +\d+ s$", done.stdout, re.M)
    assert (sorted(printed[:-1]), printed[-1]) == (sorted(names), "all")
    assert (done.returncode, done.stderr) == (1, "failed: types soak\n")


def test_the_record_of_seconds_has_one_line_for_each_file() -> None:
    found = seconds.recorded()

    assert seconds.text_of(found) == seconds.RECORD.read_text()
    assert {tier for by_tier in found.values() for tier in by_tier} <= {tiers.QUICK, *tiers.OTHERS}


def item_of(nodeid: str, *, slow: bool = False) -> Any:
    return SimpleNamespace(
        nodeid=nodeid, get_closest_marker=lambda name: slow if name == "slow" else None
    )


def test_the_longest_files_come_first_and_those_without_a_record_before_them() -> None:
    record = {
        "t/a.py": {"quick": 1, "slow": 90},
        "t/b.py": {"quick": 2},
        "t/cluster/c.py": {"quick": 1},
        "t/cluster/d.py": {"quick": 2},
        "t/e.py": {"quick": 0},
    }
    items = [item_of(f"{file}::test") for file in (*record, "t/new.py")]
    slow = [item_of("t/b.py::test"), item_of("t/a.py::test", slow=True)]

    seconds.longest_first(items, record)
    seconds.longest_first(slow, record)

    named = [item.nodeid.removesuffix(".py::test").rpartition("/")[2] for item in items]
    assert named == ["new", "c", "d", "b", "a", "e"]
    assert [item.nodeid for item in slow] == ["t/a.py::test", "t/b.py::test"]


def test_a_run_reports_and_records_the_seconds_of_its_files_by_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(nodeid: str, tier: str, spent: float) -> pytest.TestReport:
        return pytest.TestReport(
            nodeid,
            ("", 0, ""),
            {},
            "passed",
            None,
            "call",
            duration=spent,
            user_properties=[("tier", tier)],
        )

    monkeypatch.setattr(seconds, "RECORD", tmp_path / "seconds.json")
    before = {"tests/test_tidy.py": {"slow": 7, "quick": 1}, "tests/gone.py": {"quick": 9}}
    seconds.RECORD.write_text(seconds.text_of(before))
    reports = [
        report("tests/test_tidy.py::a", "quick", 2.2),
        report("tests/test_tidy.py::b[x]", "quick", 1.5),
        report("tests/test_tiers.py::c", "java", 3.0),
    ]

    found = seconds.measured(reports)
    seconds.record(found)

    assert seconds.report_of(found) == [
        "quick: 4 s of tests, most in tests/test_tidy.py 4",
        "java: 3 s of tests, most in tests/test_tiers.py 3",
    ]
    assert seconds.recorded() == {
        "tests/test_tidy.py": {"slow": 7, "quick": 4},
        "tests/test_tiers.py": {"java": 3},
    }


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
    assert [tiers.examples(count) for count in (3, 30, 60, 300)] == [3, 5, 6, 30]

    monkeypatch.setattr(tiers, "ON_CI", True)
    assert [tiers.examples(count) for count in (6, 30, 60, 300)] == [6, 10, 12, 60]

    monkeypatch.setenv("LAKE_SOAK", "1")
    assert [tiers.examples(count) for count in (6, 300)] == [6, 300]
