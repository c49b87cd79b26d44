"""What a check finds about files together is what a comparison of each delete file with each data file finds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation, Summary
from support.tiers import examples

from lake.core.data.keys.encoding import mixed
from lake.core.maintain.checking import snapshot_contents
from lake.core.maintain.checking.snapshot_contents import Contents, LiveFiles

VECTOR, OF_FILE, OF_PARTITION, KEYS, GLOBAL_KEYS = range(5)
METADATA: Any = SimpleNamespace(
    snapshots=[SimpleNamespace(sequence_number=number, summary=None) for number in (1, 2)]
)


class Data(NamedTuple):
    path: int
    partition: int
    records: int
    sequence: int
    first_row_id: int | None


class Delete(NamedTuple):
    path: int
    kind: int
    applies_to: int
    sequence: int
    added: int


# Files that are all in memory, that begin there, and that are in parts.
MEMORY = st.sampled_from([1000, 100, 0])


def hashes(numbers: list[int]) -> pa.Array:
    """Return numbers as they are kept: in parts, they are spread."""
    return pa.array(mixed(np.array(numbers, np.uint64)))


def snapshot(data_files: int) -> Any:
    summary = Summary(Operation.APPEND, **{"total-data-files": str(data_files)})
    return SimpleNamespace(snapshot_id=1, summary=summary)


DATA_FILES = st.lists(
    st.builds(
        Data,
        path=st.integers(0, 9),
        partition=st.integers(100, 102),
        records=st.integers(0, 9),
        sequence=st.integers(0, 3),
        first_row_id=st.none() | st.integers(0, 20),
    ),
    max_size=12,
)
DELETE_FILES = st.lists(
    st.builds(
        Delete,
        path=st.integers(20, 99),
        kind=st.integers(0, 4),
        applies_to=st.integers(0, 9) | st.integers(100, 102),
        sequence=st.integers(0, 3),
        added=st.integers(0, 3),
    ),
    max_size=10,
)


def contents(
    data: list[Data], deletes: list[Delete], part: int, memory_bytes: int, chosen: Any = None
) -> Contents:
    """Return files that were found some at a time, each in a manifest of its own; some manifests, or all."""
    count = len(data)
    of_data = {
        "path": hashes([file.path for file in data]),
        "manifest": pa.array(range(count), pa.int32()),
        "records": pa.array([file.records for file in data], pa.int64()),
        "sequence": pa.array([file.sequence for file in data], pa.int64()),
        "scope": hashes([file.partition for file in data]),
        "first_row_id": pa.array([file.first_row_id for file in data], pa.int64()),
    }
    of_deletes = {
        "path": hashes([file.path for file in deletes]),
        "manifest": pa.array(range(count, count + len(deletes)), pa.int32()),
        "records": pa.array([1] * len(deletes), pa.int64()),
        "kind": pa.array([file.kind for file in deletes], pa.int8()),
        "sequence": pa.array([file.sequence for file in deletes], pa.int64()),
        "added": pa.array([file.added for file in deletes], pa.int64()),
        "scope": hashes([file.applies_to for file in deletes]),
    }
    with patch.object(snapshot_contents, "MEMORY_BYTES", memory_bytes):
        files = LiveFiles()
    for spool, columns in ((files.data, of_data), (files.deletes, of_deletes)):
        for batch in pa.table(columns).to_batches(part):
            spool.add(batch)
    own = np.zeros(count + len(deletes), np.bool_)
    own[slice(None) if chosen is None else chosen] = True
    return Contents(files, own)


def by_comparison(data: list[Data], deletes: list[Delete]) -> dict[str, set[int]]:
    """Return the manifests of the delete files that something is wrong with, by its code."""
    found: dict[str, set[int]] = {
        code: set() for code in ("V003", "V004", "V005", "V006", "E005", "E006")
    }
    vectors = [item.applies_to for item in deletes if item.kind == VECTOR]
    for number, item in enumerate(deletes, len(data)):
        reached = [
            file
            for file in data
            if item.kind == GLOBAL_KEYS
            or item.applies_to == (file.path if item.kind <= OF_FILE else file.partition)
        ]
        oldest = min((file.sequence for file in reached), default=None)
        is_late = oldest is None or oldest > item.sequence
        renumbered = item.added != item.sequence
        own = any(file.sequence == item.sequence for file in reached)
        wrong = {
            "V003": item.kind == VECTOR and vectors.count(item.applies_to) > 1,
            "V004": item.kind == OF_FILE and item.applies_to in vectors,
            "V005": item.kind == VECTOR and not reached,
            "V006": item.kind == VECTOR and bool(reached) and is_late,
            "E005": item.kind != VECTOR and is_late,
            "E006": item.kind >= KEYS
            and ((oldest == item.sequence and item.sequence in (1, 2)) or (renumbered and own)),
        }
        for code, is_wrong in wrong.items():
            if is_wrong:
                found[code].add(number)
    return found


@settings(deadline=None, max_examples=examples(200))
@given(DATA_FILES, DELETE_FILES, st.integers(1, 5), MEMORY, st.booleans())
def test_delete_files_are_compared_with_the_data_files_of_their_snapshot(
    data: list[Data], deletes: list[Delete], part: int, memory_bytes: int, every: bool
) -> None:
    chosen = np.arange(len(data) + len(deletes))[:: 1 if every else 2]
    own = [file for number, file in enumerate(data) if number in chosen]
    others = [file for number, file in enumerate(deletes, len(data)) if number in chosen]

    found = contents(data, deletes, part, memory_bytes, chosen).deletes(METADATA)

    expected = by_comparison(own, others)
    names = {len(own) + place: number for place, number in enumerate(chosen[len(own) :].tolist())}
    for code, manifests in expected.items():
        files = found[code]["manifest"].to_pylist() if found else []
        assert sorted(files) == sorted(names[number] for number in manifests), code


@settings(deadline=None, max_examples=examples(200))
@given(DATA_FILES, DELETE_FILES, st.integers(1, 5), MEMORY)
def test_row_ids_that_two_files_have_are_found(
    data: list[Data], deletes: list[Delete], part: int, memory_bytes: int
) -> None:
    files = [file._replace(path=place) for place, file in enumerate(data)]
    found = contents(files, deletes, part, memory_bytes)
    paths = hashes([file.path for file in files]).to_pylist()

    taken: set[int] = set()
    doubled = []
    for first, _, place in sorted(
        (file.first_row_id, paths[file.path], file.path)
        for file in files
        if file.first_row_id is not None and file.records
    ):
        ids = set(range(first, first + files[place].records))
        doubled += [place] if ids & taken else []
        taken |= ids
    with patch.object(snapshot_contents, "MEMORY_BYTES", memory_bytes):
        assert found.overlaps()["manifest"].to_pylist() == doubled
    assert found.last_row_id == max(
        (file.first_row_id + file.records for file in files if file.first_row_id is not None),
        default=0,
    )
    assert found.duplicates().tolist() == []
    twice = contents([*files, *files], deletes, part, memory_bytes)
    assert sorted(twice.duplicates().tolist()) == sorted(paths)
    held = twice.have(hashes([0, 100, *(item.path for item in deletes[:1])]).to_numpy())
    assert held.tolist() == [bool(files), False, *(True for _ in deletes[:1])]
    right, wrong = (snapshot(2 * len(files) + more) for more in (0, 1))
    assert [item.code for item in twice.totals(right)] == []
    assert [item.code for item in twice.totals(wrong)] == ["T001"]
