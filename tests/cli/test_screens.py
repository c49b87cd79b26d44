"""What a terminal shows at 80, 120 and 200 columns: whole numbers and ids, and nothing that is left out silently."""

from __future__ import annotations

import contextlib
import io
import re
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.cells import cell_len
from support.cli.command_line import CommandLine

from lake.cli.display import Display
from lake.cli.main import main

_ROWS = 30
_WIDTHS = (80, 120, 200)
_STYLE = re.compile(r"\x1b\[([0-9;]*)m")
# Bold, dim, italic, and the colors of labels, which are readable on light and on dark screens.
_STYLES = {"", "0", "1", "2", "3", "31", "33", "36"}
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d.]*(?![\w.])")
_PYTHON = re.compile(r"\b(True|False|None|datetime|Decimal|dict_keys|mappingproxy)\b|<\w+ object")
_VARYING = re.compile(r"\b\d+\.\d ?s\b|\b\d+m \d\ds\b")
SCREENS = {
    "all types": "scan db.wild",
    "some columns": "scan db.wild --select id,name,note,seen --limit 3",
    "nested values": "scan db.wild --select id,address,tags,attrs",
    "no rows": "scan db.wild --where id<0",
    "blocks": "--vertical scan db.wild --limit 3",
    "many numbers": "scan db.numbers",
    "long names": "scan db.names",
    "changes": "scan db.wild --changes --key id",
    "plan": "scan db.wild --plan",
    "snapshots": "snapshots db.wild",
    "all of snapshots": "--verbose snapshots db.wild --all",
    "compaction": "compact db.wild --rewrite-all --dry-run",
    "nothing to compact": "compact db.numbers",
    "expiration": "expire db.wild --older-than 2d --dry-run",
    "expired files": "--verbose expire db.wild --retain-last 1 --older-than 2d --dry-run",
    "new table": "ingest db.other {folder}/wild.parquet --create --dry-run",
    "upsert": "ingest db.wild {folder}/wild.parquet --upsert --key id --dry-run",
    "checkpoints": "replay db.wild",
    "settings": "config",
    "help": "--help",
    "help of a command": "ingest --help",
}


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("screens")
    lake = CommandLine(made / "warehouse", engine="inline")
    pq.write_table(_wild(), made / "wild.parquet")
    pq.write_table(
        pa.table({f"c{n:02d}": [123456789012345678] * 3 for n in range(25)}), made / "n.parquet"
    )
    names = {f"the_name_of_a_column_that_someone_chose_{n}": [f"v{n}"] for n in range(40)}
    pq.write_table(pa.table(names), made / "names.parquet")
    lake.ok("ingest", "db.wild", made / "wild.parquet", "--create", "--partition-by", "day")
    lake.ok("ingest", "db.wild", made / "wild.parquet", "--upsert", "--key", "id")
    lake.ok("ingest", "db.numbers", made / "n.parquet", "--create")
    lake.ok("ingest", "db.names", made / "names.parquet", "--create")
    return made


def _wild() -> pa.Table:
    numbers = range(_ROWS)
    second = [datetime(2026, 1, 1, 12, 0, n, (n % 2) * 400_000, tzinfo=UTC) for n in numbers]
    controls = "\n\x1b[31mred\x1b[0m\x00 \u202ereversed\r\x9b2J"
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [(None, "", "NULL", f"user {n}")[n % 4] for n in numbers],
            "ok": [(None, True, False)[n % 3] for n in numbers],
            "price": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(20, 2)),
            "ratio": [n / 7 if n % 4 else float("nan") for n in numbers],
            "day": [date(2026, 1, 1 + n % 3) for n in numbers],
            "seen": pa.array(second, pa.timestamp("us", "UTC")),
            "address": [{"city": None, "geo": {"lat": n / 2, "ok": True}} for n in numbers],
            "tags": [["a", "b", None] * n for n in numbers],
            "attrs": pa.array([[("k", "v")]] * _ROWS, pa.map_(pa.string(), pa.string())),
            "note": ["a long text that goes on and on " * (n % 12) + controls for n in numbers],
            "raw": [b"\x00\xff" * n for n in numbers],
            "big": [123456789012345678 + n for n in numbers],
        }
    )


