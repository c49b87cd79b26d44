"""Damaged checkpoints end in a typed error, in little memory, or leave every manifest where it belongs."""

from __future__ import annotations

import random
import subprocess
import tracemalloc
from collections import Counter
from functools import cache
from typing import Any

import pytest
from support.faults.memory_storage import MemoryStorage
from support.tables.checkpoint_writer import (
    JAVA_OBJECT,
    byte_array,
    collector,
    inline,
    int64,
    java_string,
    metadata,
    operator,
    operator_bytes,
    operator_handle,
    sorted_map,
    subtask_state,
    text,
    versioned,
)
from support.tables.flink_fixtures import shared

from lake.core.base.errors import LakeError, RefusedError
from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.state import Checkpoint

# One of each sink, with deletes and without, with empty checkpoints, and with the state in a file beside.
_CHECKPOINTS = {
    "a-append": 3,
    "b2-append-pending": 5,
    "c-upsert": 4,
    "c2-upsert-part": 5,
    "d-retract": 6,
    "n-dynamic": 4,
}
_BOMBS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x7f" + b"\xff" * 7,
    b"\xff\xff",
    b"\xac\xed\x00\x05",
)
# What a reader of some kilobytes may take, whatever they claim.
_MEMORY = 3_000_000


@cache
def _files(name: str) -> dict[str, bytes]:
    with shared(name) as fixture:
        (folder,) = fixture.root.glob(f"checkpoint/*/chk-{_CHECKPOINTS[name]}")
        return {str(path): path.read_bytes() for path in folder.iterdir()}


@cache
def _metadata(name: str) -> str:
    (found,) = [path for path in _files(name) if path.endswith("/_metadata")]
    return found


@cache
def _original(name: str) -> Checkpoint:
    return read_checkpoint(MemoryStorage(_files(name)), _metadata(name))


def _read(name: str, path: str, content: bytes) -> Checkpoint | None:
    """Read a checkpoint one file of which is damaged; None for a typed error."""
    try:
        return read_checkpoint(MemoryStorage({**_files(name), path: content}), _metadata(name))
    except LakeError:
        return None


def _belonging(checkpoint: Checkpoint) -> Counter[Any]:
    """Return to which sink, job, operator and checkpoint the manifests belong.

    Their paths, lengths and numbers are left out: a replay checks these against the manifests themselves. So is a
    dynamic sink's table, for which nothing else in the state stands.
    """
    return Counter(
        (sink.sink, sink.job_id, sink.operator_id, taken.checkpoint_id, manifest.content)
        for sink in checkpoint.committers
        for taken in sink.checkpoints
        for manifest in taken.manifests
    )


def _mutant(chance: random.Random, content: bytes) -> bytes:
    found = bytearray(content)
    kind = chance.choice(("flip", "byte", "cut", "drop", "repeat", "splice", "bomb"))
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, length = chance.randrange(len(found) + 1), chance.randrange(1, 3000)
        match kind:
            case "flip" | "byte" if at < len(found):
                found[at] = (
                    found[at] ^ 1 << chance.randrange(8)
                    if kind == "flip"
                    else chance.randrange(256)
                )
            case "cut":
                del found[at:]
            case "drop":
                del found[at : at + length % 64]
            case "repeat":
                found[at:at] = found[at : at + length]
            case "splice":
                other = _files(chance.choice(list(_CHECKPOINTS)))
                part = chance.choice(list(other.values()))
                begin = chance.randrange(len(part))
                found[at : at + chance.choice((0, length))] = part[begin : begin + length]
            case "bomb":
                bomb = chance.choice(_BOMBS)
                found[at : at + len(bomb)] = bomb
    return bytes(found)


@pytest.mark.parametrize("seed", range(5))
def test_of_ten_thousand_mutants_none_moves_a_manifest_and_all_else_are_typed_errors(
    seed: int,
) -> None:
    chance = random.Random(seed)
    for _ in range(2000):
        name = chance.choice(list(_CHECKPOINTS))
        path = chance.choice(list(_files(name)))
        found = _read(name, path, _mutant(chance, _files(name)[path]))
        if found is not None:
            assert found.checkpoint_id == _original(name).checkpoint_id
            assert _belonging(found) == _belonging(_original(name))


