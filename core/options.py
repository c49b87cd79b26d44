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
    ASSUME_UNCOMMITTED = auto()
    BRANCH = auto()
    BY = auto()
    CATALOG = auto()
    CATALOG_TYPE = auto()
    CHANGES = auto()
    CHANGES_COLUMN = auto()
    CHANGES_MODE = auto()
    CHECKPOINTS = auto()
    CLEAN_METADATA = auto()
    COMPLETED = auto()
    CREATE = auto()
    DATE_FORMATS = auto()
    DECIMAL = auto()
    DELIMITER = auto()
    DELETES = auto()
    DISCARD = auto()
    DISTRIBUTION = auto()
    ENCODING = auto()
    END = auto()
    EVOLVE = auto()
    FORMAT = auto()
    FORMAT_NAME = auto()
    FROM_TABLE = auto()
    HEADER = auto()
    INCLUSIVE = auto()
    JOB_ID = auto()
    KEEP_CHECKPOINTS_MS = auto()
    KEEP_FILES = auto()
    KEY = auto()
    LIMIT = auto()
    MASTER = auto()
    MAX_REJECTS = auto()
    NULLS = auto()
    OLDER_THAN_MS = auto()
    ORDER_BY = auto()
    OUTPUT = auto()
    OVERWRITE = auto()
    OVERWRITE_WHERE = auto()
    PARTITION_BY = auto()
    PROPERTIES = auto()
    QUIET_MS = auto()
    QUOTE = auto()
    REJECTS = auto()
    REMOTE = auto()
    REPAIR_DUPLICATES = auto()
    REPLACE = auto()
    REPLACE_PARTITIONS = auto()
    RETAIN_LAST = auto()
    RUN_ID = auto()
    SELECT = auto()
    SKIP_ROWS = auto()
    SNAPSHOT = auto()
    SORT_BY = auto()
    SPLIT_SIZE = auto()
    STAGE = auto()
    START = auto()
    STRATEGY = auto()
    UNSAFE = auto()
    UPSERT = auto()
    VERBOSE = auto()
    WAIT_MS = auto()
    WAREHOUSE = auto()
    WHEN = auto()

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
