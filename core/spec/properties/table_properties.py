"""Iceberg's table properties: which ones lake honours, refuses, warns about, or does not need.

Each property that lake honours is one constant, and all code reads it through the constant. The others are
listed with the reason why they have no effect. Source: org.apache.iceberg.TableProperties of Iceberg 1.12.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.spec.properties.values import (
    Setting,
    choice,
    flag,
    optional_choice,
    optional_text,
    optional_whole,
    probability,
    refused_value,
    size,
    text,
    whole,
)

_MIB = 1024 * 1024
_LONG = 2**63 - 1
_METRICS_MODE = re.compile(r"none|counts|full|truncate\(0*[1-9][0-9]{0,9}\)")
FORMATS = ("parquet", "orc", "avro")
SERIALIZABLE, SNAPSHOT = "serializable", "snapshot"
_ISOLATION_LEVELS = (SERIALIZABLE, SNAPSHOT)
COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
_MODES = (COPY_ON_WRITE, MERGE_ON_READ)
FILE, PARTITION = "file", "partition"
GRANULARITIES = (FILE, PARTITION)
NONE, HASH, RANGE = "none", "hash", "range"
DISTRIBUTIONS = (NONE, HASH, RANGE)
_AVRO_CODECS = ("gzip", "zstd", "snappy", "uncompressed", "deflate", "zstandard", "null")

# The table itself

FORMAT_VERSION = choice("format-version", "2", ("1", "2", "3"))
NAME_MAPPING = optional_text("schema.name-mapping.default")
GC_ENABLED = flag("gc.enabled", default=True)
ENCRYPTION_KEY_ID = "encryption.key-id"

# Properties of lake and of Flink's sinks, not in Iceberg's TableProperties
# The beginning of the properties by which the owner of a table says what `lake maintain` may do.
MAINTENANCE_PREFIX = "lake.maintain."
IGNORE_TOTALS = flag("lake.ignore-summary-totals", default=False)
ABANDONED_METADATA: Setting[tuple[str, ...]] = Setting(
    "lake.abandoned-metadata",
    (),
    lambda found: tuple(name.strip() for name in found.split(",") if name.strip()),
    "names of metadata files, separated by commas",
)
MAX_EMPTY_COMMITS = whole("flink.max-continuous-empty-commits", 10, least=1)

# Commits

COMMIT_RETRIES = whole("commit.retry.num-retries", 4, least=0)
COMMIT_MIN_WAIT_MS = whole("commit.retry.min-wait-ms", 100, least=0)
COMMIT_MAX_WAIT_MS = whole("commit.retry.max-wait-ms", 60_000, least=0)
COMMIT_TOTAL_MS = whole("commit.retry.total-timeout-ms", 1_800_000, least=0)
STATUS_CHECKS = whole("commit.status-check.num-retries", 3, least=0)
STATUS_CHECK_MIN_WAIT_MS = whole("commit.status-check.min-wait-ms", 1000, least=0, most=_LONG)
STATUS_CHECK_MAX_WAIT_MS = whole("commit.status-check.max-wait-ms", 60_000, least=0, most=_LONG)
STATUS_CHECK_TOTAL_MS = whole(
    "commit.status-check.total-timeout-ms", 1_800_000, least=0, most=_LONG
)
MANIFEST_BYTES = size("commit.manifest.target-size-bytes", 8 * _MIB)
MANIFESTS_TO_MERGE = whole("commit.manifest.min-count-to-merge", 100, least=1)
MANIFEST_MERGE = flag("commit.manifest-merge.enabled", default=True)
MANIFEST_CODEC = choice("write.manifest.compression-codec", "gzip", _AVRO_CODECS)
MANIFEST_LEVEL = optional_text("write.manifest.compression-level")
PARTITION_SUMMARIES = whole("write.summary.partition-limit", 0, least=0)
METADATA_CODEC = choice("write.metadata.compression-codec", "none", ("none", "gzip"))
PREVIOUS_METADATA = whole("write.metadata.previous-versions-max", 100, least=1)
DELETE_OLD_METADATA = flag("write.metadata.delete-after-commit.enabled", default=False)

COMMIT_RETRY = (COMMIT_RETRIES, COMMIT_MIN_WAIT_MS, COMMIT_MAX_WAIT_MS, COMMIT_TOTAL_MS)
STATUS_CHECK = (
    STATUS_CHECKS,
    STATUS_CHECK_MIN_WAIT_MS,
    STATUS_CHECK_MAX_WAIT_MS,
    STATUS_CHECK_TOTAL_MS,
)
# The properties that every commit uses.
COMMITTING: tuple[Setting[Any], ...] = (
    *COMMIT_RETRY,
    *STATUS_CHECK,
    MANIFEST_BYTES,
    MANIFESTS_TO_MERGE,
    MANIFEST_MERGE,
    MANIFEST_CODEC,
    MANIFEST_LEVEL,
    PARTITION_SUMMARIES,
    METADATA_CODEC,
    PREVIOUS_METADATA,
    DELETE_OLD_METADATA,
)

# Expiry

MAX_SNAPSHOT_AGE_MS = whole(
    "history.expire.max-snapshot-age-ms", 5 * 24 * 3_600_000, least=1, most=_LONG
)
MIN_SNAPSHOTS = whole("history.expire.min-snapshots-to-keep", 1, least=1)
MAX_REF_AGE_MS = whole("history.expire.max-ref-age-ms", _LONG, least=1, most=_LONG)

# Scans

SPLIT_BYTES = size("read.split.target-size", 128 * _MIB)
SPLIT_LOOKBACK = whole("read.split.planning-lookback", 10, least=1)
SPLIT_OPEN_BYTES = whole("read.split.open-file-cost", 4 * _MIB, least=0, most=_LONG)

# File locations

DATA_PATH = optional_text("write.data.path")
METADATA_PATH = optional_text("write.metadata.path")
OBJECT_STORAGE = flag("write.object-storage.enabled", default=False)
PARTITIONED_PATHS = flag("write.object-storage.partitioned-paths", default=True)

# Files

DATA_FORMAT = choice("write.format.default", "parquet", FORMATS)
DELETE_FORMAT = optional_choice("write.delete.format.default", FORMATS)
DATA_FILE_BYTES = size("write.target-file-size-bytes", 512 * _MIB)
DELETE_FILE_BYTES = size("write.delete.target-file-size-bytes", 64 * _MIB)
# Honoured by rewrites of delete files only.
DELETE_GRANULARITY = choice("write.delete.granularity", FILE, GRANULARITIES)


def _metrics_mode(found: str) -> str | None:
    return found.lower() if _METRICS_MODE.fullmatch(found.lower()) else None


_METRICS_ALLOWED = "one of none, counts, full, truncate(N) with N above 0"
METRICS_DEFAULT: Setting[str | None] = Setting(
    "write.metadata.metrics.default", None, _metrics_mode, _METRICS_ALLOWED
)
METRICS_OF_COLUMN: Setting[str | None] = Setting(
    "write.metadata.metrics.column.", None, _metrics_mode, _METRICS_ALLOWED
)
METRICS_INFERRED = whole("write.metadata.metrics.max-inferred-column-defaults", 100, least=0)

PARQUET_ROW_GROUP_BYTES = whole("write.parquet.row-group-size-bytes", 128 * _MIB, least=1)
PARQUET_PAGE_BYTES = whole("write.parquet.page-size-bytes", _MIB, least=1)
PARQUET_PAGE_ROWS = whole("write.parquet.page-row-limit", 20_000, least=1)
PARQUET_PAGE_VERSION = choice("write.parquet.page-version", "v1", ("v1", "v2"))
PARQUET_DICTIONARY_BYTES = whole("write.parquet.dict-size-bytes", 2 * _MIB, least=1)
PARQUET_CODEC = choice(
    "write.parquet.compression-codec",
    "zstd",
    ("zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed", "none"),
)
# The valid levels depend on the codec.
PARQUET_LEVEL = optional_text("write.parquet.compression-level")
PARQUET_BLOOM_BYTES = whole("write.parquet.bloom-filter-max-bytes", _MIB, least=1)
PARQUET_BLOOM_OF_COLUMN = flag("write.parquet.bloom-filter-enabled.column.", default=False)
PARQUET_BLOOM_FPP_OF_COLUMN = probability("write.parquet.bloom-filter-fpp.column.", 0.01)
PARQUET_BLOOM_NDV_OF_COLUMN = optional_whole("write.parquet.bloom-filter-ndv.column.", least=1)
PARQUET_STATS_OF_COLUMN = flag("write.parquet.stats-enabled.column.", default=True)
PARQUET_DICTIONARY_OF_COLUMN = flag("write.parquet.dict-encoding-enabled.column.", default=True)

ORC_STRIPE_BYTES = size("write.orc.stripe-size-bytes", 64 * _MIB)
ORC_CODEC = choice(
    "write.orc.compression-codec",
    "zlib",
    ("zlib", "zstd", "snappy", "lz4", "none", "uncompressed"),
)
ORC_STRATEGY = choice("write.orc.compression-strategy", "speed", ("speed", "compression"))
ORC_BLOOM_COLUMNS = text("write.orc.bloom.filter.columns")
ORC_BLOOM_FPP = probability("write.orc.bloom.filter.fpp", 0.05)

AVRO_CODEC = choice("write.avro.compression-codec", "gzip", _AVRO_CODECS)
AVRO_LEVEL = optional_text("write.avro.compression-level")

# Writes

DISTRIBUTION = optional_choice("write.distribution-mode", DISTRIBUTIONS)
MERGE_DISTRIBUTION = optional_choice("write.merge.distribution-mode", DISTRIBUTIONS)
MERGE_MODE = optional_choice("write.merge.mode", _MODES)
UPSERT_ENABLED = flag("write.upsert.enabled", default=False)
# Honoured by deletions only: an overwrite copies the rows that it keeps.
DELETE_MODE = choice("write.delete.mode", COPY_ON_WRITE, _MODES)
DELETE_ISOLATION = choice("write.delete.isolation-level", SERIALIZABLE, _ISOLATION_LEVELS)
MERGE_ISOLATION = choice("write.merge.isolation-level", SERIALIZABLE, _ISOLATION_LEVELS)


class Verdict(StrEnum):
    """How lake treats a property."""

    HONOURED = "honoured"
    REFUSED = "refused"
    WARNED = "warned"
    NOT_APPLICABLE = "not applicable"


class Use(StrEnum):
    """What a command does with a table, as far as it matters for properties that lake does not honour."""

    LOAD = "load"
    WRITE = "write"
    DELETE = "delete"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Unused:
    """A property that lake does not honour.

    Args:
        name: the property's name; for a property per column, the part before the column's name.
        verdict: how lake treats it.
        reason: why lake does not honour it; for a warning, the end of a sentence about the property.
        use: the commands that warn about it.
        harmless: values that request what lake does anyway.
        allowed: if not empty, the only valid values of the property.
    """

    name: str
    verdict: Verdict
    reason: str
    use: Use = Use.WRITE
    harmless: Sequence[str] = ()
    allowed: Sequence[str] = ()


def _warned(name: str, reason: str, use: Use = Use.WRITE, **others: Any) -> Unused:
    return Unused(name, Verdict.WARNED, reason, use, **others)


def _not_applicable(reason: str, *names: str) -> list[Unused]:
    return [Unused(name, Verdict.NOT_APPLICABLE, reason) for name in names]


_BOOLEAN = ("true", "false")
# The prefixes of Iceberg's property names.
_ICEBERG = (
    "commit.",
    "compatibility.",
    "encryption.",
    "engine.",
    "gc.",
    "history.",
    "read.",
    "schema.",
    "write.",
)
# Iceberg computes these from the metadata; they are never stored as properties.
RESERVED = (
    "uuid",
    "snapshot-count",
    "current-snapshot-summary",
    "current-snapshot-id",
    "current-snapshot-timestamp-ms",
    "current-schema",
    "default-partition-spec",
    "default-sort-order",
)
_PLACES = "Iceberg no longer uses it for new files; write.data.path replaces it"
_UPDATE = f"no command of lake is an UPDATE: {Option.UPSERT} is a MERGE"
_ROW_GROUPS = "lake measures the rows of a row group before it writes them"
_HIVE = "a setting of Iceberg's Hive catalog"
_VARIANT = "lake writes no variant columns"
_VECTORS = "a setting of Spark's readers"
_PLANNING = "lake plans scans in its own process"
_SPARK = "a setting of Spark's DataFrame writer"
_ORC = "a setting of the ORC writer of Java: layout on HDFS, and memory"

UNUSED: tuple[Unused, ...] = (
    *(
        Unused(name, Verdict.REFUSED, "Iceberg computes it from the metadata of the table")
        for name in RESERVED
    ),
    Unused(ENCRYPTION_KEY_ID, Verdict.REFUSED, "lake does not write encrypted tables"),
    # Without write.data.path, and the first one with object storage only: see `refuse_outdated`.
    Unused("write.object-storage.path", Verdict.REFUSED, _PLACES),
    Unused("write.folder-storage.path", Verdict.REFUSED, _PLACES),
    _warned("write.location-provider.impl", "lake does not run code that a table names"),
    _warned("write.py-location-provider.impl", "lake does not run code that a table names"),
    _warned(
        "write.wap.enabled",
        "rows are committed to the branch directly, not staged for an audit",
        Use.LOAD,
        harmless=("false",),
        allowed=_BOOLEAN,
    ),
    _warned(
        DELETE_GRANULARITY.name,
        "each position delete file applies to one data file",
        Use.DELETE,
        harmless=(FILE,),
        allowed=GRANULARITIES,
    ),
    _warned(
        DELETE_MODE.name,
        "an overwrite copies the rows that it keeps to new data files",
        Use.OVERWRITE,
        harmless=(COPY_ON_WRITE,),
        allowed=_MODES,
    ),
    *_not_applicable("a description for users", "comment"),
    *_not_applicable(
        _UPDATE,
        "write.update.mode",
        "write.update.isolation-level",
        "write.update.distribution-mode",
    ),
    *_not_applicable(
        "the rows that a file keeps are written by the task that reads them",
        "write.delete.distribution-mode",
    ),
    *_not_applicable(
        _ROW_GROUPS,
        "write.parquet.row-group-check-min-record-count",
        "write.parquet.row-group-check-max-record-count",
        "write.parquet.row-group-size-track-uncompressed",
        "write.delete.parquet.row-group-check-min-record-count",
        "write.delete.parquet.row-group-check-max-record-count",
    ),
    *_not_applicable(
        _VARIANT, "write.parquet.shred-variants", "write.parquet.variant-inference-buffer-size"
    ),
    *_not_applicable(
        "PyArrow folds each Bloom filter to the size that its values need",
        "write.parquet.bloom-filter-adaptive-enabled",
    ),
    *_not_applicable(
        _ORC,
        "write.orc.block-size-bytes",
        "write.orc.vectorized.batch-size",
        "write.delete.orc.block-size-bytes",
        "write.delete.orc.vectorized.batch-size",
    ),
    *_not_applicable("for scans of metadata tables", "read.split.metadata-target-size"),
    *_not_applicable("for Spark's parallelism", "read.split.adaptive-size.enabled"),
    *_not_applicable(
        _VECTORS,
        "read.parquet.vectorization.enabled",
        "read.parquet.vectorization.batch-size",
        "read.orc.vectorization.enabled",
        "read.orc.vectorization.batch-size",
    ),
    *_not_applicable(_PLANNING, "read.data-planning-mode", "read.delete-planning-mode"),
    *_not_applicable(
        f"for Spark's optimiser; {Option.UPSERT} reads the keys", "identifier-fields.rely"
    ),
    *_not_applicable(
        _SPARK,
        "write.spark.fanout.enabled",
        "write.spark.accept-any-schema",
        "write.spark.auto-schema-evolution.enabled",
        "write.spark.advisory-partition-size-bytes",
    ),
    *_not_applicable(
        "lake writes the snapshot's id into every entry",
        "compatibility.snapshot-id-inheritance.enabled",
    ),
    *_not_applicable(_HIVE, "engine.hive.enabled", "engine.hive.lock-enabled"),
    *_not_applicable(
        "lake refuses encrypted tables, see encryption.key-id", "encryption.data-key-length"
    ),
)

# Properties that some commands honour, and others warn about, are among `UNUSED`.
HONOURED: tuple[Setting[Any], ...] = tuple(
    value
    for value in list(globals().values())
    if isinstance(value, Setting) and value.name not in {item.name for item in UNUSED}
)
# Properties of data files that also exist for delete files.
_OF_DELETE_FILES = (
    PARQUET_ROW_GROUP_BYTES,
    PARQUET_PAGE_BYTES,
    PARQUET_PAGE_VERSION,
    PARQUET_PAGE_ROWS,
    PARQUET_DICTIONARY_BYTES,
    PARQUET_CODEC,
    PARQUET_LEVEL,
    AVRO_CODEC,
    AVRO_LEVEL,
    ORC_STRIPE_BYTES,
    ORC_CODEC,
    ORC_STRATEGY,
)
OF_DELETE_FILES: tuple[Setting[Any], ...] = tuple(
    replace(item, name=item.name.replace("write.", "write.delete.", 1)) for item in _OF_DELETE_FILES
)


def verdicts() -> dict[str, Verdict]:
    """Return how lake treats each property, by name, or by the part before a column's name."""
    honoured = {item.name: Verdict.HONOURED for item in (*HONOURED, *OF_DELETE_FILES)}
    return honoured | {item.name: item.verdict for item in UNUSED}


