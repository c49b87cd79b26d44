"""Files that were written but not committed: gone again when the command fails, unless they may be live."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lake.core import locations
from lake.core.catalogs.catalog import Table
from lake.core.errors import CommitUnknownError, LakeError, StoppedError
from lake.core.session import Session
from lake.core.staging.claims import delete_unreferenced_manifests, doubt, withdraw
from lake.core.staging.staged_run import StagedRun, publish_manifests, remove_manifests


@dataclass(slots=True)
class Staging:
    """The files of one operation until they are committed.

    Args:
        session: the register of files that may be live.
        table: the table.
        operation_id: part of the name of every data file.
        run: the manifests that tell of the files, once there are any.
    """

    session: Session
    table: Table
    operation_id: str
    run: StagedRun | None = None

    def publish_manifests(self, run: StagedRun) -> None:
        """Write the manifests of a run: from here on others can commit it.

        A run that is committed next does without where they cannot be written.
        """
        # Also what could not be written to its end may be there for others to see.
        self.run = run
        try:
            publish_manifests(self.table, run)
        except (LakeError, OSError, pa.ArrowException) as error:
            if isinstance(error, StoppedError) or not run.marks.writer:
                raise
            self.session.warn(f"killed now, the run could not be finished by another: {error}")

    def unpublish_manifests(self) -> None:
        """Remove the manifests of a run that was committed."""
        if self.run is None:
            return
        count = len(self.run.kinds)
        if failed := remove_manifests(self.table, self.run.marks.run_id, count=count):
            self.session.warn(f"{failed[0]} could not be removed; its files are committed")

    def drop(self, table: Table, files: Iterable[str]) -> None:
        """Delete what was written for a run that landed by another's hand, which may hold these very files."""
        if self.run is None:
            table.storage.delete(files)
            return
        delete_unreferenced_manifests(self.session, table, list(files), known=self.table.metadata)
        self.unpublish_manifests()

    def abandon(self) -> None:
        """Remove the operation's files but those that a snapshot holds or may hold."""
        if self.run is None:
            remove_operation_files(self.session, self.table, self.operation_id)
            return
        marks = self.run.marks
        try:
            done = withdraw(
                self.session,
                self.table,
                marks,
                own_operation=self.operation_id,
                known=self.table.metadata,
            )
        except LakeError as error:
            self.session.warn(
                f"the files of run {marks.run_id} stay, because {error.message}; "
                f"lake ingest --discard {marks.run_id} removes them"
            )
            return
        if done.failed:
            _warn_of_rest(self.session, self.operation_id, len(done.failed))

    def leave(self) -> None:
        """Leave everything: the commit may have landed, or may land yet."""
        if self.run is not None:
            doubt(self.session, self.table, self.run.marks.run_id)


@contextmanager
def staged(session: Session, table: Table, operation_id: str) -> Iterator[Staging]:
    """Remove, when the block fails, every data file named after the operation.

    Files are found by name, not by what tasks reported: a task that was killed reports nothing. Files that
    a snapshot holds or may hold (`RunContext.protected_files`) stay, and after an unknown outcome all stay.
    """
    staging = Staging(session, table, operation_id)
    try:
        yield staging
    except CommitUnknownError:
        staging.leave()
        raise
    except BaseException:
        session.close()  # first: a task that still runs would write on
        staging.abandon()
        raise


def remove_operation_files(session: Session, table: Table, operation_id: str) -> None:
    """Delete the data files whose names carry an operation id and that no snapshot may hold."""
    try:
        table.storage.end_uploads(table.data_location, operation_id)
        found = table.storage.find(table.data_location, operation_id)
    except LakeError as error:
        # Why the operation failed counts for more.
        session.warn(
            f"files of operation {operation_id} may be left, which no snapshot holds: {error.message}"
        )
        return
    outcome = table.storage.delete(
        path for path in found if locations.canonical(path) not in session.protected_files
    )
    if outcome.failed:
        _warn_of_rest(session, operation_id, len(outcome.failed))


def _warn_of_rest(session: Session, operation_id: str, count: int) -> None:
    session.warn(
        f"{count} files of operation {operation_id} could not be removed; no snapshot holds them"
    )
