"""Names of partitions in plans and results."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, open_session

from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import live_files
from lake.core.table.snapshots.partition_names import partition_names


def names_in(warehouse: Path) -> dict[int, list[str]]:
    """Return the name of each live file's partition, by spec."""
    table = open_session(warehouse).table("db.t")
    head = ancestry.branch_head(table.metadata, "main")
    assert head is not None
    found = {}
    for spec_id, entries in live_files(table, head).by_spec.items():
        known = partition_names(entries, spec_id, table.metadata)
        assert len(known.names) == len(set(known.codes.tolist()))
        found[spec_id] = [known.names[code] for code in known.codes]
    return found


def test_a_partition_is_named_as_its_folder(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text(
        "ts,text\n2026-01-01T05:00:00Z,a b\n2026-01-02T00:00:00Z,\n2026-01-01T06:00:00Z,a b\n"
    )
    by = ("--partition-by", "day(ts), text")
    lake.ok("ingest", "db.t", source, "--create", *by)
    lake.ok("ingest", "db.t", source)

    folders = {
        str(path.parent.relative_to(lake.warehouse / "db/t/data"))
        for path in lake.warehouse.rglob("data/**/*.parquet")
    }
    [names] = names_in(lake.warehouse).values()
    assert sorted(names) == sorted([*folders, *folders])
    assert sorted(set(names)) == ["ts_day=2026-01-01/text=a+b", "ts_day=2026-01-02/text=null"]


def test_a_partition_has_a_name_even_if_its_column_was_dropped(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.append(pa.table({"id": pa.array([1]), "name": ["a"]}))
    with table.update_spec() as change:
        change.add_field("id", IdentityTransform(), "part")
    table.append(pa.table({"id": pa.array([2]), "name": ["b"]}))
    with table.update_spec() as change:
        change.remove_field("part")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("id")

    assert names_in(tmp_path) == {0: [""], 1: ["part=2"]}
    loaded = open_session(tmp_path).table("db.t")
    forgotten = loaded.metadata.model_copy(update={"schemas": [loaded.metadata.schema()]})
    head = ancestry.branch_head(loaded.metadata, "main")
    assert head is not None
    entries = live_files(loaded, head).by_spec[1]
    assert partition_names(entries, 1, forgotten).names == ["part=2"]
