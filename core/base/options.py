"""The options that callers pass to the core, by the names that messages use for them.

The core does not know how a caller spells an option: the command line has flags, another caller has keyword
arguments. A message refers to an option by its member of `Option`, and the caller that shows the message replaces
the reference by its own spelling (`cli/flags.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto

# Noncharacters of Unicode, which are reserved for use inside a program: a name of a column or a file that contains
# the name of an option is not a reference to the option.
_BEGIN, _END = "\ufdd0", "\ufdd1"
_REFERENCE = re.compile(f"{_BEGIN}([a-z_]+){_END}")


class Option(Enum):
    """An option, by the name of its field or parameter in the core, or of the operation that it selects.

    In an f-string a member becomes a reference. References survive when texts are joined and when a task sends its
    error to another process.
    """

    @staticmethod
    def _generate_next_value_(name: str, *_: object) -> str:
        return name.lower()

    ALLOW_EMPTY = auto()
    ALL_STAGED = auto()
    ANYWHERE = auto()
    ASSUME_UNCOMMITTED = auto()
    AVRO_SCHEMA = auto()
    BAD_FILES = auto()
    BRANCH = auto()
    BY = auto()
    IGNORE_CASE = auto()
    CATALOG = auto()
    CATALOG_TYPE = auto()
    CHANGES = auto()
    CHANGES_COLUMN = auto()
    CHANGES_MODE = auto()
    CHECKPOINT = auto()
    CLEAN_METADATA = auto()
    COMMIT_SIZE = auto()
    COMMIT_FILES = auto()
    COMMIT_INTERVAL = auto()
    COMPLETED = auto()
    CONDITION = auto()
    CONSUMER = auto()
    CONVERT = auto()
    COPY_ROW_GROUPS = auto()
    CREATE = auto()
    DATE_FORMATS = auto()
    DECIMAL = auto()
    DELETES = auto()
    DELIMITER = auto()
    DISCARD = auto()
    DISTRIBUTION = auto()
    DONE = auto()
    DROPPED_CONSUMER = auto()
    DROPPED_REF = auto()
    ENCODING = auto()
    TO_SNAPSHOT = auto()
    ENGINE = auto()
    EPOCH_SIZE = auto()
    EPOCH_MARKERS = auto()
    EVOLVE = auto()
    FOLLOW = auto()
    FORMAT = auto()
    OUTPUT_FORMAT = auto()
    FORMAT_VERSION = auto()
    FROM_TABLE = auto()
    HEADER = auto()
    IGNORE_UNREADABLE = auto()
    IF_NOT_EXISTS = auto()
    INCLUSIVE = auto()
    JOB = auto()
    JOBS = auto()
    KEEP = auto()
    KAFKA_METADATA = auto()
    KEEP_CHECKPOINTS = auto()
    KEEP_FILES = auto()
    KEEP_FILES_FOREVER = auto()
    KEY = auto()
    AUTO = auto()
    LIKE = auto()
    LIMIT = auto()
    PRUNE_LIMIT = auto()
    LOCAL_MERGE = auto()
    LOCATION = auto()
    LOG = auto()
    MASTER = auto()
    MAX_COMMITS = auto()
    MAX_EPOCHS = auto()
    MAX_FILES = auto()
    MAX_PENDING_SPLITS = auto()
    MAX_PLANNING_FAILURES = auto()
    MAX_PLANNING_SNAPSHOTS = auto()
    MAX_REJECTS = auto()
    MAX_ROWS = auto()
    MAX_SHARE = auto()
    MATCH_WHERE = auto()
    MAX_TABLES = auto()
    MERGE = auto()
    METRICS_FILE = auto()
    MISSING = auto()
    MONITOR_INTERVAL = auto()
    MOST = auto()
    MOVE = auto()
    NON_APPEND = auto()
    NEW_SOURCE = auto()
    NO_OTHER_CATALOG = auto()
    NO_UPSERT = auto()
    NULLS = auto()
    NULL_OVERWRITES = auto()
    OLDER_THAN = auto()
    OLD_SORT_ORDERS = auto()
    OLD_SPECS = auto()
    ON = auto()
    ONCE = auto()
    ON_COPY = auto()
    ON_GAP = auto()
    ON_REWRITE = auto()
    ORDER = auto()
    ORDER_BY = auto()
    OUTPUT = auto()
    PRUNE_OVERFLOW = auto()
    OVERWRITE = auto()
    OVERWRITE_WHERE = auto()
    PARTITION_BY = auto()
    PLAN = auto()
    PREFIX_MISMATCH = auto()
    PROPERTIES = auto()
    PRUNE_WITH = auto()
    PURGE = auto()
    QUIET_TIME = auto()
    QUOTE = auto()
    REJECTS = auto()
    REMOTE = auto()
    REPAIR = auto()
    REPAIR_DUPLICATES = auto()
    REPLACE = auto()
    REPLACE_PARTITIONS = auto()
    RESUME = auto()
    RETAIN_LAST = auto()
    REWRITE_ALL = auto()
    REWRITE = auto()
    ROUTE = auto()
    RUN_ID = auto()
    SCHEMA = auto()
    SELECT = auto()
    SEQUENCE = auto()
    SETTLE = auto()
    SKIP = auto()
    SKIP_ROWS = auto()
    SNAPSHOT = auto()
    SORT_BY = auto()
    SPARK_CONF = auto()
    SPLIT_SIZE = auto()
    STAGE = auto()
    FROM_SNAPSHOT = auto()
    START = auto()
    START_AT = auto()
    STATE = auto()
    STRATEGY = auto()
    STREAM = auto()
    TAG = auto()
    THEN_COMPACT = auto()
    TRUST = auto()
    UNION_COLUMNS = auto()
    UNSAFE_RETENTION = auto()
    UNTIL = auto()
    UPSERT = auto()
    VERBOSE = auto()
    WAIT = auto()
    WAREHOUSE = auto()
    WATERMARK_COLUMN = auto()
    WATERMARK_UNIT = auto()
    WHEN = auto()
    SPEC_ID = auto()
    WHERE = auto()
    WHERE_OVERLAP = auto()
    WRITE_PARALLELISM = auto()
    ZONE = auto()

    def __str__(self) -> str:
        return f"{_BEGIN}{self.value}{_END}"


_BY_NAME = {option.value: option for option in Option}


def spell_options(text: str, spelling: Callable[[Option], str]) -> str:
    """Replace each reference to an option in a text by the caller's spelling of the option."""

    def spelled(found: re.Match[str]) -> str:
        option = _BY_NAME.get(found[1])
        return spelling(option) if option else found[0]

    return _REFERENCE.sub(spelled, text)


def quote_options(text: str) -> str:
    """Replace each reference by the name of the option in backquotes."""
    return spell_options(text, lambda option: f"`{option.value}`")
