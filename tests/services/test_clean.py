"""`lake clean` on stores and catalogs as they are in production."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from support.cli.service_line import Service
from support.servers.s3_server import S3

from lake.core.io.storage import store_listing
from lake.core.io.storage.storage import Storage

AGE = ("--older-than", "0s", "--unsafe-retention", "--max-share", "100%")


@pytest.mark.parametrize("mode", ["--delete", "--quarantine"])
def test_exactly_the_files_that_nothing_references_go(
    service: Service, tmp_path: Path, mode: str
) -> None:
    lake, table = service.line(), service.table()
    file = tmp_path / "rows.csv"
    file.write_text("id,name\n1,a\n2,b\n")
    for _ in range(2):
        lake.ok("ingest", table, file, "--create")
    loaded = service.catalog().load_table(table)
    folder = loaded.location().rstrip("/")
    lost = [f"{folder}/data/lost 1.parquet", f"{folder}/metadata/lost-m0.avro"]
    for location in lost:
        with loaded.io.new_output(location).create() as output:
            output.write(b"x" * 100)
    # A store reports its time in whole seconds; younger files are kept.
    time.sleep(1 - time.time() % 1)
    before = service.unreferenced()
    planted = {name for name in before if "lost" in name}
    assert len(planted) == len(lost)

    listed = lake.ok("clean", table, *AGE)
    planned = lake.ok("clean", table, mode, *AGE, "--dry-run")["plan"]
    done = lake.ok("clean", table, mode, *AGE)["result"]

    assert listed["plan"]["orphans"] == 2
    assert listed["plan"]["requests"] is None
    requests = {"postgres": None, "gcs": 2}.get(service.kind, 1)
    assert planned["requests"] == (4 if requests and mode == "--quarantine" else requests)
    assert done["deleted"] + done["quarantined"] == 2
    kept = {name for name in service.unreferenced() if "/.lake-trash/" not in name}
    assert kept == before - planted
    assert service.rows() == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]
    if mode == "--quarantine":
        lake.ok("clean", table, "--restore", done["run_id"])
        assert service.unreferenced() == before


@pytest.mark.parametrize(
    ("parts", "files", "requests"),
    [(64, 100, 11), (4, 100, 7), (64, 3, 4), (2, 100, 3), (64, 0, 1)],
)
def test_a_folder_in_parts_has_the_same_files_as_in_whole(
    s3: S3, monkeypatch: pytest.MonkeyPatch, parts: int, files: int, requests: int
) -> None:
    store, bucket = s3.files(), s3.bucket()
    names = [f"data/day={day}/{hour}/{day} {hour}+1%.parquet" for day in (1, 2) for hour in "ab"]
    names += [f"data/x{number}/f" for number in range(2)]
    names += ["at root", "metadata/v1.json", "data/beside.parquet"]
    for name in [*(f"t/{name}" for name in names), "tt/other"]:
        with store.open_output_stream(f"{bucket}/{name}") as sink:
            sink.write(b"12")
    monkeypatch.setattr(store_listing, "_PARTS", parts)
    monkeypatch.setattr(store_listing, "_MANY_FILES", 1)
    monkeypatch.setattr(store_listing, "_FILES_OF_PART", 1)
    asked: list[str] = []
    listed = Storage._listed

    def counted(self: Storage, folder: str, **how: bool) -> list[object]:
        asked.append(folder)
        return listed(self, folder, **how)

    monkeypatch.setattr(Storage, "_listed", counted)
    opened = Storage(s3.properties())

    batches = pa.concat_tables(opened.each_batch(f"s3://{bucket}/t", files=files))
    found = {(row["path"], row["bytes"]) for row in batches.to_pylist()}
    assert len(asked) == requests
    assert found == {(f"s3://{bucket}/t/{name}", 2) for name in names}
    assert found == {
        (file.location, file.length) for file in opened.find_files(f"s3://{bucket}/t/")
    }
    assert list(opened.each_batch(f"s3://{bucket}/missing", files=files)) == []


def test_a_folder_without_a_name_is_listed_with_the_one_above(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = s3.bucket()
    client = cast("Any", Storage(s3.properties()).s3(f"s3://{bucket}/t"))[0]
    names = ["data/a/1", "data//b/2", "data//3", "metadata/4"]
    for name in names:
        client._client.put_object(Bucket=bucket, Key=f"t/{name}", Body=b"12")
    monkeypatch.setattr(store_listing, "_MANY_FILES", 1)

    batches = Storage(s3.properties()).each_batch(f"s3://{bucket}/t", files=100_000)
    found = [path for batch in batches for path in batch["path"].to_pylist()]
    assert sorted(found) == sorted(f"s3://{bucket}/t/{name}" for name in names)
