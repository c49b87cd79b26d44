"""What Flink wrote, of every metadata version that it has written and in whatever way, is read alike."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.faults.memory_storage import MemoryStorage
from support.tables.checkpoint_writer import (
    byte_array,
    inline,
    metadata,
    operator,
    operator_bytes,
    operator_handle,
    subtask_state,
)
from support.tables.flink_fixtures import shared

from lake.core.base.errors import RefusedError
from lake.core.io.storage.storage import Storage
from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.state import ICEBERG_SINK, CommitterState, TakenCheckpoint

_ARCHIVE = Path(__file__).parents[3] / "data/checkpoints/flink-written.tar.xz"
_COLLECTORS = ["collectors/flink-1.18.1", "collectors/flink-1.20.1", "collectors/flink-2.1.2"]


@cache
def _written() -> dict[str, bytes]:
    with tarfile.open(_ARCHIVE) as archive:
        members = [(member, archive.extractfile(member)) for member in archive]
        return {member.name: source.read() for member, source in members if source is not None}


def _folders() -> Iterator[str]:
    for name in sorted(_written()):
        if name.endswith("/chk-12/_metadata"):
            yield name.removesuffix("/_metadata")


def _of_fixture(name: str) -> CommitterState:
    with shared(name) as fixture:
        chosen = fixture.root / fixture.truth["replay"]["from_checkpoint"]
        (found,) = read_checkpoint(Storage(), str(chosen)).committers
    return found


def _expected(folder: str) -> list[CommitterState]:
    appended = TakenCheckpoint(checkpoint_id=9, blank=True)
    flink_sink = _of_fixture("c-upsert")
    flink_sink = CommitterState(
        sink=flink_sink.sink,
        job_id=flink_sink.job_id,
        operator_id=flink_sink.operator_id,
        checkpoints=(*flink_sink.checkpoints, appended),
    )
    all_three = [flink_sink, _of_fixture("c2-upsert-part"), _of_fixture("n-dynamic")]
    return all_three[1:2] if folder.startswith("flink-1.10-v2") else all_three


@pytest.mark.parametrize("folder", list(_folders()))
@pytest.mark.parametrize("root", ["/tmp/flink-checkpoints", "s3://elsewhere/copied"])
def test_a_checkpoint_is_read_where_it_was_written_and_where_it_was_copied_to(
    folder: str, root: str
) -> None:
    storage = MemoryStorage({f"{root}/{name}": data for name, data in _written().items()})
    found = read_checkpoint(storage, f"{root}/{folder}")
    assert found.checkpoint_id == 12
    assert list(found.committers) == _expected(folder)


def test_an_unaligned_checkpoint_that_caught_files_on_their_way_is_refused() -> None:
    storage = MemoryStorage({f"/c/{name}": data for name, data in _written().items()})
    with pytest.raises(RefusedError, match="'u-IcebergStreamWriter' .* 2 of output in transit"):
        read_checkpoint(storage, "/c/unaligned-flink-sink/job/chk-2")


def test_an_unaligned_checkpoint_that_caught_none_is_read() -> None:
    storage = MemoryStorage({f"/c/{name}": data for name, data in _written().items()})
    (found,) = read_checkpoint(storage, "/c/unaligned-iceberg-sink/job/chk-2").committers
    assert found.sink == ICEBERG_SINK
    assert [taken.checkpoint_id for taken in found.checkpoints] == [2]


@pytest.mark.parametrize("name", _COLLECTORS)
def test_every_release_of_flink_keeps_the_same_committables(name: str) -> None:
    state, offsets = operator_bytes(
        {"streaming_committer_raw_states": (0, [byte_array(_written()[name])])}
    )
    subtask = subtask_state(6, managed=operator_handle(offsets, inline(state)))
    content = metadata(6, 5, [operator(6, "ab" * 16, {0: subtask})])
    found = read_checkpoint(MemoryStorage({"/c/_metadata": content}), "/c")
    assert list(found.committers) == [_of_fixture("c2-upsert-part")]
