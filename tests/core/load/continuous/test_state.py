"""The state of a watch, where the lock does not exclude a second run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lake.core.base.clock import SystemClock, SystemIds
from lake.core.base.errors import LockedError
from lake.core.io.storage.state_folder import StateFolder
from lake.core.load.continuous.files.listing import WatchedFile
from lake.core.load.continuous.state import StateStore, WatchState


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    found = StateFolder.at(str(tmp_path), clock=SystemClock(), ids=SystemIds())
    StateStore.open(found).save(WatchState(stream="s", table="db.t", branch="main"))
    return found


def finish(store: StateStore, name: str) -> None:
    """Note that one file was loaded."""
    assert store.state
    epoch = store.state.epoch + 1
    store.finish(replace(store.state, epoch=epoch), [WatchedFile(name, 1)])


def loaded(folder: StateFolder) -> set[str]:
    return set(StateStore.open(folder).loaded)


def test_a_second_run_keeps_the_part_of_a_ledger_that_its_older_state_does_not_name(
    folder: StateFolder,
) -> None:
    first, second = StateStore.open(folder), StateStore.open(folder)
    finish(first, "a")
    second.sweep()

    assert loaded(folder) == {"a"}


def test_a_second_run_keeps_the_part_of_a_ledger_that_the_next_state_names(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = StateStore.open(folder), StateStore.open(folder)
    save = StateStore.save

    def saved(store: StateStore, state: WatchState) -> None:
        second.sweep()
        save(store, state)

    monkeypatch.setattr(StateStore, "save", saved)
    finish(first, "a")

    assert loaded(folder) == {"a"}


def test_a_part_of_an_older_revision_that_no_state_names_is_removed(
    folder: StateFolder, tmp_path: Path
) -> None:
    store = StateStore.open(folder)
    # That of a run that another one overtook, and that of an earlier version.
    for name in ("done-1-0.jsonl.zst", "done-1.jsonl.zst"):
        folder.replace(name, b"")
    finish(store, "a")

    assert [path.name for path in tmp_path.glob("done-*")] == ["done-1-1.jsonl.zst"]
    assert loaded(folder) == {"a"}


def test_a_run_whose_lock_was_taken_away_replaces_no_part_that_a_state_names(
    folder: StateFolder, tmp_path: Path
) -> None:
    later = StateFolder.at(str(tmp_path), clock=SystemClock(), ids=SystemIds())
    with folder.held("ingest"):
        first = StateStore.open(folder)
        (tmp_path / "lock").unlink()
        with later.held("ingest"):
            finish(StateStore.open(later), "a")
            with pytest.raises(LockedError):
                finish(first, "b")

    assert loaded(folder) == {"a"}


def test_a_run_replaces_no_state_that_another_run_changed(folder: StateFolder) -> None:
    first, second = StateStore.open(folder), StateStore.open(folder)
    finish(first, "a")
    assert second.state

    with pytest.raises(LockedError, match="another run changed the state"):
        second.save(replace(second.state, files=9))

    assert StateStore.open(folder).state == first.state
