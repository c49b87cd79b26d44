"""Table properties through the commands: what they decide, and what an invalid one stops."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    SCHEMA,
    files_below,
    make_table,
    pyiceberg_catalog,
    pyiceberg_table,
)

NOW = ("--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


class Warehouse:
    """One table with some properties, and sources for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = CommandLine(folder / "warehouse")
        self.sources = 0

    def create(self, spec: PartitionSpec | None = None, **properties: str) -> None:
        catalog = pyiceberg_catalog(self.lake.warehouse)
        catalog.create_namespace_if_not_exists("db")
        more = {} if spec is None else {"partition_spec": spec}
        catalog.create_table("db.t", SCHEMA, properties=properties, **more)

    def set(self, **properties: str) -> None:
        with self.table.transaction() as transaction:
            transaction.set_properties(properties)

    @property
    def table(self) -> Any:
        return pyiceberg_table(self.lake.warehouse)

    def source(self, rows: dict[int, str]) -> Path:
        self.sources += 1
        path = self.folder / f"source-{self.sources}.parquet"
        pq.write_table(pa.table({"id": list(rows), "name": list(rows.values())}), path)
        return path

    def load(self, rows: dict[int, str], *options: str) -> dict[str, Any]:
        return self.lake.ok("ingest", "db.t", self.source(rows), *options)

    def summary(self) -> dict[str, str]:
        snapshot = self.table.current_snapshot()
        return dict(snapshot.summary.additional_properties)

    def rows(self) -> dict[int, str]:
        document = self.lake("scan", "db.t", "--output", "-", "--output-format", "csv")
        return {int(row["id"]): row["name"] for row in csv.DictReader(io.StringIO(document.stdout))}


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path)


def refusals(warehouse: Warehouse, *command: object) -> Iterator[str]:
    """Yield the message of a command that must end with exit code 2."""
    result = warehouse.lake("--json", *command)
    assert result.exit_code == 2, result
    document = result.json()
    assert document["error"]["kind"] == "invalid-request"
    yield document["error"]["message"]


INVALID = {
    "write.target-file-size-bytes": "abc",
    "write.delete.target-file-size-bytes": "0",
    "write.distribution-mode": "bogus",
    "write.merge.distribution-mode": "sideways",
    "write.format.default": "csv",
    "write.delete.format.default": "json",
    "write.parquet.compression-codec": "zip",
    "write.parquet.compression-level": "99",
    "write.parquet.page-version": "v3",
    "write.parquet.bloom-filter-fpp.column.id": "1.5",
    "write.parquet.row-group-size-bytes": "-1",
    "write.parquet.page-size-bytes": "1MB",
    "write.parquet.dict-size-bytes": "0",
    "write.delete.parquet.compression-codec": "zip",
    "write.orc.compression-strategy": "best",
    "write.orc.stripe-size-bytes": "x",
    "write.avro.compression-codec": "zip",
    "write.manifest.compression-codec": "zip",
    "write.manifest.compression-level": "77",
    "write.metadata.compression-codec": "zip",
    "write.metadata.previous-versions-max": "0",
    "write.metadata.delete-after-commit.enabled": "yes",
    "write.metadata.metrics.default": "some",
    "write.metadata.metrics.column.id": "truncate(0)",
    "write.metadata.metrics.max-inferred-column-defaults": "-1",
    "write.summary.partition-limit": "many",
    "write.object-storage.enabled": "on",
    "write.delete.isolation-level": "none",
    "write.merge.isolation-level": "read-committed",
    "write.merge.mode": "mor",
    "write.delete.mode": "cow",
    "write.delete.granularity": "row",
    "write.wap.enabled": "1",
    "commit.retry.num-retries": "-1",
    "commit.retry.min-wait-ms": "1s",
    "commit.status-check.total-timeout-ms": "-2",
    "commit.manifest.target-size-bytes": "8MB",
    "commit.manifest.min-count-to-merge": "0",
    "commit.manifest-merge.enabled": "maybe",
    "history.expire.max-snapshot-age-ms": "5d",
    "history.expire.min-snapshots-to-keep": "0",
    "history.expire.max-ref-age-ms": "-1",
    "gc.enabled": "no",
    "read.split.target-size": "0",
    "read.split.planning-lookback": "-1",
    "read.split.open-file-cost": "cheap",
    "format-version": "9",
    "uuid": "1",
    "current-snapshot-id": "1",
    "write.metadata.metrics.column.nowhere": "full",
}


