"""What a load that goes on shows while it works: a line at its start and after each commit, and a file of metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

from lake.core.base.errors import LakeError
from lake.core.base.options import Option
from lake.core.read.continuous.metrics import metrics_text, replace_metrics
from lake.core.transaction.session import Session

_PREFIX = "lake_ingest_"
_HELP: Mapping[str, str] = {
    "epoch": "Number of the last epoch in the table.",
    "stuck_epoch": "Number of an epoch that was begun and is not committed; 0 if there is none.",
    "lag_files": "Files that are there and not loaded.",
    "oldest_file_ms": "Age of the oldest of these files, in milliseconds.",
    "lag_snapshots": "Snapshots of the other table after those that are loaded.",
    "lag_rows": "Rows that these snapshots appended.",
    "lag_ms": "Milliseconds between the last loaded snapshot and the newest one.",
    "lag_messages": "Messages up to the high watermark that are not loaded.",
    "open_transactions": "Partitions in which messages wait for a transaction that is not complete.",
    "gap": "1 if rows of the other table were not loaded and cannot be read any more, else 0.",
    "gaps": "Gaps that this run passed over.",
    "epochs_total": "Epochs that this run committed.",
    "rows_total": "Rows that this run wrote.",
    "rows_rejected_total": "Rows that this run rejected.",
    "set_aside_total": "Files or messages that this run set aside.",
    "last_look_seconds": "Time of the last look at the source, in seconds since 1970: the heartbeat.",
    "up": "1 unless the last run failed.",
}


class Monitored(Protocol):
    """The options of a stream that say what is shown of it."""

    @property
    def branch(self) -> str:
        """The branch to load into."""

    @property
    def stream(self) -> str:
        """The stream's id."""

    @property
    def metrics_file(self) -> str | None:
        """The file of metrics; None to write none."""

    @property
    def once(self) -> bool:
        """Whether the run ends when everything is loaded."""

    @property
    def quiet(self) -> bool:
        """Whether no line is printed."""


@dataclass(frozen=True, slots=True)
class Monitor:
    """Shows the progress of a stream.

    Args:
        session: the session.
        labels: the table, the branch and the stream, for metrics.
        path: the file of metrics; None to write none.
        speaks: whether lines are printed.
    """

    session: Session
    labels: Mapping[str, str]
    path: str | None
    speaks: bool

    @classmethod
    def of(cls, session: Session, table: str, options: Monitored) -> Self:
        """Return the monitor of a stream; a run that ends by itself prints no line."""
        labels = {"table": table, "branch": options.branch, "stream": options.stream}
        return cls(session, labels, options.metrics_file, not (options.once or options.quiet))

    def say(self, text: str, **facts: object) -> None:
        """Print a line."""
        if self.speaks:
            self.session.note(text, {name: str(value) for name, value in facts.items()})

    def looked(self, values: Mapping[str, float | None], *, failed: bool = False) -> None:
        """Replace the file of metrics; if it cannot be written, that is a warning: rows may be committed."""
        if self.path is None:
            return
        now = {"last_look_seconds": self.session.clock.now_ms() / 1000, "up": int(not failed)}
        text = metrics_text(self.labels, {**values, **now}, prefix=_PREFIX, helps=_HELP)
        try:
            replace_metrics(self.path, text, prefix=_PREFIX, ids=self.session.ids)
        except LakeError as error:
            self.session.warn(f"the file of {Option.METRICS_FILE} is not written: {error.message}")
