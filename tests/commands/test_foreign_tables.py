"""All commands on tables that PyIceberg wrote, in every version, by every transform, evolved and upgraded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg_tables import course, edit

# The long tests have all versions by all transforms.
EVERYDAY = (
    ("1, as of old", "identity"),
    ("1 to 3", "hour"),
)


@pytest.mark.parametrize(
    ("version", "transform"), EVERYDAY, ids=[f"{one} by {by}" for one, by in EVERYDAY]
)
def test_all_commands_work_on_a_table_of_pyiceberg(
    tmp_path: Path, version: str, transform: str
) -> None:
    course(tmp_path, version, transform).run()


def test_snapshots_without_manifest_lists_are_refused_in_words(tmp_path: Path) -> None:
    run = course(tmp_path, "1, as of old", "unpartitioned")

    def list_manifests(metadata: dict[str, Any]) -> None:
        for snapshot in metadata["snapshots"]:
            snapshot["manifests"] = [snapshot.pop("manifest-list")]

    edit(run.warehouse, run.table, list_manifests)

    for command in (("scan", "db.t"), ("compact", "db.t"), ("expire", "db.t")):
        found = run.lake("--json", *command)
        assert (found.exit_code, found.json()["error"]["kind"]) == (3, "refused")
        assert "manifest lists" in found.json()["error"]["message"]
