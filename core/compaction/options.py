"""What the user may choose of a compaction, with the names and defaults of Iceberg's rewrite_data_files.

Source: SizeBasedFileRewritePlanner, BinPackRewriteFilePlanner, RewriteDataFiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lake.core.errors import InvalidRequestError, RefusedError

TARGET_BYTES = 512 * 1024 * 1024
_MIN_PART, _MAX_PART = 0.75, 1.80
_UNLIMITED = 2**63 - 1
JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Sizes are bytes. See `of` for how the table's properties and Spark's option names come in."""

    target_bytes: int = TARGET_BYTES
    min_bytes: int = int(TARGET_BYTES * _MIN_PART)
    max_bytes: int = int(TARGET_BYTES * _MAX_PART)
    min_input_files: int = 5
    max_group_bytes: int = 100 * 1024**3
    max_group_files: int = _UNLIMITED
    delete_file_threshold: int = 2**31 - 1
    delete_ratio: float = 0.3
    rewrite_all: bool = False
    max_files: int | None = None
    job_order: str = "none"
    partial_progress: bool = False
    max_commits: int = 10
    starting_sequence_number: bool = True
    spec_id: int | None = None
    where: str | None = None
    verify: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.min_bytes < self.target_bytes < self.max_bytes:
            raise InvalidRequestError(
                f"sizes must rise: min {self.min_bytes} < target {self.target_bytes} < "
                f"max {self.max_bytes}"
            )
        positive = {
            "min-input-files": self.min_input_files,
            "max-file-group-size-bytes": self.max_group_bytes,
            "max-file-group-input-files": self.max_group_files,
            "delete-file-threshold": self.delete_file_threshold,
            "max-commits": self.max_commits,
            "max-files": 1 if self.max_files is None else self.max_files,
        }
        for name, value in positive.items():
            if value < 1:
                raise InvalidRequestError(f"'{name}' is set to {value} but must be > 0")
        if not 0 < self.delete_ratio <= 1:
            raise InvalidRequestError(f"delete ratio {self.delete_ratio} must lie in 0..1")
        if self.job_order not in JOB_ORDERS:
            raise InvalidRequestError(
                f"job order {self.job_order!r} is none of {', '.join(JOB_ORDERS)}"
            )

    @property
    def write_max_bytes(self) -> int:
        """The size at which an output file is closed: half way from the target to the largest."""
        return self.target_bytes + (self.max_bytes - self.target_bytes) // 2


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


# Spark's names -> (our field, how to read it)
_SPARK: Mapping[str, tuple[str | None, Callable[[str], object]]] = {
    "target-file-size-bytes": ("target_bytes", int),
    "min-file-size-bytes": ("min_bytes", int),
    "max-file-size-bytes": ("max_bytes", int),
    "min-input-files": ("min_input_files", int),
    "max-file-group-size-bytes": ("max_group_bytes", int),
    "max-file-group-input-files": ("max_group_files", int),
    "delete-file-threshold": ("delete_file_threshold", int),
    "delete-ratio-threshold": ("delete_ratio", float),
    "rewrite-all": ("rewrite_all", _flag),
    "max-files-to-rewrite": ("max_files", int),
    "rewrite-job-order": ("job_order", str),
    "partial-progress.enabled": ("partial_progress", _flag),
    "partial-progress.max-commits": ("max_commits", int),
    "use-starting-sequence-number": ("starting_sequence_number", _flag),
    "output-spec-id": ("spec_id", int),
    # Spark's own scheduling: accepted, since scripts pass it, and left to the engine.
    "max-concurrent-file-group-rewrites": (None, int),
    "partial-progress.max-failed-commits": (None, int),
    "remove-dangling-deletes": ("remove_dangling_deletes", _flag),
}


def compaction_options(
    chosen: Mapping[str, object], spark: Mapping[str, str], properties: Mapping[str, str]
) -> CompactionOptions:
    """Combine options: the command line's own win over Spark's names, these over the table's properties.

    Raises:
        InvalidRequestError: an unknown name, a value of another type, or sizes that contradict.
        RefusedError: something that is not available yet.
    """
    values: dict[str, object] = {}
    for name, text in spark.items():
        if name not in _SPARK:
            known = ", ".join(sorted(_SPARK))
            raise InvalidRequestError(f"unknown option {name!r}", hint=f"known options: {known}")
        field, read = _SPARK[name]
        try:
            value = read(text)
        except ValueError as error:
            raise InvalidRequestError(f"option {name} cannot be {text!r}") from error
        if field is not None:
            values[field] = value
    values.update({name: value for name, value in chosen.items() if value is not None})
    if values.pop("remove_dangling_deletes", False):
        raise RefusedError("removing dangling deletes is not available yet")
    default = properties.get("write.target-file-size-bytes", "")
    target = values.setdefault("target_bytes", int(default) if default.isdigit() else TARGET_BYTES)
    if isinstance(target, int) and target > 0:
        values.setdefault("min_bytes", int(target * _MIN_PART))
        values.setdefault("max_bytes", int(target * _MAX_PART))
    return CompactionOptions(**values)  # type: ignore[arg-type]
