"""The page of `lake health --html` in a browser."""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.servers.browser import Browser
from support.tables.iceberg_tables import make_table, named_rows, pyiceberg_table

_BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
_HOSTILE = "<img src=x onerror=name='changed'><script>name='changed'<" + "x" * 100
# The least contrast of text in the Web Content Accessibility Guidelines, level AA.
_LEAST_CONTRAST = 4.5
# Each visible text whose colour has too little contrast to what is behind it.
_FAINT = (
    """((least) => {
  const part = (value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [red, green, blue] = numbers(colour).map((value) => part(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) === 1) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  let count = 0;
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].filter((node) => node.nodeType === 3);
    const text = own.map((node) => node.data.trim()).join("");
    if (!text || !element.getClientRects().length) continue;
    count += 1;
    const style = getComputedStyle(element);
    const isDrawn = element.tagName === "text";
    const colour = isDrawn ? style.fill : style.color;
    const under = isDrawn
      ? getComputedStyle(element.parentElement.querySelector(".fill")).fill
      : behind(element);
    const [dark, bright] = [light(colour), light(under)].sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < least) found.push([text, colour, under, contrast]);
  }
  return [count, found];
})"""
    f"({_LEAST_CONTRAST})"
)
_NAMES = (
    "[...document.querySelectorAll('table.list tbody tr')].map((row) => row.cells[0].innerText)"
)


def _heading(name: str) -> str:
    headings = "[...document.querySelectorAll('table.list thead th')]"
    return f"{headings}.find((one) => one.innerText.startsWith('{name}'))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with each grade that a small catalog can have, and with a hostile name."""
    folder = tmp_path_factory.mktemp("page")
    warehouse = folder / "warehouse"
    make_table(warehouse, "db.parts", spec=_BY_NAME, history__expire__max_snapshot_age_ms="1")
    for _ in range(12):
        rows = pa.table({"id": pa.array(range(12), pa.int64()), "name": list("abcdefghijkl")})
        pyiceberg_table(warehouse, "db.parts").append(rows)
    for count in (2, 5):
        make_table(warehouse, f"db.t{count}")
        pyiceberg_table(warehouse, f"db.t{count}").append(named_rows(*range(count * 1000)))
    for name in ("db.broken", "db.hostile"):
        make_table(warehouse, name).append(named_rows(1))
    broken = pyiceberg_table(warehouse, "db.broken").metadata_location
    Path(broken.removeprefix("file://")).write_text("{")
    with sqlite3.connect(warehouse / "catalog.db") as database:
        database.execute(
            "UPDATE iceberg_tables SET table_name = ? WHERE table_name = 'hostile'", (_HOSTILE,)
        )
    result = CommandLine(warehouse)("health", "--html", folder / "page.html")
    assert result.exit_code == 6
    return folder / "page.html"


@pytest.fixture
def shown(browser: Browser, page: Path) -> Iterator[Browser]:
    """The browser with the page; the page caused no message, such as a violation of its policy."""
    browser.messages.clear()
    browser.open(page)
    yield browser
    assert browser.messages == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_fits_in_each_window_and_its_texts_are_legible(shown: Browser, dark: bool) -> None:
    for width in (390, 900, 1440):
        shown.show(width, dark=dark)

        assert shown.run("document.documentElement.scrollWidth") == width
        count, faint = shown.run(_FAINT)
        assert count > 150
        assert faint == []
    background = shown.run("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(17, 21, 27)" if dark else "rgb(245, 246, 248)")


def test_the_map_has_the_shape_of_the_window(shown: Browser) -> None:
    for width, style in ((390, "narrow"), (900, "wide")):
        shown.show(width)
        assert shown.run(
            "[...document.querySelectorAll('.map')].filter((one) => one.getClientRects().length)"
            ".map((one) => one.classList[1])"
        ) == [style]


def test_a_click_on_a_heading_sorts_the_list(shown: Browser) -> None:
    shown.show(1440)
    before = shown.run(_NAMES)
    heading = _heading("bytes")

    shown.run(f"{heading}.querySelector('button').click()")
    largest_first = shown.run(_NAMES)
    sorting = shown.run(f"{heading}.getAttribute('aria-sort')")
    shown.run(f"{heading}.querySelector('button').click()")
    smallest_first = shown.run(_NAMES)
    shown.run(f"{_heading('table')}.querySelector('button').click()")

    assert before[0] == "db.broken"
    assert before[1] == "db.parts"
    assert largest_first[:3] == ["db.parts", "db.t5", "db.t2"]
    assert sorting == "descending"
    assert smallest_first == [*reversed(largest_first[:-1]), "db.broken"]
    assert shown.run(_NAMES)[1:] == ["db.broken", "db.parts", "db.t2", "db.t5"]
    assert shown.run(f"{heading}.getAttribute('aria-sort')") is None


def test_a_page_is_complete_without_scripts(browser: Browser, page: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)

        assert browser.run("document.querySelectorAll('button').length") == 0
        assert browser.run(_NAMES)[:2] == ["db.broken", "db.parts"]
        assert browser.run("document.querySelectorAll('section.table').length") == 4
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_hostile_name_is_shown_and_does_nothing(shown: Browser) -> None:
    assert f"db.{_HOSTILE}" in shown.run(_NAMES)
    assert shown.run("name") == ""
    assert shown.run("document.querySelectorAll('img').length") == 0


def test_a_page_is_printed_in_light_colours_and_as_a_whole(shown: Browser) -> None:
    shown.show(900, dark=True, medium="print")

    assert shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert shown.run(_FAINT)[1] == []
    assert shown.run("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    printed = base64.b64decode(shown.call("Page.printToPDF")["data"])
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") >= 2