@pytest.mark.slow
def test_a_new_table_gets_no_invalid_property_and_nothing_is_written(warehouse: Warehouse) -> None:
    source = warehouse.source({1: "a"})
    warehouse.lake.warehouse.mkdir()
    for name, value in INVALID.items():
        create = ("ingest", "db.t", source, "--create", "--property", f"{name}={value}")
        for options in ((), ("--dry-run",)):
            (message,) = refusals(warehouse, *create, *options)
            assert name in message
            assert f"{value!r}" in message or "reserved" in message or "does not exist" in message

    assert files_below(warehouse.lake.warehouse) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stopped", "working"),
    [
        ("write.parquet.compression-level", "append overwrite compact", "scan expire"),
        ("write.metadata.metrics.default", "append overwrite compact", "scan expire"),
        ("write.target-file-size-bytes", "append overwrite compact", "scan expire sized"),
        ("write.distribution-mode", "append overwrite", "scan compact expire"),
        ("write.delete.isolation-level", "overwrite", "append upsert scan compact expire"),
        ("write.merge.isolation-level", "upsert", "append overwrite scan compact expire"),
        ("write.merge.mode", "upsert", "append overwrite scan compact expire"),
        ("write.merge.distribution-mode", "upsert", "append overwrite scan compact expire"),
        ("write.delete.parquet.compression-codec", "upsert", "append overwrite compact expire"),
        ("write.delete.target-file-size-bytes", "upsert", "append overwrite compact expire"),
        ("commit.retry.num-retries", "append overwrite upsert compact expire", "scan"),
        ("write.metadata.previous-versions-max", "append upsert compact expire", "scan"),
        ("write.summary.partition-limit", "append upsert compact expire", "scan"),
        ("write.manifest.compression-level", "append compact", "scan"),
        ("history.expire.max-snapshot-age-ms", "expire-by-table", "append compact scan expire"),
        ("history.expire.min-snapshots-to-keep", "expire-by-table", "append compact scan expire"),
        ("history.expire.max-ref-age-ms", "expire expire-by-table", "append compact scan"),
        ("gc.enabled", "expire expire-by-table", "append compact scan"),
        ("read.split.target-size", "plan", "append compact expire split"),
    ],
)
def test_an_invalid_property_stops_the_commands_that_use_it_and_no_other(
    warehouse: Warehouse, name: str, stopped: str, working: str
) -> None:
    warehouse.create()
    for number in range(5):
        warehouse.load({number: "a"})
    before = files_below(warehouse.lake.warehouse)
    warehouse.set(**{name: INVALID[name]})
    logged = files_below(warehouse.lake.warehouse) - before
    assert len(logged) == 1
    source = warehouse.source({1: "b"})
    commands = {
        "append": ("ingest", "db.t", source),
        "sized": ("ingest", "db.t", source, "--target-size", "1MB"),
        "overwrite": ("ingest", "db.t", source, "--overwrite"),
        "upsert": ("ingest", "db.t", source, "--upsert", "--key", "id", "--repair-duplicates"),
        "scan": ("scan", "db.t", "--limit", "1"),
        "plan": ("scan", "db.t", "--plan"),
        "split": ("scan", "db.t", "--plan", "--split-size", "1MB"),
        "compact": ("compact", "db.t", "--rewrite-all"),
        "expire": ("expire", "db.t", *NOW),
        "expire-by-table": ("expire", "db.t"),
    }
    for command in stopped.split():
        for options in ((), ("--dry-run",) if command != "plan" else ()):
            (message,) = refusals(warehouse, *commands[command], *options)
            assert name in message
            assert repr(INVALID[name]) in message
    assert files_below(warehouse.lake.warehouse) == before | logged
    for command in working.split():
        warehouse.lake.ok(*commands[command])


