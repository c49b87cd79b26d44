"""`lake clean --inventory`: the files of an inventory are checked like those of a listing, and as they are now."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from support.tables.tidy_table import Tidy, planted_orphans

from lake.core.io.storage.file_names import FileNames
from lake.core.io.storage.storage import Storage
from lake.core.maintain.orphans.inventory import read_inventory

Write = Callable[[Path, pa.Table], Path]


@pytest.fixture
def tidy(tmp_path: Path) -> Tidy:
    return Tidy(tmp_path)


def listing(tidy: Tidy) -> pa.Table:
    """Return an inventory of all files of the table."""
    files = [path for path in tidy.root.rglob("*") if path.is_file()]
    times = [datetime.fromtimestamp(path.stat().st_mtime, UTC) for path in files]
    return pa.table(
        {
            "path": [f"file://{path}" for path in files],
            "size": pa.array([path.stat().st_size for path in files], pa.int64()),
            "last_modified": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def parquet(folder: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, folder / "inventory.parquet", row_group_size=3)
    return folder / "inventory.parquet"


def orc(folder: Path, rows: pa.Table) -> Path:
    times = rows["last_modified"].cast(pa.timestamp("ms"), safe=False)
    pyarrow.orc.write_table(rows.set_column(2, "last_modified", times), folder / "inventory.orc")
    return folder / "inventory.orc"


def text(folder: Path, rows: pa.Table) -> Path:
    lines = [
        f'"{row["path"]}",{row["size"]},{row["last_modified"].isoformat().replace("+00:00", "Z")}'
        for row in rows.to_pylist()
    ]
    (folder / "inventory.csv").write_text("\n".join(["path,size,last_modified", *lines, ""]))
    return folder / "inventory.csv"


def parts(folder: Path, rows: pa.Table) -> Path:
    (folder / "inventory").mkdir()
    pq.write_table(rows.slice(0, 4), folder / "inventory" / "1.parquet")
    pq.write_table(rows.slice(4), folder / "inventory" / "2.parquet")
    (folder / "inventory" / "_SUCCESS").touch()
    return folder / "inventory"


@pytest.mark.parametrize("write", [parquet, orc, text, parts])
def test_the_orphans_of_an_inventory_are_those_of_a_listing(
    tidy: Tidy, tmp_path: Path, write: Write
) -> None:
    planted = planted_orphans(tidy)
    tidy.plant("data/young.parquet", days=1)
    listed = tidy.clean()["plan"]

    inventory = write(tmp_path, listing(tidy))
    found = tidy.clean("--inventory", inventory)["plan"]
    done = tidy.clean("--inventory", inventory, "--delete")

    assert {**found, "older_than": ""} == {**listed, "older_than": ""}
    assert done["result"]["deleted"] == len(planted)
    assert not any(path.exists() for path in planted)
    assert tidy.ids == [1, 2, 3]


def test_files_that_are_gone_or_were_written_again_are_kept(tidy: Tidy, tmp_path: Path) -> None:
    lost, gone, again = (tidy.plant(f"data/{name}.parquet") for name in ("lost", "gone", "again"))
    inventory = parquet(tmp_path, listing(tidy))
    gone.unlink()
    tidy.plant("data/again.parquet", days=0, text="new rows")

    done = tidy.clean("--inventory", inventory, "--delete")

    assert done["status"] == "done"
    assert done["plan"]["kept"] == {"gone": 1, "young": 1} | done["plan"]["kept"]
    assert done["result"]["deleted"] == 1
    assert (lost.exists(), again.exists()) == (False, True)


def test_metadata_that_is_newer_than_the_inventory_is_read(tidy: Tidy, tmp_path: Path) -> None:
    """A file that was not committed yet when the inventory was made."""
    planned = tidy.plant("data/planned.parquet")
    inventory = parquet(tmp_path, listing(tidy))
    planned.unlink()
    (tmp_path / "4.csv").write_text("id,name\n4,a\n")
    tidy.lake.ok("ingest", "db.t", tmp_path / "4.csv")
    newest = max((tidy.root / "data").glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    rows = pq.read_table(inventory)
    paths = [
        f"file://{newest}" if path.endswith("planned.parquet") else path
        for path in rows["path"].to_pylist()
    ]
    os.utime(newest, (time.time() - 30 * 24 * 3600,) * 2)
    pq.write_table(rows.set_column(0, "path", pa.array(paths)), inventory)

    done = tidy.clean("--inventory", inventory, "--delete")

    assert done["status"] == "nothing-to-do"
    assert tidy.ids == [1, 2, 3, 4]


def test_an_inventory_of_another_bucket_is_refused(tidy: Tidy, tmp_path: Path) -> None:
    lost = tidy.plant("data/lost.parquet")
    rows = listing(tidy)
    others = [f"s3://other/{path}" for path in rows["path"].to_pylist()]
    inventory = parquet(tmp_path, rows.set_column(0, "path", pa.array(others)))

    failed = tidy.lake("--json", "clean", "db.t", "--delete", "--inventory", inventory)

    assert failed.exit_code == 7
    assert "contains no file below" in failed.json()["error"]["message"]
    assert lost.exists()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("size", pa.array([-1], pa.int64())),
        ("size", pa.array([2**64 - 1], pa.uint64())),
        ("path", pa.array([None], pa.string())),
        ("last_modified", pa.array([7], pa.int64())),
        ("last_modified", pa.array(["noon"], pa.string())),
        ("key", pa.array(["a"], pa.string())),
    ],
)
def test_rows_that_no_inventory_has_are_refused(
    tidy: Tidy, tmp_path: Path, column: str, values: pa.Array
) -> None:
    lost = tidy.plant("data/lost.parquet")
    rows = listing(tidy).slice(0, 1)
    columns = {name: rows[name] for name in rows.column_names} | {column: values}
    if column == "key":
        del columns["path"]
    inventory = parquet(tmp_path, pa.table(columns))

    failed = tidy.lake("--json", "clean", "db.t", "--delete", "--inventory", inventory)

    assert failed.exit_code == 7
    assert "inventory" in failed.json()["error"]["message"]
    assert lost.exists()


@pytest.mark.parametrize(
    "content", ["", "[]", '{"files": 1}', '{"fileSchema": "Key", "files": []}']
)
def test_what_is_not_the_manifest_of_an_inventory_is_refused(
    tidy: Tidy, tmp_path: Path, content: str
) -> None:
    (tmp_path / "manifest.json").write_text(content)

    failed = tidy.lake("--json", "clean", "db.t", "--inventory", tmp_path / "manifest.json")

    assert failed.exit_code == 7


def s3_inventory(folder: Path) -> Path:
    """Write an S3 inventory in CSV: versions of objects, deleted ones, and a name with special characters."""
    names = ["new.parquet", "a b+c%.parquet", "deleted.parquet"]
    lines = [
        f'"bucket","t/{quote_plus(name)}","7","2026-01-01T00:00:00.000Z","true","{marker}"'
        for name, marker in zip(names, ("false", "false", "true"), strict=True)
    ]
    lines.append('"bucket","t/new.parquet","5","2025-01-01T00:00:00.000Z","false","false"')
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "x.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    document = {
        "sourceBucket": "bucket",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size, LastModifiedDate, IsLatest, IsDeleteMarker",
        "files": [{"key": "inventories/bucket/daily/data/x.csv.gz", "size": 1}],
    }
    manifest = folder / "2026-01-02T01-00Z" / "manifest.json"
    manifest.parent.mkdir()
    manifest.write_text(json.dumps(document))
    return manifest


def test_the_current_objects_of_an_s3_inventory_are_read(tmp_path: Path) -> None:
    manifest = s3_inventory(tmp_path / "daily")

    found = pa.concat_tables(read_inventory(Storage({}), str(manifest)))

    assert found.to_pylist() == [
        {"path": "s3://bucket/t/new.parquet", "bytes": 7, "modified_ms": 1_767_225_600_000},
        {"path": "s3://bucket/t/a b+c%.parquet", "bytes": 7, "modified_ms": 1_767_225_600_000},
    ]


def test_equal_schemes_and_authorities_name_one_file() -> None:
    names = FileNames({"oss": "s3"}, {"old-bucket": "bucket"})

    found = names.of(
        pa.array(["oss://bucket/t/a", "s3a://old-bucket/t/a", "s3://old-bucket.more/t/a", "/t/a"])
    )

    assert found.to_pylist() == [
        "s3://bucket/t/a",
        "s3://bucket/t/a",
        "s3://old-bucket.more/t/a",
        "/t/a",
    ]


def test_a_live_file_with_a_slash_behind_its_name_is_not_an_orphan(
    tidy: Tidy, tmp_path: Path
) -> None:
    planted = planted_orphans(tidy)
    rows = listing(tidy)
    rows = rows.set_column(0, "path", pa.array([f"{path}/" for path in rows["path"].to_pylist()]))
    inventory = parquet(tmp_path, pa.concat_tables([listing(tidy), rows]))

    done = tidy.clean("--inventory", inventory, "--delete")

    assert done["result"]["deleted"] == len(planted)
    assert tidy.ids == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("i.orc", b"ORC" + bytes(100), "cannot be read as an inventory"),
        ("i.parquet", b"PAR1" + bytes(100) + b"PAR1", "cannot be read as an inventory"),
        ("i.csv.gz", b"not gzip", "cannot be read as an inventory"),
        (
            "i.csv",
            b"path,size,last_modified\n/" + b"x" * 5000 + b",4,2020-01-01T00:00:00Z\n",
            "5001 bytes",
        ),
    ],
)
def test_an_inventory_that_is_damaged_is_an_error_of_the_input(
    tidy: Tidy, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    planted = planted_orphans(tidy)
    (tmp_path / name).write_bytes(data)
    failed = tidy.lake("clean", "db.t", "--inventory", tmp_path / name, "--delete")
    assert failed.exit_code == 7
    assert message in failed.stderr
    assert all(path.exists() for path in planted)
