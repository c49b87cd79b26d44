"""The list of safety checks fits the code: `python -m soak.mutants` takes each out and runs its tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from soak.mutants import mutated
from soak.removed_checks import CHECKS, RemovedCheck

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_safety_check_can_be_taken_out(check: RemovedCheck) -> None:
    text = mutated((ROOT / check.file).read_text(), check)

    ast.parse(text)
    assert all((ROOT / test.split("::")[0]).exists() for test in check.tests)


def test_each_copy_lacks_another_check() -> None:
    assert len({(check.file, check.old, check.new) for check in CHECKS}) == len(CHECKS)
