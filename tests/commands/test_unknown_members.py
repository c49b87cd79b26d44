"""Members of metadata that lake does not know: every commit keeps them, digit by digit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.metadata_edits import metadata_path

from lake.core.io.avro.container import Block, read_container, write_container
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.hadoop import HadoopBackend
from lake.core.table.catalogs.sql import SqlBackend
from lake.core.table.manifests.api import (
    MANIFEST_SCHEMA,
    ManifestListHeader,
    encode_manifest_list,
    read_manifest_list,
)

# A value whose digits a parser would change, and one that a model would.
VALUE = (
    '{"exact":[1.10,-0.0,1e400,123456789012345678901234567890,null,"\\u00e4\\n"],"deep":{"a":{}}}'
)
Plain = Any


class Digits(str):
    """The text of a number with a fraction."""


def exact(text: str) -> Plain:
    return json.loads(text, parse_float=Digits)


@pytest.fixture(params=["sql", "hadoop"])
def lake(request: pytest.FixtureRequest, warehouse: Path) -> CommandLine:
    return CommandLine(warehouse, catalog_type=request.param)


@pytest.fixture
def ingest(lake: CommandLine, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def ingested(columns: dict[str, Any], *options: str) -> dict[str, Any]:
        path = tmp_path / f"{len(list(tmp_path.glob('*.parquet')))}.parquet"
        pq.write_table(pa.table(columns), path)
        return lake.ok("ingest", "db.t", path, *options)

    return ingested


NESTED = {
    "id": [1],
    "s": [{"x": 1, "l": [{"y": 1}]}],
    "m": pa.array([[("k", {"z": 1})]], pa.map_(pa.string(), pa.struct({"z": pa.int64()}))),
}


def objects(value: Plain, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all objects of metadata but maps of texts, by their places."""
    if isinstance(value, dict):
        if name.rpartition(".")[2] not in {"properties", "summary", "refs"}:
            yield name, value
        for key, inner in value.items():
            if key != "x-future":
                yield from objects(inner, f"{name}.{key}")
    if isinstance(value, list):
        for at, inner in enumerate(value):
            yield from objects(inner, f"{name}[{at}]")


def mark_all(path: Path) -> dict[str, Any]:
    """Put an unknown member into each object of a metadata file, and return what it holds then."""
    plain = exact(path.read_text())
    snapshot = plain["current-snapshot-id"]
    plain["encryption-keys"] = [{"key-id": "k1", "encrypted-key-metadata": "bm90aGluZw=="}]
    blob = {"type": "ndv", "snapshot-id": snapshot, "sequence-number": 1, "fields": [1]}
    file = {"snapshot-id": snapshot, "file-size-in-bytes": 9}
    plain["statistics"] = [
        {
            **file,
            "statistics-path": f"{path.parent}/a.stats",
            "file-footer-size-in-bytes": 4,
            "key-metadata": "bm8=",
            "blob-metadata": [blob],
        }
    ]
    plain["partition-statistics"] = [{**file, "statistics-path": f"{path.parent}/b.stats"}]
    for snapshot in plain["snapshots"]:
        snapshot["key-id"] = "k1"
    for _, found in list(objects(plain, "")):
        found["x-future"] = "VALUE"
    path.write_text(json.dumps(plain).replace('"VALUE"', VALUE))
    marked: dict[str, Any] = exact(path.read_text())
    return marked


def of_lists(plain: dict[str, Any]) -> dict[str, list[Any]]:
    return {key: value for key, value in plain.items() if isinstance(value, list)}


