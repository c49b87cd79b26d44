"""Change logs written by lake: against the state machine row by row, and read back by the format's rules."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.random_rows import batch_of, write_settings
from support.tiers import examples

from lake.core.base.errors import RefusedError
from lake.core.data.deletes.delta_writer import (
    DELETE,
    INSERT,
    RETRACT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    UPSERT,
    DeltaFiles,
    DeltaSettings,
    DeltaWriter,
)
from lake.core.data.rows import writer
from lake.core.io.storage.storage import Storage
from lake.core.table.manifests.data_files import EQUALITY_DELETES, DataFile

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", LongType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"), spec_id=1)
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "b"), spec_id=2)
Row = dict[str, Any]
Change = tuple[int, Row]
ids = st.one_of(st.none(), st.integers(0, 4))
parts = st.sampled_from([None, "x", "y"])


def delta_settings(
    folder: Path, spec: PartitionSpec, key: Sequence[int], mode: str, version: int
) -> DeltaSettings:
    # Files of a few rows each, so that places in later files are met too.
    write = write_settings(folder, SCHEMA, spec, target_bytes=1)
    return DeltaSettings(write=write, key_ids=key, mode=mode, format_version=version)


def write_changes(delta: DeltaSettings, batches: Sequence[Sequence[Change]]) -> DeltaFiles:
    # Every commit has a name of its own, and tasks get settings as plain values.
    write = replace(delta.write, operation_id=str(uuid.uuid4()))
    plain = DeltaSettings.from_plain(replace(delta, write=write).to_plain())
    with DeltaWriter(Storage(), plain, task=0, attempt="a") as changing:
        for changes in batches:
            rows = batch_of(SCHEMA, [row for _, row in changes])
            changing.write(rows, np.array([kind for kind, _ in changes], np.int8))
        return changing.close()


# A reader of its own, by the rules of sequence numbers


@dataclass
class Commits:
    """Files by the sequence number of their commit."""

    specs: Mapping[int, PartitionSpec]
    files: list[tuple[int, DeltaFiles]] = field(default_factory=list)

    def add(self, files: DeltaFiles) -> None:
        self.files.append((len(self.files) + 1, files))

    def rows(self) -> list[Row]:
        found = []
        deletes = [(number, file) for number, files in self.files for file in files.deletes]
        for number, files in self.files:
            for file in files.data:
                stored = pq.read_table(local(file), partitioning=None).to_pylist()
                assert len(stored) == file.record_count
                found += [
                    row
                    for position, row in enumerate(stored)
                    if not any(
                        self._deleted(row, position, number, file, *delete) for delete in deletes
                    )
                ]
        return found

    def _deleted(
        self, row: Row, position: int, number: int, file: DataFile, since: int, delete: DataFile
    ) -> bool:
        if delete.content != EQUALITY_DELETES:
            assert delete.referenced_data_file is not None
            mine = delete.referenced_data_file == file.path and number <= since
            return mine and position in positions_in(delete)
        if number >= since:
            return False
        everywhere = self.specs[delete.spec_id].is_unpartitioned()
        if not everywhere and (delete.spec_id, delete.partition) != (file.spec_id, file.partition):
            return False
        names = [SCHEMA.find_column_name(column) for column in delete.equality_ids or ()]
        gone = pq.read_table(local(delete), partitioning=None).to_pylist()
        return any(all(row[name] == key[name] for name in names) for key in gone)


def local(file: DataFile) -> str:
    return file.path.removeprefix("file://")


def positions_in(delete: DataFile) -> set[int]:
    if delete.format == "PUFFIN":
        read = deletion_vectors_from_puffin_file(PuffinFile(Path(local(delete)).read_bytes()))
        vectors = {one.referenced_data_file: one.to_vector().to_pylist() for one in read}
        return set(vectors[delete.referenced_data_file])
    stored = pq.read_table(local(delete), partitioning=None)
    assert set(stored["file_path"].to_pylist()) == {delete.referenced_data_file}
    assert stored["pos"].to_pylist() == sorted(stored["pos"].to_pylist())
    return set(stored["pos"].to_pylist())


def shown(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.fixture(scope="module", autouse=True)
def small_files() -> Iterator[None]:
    """Let files hold a few rows each, and not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "persist", lambda _storage, _location: None)
        patch.setattr(writer, "_SMALLEST_ROW_GROUP", 60)
        patch.setattr(writer, "_MOST_OPEN_FILES", 1)
        yield


