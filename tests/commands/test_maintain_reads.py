"""How often `lake maintain` reads each file of a small table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine

from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.sql import SqlBackend

FILES = 4
POLICY = """
["*".compact]
when = "files > 1"
min-input-files = 2
["*".expire]
when = "snapshots > 1"
older-than = "0s"
retain-last = 1
unsafe-retention = true
["*".clean]
enabled = false
"""


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    """`lake` on a table of some files, each by a load of its own."""
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    for number in range(FILES):
        lake.load(f"id,name\n{number},n{number}\n", "--create", table="db.t")
    return lake


def test_a_small_table_is_compacted_and_expired_once_with_few_reads(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, reads = tmp_path / "policy.toml", list[str]()
    policy.write_text(POLICY)

    def noted(of: Any, name: str) -> None:
        call = getattr(of, name)

        def noting(self: Any, place: str, *rest: Any, **named: Any) -> Any:
            reads.append(place)
            return call(self, place, *rest, **named)

        monkeypatch.setattr(of, name, noting)

    folder = tmp_path / "warehouse/db/t/metadata"
    before = {path.name for path in folder.iterdir()}
    head = Path(lake.table("db.t").current_snapshot().manifest_list).name
    noted(Storage, "read")
    noted(SqlBackend, "load")

    result = lake.ok("maintain", "--policy", policy)["result"]

    assert [row["action"] for row in result["actions"]] == ["compact", "expire"]
    found = Counter(place.rpartition("/")[2] for place in reads)
    lists = {name for name in found if name.startswith("snap-")}
    manifests = {name for name in found if name.endswith(".avro")} - lists

    def counts(names: set[str]) -> list[int]:
        return sorted(found[name] for name in names)

    # By the health before, the plan of the compaction, and its commit twice (compared).
    assert found[head] == 4
    assert counts(lists & before - {head}) == [1] * (FILES - 1)
    # By the health before, of all tables at once, and by the plan of the compaction for all actions on the table.
    assert counts(manifests & before) == [2] * FILES
    # By the health after the compaction. After the expiry, the health is of the same snapshot.
    assert counts(lists - before) == [1]
    # The manifest of the new file, and the one of the removed files.
    assert counts(manifests - before) == [1, 1]
    assert found["db.t"] == 16
