"""Format versions: the newest that lake supports, and the versions that introduced features.

Source: https://iceberg.apache.org/spec/#format-versioning
"""

MAX_FORMAT_VERSION = 3
DELETE_FILES_SINCE = 2
DELETION_VECTORS_SINCE = 3
ROW_LINEAGE_SINCE = 3