@pytest.mark.parametrize("name", ["a-append", "b2-append-pending", "d-retract"])
def test_metadata_cut_anywhere_before_its_ignored_tail_is_a_typed_error(name: str) -> None:
    content = _files(name)[_metadata(name)]
    tail = content.rindex(b"\xac\xed\x00\x05") + 4
    for length in range(len(content)):
        found = _read(name, _metadata(name), content[:length])
        assert found == (_original(name) if length >= tail else None)


@pytest.mark.slow
def test_a_state_file_of_any_other_length_is_a_typed_error() -> None:
    (path,) = set(_files("d-retract")) - {_metadata("d-retract")}
    content = _files("d-retract")[path]
    for length in range(len(content)):
        assert _read("d-retract", path, content[:length]) is None
    assert _read("d-retract", path, content + b"\x00") is None


@pytest.mark.slow
@pytest.mark.parametrize("bomb", [_BOMBS[0], _BOMBS[1], _BOMBS[4]])
def test_a_wrong_length_at_any_position_allocates_nothing(bomb: bytes) -> None:
    content = _files("a-append")[_metadata("a-append")]
    _original("a-append")
    tracemalloc.start()
    try:
        for at in range(len(content)):
            found = _read(
                "a-append", _metadata("a-append"), content[:at] + bomb + content[at + 4 :]
            )
            assert found is None or _belonging(found) == _belonging(_original("a-append"))
        assert tracemalloc.get_traced_memory()[1] < _MEMORY
    finally:
        tracemalloc.stop()


def test_mutants_take_little_memory() -> None:
    chance = random.Random(6)
    for name in _CHECKPOINTS:
        _original(name)
    tracemalloc.start()
    try:
        for _ in range(500):
            name = chance.choice(list(_CHECKPOINTS))
            _read(name, _metadata(name), _mutant(chance, _files(name)[_metadata(name)]))
        assert tracemalloc.get_traced_memory()[1] < _MEMORY
    finally:
        tracemalloc.stop()


_GADGET = (
    b"\xac\xed\x00\x05sr\x00\x17java.util.PriorityQueue\x94\xda0\xb4\xfb?\x82\xb1\x03\x00\x02I\x00\x04size"
    b"L\x00\ncomparatort\x00\x16Ljava/util/Comparator;xp\x00\x00\x00\x02sr\x00"
    b"Borg.apache.commons.collections4.comparators.TransformingComparator"
)
_JOB = "ab" * 16


def _with_state(states: dict[str, tuple[int, list[bytes]]]) -> bytes:
    data, offsets = operator_bytes(states)
    subtask = subtask_state(6, managed=operator_handle(offsets, inline(data)))
    return metadata(6, 5, [operator(6, _JOB, {0: subtask})])


def _gadgets() -> dict[str, bytes]:
    request = [(1, _GADGET, 0)]
    labelled = text(_JOB) + text(_JOB) + int64(5)
    return {
        "metadata": _GADGET,
        "element": _with_state(
            {"streaming_committer_raw_states": (0, [_GADGET + b"manifest_path"])}
        ),
        "collector": _with_state(
            {
                "streaming_committer_raw_states": (
                    0,
                    [byte_array(collector("2", {5: [(1, labelled + byte_array(_GADGET), 0)]}))],
                )
            }
        ),
        "files": _with_state(
            {
                "iceberg-files-committer-state": (0, [sorted_map({5: _GADGET})]),
                "iceberg-flink-job-id": (0, [java_string(_JOB)]),
            }
        ),
        "manifests": _with_state(
            {
                "iceberg-files-committer-state": (0, [sorted_map({5: versioned(1, _GADGET)})]),
                "iceberg-flink-job-id": (0, [java_string(_JOB)]),
            }
        ),
        "another sink's": _with_state(
            {"streaming_committer_raw_states": (0, [byte_array(collector("2", {5: request}))])}
        ),
    }


@pytest.mark.parametrize("place", list(_gadgets()))
def test_java_objects_are_never_looked_into(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", start)
    storage = MemoryStorage({"/c/_metadata": _gadgets()[place]})
    if place == "another sink's":
        assert read_checkpoint(storage, "/c").committers == ()
        return
    with pytest.raises(LakeError):
        read_checkpoint(storage, "/c")


def test_a_java_object_in_the_place_of_metadata_is_called_so() -> None:
    with pytest.raises(RefusedError, match="Java-serialised"):
        read_checkpoint(MemoryStorage({"/c/_metadata": JAVA_OBJECT}), "/c")
