"""Options by their own names, by Spark's, and by the table's properties."""

from __future__ import annotations

import pytest

from lake.core.base.errors import InvalidRequestError
from lake.core.maintain.compaction.options import CompactionOptions, compaction_options

MIB = 1024 * 1024
# What Iceberg 1.12's rewrite_data_files accepts for the strategy binpack.
SPARK = {
    "target-file-size-bytes": "1000000",
    "min-file-size-bytes": "10",
    "max-file-size-bytes": "2000000",
    "min-input-files": "2",
    "max-file-group-size-bytes": "5",
    "max-file-group-input-files": "7",
    "delete-file-threshold": "0",
    "delete-ratio-threshold": "0.5",
    "rewrite-all": "TRUE",
    "max-files-to-rewrite": "9",
    "rewrite-job-order": "bytes-asc",
    "partial-progress.enabled": "true",
    "partial-progress.max-commits": "3",
    "partial-progress.max-failed-commits": "3",
    "use-starting-sequence-number": "false",
    "output-spec-id": "1",
    "max-concurrent-file-group-rewrites": "8",
    "cache-delete-files": "true",
    "remove-dangling-deletes": "false",
}


def test_defaults_are_icebergs() -> None:
    options = compaction_options({}, {}, {})

    assert options == CompactionOptions()
    assert (options.target_size, options.min_size, options.max_size) == (
        512 * MIB,
        384 * MIB,
        966367641,
    )
    assert options.min_input_files == 5
    assert options.max_group_size == 100 * 1024 * MIB
    assert options.delete_ratio == 0.3
    assert options.write_max_bytes == 751619276


def test_the_target_is_the_tables_and_the_thresholds_follow_it() -> None:
    options = compaction_options({}, {}, {"write.target-file-size-bytes": "1000"})

    assert (options.target_size, options.min_size, options.max_size) == (1000, 750, 1800)


def test_every_option_of_spark_is_read_by_its_own_name() -> None:
    options = compaction_options({}, SPARK, {})

    assert options == CompactionOptions(
        target_size=1_000_000,
        min_size=10,
        max_size=2_000_000,
        min_input_files=2,
        max_group_size=5,
        max_group_files=7,
        delete_file_threshold=0,
        delete_ratio=0.5,
        rewrite_all=True,
        max_files=9,
        job_order="bytes-asc",
        partial_progress=True,
        max_commits=3,
        no_starting_sequence_number=True,
        spec_id=1,
    )


def test_lakes_own_options_win_over_sparks_and_sparks_over_the_tables() -> None:
    table = {"write.target-file-size-bytes": "1000"}

    assert compaction_options({}, {"target-file-size-bytes": "2000"}, table).target_size == 2000
    own = compaction_options({"target_size": 3000}, {"target-file-size-bytes": "2000"}, table)
    assert own.target_size == 3000


def test_an_unknown_option_is_refused_with_the_list() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        compaction_options({}, {"compression-factor": "2"}, {})

    assert all(name in (caught.value.hint or "") for name in SPARK)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("min-input-files", "0"),
        ("min-input-files", "five"),
        ("min-input-files", "1_0"),
        ("max-file-group-size-bytes", "0"),
        ("max-file-group-input-files", "-1"),
        ("delete-file-threshold", "-1"),
        ("delete-ratio-threshold", "0"),
        ("delete-ratio-threshold", "1.1"),
        ("delete-ratio-threshold", "nan"),
        ("rewrite-all", "yes"),
        ("max-files-to-rewrite", "0"),
        ("rewrite-job-order", "size"),
        ("partial-progress.max-commits", "0"),
        ("target-file-size-bytes", "0"),
        ("target-file-size-bytes", "64MB"),
        ("min-file-size-bytes", "999999999999"),
        ("max-file-size-bytes", "1"),
        ("min-file-size-bytes", "-1"),
    ],
)
def test_values_out_of_range_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidRequestError):
        compaction_options({}, {name: text}, {})


@pytest.mark.parametrize(
    ("strategy", "option", "field", "value"),
    [
        ("sort", "compression-factor=1.5", "compression_factor", 1.5),
        ("zorder", "shuffle-partitions-per-file=4", "partitions_per_file", 4),
        ("zorder", "var-length-contribution=16", "text_bytes", 16),
        ("zorder", "max-output-size=12", "most_curve_bytes", 12),
        ("hilbert", "max-output-size=12", "most_curve_bytes", 12),
    ],
)
def test_each_strategy_takes_its_own_options(
    strategy: str, option: str, field: str, value: float
) -> None:
    name, _, text = option.partition("=")
    options = compaction_options({"strategy": strategy, "by": "a"}, {name: text}, {})

    assert getattr(options, field) == value
    for other in ("binpack", "sort"):
        if other != strategy and (other, strategy) != ("sort", "zorder"):
            with pytest.raises(InvalidRequestError, match="unknown option"):
                compaction_options({"strategy": other}, {name: text}, {})
