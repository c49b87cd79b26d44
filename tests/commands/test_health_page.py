"""The page that `lake health --html` writes."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.cli.html_page import Element, parsed
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.iceberg_tables import make_table, named_rows, open_session, pyiceberg_table
from support.tables.metadata_edits import edit_metadata

from lake.core.base.errors import NotAuthorisedError
from lake.core.maintain.health.page import page as page_module
from lake.core.table.catalogs.sql import EmbeddedBackend

_BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
_HOSTILE = "<script>alert(1)<script>\"'&<img src=x onerror=alert(2)>{{7*7}}"
_WRITER = f"</style></script>{_HOSTILE}"


def _page(lake: CommandLine, folder: Path, *arguments: object) -> Element:
    path = folder / "page.html"
    lake("health", *arguments, "--html", path)
    return parsed(path.read_text())


def _list(page: Element) -> list[list[str]]:
    """Return the rows of the list of tables, with its headings."""
    (table,) = [one for one in page.all("table") if one.attributes.get("class") == "list"]
    return [[cell.text for cell in row.all("th", "td")] for row in table.all("tr")]


def _sections(page: Element) -> dict[str, Element]:
    """Return the sections of tables by their headings."""
    found = [one for one in page.all("section") if one.attributes.get("class") == "table"]
    return {section.one("h2").text: section for section in found}


def _chart(section: Element, title: str) -> list[list[str]]:
    """Return the rows of a chart, with its headings, without the column of bars."""
    (table,) = [one for one in section.all("table") if one.all("caption")[0].text == title]
    rows = [[cell.text for cell in row.all("th", "td")] for row in table.all("tr")]
    return [[name, *values] for name, _, *values in rows]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Tables with partitions, with deletes, with a hostile name, an empty one and a broken one."""
    warehouse = tmp_path_factory.mktemp("several") / "warehouse"
    make_table(warehouse, "db.parts", spec=_BY_NAME, history__expire__max_snapshot_age_ms="1")
    for _ in range(12):
        rows = pa.table({"id": pa.array(range(12), pa.int64()), "name": list("abcdefghijkl")})
        pyiceberg_table(warehouse, "db.parts").append(rows)
    make_table(warehouse, "db.deletes")
    pyiceberg_table(warehouse, "db.deletes").append(named_rows(*range(1000)))
    path = pyiceberg_table(warehouse, "db.deletes").inspect.data_files()["file_path"][0].as_py()
    table = open_session(warehouse).table("db.deletes")
    keys = equality_file(table, [{"id": 1}, {"id": 2}], ["id"])
    commit_deletes(table, position_file(table, [(path, 3)]), keys)
    make_table(warehouse, "db.empty")
    for name in ("db.broken", "db.hostile"):
        make_table(warehouse, name)
    pyiceberg_table(warehouse, "db.hostile").append(
        named_rows(1), snapshot_properties={"engine-name": _WRITER}
    )
    broken = pyiceberg_table(warehouse, "db.broken").metadata_location
    Path(broken.removeprefix("file://")).write_text("{")
    with sqlite3.connect(warehouse / "catalog.db") as database:
        database.execute(
            "UPDATE iceberg_tables SET table_name = ? WHERE table_name = 'hostile'", (_HOSTILE,)
        )
    return CommandLine(warehouse)


def test_the_list_has_a_row_for_each_table_in_the_order_of_the_report(
    several: CommandLine, tmp_path: Path
) -> None:
    rows = several("--json", "health").json()["result"]["tables"]

    headings, *lines = _list(_page(several, tmp_path))

    assert [line[0] for line in lines] == [row["table"] for row in rows]
    shown = {line[0]: dict(zip(headings, line, strict=False)) for line in lines}
    for row in rows:
        line = shown[row["table"]]
        if row["error"] is None:
            assert line["grade"] == row["grade"]
            assert line["needs"] == ", ".join(row["needs"])
            assert line["files"] == (f"{row['files']:,}" if row["files"] else "")
            assert line["snapshots"] == (f"{row['snapshots']:,}" if row["snapshots"] else "")
    assert shown["db.parts"]["files"] == "144"
    assert shown["db.deletes"]["deleted rows"] == "1,000 or less"


def test_a_table_that_cannot_be_read_is_a_row_with_the_reason(
    several: CommandLine, tmp_path: Path
) -> None:
    page = _page(several, tmp_path)

    (broken,) = [line for line in _list(page) if line[0] == "db.broken"]

    assert broken[1].startswith("not readable the metadata of table db.broken cannot be read")
    assert len(broken) == 2
    assert "db.broken" not in " ".join(_sections(page))
    (count,) = [one.text for one in page.all("li") if one.attributes["class"] == "not-readable"]
    assert count.startswith("1 not readable")


