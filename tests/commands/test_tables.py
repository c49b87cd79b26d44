"""`lake tables` through the command line."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine, Result

from lake.cli.main import main


def _fill(lake: CommandLine, *names: str) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id,name\n1,a\n2,b\n")
    for name in names:
        lake.ok("ingest", name, source, "--create")


@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_tables_are_listed_with_the_totals_of_their_newest_snapshots(
    tmp_path: Path, catalog_type: str
) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline", catalog_type=catalog_type)
    lake.warehouse.mkdir()
    if catalog_type == "hadoop":
        assert lake.ok("tables")["result"] == {"namespaces": [], "tables": [], "views": []}
    _fill(lake, "db.t", "a.b.u")

    result = lake.ok("tables")["result"]
    assert result["namespaces"] == ["a", "a.b", "db"]
    found = {row["table"]: row for row in result["tables"]}
    assert list(found) == ["a.b.u", "db.t"]
    row = found["db.t"]
    sizes = lake.ok("scan", "db.t", "--plan")["plan"]
    assert (row["rows"], row["files"], row["bytes"]) == (2, 1, sizes["bytes"])
    assert (row["format_version"], row["namespace"], row["error"]) == (2, "db", None)
    snapshot = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]
    assert row["last_commit"] == snapshot["committed_at"]


@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_a_warehouse_that_does_not_exist_is_not_an_empty_one(
    tmp_path: Path, catalog_type: str
) -> None:
    lake = CommandLine(tmp_path / "misspelt", engine="inline", catalog_type=catalog_type)

    result = lake("-q", "tables")

    assert result.exit_code == 7
    assert f"there is no folder {lake.warehouse}" in result.stderr
    assert "check --warehouse and --catalog" in result.stderr
    assert not lake.warehouse.exists()


def test_a_folder_without_a_catalog_is_not_an_empty_warehouse(lake: CommandLine) -> None:
    lake.warehouse.mkdir(exist_ok=True)

    result = lake("tables")

    assert result.exit_code == 7
    assert "contains no catalog (catalog.db)" in result.stderr


def test_a_pattern_is_a_glob_or_the_name_of_a_namespace(lake: CommandLine) -> None:
    _fill(lake, "db.t", "db.u", "db2.t")

    def names(pattern: str) -> list[str]:
        return [row["table"] for row in lake.ok("tables", pattern)["result"]["tables"]]

    assert names("db") == ["db.t", "db.u"]
    assert names("db*.t") == ["db.t", "db2.t"]
    assert names("db2.t") == ["db2.t"]
    unmatched = lake("-q", "tables", "nothing*")
    assert unmatched.exit_code == 7
    assert "no namespace and no table matches nothing*" in unmatched.stderr
    for verb, misspelt, meant in (("tables", "db.tt", "db.t"), ("health", "bd2", "db2")):
        failed = lake("--json", verb, misspelt).json()["error"]
        assert failed["message"] == f"no namespace and no table is named {misspelt}"
        assert failed["hint"] == f"did you mean {meant}?"
    missing = lake("--json", "tables", "db.none")
    assert (missing.exit_code, missing.json()["error"]["kind"]) == (7, "not-found")


def test_a_table_that_cannot_be_read_is_a_row_with_its_error(lake: CommandLine) -> None:
    _fill(lake, "db.t", "db.broken")
    location = lake.table("db.broken").metadata_location
    Path(location.removeprefix("file://")).write_text("{")

    result = lake("--json", "tables")
    document = result.json()
    assert (result.exit_code, document["status"]) == (6, "partial")
    broken, whole = document["result"]["tables"]
    assert (broken["table"], broken["error"]["kind"], broken["rows"]) == (
        "db.broken",
        "corrupt",
        None,
    )
    assert (whole["table"], whole["rows"], whole["error"]) == ("db.t", 2, None)
    text = lake("tables")
    assert "1 could not be read" in text.stderr
    assert "next:" not in text.stderr


def test_delete_files_make_the_number_of_rows_uncertain(lake: CommandLine) -> None:
    _fill(lake, "db.t")
    rows = lake.warehouse.parent / "rows.csv"
    lake.ok("ingest", "db.t", rows, "--upsert", "--key", "id", "--deletes", "equality")

    (row,) = lake.ok("tables", "db.t")["result"]["tables"]
    assert (row["rows"], row["rows_at_most"], row["delete_files"]) == (None, 4, 1)
    assert "4 or less" in lake("tables").stdout


def test_the_tables_of_all_configured_catalogs_are_listed(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _fill(lake, "db.t")
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(
        "catalog:\n"
        "  lake:\n    type: sql\n"
        f"    uri: sqlite:///{lake.warehouse}/catalog.db\n    warehouse: {lake.warehouse}\n"
        f"  away:\n    type: sql\n    uri: sqlite:///{tmp_path}/none/catalog.db\n"
        "  odd:\n    type: unheard-of\n    token: hushhushhush\n"
    )
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["--json", "tables", "--all-catalogs"])
    result = Result(code, out.getvalue(), "")
    assert result.exit_code == 6
    found = {row["catalog"]: row for row in result.json()["result"]["tables"]}
    assert found["lake"]["table"] == "db.t"
    assert found["odd"]["error"]["kind"] == "bad-input"
    assert "hushhushhush" not in result.stdout
    both = lake("--json", "tables", "--all-catalogs")
    assert (both.exit_code, both.json()["error"]["kind"]) == (2, "invalid-request")
