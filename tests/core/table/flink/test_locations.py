"""A checkpoint is found by its folder, its metadata or its job's folder, on any spelling of a local path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.tables.flink_fixtures import shared

from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError, RefusedError
from lake.core.io.storage.storage import Storage
from lake.core.table.flink.checkpoint import read_checkpoint


def _copy(name: str, folder: str, target: Path) -> Path:
    with shared(name) as fixture:
        (source,) = fixture.root.glob(f"checkpoint/*/{folder}")
        shutil.copytree(source, target)
    return target


@pytest.mark.parametrize("before", ["", "file:", "file://"])
@pytest.mark.parametrize("behind", ["", "/", "/_metadata"])
def test_a_checkpoint_is_found_by_folder_and_file(before: str, behind: str, tmp_path: Path) -> None:
    chosen = _copy("d-retract", "chk-6", tmp_path / "a savepoint#1 ü")
    found = read_checkpoint(Storage(), f"{before}{chosen}{behind}")
    assert found.checkpoint_id == 6
    assert len(found.committers[0].checkpoints) == 4
    assert found.location == f"{before}{chosen}/_metadata"


@pytest.mark.parametrize("location", [".", "_metadata", "./_metadata", "../savepoint"])
def test_a_relative_location_is_found(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_copy("d-retract", "chk-6", tmp_path / "savepoint"))
    found = read_checkpoint(Storage(), location)
    assert found.location == str(tmp_path / "savepoint/_metadata")
    assert len(found.committers) == 1


def test_metadata_of_another_name_is_read_where_it_is_given(tmp_path: Path) -> None:
    with shared("a-append") as fixture:
        (source,) = fixture.root.glob("checkpoint/*/chk-3/_metadata")
        shutil.copy(source, tmp_path / "kept")
    assert read_checkpoint(Storage(), str(tmp_path / "kept")).checkpoint_id == 3


def test_a_jobs_folder_is_refused_with_its_newest_complete_checkpoint(tmp_path: Path) -> None:
    for number in (9, 10, 11):
        (tmp_path / f"chk-{number}").mkdir()
    (tmp_path / "chk-9/_metadata").touch()
    (tmp_path / "chk-10/_metadata").touch()
    (tmp_path / "chk-11/a state file").touch()
    (tmp_path / "shared").mkdir()
    with pytest.raises(
        BadInputError, match="contains checkpoints but is not a checkpoint"
    ) as found:
        read_checkpoint(Storage(), str(tmp_path))
    assert found.value.hint == f"Pass one of them; the newest is {tmp_path}/chk-10."


def test_a_folder_that_holds_no_metadata_is_not_a_completed_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "chk-7").mkdir()
    (tmp_path / "chk-7/a state file").touch()
    for place in (tmp_path, tmp_path / "chk-7", tmp_path / "chk-7/_metadata", tmp_path / "gone"):
        with pytest.raises(NotFoundError, match="not a completed checkpoint"):
            read_checkpoint(Storage(), str(place))


def test_a_checkpoint_in_the_folder_of_another_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"checkpoint number 6, but is in the folder chk-7"):
        read_checkpoint(Storage(), str(_copy("d-retract", "chk-6", tmp_path / "chk-7")))


def test_a_file_that_is_not_metadata_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes(b"PAR1 and more")
    with pytest.raises(CorruptFileError, match="byte 4: not a checkpoint's metadata"):
        read_checkpoint(Storage(), str(tmp_path))


def test_a_state_file_that_lost_its_end_is_corrupt(tmp_path: Path) -> None:
    chosen = _copy("d-retract", "chk-6", tmp_path / "savepoint")
    (state,) = [path for path in chosen.iterdir() if path.name != "_metadata"]
    os.truncate(state, state.stat().st_size - 1)
    with pytest.raises(
        CorruptFileError, match="has 22881 bytes, but its checkpoint declares 22882"
    ):
        read_checkpoint(Storage(), str(chosen))
    state.unlink()
    with pytest.raises(NotFoundError, match="no such file"):
        read_checkpoint(Storage(), str(chosen))
