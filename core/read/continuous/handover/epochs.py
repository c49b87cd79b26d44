"""Hand rows over to a folder exactly once: each epoch appears there as a complete folder by one rename.

1. The parts and `_epoch.json` are written to a hidden folder beside the epochs and flushed to the disk.
2. The state is saved with the epoch as *prepared*.
3. The hidden folder is renamed to the epoch's name, and the output is flushed.
4. The state is saved with the epoch as handed over.

Only step 3 removes the hidden folder after step 2. So a later run knows what a killed run did without looking at the
epoch's folder, which a loader may move or delete as soon as it appears.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.core.base.errors import CorruptFileError, NotFoundError, RefusedError
from lake.core.base.interrupts import uninterrupted
from lake.core.base.options import Option
from lake.core.io.storage import atomic_files
from lake.core.io.storage.errors import translate_errors
from lake.core.read.continuous.handover.state import After, Prepared, State, StateStore
from lake.core.read.exports.export import Noted, PartReport, RowSource, write_parts
from lake.core.read.scan.execute import DROPPED
from lake.core.transaction.session import Session

FACTS_NAME = "_epoch.json"
_EPOCH = re.compile(r"epoch-[0-9]{10,}")


def epoch_name(number: int) -> str:
    """Return the name of an epoch's folder."""
    return f"epoch-{number:010d}"


@dataclass(frozen=True, slots=True)
class EpochOutput:
    """The folder to which epochs are handed over.

    Args:
        path: the folder.
        state_id: of the state; names the hidden folders.
        run: a UUID of the run; names its own ones.
    """

    path: str
    state_id: str
    run: str

    def hidden(self, number: int, run: str | None) -> str:
        """Return the path of an epoch of a run before it is handed over."""
        name = f".lake-epoch-{self.state_id}-{number}"
        # check: folder-of-this-run
        return os.path.join(self.path, name if run is None else f"{name}-{run}")

    def target(self, number: int) -> str:
        """Return the path of an epoch that is handed over."""
        return os.path.join(self.path, epoch_name(number))

    def refuse_taken(self, number: int) -> None:
        """Refuse an epoch whose name exists.

        Raises:
            RefusedError: another program, or another state, created it.
        """
        if os.path.lexists(self.target(number)):
            raise RefusedError(
                f"{self.target(number)} exists, and this state did not create it",
                hint="move it away; two states must not share an output folder",
            )

    def check_exists(self) -> None:
        """Check that the folder is there.

        Raises:
            NotFoundError: there is no such folder; it may be on a disk that is not mounted.
        """
        if not os.path.isdir(self.path):
            raise NotFoundError(
                f"there is no folder {self.path} for the output",
                hint=f"mount its disk, or create it: mkdir -p {self.path}",
            )

    def sweep(self) -> None:
        """Remove the hidden folders that killed runs of this state left."""
        own = re.compile(rf"\.lake-epoch-{re.escape(self.state_id)}-[0-9]+(-[-0-9a-f]+)?")
        with translate_errors(self.path):
            for name in os.listdir(self.path):
                if own.fullmatch(name):
                    _remove(os.path.join(self.path, name))