def lost(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the places of objects of the table before that are not there after, whole, but log entries."""
    found = []
    for name, items in of_lists(before).items():
        found += [f"{name}: {item}" for item in items if item not in after[name]]
    for name in ("x-future", "encryption-keys"):
        found += [] if after.get(name) == before[name] else [name]
    return found


def test_every_commit_keeps_members_at_every_level(
    lake: CommandLine, warehouse: Path, ingest: Callable[..., dict[str, Any]]
) -> None:
    ingest(NESTED, "--create", "--property", "format-version=3", "--partition-by", "bucket(2, id)")
    ingest(NESTED)
    before = mark_all(metadata_path(warehouse))
    assert len(list(objects(before, ""))) > 25

    ingest(NESTED)
    appended = exact(metadata_path(warehouse).read_text())
    assert lost(before, appended) == []
    assert appended["refs"]["main"]["x-future"] == before["refs"]["main"]["x-future"]
    assert appended["refs"]["main"]["snapshot-id"] != before["refs"]["main"]["snapshot-id"]

    lake.ok("compact", "db.t", "--min-input-files", "2")
    assert lost(before, exact(metadata_path(warehouse).read_text())) == []

    first, second = before["snapshots"]
    lake.ok("expire", "db.t", "--snapshot", str(first["snapshot-id"]))
    expired = exact(metadata_path(warehouse).read_text())
    gone = [place for place in lost(before, expired) if not place.startswith("snapshot-log")]
    assert [place.partition(":")[0] for place in gone] == ["snapshots"]
    assert second in expired["snapshots"]
    assert expired["x-future"] == exact(VALUE)


def test_a_new_schema_keeps_the_members_of_the_columns_that_it_keeps(
    warehouse: Path, ingest: Callable[..., dict[str, Any]]
) -> None:
    ingest(NESTED, "--create")
    before = mark_all(metadata_path(warehouse))

    ingest({"id": [2], "new": ["a"]}, "--evolve")

    after = exact(metadata_path(warehouse).read_text())
    assert lost(before, after) == []
    (old,) = before["schemas"]
    new = next(item for item in after["schemas"] if item["schema-id"] == after["current-schema-id"])
    assert new["fields"][:3] == old["fields"]
    assert new["fields"][3]["name"] == "new"
    assert "x-future" not in new["fields"][3]


def test_a_cleaned_table_keeps_the_members_of_what_it_keeps(
    lake: CommandLine, warehouse: Path, ingest: Callable[..., dict[str, Any]]
) -> None:
    ingest(NESTED, "--create")
    ingest({"id": [2], "new": ["a"]}, "--evolve")
    before = mark_all(metadata_path(warehouse))

    first = str(before["snapshots"][0]["snapshot-id"])
    lake.ok("compact", "db.t", "--min-input-files", "2")
    second = str(before["snapshots"][1]["snapshot-id"])
    lake.ok("expire", "db.t", "--snapshot", first, "--snapshot", second, "--clean-metadata")

    after = exact(metadata_path(warehouse).read_text())
    assert [item in before["schemas"] for item in after["schemas"]] == [True]
    assert after["partition-specs"] == before["partition-specs"]
    assert after["sort-orders"] == before["sort-orders"]


def test_version_1_keeps_members_too_and_its_schema_is_the_current_one(
    warehouse: Path, ingest: Callable[..., dict[str, Any]]
) -> None:
    ingest(NESTED, "--create", "--property", "format-version=1", "--partition-by", "bucket(2, id)")
    before = mark_all(metadata_path(warehouse))

    ingest({"id": [2], "new": ["a"]}, "--evolve")

    after = exact(metadata_path(warehouse).read_text())
    assert lost(before, after) == []
    assert after["schema"]["schema-id"] == after["current-schema-id"] != 0
    assert after["schema"] in after["schemas"]
    assert after["partition-spec"] == after["partition-specs"][0]["fields"]


@pytest.mark.parametrize(("partition_by", "last"), [("bucket(2, id)", 1000), (None, 999)])
def test_a_commit_adds_what_version_2_requires_and_a_writer_left_out(
    warehouse: Path,
    ingest: Callable[..., dict[str, Any]],
    partition_by: str | None,
    last: int,
) -> None:
    ingest(NESTED, "--create", *(("--partition-by", partition_by) if partition_by else ()))
    path = metadata_path(warehouse)
    plain = json.loads(path.read_text())
    del plain["last-partition-id"], plain["sort-orders"]
    path.write_text(json.dumps(plain))

    ingest({"id": [2]})

    after = json.loads(metadata_path(warehouse).read_text())
    assert after["last-partition-id"] == last
    assert after["sort-orders"] == [{"order-id": 0, "fields": []}]


class TestServers:
    """Where a server makes the metadata, it keeps what it knows, unless lake sends it something in its place."""

    @pytest.fixture(autouse=True)
    def _served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for backend in (SqlBackend, HadoopBackend):
            monkeypatch.setattr(backend, "makes_metadata", False)

    def test_a_schema_that_would_lose_members_is_refused(
        self,
        lake: CommandLine,
        warehouse: Path,
        ingest: Callable[..., dict[str, Any]],
        tmp_path: Path,
    ) -> None:
        ingest(NESTED, "--create")
        path = metadata_path(warehouse)
        plain = json.loads(path.read_text())
        plain["schemas"][0]["fields"][1]["type"]["fields"][0]["x-future"] = 1
        path.write_text(json.dumps(plain))
        pq.write_table(pa.table({"id": [2], "new": ["a"]}), tmp_path / "evolved.parquet")

        refused = lake("--json", "ingest", "db.t", tmp_path / "evolved.parquet", "--evolve")

        assert refused.exit_code == 3
        assert "x-future" in refused.json()["error"]["message"]
        assert metadata_path(warehouse) == path
        ingest({"id": [2]})

    def test_a_ref_that_would_lose_members_is_refused(
        self,
        lake: CommandLine,
        warehouse: Path,
        ingest: Callable[..., dict[str, Any]],
        tmp_path: Path,
    ) -> None:
        ingest(NESTED, "--create")
        path = metadata_path(warehouse)
        plain = json.loads(path.read_text())
        plain["refs"]["main"]["x-future"] = 1
        path.write_text(json.dumps(plain))
        pq.write_table(pa.table({"id": [2]}), tmp_path / "more.parquet")

        refused = lake("--json", "ingest", "db.t", tmp_path / "more.parquet")

        assert refused.exit_code == 3
        assert "x-future" in refused.json()["error"]["message"]

    def test_times_that_java_refuses_are_warned_of(
        self, warehouse: Path, ingest: Callable[..., dict[str, Any]]
    ) -> None:
        ingest(NESTED, "--create")
        path = metadata_path(warehouse)
        plain = json.loads(path.read_text())
        plain["last-updated-ms"] -= 120_000
        path.write_text(json.dumps(plain))

        warnings = ingest(NESTED)["warnings"]

        assert any("Iceberg Java does not load" in warning for warning in warnings)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 900 + "]" * 900])
def test_what_cannot_be_kept_is_refused(
    lake: CommandLine,
    warehouse: Path,
    ingest: Callable[..., dict[str, Any]],
    tmp_path: Path,
    text: str,
) -> None:
    ingest(NESTED, "--create")
    path = metadata_path(warehouse)
    written = path.read_text().replace('"location"', f'"x-future":{text},"location"', 1)
    path.write_text(written)
    pq.write_table(pa.table({"id": [2]}), tmp_path / "more.parquet")

    found = lake("--json", "ingest", "db.t", tmp_path / "more.parquet")

    if found.exit_code == 0:
        assert json.loads(metadata_path(warehouse).read_text())["x-future"] == json.loads(text)
    else:
        assert found.exit_code in {3, 7}
        assert path.read_text() == written


# Manifest lists and manifests


def with_field(path: Path, field_id: int, *, inside: str | None = None) -> int:
    """Put an optional field, of no value, into an Avro file of one record, and return the file's length."""
    container = read_container(path.read_bytes(), name=str(path))
    schema = json.loads(container.schema_json)
    record = schema
    if inside is not None:
        record = next(item for item in schema["fields"] if item["name"] == inside)["type"]
    record["fields"].append({"name": "x_future", "field-id": field_id, "type": ["null", "int"]})
    header = {
        key: value.decode()
        for key, value in container.metadata.items()
        if not key.startswith("avro.")
    }
    (block,) = container.blocks
    block = Block(block.objects, bytes(block.data) + b"\0")
    path.write_bytes(write_container(schema, [block], metadata=header))
    return path.stat().st_size


def head_list(warehouse: Path) -> Path:
    plain = json.loads(metadata_path(warehouse).read_text())
    snapshot = next(
        item for item in plain["snapshots"] if item["snapshot-id"] == plain["current-snapshot-id"]
    )
    return Path(urlsplit(snapshot["manifest-list"]).path)


def test_fields_of_a_manifest_list_that_a_commit_would_drop_are_refused(
    lake: CommandLine, warehouse: Path, ingest: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    ingest(NESTED, "--create")
    with_field(head_list(warehouse), 599)
    before = metadata_path(warehouse)
    pq.write_table(pa.table({"id": [2]}), tmp_path / "more.parquet")

    refused = lake("--json", "ingest", "db.t", tmp_path / "more.parquet")

    assert refused.exit_code == 3
    assert "599" in refused.json()["error"]["message"]
    assert metadata_path(warehouse) == before
    assert lake.ok("scan", "db.t", "--plan")["status"] == "done"


def test_a_manifest_with_unknown_fields_is_kept_whole_or_its_change_is_refused(
    lake: CommandLine, warehouse: Path, ingest: Callable[..., dict[str, Any]]
) -> None:
    merging = ("commit.manifest.min-count-to-merge=2", "format-version=2")
    ingest(NESTED, "--create", *(part for text in merging for part in ("--property", text)))
    (row,) = read_manifest_list(Storage(), str(head_list(warehouse))).to_pylist()
    manifest = Path(urlsplit(row["manifest_path"]).path)
    row["manifest_length"] = with_field(manifest, 199, inside="data_file")
    rows = pa.Table.from_pylist([row], schema=MANIFEST_SCHEMA)
    head = json.loads(metadata_path(warehouse).read_text())["snapshots"][-1]
    data = encode_manifest_list(
        rows,
        ManifestListHeader(
            format_version=2,
            snapshot_id=head["snapshot-id"],
            parent_snapshot_id=None,
            sequence_number=1,
            first_row_id=None,
        ),
    )
    head_list(warehouse).write_bytes(data)

    ingest(NESTED)
    ingest(NESTED)

    held = read_manifest_list(Storage(), str(head_list(warehouse)))["manifest_path"].to_pylist()
    assert row["manifest_path"] in held
    refused = lake("--json", "compact", "db.t", "--min-input-files", "2")
    assert refused.exit_code == 3
    assert "199" in refused.json()["error"]["message"]
    assert lake.ok("scan", "db.t", "--plan")["status"] == "done"
