"""The markers of safety checks fit the code: `python -m soak.mutants` takes each check out and runs its tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from soak.markers import Edit, always, becomes, instead, markers, never, removed, without
from soak.mutants import check_imports, copied, marked_code
from soak.removed_checks import CHECKS, RemovedCheck

ROOT = Path(__file__).parent.parent
# Each worker of xdist collects this file.
marked = cache(marked_code)


@cache
def names_of_tests(path: Path) -> frozenset[str]:
    """Return the names of a file's tests."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@cache
def parsed(text: str) -> str:
    return ast.dump(ast.parse(text))


@cache
def parsed_without(check: RemovedCheck) -> str:
    """Return the syntax tree of a check's file after the check was taken out."""
    return parsed(check.edit(marked()[check.name][1]))


def test_each_check_is_marked_once_in_the_source_and_each_marker_names_a_check() -> None:
    assert sorted(check.name for check in CHECKS) == sorted(marked())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_safety_check_can_be_taken_out(check: RemovedCheck) -> None:
    _, code = marked()[check.name]

    assert parsed_without(check) != parsed(code.text)


def test_each_copy_lacks_another_check() -> None:
    assert len({parsed_without(check) for check in CHECKS}) == len(CHECKS)


def test_the_tests_of_a_copy_run_the_copy(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy")

    for name in ("__init__.py", "core"):
        (copy / name).rename(tmp_path / name)
        with pytest.raises(RuntimeError, match="the tests of a copy run other code"):
            check_imports(copy)
        (tmp_path / name).rename(copy / name)
    check_imports(copy)


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


@pytest.mark.parametrize(
    ("source", "edit", "expected"),
    [
        ("check(1)  # check: it", removed, "pass"),
        ("# check: it\ncheck(1)", removed, "pass"),
        ("if a:  # check: it\n    x = 1", never, "if False:\n    x = 1"),
        ("if a:\n    b\nelif c:  # check: it\n    d", always, "if a:\n    b\nelif True:\n    d"),
        ("for x in y:  # check: it\n    f(x)", never, "for x in ():\n    f(x)"),
        ("while a:  # check: it\n    f(a)", never, "while False:\n    f(a)"),
        ("def f():\n    return a  # check: it", always, "def f():\n    return True"),
        ("x = (\n    a\n    and b  # check: it\n)", removed, "x = a"),
        (
            "x = [\n    a\n    for a in b\n    if c  # check: it\n]",
            removed,
            "x = [a for a in b if True]",
        ),
        ("f(\n    a,\n    b=c,  # check: it\n)", removed, "f(a)"),
        ("f(\n    a,\n    b=c,  # check: it\n)", never, "f(a, b=False)"),
        (
            "try:\n    f()\nexcept A:  # check: it\n    raise\nexcept B:\n    g()",
            removed,
            "try:\n    f()\nexcept B:\n    g()",
        ),
        ("x = (a, b)  # check: it", without("b"), "x = (a,)"),
        ("x = a and b or c  # check: it", without("b"), "x = a or c"),
        ("x = (a or b or c) in d  # check: it", without("c"), "x = (a or b) in d"),
        ("x = a | b  # check: it", without("b"), "x = a"),
        ("if f(a):  # check: it\n    f(b)\n    a", instead("a", "b"), "if f(b):\n    f(b)\n    a"),
        ("x = f(a)  # check: it", becomes("y = 1"), "y = 1"),
    ],
)
def test_an_edit_changes_the_marked_code_only(source: str, edit: Edit, expected: str) -> None:
    ((name, code),) = markers(source)

    assert name == "it"
    assert parsed(edit(code)) == parsed(expected)


def test_a_marker_may_name_several_checks_of_one_line() -> None:
    found = list(markers("x = a and b  # check: first, second-one"))

    assert [(name, code.line) for name, code in found] == [("first", 1), ("second-one", 1)]


@pytest.mark.parametrize(
    ("source", "edit", "message"),
    [
        ("# check: it\n\nx = 1", removed, "nothing begins on line 2"),
        ("x = f(a, a)  # check: it", without("a"), "2 parts are a"),
        ("x = f(a)  # check: it", without("b"), "0 parts are b"),
        ("x = f(a)  # check: it", never, "Assign has no condition"),
        ("x = not a  # check: it", without("a"), "no part of UnaryOp"),
    ],
)
def test_an_edit_that_does_not_fit_the_marked_code_is_refused(
    source: str, edit: Edit, message: str
) -> None:
    ((_, code),) = markers(source)

    with pytest.raises(ValueError, match=message):
        edit(code)


def test_a_marker_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="not a marker: # check: Of it"):
        list(markers("x = 1  # check: Of it"))