def check(properties: Mapping[str, str], settings: Iterable[Setting[Any]]) -> None:
    """Check the values of some properties.

    Raises:
        InvalidRequestError: a value is not allowed.
    """
    for setting in settings:
        setting.check(properties)


def unknown_names(properties: Mapping[str, str]) -> list[str]:
    """Return the properties with a prefix of Iceberg's names that Iceberg does not define."""
    known = verdicts()
    return [
        name
        for name in properties
        if name.startswith(_ICEBERG)
        and name not in known
        and not any(name.startswith(prefix) for prefix in known if prefix.endswith("."))
    ]


def check_new(properties: Mapping[str, str], columns: Collection[str]) -> None:
    """Check the properties of a table that does not exist yet.

    Args:
        properties: the properties.
        columns: the names of the table's columns; nested ones with dots.

    Raises:
        InvalidRequestError: a name is reserved, a value is not allowed, or a column does not exist.
    """
    for name in RESERVED:
        if name in properties:
            raise InvalidRequestError(
                f"the table property {name} is reserved: Iceberg computes it from the metadata"
            )
    for item in UNUSED:
        found = properties.get(item.name)
        if item.allowed and found is not None and found.lower() not in item.allowed:
            raise refused_value(item.name, found, f"one of {', '.join(item.allowed)}")
    check(properties, (*HONOURED, *OF_DELETE_FILES))
    for setting in HONOURED:
        for column in setting.columns(properties) if setting.is_per_column else ():
            if column not in columns:
                raise InvalidRequestError(
                    f"the table property {setting.name}{column} is for a column that does not exist",
                    hint=f"columns: {', '.join(columns)}",
                )


def warnings(properties: Mapping[str, str], uses: Iterable[Use]) -> list[str]:
    """Return one sentence for each property that a command does not honour although it would matter."""
    wanted = frozenset(uses)
    return [
        f"the table property {item.name} is ignored: {item.reason}"
        for item in UNUSED
        if item.verdict is Verdict.WARNED
        and item.use in wanted
        and item.name in properties
        and properties[item.name].lower() not in item.harmless
    ]
