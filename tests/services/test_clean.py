"""`lake clean` on stores and catalogs as they are in production."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.cli.service_line import Service

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
    time.sleep(2)
    before = service.unreferenced()
    planted = {name for name in before if "lost" in name}
    assert len(planted) == len(lost)

    listed = lake.ok("clean", table, *AGE)
    planned = lake.ok("clean", table, mode, *AGE, "--dry-run")["plan"]
    done = lake.ok("clean", table, mode, *AGE)["result"]

    assert listed["plan"]["orphans"] == 2
    assert listed["plan"]["requests"] is None
    in_store = folder.startswith("s3")
    assert planned["requests"] == ((4 if mode == "--quarantine" else 1) if in_store else None)
    assert done["deleted"] + done["quarantined"] == 2
    kept = {name for name in service.unreferenced() if "/.lake-trash/" not in name}
    assert kept == before - planted
    assert service.rows() == [(1, "a"), (1, "a"), (2, "b"), (2, "b")]
    if mode == "--quarantine":
        lake.ok("clean", table, "--restore", done["run_id"])
        assert service.unreferenced() == before
