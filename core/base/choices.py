"""The words among which options choose. This module imports nothing, so that help shows them without the core."""

SOURCE_FORMATS = ("parquet", "csv", "json", "arrow", "orc", "avro")
EXPORT_FORMATS = ("parquet", "csv", "tsv", "json", "arrow")
# How a load by key, and a deletion, delete rows.
UPSERT_MODES = ("position", "equality", "copy-on-write")
DELETE_MODES = ("position", "copy-on-write")
MERGES = ("deduplicate", "first-row", "partial-update")
CHANGE_MODES = ("upsert", "retract")
# How a compaction arranges rows, and which groups of files it rewrites first.
STRATEGIES = ("binpack", "sort", "zorder")
JOB_ORDERS = ("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc")
