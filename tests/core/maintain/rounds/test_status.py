"""The status file of a round."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from lake.core.base.clock import SystemClock, SystemIds
from lake.core.maintain.rounds.status import StatusFile

WORK = [("db.a", "expire"), ("db.b", "compact")]


def test_what_runs_is_noted_in_the_order_in_which_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    status = StatusFile(str(path), SystemClock(), SystemIds())
    other = threading.Thread(target=status.set_running, args=[lambda: WORK])

    def running() -> list[tuple[str, str]]:
        # Another action begins after this was read.
        other.start()
        return WORK[:1]

    with status.kept():
        status.set_running(running)
        other.join()
        shown = json.loads(path.read_text())

    assert [item["table"] for item in shown["running"]] == ["db.a", "db.b"]