def test_a_table_whose_property_wants_copies_gets_no_delete_files(warehouse: Warehouse) -> None:
    warehouse.create(**{"format-version": "2", "write.merge.mode": "Copy-On-Write"})
    warehouse.load({1: "a", 2: "b"})
    document = warehouse.load({2: "c"}, "--upsert", "--key", "id")

    assert document["plan"]["deletes"] == "copy-on-write"
    assert document["warnings"] == []
    assert warehouse.summary()["total-delete-files"] == "0"
    assert warehouse.rows() == {1: "a", 2: "c"}


@pytest.mark.parametrize("properties", [{}, {"write.merge.mode": "merge-on-read"}])
def test_other_tables_get_position_deletes(
    warehouse: Warehouse, properties: dict[str, str]
) -> None:
    warehouse.create(**{"format-version": "2", **properties})
    warehouse.load({1: "a", 2: "b"})
    document = warehouse.load({2: "c"}, "--upsert", "--key", "id")

    assert document["plan"]["deletes"] == "position"
    assert warehouse.summary()["added-position-delete-files"] == "1"
    assert warehouse.rows() == {1: "a", 2: "c"}


@pytest.mark.parametrize("deletes", ["position", "equality"])
def test_the_command_line_wins_over_the_property_and_a_warning_names_it(
    warehouse: Warehouse, deletes: str
) -> None:
    warehouse.create(**{"format-version": "2", "write.merge.mode": "copy-on-write"})
    warehouse.load({1: "a", 2: "b"})
    document = warehouse.load({2: "c"}, "--upsert", "--key", "id", "--deletes", deletes)

    (warning,) = document["warnings"]
    assert "write.merge.mode" in warning
    assert deletes in warning
    assert warehouse.summary()["added-delete-files"] == "1"
    assert warehouse.rows() == {1: "a", 2: "c"}


def test_a_change_log_warns_where_the_table_wants_no_delete_files(warehouse: Warehouse) -> None:
    warehouse.create(**{"format-version": "2", "write.merge.mode": "copy-on-write"})
    path = warehouse.folder / "changes.csv"
    path.write_text("op,id,name\n+I,1,a\n")
    changes = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id")
    (warning,) = warehouse.lake.ok("ingest", "db.t", path, *changes)["warnings"]

    assert "write.merge.mode" in warning


def test_properties_without_an_effect_are_named_once_by_the_commands_that_they_are_for(
    warehouse: Warehouse,
) -> None:
    ignored = {
        "write.wap.enabled": "true",
        "write.location-provider.impl": "org.example.Locations",
        "write.delete.granularity": "partition",
    }
    options = [word for item in ignored.items() for word in ("--property", "=".join(item))]
    created = warehouse.load({1: "a"}, "--create", *options)["warnings"]
    appended = warehouse.load({2: "b"})["warnings"]
    upserted = warehouse.load({2: "c"}, "--upsert", "--key", "id")["warnings"]
    compacted = warehouse.lake.ok("compact", "db.t", "--rewrite-all")["warnings"]

    def named(warnings: list[str]) -> set[str]:
        assert len(warnings) == len(set(warnings))
        return {name for name in ignored for warning in warnings if name in warning}

    assert named(created) == named(appended) == ignored.keys() - {"write.delete.granularity"}
    assert named(upserted) == ignored.keys()
    assert named(compacted) == {"write.location-provider.impl"}
    assert warehouse.lake.ok("expire", "db.t", *NOW)["warnings"] == []


