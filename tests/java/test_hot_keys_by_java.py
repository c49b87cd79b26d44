"""Iceberg Java and `lake` change the same keys at once, while processes are killed: `soak.hot_keys`, shorter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from soak.hot_keys import race


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize(
    ("catalog", "version", "seed"),
    # With "busy", Java's DELETE rewrites files, and there are no equality deletes.
    [("sql", 2, "keys"), ("rest", 3, "busy")],
    ids=["sql-2", "rest-3"],
)
def test_every_acknowledged_change_of_a_hot_key_is_there_once(
    java: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    catalog: str,
    version: int,
    seed: str,
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    ledger = race(tmp_path, java, operations=60, catalog=catalog, version=version, seed=seed)

    outcomes = {command.outcome for command in ledger.commands.values()}
    assert ledger.problems == []
    assert {"done", "unchanged"} <= outcomes
    assert {command.kind for command in ledger.commands.values()} >= {"merge", "position"}
