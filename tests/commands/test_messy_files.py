"""Files as people have them: what `lake ingest` reads, what it says of them, and what it refuses with a hint."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table


@dataclass(frozen=True, kw_only=True)
class Messy:
    """A file that can be loaded.

    Args:
        name: its name.
        content: its bytes.
        rows: the rows that another reader of the table finds, in order.
        options: the options of the load.
        warned: parts of the warnings, in order; no others are printed.
        types: some columns' types.
    """

    name: str = "x.csv"
    content: bytes
    rows: list[dict[str, Any]]
    options: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)


def text(content: str, encoding: str = "utf-8") -> bytes:
    return content.encode(encoding)


DAY = date(2024, 12, 31)
NAMES = [{"id": 1, "name": "Müller"}, {"id": 2, "name": "Åse"}]
READ = {
    "semicolons": Messy(
        content=text("id;name\n1;Müller\n2;Åse\n"),
        rows=NAMES,
        warned=["x.csv is separated by ';'"],
    ),
    "semicolons that are stated": Messy(
        content=text("id;name\n1;Müller\n2;Åse\n"), rows=NAMES, options=["--delimiter", ";"]
    ),
    "tabs in a csv": Messy(
        content=text("id\tname\n1\tMüller\n2\tÅse\n"), rows=NAMES, warned=["separated by tab"]
    ),
    "tabs that are stated as a shell passes them": Messy(
        content=text("id\tname\n1\tMüller\n2\tÅse\n"), rows=NAMES, options=["--delimiter", r"\t"]
    ),
    "pipes": Messy(
        content=text("id|name\n1|Müller\n2|Åse\n"), rows=NAMES, warned=["separated by '|'"]
    ),
    "a tsv with commas in its values": Messy(
        name="x.tsv", content=text("id\tname\n1\ta,b\n"), rows=[{"id": 1, "name": "a,b"}]
    ),
    "one column with semicolons in some values": Messy(
        content=text("note\na;b\nc\n"), rows=[{"note": "a;b"}, {"note": "c"}]
    ),
    "semicolons in the values of a file with commas": Messy(
        content=text("id,name\n1,a;b\n2,c;d\n"),
        rows=[{"id": 1, "name": "a;b"}, {"id": 2, "name": "c;d"}],
    ),
    "a European export": Messy(
        content=text("Datum;Betrag;Menge\n31.12.2024;1.234,50;3\n31.12.2024;0,5;n/a\n"),
        rows=[
            {"Datum": DAY, "Betrag": 1234.5, "Menge": 3},
            {"Datum": DAY, "Betrag": 0.5, "Menge": None},
        ],
        options=["--delimiter", ";", "--decimal", ",", "--date-format", "%d.%m.%Y", "--null", "n/a"],
    ),
    "a European export without options": Messy(
        content=text("Datum;Betrag;Menge\n31.12.2024;1.234,50;3\n31.12.2024;0,5;n/a\n"),
        rows=[
            {"Datum": "31.12.2024", "Betrag": "1.234,50", "Menge": "3"},
            {"Datum": "31.12.2024", "Betrag": "0,5", "Menge": "n/a"},
        ],
        warned=[
            "separated by ';'",
            "Datum is text because of '31.12.2024' in row 1 (--date-format %d.%m.%Y)",
            "Betrag is text because of '1.234,50' in row 1 (--decimal ,)",
            "Menge is text because of 'n/a' in row 2 (--null n/a)",
        ],
    ),
    "a French number": Messy(
        content=text("n\n\"1\N{NARROW NO-BREAK SPACE}234,5\"\n\"2 000\"\n"),
        rows=[{"n": 1234.5}, {"n": 2000.0}],
        options=["--decimal", ","],
    ),
    "an English number with thousands": Messy(
        content=text('n\n"1,234.50"\n"-12,000"\n'),
        rows=[{"n": 1234.5}, {"n": -12000.0}],
        options=["--decimal", "."],
    ),
    "a number that two countries read differently": Messy(
        content=text('n\n"1,234"\n'),
        rows=[{"n": "1,234"}],
        warned=["n is text because of '1,234' in row 1 (--decimal , or --decimal .)"],
    ),
    "Latin-1": Messy(
        content=text("id,name\n1,Müller\n2,Åse\n", "latin-1"),
        rows=NAMES,
        options=["--encoding", "latin-1"],
    ),
    "Windows' quotes": Messy(
        content=text("id,name\n1,“x”\n", "cp1252"),
        rows=[{"id": 1, "name": "“x”"}],
        options=["--encoding", "cp1252"],
    ),
    "UTF-16 as Excel writes it": Messy(
        content=text("id\tname\r\n1\tMüller\r\n2\tÅse\r\n", "utf-16"),
        rows=NAMES,
        warned=["encoded in UTF-16", "separated by tab"],
    ),
    "UTF-16 without a mark": Messy(
        content=text("id,name\n1,Müller\n2,Åse\n", "utf-16-be"),
        rows=NAMES,
        options=["--encoding", "utf-16-be"],
    ),
    "UTF-8 with a mark": Messy(content=text("\ufeffid,name\n1,Müller\n2,Åse\n"), rows=NAMES),
    "compressed Latin-1": Messy(
        name="x.csv.gz",
        content=gzip.compress(text("id;name\n1;Müller\n2;Åse\n", "latin-1")),
        rows=NAMES,
        options=["--encoding", "latin-1"],
        warned=["separated by ';'"],
    ),
    "lines of Windows, and none at the end": Messy(
        content=b"id,name\r\n1,a\r\n2,b", rows=[{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    ),
    "empty lines": Messy(content=b"id,name\n\n1,a\n\n\n", rows=[{"id": 1, "name": "a"}]),
    "lines in quotes": Messy(
        content=b'id,name\n1,"a\n\nb"\n', rows=[{"id": 1, "name": "a\n\nb"}]
    ),
    "doubled quotes": Messy(
        content=b'id,name\n1,"say ""hi"", x"\n', rows=[{"id": 1, "name": 'say "hi", x'}]
    ),
    "apostrophes for quotes": Messy(
        content=b"id,name\n1,'a,b'\n", rows=[{"id": 1, "name": "a,b"}], options=["--quote", "'"]
    ),
    "quotes that mean nothing": Messy(
        content=b'id,size\n1,5"\n2,"7\n',
        rows=[{"id": 1, "size": '5"'}, {"id": 2, "size": '"7'}],
        options=["--quote", ""],
    ),
    "a title above the header": Messy(
        content=b'Report "May"\nmade, by hand\nid,name\n1,a\n',
        rows=[{"id": 1, "name": "a"}],
        options=["--skip-rows", "2"],
    ),
    "no header": Messy(
        content=b"1,a\n2,b\n", rows=[{"f0": 1, "f1": "a"}, {"f0": 2, "f1": "b"}], options=["--no-header"]
    ),
    "words for NULL, in quotes or not": Messy(
        content=b'id,name\n1,-\n-,"n/a"\n',
        rows=[{"id": 1, "name": None}, {"id": None, "name": None}],
        options=["--null", "-", "--null", "n/a"],
    ),
    "NULL, NA and blanks among numbers": Messy(
        content=b"id,n\n1,NULL\n2,NA\n3, 4 \n",
        rows=[{"id": 1, "n": None}, {"id": 2, "n": None}, {"id": 3, "n": 4}],
    ),
    "dates that could be of two countries": Messy(
        content=b"d\n02/01/2024\n",
        rows=[{"d": "02/01/2024"}],
        warned=["(--date-format %d/%m/%Y or --date-format %m/%d/%Y)"],
    ),
    "American dates and times": Messy(
        content=b"at\n12/31/2024 01:05 PM\n",
        rows=[{"at": datetime(2024, 12, 31, 13, 5)}],
        options=["--date-format", "%m/%d/%Y %I:%M %p"],
    ),
    "times with offsets": Messy(
        content=b"at\n31.12.2024 13:05 +0100\n",
        rows=[{"at": datetime(2024, 12, 31, 12, 5, tzinfo=UTC)}],
        options=["--date-format", "%d.%m.%Y %H:%M %z"],
    ),
    "two forms of dates": Messy(
        content=b"d,at\n31.12.2024,2024-12-31\n",
        rows=[{"d": DAY, "at": DAY}],
        options=["--date-format", "%d.%m.%Y", "--date-format", "iso"],
    ),
    "a date that lost its first digit": Messy(
        # Python would read the first one as 11 January.
        content=b"d\nx1112024\nx01112024\n",
        rows=[{"d": "x1112024"}, {"d": "x01112024"}],
        warned=["d is text because of 'x1112024' in row 1"],
        options=["--date-format", "x%d%m%Y"],
    ),
    "dates and times without separators": Messy(
        content=b"a,b\n20241231130559123,20241231 1:05Z\n20241231130559123456,20241231 13:05+01:00\n",
        rows=[
            {"a": datetime(2024, 12, 31, 13, 5, 59, us), "b": datetime(2024, 12, 31, hour, 5, tzinfo=UTC)}
            for us, hour in ((123000, 1), (123456, 12))
        ],
        options=["--date-format", "%Y%m%d%H%M%S%f", "--date-format", "%Y%m%d %H:%M%z"],
    ),
    "leading zeros": Messy(
        content=b"zip,n\n01234,1\n98101,2\n",
        rows=[{"zip": "01234", "n": 1}, {"zip": "98101", "n": 2}],
    ),
    "one bad value late in the file": Messy(
        content=b"n\n" + b"1\n" * 999 + b"oops\n",
        rows=[*({"n": "1"} for _ in range(999)), {"n": "oops"}],
        warned=["n is text because of 'oops' in row 1000"],
    ),
    "yes and no": Messy(
        content=b"ok\nyes\nno\n", rows=[{"ok": "yes"}, {"ok": "no"}], types={"ok": "string"}
    ),
    "names with spaces and units": Messy(
        content=text("Order ID,Amount (€)\n1,2.5\n"), rows=[{"Order ID": 1, "Amount (€)": 2.5}]
    ),
    "a JSON array": Messy(
        name="x.json", content=b'[{"id": 1, "name": "a"},\n {"id": 2, "name": null}]\n',
        rows=[{"id": 1, "name": "a"}, {"id": 2, "name": None}],
    ),
    "pretty JSON": Messy(
        name="x.json",
        content=json.dumps([{"id": 1, "tags": ["x]", "{"]}, {"id": 2, "tags": []}], indent=2).encode(),
        rows=[{"id": 1, "tags": ["x]", "{"]}, {"id": 2, "tags": []}],
    ),
    "one pretty JSON object": Messy(
        name="x.json", content=b'{\n  "id": 1,\n  "name": "a"\n}\n', rows=[{"id": 1, "name": "a"}]
    ),
    "JSON in UTF-16": Messy(
        name="x.json",
        content=text('{"id": 1, "name": "Müller"}\n{"id": 2, "name": "Åse"}\n', "utf-16"),
        rows=NAMES,
        warned=["encoded in UTF-16"],
    ),
    "JSON with German dates": Messy(
        name="x.json",
        content=b'{"d": "31.12.2024"}\n',
        rows=[{"d": DAY}],
        options=["--date-format", "%d.%m.%Y"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_a_messy_file_is_read(
    lake: CommandLine, warehouse: Path, tmp_path: Path, case: Messy
) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.content)

    document = lake.ok("ingest", "db.t", path, "--create", *case.options)

    table = pyiceberg_table(warehouse)
    assert table.scan().to_arrow().to_pylist() == case.rows
    assert document["result"]["rows_written"] == len(case.rows)
    for warning, part in zip(document["warnings"], case.warned, strict=True):
        assert part in warning
    for name, kind in case.types.items():
        assert str(table.schema().find_type(name)) == kind


def excel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return content.getvalue()


REFUSED: dict[str, tuple[str, bytes, list[str], int, str, str]] = {
    # name: (file, content, options, exit code, part of the message, part of the hint)
    "Latin-1 without saying so": (
        "x.csv", text("id,name\n1,a\n2,Müller\n", "latin-1"), [], 7,
        "x.csv, line 3: the byte 0xFC is not UTF-8", "--encoding latin-1",
    ),
    "a Latin-1 header": (
        "x.csv", text("id,größe\n1,2\n", "latin-1"), [], 7, "x.csv, line 1: the byte 0xF6", "latin-1",
    ),
    "semicolons in some rows only": (
        "x.csv", b"a;b\n1;2,5\nx\n", [], 7,
        "x.csv, line 2: 1 column expected, 2 found", "is it separated by ';'? try --delimiter ';'",
    ),
    "a ragged row after a value of two lines": (
        "x.csv", b'id,name\n1,"a\nb"\n\n2,c,d\n', [], 7,
        "x.csv, line 5: 2 columns expected, 3 found", "in quotes",
    ),
    "two columns of one name": (
        "x.csv", b"id,name,name\n1,a,b\n", [], 7, "two columns named name", "rename one",
    ),
    "a file that is cut off": ("x.csv", b'id,name\n1,"a', [], 7, "ends inside a quoted value", ""),
    "an Excel file": ("x.xlsx", excel(), [], 3, "x.xlsx is an Excel file", "save the sheet as CSV"),
    "an Excel file named csv": ("x.csv", excel(), [], 3, "is an Excel file", "libreoffice"),
    "an old Excel file named csv": (
        "x.csv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 600, [], 3, "is an Excel file", "CSV",
    ),
    "a compressed file with the wrong name": (
        "x.csv", gzip.compress(b"id\n1\n"), [], 7, "is compressed by gzip", "end in .gz",
    ),
    "the wrong encoding": (
        "x.csv", b"id,name\n1,a\n2\xd8", ["--encoding", "utf-16"], 7, "is not utf-16", "--encoding",
    ),
    "an unknown encoding": (
        "x.csv", b"id\n1\n", ["--encoding", "utf-99"], 2, "--encoding 'utf-99' is not", "latin-1",
    ),
    "a long delimiter": ("x.csv", b"a||b\n", ["--delimiter", "||"], 2, "--delimiter '||'", "';'"),
    "an odd decimal separator": ("x.csv", b"a\n", ["--decimal", "x"], 2, "--decimal 'x'", ""),
    "a format that is not a date's": (
        "x.csv", b"a\n", ["--date-format", "%H:%M"], 2, "does not contain year, month and day", "%d",
    ),
    "a format of nothing": ("x.csv", b"a\n", ["--date-format", "%Q"], 2, "--date-format '%Q'", "%d"),
    "a format with names of zones": (
        "x.csv", b"a\n", ["--date-format", "%Y-%m-%d %Z"], 2, "ambiguous", "%z",
    ),
    "a format of half days that lacks which half": (
        "x.csv", b"a\n", ["--date-format", "%Y-%m-%d %I:%M"], 2, "does not read a time as it writes it", "%p",
    ),
    "CSV options for JSON": (
        "x.json", b'{"a": 1}\n', ["--delimiter", ";"], 2, "--delimiter is an option of CSV files", "",
    ),
    "an encoding for Parquet": (
        "x.parquet", b"PAR1", ["--encoding", "latin-1"], 2, "--encoding is an option of CSV or JSON", "",
    ),
    "a JSON array of numbers": (
        "x.json", b"[1, 2]\n", [], 7, "line 1 of {path} is not a JSON object", "in an array",
    ),
    "a JSON array that is cut off": (
        "x.json", b'[{"a": 1},\n{"a": 2}', [], 7, "line 2 of {path} cannot be read", "",
    ),
    "two JSON arrays": (
        "x.json", b'[{"a": 1}]\n[{"a": 2}]', [], 7, "text after the end of the array", "",
    ),
    "a JSON array with a bad element": (
        "x.json", b'[{"a": 1},\n{"a": }]', [], 7, "line 2 of {path} cannot be read", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_file_that_cannot_be_read_says_what_to_do(
    lake: CommandLine,
    warehouse: Path,
    tmp_path: Path,
    case: tuple[str, bytes, list[str], int, str, str],
) -> None:
    name, content, options, code, message, hint = case
    path = tmp_path / name
    path.write_bytes(content)

    result = lake("--json", "ingest", "db.t", path, "--create", *options)

    error = result.json()["error"]
    assert (result.exit_code, message.format(path=path) in error["message"]) == (code, True), error
    assert hint in (error["hint"] or "")
    assert not (warehouse / "db").exists()


@pytest.mark.slow
def test_rows_after_a_quote_that_is_not_closed_do_not_become_one_value(
    lake: CommandLine, tmp_path: Path
) -> None:
    # More than the 8 MiB of one block.
    path = tmp_path / "x.csv"
    path.write_bytes(b'id,name\n1,"a,' + b"2,bbbbbbbbbbb\n" * 800_000)

    result = lake("ingest", "db.t", path, "--create")

    assert result.exit_code == 7
    assert "ends inside a quoted value" in result.stderr


def test_files_without_a_header_have_the_columns_of_the_table_in_their_order(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    first, second, narrow = (tmp_path / f"{n}.csv" for n in range(3))
    first.write_text("id,name\n1,a\n")
    second.write_text("2,b\n")
    narrow.write_text("3\n")
    lake.ok("ingest", "db.t", first, "--create")

    lake.ok("ingest", "db.t", second, "--no-header")
    refused = lake("--json", "ingest", "db.t", narrow, "--no-header")

    table = pyiceberg_table(warehouse)
    assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == [1, 2]
    assert refused.exit_code == 7
    assert "has 1 columns, but the table has 2" in refused.json()["error"]["message"]


def test_a_column_whose_name_has_a_delimiter_is_read_as_before(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a;b\n1;2|3\n")
    lake.ok("ingest", "db.t", path, "--create", "--delimiter", ",")
    path.write_text("a;b\n4;5\n")

    lake.ok("ingest", "db.t", path)

    rows = pyiceberg_table(warehouse).scan().to_arrow().to_pylist()
    assert sorted(row["a;b"] for row in rows) == ["1;2|3", "4;5"]


def test_a_dry_run_shows_the_types_with_their_reasons_and_the_first_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id;Qty\n" + "".join(f"{n};{n}\n" for n in range(1, 5)) + "5;n/a\n6;6\n")

    plan = lake.ok("ingest", "db.t", path, "--create", "--dry-run")["plan"]

    assert not warehouse.exists()
    assert plan["delimiters"] == [";"]
    assert plan["type_notes"] == [{"column": "Qty", "file": str(path), "row": 5, "value": "n/a"}]
    assert [row["Qty"] for row in plan["sample_rows"]] == ["1", "2", "3", "4", "n/a"]


def test_a_dry_run_warns_of_a_first_row_that_does_not_fit(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id\n1\n")
    lake.ok("ingest", "db.t", path, "--create")
    path.write_text("id\n2\nx\n")

    document = lake.ok("ingest", "db.t", path, "--dry-run")

    assert document["warnings"] == [
        f"the load will fail: column id of {path}, row 2: 'x' is not a valid long"
    ]