def test_a_property_that_iceberg_does_not_have_is_named_when_the_table_is_made(
    warehouse: Warehouse,
) -> None:
    given = ("--property", "write.parquet.compresion-codec=zstd", "--property", "owner=me")
    (warning,) = warehouse.load({1: "a"}, "--create", *given)["warnings"]

    assert "write.parquet.compresion-codec" in warning
    assert warehouse.table.properties["owner"] == "me"


def test_summaries_name_the_engine_and_its_versions(warehouse: Warehouse) -> None:
    warehouse.load({1: "a"}, "--create")
    summary = warehouse.summary()

    assert summary["engine-name"] == "lake"
    assert f"lake {summary['engine-version']}\n" == warehouse.lake("--version").stdout
    assert summary["iceberg-version"].startswith(f"lake {summary['engine-version']}, PyIceberg ")


def test_summaries_count_by_partition_as_far_as_the_table_wants(warehouse: Warehouse) -> None:
    warehouse.create(BY_NAME, **{"format-version": "2", "write.summary.partition-limit": "2"})
    warehouse.load({1: "a", 2: "a", 3: "b/b"})
    two = warehouse.summary()
    warehouse.load({1: "a", 2: "b", 3: "c"})
    three = warehouse.summary()

    assert two["partition-summaries-included"] == "true"
    parts = {key: value for key, value in two.items() if key.startswith("partitions.")}
    assert parts.keys() == {"partitions.name=a", "partitions.name=b%2Fb"}
    assert parts["partitions.name=a"].startswith(
        "added-data-files=1,added-records=2,added-files-size="
    )
    assert three["changed-partition-count"] == "3"
    assert not [key for key in three if key.startswith("partition")]


def test_metadata_is_packed_where_the_table_wants_it(warehouse: Warehouse) -> None:
    packed = ("--property", "write.metadata.compression-codec=GZIP")
    warehouse.load({1: "a"}, "--create", *packed)
    warehouse.load({2: "b"})
    warehouse.lake.ok("compact", "db.t", "--rewrite-all")
    folder = warehouse.lake.warehouse / "db" / "t" / "metadata"

    names = sorted(path.name for path in folder.glob("*.metadata.json*"))
    assert [name[:5] for name in names] == ["00000", "00001", "00002"]
    assert all(name.endswith(".gz.metadata.json") for name in names)
    assert all(gzip.decompress((folder / name).read_bytes())[:1] == b"{" for name in names)
    assert warehouse.rows() == {1: "a", 2: "b"}
    warehouse.set(**{"write.metadata.compression-codec": "none"})
    warehouse.load({3: "c"})
    assert not warehouse.table.metadata_location.endswith(".gz.metadata.json")
    assert warehouse.rows() == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize(
    ("codec", "avro"), [("uncompressed", "null"), ("zstd", "zstandard"), ("gzip", "deflate")]
)
def test_manifests_are_packed_by_their_own_codec(
    warehouse: Warehouse, codec: str, avro: str
) -> None:
    level = {"write.manifest.compression-level": "1"} if codec != "uncompressed" else {}
    others = {"write.avro.compression-codec": "snappy"}
    warehouse.create(**{"write.manifest.compression-codec": codec, **level, **others})
    warehouse.load({1: "a"})
    (manifest,) = warehouse.table.current_snapshot().manifests(warehouse.table.io)
    data = Path(manifest.manifest_path.removeprefix("file://")).read_bytes()

    assert fastavro.reader(io.BytesIO(data)).metadata["avro.codec"] == avro


def test_an_overwrite_of_parts_of_files_warns_that_it_copies(warehouse: Warehouse) -> None:
    warehouse.create(**{"format-version": "2", "write.delete.mode": "merge-on-read"})
    warehouse.load({1: "a", 2: "b", 3: "c"})
    whole = warehouse.load({1: "a", 2: "b", 3: "c"}, "--overwrite-where", "id > 0")
    part = warehouse.load({2: "x"}, "--overwrite-where", "id = 2")

    assert whole["warnings"] == []
    (warning,) = part["warnings"]
    assert "write.delete.mode" in warning
    assert warehouse.rows() == {1: "a", 2: "x", 3: "c"}


KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    identifier_field_ids=[1],
)
UPSERT = {"write__upsert__enabled": "true"}


def rows_in(lake: CommandLine) -> list[tuple[int, str]]:
    return sorted((row["id"], row["name"]) for row in lake.ok("scan", "db.t")["result"]["preview"])


def test_a_table_can_make_a_plain_load_replace_rows_by_key(warehouse: Warehouse) -> None:
    lake = warehouse.lake
    make_table(lake.warehouse, schema=KEYED, **UPSERT)
    first, second = (lake.warehouse.parent / name for name in ("1.csv", "2.csv"))
    first.write_text("id,name\n1,a\n2,b\n")
    second.write_text("id,name\n2,c\n3,d\n")

    preview = lake.ok("ingest", "db.t", first, "--dry-run")
    loaded = lake.ok("ingest", "db.t", first)
    lake.ok("ingest", "db.t", second)

    for document in (preview, loaded):
        assert (document["plan"]["mode"], document["plan"]["deletes"]) == ("upsert", "equality")
        assert document["plan"]["key"] == ["id"]
        (warning,) = document["warnings"]
        assert "write.upsert.enabled" in warning
        assert "--no-upsert" in warning
    assert rows_in(lake) == [(1, "a"), (2, "c"), (3, "d")]
    appended = lake.ok("ingest", "db.t", second, "--no-upsert")
    assert appended["plan"]["mode"] == "append"
    assert not any("write.upsert.enabled" in warning for warning in appended["warnings"])
    assert rows_in(lake) == [(1, "a"), (2, "c"), (2, "c"), (3, "d"), (3, "d")]


@pytest.mark.parametrize(
    ("more", "mode"),
    [
        (["--overwrite"], "overwrite"),
        (["--upsert", "--deletes", "position"], "upsert"),
        (["--overwrite-where", "id = 1"], "overwrite-where"),
    ],
)
def test_a_mode_on_the_command_line_wins_over_the_property(
    warehouse: Warehouse, more: list[str], mode: str
) -> None:
    lake = warehouse.lake
    make_table(lake.warehouse, schema=KEYED, **UPSERT)
    source = lake.warehouse.parent / "1.csv"
    source.write_text("id,name\n1,a\n")

    plan = lake.ok("ingest", "db.t", source, *more)["plan"]

    assert plan["mode"] == mode
    assert plan.get("deletes", "position") == "position"


def test_a_staged_load_of_such_a_table_is_an_upsert_too(warehouse: Warehouse) -> None:
    lake = warehouse.lake
    make_table(lake.warehouse, schema=KEYED, **UPSERT)
    source = lake.warehouse.parent / "1.csv"
    for name in ("a", "b"):
        source.write_text(f"id,name\n1,{name}\n")
        lake.ok("ingest", "db.t", source, "--stage", "--run-id", name)

    lake.ok("replay", "db.t", "--all-staged")

    assert rows_in(lake) == [(1, "b")]


def test_without_identifier_fields_the_property_has_no_effect(warehouse: Warehouse) -> None:
    lake = warehouse.lake
    make_table(lake.warehouse, **UPSERT)
    source = lake.warehouse.parent / "1.csv"
    source.write_text("id,name\n1,a\n")
    lake.ok("ingest", "db.t", source)

    warnings = lake.ok("ingest", "db.t", source)["warnings"]

    assert sum("identifier fields" in warning for warning in warnings) == 1
    assert rows_in(lake) == [(1, "a"), (1, "a")]
    assert lake("ingest", "db.t", source, "--upsert", "--no-upsert").exit_code == 2
