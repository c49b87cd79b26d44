"""Tables whose properties say where their files go: all commands follow, and none goes further."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import SCHEMA, pyiceberg_catalog, pyiceberg_table

from lake.cli.main import main

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
HASH = r"[01]{4}/[01]{4}/[01]{4}/[01]{8}"
NAME = r"\d{5}-[^/]+\.parquet"
_NOW = ("--older-than", "0s", "--unsafe-retention")


class Placed:
    """A table whose files are stored where its properties say."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder, self.warehouse = folder, folder / "warehouse"
        self.lake = CommandLine(self.warehouse)
        catalog = pyiceberg_catalog(self.warehouse)
        catalog.create_namespace_if_not_exists("db")
        catalog.create_table("db.t", SCHEMA, partition_spec=BY_NAME, properties=properties)
        self.model: dict[int, str] = {}

    @property
    def table(self) -> Any:
        return pyiceberg_table(self.warehouse)

    def load(self, rows: dict[int, str], *options: object) -> None:
        path = self.folder / f"source-{len(self.model)}.parquet"
        pq.write_table(pa.table({"id": list(rows), "name": list(rows.values())}), path)
        self.lake.ok("ingest", "db.t", path, *options)
        self.model |= rows

    def live(self) -> list[str]:
        """Return all live data and delete files."""
        found = self.table.inspect.files()
        return [path.removeprefix("file://") for path in found["file_path"].to_pylist()]

    def check(self, places: str) -> None:
        read = self.table.scan().to_arrow().to_pylist()
        assert {row["id"]: row["name"] for row in read} == self.model
        for path in self.live():
            assert re.fullmatch(places, path), (places, path)


def places(root: Path, middle: str) -> str:
    return f"{re.escape(str(root))}/{middle}"


@pytest.mark.parametrize(
    ("spread", "by_partition", "outside", "expected"),
    [
        pytest.param(
            *("true", "true", False, f"{HASH}/(name=[ab]/)?{NAME}"), marks=pytest.mark.slow
        ),
        pytest.param("true", "false", False, f"{HASH}-{NAME}", marks=pytest.mark.slow),
        ("true", "true", True, f"{HASH}/db/t/(name=[ab]/)?{NAME}"),
        ("false", "true", True, f"(name=[ab]/)?{NAME}"),
    ],
    ids=["hashed", "flat", "hashed elsewhere", "plain elsewhere"],
)
def test_all_commands_write_to_these_places_and_expiry_empties_them(
    tmp_path: Path, spread: str, by_partition: str, outside: bool, expected: str
) -> None:
    elsewhere = tmp_path / "other" / "files"
    properties = {
        "write.object-storage.enabled": spread,
        "write.object-storage.partitioned-paths": by_partition,
    }
    if outside:
        properties["write.data.path"] = f"file://{elsewhere}/"
        properties["write.metadata.path"] = f"file://{tmp_path}/other/metadata"
    placed = Placed(tmp_path, **properties)
    root = elsewhere if outside else placed.warehouse / "db" / "t" / "data"
    where = places(root, expected)
    # Others' files beside the table's own.
    stranger = root / "0000" / "stranger.parquet"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"")

    placed.load({1: "a", 2: "b", 3: "a"})
    placed.load({4: "a", 5: "b"})
    placed.check(where)
    for mode in ("position", "copy-on-write"):
        placed.load({1: "a", 5: "b", 6: "b"}, "--upsert", "--key", "id", "--deletes", mode)
        placed.check(where)
    placed.load({7: "a"}, "--stage", "--run-id", "r1")
    placed.lake.ok("replay", "db.t", "--job", "r1", "--completed", 1)
    placed.check(where)
    placed.lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    placed.check(where)
    done = placed.lake.ok("expire", "db.t", *_NOW)

    placed.check(where)
    assert done["result"]["failed_deletes"] == 0
    left = {str(path) for path in root.rglob("*") if path.is_file()}
    assert left == {*placed.live(), str(stranger)}
    metadata = tmp_path / "other" / "metadata" if outside else root.parent / "metadata"
    assert list(metadata.glob("snap-*.avro"))
    assert not list(metadata.glob("lake-*"))
    if outside:
        assert not (placed.warehouse / "db").exists()


def test_files_of_a_former_location_are_reported_and_kept(tmp_path: Path) -> None:
    placed = Placed(tmp_path, **{"write.data.path": f"file://{tmp_path}/first"})
    placed.load({1: "a"})
    old = placed.live()
    with placed.table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/second"})
    placed.load({1: "a", 2: "b"}, "--overwrite")

    result = placed.lake("--json", "expire", "db.t", *_NOW)

    assert [Path(path).exists() for path in old] == [True]
    assert any("outside" in warning for warning in result.json()["warnings"])
    placed.check(places(tmp_path / "second", f"name=[ab]/{NAME}"))


def test_a_location_provider_that_a_table_names_is_reported_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    keys = ("write.location-provider.impl", "write.py-location-provider.impl")
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), path)

    for number, key in enumerate(keys):
        placed = Placed(tmp_path / str(number), **{key: "evil.Provider"})
        for command in (("ingest", "db.t", path), ("compact", "db.t", "--rewrite-all")):
            warnings = placed.lake.ok(*command)["warnings"]
            assert any(key in warning for warning in warnings)
        assert placed.live()[0].startswith(str(placed.warehouse / "db" / "t" / "data" / "name=a"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("warehouse_name", "table", "code"),
    [
        ("there#x", "db.t", 2),
        ("there?x", "db.t", 2),
        ("there\nx", "db.t", 2),
        ("there%20x", "db.t", 2),
        ("new", "there#x.t", 3),
        ("new", "db.there?x", 3),
    ],
)
def test_a_name_that_means_another_to_the_catalog_touches_neither(
    tmp_path: Path, warehouse_name: str, table: str, code: int
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    for other in ("there", "there x", "new/there", "new/db/there"):
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).write_text("theirs")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    result = CommandLine(tmp_path / warehouse_name)("--json", "ingest", table, source, "--create")

    assert result.exit_code == code
    assert result.json()["error"]["hint"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_warehouse_is_a_folder_of_this_machine_however_it_is_spelled(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    folder = tmp_path / "warehouse"
    CommandLine(folder).ok("ingest", "db.t", source, "--create")
    before = os.listdir()

    for spelled in (f"file://{folder}", f"file:{folder}", f"{folder}/"):
        document = json.loads(_called("--json", "--warehouse", spelled, "scan", "db.t")[1])
        assert document["result"]["rows"] == 1
    for word in (("snapshots", "db.t"), ("ingest", "db.t", str(source), "--create")):
        assert _called("--warehouse", "s3://bucket/x", *word)[0] == 2

    assert os.listdir() == before


def _called(*words: str) -> tuple[int, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        return main(words), out.getvalue()
