"""`lake alter --format-version`: an upgraded table can be written, or the upgrade is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.damage import lists_of, read_avro, write_avro
from support.tables.iceberg_tables import ids_in

COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count", "added_rows_count")


def loaded(lake: CommandLine, tmp_path: Path, *options: str) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    lake.ok("ingest", "db.t", source, *options)


def without_counts(path: Path, names: tuple[str, ...]) -> None:
    """Leave counts of a list's manifests NULL, as version 1 allows."""
    rows, schema, header = read_avro(path)
    for item in schema["fields"]:
        if item["name"] in names:
            if not isinstance(item["type"], list):
                item["type"] = ["null", item["type"]]
            item["default"] = None
    write_avro(path, [{**row, **dict.fromkeys(names)} for row in rows], schema, header)


@pytest.mark.parametrize("names", [COUNTS, COUNTS[:1], COUNTS[3:]], ids=len)
def test_an_upgrade_waits_until_the_lists_of_its_branches_have_counts(
    lake: CommandLine, tmp_path: Path, names: tuple[str, ...]
) -> None:
    lake.ok("create", "db.t", "id long", "--format-version", "1")
    loaded(lake, tmp_path)
    loaded(lake, tmp_path)
    without_counts(lists_of(lake)[-1], names)

    for version in ("2", "3"):
        found = lake("alter", "db.t", "--format-version", version)
        assert found.exit_code == 3, found
        assert f"lacks {names[0]} of a manifest" in " ".join(found.stderr.split())

    lake.ok("manifests", "db.t", "--rewrite-all")
    lake.ok("alter", "db.t", "--format-version", "2")
    loaded(lake, tmp_path)
    assert lake.table().format_version == 2
    assert ids_in(lake.warehouse) == [1, 1, 1]