# The tests


@st.composite
def upserts(draw: st.DrawFn) -> list[list[list[Change]]]:
    """Draw commits of batches of changes; a deleted row's other columns are not known."""
    row = st.fixed_dictionaries({"id": ids, "part": parts, "value": st.integers(0, 100)})
    kinds = st.sampled_from([INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE])
    change = st.tuples(kinds, row).map(
        lambda found: (found[0], {**found[1], "value": None} if found[0] == DELETE else found[1])
    )
    return draw(st.lists(st.lists(st.lists(change, max_size=8), max_size=3), max_size=4))


KEYS = st.sampled_from(
    [
        (UNPARTITIONED_PARTITION_SPEC, (1,)),
        (UNPARTITIONED_PARTITION_SPEC, (2, 1)),
        (BY_PART, (1, 2)),
        (BY_BUCKET, (1,)),
    ]
)


@settings(deadline=None, max_examples=examples(80))
@given(upserts(), KEYS, st.sampled_from([2, 3]))
def test_upserts_leave_the_last_row_of_each_key(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[list[Change]]],
    shape: tuple[PartitionSpec, tuple[int, ...]],
    version: int,
) -> None:
    spec, key = shape
    delta = delta_settings(tmp_path_factory.mktemp("upserts"), spec, key, UPSERT, version)
    table, model = Commits({spec.spec_id: spec}), {}
    names = [SCHEMA.find_column_name(column) for column in key]
    for batches in commits:
        table.add(write_changes(delta, batches))
        for kind, row in (change for changes in batches for change in changes):
            identity = tuple(row[name] for name in names)
            if kind == DELETE:
                model.pop(identity, None)
            elif kind != UPDATE_BEFORE:
                model[identity] = row

    assert shown(table.rows()) == shown(list(model.values()))


@st.composite
def retractions(draw: st.DrawFn) -> tuple[list[list[list[Change]]], list[Row]]:
    """Draw commits of a change log that contains every old row, and the rows that it ends with."""
    rows: dict[Any, Row] = {}
    commits = []
    for _ in range(draw(st.integers(0, 4))):
        changes: list[Change] = []
        for identity in draw(st.lists(ids, max_size=12)):
            old = rows.pop(identity, None)
            new = None
            if old is None or draw(st.booleans()):
                new = {"id": identity, "part": draw(parts), "value": draw(st.integers(0, 100))}
                rows[identity] = new
            if old is not None:
                changes.append((UPDATE_BEFORE if new else DELETE, old))
            if new is not None:
                changes.append((UPDATE_AFTER if old else INSERT, new))
        cut = draw(st.integers(0, len(changes)))
        commits.append([changes[:cut], changes[cut:]])
    return commits, list(rows.values())


@settings(deadline=None, max_examples=examples(80))
@given(
    retractions(),
    st.sampled_from([UNPARTITIONED_PARTITION_SPEC, BY_PART, BY_BUCKET]),
    st.sampled_from([2, 3]),
)
def test_a_retracting_log_leaves_what_it_did_not_retract(
    tmp_path_factory: pytest.TempPathFactory,
    log: tuple[list[list[list[Change]]], list[Row]],
    spec: PartitionSpec,
    version: int,
) -> None:
    commits, expected = log
    delta = delta_settings(tmp_path_factory.mktemp("retract"), spec, (1,), RETRACT, version)
    table = Commits({spec.spec_id: spec})
    for batches in commits:
        table.add(write_changes(delta, batches))

    assert shown(table.rows()) == shown(expected)


@dataclass
class RowByRow:
    """The state machine of one partition as it is specified: a map of keys, one row after the other."""

    upsert: bool
    inserted: dict[Any, int] = field(default_factory=dict)
    written: list[Row] = field(default_factory=list)
    by_position: set[int] = field(default_factory=set)
    by_equality: list[Row] = field(default_factory=list)

    def change(self, kind: int, row: Row) -> None:
        key = row["id"]
        if kind in {INSERT, UPDATE_AFTER}:
            if self.upsert:
                self.delete(key, {"id": key})
            previous = self.inserted.get(key)
            self.inserted[key] = len(self.written)
            if previous is not None:
                self.by_position.add(previous)
            self.written.append(row)
        elif self.upsert and kind == DELETE:
            self.delete(key, {"id": key})
        elif not self.upsert:
            self.delete(key, row)

    def delete(self, key: Any, what: Row) -> None:
        previous = self.inserted.pop(key, None)
        if previous is None:
            self.by_equality.append(what)
        else:
            self.by_position.add(previous)


