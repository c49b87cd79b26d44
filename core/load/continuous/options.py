"""The options of a load that goes on, and their checks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from lake.core.base.choices import OnCopy, OnRewrite
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.table.snapshots import ancestry

_MINUTE_MS = 60_000
_SETTLE_MS = 10_000
_MIB = 1 << 20
_MOST_FILES = 100_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Done(StrEnum):
    """What happens to the files of an epoch after its commit."""

    KEEP = "keep"
    MOVE = "move"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of a watch. Sizes are in bytes, times in milliseconds.

    Args:
        source: a folder, a prefix of an object store, or a glob.
        stream: the stream's id.
        state: the folder that keeps what was offered and loaded.
        branch: the branch to load into.
        commit_interval: commit at least this often if there are files.
        commit_size: commit as soon as there are files of this size.
        commit_files: the most files of a commit; commit as soon as there are this many.
        settle: take a file only if it did not change for this long.
        done: what happens to loaded files.
        done_folder: the folder for `Done.MOVE`.
        on_rewrite: what to do about loaded files that have changed.
        on_copy: what to do about files that seem to be loaded ones in another folder.
        skip: files that are never loaded: their paths, or their names below the folder that is watched.
        new_source: watch another folder than the state says; files that it contains by the same names are known.
        bad_files: the folder for files that cannot be loaded; None to fail.
        once: load what is there and end.
        metrics_file: a file of metrics, replaced at each look; None to write none.
        quiet: print no line at the start and after commits.
        resume: continue a stream whose state was lost.
        wait: wait this long for another run with the same state; None to end at once.

    Raises:
        InvalidRequestError: a value is out of range or contradicts another.
    """

    source: str
    stream: str
    state: str
    branch: str = ancestry.MAIN
    commit_interval: int = _MINUTE_MS
    commit_size: int = 512 * _MIB
    commit_files: int = 1_000
    settle: int = _SETTLE_MS
    done: Done = Done.KEEP
    done_folder: str | None = None
    on_rewrite: OnRewrite = OnRewrite.FAIL
    on_copy: OnCopy = OnCopy.REPORT
    skip: tuple[str, ...] = ()
    new_source: bool = False
    bad_files: str | None = None
    once: bool = False
    metrics_file: str | None = None
    quiet: bool = False
    resume: bool = False
    wait: int | None = None

    def __post_init__(self) -> None:
        check_stream(self.stream)
        if self.commit_interval <= 0 or self.commit_size <= 0:
            raise InvalidRequestError(
                f"{Option.COMMIT_INTERVAL} and {Option.COMMIT_SIZE} must be positive"
            )
        if not 0 < self.commit_files <= _MOST_FILES:
            raise InvalidRequestError(
                f"{Option.COMMIT_FILES} {self.commit_files} is not between 1 and {_MOST_FILES:,}"
            )
        if self.resume and self.done is Done.KEEP:
            raise InvalidRequestError(
                f"{Option.RESUME} needs {Option.DONE} move or delete",
                hint="without the state, files that stay in place cannot be distinguished from new ones",
            )

    @property
    def targets(self) -> list[str]:
        """The folders to which files are moved."""
        return [one for one in (self.done_folder, self.bad_files) if one is not None]


def check_stream(stream: str) -> None:
    """Check the id of a stream.

    Raises:
        InvalidRequestError: it is not valid.
    """
    if not _NAME.fullmatch(stream):
        raise InvalidRequestError(
            f"{Option.STREAM} {stream!r} is not a name of letters, digits, . _ and -, 64 at most"
        )


def parse_done(text: str) -> tuple[Done, str | None]:
    """Return what happens to loaded files, and the folder to which they move.

    Raises:
        InvalidRequestError: the text is not ``keep``, ``delete`` or ``move:`` and a folder.
    """
    kind, colon, folder = text.partition(":")
    if kind == Done.MOVE and folder:
        return Done.MOVE, folder.rstrip("/") or "/"
    if text in {Done.KEEP, Done.DELETE} and not colon:
        return Done(text), None
    raise InvalidRequestError(f"{Option.DONE} is {text!r}, not keep, delete or move:FOLDER")
