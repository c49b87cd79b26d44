"""Read all metadata that a table references, and report what contradicts it; nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s
from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    NotFoundError,
    OutOfRangeError,
)
from lake.core.base.outcome import Detail, Outcome, Status, first_rows
from lake.core.base.progress import Meter, shown
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.maintain.checking import entries, footers, values
from lake.core.maintain.checking.facts import CheckResult
from lake.core.maintain.checking.findings import (
    ERROR,
    MOST_DESCRIBED,
    NOTE,
    WARNING,
    Finding,
    Findings,
    Level,
)
from lake.core.maintain.checking.lists import list_findings, row_findings
from lake.core.maintain.checking.snapshot_contents import (
    Contents,
    LiveFiles,
    path_hashes,
    paths_of,
)
from lake.core.maintain.checking.stored_files import StoredFiles
from lake.core.maintain.checking.surroundings import (
    Outside,
    root_prefixes,
    surrounding_findings,
)
from lake.core.maintain.checking.table_metadata import table_findings
from lake.core.maintain.checking.tasks import (
    CheckedManifests,
    ManifestBatch,
    ManifestChecks,
    check_manifests,
)
from lake.core.table.manifests.api import (
    read_list_additions,
    read_manifest_list,
)
from lake.core.table.manifests.batches import bytes_of, each_batch
from lake.core.table.manifests.data_files import DATA
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import (
    FileCounts,
    RunningCounts,
    missing_files_message,
    verify_manifest_list,
)
from lake.core.transaction.garbage.name_set import NameSet

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.data.sorting.part_spool import PartSpool
    from lake.core.engine.tasks import Engine
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# Checks of a table whose snapshots expire meanwhile.
_ATTEMPTS = 3
# Findings of files that a commit or an expiry may have removed meanwhile.
_MAY_HAVE_GONE = ("G002", "G003", "S002", "S003")
# The most findings that people see unless they want all.
_SHOWN = 100
# Files with these findings end the process when their values are read, or cannot be read.
_NOT_READABLE = {"D001", "D002", "D003", "D006", "D007"}
_FILE = ("file_path", "file_size_in_bytes")
_VECTOR = (*_FILE, "content_offset")
# Of files that a snapshot needs, and that are lost.
_LOST = ("F001", "F002")
_TOGETHER = {
    "E005": "applies to no data file of snapshot {}",
    "E006": "does not apply to the data files of snapshot {} with its own sequence number",
    "N002": "has row ids that another file of snapshot {} has too",
    "V003": "contains one of several deletion vectors of one data file in snapshot {}",
    "V004": "is ignored in snapshot {}: its data file has a deletion vector",
    "V005": "contains a deletion vector of a data file that snapshot {} does not contain",
    "V006": "contains a deletion vector that is older than its data file in snapshot {}",
}


def check_table(session: Session, table: Table, level: Level) -> Outcome:
    """Check a table: refs, snapshots, manifest lists, manifests, entries, statistics; files and footers if wanted.

    Manifests are read in windows of a bounded size, each manifest once. If files are missing and snapshots expired
    meanwhile, the table as it is then is checked instead.

    Raises:
        CommitConflictError: snapshots expired during each check, so what is missing may have been theirs.
        StorageError: the storage does not answer.
    """
    for _ in range(_ATTEMPTS):
        check = _Check(session, table, level)
        with shown(session.progress, Meter("checking")):
            found = Findings.of(check.run())
        found.counts.update(check.hidden)
        found.described = check.of_branches(found.described)
        if not found.count(ERROR) and not any(found.counts[code] for code in _MAY_HAVE_GONE):
            break
        now = table.refreshed()
        if _referenced(table) <= _referenced(now):
            break
        table = now
    else:
        raise CommitConflictError(
            f"snapshots of {table.identifier} expired during each of {_ATTEMPTS} checks",
            hint="run the command again while no snapshots expire",
        )
    return _outcome(
        session,
        level,
        found,
        table.metadata.current_snapshot_id,
        CheckResult(
            snapshots=len(table.metadata.snapshots),
            manifests=check.manifests.num_rows,
            entries=check.entries,
            files=check.files,
            engine=check.engine,
        ),
    )


def check_numbers(session: Session, level: Level, error: OutOfRangeError) -> Outcome:
    """Report numbers by which a table cannot be loaded; nothing else of it is read."""
    found = Findings.of(Finding("C008", place, text) for place, text in error.found)
    return _outcome(session, level, found, None, CheckResult())


def _outcome(
    session: Session,
    level: Level,
    found: Findings,
    snapshot_id: int | None,
    read: CheckResult,
) -> Outcome:
    errors, warnings = found.count(ERROR), found.count(WARNING)
    status = Status.DAMAGED if errors else Status.SUSPECT if warnings else Status.DONE
    rows = found.rows()
    columns = ("code", "severity", "place", "message", "effect", "remedy")
    described, hidden = first_rows(rows, _SHOWN, "findings", every=session.settings.verbose)
    table_rows = [
        [row.code, row.severity, row.place, row.message, row.effect, row.remedy]
        for row in described
    ]
    return Outcome(
        status=status,
        base_snapshot_id=snapshot_id,
        result=replace(
            read,
            level=level.name.lower(),
            findings=rows,
            errors=errors,
            warnings=warnings,
            notes=found.count(NOTE),
        ),
        details=[Detail("findings", columns, table_rows, vertical=True)] if rows else [],
        notes=hidden,
    )


def _referenced(table: Table) -> set[int | str]:
    """Return the snapshots and the earlier metadata files."""
    metadata = table.metadata
    return {
        *(item.snapshot_id for item in metadata.snapshots),
        *(item.metadata_file for item in metadata.metadata_log),
    }


def _without(live: pa.Table, damaged: Sequence[Finding]) -> pa.Table:
    places = pa.array({item.place for item in damaged}, pa.string())
    return live.filter(pc.invert(pc.is_in(live["file_path"], value_set=places)))


class _Check:
    """The state of one check."""

    def __init__(self, session: Session, table: Table, level: Level) -> None:
        self._session = session
        self.table = table
        self.level = level
        self.metadata = table.metadata
        self.manifests = MANIFEST_SCHEMA.empty_table()
        self.engine = "inline"
        self.entries = 0
        # The findings that tasks did not describe, by code.
        self.hidden: Counter[str] = Counter()
        # The number of different files whose presence was checked.
        self.files = 0
        self._stored = StoredFiles(table)
        self._seen = NameSet()
        self._footers = footers.Footers(table)
        self._values = values.Values(table)
        self._ends: list[footers.DeletedEnds] = []
        self._numbers = entries.numbers_of(table.metadata)
        self._outside = Outside()
        # The indices in `manifests` of each head whose list could be read.
        self._lists: dict[int, Int64s] = {}
        self._unread: set[int] = set()
        # Why columns of a manifest have ids of other columns, by the manifest's index.
        self._reused: dict[int, str] = {}
        self._live = LiveFiles()

    def run(self) -> Iterator[Finding]:
        """Yield the findings, from the metadata down to files."""
        yield from table_findings(self.metadata)
        yield from surrounding_findings(self.table)
        yield from self._manifest_lists()
        yield from self._manifest_files()
        yield from self._heads()
        yield from self._end_findings()
        yield from self._outside.findings(self.table)

    def _manifest_lists(self) -> Iterator[Finding]:
        owners: dict[str, list[Snapshot]] = {}
        for snapshot in self.metadata.snapshots:
            owners.setdefault(snapshot.manifest_list, []).append(snapshot)
        heads = {ref.snapshot_id for ref in self.metadata.refs.values()}
        seen: dict[str, int] = {}
        parts, unreadable = [], list[str]()
        running, newest = RunningCounts(), 0
        indices = np.zeros(0, np.int64)
        for found in read_list_additions(self.table.storage, list(owners), unreadable):
            is_new = []
            start = 0
            paths = normalize_locations(found.rows["manifest_path"]).to_pylist()
            sequence_numbers = found.rows["sequence_number"].to_numpy()
            counts = running.of(found)
            for number, location in enumerate(found.locations):
                end = start + found.sizes[number]
                is_new += [path not in seen for path in paths[start:end]]
                own = np.array([seen.setdefault(path, len(seen)) for path in paths[start:end]], int)
                own_newest = max(sequence_numbers[start:end].tolist(), default=0)
                if found.inherited[number]:
                    own = np.concatenate((indices, own))
                    own_newest = max(newest, own_newest)
                rows = found.rows.slice(start, end - start)
                start, indices, newest = end, own, own_newest
                for snapshot in owners[location]:
                    if snapshot.snapshot_id in heads:
                        self._lists[snapshot.snapshot_id] = indices
                    yield from self._list(snapshot, newest, counts[number])
                    yield from list_findings(snapshot, rows)
            parts.append(
                found.rows.select(MANIFEST_SCHEMA.names).filter(pa.array(is_new, pa.bool_()))
            )
        self.manifests = pa.concat_tables([self.manifests, *parts])
        yield from row_findings(self._numbers, self.manifests)
        for location in unreadable:
            yield self._unreadable(location)

    def _list(self, snapshot: Snapshot, newest: int, counts: FileCounts) -> Iterator[Finding]:
        place = snapshot.manifest_list
        if newest > (snapshot.sequence_number or 0):
            text = (
                f"a manifest has sequence number {newest}, the snapshot {snapshot.sequence_number}"
            )
            yield Finding("L004", place, text)
        elif missing_files_message(self.metadata, snapshot, counts):
            storage = self.table.storage
            try:
                # Asks the entries too: summaries and counts of some writers are wrong without damage.
                rows = read_manifest_list(storage, place)
                verify_manifest_list(storage, self.metadata, snapshot, rows)
            except BadInputError as error:
                yield Finding("L003", place, error.message)

    def _unreadable(self, location: str) -> Finding:
        try:
            read_manifest_list(self.table.storage, location)
        except NotFoundError as error:
            return Finding("L001", location, error.message)
        except BadInputError as error:
            return Finding("L002", location, error.message)
        return Finding("L002", location, "two reads of the list differ")

    def _manifest_files(self) -> Iterator[Finding]:
        specs = pa.array([*self.metadata.specs()], pa.int32())
        of_heads = np.zeros(self.manifests.num_rows, np.bool_)
        for indices in self._lists.values():
            of_heads[indices] = True
        every = self.manifests.append_column("index", pa.array(np.arange(len(of_heads))))
        every = every.append_column("of_heads", pa.array(of_heads))
        is_known = pc.is_in(every["partition_spec_id"], value_set=specs)
        lost = every.filter(pc.invert(is_known))
        for row in lost.select(["index", "manifest_path", "partition_spec_id"]).to_pylist():
            self._unread.add(row["index"])
            text = f"partition spec {row['partition_spec_id']} does not exist"
            yield Finding("M003", row["manifest_path"], text)
        known = every.filter(is_known)
        is_data = pc.equal(known["content"], DATA)
        data, deletes = known.filter(is_data), known.filter(pc.invert(is_data))
        looks = self.level >= Level.FILES
        is_here = looks or not known.num_rows
        engine = None if is_here else self._session.manifest_engine(bytes_of(known))
        self.engine = self.engine if engine is None else engine.name
        roots = root_prefixes(self.table)
        checks = ManifestChecks(
            self.table.storage,
            self.metadata,
            self._numbers,
            roots,
            scopes=bool(deletes.num_rows),
            more=self._more_columns(),
            files=self._file_findings if looks else None,
            all_live=self.level >= Level.ROWS,
        )
        yield from self._checked(data, checks, engine, self._live.data)
        yield from self._checked(deletes, checks, engine, self._live.deletes)

    def _checked(
        self, manifests: pa.Table, checks: ManifestChecks, engine: Engine | None, live: PartSpool
    ) -> Iterator[Finding]:
        """Check manifests, all of data files or all of delete files, and keep the live files."""
        for found in each_batch(
            lambda _: engine,
            self.table.storage,
            manifests,
            self.metadata,
            checks.checked,
            check_manifests,
            lambda batch: ManifestBatch(
                manifests=batch,
                numbers=self._numbers,
                roots=checks.roots,
                scopes=checks.scopes,
            ),
        ):
            results = [found]
            if engine is not None and found.unread:
                # A task may see another disk: what is missing there is read here before it is reported.
                indices = pa.array(found.unread, pa.int64())
                again = manifests.filter(pc.is_in(manifests["index"], value_set=indices))
                results = [replace(found, unread={}), *checks.checked(again)]
            for result in results:
                for batch in result.live.to_batches():
                    live.add(batch)
                yield from self._add(result)

    def _add(self, found: CheckedManifests) -> Iterator[Finding]:
        self.entries += found.entries
        self.hidden.update(found.hidden)
        self._outside += found.outside
        self._reused.update(found.reused)
        self._unread.update(found.unread)
        yield from found.findings
        yield from found.unread.values()

    def _file_findings(self, live: pa.Table, spec_id: int) -> Iterator[Finding]:
        """Check the files that were not checked before."""
        hashes, first = np.unique(path_hashes(live, self._identity(live)), return_index=True)
        is_new = ~self._seen.has_hashes(hashes)
        self._seen = NameSet.joined([self._seen, NameSet([hashes[is_new]])])
        new = live.take(pa.array(np.sort(first[is_new])))
        self.files += new.num_rows
        damaged = list(self._stored.findings(new))
        yield from damaged
        if self.level >= Level.ROWS:
            whole = _without(new, damaged)
            damaged = yield from self._reported(self._footers.reports(whole))
            if self.level >= Level.DEEP:
                unread = [item for item in damaged if item.code in _NOT_READABLE]
                yield from self._reported(self._values.reports(_without(whole, unread), spec_id))

    def _reported(
        self, reports: Iterator[footers.FooterReport]
    ) -> Generator[Finding, None, list[Finding]]:
        """Yield the findings of reports, and return them."""
        found: list[Finding] = []
        for report in reports:
            self._ends += report.ends
            found += report.findings
            yield from report.findings
        return found

    def _identity(self, live: pa.Table) -> tuple[str, ...]:
        """Return the columns that identify a file: one Puffin file contains many deletion vectors."""
        return _VECTOR if "content_offset" in live.column_names else _FILE

    def _more_columns(self) -> tuple[str, ...]:
        columns = ("lower_bounds", "upper_bounds") if self.level >= Level.FILES else ()
        if self.level >= Level.ROWS:
            columns = (*columns, *footers.COLUMNS)
        return (*columns, *values.COLUMNS) if self.level >= Level.DEEP else columns

    def _end_findings(self) -> Iterator[Finding]:
        """Compare the last deleted positions with the numbers of rows of their data files."""
        if not self._ends:
            return
        last = pa.concat_tables([item.last for item in self._ends])
        hashes = pa.array(path_hashes(last))
        rows = pa.nulls(len(hashes), pa.int64())
        for files in self._live.data.parts():
            at = pc.index_in(hashes, value_set=files["path"])
            rows = pc.coalesce(rows, files["records"].take(at))
        bad = pc.fill_null(pc.greater_equal(last["position"], rows), fill_value=False)
        places = [item.place for item in self._ends for _ in range(item.last.num_rows)]
        last = last.append_column("rows", rows).append_column(
            "place", pa.array(places, pa.string())
        )
        for some in last.filter(bad).to_batches(MOST_DESCRIBED):
            for found in some.to_pylist():
                text = (
                    f"deletes row {found['position']} of {found['file_path']}, "
                    f"which has {found['rows']} rows"
                )
                yield Finding("V002", found["place"], text)

    def _heads(self) -> Iterator[Finding]:
        """Check what the heads of branches and tags contain as a whole."""
        by_id = {item.snapshot_id: item for item in self.metadata.snapshots}
        branches = self._branches()
        for snapshot_id in sorted({ref.snapshot_id for ref in self.metadata.refs.values()}):
            wanted = self._lists.get(snapshot_id)
            if wanted is None or self._unread.intersection(wanted.tolist()):
                continue
            for item in self._contradictions(wanted, by_id[snapshot_id]):
                yield replace(item, branch=branches.get(snapshot_id))
            if snapshot_id in branches:
                for index in self._reused.keys() & set(wanted.tolist()):
                    place = self.manifests["manifest_path"][index].as_py()
                    yield Finding("C005", place, self._reused[index])

    def _branches(self) -> dict[int, str | None]:
        """Return for each head of a branch the branch, the preferred one last; None for a consumer's."""
        refs = sorted(self.metadata.refs.items(), reverse=True)
        refs.sort(key=lambda item: (not ancestry.is_consumer(item[0]), item[0] == ancestry.MAIN))
        return {
            ref.snapshot_id: None if ancestry.is_consumer(name) else name
            for name, ref in refs
            if ref.snapshot_ref_type == "branch"
        }

    def of_branches(self, found: Sequence[Finding]) -> list[Finding]:
        """Return findings, those of lost files with the branch whose head has the file."""
        lost = sorted({item.place for item in found if item.code in _LOST})
        hashes = path_hashes(pa.table({"file_path": pa.array(lost, pa.string())}))
        branches: dict[str, str | None] = {}
        for snapshot_id, branch in self._branches().items() if lost else ():
            if (wanted := self._lists.get(snapshot_id)) is not None:
                held = self._contents(wanted).have(hashes).tolist()
                branches |= dict.fromkeys(compress(lost, held), branch)
        return [replace(item, branch=branches.get(item.place, item.branch)) for item in found]

    def _contents(self, manifests: Int64s) -> Contents:
        own = np.zeros(self.manifests.num_rows, np.bool_)
        own[manifests] = True
        return Contents(self._live, own)

    def _contradictions(self, manifests: Int64s, head: Snapshot) -> Iterator[Finding]:
        contents = self._contents(manifests)
        if len(twice := contents.duplicates()):
            yield from self._twice(manifests, twice, head.snapshot_id)
        yield from contents.totals(head)
        yield from self._together(contents, head.snapshot_id)

    def _twice(self, manifests: Int64s, hashes: Any, snapshot_id: int) -> Iterator[Finding]:
        # Different paths may have one hash, so the paths are read again.
        paths = self._paths(pa.array(manifests), hashes)
        owners: dict[str, list[str]] = {}
        for path, normal in zip(
            paths, normalize_locations(pa.array(paths, pa.string())).to_pylist(), strict=True
        ):
            owners.setdefault(normal, []).append(path)
        for spelled in owners.values():
            if len(spelled) > 1:
                text = f"snapshot {snapshot_id} contains the file twice"
                yield Finding("E001", spelled[0], text)

    def _together(self, contents: Contents, snapshot_id: int) -> Iterator[Finding]:
        """Report delete files that contradict data files, and row ids that several files have."""
        found = contents.deletes(self.metadata)
        found["N002"] = contents.overlaps()
        for code, files in found.items():
            if files.num_rows:
                for path in dict.fromkeys(self._paths(files["manifest"], files["path"].to_numpy())):
                    yield Finding(code, path, _TOGETHER[code].format(snapshot_id))
        following = getattr(self.metadata, "next_row_id", None)
        last = contents.last_row_id
        if following is not None and last > following:
            text = f"it has row ids up to {last - 1}, the table's next row id is {following}"
            yield Finding("N001", f"snapshot {snapshot_id}", text)

    def _paths(self, manifests: Any, hashes: Any) -> list[str]:
        rows = self.manifests.take(pc.unique(manifests))
        return paths_of(self.table.storage, rows, self.metadata, hashes)