@settings(deadline=None, max_examples=examples(100))
@given(upserts(), st.sampled_from([UPSERT, RETRACT]), st.booleans(), st.sampled_from([2, 3]))
def test_any_stream_of_changes_is_written_as_row_by_row(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[list[list[Change]]],
    mode: str,
    partitioned: bool,
    version: int,
) -> None:
    spec = UNPARTITIONED_PARTITION_SPEC
    if partitioned:
        spec = BY_BUCKET if mode == UPSERT else BY_PART
    delta = delta_settings(tmp_path_factory.mktemp("any"), spec, (1,), mode, version)
    batches = [changes for commit in commits for changes in commit]
    files = write_changes(delta, batches)
    machines: dict[Any, RowByRow] = {}
    for kind, row in (change for changes in batches for change in changes):
        partition = row["part"] if spec is BY_PART else row["id"] if partitioned else None
        machines.setdefault(partition, RowByRow(mode == UPSERT)).change(kind, row)

    written = [
        row
        for file in files.data
        for row in pq.read_table(local(file), partitioning=None).to_pylist()
    ]
    equality = [file for file in files.deletes if file.content == EQUALITY_DELETES]
    by_position = [file for file in files.deletes if file.content != EQUALITY_DELETES]
    gone = [
        row
        for file in equality
        for row in pq.read_table(local(file), partitioning=None).to_pylist()
    ]
    of_path = {
        file.path: pq.read_table(local(file), partitioning=None).to_pylist() for file in files.data
    }
    removed = [
        of_path[file.referenced_data_file or ""][place]
        for file in by_position
        for place in positions_in(file)
    ]
    every = list(machines.values())
    assert shown(written) == shown([row for one in every for row in one.written])
    assert shown(gone) == shown([row for one in every for row in one.by_equality])
    assert shown(removed) == shown([one.written[n] for one in every for n in one.by_position])


def test_a_key_without_a_partitions_source_is_refused_with_the_reason(tmp_path: Path) -> None:
    delta = delta_settings(tmp_path, BY_PART, (1,), UPSERT, 2)

    with pytest.raises(RefusedError, match="column part of the partition field part.*would remain"):
        DeltaWriter(Storage(), delta, task=0, attempt="a")


@pytest.mark.slow
def test_after_an_error_no_file_of_any_kind_is_left(tmp_path: Path) -> None:
    delta = delta_settings(tmp_path / "t", UNPARTITIONED_PARTITION_SPEC, (1,), UPSERT, 2)
    row = {"id": 1, "part": "x", "value": 1}
    rows = batch_of(SCHEMA, [row] * 5000)
    with (
        pytest.raises(ZeroDivisionError),
        DeltaWriter(Storage(), delta, task=0, attempt="a") as changing,
    ):
        changing.write(rows, np.zeros(rows.num_rows, np.int8))
        changing.close()
        assert len(list((tmp_path / "t").iterdir())) > 3
        raise ZeroDivisionError

    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize("fails_at", [1, 2, 3])
@pytest.mark.parametrize("version", [2, 3])
def test_a_disk_that_fills_up_while_files_are_finished_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, fails_at: int
) -> None:
    monkeypatch.setattr(writer, "_SMALLEST_ROW_GROUP", 1024 * 1024)
    delta = delta_settings(tmp_path / "t", UNPARTITIONED_PARTITION_SPEC, (1,), UPSERT, version)
    persisted = []

    def persist(_storage: Storage, location: str) -> None:
        persisted.append(location)
        if len(persisted) == fails_at:
            raise OSError(28, "no space left on device")

    monkeypatch.setattr(Storage, "persist", persist)
    row = {"id": 1, "part": "x", "value": 1}
    with pytest.raises(OSError, match="no space"):
        write_changes(delta, [[(INSERT, row), (INSERT, row)]])

    assert len(persisted) == fails_at
    assert list((tmp_path / "t").iterdir()) == []


def test_changes_of_nothing_make_no_files(tmp_path: Path) -> None:
    delta = delta_settings(tmp_path / "t", UNPARTITIONED_PARTITION_SPEC, (1,), UPSERT, 3)

    files = write_changes(delta, [[(UPDATE_BEFORE, {"id": 1, "part": "x", "value": 1})], []])

    assert (files.data, files.deletes) == ([], [])
    assert not (tmp_path / "t").exists()