def make_output(path: str) -> None:
    """Create the output folder of a new state, if there is none; refuse one that another state uses.

    Raises:
        RefusedError: the folder contains epochs.
        NotFoundError: its parent does not exist.
    """
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        raise NotFoundError(
            f"there is no folder {parent} for the output", hint=f"mkdir -p {parent}"
        )
    with translate_errors(path):
        os.makedirs(path, exist_ok=True)
        atomic_files.flush(parent)
        taken = sorted(name for name in os.listdir(path) if _EPOCH.fullmatch(name))
    if taken:
        raise RefusedError(
            f"{path} contains {taken[0]}, which another state handed over",
            hint=f"choose another folder with {Option.OUTPUT}, or continue that state with {Option.STATE}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The next epoch, before its rows are read.

    Args:
        number: its number if it has rows.
        source: its rows.
        format: the format of its files.
        facts: its facts for `_epoch.json`, without the rows, files and watermark.
        next: the index of the first split after it.
        records: the rows of its splits by metadata.
        bytes: the bytes of its splits.
        expected: the rows of the discovery that must have been read after it, deleted ones included; None if
            that cannot be checked.
        greatest_ms: the greatest value of the watermark column in its splits and in all earlier ones.
        watermark_ms: the watermark after it.
    """

    number: int
    source: RowSource[Any]
    format: str
    facts: Mapping[str, Any]
    next: int
    records: int
    bytes: int
    expected: int | None
    greatest_ms: int | None
    watermark_ms: int | None


def write_epoch(
    session: Session, state: State, output: EpochOutput, epoch: Epoch, noted: Noted
) -> tuple[Sequence[PartReport], After]:
    """Write an epoch to its hidden folder; nothing remains of it after a failure, or if it has no rows.

    Args:
        session: the session.
        state: the state before the epoch.
        output: the folder of the epochs.
        epoch: the epoch.
        noted: the counters of the rows; empty.

    Raises:
        RefusedError: the epoch's name exists in the output.
        CorruptFileError: a file cannot be read, or rows are missing.
        StorageError: a disk fails.
    """
    output.check_exists()
    output.refuse_taken(epoch.number)
    hidden = output.hidden(epoch.number, output.run)
    try:
        with translate_errors(hidden):
            _remove(hidden)
            os.mkdir(hidden)
            parts, after = _write(session, state, epoch, hidden, noted)
            if not parts:
                _remove(hidden)
            return parts, after
    except BaseException:
        with uninterrupted():
            _remove(hidden)
        raise


def commit_epoch(store: StateStore, state: State, output: EpochOutput, after: After) -> State:
    """Hand over the epoch in the hidden folder; return the state after it. Not to be interrupted.

    Raises:
        RefusedError: the epoch's name exists in the output; nothing changed.
        StorageError: a disk fails. `recover` determines what happened.
    """
    number = state.epoch + 1
    with translate_errors(output.path):
        output.refuse_taken(number)
        inode = os.stat(output.path).st_ino
        prepared = Prepared(epoch=number, run=output.run, inode=inode, after=after)
        state = store.save(state.changed(prepared=prepared))  # check: prepared-before-rename
        _rename(output, prepared)
        return store.save(state.handed_over(after))


def recover(store: StateStore, state: State, output: EpochOutput) -> State:
    """Complete the epoch that a killed run had prepared.

    Raises:
        RefusedError: the epoch's name exists in the output, or the output is not the folder of the prepared epoch.
        NotFoundError: there is no output folder.
    """
    output.check_exists()
    prepared = state.prepared
    if prepared is not None:
        with uninterrupted(), translate_errors(output.path):
            if os.path.lexists(output.hidden(prepared.epoch, prepared.run)):
                output.refuse_taken(prepared.epoch)
                _rename(output, prepared)
            else:
                _refuse_other_folder(output, prepared)
                atomic_files.flush(output.path)
            state = store.save(state.handed_over(prepared.after))
    return state


def _refuse_other_folder(output: EpochOutput, prepared: Prepared) -> None:
    """Refuse an output without the prepared epoch if it may be the mount point of a disk that is not mounted."""
    known = os.stat(output.path).st_ino == prepared.inode
    if not known and not os.path.lexists(output.target(prepared.epoch)):  # check: output-mounted
        raise RefusedError(
            f"{output.path} is not the folder in which epoch {prepared.epoch} was prepared",
            hint="mount its disk; if a loader replaced the folder after it had taken the epoch, create an empty "
            f"folder {epoch_name(prepared.epoch)} in it",
        )


def _rename(output: EpochOutput, prepared: Prepared) -> None:
    number = prepared.epoch
    os.rename(output.hidden(number, prepared.run), output.target(number))
    atomic_files.flush(output.path)


def _write(
    session: Session, state: State, epoch: Epoch, hidden: str, noted: Noted
) -> tuple[Sequence[PartReport], After]:
    """Write an epoch's files to its hidden folder."""
    parts = write_parts(session, epoch.source, hidden, epoch.format, noted)
    rows = sum(part.rows for part in parts)
    after = After(
        next=epoch.next,
        rows=rows,
        deleted=noted[DROPPED],
        records=epoch.records,
        bytes=epoch.bytes,
        written=sum(part.size_bytes for part in parts),
        greatest_ms=epoch.greatest_ms,
        watermark_ms=epoch.watermark_ms,
    )
    check_complete(state, after, epoch.expected)
    if parts:
        files = [
            {"name": os.path.basename(part.path), "rows": part.rows, "bytes": part.size_bytes}
            for part in parts
        ]
        facts = {
            **epoch.facts,
            "rows": rows,
            "files": files,
            "watermark_ms": epoch.watermark_ms,
        }
        with open(os.path.join(hidden, FACTS_NAME), "xb") as file:
            file.write(json.dumps(facts, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        atomic_files.flush(hidden)
        # The name of the hidden folder, too: if it is missing later, the epoch was handed over.
        atomic_files.flush(os.path.dirname(hidden))  # check: hidden-folder-on-disk
    return parts, after


def check_complete(state: State, after: After, expected: int | None) -> None:
    """Compare the rows that a discovery gave, deleted ones included, with the metadata.

    Raises:
        CorruptFileError: the numbers differ.
    """
    if expected is None:
        return
    first = state.pending[0]
    found = first.rows_done + first.rows_deleted + after.rows + after.deleted
    if found != expected:  # check: rows-of-discovery
        raise CorruptFileError(
            f"read {found} rows, but the files have {expected} by their metadata; the last rows were not handed over"
        )


def _remove(path: str) -> None:
    if os.path.lexists(path):
        shutil.rmtree(path)