def test_each_table_has_a_section_that_the_list_and_the_map_point_to(
    several: CommandLine, tmp_path: Path
) -> None:
    page = _page(several, tmp_path)
    ids = [one.attributes["id"] for one in page.all() if "id" in one.attributes]
    targets = {one.attributes["href"] for one in page.all("a") if "href" in one.attributes}

    assert len(ids) == len(set(ids))
    assert targets <= {f"#{one}" for one in ids}
    sections = _sections(page)
    assert [name.rpartition(" ")[0] for name in sections] == [
        line[0] for line in _list(page)[1:] if "not readable" not in line[1]
    ]
    assert {f"#{one.attributes['id']}" for one in sections.values()} <= targets
    described = [
        one.attributes["aria-labelledby"] for one in page.all("svg") if "role" in one.attributes
    ]
    assert len(described) == 2 + len([name for name in sections if "db.empty" not in name])
    assert {one for labels in described for one in str(labels).split()} <= set(ids)


def test_a_section_shows_what_the_report_of_one_table_shows(
    several: CommandLine, tmp_path: Path
) -> None:
    result = several("--json", "health", "db.parts").json()["result"]
    view = result["view"]

    section = _sections(_page(several, tmp_path))["db.parts due"]

    headings, *partitions = _chart(section, "Worst 10 of 12 partitions")
    assert headings == ["partition", "files", "fewest", "bytes"]
    assert [line[:3] for line in partitions] == [
        [one["partition"], str(one["files"]), str(one["ideal_files"])] for one in view["partitions"]
    ]
    assert _chart(section, "Sizes of files")[1][:2] == ["below 1.0 MB", "144"]
    assert _chart(section, "Writers")[1:] == [["not named", "12"]]
    (timeline,) = [one for one in section.all("svg") if one.attributes.get("class") == "timeline"]
    (day,) = view["days"]
    assert f"{day['day']}: 12 commits, 144 files added, 144 rows added" in timeline.one("desc").text
    facts = dict(
        zip(
            [one.text for one in section.all("dt")],
            [one.text for one in section.all("dd")],
            strict=True,
        )
    )
    assert (facts["partitions"], facts["snapshots"], facts["rows"]) == ("12", "12", "144")
    deletes = _sections(_page(several, tmp_path, "db.deletes"))["db.deletes good"]
    assert _chart(deletes, "Deletes")[1:] == [["position", "1", "1"], ["equality", "1", "2"]]


def test_the_lengths_of_bars_are_proportional_to_their_values(
    several: CommandLine, tmp_path: Path
) -> None:
    section = _sections(_page(several, tmp_path, "db.deletes"))["db.deletes good"]
    (table,) = [one for one in section.all("table") if one.all("caption")[0].text == "Deletes"]

    bars = [[bar.attributes["width"] for bar in row.all("rect")] for row in table.all("tr")[1:]]

    assert bars == [["100.00%", "50.00%"], ["100.00%", "100.00%"]]


def test_the_areas_of_the_map_are_proportional_to_the_bytes(
    lake: CommandLine, tmp_path: Path
) -> None:
    for count in (1, 3, 9):
        make_table(lake.warehouse, f"db.t{count}")
        for number in range(count):
            lake.table(f"db.t{count}").append(named_rows(number))

    page = _page(lake, tmp_path)

    for style in ("wide", "narrow"):
        (found,) = [one for one in page.all("svg") if one.attributes.get("class") == f"map {style}"]
        cells = [one for one in found.all("svg") if "x" in one.attributes]
        areas = [_percent(cell, "width") * _percent(cell, "height") / 1e4 for cell in cells]
        names = [cell.one("title").text.partition(":")[0] for cell in cells]
        assert names == ["db.t9", "db.t3", "db.t1"]
        assert areas == pytest.approx([9 / 13, 3 / 13, 1 / 13], abs=0.01)


def _percent(cell: Element, side: str) -> float:
    return float(str(cell.attributes[side]).removesuffix("%"))


def test_hostile_names_are_text(several: CommandLine, tmp_path: Path) -> None:
    page = _page(several, tmp_path)

    (section,) = [one for name, one in _sections(page).items() if "script" in name]
    assert section.one("h2").text == f"db.{_HOSTILE} good"
    assert _chart(section, "Writers")[1][0] == _WRITER
    assert len(page.all("script")) == 1
    assert page.all("img") == []


