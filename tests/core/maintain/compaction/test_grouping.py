"""Which files are rewritten together: nothing lost, nothing twice, and nothing left to do afterwards."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, NestedField
from support.tiers import examples

from lake.core.maintain.compaction.grouping import (
    FileGroup,
    output_files,
    pack,
    plan_groups,
    row_group_sizes,
    split_bytes,
)
from lake.core.maintain.compaction.options import CompactionOptions, compaction_options
from lake.core.table.manifests.api import entries_of
from lake.core.table.manifests.data_files import DataFile

MIB = 1024 * 1024
SCHEMA = Schema(
    NestedField(1, "p", IntegerType(), required=False),
    NestedField(2, "d", DoubleType(), required=False),
)
BY_P = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1)
BY_BOTH = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "p"),
    PartitionField(2, 1001, IdentityTransform(), "d"),
    spec_id=2,
)
SPECS = {0: UNPARTITIONED_PARTITION_SPEC, 1: BY_P, 2: BY_BOTH}


@dataclass(frozen=True)
class File:
    size: int
    rows: int = 100
    partition: tuple[object, ...] = ()
    spec: int = 0
    sequence: int = 1
    name: str = ""
    delete_files: int = 0
    deleted_rows: int = 0


def entries(files: list[File]) -> dict[int, pa.Table]:
    """Return live files as columns by spec id."""
    tables = {}
    for spec_id in sorted({file.spec for file in files}):
        own = [(n, file) for n, file in enumerate(files) if file.spec == spec_id]
        table = entries_of(
            [
                DataFile(
                    path=file.name or str(number),
                    spec_id=spec_id,
                    partition=tuple(_single(value) for value in file.partition),
                    record_count=file.rows,
                    size_bytes=file.size,
                )
                for number, file in own
            ],
            spec=SPECS[spec_id],
            schema=SCHEMA,
            status=1,
            snapshot_id=1,
        )
        index = table.schema.get_field_index("sequence_number")
        sequence = pa.array([file.sequence for _, file in own], pa.int64())
        table = table.set_column(index, "sequence_number", sequence)
        added = {
            "spec_id": pa.array([spec_id] * len(own), pa.int32()),
            "delete_files": pa.array([file.delete_files for _, file in own], pa.int64()),
            "deleted_rows": pa.array([file.deleted_rows for _, file in own], pa.int64()),
        }
        for name, column in added.items():
            table = table.append_column(name, column)
        tables[spec_id] = table
    return tables


def _single(value: object) -> bytes | None:
    if value is None:
        return None
    return struct.pack("<d", value) if isinstance(value, float) else struct.pack("<i", value)


def plan(
    files: list[File],
    *,
    table_spec: int = 0,
    output_spec: int | None = None,
    least_bytes: int = 0,
    **options: object,
) -> list[FileGroup]:
    output = SPECS[table_spec if output_spec is None else output_spec]
    asked = compaction_options(options, {}, {})
    by_spec = entries(files)
    groups, left, alone, _ = plan_groups(
        by_spec,
        asked,
        table_spec_id=table_spec,
        output_spec=output,
        least_bytes=least_bytes,
    )
    # Each file is in a group, or left out or alone for one reason.
    kept = sum(group.files.num_rows for group in groups) + sum(len(one) for one in alone.values())
    assert kept + left == len(files)
    # Only a limit leaves out files: without it, they would be in these groups or in more of them.
    if asked.max_files is None:
        assert left == 0
    else:
        every = plan(
            files,
            table_spec=table_spec,
            output_spec=output_spec,
            least_bytes=least_bytes,
            **{**options, "max_files": None},
        )
        assert left == sum(group.files.num_rows for group in every) - sum(
            group.files.num_rows for group in groups
        )
    if not groups:
        return groups
    paths = pa.concat_tables([table.select(["file_path"]) for table in by_spec.values()])[
        "file_path"
    ]
    return [
        replace(
            group, files=group.files.append_column("file_path", paths.take(pa.array(group.numbers)))
        )
        for group in groups
    ]


def names(groups: list[FileGroup]) -> list[list[str]]:
    return [group.paths for group in groups]


def lists_of_files(fewest_rows: int) -> st.SearchStrategy[list[File]]:
    return st.lists(
        st.builds(
            File,
            size=st.integers(1, 1200 * MIB) | st.integers(1, 40 * MIB),
            rows=st.integers(fewest_rows, fewest_rows + 5000),
            partition=st.tuples(st.sampled_from([None, 1, 2])),
            spec=st.just(1),
            sequence=st.integers(1, 5),
        ),
        max_size=40,
    )


some_files = lists_of_files(0)
# Enough rows that a cut between two of them is as good as a cut at any byte.
full_files = lists_of_files(1000)


@settings(deadline=None, max_examples=examples(60))
@given(
    files=some_files,
    everything=st.booleans(),
    group_bytes=st.sampled_from([MIB, 300 * MIB, 2000 * MIB, 10**12]),
    group_files=st.sampled_from([1, 3, 10**6]),
)
def test_each_file_is_in_one_group_at_most_and_groups_keep_to_their_limits(
    files: list[File], everything: bool, group_bytes: int, group_files: int
) -> None:
    groups = plan(
        files,
        table_spec=1,
        rewrite_all=everything,
        max_group_size=group_bytes,
        max_group_files=group_files,
    )

    chosen = [path for group in groups for path in group.paths]
    assert len(chosen) == len(set(chosen))
    if everything:
        assert sorted(chosen) == sorted(str(number) for number in range(len(files)))
    for group in groups:
        members = [files[int(path)] for path in group.paths]
        assert len({file.partition for file in members}) == 1
        assert len(members) <= group_files
        assert len(members) == 1 or sum(file.size for file in members) <= group_bytes
        order = [
            (file.sequence, int(path)) for file, path in zip(members, group.paths, strict=True)
        ]
        assert order == sorted(order)


@settings(deadline=None, max_examples=examples(60))
@given(files=some_files)
def test_a_file_that_is_left_out_fits_or_is_in_a_group_not_worth_a_rewrite(
    files: list[File],
) -> None:
    options = CompactionOptions()
    chosen = {path for group in plan(files, table_spec=1) for path in group.paths}

    for partition in {file.partition for file in files}:
        own = [(str(n), f) for n, f in enumerate(files) if f.partition == partition]
        misfits = [(n, f) for n, f in own if not options.min_size <= f.size <= options.max_size]
        total = sum(file.size for _, file in misfits)
        worth = total > options.max_size or (
            len(misfits) > 1 and (len(misfits) >= 5 or total > options.target_size)
        )
        assert chosen & {n for n, _ in own} == ({n for n, _ in misfits} if worth else set())


@settings(deadline=None, max_examples=examples(80))
@given(files=full_files)
def test_after_a_compaction_there_is_nothing_left_to_do(files: list[File]) -> None:
    groups = plan(files, table_spec=1)
    gone = {path for group in groups for path in group.paths}
    after = [file for number, file in enumerate(files) if str(number) not in gone]
    for group in groups:
        place = files[int(group.paths[0])]
        after += [File(p.input_bytes, p.rows, place.partition, 1, 9) for p in group.ranges()]

    assert plan(after, table_spec=1) == []


@settings(deadline=None, max_examples=examples(80))
@given(files=some_files)
def test_ranges_cut_a_groups_rows_once_and_in_order(files: list[File]) -> None:
    for group in plan(files, table_spec=1, rewrite_all=True):
        rows = [(path, row) for path in group.paths for row in range(files[int(path)].rows)]
        found = []
        for part in group.ranges():
            spanned = [
                (path, row)
                for path in group.paths[part.first_file : part.end_file]
                for row in range(files[int(path)].rows)
            ]
            found += spanned[part.skip : part.skip + part.rows]
        assert found == rows
        assert sum(part.input_bytes for part in group.ranges()) == group.bytes
        assert 1 <= len(group.ranges()) <= group.output_files


@settings(deadline=None, max_examples=examples(80))
@given(files=full_files)
def test_there_are_as_many_ranges_as_java_makes_files(files: list[File]) -> None:
    options = CompactionOptions()
    for group in plan(files, table_spec=1, rewrite_all=True):
        assert len(group.ranges()) == group.output_files
        assert all(part.input_bytes <= options.write_max_bytes * 1.01 for part in group.ranges())


@pytest.mark.parametrize(
    ("megabytes", "files", "split"),
    [
        (100, 1, 512),
        (511, 1, 512),
        (512, 1, 512),
        (540, 1, 540),
        (600, 2, 512),
        (900, 2, 512),
        (1024, 2, 512),
        (1100, 2, 550),
        (5120 + 50, 10, 517),
        (3000, 6, 512),
    ],
)
def test_output_files_are_counted_and_filled_as_java_does(
    megabytes: int, files: int, split: int
) -> None:
    options = CompactionOptions()

    assert output_files(megabytes * MIB, options) == files
    assert split_bytes(megabytes * MIB, options) // MIB == split


def test_bins_are_filled_in_order_and_a_large_file_sits_alone() -> None:
    assert [list(range(9))[part] for part in pack([3, 3, 3, 9, 1, 1, 1, 1, 1], 6, 4)] == [
        [0, 1],
        [2],
        [3],
        [4, 5, 6, 7],
        [8],
    ]
    assert pack([], 1, 1) == []


def test_groups_are_worth_it_by_count_by_content_or_by_size() -> None:
    assert plan([File(MIB)] * 4) == []
    assert len(plan([File(MIB)] * 5)) == 1
    assert plan([File(300 * MIB)]) == []
    assert len(plan([File(300 * MIB)] * 2)) == 1
    assert plan([File(200 * MIB)] * 2) == []
    assert len(plan([File(1000 * MIB)])) == 1
    assert plan([File(MIB)], min_input_files=1) == []
    assert len(plan([File(500 * MIB)], rewrite_all=True)) == 1
    assert len(plan([File(500 * MIB)], delete_file_threshold=0)) == 1


def test_a_group_that_would_only_become_more_files_is_left_out() -> None:
    tiny = {"target_size": 100, "least_bytes": 500}
    assert plan([File(11_000)] * 2, **tiny) == []
    assert len(plan([File(11_000)] * 2, target_size=1000, least_bytes=500)) == 1
    assert len(plan([File(11_000)] * 2, target_size=100)) == 1
    # Other gains
    assert len(plan([File(11_000, delete_files=1)] * 2, **tiny)) == 1
    assert len(plan([File(11_000)] * 2, **tiny, strategy="sort", by="p")) == 1
    moved = [File(11_000, spec=1, partition=(1,))] * 2
    assert plan(moved, **tiny) == []
    assert len(plan(moved, **tiny, spec_id=0)) == 1
    assert len(plan([File(11_000)] * 2, **tiny, rewrite_all=True)) == 1
    # Fewer files
    assert len(plan([File(10)] * 20, **tiny)) == 1


def test_files_of_other_specs_are_one_group_without_partition() -> None:
    files = [
        File(MIB, partition=(1,), spec=1, name="a"),
        File(MIB, partition=(2,), spec=1, name="b"),
        File(MIB, spec=0, name="c"),
        File(MIB, partition=(1, 0.5), spec=2, name="d"),
        File(MIB, partition=(None, None), spec=2, name="e"),
        File(MIB, partition=(1, None), spec=2, name="f"),
    ]

    groups = plan(files, table_spec=2, min_input_files=2, rewrite_all=True)

    # As in Java, files of other specs are put in the partition whose values are all NULL.
    assert sorted(sorted(paths) for paths in names(groups)) == [["a", "b", "c", "e"], ["d"], ["f"]]
    assert [group.moves_rows for group in groups] == [len(group.paths) > 1 for group in groups]


def test_the_tables_spec_groups_files_though_another_is_written() -> None:
    files = [File(MIB, partition=(number % 2,), spec=1, name=str(number)) for number in range(4)]

    groups = plan(files, table_spec=1, output_spec=0, rewrite_all=True)

    assert names(groups) == [["0", "2"], ["1", "3"]]
    assert not any(group.moves_rows for group in groups)


def test_partitions_of_nan_and_of_null_are_partitions_of_their_own() -> None:
    nan = float("nan")
    values = [nan, None, 0.5, nan, None, 0.5]
    files = [File(MIB, partition=(1, value), spec=2, name=str(n)) for n, value in enumerate(values)]

    assert names(plan(files, table_spec=2, rewrite_all=True)) == [
        ["0", "3"],
        ["1", "4"],
        ["2", "5"],
    ]


def test_older_files_come_first_and_equals_stay_in_planning_order() -> None:
    files = [
        File(MIB, sequence=3, name="c"),
        File(MIB, sequence=1, name="a"),
        File(MIB, sequence=3, name="d"),
        File(MIB, sequence=2, name="b"),
    ]

    assert names(plan(files, min_input_files=2)) == [["a", "b", "c", "d"]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("none", ["ab", "cde", "f"]),
        ("bytes-asc", ["f", "cde", "ab"]),
        ("bytes-desc", ["ab", "cde", "f"]),
        ("files-asc", ["f", "ab", "cde"]),
        ("files-desc", ["cde", "ab", "f"]),
    ],
)
def test_groups_come_in_the_order_that_was_asked_for(order: str, expected: list[str]) -> None:
    layout = [("a", 1, 40), ("b", 1, 40), ("c", 2, 20), ("d", 2, 20), ("e", 2, 20), ("f", 3, 9)]
    files = [File(size, partition=(place,), spec=1, name=name) for name, place, size in layout]

    groups = plan(files, table_spec=1, rewrite_all=True, job_order=order)

    assert ["".join(paths) for paths in names(groups)] == expected
    assert [group.number for group in groups] == [0, 1, 2]


def test_no_more_files_are_rewritten_than_allowed() -> None:
    files = [File(MIB, partition=(n // 6,), spec=1, name=str(n)) for n in range(18)]

    groups = plan(files, table_spec=1, max_files=8)

    assert names(groups) == [["0", "1", "2", "3", "4", "5"], ["6", "7"]]


def test_files_without_rows_are_rewritten_into_nothing() -> None:
    [group] = plan([File(MIB, rows=0)] * 5)

    [part] = group.ranges()
    assert (part.rows, part.input_bytes) == (0, 5 * MIB)


def test_an_empty_table_has_no_groups() -> None:
    assert plan([]) == []


def test_row_groups_end_where_the_next_one_begins_or_with_their_file() -> None:
    files = pa.table(
        {
            "file_size_in_bytes": pa.array([100, 50, 30, 20, 10]),
            "split_offsets": pa.array([[4, 40], None, [4], [], [9, 4]], pa.list_(pa.int64())),
        }
    )

    assert sorted(row_group_sizes(files).tolist()) == sorted([36, 60, 50, 26, 20, 0, 6])
