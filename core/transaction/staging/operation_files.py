"""Files that are written but not committed: deleted if the command fails, unless they may be live."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import CommitUnknownError, LakeError
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session
from lake.core.transaction.staging.claims import (
    delete_unreferenced,
    discard_run,
    discarding,
    mark_unknown,
)
from lake.core.transaction.staging.staged_run import (
    StagedRun,
    publish_manifests,
    remove_manifests,
    shown_run,
)


def remove_after_commit(session: Session, what: str, remove: Callable[[], Sequence[str]]) -> None:
    """Remove what a commit, of this or another process, left over; warn if that fails.

    Args:
        session: receives the warning: an error would make a script repeat the commit.
        what: what is removed, for the warning.
        remove: removes it, and returns what could not be removed.
    """
    try:
        failed = remove()
    except (LakeError, OSError) as error:
        session.warn(f"{what} could not be removed; the commit remains: {error}")
        return
    if failed:
        session.warn(
            f"{len(failed)} files could not be removed, e.g. {failed[0]}; the commit remains"
        )


@dataclass(slots=True)
class Staging:
    """The uncommitted files of one operation.

    Args:
        session: the register of files that may be live.
        table: the table.
        operation_id: part of the name of every data file.
        run: the run whose manifests list the files, once they are written.
    """

    session: Session
    table: Table
    operation_id: str
    run: StagedRun | None = None

    def publish_manifests(self, run: StagedRun) -> None:
        """Write the manifests of a run: from now on, another process can commit it.

        If they cannot be written, a run that is about to be committed continues without them.
        """
        # Another process may see the manifests even if not all of them could be written.
        self.run = run
        try:
            publish_manifests(self.table, run)
        except (LakeError, OSError, pa.ArrowException) as error:
            if not run.marks.writer:
                raise
            self.session.warn(
                f"could not write recovery manifests; if this run is killed, a later run cannot finish it: {error}"
            )

    def unpublish_manifests(self) -> None:
        """Remove the manifests of a run that was committed."""
        if self.run is None:
            return
        name, count = self.run.marks.name, len(self.run.kinds)
        remove_after_commit(
            self.session,
            f"the recovery manifests of {shown_run(name)}",
            lambda: remove_manifests(self.table, name, count=count),
        )

    def delete_unreferenced(self, table: Table, files: Collection[str]) -> None:
        """Delete the files of a run that another process committed, except files that its snapshot references."""
        if self.run is None:
            table.storage.delete(files)
            return
        known = self.table.metadata
        remove_after_commit(
            self.session,
            f"the unused files of {shown_run(self.run.marks.name)}",
            lambda: delete_unreferenced(self.session, table, files, known=known),
        )
        self.unpublish_manifests()

    def rollback(self) -> None:
        """Delete the operation's files except those that a snapshot references or may reference."""
        if self.run is None:
            remove_operation_files(self.session, self.table, self.operation_id)
            return
        marks = self.run.marks
        try:
            done = discard_run(
                self.session,
                self.table,
                marks,
                own_operation=self.operation_id,
                known=self.table.metadata,
            )
        except LakeError as error:
            self.session.warn(
                f"the files of {shown_run(marks.name)} were kept, because {error.message}; "
                f"{discarding(marks.name)}"
            )
            return
        if done.failed:
            _warn_of_rest(self.session, self.operation_id, len(done.failed))

    def keep_all(self) -> None:
        """Keep all files: the commit may have succeeded, or may still succeed."""
        if self.run is not None:
            mark_unknown(self.session, self.table, self.run.marks.name)


@contextmanager
def staged(session: Session, table: Table, operation_id: str) -> Iterator[Staging]:
    """Delete, if the block fails, every data file whose name contains the operation id.

    Files are found by name, not from the reports of tasks: a killed task reports nothing. Files that
    a snapshot references or may reference (`RunContext.protected_files`) are kept; after an unknown outcome, all are.
    """
    staging = Staging(session, table, operation_id)
    try:
        yield staging
    except CommitUnknownError:
        staging.keep_all()
        raise
    except BaseException:
        session.close()  # first: a running task would continue to write
        staging.rollback()
        raise


def remove_operation_files(session: Session, table: Table, operation_id: str) -> None:
    """Delete the data files whose names contain an operation id, unless a snapshot may reference them."""
    try:
        table.storage.end_uploads(table.data_location, operation_id)
        found = table.storage.find(table.data_location, operation_id)
    except LakeError as error:
        # The reason why the operation failed is more important.
        session.warn(
            f"files of operation {operation_id}, which no snapshot references, may remain: {error.message}"
        )
        return
    outcome = table.storage.delete(
        path for path in found if locations.canonical(path) not in session.protected_files
    )
    if outcome.failed:
        _warn_of_rest(session, operation_id, len(outcome.failed))


def _warn_of_rest(session: Session, operation_id: str, count: int) -> None:
    session.warn(
        f"{count} files of operation {operation_id} could not be removed; no snapshot references them"
    )
