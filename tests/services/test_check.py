"""`lake check` on stores and catalogs as they are in production."""

from __future__ import annotations

import json
from pathlib import Path

from support.cli.service_line import Service


def test_missing_and_changed_files_are_found_by_listing(service: Service, tmp_path: Path) -> None:
    lake, table = service.line(), service.table()
    file = tmp_path / "rows.csv"
    file.write_text("id,name\n1,a b\n2,c%20d\n3,e\n")
    for _ in range(2):
        lake.ok("ingest", table, file, "--create", "--partition-by", "name")
    loaded = service.catalog().load_table(table)
    paths = sorted(task.file.file_path for task in loaded.scan().plan_files())
    result = lake.ok("check", table, "--files")["result"]
    assert (result["findings"], result["files"]) == ([], len(paths))

    loaded.io.delete(paths[0])
    with loaded.io.new_output(paths[-1]).create(overwrite=True) as output:
        output.write(b"PAR1")

    found = json.loads(lake("--json", "check", table, "--files").stdout)["result"]["findings"]
    codes = {item["place"]: item["code"] for item in found}
    assert codes == {paths[0]: "F001", paths[-1]: "F003"}
