"""Every command on every service, configured as PyIceberg's users do it; PyIceberg reads the rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from support.cli.service_line import Service, csv


def test_rows_are_loaded_replaced_upserted_compacted_and_expired(service: Service) -> None:
    lake, table = service.line(), service.table()
    first = csv(service.folder, "first.csv", id=[1, 2, 3], name=["a", "b", "c"])
    lake.ok("ingest", table, first, "--create", "--dry-run")
    created = lake.ok("ingest", table, first, "--create", "--run-id", "first")
    assert created["result"]["rows_written"] == 3
    assert lake.ok("ingest", table, first, "--run-id", "first")["status"] == "nothing-to-do"
    second = csv(service.folder, "second.csv", id=[4, 5], name=["d", "e"])
    lake.ok("ingest", table, second)
    assert service.rows() == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]

    for mode, name in (("position", "x"), ("equality", "y"), ("copy-on-write", "z")):
        source = csv(service.folder, f"{mode}.csv", id=[1, 9], name=[name, name])
        document = lake.ok("ingest", table, source, "--upsert", "--key", "id", "--deletes", mode)
        assert document["status"] == "done"
        shown = lake.ok("scan", table, "--where", "id in (1, 9)")["result"]["preview"]
        assert sorted((row["id"], row["name"]) for row in shown) == [(1, name), (9, name)]

    compacted = lake.ok("compact", table, "--rewrite-all", "--verify")
    assert compacted["status"] == "done"
    rows = [(1, "z"), (2, "b"), (3, "c"), (4, "d"), (5, "e"), (9, "z")]
    assert service.rows() == rows

    lake.ok("ingest", table, second, "--overwrite-where", "id > 3")
    lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention", "--dry-run")
    expired = lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")
    assert expired["result"]["failed_deletes"] == 0
    assert expired["result"]["data_files"] > 0
    assert service.rows() == rows[:-1]
    assert len(lake.ok("snapshots", table)["result"]["snapshots"]) == 1
    assert service.unreferenced() == set()


def test_a_change_log_is_applied_and_its_changes_are_shown(service: Service) -> None:
    lake, table = service.line(), service.table()
    rows = csv(service.folder, "rows.csv", id=[1, 2, 3], name=["a", "b", "c"])
    lake.ok("ingest", table, rows, "--create", "--partition-by", "bucket(4, id)")
    kinds = ["-D", "-U", "+U", "+I"]
    log = csv(service.folder, "log.csv", id=[1, 2, 2, 4], name=["a", "b", "B", "d"], kind=kinds)
    options = ("--changes-column", "kind", "--changes-mode", "retract", "--key", "id")
    lake.ok("ingest", table, log, *options)
    lake.ok("compact", table, "--rewrite-all", "--remove-dangling-deletes")
    # Without equality deletes, which PyIceberg does not read.
    assert service.rows() == [(2, "B"), (3, "c"), (4, "d")]

    first = lake.ok("snapshots", table)["result"]["snapshots"][-1]["snapshot_id"]
    asked = ("--changes", "--from-snapshot", first, "--key", "id")
    changes = lake.ok("scan", table, *asked)["result"]["preview"]
    assert sorted((row["_change_type"], row["id"], row["name"]) for row in changes) == [
        ("delete", 1, "a"),
        ("insert", 4, "d"),
        ("update_after", 2, "B"),
        ("update_before", 2, "b"),
    ]


def test_format_version_3_is_made_written_and_compacted(service: Service) -> None:
    lake, table = service.line(), service.table()
    source = csv(service.folder, "rows.csv", id=[1, 2, 3], name=["a", "b", "c"])
    lake.ok("ingest", table, source, "--create", "--property", "format-version=3")
    change = csv(service.folder, "change.csv", id=[3, 4], name=["C", "d"])
    lake.ok("ingest", table, change, "--upsert", "--key", "id")
    assert service.rows() == [(1, "a"), (2, "b"), (3, "C"), (4, "d")]
    lake.ok("compact", table, "--rewrite-all", "--verify")
    lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")

    metadata = service.catalog().load_table(table).metadata
    assert (metadata.format_version, metadata.next_row_id) == (3, 9)
    assert service.rows() == [(1, "a"), (2, "b"), (3, "C"), (4, "d")]


def test_a_table_with_another_writers_evolved_schema_is_read_and_written(service: Service) -> None:
    lake, table = service.line(), service.table()
    lake.ok("ingest", table, csv(service.folder, "one.csv", id=[1], name=["a"]), "--create")
    with service.catalog().load_table(table).update_schema() as change:
        change.rename_column("name", "title")
    more = csv(service.folder, "two.csv", id=[2], title=["b"], added=[0.5])
    lake.ok("ingest", table, more, "--evolve")

    assert service.rows() == [(0.5, 2, "b"), (None, 1, "a")]


def test_a_table_is_created_altered_branched_picked_renamed_dropped_and_registered(
    service: Service,
) -> None:
    lake, table = service.line(), service.table()
    lake.ok("create", table, "id long", "--dry-run")
    lake.ok("create", table, "id long", "--partition-by", "bucket(4, id)")
    lake.ok("create", table, "id long", "--if-not-exists")
    lake.ok("alter", table, "--add-column", "name string", "--set", "owner=lake")
    assert service.catalog().load_table(table).properties["owner"] == "lake"

    def add(number: int, name: str, *options: str) -> str:
        source = csv(service.folder, f"{name}.csv", id=[number], name=[name])
        return str(lake.ok("ingest", table, source, *options)["snapshot_ids"][0])

    add(1, "a")
    lake.ok("ref", table, "--branch-create", "audit", "--retain", "30d")
    second, third = add(2, "b", "--branch", "audit"), add(3, "c", "--branch", "audit")
    assert lake.ok("cherry-pick", table, second)["result"]["fast_forward"]
    add(4, "d")
    picked = lake.ok("cherry-pick", table, third)
    assert not picked["result"]["fast_forward"]
    assert lake("cherry-pick", table, third).exit_code == 3
    assert lake.ok("ref", table, "--drop", "audit")["result"]["to_snapshot"] is None
    rows = [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert service.rows() == rows
    assert service.unreferenced() == set()

    other = f"{table}_renamed"
    lake.ok("rename", table, other)
    assert lake("scan", table).exit_code == 7
    lake.ok("rename", other, table)
    place = lake.ok("drop", table)["result"]["metadata_location"]
    assert lake("scan", table).exit_code == 7
    if service.kind == "rest":
        # This server gives keys for the storage with a table only.
        refused = lake("register", table, place)
        assert refused.exit_code == 9
        assert "add keys for the storage" in refused.stderr
        service.catalog().register_table(table, place)
    else:
        lake.ok("register", table, place)
    assert service.rows() == rows
    plan = lake.ok("drop", table, "--purge")["plan"]
    assert service.rows() == rows
    result = lake.ok("drop", table, "--purge", "--yes")["result"]
    assert result["deleted_files"] == result["files"] == plan["files"]
    assert not service.catalog().table_exists(table)


def test_existing_files_are_added_where_they_are(service: Service) -> None:
    lake, table = service.line(), service.table()
    lake.ok("create", table, "id long", "name string", "--partition-by", "name")
    made = service.catalog().load_table(table)
    base, folder = made.location(), "landing"
    paths = []
    for number, name in enumerate(("a", "b")):
        paths.append(f"{base}/{folder}/name={name}/{number}.parquet")
        with made.io.new_output(paths[-1]).create() as sink:
            pq.write_table(pa.table({"id": [number]}), sink)
    done = lake.ok("add-files", table, f"{base}/{folder}")["result"]
    assert (done["added_files"], done["partitions"], done["files_in_table"]) == (2, 2, 2)
    assert service.rows() == [(0, "a"), (1, "b")]
    again = lake("add-files", table, f"{base}/{folder}/**/0.parquet")
    assert again.exit_code == 3
    assert "are or were in" in again.stderr
    with made.io.new_output(f"{base}/data/x.parquet").create() as sink:
        pq.write_table(pa.table({"id": [9], "name": ["x"]}), sink)
    assert "to which" in lake("add-files", table, f"{base}/data/x.parquet").stderr
    lake.ok("create", f"{table}_other", "id long", "name string")
    other = lake("add-files", f"{table}_other", f"{base}/data/x.parquet")
    assert (other.exit_code, "another table" in other.stderr) == (3, True)
    if service.kind != "postgres":
        local = service.folder / "local.parquet"
        pq.write_table(pa.table({"id": [9], "name": ["x"]}), local)
        assert "its readers may not reach it" in lake("add-files", table, local).stderr
    assert service.rows() == [(0, "a"), (1, "b")]
    read = {task.file.file_path for task in service.catalog().load_table(table).scan().plan_files()}
    assert read == set(paths)


def test_partitions_are_described_by_a_file_that_goes_with_its_snapshot(service: Service) -> None:
    lake, table = service.line(), service.table()
    source = csv(service.folder, "rows.csv", id=[1, 2, 3], name=["a", "b", "a"])
    lake.ok("ingest", table, source, "--create", "--partition-by", "name")
    lake.ok("stats", table, "--partitions")
    lake.ok("ingest", table, source)

    done = lake.ok("stats", table, "--partitions")

    metadata = service.catalog().load_table(table).metadata
    paths = {file.snapshot_id: file.statistics_path for file in metadata.partition_statistics}
    assert paths[metadata.current_snapshot_id] == done["result"]["partition_statistics_file"]
    assert len(paths) == 2
    assert done["plan"]["partitions"] == 2
    assert done["plan"]["records"] == 6
    assert lake.ok("stats", table, "--partitions")["status"] == "nothing-to-do"
    assert lake.ok("check", table, "--files")["result"]["findings"] == []
    expired = lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")
    assert (expired["result"]["statistics_files"], expired["result"]["failed_deletes"]) == (1, 0)
    assert lake.ok("check", table, "--files")["result"]["findings"] == []
    lake.ok("drop", table, "--purge", "--yes")
    assert not [path for path in service.list_files() if "partition-stats" in path]
