"""What an own writer puts into a checkpoint is what is read of it, whatever else is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults.memory_storage import MemoryStorage
from support.tables.checkpoint_writer import (
    EMPTY_SEGMENT,
    NULL,
    byte_array,
    change_files,
    changelog,
    changes,
    channel,
    collector,
    delta_manifests,
    dynamic_committable,
    file,
    iceberg_committable,
    incremental,
    inline,
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
)
from support.tiers import examples

from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.state import (
    DYNAMIC_SINK,
    FLINK_SINK,
    ICEBERG_SINK,
    CommitterState,
    ManifestReference,
    TakenCheckpoint,
)

_FOLDER = "/jobs/a/chk-99"
_COLLECTOR = "streaming_committer_raw_states"
_hex = st.text("0123456789abcdef", min_size=32, max_size=32)
_names = st.text(max_size=8)
_streams = st.recursive(
    st.one_of(
        st.just(NULL),
        st.just(EMPTY_SEGMENT),
        st.builds(inline, st.binary(max_size=40), _names),
        st.builds(file, _names, st.integers(0, 2**63 - 1)),
        st.builds(relative, _names, st.integers(0, 2**63 - 1)),
        st.builds(segment, _names, st.integers(0, 2**40), st.integers(0, 2**40)),
    ),
    lambda inner: st.builds(key_groups, st.just(3), st.integers(0, 5), inner),
    max_leaves=3,
)
_file_maps = st.dictionaries(_names, _streams, max_size=3)
_keyed = st.recursive(
    st.one_of(
        st.just(NULL),
        st.builds(key_groups, st.sampled_from((3, 7, 12)), st.integers(0, 5), _streams),
        st.builds(incremental, st.sampled_from((5, 11)), _file_maps, _file_maps),
        st.builds(changes, st.lists(st.binary(max_size=9), max_size=3)),
        st.builds(change_files, st.sampled_from((10, 13)), st.lists(_streams, max_size=3)),
    ),
    lambda inner: st.builds(
        changelog,
        st.sampled_from((8, 14)),
        st.lists(inner, max_size=2),
        st.lists(inner, max_size=2),
    ),
    max_leaves=4,
)


def _other_operator_handle(draw: st.DrawFn) -> bytes:
    states = draw(
        st.dictionaries(
            _names.map(lambda name: "its " + name),
            st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2**60), max_size=3)),
            max_size=3,
        )
    )
    if draw(st.booleans()):
        return merged_operator_handle(states, draw(_streams), empty=draw(st.booleans()))
    return operator_handle(states, draw(_streams))


@st.composite
def _other_operators(draw: st.DrawFn, version: int) -> bytes:
    """Return an operator that is not a committer, with any kind of state; stateful if records are in flight."""
    subtasks: dict[int, bytes | None] = {}
    for index in draw(st.sets(st.integers(0, 9), max_size=4)):
        inputs = [
            channel(version, draw(_streams), merged=version >= 6 and draw(st.booleans()))
            for _ in range(draw(st.integers(0, 2)))
        ]
        stateful = key_groups(3, 1, NULL) if inputs else draw(_keyed)
        handle = draw(st.booleans()) and _other_operator_handle(draw)
        subtasks[index] = subtask_state(
            version,
            managed=handle or None,
            raw=_other_operator_handle(draw) if draw(st.booleans()) else None,
            keyed=(stateful, draw(_keyed)),
            inputs=inputs,
            outputs=[channel(version, NULL, output=True)] if inputs else [],
            reference=draw(st.none() | st.integers(0, 2**60)),
        )
    if version >= 3:
        subtasks |= dict.fromkeys(draw(st.sets(st.integers(10, 12))))
    finished = version >= 3 and draw(st.booleans())
    return operator(
        version,
        draw(_hex),
        None if finished else subtasks,
        name=draw(_names),
        coordinator=NULL if finished else draw(st.just(NULL) | st.builds(inline, st.binary())),
    )


@dataclass
class _Writer:
    """Keeps the files of a checkpoint and what must be read of it."""

    version: int
    draw: st.DrawFn
    files: dict[str, bytes] = field(default_factory=dict)
    made: int = 0

    def delta(self, *, both: bool = True) -> tuple[bytes, tuple[ManifestReference, ...]]:
        """Return a DeltaManifests of one or two manifests, or none, and what it names."""
        contents = self.draw(st.sampled_from(((), (0,), (1,), (0, 1)) if both else ((0,),)))
        found: dict[int, bytes] = {}
        references = []
        for content in contents:
            self.made += 1
            reference = ManifestReference(
                path=self.draw(st.sampled_from(("/t/", "s3://b/täble/", "file:/x/")))
                + f"{self.made}.avro",
                length=self.draw(st.integers(0, 2**62)),
                spec_id=self.draw(st.integers(0, 2**31 - 1)),
                content=content,
                added_files=self.draw(st.none() | st.integers(0, 2**31 - 1)),
                added_rows=self.draw(st.none() | st.integers(0, 2**62)),
            )
            references.append(reference)
            found[content] = manifest(
                reference.path,
                length=reference.length,
                spec_id=reference.spec_id,
                content=content,
                files=reference.added_files,
                rows=reference.added_rows,
            )
        if contents == (0,) and self.draw(st.booleans()):
            return delta_manifests(found[0], version=1), tuple(references)
        referenced = self.draw(st.lists(_names, max_size=2))
        return (
            delta_manifests(found.get(0, b""), found.get(1, b""), referenced),
            tuple(references),
        )

    def ids(self) -> tuple[str, str]:
        """Return a job's and an operator's id that nothing else has."""
        self.made += 1
        return f"{self.made:032x}", self.draw(_hex)

    def numbers(self) -> list[int]:
        """Return numbers of pending checkpoints."""
        return sorted(self.draw(st.sets(st.integers(0, 99), min_size=1, max_size=4)))

    def handle(self, states: dict[str, tuple[int, Sequence[bytes]]]) -> bytes:
        """Return a handle of operator state, its bytes kept anywhere that Flink keeps them."""
        others: dict[str, tuple[int, Sequence[bytes]]] = {
            "before": (self.draw(st.integers(0, 2)), self.draw(st.lists(st.binary(min_size=1)))),
            "empty": (0, []),
        }
        behind: dict[str, tuple[int, Sequence[bytes]]] = {"behind": (1, [b"union"])}
        data, offsets = operator_bytes(
            {**others, **states, **(behind if self.draw(st.booleans()) else {})},
            version=self.draw(st.sampled_from((5, 6))),
            compressed=False,
        )
        if self.draw(st.booleans()):
            data, offsets = operator_bytes({**others, **states, **behind}, compressed=True)
        self.made += 1
        name = f"state-{self.made}"
        match self.draw(st.sampled_from(("inline", "file", "relative", "segment"))):
            case "inline":
                return operator_handle(offsets, inline(data))
            case "file":
                self.files[f"{_FOLDER}/{name}"] = data
                return operator_handle(offsets, file(f"hdfs://gone/a/chk-1/{name}", len(data)))
            case "relative":
                self.files[f"{_FOLDER}/{name}"] = data
                return operator_handle(offsets, relative(name, len(data)))
            case _:
                self.files[f"/jobs/a/shared/{name}"] = b"#" * 7 + data + b"#"
                place = segment(f"file:/jobs/a/shared/{name}", 7, len(data))
                return merged_operator_handle(offsets, place)

    def flink_sink(self) -> tuple[bytes, list[CommitterState]]:
        """Return a FlinkSink's committer, and what it had to commit."""
        job, operator_id = self.ids()
        entries: dict[int, bytes | None] = {}
        taken = []
        for number in self.numbers():
            blank = self.draw(st.booleans())
            content, references = (b"", ()) if blank else self.delta()
            entries[number] = content
            taken.append(TakenCheckpoint(checkpoint_id=number, manifests=references, blank=blank))
        handle = self.handle(
            {
                "iceberg-files-committer-state": (0, [sorted_map(entries)]),
                "iceberg-flink-job-id": (0, [java_string(job)]),
            }
        )
        state = CommitterState(
            sink=FLINK_SINK, job_id=job, operator_id=operator_id, checkpoints=tuple(taken)
        )
        subtask = subtask_state(self.version, managed=handle)
        return operator(self.version, operator_id, {0: subtask}, name="Committer"), [state]

    def iceberg_sink(self) -> tuple[bytes, list[CommitterState]]:
        """Return an IcebergSink's committer, its checkpoints in any subtask, and what it had to commit."""
        job, operator_id = self.ids()
        by_subtask: dict[int, dict[int, list[tuple[int, bytes, int]]]] = {0: {}, 1: {}, 2: {}}
        taken = []
        for number in self.numbers():
            blank = self.draw(st.booleans())
            content, references = (b"", ()) if blank else self.delta()
            committable = iceberg_committable(job, operator_id, number, content)
            state = self.draw(st.sampled_from((0, 1, 3)))
            subtask = by_subtask[self.draw(st.integers(0, 2))]
            subtask[number] = [(1, committable, state)]
            if state != 3:
                taken.append(
                    TakenCheckpoint(checkpoint_id=number, manifests=references, blank=blank)
                )
        expected = CommitterState(
            sink=ICEBERG_SINK, job_id=job, operator_id=operator_id, checkpoints=tuple(taken)
        )
        return self._collectors(by_subtask), [expected] if taken else []

    def dynamic_sink(self) -> tuple[bytes, list[CommitterState]]:
        """Return a DynamicIcebergSink's committer of two tables, and what it had to commit."""
        job, operator_id = self.ids()
        held: dict[int, list[tuple[int, bytes, int]]] = {}
        expected = []
        for table in ("db.ä", "db.b"):
            taken = []
            for number in self.numbers():
                version = self.draw(st.sampled_from((1, 2)))
                deltas = [self.delta() for _ in range(self.draw(st.integers(1, 3)))]
                parts = [[item] for item in deltas] if version == 1 else [deltas]
                for part in parts:
                    contents = [content for content, _ in part]
                    item = dynamic_committable(
                        version, table, "main", job, operator_id, number, contents
                    )
                    held.setdefault(number, []).append((version, item, 0))
                named = [reference for _, names in deltas for reference in names]
                named.sort(key=lambda reference: reference.content)
                taken.append(TakenCheckpoint(checkpoint_id=number, manifests=tuple(named)))
            expected.append(
                CommitterState(
                    sink=DYNAMIC_SINK,
                    job_id=job,
                    operator_id=operator_id,
                    checkpoints=tuple(taken),
                    table=table,
                    branch="main",
                )
            )
        return self._collectors({0: held}), expected

    def _collectors(self, by_subtask: dict[int, dict[int, list[tuple[int, bytes, int]]]]) -> bytes:
        subtasks: dict[int, bytes | None] = {
            index: subtask_state(
                self.version,
                managed=self.handle(
                    {
                        _COLLECTOR: (
                            0,
                            [
                                byte_array(
                                    collector(
                                        self.draw(st.sampled_from(("1.18", "1.20", "2"))), held
                                    )
                                )
                            ],
                        )
                    }
                ),
            )
            for index, held in by_subtask.items()
        }
        return operator(self.version, self.draw(_hex), subtasks)


@pytest.mark.parametrize("version", range(2, 8))
@given(data=st.data())
@settings(max_examples=examples(20), deadline=None)
def test_what_sinks_had_to_commit_is_found_among_any_other_state(
    version: int, data: st.DataObject
) -> None:
    writer = _Writer(version, data.draw)
    makers = data.draw(
        st.lists(
            st.sampled_from((writer.flink_sink, writer.iceberg_sink, writer.dynamic_sink)),
            max_size=3,
        )
    )
    sinks = [make() for make in makers]
    operators: list[bytes] = []
    expected: list[CommitterState] = []
    for content, committers in sinks:
        operators += data.draw(st.lists(_other_operators(version), max_size=2))
        operators.append(content)
        expected += committers
    operators += data.draw(st.lists(_other_operators(version), max_size=2))
    content = metadata(version, 99, operators, masters=data.draw(st.integers(0, 2)))
    storage = MemoryStorage({**writer.files, f"{_FOLDER}/_metadata": content})
    found = read_checkpoint(storage, _FOLDER)
    assert found.checkpoint_id == 99

    def order(item: CommitterState) -> tuple[str, str, str]:
        return item.job_id, item.operator_id, item.table or ""

    assert sorted(found.committers, key=order) == sorted(expected, key=order)
