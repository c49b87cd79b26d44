"""The plan of a cleaning: the orphan files, and why other files that no snapshot references are kept."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.arrow import one_array
from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.base.units import iso_time
from lake.core.io.storage.file_names import FileNames
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.io.storage.store_listing import LISTING
from lake.core.maintain.orphans.facts import CleaningFacts
from lake.core.maintain.orphans.kept_files import (
    KeepReason,
    by_name,
    checkpoint_names,
    kept_metadata,
)
from lake.core.maintain.orphans.listing import list_files, looked_up
from lake.core.maintain.orphans.options import CleanOptions, Mode, PrefixMismatch
from lake.core.maintain.orphans.references import referenced_names
from lake.core.spec.properties.table_properties import GC_ENABLED
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.shared_locations import refuse_shared_location
from lake.core.table.metadata.files import is_metadata_name
from lake.core.table.snapshots.ancestry import check_refs
from lake.core.transaction.garbage.manifest_files import DATA_FILE, HeldNames
from lake.core.transaction.garbage.nested_tables import NestedTables
from lake.core.transaction.garbage.other_histories import refuse_continued
from lake.core.transaction.garbage.other_tables import OtherTables
from lake.core.transaction.garbage.own_files import in_own_folders
from lake.core.transaction.garbage.reachability import (
    MANIFEST,
    MANIFEST_LIST,
    STATISTICS,
    Reachability,
)
from lake.core.transaction.session import Session

_STATISTICS = r"\.(stats|puffin)$"
METADATA_FILE = "metadata_files"
_REASON, _BY_NAME = "reason", "by_name"
# The order in which orphan files are removed: files before those that may list them.
KINDS = (DATA_FILE, STATISTICS, MANIFEST, MANIFEST_LIST, METADATA_FILE)


@dataclass(frozen=True)
class CleaningPlan:
    """The files below the table's folders, by what happens to them.

    Args:
        table: the table that the plan was made for.
        options: the options.
        unreferenced: the files that no snapshot references: path, kind, bytes, modified_ms, and as `reason` the
            `KeepReason` of those that are kept; NULL for orphan files.
        listed: the number and the bytes of the listed files. The bytes may be those of some files, enough to know
            that the share of the orphan files is allowed.
        referenced: the number of listed files that the table references.
        reach: the manifests read so far.
        names: compares locations as files.
    """

    table: Table
    options: CleanOptions
    unreferenced: pa.Table
    listed: tuple[int, int]
    referenced: int
    reach: Reachability = field(repr=False, compare=False)
    names: FileNames = field(repr=False, compare=False)

    @cached_property
    def files(self) -> pa.Table:
        """The orphan files: path, kind, bytes, modified_ms."""
        return self.unreferenced.filter(pc.is_null(self.unreferenced["reason"])).drop("reason")

    @cached_property
    def kept(self) -> Mapping[str, int]:
        """The number of unreferenced files that are kept, by `KeepReason`."""
        counted = pc.value_counts(self.unreferenced["reason"].drop_null())
        counts = {item["values"].as_py(): item["counts"].as_py() for item in counted}
        return dict(sorted(counts.items()))

    @property
    def is_empty(self) -> bool:
        """Whether there are no orphan files."""
        return not self.files.num_rows

    @cached_property
    def bytes(self) -> int:
        """The size of the orphan files."""
        return int(pc.sum(self.files["bytes"]).as_py() or 0)

    @property
    def share(self) -> float:
        """The greater one of the orphan files' shares of the listed files and of their bytes.

        A share of bytes that is allowed may be less than this.
        """
        count, size = self.listed
        return float(max(self.files.num_rows / max(count, 1), self.bytes / max(size, 1)))

    @property
    def requests(self) -> int | None:
        """The number of requests to the store that the removal takes; None on local disks, and for a list.

        A store moves an object by a copy and a deletion. S3 deletes up to 1,000 objects by one request, Azure 256.
        """
        mode, number = self.options.mode, int(self.files.num_rows)
        if mode is Mode.LIST or locations.parse(self.table.metadata.location).is_local:
            return None
        reached = self.table.storage.s3(self.table.metadata.location)
        most = reached[0].keys_of_request if reached else 1
        return 2 * number if mode is Mode.QUARANTINE else -(-number // most)

    def facts(self) -> CleaningFacts:
        """Return the plan by its names in the output."""
        return CleaningFacts(
            mode=self.options.mode,
            older_than=iso_time(self.options.older_than),
            listed=self.listed[0],
            reachable=self.referenced,
            kept=self.kept,
            orphans=self.files.num_rows,
            bytes=self.bytes,
            requests=self.requests,
            engine=self.reach.engine,
        )

    def check(self) -> None:
        """Refuse to remove a large part of the table's files.

        Raises:
            RefusedError: the share of orphan files is greater than the options allow.
        """
        if self.share > self.options.max_share:
            share = min(100, int(self.share * 100) + 1)
            listing = f"lake clean {shlex.quote(self.table.identifier)}"
            raise RefusedError(
                f"{self.files.num_rows} of {self.listed[0]} files below the folders of {self.table.identifier} "
                f"are orphans ({self.share:.0%} of the files or bytes)",
                hint=f"look at the list first: {listing}; {Option.MAX_SHARE} {share}% allows it, "
                f'and so does clean.max-share = "{share}%" in a policy of lake maintain',
            )


def plan_cleaning(session: Session, table: Table, options: CleanOptions) -> CleaningPlan:
    """List the files below the table's folders, and find those that nothing needs.

    Raises:
        RefusedError: a safety rule forbids it.
        CorruptFileError: metadata, a manifest or a temporary manifest of a checkpoint cannot be read, or a ref points
            to a snapshot that the table does not have.
        NotFoundError: one of the current snapshots is not complete.
        StorageError: the listing is not complete.
        OutOfTimeError: the time of the run ended before all files were listed.
    """
    options.check(session.clock.now_ms())
    if not GC_ENABLED.of(table.metadata.properties):
        raise RefusedError(
            "gc.enabled is false: the table's files may belong to other tables, so none is an orphan for certain"
        )
    check_refs(table.metadata)
    refuse_shared_location(table, "remove orphan files by hand")
    names = FileNames(options.equal_schemes, options.equal_authorities)
    _check_locations(table, options.location, names)
    reach = Reachability(table.storage, names, session.manifest_engine)
    unlimited = f"lake clean {shlex.quote(table.identifier)} has no limit"
    found, current = list_files(
        table,
        options.location,
        names,
        options.inventory,
        meanwhile=lambda: reach.referenced(table.metadata),
        check=lambda: session.require_time(
            "not all files were listed, and none was removed", hint=unlimited
        ),
    )
    with closing(found) as listed:
        referenced = referenced_names(table, current, listed.names, reach.manifest_files)
        loose = listed.without(referenced.names)
        count = listed.count - loose.num_rows
        limit_ms = options.older_than
        kept = kept_metadata(table, loose["path"].to_pylist(), options.location)
        # After the listing: a state that another catalog commits later needs no older file that this one does not.
        refuse_continued(session, table, "remove orphan files by hand")
        named = by_name(
            table,
            loose["path"].to_pylist(),
            options.exclude,
            options.location,
            lambda: listed.folders_with(referenced.names),
        )
        loose = loose.append_column(_BY_NAME, pa.array(named, pa.string()))
        reasons = _reasons(table, options, loose, referenced, names, limit_ms, kept)
        reasons = _spared(session, table, options, loose, reasons)  # check: spared-by-other-tables
        loose = loose.select(LISTING.names).append_column(_REASON, reasons)
        if options.inventory is not None:
            loose = _as_they_are(table, loose, limit_ms)
        size = listed.bytes_up_to(_bytes_to_know(loose, options))
    plan = CleaningPlan(
        table=table,
        options=options,
        unreferenced=loose.add_column(1, "kind", _kinds(table, loose["path"])),
        listed=(listed.count, size),
        referenced=count,
        reach=reach,
        names=names,
    )
    if not table.metadata.snapshots and DATA_FILE in plan.files["kind"].unique().to_pylist():
        raise RefusedError(
            f"{table.identifier} has no snapshot, so every data file below its folders would be an orphan",
            hint="load rows first, or drop the table with its files",
        )
    return plan


def _check_locations(table: Table, folders: Sequence[str], names: FileNames) -> None:
    """Check the further folders.

    Raises:
        RefusedError: one contains a folder of the table, so that it may contain other tables or the catalog; or no
            table can have it.
    """
    roots = names.of(pa.array([f"{root.rstrip('/')}/" for root in table.roots], pa.string()))
    for folder in folders:
        is_absolute = folder.startswith("/") or locations.has_scheme(folder)
        if not locations.ownable(folder if is_absolute else os.path.abspath(folder)):
            raise RefusedError(f"{Option.LOCATION} {folder} is not a folder of one table")
        own = names.of(pa.array([f"{folder.rstrip('/')}/"], pa.string()))[0].as_py()
        inside = pc.and_(pc.starts_with(roots, own), pc.not_equal(roots, own))
        if pc.any(inside, min_count=0).as_py():
            raise RefusedError(
                f"{Option.LOCATION} {folder} contains the folder of {table.identifier}, and may contain other "
                "tables and the catalog",
                hint="give the folder to which earlier versions of the table wrote",
            )


def _reasons(
    table: Table,
    options: CleanOptions,
    loose: pa.Table,
    referenced: HeldNames,
    names: FileNames,
    limit_ms: int,
    metadata: set[str],
) -> pa.Array:
    """Return why each unreferenced file is kept; null for an orphan. The first reason that applies is given.

    Args:
        table: the table.
        options: the options.
        loose: the files that no snapshot references, with the reasons that their names alone give.
        referenced: the names of the files that the table references.
        names: computes names.
        limit_ms: files that were written after this time are kept.
        metadata: the files that are kept for `KeepReason.METADATA`.
    """
    paths = loose["path"].to_pylist()
    nested = _of_other_tables(table, options, loose, metadata)
    pending = pc.is_in(loose["name"], value_set=checkpoint_names(table, names)).to_pylist()
    mismatched = referenced.has_paths(one_array(loose["name"])).to_pylist()
    found: list[str | None] = []
    sizes = loose["bytes"].to_pylist()
    times = loose["modified_ms"].to_pylist()
    named = loose[_BY_NAME].to_pylist()
    for path, size, is_pending, by, is_other, time_ms in zip(
        paths, sizes, pending, named, mismatched, times, strict=True
    ):
        if size is None:
            found.append(KeepReason.GONE)
        elif is_pending:  # check: checkpoint-files
            found.append(KeepReason.CHECKPOINT)
        elif path in metadata:
            found.append(KeepReason.METADATA)
        elif by is not None:
            found.append(by)
        elif path in nested:  # check: nested-table-files
            found.append(KeepReason.OTHER_TABLE)
        elif time_ms is None:
            found.append(KeepReason.NO_TIME)
        elif time_ms > limit_ms:  # check: young-files
            found.append(KeepReason.YOUNG)
        elif is_other:
            found.append(KeepReason.PREFIX_MISMATCH)
        else:
            found.append(None)
    reasons = pa.array(found, pa.string())
    others = loose.filter(pc.equal(reasons, KeepReason.PREFIX_MISMATCH))
    if others.num_rows and options.prefix_mismatch is PrefixMismatch.ERROR:
        raise RefusedError(
            f"{others['path'][0]} and {others.num_rows - 1} other files have the path of a referenced file with "
            "another scheme or authority: they may be the same files",
            hint=f"if they are not, {Option.PREFIX_MISMATCH} ignore keeps them and continues",
        )
    return reasons


def _spared(
    session: Session, table: Table, options: CleanOptions, loose: pa.Table, reasons: pa.Array
) -> pa.Array:
    """Return the reasons, also for orphan files in the folder of another table."""
    is_orphan = pc.is_null(reasons)
    if not pc.any(is_orphan, min_count=0).as_py():
        return reasons
    is_removal = options.mode is not Mode.LIST
    others = OtherTables(
        session, table, options.location, must_read=is_removal and not options.ignore_unreadable
    )
    theirs = one_array(others.own(loose["path"]))
    return pc.if_else(
        pc.and_(is_orphan, theirs), pa.scalar(str(KeepReason.OTHER_TABLE)), one_array(reasons)
    )


def _as_they_are(table: Table, loose: pa.Table, limit_ms: int) -> pa.Table:
    """Look up the orphan files of an inventory again: they may be gone or have been written again since.

    Args:
        table: the table.
        loose: the files that no snapshot references (`LISTING`), each with its reason.
        limit_ms: files that were written after this time are kept.
    """
    is_orphan = pc.is_null(loose[_REASON])
    files = looked_up(table.storage, loose.filter(is_orphan)["path"].to_pylist())
    reasons = pc.case_when(
        pc.make_struct(
            pc.is_null(files["bytes"]),
            pc.is_null(files["modified_ms"]),
            pc.greater(files["modified_ms"], limit_ms),
        ),
        *(
            pa.scalar(str(reason))
            for reason in (KeepReason.GONE, KeepReason.NO_TIME, KeepReason.YOUNG)
        ),
    )
    files = files.append_column(_REASON, reasons)
    return pa.concat_tables([loose.filter(pc.invert(is_orphan)), files])


def _bytes_to_know(loose: pa.Table, options: CleanOptions) -> float:
    """Return a size of all files at which the orphan files' share of the bytes is allowed."""
    orphans = int(pc.sum(loose.filter(pc.is_null(loose[_REASON]))["bytes"]).as_py() or 0)
    return orphans / options.max_share if options.max_share else float("inf")


