"""`lake show` through the command line."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_catalog, pyiceberg_table

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True, doc="key of a row"),
    NestedField(
        2,
        "person",
        StructType(
            NestedField(3, "name", StringType(), required=False),
            NestedField(4, "mails", ListType(5, StringType(), element_required=False)),
        ),
        required=False,
    ),
    identifier_field_ids=[1],
)


@pytest.fixture
def shown(lake: CommandLine) -> CommandLine:
    """A warehouse with a table that PyIceberg created, and evolved to another partition spec."""
    lake.warehouse.mkdir(parents=True, exist_ok=True)
    catalog = pyiceberg_catalog(lake.warehouse)
    catalog.create_namespace("db")
    table = catalog.create_table(
        "db.t",
        _SCHEMA,
        partition_spec=PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket")),
        sort_order=SortOrder(SortField(1, transform=IdentityTransform())),
        properties={"owner": "etl", "s3.secret-access-key": "canary-secret"},
    )
    with table.update_spec() as update:
        update.add_identity("id")
    return lake


def test_a_table_is_described_as_its_metadata_defines_it(shown: CommandLine) -> None:
    result = shown.ok("show", "db.t")["result"]
    table = pyiceberg_table(shown.warehouse)

    assert result["table_uuid"] == str(table.metadata.table_uuid)
    assert result["metadata_location"] == table.metadata_location
    identifier, person = result["schema"]["fields"]
    assert (identifier["id"], identifier["required"], identifier["doc"]) == (
        1,
        True,
        "key of a row",
    )
    assert [part["name"] for part in person["fields"]] == ["name", "mails"]
    assert [part["id"] for part in person["fields"][1]["fields"]] == [5]
    specs = result["partition_specs"]
    assert [(spec["spec_id"], spec["current"]) for spec in specs] == [(0, False), (1, True)]
    assert specs[0]["fields"] == [
        {
            "source_id": 1,
            "source": "id",
            "field_id": 1000,
            "name": "id_bucket",
            "transform": "bucket[4]",
        }
    ]
    assert result["sort_order"]["fields"][0]["direction"] == "asc"
    assert result["sizes"]["rows"] == 0


def test_specs_and_orders_are_shown_as_users_write_them(shown: CommandLine) -> None:
    drawn = shown("show", "db.t").stdout

    assert "spec 0\tid_bucket = bucket(4, id)\n" in drawn
    assert "spec 1 (current)\tid_bucket = bucket(4, id), id\n" in drawn


def test_secrets_in_properties_are_masked(shown: CommandLine) -> None:
    for words in (("--json", "show", "db.t"), ("show", "db.t")):
        result = shown(*words)
        assert result.exit_code == 0
        assert "canary" not in result.stdout + result.stderr
    properties = shown.ok("show", "db.t")["result"]["properties"]
    assert {"name": "owner", "value": "etl"} in properties
    assert {"name": "s3.secret-access-key", "value": "***"} in properties


def test_runs_refs_and_consumers_are_shown(lake: CommandLine) -> None:
    rows = lake.warehouse.parent / "rows.csv"
    rows.write_text("id,name\n1,a\n")
    lake.ok("ingest", "db.t", rows, "--create", "--run-id", "monday")
    lake.ok("tag", "db.t", "first")
    state = lake.warehouse.parent / "state"
    out = lake.warehouse.parent / "out"
    lake(
        *("scan", "db.t", "--follow", "--once", "--state", state, "--output", out),
        *("--consumer", "reader"),
    )

    result = lake.ok("show", "db.t")["result"]
    (run,) = result["writers"]["runs"]
    (snapshot,) = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert (run["run_id"], run["snapshot_id"]) == ("monday", snapshot["snapshot_id"])
    assert [item["name"] for item in result["consumers"]] == ["reader"]
    assert {("first", "tag"), ("main", "branch")} <= {
        (ref["name"], ref["type"]) for ref in result["refs"]
    }
    assert lake("--json", "show", "db.t", "--branch", "none").exit_code == 7


def test_a_flink_job_is_shown_with_its_last_checkpoint(lake: CommandLine) -> None:
    rows = lake.warehouse.parent / "rows.csv"
    rows.write_text("id,name\n1,a\n")
    lake.ok("ingest", "db.t", rows, "--create")
    table = lake.table()
    for number in (3, 4):
        table.append(
            table.scan().to_arrow().slice(0, 1),
            snapshot_properties={
                "flink.job-id": "a" * 32,
                "flink.operator-id": "b" * 32,
                "flink.max-committed-checkpoint-id": str(number),
            },
        )

    (job,) = lake.ok("show", "db.t")["result"]["writers"]["flink_jobs"]
    assert (job["job_id"], job["checkpoint_id"]) == ("a" * 32, 4)
    assert "checkpoint 4" in lake("show", "db.t").stdout
