"""What may hold more of a sink than can be read is refused, with what was seen; what cannot is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.faults.memory_storage import MemoryStorage
from support.tables.checkpoint_writer import (
    NULL,
    byte_array,
    channel,
    collector,
    delta_manifests,
    dynamic_committable,
    file,
    iceberg_committable,
    inline,
    int32,
    int64,
    java_string,
    key_groups,
    manifest,
    merged_operator_handle,
    metadata,
    operator,
    operator_bytes,
    operator_handle,
    relative,
    segment,
    sorted_map,
    subtask_state,
    text,
    versioned,
)

from lake.core.base.errors import CorruptFileError, NotFoundError, RefusedError
from lake.core.io.storage.storage import MAX_METADATA_BYTES
from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.state import DYNAMIC_SINK, FLINK_SINK, ICEBERG_SINK, Checkpoint

_JOB, _OPERATOR = "0a" * 16, "0b" * 16
_COLLECTOR = "streaming_committer_raw_states"
_FILES, _JOBS = "iceberg-files-committer-state", "iceberg-flink-job-id"
_Kept = dict[str, tuple[int, list[bytes]]]


def _read(*operators: bytes, version: int = 6, **files: bytes) -> Checkpoint:
    content = metadata(version, 5, operators)
    storage = MemoryStorage({"/c/_metadata": content, **{f"/c/{n}": d for n, d in files.items()}})
    return read_checkpoint(storage, "/c")


def _handle(states: _Kept, **options: Any) -> bytes:
    data, offsets = operator_bytes(states, **options)
    return operator_handle(offsets, inline(data))


def _committer(states: _Kept, name: str = "a committer", **options: Any) -> bytes:
    state = subtask_state(6, managed=_handle(states), **options)
    return operator(6, _OPERATOR, {0: state}, name=name)


def _flink_states(
    content: bytes | None = None, *, checkpoint_id: int = 5, mode: int = 0, job: str = _JOB
) -> _Kept:
    entry = delta_manifests(manifest("/t/1.avro")) if content is None else content
    return {
        _FILES: (mode, [sorted_map({checkpoint_id: entry})]),
        _JOBS: (mode, [java_string(job)]),
    }


def _collected(*items: tuple[int, bytes, int], release: str = "2") -> _Kept:
    return {_COLLECTOR: (0, [byte_array(collector(release, {5: items}))])}


def _iceberg_states(path: str = "/t/1.avro", *, state: int = 0, number: int = 5) -> _Kept:
    content = delta_manifests(manifest(path))
    return _collected((1, iceberg_committable(_JOB, _OPERATOR, number, content), state))


def _other(name: str, **options: Any) -> bytes:
    return operator(6, "0c" * 16, {0: subtask_state(6, **options)}, name=name)


_INPUT, _OUTPUT = [channel(6, NULL)], [channel(6, NULL, output=True)]
_KEYED = key_groups(12, 1, inline(b"rows"))


@pytest.mark.parametrize("states", [_flink_states(), _iceberg_states()])
@pytest.mark.parametrize("on_its_way", [{"inputs": _INPUT}, {"outputs": _OUTPUT}])
def test_what_was_on_its_way_to_a_committer_is_refused(
    states: _Kept, on_its_way: dict[str, Sequence[bytes]]
) -> None:
    with pytest.raises(
        RefusedError, match=r"unaligned checkpoint: operator 'a committer'"
    ) as found:
        _read(_committer(states, **on_its_way))
    assert "savepoint" in str(found.value.hint)


@pytest.mark.parametrize("states", [_flink_states(), _iceberg_states()])
@pytest.mark.parametrize("name", ["", "x-IcebergStreamWriter", "Sink: Writer", "x-Forward-Writer"])
def test_what_was_on_its_way_from_what_may_be_a_writer_is_refused(states: _Kept, name: str) -> None:
    with pytest.raises(RefusedError, match=r"0 pieces of input and 1 of output"):
        _read(_committer(states), _other(name, outputs=_OUTPUT))


@pytest.mark.parametrize("name", ["", "Sink pre-commit aggregator: t", "Sink: t Pre Commit"])
@pytest.mark.parametrize("on_its_way", [{"inputs": _INPUT}, {"outputs": _OUTPUT}])
def test_what_was_on_its_way_at_what_may_be_an_aggregator_is_refused(
    name: str, on_its_way: dict[str, Sequence[bytes]]
) -> None:
    with pytest.raises(
        RefusedError, match="which may be files that its committer had not received"
    ):
        _read(_committer(_iceberg_states()), _other(name, **on_its_way))


@pytest.mark.parametrize(
    ("states", "other"),
    [
        (_flink_states(), _other("", inputs=_INPUT)),
        (_iceberg_states(), _other("Sink: Writer", inputs=_INPUT)),
        (_iceberg_states(), _other("Calc", inputs=_INPUT, outputs=_OUTPUT)),
        (_iceberg_states(), _other("", keyed=(_KEYED, NULL), inputs=_INPUT, outputs=_OUTPUT)),
        (_iceberg_states(), _other("", raw=_handle({"x": (0, [b"x"])}), outputs=_OUTPUT)),
        (_iceberg_states(), _other("", managed=_handle({"x": (0, [b"x"])}), outputs=_OUTPUT)),
    ],
)
def test_rows_on_their_way_to_a_writer_or_between_other_operators_are_not_the_sinks(
    states: _Kept, other: bytes
) -> None:
    assert len(_read(_committer(states), other).committers) == 1


def test_an_unaligned_checkpoint_without_an_iceberg_sink_is_just_one() -> None:
    assert _read(_other("", inputs=_INPUT, outputs=_OUTPUT)).committers == ()


@pytest.mark.parametrize(
    "more",
    [{"keyed": (_KEYED, NULL)}, {"keyed": (NULL, _KEYED)}, {"raw": _handle({"x": (0, [b"x"])})}],
)
@pytest.mark.parametrize("states", [_flink_states(), _iceberg_states()])
def test_a_committer_with_state_that_none_has_is_refused(states: _Kept, more: Any) -> None:
    with pytest.raises(RefusedError, match="do not use"):
        _read(_committer(states, **more))


@pytest.mark.parametrize("version", [0, 1, 8, 99])
def test_metadata_of_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(RefusedError, match=f"has version {version}"):
        _read(version=version)


_UNKNOWN_HANDLES = {
    "operator": subtask_state(6, managed=b"\x12"),
    "raw": subtask_state(6, raw=b"\x05"),
    "stream": subtask_state(6, managed=operator_handle({}, b"\x63")),
    "keyed": subtask_state(6, keyed=(b"\x63", NULL)),
    "channel": subtask_state(6, inputs=[b"\x07" + bytes(40)]),
}


@pytest.mark.parametrize("kind", list(_UNKNOWN_HANDLES))
def test_a_handle_of_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(RefusedError, match="unknown kind"):
        _read(operator(6, _OPERATOR, {0: _UNKNOWN_HANDLES[kind]}))


def test_legacy_state_is_refused() -> None:
    legacy = int64(-1) + int32(1) + subtask_state(2)[12:]
    with pytest.raises(RefusedError, match=r"before 1\.2"):
        _read(operator(2, _OPERATOR, {0: legacy}), version=2)


_CONTENT = delta_manifests(manifest("/t/1.avro"))
_UNKNOWN_PARTS = {
    "DeltaManifests": _flink_states(versioned(3, b"")),
    "IcebergCommittable": _collected((2, iceberg_committable(_JOB, _OPERATOR, 5, _CONTENT), 0)),
    "DynamicCommittable": _collected(
        (3, dynamic_committable(2, "db.t", "main", _JOB, _OPERATOR, 5, [_CONTENT]), 0)
    ),
    "committer's state": {
        _COLLECTOR: (0, [byte_array(versioned(3, text(_JOB) + text(_OPERATOR)))])
    },
    "part of a committer's state": {
        _COLLECTOR: (
            0,
            [
                byte_array(
                    versioned(2, b"\xb9\x1f\x25\x2c" + int32(9) + text(_JOB) + text(_OPERATOR))
                )
            ],
        )
    },
}


@pytest.mark.parametrize("part", list(_UNKNOWN_PARTS))
def test_a_part_of_an_unknown_version_is_refused_and_named(part: str) -> None:
    with pytest.raises(RefusedError, match=f"{part}.* unknown version"):
        _read(_committer(_UNKNOWN_PARTS[part]))


@pytest.mark.parametrize("version", [1, 4, 7])
def test_operator_state_of_an_unknown_version_is_refused(version: int) -> None:
    state = subtask_state(6, managed=_handle(_flink_states(), version=version))
    with pytest.raises(RefusedError, match=f"operator state has version {version}"):
        _read(operator(6, _OPERATOR, {0: state}))


@pytest.mark.parametrize("mode", [1, 2])
def test_a_committers_state_that_is_not_split_among_subtasks_is_refused(mode: int) -> None:
    with pytest.raises(RefusedError, match=f"unexpected redistribution mode {mode}"):
        _read(_committer(_flink_states(mode=mode)))


@pytest.mark.parametrize(
    "states",
    [
        {_JOBS: (0, [java_string(_JOB)])},
        {_FILES: (0, [sorted_map({5: b""})])},
        {_FILES: (0, [sorted_map({5: b""})] * 2), _JOBS: (0, [java_string(_JOB)])},
        {_FILES: (0, [sorted_map({5: b""})]), _JOBS: (0, [java_string(_JOB)] * 2)},
    ],
)
def test_a_flink_sink_without_one_job_and_one_list_is_refused(states: _Kept) -> None:
    with pytest.raises(RefusedError, match="instead of one each"):
        _read(_committer(states))


def test_a_flink_sinks_parts_may_be_in_different_subtasks() -> None:
    states = _flink_states()
    subtasks: dict[int, bytes | None] = {
        index: subtask_state(6, managed=_handle({name: states[name]}))
        for index, name in enumerate(states)
    }
    (found,) = _read(operator(6, _OPERATOR, subtasks)).committers
    assert (found.sink, found.job_id, found.operator_id) == (FLINK_SINK, _JOB, _OPERATOR)


def test_a_committable_that_was_given_up_is_refused() -> None:
    with pytest.raises(RefusedError, match="failed to commit checkpoint 5"):
        _read(_committer(_iceberg_states(state=2)))


def test_a_committable_that_was_committed_is_left_out_as_flink_leaves_it() -> None:
    assert _read(_committer(_iceberg_states(state=3))).committers == ()


def test_two_committables_of_one_checkpoint_are_refused_for_an_iceberg_sink() -> None:
    twice = [
        (1, iceberg_committable(_JOB, _OPERATOR, 5, delta_manifests(manifest(path))), 0)
        for path in ("/t/1.avro", "/t/2.avro")
    ]
    with pytest.raises(RefusedError, match="checkpoint 5 of job 0a0a.* twice"):
        _read(_committer(_collected(*twice)))


def test_two_committables_of_one_checkpoint_are_one_for_a_dynamic_sink() -> None:
    parts = [
        [delta_manifests(manifest(f"/t/{name}1.avro"), manifest(f"/t/{name}2.avro", content=1))]
        for name in ("a", "b")
    ]
    items = [
        (1, dynamic_committable(1, "db.t", "b1", _JOB, _OPERATOR, 5, part), 0) for part in parts
    ]
    (found,) = _read(_committer(_collected(*items))).committers
    (taken,) = found.checkpoints
    assert (found.sink, found.table, found.branch) == (DYNAMIC_SINK, "db.t", "b1")
    paths = [reference.path for reference in taken.manifests]
    assert paths == ["/t/a1.avro", "/t/b1.avro", "/t/a2.avro", "/t/b2.avro"]


def test_sinks_of_any_kind_in_one_checkpoint_are_all_found() -> None:
    flink_sink = operator(6, "0d" * 16, {0: subtask_state(6, managed=_handle(_flink_states()))})
    found = _read(
        flink_sink, _committer(_iceberg_states("/t/2.avro")), _committer(_iceberg_states(state=3))
    )
    assert [item.sink for item in found.committers] == [FLINK_SINK, ICEBERG_SINK]


def test_one_sink_in_two_operators_is_refused() -> None:
    with pytest.raises(RefusedError, match="sink .* twice"):
        _read(_committer(_iceberg_states()), _committer(_iceberg_states("/t/2.avro")))


def test_one_manifest_in_two_sinks_is_refused() -> None:
    other = operator(6, "0d" * 16, {0: subtask_state(6, managed=_handle(_flink_states()))})
    with pytest.raises(RefusedError, match="manifest /t/1.avro occurs twice"):
        _read(other, _committer(_iceberg_states()))


def _name(job: str, operator_id: str, checkpoint_id: int, suffix: str = "") -> str:
    return f"/t/{job}-{operator_id}-00000-1-{checkpoint_id}-00003{suffix}.avro"


_UUID = "-fb8cce36-53f0-4ad0-9668-8e8d32783fb3"


@pytest.mark.parametrize(
    "path",
    [
        _name(_OPERATOR, _OPERATOR, 5),
        _name(_JOB, _JOB, 5),
        _name(_JOB, _OPERATOR, 4),
        _name(_JOB, _OPERATOR, 4, _UUID),
        f"/t/{_OPERATOR}-00000-1-5-00003.avro",
    ],
)
def test_a_manifest_of_another_job_operator_or_checkpoint_is_refused(path: str) -> None:
    for states in (_flink_states(delta_manifests(manifest(path))), _iceberg_states(path)):
        with pytest.raises(RefusedError, match="does not belong to checkpoint 5 of job 0a0a"):
            _read(_committer(states))


@pytest.mark.parametrize(
    "path",
    [
        _name(_JOB, _OPERATOR, 5),
        _name(_JOB, _OPERATOR, 5, _UUID),
        f"/t/{_JOB}-00000-1-5-00003.avro",
        "/t/renamed.avro",
    ],
)
def test_a_manifest_whose_name_agrees_or_says_nothing_is_taken(path: str) -> None:
    (found,) = _read(_committer(_iceberg_states(path))).committers
    assert found.checkpoints[0].manifests[0].path == path


def test_a_sink_that_is_ahead_of_its_checkpoint_is_refused() -> None:
    with pytest.raises(RefusedError, match="checkpoint number 5, but job .* checkpoint 6"):
        _read(_committer(_flink_states(checkpoint_id=6)))


def test_manifests_in_state_of_no_known_sink_are_refused() -> None:
    states = {"iceberg-files-committer-state-v9": _flink_states()[_FILES]}
    with pytest.raises(RefusedError, match="1 manifests in state of no known sink"):
        _read(_committer(states))


@pytest.mark.parametrize("name", [_FILES, _JOBS, _COLLECTOR])
def test_a_damaged_name_of_a_committers_state_is_corrupt_and_not_another_operators(
    name: str,
) -> None:
    for place in range(len(name)):
        damaged = name[:place] + "?" + name[place + 1 :]
        with pytest.raises(CorruptFileError, match="damaged name"):
            _read(_committer({damaged: (0, [b"x"])}))


def test_other_sinks_committers_are_passed_over() -> None:
    foreign = collector("2", {5: [(1, b"\xac\xed\x00\x05sr a file to publish", 0)]})
    empty = byte_array(collector("2", {}))
    states: _Kept = {_COLLECTOR: (0, [byte_array(foreign), empty, byte_array(b"anything")])}
    assert _read(_committer(states)).committers == ()


def _in_stream(stream: bytes) -> bytes:
    _, offsets = operator_bytes(_flink_states())
    return operator(6, _OPERATOR, {0: subtask_state(6, managed=operator_handle(offsets, stream))})


@pytest.mark.parametrize("stream", [NULL, key_groups(3, 1, NULL), b"\x10"])
def test_operator_state_where_none_can_be_is_refused(stream: bytes) -> None:
    with pytest.raises(RefusedError, match="operator state has a handle of kind"):
        _read(_in_stream(stream))


@pytest.mark.parametrize(
    "stream",
    [
        relative("x", MAX_METADATA_BYTES + 1),
        file("/nowhere/x", 2**62),
        segment("/nowhere/x", 2**62, 2**62),
    ],
)
def test_state_files_of_too_many_bytes_are_refused_before_they_are_opened(stream: bytes) -> None:
    with pytest.raises(RefusedError, match="bytes of state, more than"):
        _read(_in_stream(stream))


@pytest.mark.parametrize("path", ["../x", "a/../../x", ".."])
def test_a_relative_state_file_outside_the_checkpoint_is_corrupt(path: str) -> None:
    with pytest.raises(CorruptFileError, match="has the invalid path"):
        _read(_in_stream(relative(path, 7)))


def test_a_state_file_that_is_gone_is_not_found() -> None:
    for stream in (relative("x", 7), file("/gone/x", 7), segment("/gone/x", 0, 7)):
        with pytest.raises(NotFoundError, match="no such file"):
            _read(_in_stream(stream))


def test_a_file_merging_job_without_state_has_no_state() -> None:
    handle = merged_operator_handle({_JOBS: (0, [])}, b"\x10", empty=True)
    assert _read(operator(6, _OPERATOR, {0: subtask_state(6, managed=handle)})).committers == ()


_BAD_CONTENT = {
    "negative checkpoint": _flink_states(checkpoint_id=-1),
    "descending": {
        _FILES: (0, [sorted_map({5: b"", 4: b""})]),
        _JOBS: (0, [java_string(_JOB)]),
    },
    "null": {_FILES: (0, [sorted_map({5: None})]), _JOBS: (0, [java_string(_JOB)])},
    "no job": _flink_states(job="main"),
    "null job": {**_flink_states(), _JOBS: (0, [b"\x00"])},
    "job of half a character": {**_flink_states(), _JOBS: (0, [b"\x02\x80\xb0\x03"])},
    "job of no character": {**_flink_states(), _JOBS: (0, [b"\x02\xff\xff\xff\x7f"])},
    "bytes behind the job": {**_flink_states(), _JOBS: (0, [java_string(_JOB) + b"x"])},
    "deletes as data": _flink_states(delta_manifests(manifest("/t/1.avro", content=1))),
    "data as deletes": _flink_states(delta_manifests(b"", manifest("/t/1.avro"))),
    "relative path": _flink_states(delta_manifests(manifest("1.avro"))),
    "empty path": _flink_states(delta_manifests(manifest(""))),
    "negative length": _flink_states(delta_manifests(manifest("/t/1.avro", length=-1))),
    "bytes behind": _flink_states(versioned(2, _CONTENT[8:] + b"x")),
    "other length": _flink_states(_CONTENT + b"x"),
    "unknown state": _iceberg_states(state=4),
    "negative number": _iceberg_states(number=-1),
    "dynamic without job": _collected(
        (2, dynamic_committable(2, "db.t", "main", "job", _JOB, 5, [_CONTENT]), 0)
    ),
}


@pytest.mark.parametrize("case", list(_BAD_CONTENT))
def test_content_that_no_sink_writes_is_corrupt(case: str) -> None:
    with pytest.raises(CorruptFileError):
        _read(_committer(_BAD_CONTENT[case]))


@pytest.mark.parametrize("offsets", [[0], [6], [40], [10**6], [-1]])
def test_elements_that_are_not_where_the_metadata_says_are_corrupt(offsets: list[int]) -> None:
    data, _ = operator_bytes(_flink_states())
    handle = operator_handle({_FILES: (0, offsets), _JOBS: (0, offsets)}, inline(data))
    with pytest.raises(CorruptFileError):
        _read(operator(6, _OPERATOR, {0: subtask_state(6, managed=handle)}))


def test_a_subtask_that_is_there_twice_or_beyond_the_parallelism_is_corrupt() -> None:
    state = subtask_state(6)
    twice = operator(6, _OPERATOR, {0: state}).replace(
        int32(1) + int32(0) + state, int32(2) + (int32(0) + state) * 2
    )
    for content in (twice, operator(6, _OPERATOR, {3: state}, parallelism=3)):
        with pytest.raises(CorruptFileError, match="subtask"):
            _read(content)


@pytest.mark.slow
def test_more_than_any_job_has_is_refused_before_it_is_kept() -> None:
    bare = subtask_state(6, managed=operator_handle({_JOBS: (0, ())}, NULL))
    item = (1, iceberg_committable(_JOB, _OPERATOR, 5, b""), 0)
    data, _ = operator_bytes(_flink_states())
    floods = {
        "committers in": [operator(6, _OPERATOR, {0: bare})] * 17_000,
        "subtasks": [operator(6, _OPERATOR, dict.fromkeys(range(128), bare))] * 1025,
        "checkpoints to commit": [
            _committer(
                {
                    **_flink_states(),
                    _FILES: (0, [sorted_map(dict.fromkeys(range(100_001), b""))]),
                }
            )
        ],
        "committables": [_committer(_collected(*[item] * 100_001))],
        "elements": [
            operator(
                6,
                _OPERATOR,
                {
                    0: subtask_state(
                        6, managed=operator_handle({_JOBS: (0, [0] * 100_001)}, inline(data))
                    )
                },
            )
        ],
    }
    for what, operators in floods.items():
        with pytest.raises(RefusedError, match=what):
            _read(*operators)


def test_a_job_of_more_characters_than_an_id_is_corrupt() -> None:
    with pytest.raises(CorruptFileError, match="invalid text length 1000000"):
        _read(_committer(_flink_states(job="a" * 1_000_000)))


def test_handles_in_handles_end_before_the_stack_does() -> None:
    stream = inline(b"")
    for _ in range(5000):
        stream = key_groups(3, 0, stream)
    keyed = NULL
    for _ in range(2000):
        keyed = b"\x08" + bytes(16) + int32(1) + keyed
    for state in (
        subtask_state(6, keyed=(key_groups(3, 0, stream), NULL)),
        subtask_state(6, keyed=(keyed, NULL)),
    ):
        with pytest.raises(CorruptFileError, match="within state handles"):
            _read(operator(6, _OPERATOR, {0: state}))
