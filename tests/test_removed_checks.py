"""The list of safety checks fits the code: `python -m soak.mutants` takes each out and runs its tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from soak.mutants import mutated
from soak.removed_checks import CHECKS, RemovedCheck

ROOT = Path(__file__).parent.parent


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """Return the names of a file's tests."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_safety_check_can_be_taken_out(check: RemovedCheck) -> None:
    text = mutated((ROOT / check.file).read_text(), check)

    ast.parse(text)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_tests_of_a_safety_check_exist_and_ci_runs_them(check: RemovedCheck) -> None:
    # CI runs every test below this folder, whatever its tier (tests/test_tiers.py).
    assert check.tests
    for test in check.tests:
        file, _, name = test.partition("::")
        assert file.startswith("tests/")
        assert Path(file).name.startswith("test_")
        names = names_of_tests(ROOT / file)
        assert name.partition("[")[0] in names if name else names


def test_each_copy_lacks_another_check() -> None:
    assert len({(check.file, check.old, check.new) for check in CHECKS}) == len(CHECKS)
