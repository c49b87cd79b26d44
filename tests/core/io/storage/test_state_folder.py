"""A state's folder, from which the lock was taken away: what an earlier run may still do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lake.core.base.clock import SystemClock, SystemIds
from lake.core.base.errors import LockedError
from lake.core.io.storage.state_folder import StateFolder


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[tuple[StateFolder, StateFolder]]:
    """A run, and a later one that holds the lock as well, because its file was removed."""
    first, second = (
        StateFolder.at(str(tmp_path), clock=SystemClock(), ids=SystemIds()) for _ in range(2)
    )
    with ExitStack() as held:
        for run in (first, second):
            (tmp_path / "lock").unlink(missing_ok=True)
            assert held.enter_context(run.held("scan"))
        yield first, second


def test_an_earlier_run_replaces_no_file(
    runs: tuple[StateFolder, StateFolder], tmp_path: Path
) -> None:
    first, second = runs
    second.replace("state.json", b"second", expected=lambda: True)

    with pytest.raises(LockedError, match="another run"):
        first.replace("state.json", b"first", expected=lambda: True)

    assert (tmp_path / "state.json").read_bytes() == b"second"


def test_an_earlier_run_places_no_file(
    runs: tuple[StateFolder, StateFolder], tmp_path: Path
) -> None:
    first, second = runs
    for run, name in ((second, "second"), (first, "first")):
        draft = Path(run.draft("splits"))
        draft.write_text(name)
        if run is second:
            run.place(str(draft), "splits")
        else:
            with pytest.raises(LockedError, match="another run"):
                run.place(str(draft), "splits")

    assert (tmp_path / "splits").read_text() == "second"


def test_a_run_goes_on_while_the_file_of_its_lock_is_missing(tmp_path: Path) -> None:
    run = StateFolder.at(str(tmp_path), clock=SystemClock(), ids=SystemIds())
    with run.held("scan"):
        (tmp_path / "lock").unlink()
        run.replace("state.json", b"state", expected=lambda: True)

    assert (tmp_path / "state.json").read_bytes() == b"state"