def screen(
    monkeypatch: pytest.MonkeyPatch, folder: Path, line: str, width: int, *more: str
) -> tuple[str, str]:
    """Return what a terminal of a width shows of standard output, and all that it receives."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    words = [word.format(folder=folder) for word in line.split()]
    arguments = [
        *CommandLine(folder / "warehouse", engine="inline").arguments(*words),
        "--progress=none",
        *more,
    ]
    out, err = (_Terminal(io.BytesIO(), "utf-8", write_through=True, newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(arguments) == 0
    texts = []
    for stream in (out, err):
        buffer: Any = stream.buffer
        texts.append(buffer.getvalue().decode())
    return texts[0], "".join(texts)


def _without_styles(text: str) -> str:
    return _STYLE.sub("", text)


def _header(text: str) -> list[str]:
    """Return the names of the columns: the line that styles make bold."""
    first = text.split("\n", 1)[0]
    return [name.strip() for name in re.findall(r"\x1b\[1m(.*?)\x1b\[0m", first)]


@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_shows_whole_values_and_counts_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, width: int
) -> None:
    drawn, received = screen(monkeypatch, folder, SCREENS[name], width)
    lines = _without_styles(drawn).split("\n")

    # A command stays on one line, so that it can be copied.
    wrapped = [line for line in lines if not line.startswith("next: ")]
    assert [line for line in wrapped if cell_len(line) > width] == []
    assert {style for styles in _STYLE.findall(received) for style in styles.split(";")} <= _STYLES
    plain = _without_styles(received)
    assert not [char for char in plain if char != "\n" and unicodedata.category(char) == "Cc"]
    assert "\u202e" not in plain
    assert _PYTHON.findall(plain) == []

    if "help" in name:
        return
    whole, _ = screen(monkeypatch, folder, SCREENS[name], width, "--columns", "all")
    known = set(_NUMBER.findall(_VARYING.sub("", _without_styles(whole))))
    mark = re.search(r"(\d+) columns, (\d+) shown", drawn.replace("\n", " "))
    shown = set(_NUMBER.findall(_VARYING.sub("", "\n".join(lines)))) - set(
        mark.groups() if mark else ()
    )
    # Within a text that is shortened, anything may be cut.
    cut = {number for number in shown - known if f"{number}…" in drawn}
    assert shown - known - cut == set()
    names = _header(drawn)
    assert bool(mark) == ("…" in names)
    if mark:
        every = len(_header(whole))
        assert (int(mark[1]), int(mark[2])) == (every, len([name for name in names if name != "…"]))


def test_null_differs_from_texts_without_colors(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    line = "--color never scan db.wild --select name --where id<4"
    drawn, _ = screen(monkeypatch, folder, line, 80)

    assert "\x1b" not in drawn
    assert {"NULL", "''", "'NULL'", "user 3"} <= set(map(str.rstrip, drawn.split("\n")))


@pytest.mark.parametrize("width", [0, 1, 2, -1, 10**9])
@pytest.mark.parametrize("name", ["some columns", "blocks", "settings"])
def test_a_terminal_of_any_width_shows_the_rows(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, width: int
) -> None:
    drawn, _ = screen(monkeypatch, folder, SCREENS[name], width)
    first = {"some columns": "id", "blocks": "row 1", "settings": "setting"}[name]
    assert first in drawn


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_summary_is_wrapped_between_its_parts(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = _Terminal(io.BytesIO())
    text = "db.t: loaded 1,000 rows in 1 file (15.3 KB) · snapshot 4418959950487963173 · 2.6s"

    lines = Display().wrapped(text, terminal)

    assert " ".join(lines) == text
    assert all(len(line) <= width for line in lines if "4418959950487963173" not in line)
    assert Display().wrapped(text, io.StringIO()) == [text]
