"""The options of a compaction, with the names and defaults of Iceberg's rewrite_data_files.

Source: SizeBasedFileRewritePlanner, BinPackRewriteFilePlanner, RewriteDataFiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lake.core.base.choices import COPY_MODES, JOB_ORDERS, STRATEGIES
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.units import whole_number
from lake.core.data.sorting.sort_keys import MOST_BYTES, TEXT_BYTES
from lake.core.spec.properties.table_properties import DATA_FILE_BYTES
from lake.core.transaction.commit.work_limits import WorkLimits

_MIN_PART, _MAX_PART = 0.75, 1.80
_UNLIMITED = 2**63 - 1
# A row group that is copied is read at once.
_MOST_READ_BYTES = 512 * 1024**2
BINPACK, SORT, ZORDER, HILBERT = STRATEGIES
CURVES = (ZORDER, HILBERT)
COPY_AUTO, _, COPY_NEVER = COPY_MODES


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """The options of a compaction; `compaction_options` parses them from text.

    Args:
        strategy: how rows are arranged, one of `STRATEGIES`.
        by: the order for sort (None: the table's) or the columns for zorder and hilbert.
        compression_factor: expected ratio of written bytes to read bytes; for sort, zorder and hilbert.
        partitions_per_file: the number of Spark's shuffle partitions per output file; lake sorts any file in parts.
        text_bytes: the number of leading bytes of a text that zorder and hilbert use.
        most_curve_bytes: maximum length of the interleaved value of zorder and hilbert.
        target_size: size of the files to write.
        min_size: smaller files are rewritten.
        max_size: larger files are rewritten.
        min_input_files: this many files are rewritten even if they do not fill one file.
        max_group_size: maximum bytes of a group.
        max_group_files: maximum files of a group.
        delete_file_threshold: a file with this many delete files is rewritten; 0 rewrites every file.
        delete_ratio: a file with this ratio of deleted rows is rewritten.
        rewrite_all: rewrite every file.
        old_specs: rewrite the files of older partition specs, and no others.
        old_sort_orders: rewrite the files without the table's sort order, and no others; with `old_specs` those of
            older specs too.
        where_overlap: rewrite the files that overlap more than this number of others in the sort columns, and those
            that have to be sorted with them; None for no such choice.
        max_files: maximum number of files that are rewritten in total.
        max_bytes: maximum bytes of files that are rewritten in total.
        job_order: which groups come first, one of `JOB_ORDERS`.
        partial_progress: commit groups as they finish.
        max_commits: maximum number of commits with partial progress.
        no_starting_sequence_number: give new files new sequence numbers in place of that of the plan's snapshot.
        spec_id: partition spec to write with; None takes the table's.
        where: row filter; only files that may hold matching rows are rewritten.
        changed_before_ms: only files of partitions that did not change after this time, in ms since 1970; rewrites
            are not changes. None for all partitions.
        idle_learned_at_ms: only files of partitions that no writer is changing at this time, in ms since 1970, by the
            rhythm of its commits; see `lake.core.maintain.compaction.concurrency.rhythm`. None for all partitions.
        verify: compare every value before the commit.
        remove_dangling_deletes: afterwards remove delete files that no longer apply to any data file.
        copy_row_groups: whether large row groups are copied without decoding them, one of `COPY_MODES`; ``auto`` for
            the groups of files most of whose row groups are large.

    Raises:
        InvalidRequestError: a value is out of range or contradicts another.
    """

    strategy: str = BINPACK
    by: str | None = None
    compression_factor: float = 1.0
    partitions_per_file: int = 1
    text_bytes: int = TEXT_BYTES
    most_curve_bytes: int = MOST_BYTES
    target_size: int = DATA_FILE_BYTES.default
    min_size: int = int(DATA_FILE_BYTES.default * _MIN_PART)
    max_size: int = int(DATA_FILE_BYTES.default * _MAX_PART)
    min_input_files: int = 5
    max_group_size: int = 100 * 1024**3
    max_group_files: int = _UNLIMITED
    delete_file_threshold: int = 2**31 - 1
    delete_ratio: float = 0.3
    rewrite_all: bool = False
    old_specs: bool = False
    old_sort_orders: bool = False
    where_overlap: int | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    job_order: str = "none"
    partial_progress: bool = False
    max_commits: int = 10
    no_starting_sequence_number: bool = False
    spec_id: int | None = None
    where: str | None = None
    changed_before_ms: int | None = None
    idle_learned_at_ms: int | None = None
    verify: bool = False
    remove_dangling_deletes: bool = False
    copy_row_groups: str = COPY_AUTO

    def __post_init__(self) -> None:
        self._check_strategy()
        if not 0 <= self.min_size < self.target_size < self.max_size:
            raise InvalidRequestError(
                f"sizes must rise: min {self.min_size} < target {self.target_size} < "
                f"max {self.max_size}"
            )
        positive = {
            "min-input-files": self.min_input_files,
            "max-file-group-size-bytes": self.max_group_size,
            "max-file-group-input-files": self.max_group_files,
            "partial-progress.max-commits": self.max_commits,
            "max-files-to-rewrite": 1 if self.max_files is None else self.max_files,
            "shuffle-partitions-per-file": self.partitions_per_file,
        }
        for name, value in positive.items():
            if value < 1:
                raise InvalidRequestError(f"'{name}' is set to {value} but must be > 0")
        if self.delete_file_threshold < 0:
            raise InvalidRequestError(
                f"'delete-file-threshold' is set to {self.delete_file_threshold} but must be >= 0"
            )
        if not 0 < self.delete_ratio <= 1:
            raise InvalidRequestError(
                f"'delete-ratio-threshold' is set to {self.delete_ratio} but must be > 0 and <= 1"
            )
        if self.job_order not in JOB_ORDERS:
            raise InvalidRequestError(
                f"job order {self.job_order!r} is not one of {', '.join(JOB_ORDERS)}"
            )

        if self.copy_row_groups not in COPY_MODES:
            raise InvalidRequestError(
                f"{Option.COPY_ROW_GROUPS} {self.copy_row_groups!r} is not one of {', '.join(COPY_MODES)}"
            )

    def _check_strategy(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidRequestError(
                f"{Option.STRATEGY} {self.strategy!r} is not one of {', '.join(STRATEGIES)}"
            )
        if self.strategy == BINPACK and self.by is not None:
            raise InvalidRequestError(
                f"{Option.BY} requires {Option.STRATEGY} sort, zorder or hilbert"
            )
        if self.old_sort_orders and (self.strategy != SORT or self.by is not None):
            raise InvalidRequestError(
                f"{Option.OLD_SORT_ORDERS} sorts by the table's order: it takes {Option.STRATEGY} sort without "
                f"{Option.BY}"
            )
        if self.where_overlap is not None:
            self._check_overlap()
        if self.chooses_old and self.rewrite_all:
            raise InvalidRequestError(
                f"{Option.REWRITE_ALL} contradicts {Option.OLD_SPECS} and {Option.OLD_SORT_ORDERS}"
            )
        if self.strategy in CURVES and self.by is None:
            raise InvalidRequestError(
                f"{Option.STRATEGY} {self.strategy} requires columns",
                hint=f'name them, for example {Option.BY} "a, b"',
            )
        positive = {
            "compression-factor": self.compression_factor,
            "var-length-contribution": self.text_bytes,
            "max-output-size": self.most_curve_bytes,
        }
        for name, value in positive.items():
            if not value > 0:
                raise InvalidRequestError(f"'{name}' is set to {value} but must be > 0")

    def _check_overlap(self) -> None:
        if (self.where_overlap or 0) < 0:
            raise InvalidRequestError(f"{Option.WHERE_OVERLAP} must be >= 0")
        if self.strategy != SORT:
            raise InvalidRequestError(
                f"{Option.WHERE_OVERLAP} sorts the files that overlap: it takes {Option.STRATEGY} sort"
            )
        others = {
            Option.OLD_SPECS: self.old_specs,
            Option.OLD_SORT_ORDERS: self.old_sort_orders,
            Option.REWRITE_ALL: self.rewrite_all,
            Option.SPEC_ID: self.spec_id is not None,
        }
        for option in (option for option, is_given in others.items() if is_given):
            raise InvalidRequestError(f"{Option.WHERE_OVERLAP} contradicts {option}")

    @property
    def limits(self) -> WorkLimits:
        """How much is rewritten in one run, and in how many commits."""
        return WorkLimits(
            max_files=self.max_files,
            partial_progress=self.partial_progress,
            max_commits=self.max_commits,
        )

    @property
    def is_limited(self) -> bool:
        """Whether one run may leave files out that the next one rewrites."""
        return self.max_files is not None or self.max_bytes is not None

    @property
    def chooses_old(self) -> bool:
        """Whether the files are chosen that a change of the spec or of the sort order left behind."""
        return self.old_specs or self.old_sort_orders

    @property
    def takes_every_file(self) -> bool:
        """Whether every file and group that is chosen is rewritten regardless of its size."""
        chooses = self.chooses_old or self.where_overlap is not None
        return self.rewrite_all or chooses or self.delete_file_threshold == 0

    def keeps_sequence_number(self, format_version: int) -> bool:
        """Whether new files keep the sequence number of the plan's snapshot, in a table of this version."""
        return format_version > 1 and not self.no_starting_sequence_number

    @property
    def write_max_bytes(self) -> int:
        """The size at which an output file is closed: half way from the target to the maximum."""
        return self.target_size + (self.max_size - self.target_size) // 2

    @property
    def most_copied_bytes(self) -> int:
        """The largest row group that is copied.

        A file that is closed because this one does not fit has the right size: otherwise each run would rewrite the
        same files.
        """
        return min(self.write_max_bytes - self.min_size, _MOST_READ_BYTES)


def idle_options(idle_ms: int | None, now_ms: int) -> dict[str, object]:
    """Return the options that leave partitions alone which changed within a time; None for the rhythm of the writers.

    Args:
        idle_ms: the time in ms; 0 leaves none alone.
        now_ms: the time now, in ms since 1970.
    """
    return {
        "changed_before_ms": now_ms - idle_ms if idle_ms else None,
        "idle_learned_at_ms": now_ms if idle_ms is None else None,
    }


def _whole(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ValueError(text)
    return number


def _positive(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise ValueError(text)
    return number


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


# Spark's names -> (field, parser)
_SPARK: Mapping[str, tuple[str | None, Callable[[str], object]]] = {
    "target-file-size-bytes": ("target_size", _whole),
    "min-file-size-bytes": ("min_size", _whole),
    "max-file-size-bytes": ("max_size", _whole),
    "min-input-files": ("min_input_files", _whole),
    "max-file-group-size-bytes": ("max_group_size", _whole),
    "max-file-group-input-files": ("max_group_files", _whole),
    "delete-file-threshold": ("delete_file_threshold", _whole),
    "delete-ratio-threshold": ("delete_ratio", float),
    "rewrite-all": ("rewrite_all", _flag),
    "max-files-to-rewrite": ("max_files", _whole),
    "rewrite-job-order": ("job_order", str),
    "partial-progress.enabled": ("partial_progress", _flag),
    "partial-progress.max-commits": ("max_commits", _whole),
    "use-starting-sequence-number": ("no_starting_sequence_number", lambda text: not _flag(text)),
    "output-spec-id": ("spec_id", _whole),
    # Spark's scheduling and caching: accepted because scripts pass them, and ignored.
    "cache-delete-files": (None, _flag),
    "max-concurrent-file-group-rewrites": (None, _positive),
    "partial-progress.max-failed-commits": (None, _whole),
    "remove-dangling-deletes": ("remove_dangling_deletes", _flag),
}
_SORTING: Mapping[str, tuple[str | None, Callable[[str], object]]] = {
    "compression-factor": ("compression_factor", float),
    "shuffle-partitions-per-file": ("partitions_per_file", _whole),
}
_CURVE: Mapping[str, tuple[str | None, Callable[[str], object]]] = {
    "var-length-contribution": ("text_bytes", _whole),
    "max-output-size": ("most_curve_bytes", _whole),
}
# Additional options of each strategy.
_ALONG_CURVE = {**_SORTING, **_CURVE}
_OWN = {BINPACK: {}, SORT: _SORTING, ZORDER: _ALONG_CURVE, HILBERT: _ALONG_CURVE}


def compaction_options(
    chosen: Mapping[str, object], spark: Mapping[str, str], properties: Mapping[str, str]
) -> CompactionOptions:
    """Combine options: lake's own options override Spark's names, which override the table's properties.

    Raises:
        InvalidRequestError: an unknown name, a value of another type, or contradicting sizes.
    """
    values: dict[str, object] = {}
    sorts = chosen.get("old_sort_orders") or chosen.get("where_overlap") is not None
    implied = SORT if sorts else BINPACK
    known = {**_SPARK, **_OWN.get(str(chosen.get("strategy") or implied), {})}
    for name, text in spark.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise InvalidRequestError(f"unknown option {name!r}", hint=f"known options: {names}")
        field, parse = known[name]
        try:
            value = parse(text)
        except ValueError as error:
            raise InvalidRequestError(f"option {name} cannot be {text!r}") from error
        if field is not None:
            values[field] = value
    values.update({name: value for name, value in chosen.items() if value is not None})
    if sorts:
        values.setdefault("strategy", SORT)
    if "target_size" not in values:
        values["target_size"] = DATA_FILE_BYTES.of(properties)
    target = values["target_size"]
    if isinstance(target, int) and target > 0:
        values.setdefault("min_size", int(target * _MIN_PART))
        values.setdefault("max_size", int(target * _MAX_PART))
    return CompactionOptions(**values)  # type: ignore[arg-type]
