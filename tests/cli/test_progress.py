"""What a display shows of a phase: a bar, dated lines, JSON, or nothing."""

from __future__ import annotations

import io
import json
import threading
import time

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import FixedClock

from lake.cli.progress.bar import ProgressBar
from lake.cli.progress.displays import (
    AUTO,
    BAR,
    JSON,
    LINES,
    NONE,
    Documents,
    Lines,
    make_progress,
)
from lake.cli.progress.numbers import Estimate
from lake.core.base.clock import SystemClock
from lake.core.base.progress import Meter, Progress, Silent, Work, shown

MB = 1 << 20


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def display(stream: io.StringIO, kind: str = AUTO, *, quiet: bool = False) -> Progress:
    return make_progress(kind, stream, FixedClock(), lambda: "lake compact db.t", quiet=quiet)


def test_the_display_suits_the_stream_unless_one_is_chosen() -> None:
    assert isinstance(display(Terminal()), ProgressBar)
    assert isinstance(display(io.StringIO()), Lines)
    assert isinstance(display(Terminal(), quiet=True), Silent)
    assert isinstance(display(Terminal(), JSON, quiet=True), Documents)
    assert isinstance(display(Terminal(), NONE), Silent)


def test_lines_come_once_a_minute_with_time_command_and_table() -> None:
    clock, stream = FixedClock(), io.StringIO()
    lines = Lines(stream, clock, lambda: "lake compact db.t")
    meter = Meter("rewriting", inputs=[10 * MB] * 4)
    with shown(lines, meter):
        lines.tick()
        meter.finish(0, rows=500)
        clock.sleep(40)
        lines.tick()
        assert stream.getvalue() == ""

        meter.report(1, 250, 0.5)
        clock.sleep(20)
        lines.tick()
        lines.tick()

    text = stream.getvalue()
    assert text == (
        "2027-01-15T08:01:00Z lake compact db.t: rewriting: 15.0 MB of 40.0 MB, 750 rows, 1m 40s left\n"
    )


def test_without_bytes_tasks_are_counted() -> None:
    clock, stream = FixedClock(), io.StringIO()
    lines = Lines(stream, clock, lambda: "lake demo")
    meter = Meter("loading", tasks=4)
    with shown(lines, meter):
        lines.tick()
        clock.sleep(60)
        meter.advance(tasks=1, rows=1)
        lines.tick()

    assert stream.getvalue().endswith("Z lake demo: loading: 1 of 4, 1 row, 3m 00s left\n")


def test_a_phase_that_waits_shows_what_it_waits_for() -> None:
    clock, stream = FixedClock(), io.StringIO()
    lines = Lines(stream, clock, lambda: "lake compact db.t")
    meter = Meter("rewriting", inputs=[MB])
    with shown(lines, meter), meter.waiting_for("starting Spark"):
        clock.sleep(60)
        lines.tick()

    assert stream.getvalue().endswith("Z lake compact db.t: starting Spark\n")


def test_json_lines_contain_each_number_and_the_last_state() -> None:
    clock, stream = FixedClock(), io.StringIO()
    documents = Documents(stream, clock)
    meter = Meter("rewriting", inputs=[100, 100])
    with shown(documents, meter):
        meter.report(0, 5, 0.5)
        documents.tick()
        meter.finish(0)
        meter.finish(1, rows=10)

    first, second, last = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first == {
        "time": "2027-01-15T08:00:00.000Z",
        "phase": "rewriting",
        "tasks": 0,
        "total_tasks": 2,
        "bytes": 0,
        "total_bytes": 200,
        "rows": 0,
        "seconds_left": None,
    }
    assert (second["bytes"], second["rows"], second["tasks"]) == (50, 5, 0)
    assert (last["bytes"], last["rows"], last["tasks"]) == (200, 15, 2)


def test_a_bar_shows_the_phase_as_it_is_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    bar = ProgressBar(stream, FixedClock())
    meter = Meter("[bold]rewriting", inputs=[2 * MB, 2 * MB])
    meter.finish(0, rows=1234)
    bar.show(meter)
    assert stream.getvalue() == ""
    bar.draw()
    bar.show(None)
    bar.draw()
    bar.show(None)

    text = stream.getvalue()
    assert "[bold]rewriting" in text
    assert "2.0 MB of 4.0 MB · 1,234 rows" in text


def test_the_time_left_follows_the_speed_of_the_last_minute() -> None:
    clock = FixedClock()
    estimate = Estimate(clock)

    def left(done: int) -> float | None:
        return estimate.seconds_left(Work("reading", done_bytes=done, total_bytes=1000))

    assert left(0) is None
    clock.sleep(1)
    assert left(100) is None
    clock.sleep(99)
    assert left(200) is None
    clock.sleep(10)
    assert left(300) == pytest.approx(70)
    assert left(1000) is None


def test_the_time_left_is_not_known_without_a_total() -> None:
    clock = FixedClock()
    estimate = Estimate(clock)
    estimate.seconds_left(Work("listing"))
    clock.sleep(100)

    assert estimate.seconds_left(Work("listing", rows=5)) is None


def test_a_command_prints_its_phases_as_json_lines_beside_its_document(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n1\n2\n")
    done = lake("--json", "--progress", "json", "ingest", "db.t", source, "--create")

    assert done.exit_code == 0
    assert done.json()["status"] == "done"
    documents = [json.loads(line) for line in done.stderr.splitlines()]
    assert list(dict.fromkeys(each["phase"] for each in documents)) == [
        "reading metadata",
        "listing and checking files",
        "loading",
        "committing",
    ]
    loading = [each for each in documents if each["phase"] == "loading"]
    assert loading[-1]["rows"] == 2
    assert loading[-1]["bytes"] == loading[-1]["total_bytes"] == source.stat().st_size


def test_an_upsert_shows_each_of_its_phases(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n1\n2\n")
    lake.ok("ingest", "db.t", source, "--create")

    done = lake("--progress", "json", "ingest", "db.t", source, "--upsert", "--key", "id")

    documents = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert list(dict.fromkeys(each["phase"] for each in documents)) == [
        "reading metadata",
        "listing and checking files",
        "loading",
        "finding repeated keys",
        "finding the keys",
        "committing",
    ]


class Broken(io.StringIO):
    """A stream that no process reads any more."""

    def write(self, _: str) -> int:
        raise BrokenPipeError

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [BAR, JSON, LINES])
def test_a_display_that_cannot_write_does_not_fail_the_command(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = FixedClock()
    shows = make_progress(kind, Broken(), clock, lambda: "lake compact db.t", quiet=False)
    with shown(shows, Meter("rewriting", inputs=[MB])):
        clock.sleep(60)
        if isinstance(shows, ProgressBar):
            shows.draw()
        elif isinstance(shows, Lines | Documents):
            shows.tick()
        with shown(shows, Meter("committing")):
            pass


class Watched(Meter):
    """A meter that notices when it is read twice at once."""

    at_once = most_at_once = 0

    def read(self) -> Work:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(0.001)
        self.at_once -= 1
        return super().read()


def test_a_state_is_written_by_one_thread_at_a_time() -> None:
    documents, meter = Documents(io.StringIO(), SystemClock()), Watched("rewriting", inputs=[100])
    documents.meter = meter
    threads = [threading.Thread(target=documents.tick) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert meter.most_at_once == 1