def test_a_page_refers_to_nothing_outside_and_runs_only_its_own_script(
    several: CommandLine, tmp_path: Path
) -> None:
    page = _page(several, tmp_path)
    policy = page.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    allowed = dict(part.strip().split(" ", 1) for part in str(policy).split(";"))

    assert allowed["default-src"] == "'none'"
    for tag in ("style", "script"):
        content = "".join(str(one) for one in page.one(tag).inside)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[f"{tag}-src"] == f"'sha256-{digest}'"
        assert not re.search(r"url\(|@import|https?:|fetch|eval", content)
    for element in page.all():
        for name, value in element.attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            assert name not in {"src", "srcset", "data", "action"}
            if name == "href":
                assert str(value).startswith("#")
            elif "url(" in str(value):
                assert re.fullmatch(r"url\(#\w+\)", str(value))


def test_a_page_says_what_it_leaves_out(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdef":
        make_table(lake.warehouse, f"db.{name}")
        for number in range(ord(name) - ord("a") + 1):
            lake.table(f"db.{name}").append(named_rows(number))
    monkeypatch.setattr("lake.core.maintain.health.health.MOST_SECTIONS", 2)
    monkeypatch.setattr(page_module, "_MOST_ROWS", 3)
    monkeypatch.setattr("lake.core.maintain.health.page.overview._MOST_CELLS", 2)

    page = _page(lake, tmp_path, "--sort", "files")

    assert [line[0] for line in _list(page)[1:]] == ["db.f", "db.e", "db.d"]
    assert list(_sections(page)) == ["db.f good", "db.e good"]
    notes = " ".join(one.text for one in page.all("p"))
    assert "The first 3 tables are shown; 3 more are not." in notes
    assert "A section follows for each of the first 2 tables; 4 more could be read." in notes
    titles = [one.text.partition(":")[0] for one in page.all("title")]
    assert "4 smaller tables" in titles


def test_a_page_is_replaced_as_a_whole(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, "db.t")
    make_table(lake.warehouse, "db.u")

    first = _page(lake, tmp_path)
    second = _page(lake, tmp_path, "db.u")

    assert [line[0] for line in _list(first)[1:]] == ["db.t", "db.u"]
    assert [line[0] for line in _list(second)[1:]] == ["db.u"]
    assert [one.name for one in tmp_path.iterdir() if "unfinished" in one.name] == []
    missing = lake("health", "--html", tmp_path / "none" / "page.html")
    assert missing.exit_code == 7


def test_a_page_of_no_tables_is_a_page(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    lake.ok("drop", "db.t")

    page = _page(lake, tmp_path)

    assert [one for one in page.all("svg") if "role" in one.attributes] == []
    assert "0 tables" in page.one("header").text


def test_days_that_are_far_apart_or_outside_of_the_calendar_are_shown(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse)
    for number in range(3):
        lake.table().append(named_rows(number))

    def aged(document: dict[str, Any]) -> None:
        times = [-62_135_596_800_000, 0, 9_000_000_000_000_000]
        for snapshot, time in zip(document["snapshots"], times, strict=True):
            snapshot["timestamp-ms"] = time
        document["snapshot-log"] = []

    edit_metadata(lake.warehouse, aged)

    (section,) = _sections(_page(lake, tmp_path)).values()

    (timeline,) = [one for one in section.all("svg") if one.attributes.get("class") == "timeline"]
    assert len(timeline.all("rect")) == 2
    (axis,) = [one for one in section.all("p") if one.attributes.get("class") == "axis"]
    assert axis.all("span")[0].text == "0001-01-01"


def test_secrets_in_messages_are_masked(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(lake.warehouse)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-7f31c5d2")

    def load(backend: EmbeddedBackend, identifier: str) -> Any:
        raise NotAuthorisedError("the store refused canary-7f31c5d2")

    monkeypatch.setattr(EmbeddedBackend, "load", load)

    _, line = _list(_page(lake, tmp_path))

    assert line[1] == "not readable the store refused ***"


def test_the_template_library_is_loaded_for_a_page_only(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    code = """
import sys
from lake.cli.main import main
arguments = sys.argv[1:]
for options in ([], ["--html", "page.html"]):
    main([*arguments, *options])
    print("jinja2" in sys.modules)
"""
    command = [sys.executable, "-c", code, *lake.arguments("-q", "health")]

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert [line for line in done.stdout.splitlines() if line in {"False", "True"}] == [
        "False",
        "True",
    ]
