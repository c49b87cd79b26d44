"""Rules of policies that have no effect: names that are misspelt, and settings that earlier rules decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table
from support.tables.neglected_tables import Warehouse

from lake.core.base.errors import StorageError
from lake.core.base.settings import Settings
from lake.core.table.catalogs import names
from lake.core.transaction.session import open_session

Warned = Callable[..., list[str]]


@pytest.fixture(scope="module")
def three_tables(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three tables in two namespaces, made once."""

    def make(warehouse: Path) -> None:
        for name in ("prod.payments", "prod.orders", "test.orders"):
            make_table(warehouse, name)

    return Warehouse(tmp_path_factory.mktemp("three-tables"), make)


@pytest.fixture
def lake(three_tables: Warehouse) -> CommandLine:
    """`lake` on three tables in two namespaces."""
    return three_tables.restored()


@pytest.fixture
def warned(lake: CommandLine, tmp_path: Path) -> Warned:
    """Return a function that runs `lake maintain` with policy files, and returns the warnings without the path."""

    def run(*texts: str, words: tuple[object, ...] = ("--dry-run",)) -> list[str]:
        flags: list[object] = []
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.toml"
            path.write_text(text)
            flags += ["--policy", path]
        found = lake.ok("maintain", *flags, *words)["warnings"]
        return [text.replace(f"{tmp_path}/", "") for text in found]

    return run


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("prod.paymnets", "; did you mean prod.payments?"),
        ("prdo", "; did you mean prod?"),
        ("prdo.*", "; did you mean prod.*?"),
        ("Prod.Payments", "; did you mean prod.payments?"),
        ("warehouse.unknown", ""),
    ],
)
@pytest.mark.parametrize("words", [("--dry-run",), ("--only", "stats"), ("test.orders",)], ids=str)
def test_a_rule_that_selects_no_table_is_a_warning_with_the_nearest_name(
    warned: Warned, pattern: str, hint: str, words: tuple[object, ...]
) -> None:
    found = warned(f'["{pattern}"]\nenabled = false\n["*"]\nwindow = "01:00-02:00"\n', words=words)

    assert found == [f'["{pattern}"] in 0.toml selects no table{hint}']


@pytest.mark.parametrize("pattern", ["prod", "prod.*", "*.orders", "prod.payments", "*", "test.*"])
def test_a_rule_that_selects_a_table_is_not_a_warning_whatever_tables_were_asked_for(
    warned: Warned, pattern: str
) -> None:
    policy = f'["{pattern}"]\nenabled = false\n'

    assert warned(policy) == warned(policy, words=("prod.orders", "--dry-run")) == []


def test_a_rule_without_settings_is_not_a_warning(warned: Warned, lake: CommandLine) -> None:
    assert warned('["gone.*"]\n# enabled = true\n') == []


def test_a_setting_that_an_earlier_rule_always_decides_is_a_warning(warned: Warned) -> None:
    assert warned('["*"]\nenabled = true\n["prod.payments"]\nenabled = false\n') == [
        '["prod.payments"] in 0.toml has no effect: ["*"] is before it and decides enabled'
    ]
    assert warned(
        '[prod]\nexpire.every = "1d"\n["prod.payments"]\nwindow = "01:00-02:00"\nexpire.every = "9d"\n'
    ) == ['expire.every of ["prod.payments"] in 0.toml has no effect: ["prod"] is before it']
    (both,) = warned(
        '["p*"]\nenabled = true\n["*"]\nwindow = "01:00-02:00"\n'
        '["prod.*"]\nenabled = false\nwindow = "03:00-04:00"\n'
    )
    assert both.endswith(
        '["p*"] is before it and decides enabled, ["*"] is before it and decides window'
    )


@pytest.mark.parametrize(
    "policies",
    [
        # The last file wins: that is what it is for.
        ('["*"]\nenabled = false\n', '["*"]\nenabled = true\n'),
        # The narrow rule is first, and the last one is for tables that do not exist yet.
        (
            '["test.*"]\nenabled = true\n["prod.*"]\nenabled = true\n["*"]\nenabled = false\n["p*"]\nevery = "1d"\n',
        ),
        # Another key, and the same value.
        ('["*"]\nenabled = false\n["prod.*"]\nexpire.enabled = true\n',),
        ('["*"]\nenabled = false\n["prod.*"]\nenabled = false\n',),
        # One character only is not what the later rule selects.
        ('["prod.order?"]\nenabled = false\n["prod.*"]\nenabled = true\n',),
    ],
    ids=["files", "fallback", "action", "same", "glob"],
)
def test_an_order_of_rules_that_has_an_effect_is_not_a_warning(
    warned: Warned, policies: tuple[str, ...]
) -> None:
    assert warned(*policies) == []


def test_a_rule_for_a_namespace_that_cannot_be_listed_is_not_a_warning(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_session(Settings(warehouse=str(lake.warehouse))).catalog
    spaces = [
        *names.namespaces_of(catalog),
        names.Namespace("down", error=StorageError("the catalog is down")),
    ]
    monkeypatch.setattr("lake.core.maintain.health.measure.namespaces_of", lambda *_: iter(spaces))
    policy = tmp_path / "policy.toml"
    policy.write_text('["down.t"]\nenabled = false\n["up.t"]\nenabled = false\n')

    document = lake("--json", "maintain", "prod", "--policy", policy, "--dry-run").json()

    assert document["warnings"] == [f'["up.t"] in {policy} selects no table']


def test_rules_of_the_project_file_are_checked_too(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.toml").write_text('[maintain."prod.paymnets"]\nenabled = false\n')
    lake.ok("config", "--trust")

    (warning,) = lake.ok("maintain", "--dry-run")["warnings"]

    assert warning.endswith("lake.toml selects no table; did you mean prod.payments?")
