"""The words among which options choose. Help shows them, so that this module imports nothing of lake."""

from enum import StrEnum

SOURCE_FORMATS = ("parquet", "csv", "json", "arrow", "orc", "avro")
EXPORT_FORMATS = ("parquet", "csv", "tsv", "json", "arrow")
# How a load by key, and a deletion, delete rows.
UPSERT_MODES = ("position", "equality", "copy-on-write")
DELETE_MODES = ("position", "copy-on-write")
MERGES = ("deduplicate", "first-row", "partial-update")
CHANGE_MODES = ("upsert", "retract")
# How a compaction arranges rows, which groups of files it rewrites first, and whether it copies row groups.
STRATEGIES = ("binpack", "sort", "zorder", "hilbert")
JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
COPY_MODES = ("auto", "always", "never")
FORMAT_VERSIONS = ("1", "2", "3")
# Where a continuous scan or load starts; a snapshot and a time are chosen by options of their own.
STARTS = ("table", "latest", "latest-exclusive", "earliest")


# The grades for which a report about tables ends with an error, the worse one last.
FAILING_GRADES = ("due", "bad")


class HealthSort(StrEnum):
    """The order of the tables in a report about their health."""

    NEED = "need"
    NAME = "name"
    FILES = "files"
    BYTES = "bytes"
    GROWTH = "growth"


class Order(StrEnum):
    """The order of the splits of one discovery."""

    FIFO = "fifo"
    SEQUENCE = "sequence"
    TIME = "time"


class NonAppend(StrEnum):
    """What to do with snapshots that are neither appends nor rewrites, if only appends are followed."""

    SKIP = "skip"
    FAIL = "fail"


class OnGap(StrEnum):
    """What to do about a gap in the history."""

    FAIL = "fail"
    SKIP = "skip"
    TABLE = "table"


class SchemaMode(StrEnum):
    """Which schema rows have: the table's at each discovery, or the one at the start."""

    FOLLOW = "follow"
    PIN = "pin"


class TimeUnit(StrEnum):
    """The unit of a watermark column of type long."""

    MICROSECONDS = "us"
    MILLISECONDS = "ms"
    SECONDS = "s"


class Overflow(StrEnum):
    """What happens if there are more keys than the limit: their ranges are used, nothing is, or the scan fails."""

    RANGE = "range"
    NONE = "none"
    FAIL = "fail"


class OnRewrite(StrEnum):
    """What to do about a loaded file whose size or time has changed."""

    FAIL = "fail"
    IGNORE = "ignore"
    AGAIN = "again"


class OnCopy(StrEnum):
    """What to do about a file that has the name, the size and the time of a loaded file in another folder."""

    REPORT = "report"
    IGNORE = "ignore"
    LOAD = "load"
