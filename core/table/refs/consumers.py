"""The refs of consumers: what a reader of a table has not read yet, in terms that every engine's expiry obeys.

A consumer is a branch ``lake-consumer-NAME``. Its head is the head of the followed branch at the reader's last
refresh, and its `min-snapshots-to-keep` reaches back from there to the oldest snapshot that the reader needs. Nothing
else keeps snapshots of this branch: `max-snapshot-age-ms` is 1, or 2 if the oldest of them is not read yet. The two
ages expire the same snapshots; they distinguish a reader that needs the snapshot of its position (it reads changes,
or has nothing left to read) from one that needs only later ones. No program should commit to such a branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from lake.core.base.errors import InvalidRequestError
from lake.core.base.units import natural_number
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

READ_AGE_MS, UNREAD_AGE_MS = 1, 2
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer as the table's metadata shows it.

    Args:
        name: its name, without the prefix of the ref.
        head: the followed branch's head at the reader's last refresh.
        branch: the branch whose history contains the head, ``main`` first, or whose retained history begins after
            it; None if there is none: another program committed to the ref, or the branch was rolled back or removed.
        needed: the snapshots that the ref keeps, newest first, the head included.
        needs_position: whether the oldest one of them is the reader's position; otherwise it is not read yet.
        ahead: the snapshots of the branch after the head, newest first.
        expired: how many snapshots that the reader needs are not retained; at least 1 if there are any.
        max_age_ms: the age of the head at which the ref expires; None for the table's property.
    """

    name: str
    head: Snapshot
    branch: str | None
    needed: Sequence[Snapshot]
    needs_position: bool
    ahead: Sequence[Snapshot]
    expired: int
    max_age_ms: int | None

    @property
    def position(self) -> int | None:
        """The newest snapshot that the reader has read; None if it has read none."""
        oldest = self.needed[-1]
        return oldest.snapshot_id if self.needs_position else oldest.parent_snapshot_id

    @property
    def unread(self) -> Sequence[Snapshot]:
        """The retained snapshots after the position, newest first."""
        return [*self.ahead, *(self.needed[:-1] if self.needs_position else self.needed)]

    @property
    def unread_rows(self) -> int:
        """The rows that the unread snapshots appended."""
        return sum(map(appended_rows, self.unread))


def appended_rows(snapshot: Snapshot) -> int:
    """Return the rows that an append added, by its summary; 0 for a snapshot that is not an append."""
    summary = snapshot.summary
    if summary is None or summary.operation.value != "append":
        return 0
    return natural_number(summary.get("added-records") or "0") or 0


def ref_of(name: str) -> str:
    """Return the name of a consumer's ref.

    Raises:
        InvalidRequestError: the name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"not a name of a consumer: {name!r}",
            hint="use up to 100 letters, digits, dots, hyphens and underscores, a letter or digit first",
        )
    return ancestry.CONSUMER_PREFIX + name


def find_consumers(metadata: TableMetadata) -> Iterator[Consumer]:
    """Yield the consumers of a table by name; refs to snapshots that the table lacks are left out."""
    found = [
        (name, ref)
        for name, ref in sorted(metadata.refs.items())
        if ancestry.is_consumer(name) and ref.snapshot_ref_type == "branch"
    ]
    branches = histories(metadata, metadata.refs) if found else {}
    for ref_name, ref in found:
        keep = ref.min_snapshots_to_keep or 1
        needed = list(islice(ancestry.ancestors(metadata, ref.snapshot_id), keep))
        if not needed:
            continue
        branch = _holder(branches, ref.snapshot_id)
        cut = branch is None
        if cut:
            branch = _cut_after(branches, needed[0])
        yield Consumer(
            name=ref_name.removeprefix(ancestry.CONSUMER_PREFIX),
            head=needed[0],
            branch=branch,
            needed=needed,
            needs_position=ref.max_snapshot_age_ms != UNREAD_AGE_MS,
            ahead=after(branches[branch], ref.snapshot_id) if branch is not None else (),
            expired=keep - len(needed) + (cut and branch is not None),
            max_age_ms=ref.max_ref_age_ms,
        )


def histories(
    metadata: TableMetadata, refs: Mapping[str, SnapshotRef]
) -> dict[str, list[Snapshot]]:
    """Return the retained history of each branch among the refs that is not a consumer's, ``main`` first."""
    # Metadata may lack a ref for main.
    heads: dict[str, int | None] = {ancestry.MAIN: metadata.current_snapshot_id}
    heads |= {
        name: ref.snapshot_id
        for name, ref in sorted(refs.items())
        if ref.snapshot_ref_type == "branch" and not ancestry.is_consumer(name)
    }
    return {name: list(ancestry.ancestors(metadata, head)) for name, head in heads.items()}


def after(history: Sequence[Snapshot], snapshot_id: int | None) -> Sequence[Snapshot]:
    """Return the snapshots of a history that are newer than the given one."""
    return list(takewhile(lambda item: item.snapshot_id != snapshot_id, history))


def first_unread(metadata: TableMetadata, branch: str, position: int | None) -> int | None:
    """Return the oldest snapshot of a branch after a position.

    Args:
        metadata: the table's.
        branch: the branch that is read.
        position: the newest snapshot that was read; it need not be retained. None if none was read.

    Returns:
        The branch's oldest retained snapshot if its history does not contain the position; None if nothing is unread.
    """
    history = list(ancestry.ancestors(metadata, ancestry.head_id(metadata, branch)))
    unread = after(history, position)
    return unread[-1].snapshot_id if unread else None


def _holder(branches: Mapping[str, Sequence[Snapshot]], snapshot_id: int) -> str | None:
    return next(
        (
            name
            for name, history in branches.items()
            if any(item.snapshot_id == snapshot_id for item in history)
        ),
        None,
    )


def _cut_after(branches: Mapping[str, Sequence[Snapshot]], head: Snapshot) -> str | None:
    """Return the first branch whose history lacks its beginning and may have contained a snapshot there.

    Expiry by other programs removes what a branch received after the reader's last run.
    """
    for name, history in branches.items():
        oldest = history[-1] if history else head
        is_cut = oldest.parent_snapshot_id is not None
        if is_cut and _order(oldest) > _order(head):
            return name
    return None


def _order(snapshot: Snapshot) -> tuple[int, int]:
    # Format version 1 does not have sequence numbers.
    return snapshot.sequence_number or 0, snapshot.timestamp_ms
