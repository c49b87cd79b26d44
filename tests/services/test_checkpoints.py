"""Checkpoints on an object store are read as those on a disk are."""

from __future__ import annotations

import pytest
from support.servers.s3_server import S3
from support.tables.flink_fixtures import shared

from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError
from lake.core.io.storage.storage import Storage
from lake.core.table.flink.checkpoint import read_checkpoint


@pytest.fixture
def stored(s3: S3) -> tuple[Storage, str]:
    """A storage, and a job's folder in it with two checkpoints of three that are complete."""
    storage, root = Storage(s3.properties()), f"s3://{s3.bucket()}/flink/job"
    with shared("d-retract") as fixture:
        for path in fixture.root.glob("checkpoint/*/chk-[56]/*"):
            storage.write(f"{root}/{path.parent.name}/{path.name}", path.read_bytes())
    storage.write(f"{root}/chk-7/a state file", b"x")
    return storage, root


@pytest.mark.parametrize("behind", ["", "/", "/_metadata"])
def test_a_checkpoint_with_a_state_file_is_read(stored: tuple[Storage, str], behind: str) -> None:
    storage, root = stored
    with shared("d-retract") as fixture:
        (local,) = fixture.root.glob("checkpoint/*/chk-6")
        expected = read_checkpoint(Storage(), str(local)).committers
    found = read_checkpoint(storage, f"{root}/chk-6{behind}")
    assert found.location == f"{root}/chk-6/_metadata"
    assert found.committers == expected


def test_a_folder_that_is_not_a_completed_checkpoint_is_reported(
    stored: tuple[Storage, str],
) -> None:
    storage, root = stored
    with pytest.raises(BadInputError) as found:
        read_checkpoint(storage, root)
    assert found.value.hint == f"Pass one of them; the newest is {root}/chk-6."
    for place in (f"{root}/chk-7", f"{root}/chk-8", f"{root}/chk-7/_metadata"):
        with pytest.raises(NotFoundError, match="not a completed checkpoint"):
            read_checkpoint(storage, place)


def test_a_state_file_that_is_cut_or_gone_is_an_error(stored: tuple[Storage, str]) -> None:
    storage, root = stored
    (state,) = [name for name, _ in storage.list_folder(f"{root}/chk-6") if name != "_metadata"]
    place = f"{root}/chk-6/{state}"
    storage.write(place, storage.read(place)[:-1])
    with pytest.raises(CorruptFileError, match="has 22881 bytes"):
        read_checkpoint(storage, f"{root}/chk-6")
    storage.delete([place])
    with pytest.raises(NotFoundError, match="no such file"):
        read_checkpoint(storage, f"{root}/chk-6")