def _of_other_tables(
    table: Table, options: CleanOptions, loose: pa.Table, metadata: set[str]
) -> set[str]:
    """Return the files that belong to a table below the folders, or whose names have unsafe parts."""
    files = loose.select(["path"]).filter(
        pc.invert(pc.match_substring_regex(loose["path"], r"(?i)\.metadata\.json|version-hint"))
    )
    own = set(in_own_folders(table, files)["path"].to_pylist())
    more = list(options.location)
    nested = NestedTables(table.storage, more)
    return {
        path
        for path in files["path"].to_pylist()
        if path not in own
        and not (more and locations.deletable(path, more) and not nested.owns(path))
    } | {
        path
        for path in loose["path"].to_pylist()
        if is_metadata_name(path)
        and path not in metadata
        and not locations.deletable(path, [*table.roots, *more])
    }


def _kinds(table: Table, paths: pa.ChunkedArray) -> pa.Array:
    """Return what kind of file each is, by its place and name."""
    folders = [
        normalize_locations([folder.rstrip("/") + "/"])[0].as_py()
        for folder in (
            table.metadata_folder,
            locations.join(table.metadata.location, "metadata"),
        )
    ]
    names = normalize_locations(paths)
    last = pc.replace_substring_regex(names, r"^.*/", "")
    beside = reduce(pc.or_, [pc.starts_with(names, folder) for folder in folders])
    avro = pc.and_(beside, pc.ends_with(last, ".avro"))
    cases = [
        (pc.match_substring(last, ".metadata.json"), METADATA_FILE),
        (pc.and_(avro, pc.starts_with(last, "snap-")), MANIFEST_LIST),
        (avro, MANIFEST),
        (pc.and_(beside, pc.match_substring_regex(last, _STATISTICS)), STATISTICS),
    ]
    return pc.case_when(
        pc.make_struct(*(condition for condition, _ in cases)),
        *(kind for _, kind in cases),
        DATA_FILE,
    )
