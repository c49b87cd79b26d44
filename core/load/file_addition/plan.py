"""Plan to add existing Parquet files: find them, check that they are not a table's, and read their footers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table.name_mapping import create_mapping_from_schema

from lake.core.base import locations
from lake.core.base.errors import RefusedError
from lake.core.base.progress import Meter, shown
from lake.core.data.columns.metrics import modes
from lake.core.data.sources.discovery import PARQUET, find_sources
from lake.core.io.storage.file_names import FileNames
from lake.core.io.work_ahead import ReadingThreads
from lake.core.load.file_addition.columns import field_names
from lake.core.load.file_addition.facts import AdditionFacts
from lake.core.load.file_addition.footers import Target, describe
from lake.core.spec.properties.table_properties import NAME_MAPPING
from lake.core.spec.types.partition_paths import partition_path
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import live_files
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.transaction.commit.guards import RunGuard
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.garbage.nested_tables import NestedTables
from lake.core.transaction.garbage.other_tables import table_of_file
from lake.core.transaction.garbage.own_files import in_own_folders

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

_THREADS = 16
_COPY = "copy it to another folder, or load its rows with `lake ingest`"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPlan:
    """Files to add to a branch.

    Args:
        table: the table that the plan was made for.
        branch: the branch.
        run_id: the id of the run; None for none.
        files: the entries of the files; empty if the branch contains the run already.
        name_mapping: the name mapping that the commit sets; None if it sets none.
        with_ids: the number of files with field ids.
        own: the locations of files in the table's folders, which `lake expire` deletes one day.
    """

    table: Table
    branch: str
    run_id: str | None = None
    files: Sequence[DataFile] = ()
    name_mapping: str | None = None
    with_ids: int = 0
    own: frozenset[str] = field(default_factory=frozenset)

    def facts(self) -> AdditionFacts:
        """Return the plan for the outcome."""
        return AdditionFacts(
            added_files=len(self.files),
            added_rows=sum(item.record_count for item in self.files),
            added_bytes=sum(item.size_bytes for item in self.files),
            partitions=len({item.partition for item in self.files}),
            files_with_ids=self.with_ids,
            sets_name_mapping=self.name_mapping is not None,
            files_in_table=len(self.own),
            files_elsewhere=len(self.files) - len(self.own),
        )

    def rows(self) -> list[tuple[Any, ...]]:
        """Return for each file: location, rows, bytes, partition, and whether it is in the table's folders."""
        spec, schema = self.table.spec, self.table.schema
        return [
            (
                item.path,
                item.record_count,
                item.size_bytes,
                partition_path(spec, schema, item.partition),
                item.path in self.own,
            )
            for item in self.files
        ]


def plan_addition(
    session: Session, table: Table, names: Sequence[str], *, branch: str, run_id: str | None
) -> AddPlan:
    """Plan to add the files that names, globs and folders refer to.

    Raises:
        NotFoundError: a name does not refer to a file, or there is no such branch.
        RefusedError: a file is part of this or another table, or its rows would not be read as the table's.
        CorruptFileError: a file is not a Parquet file, or is damaged.
    """
    require_writable(table, branch)
    ancestry.branch_head(table.metadata, branch)
    if run_id is not None and RunGuard(run_id).is_held(table, branch, session.clock.now_ms()):
        return AddPlan(table=table, branch=branch, run_id=run_id)
    found = find_sources(table.storage, names, PARQUET)
    paths = [_location(table, item.path) for item in found]
    _refuse_tables(table, paths)
    _refuse_referenced(table, paths)
    _refuse_second_names(table, paths, branch)
    present = NAME_MAPPING.of(table.properties)
    mapping = present or create_mapping_from_schema(table.schema).model_dump_json()
    target = Target(
        schema=table.schema,
        spec=table.spec,
        names=field_names(table.metadata),
        mapping=mapping,
        modes=modes(table.schema, table.properties),
    )
    with (
        shown(session.progress, Meter("reading footers", tasks=len(paths))) as meter,
        ReadingThreads(_THREADS) as pool,
    ):
        files = []
        for item in pool.map(lambda path: describe(table.storage, path, target), paths):
            files.append(item)
            meter.advance(tasks=1)
    with_ids = sum(item.has_ids for item in files)
    own = in_own_folders(table, pa.table({"path": pa.array(paths, pa.string())}))
    return AddPlan(
        table=table,
        branch=branch,
        run_id=run_id,
        files=[item.entry for item in files],
        name_mapping=mapping if present is None and with_ids < len(files) else None,
        with_ids=with_ids,
        own=frozenset(own["path"].to_pylist()),
    )


def _location(table: Table, path: str) -> str:
    """Return a file's location as the table names its files.

    Raises:
        RefusedError: not every reader of the table finds the file by this name.
    """
    parsed, home = locations.parse(path), locations.parse(table.metadata.location)
    if parsed.is_local != home.is_local:
        raise RefusedError(
            f"{path} is not in the kind of storage of {table.identifier}, {table.metadata.location}: its readers may "
            "not reach it",
            hint="load its rows with `lake ingest`",
        )
    name = parsed.path if parsed.is_local else path
    if locations.is_truncated(name) or {".", ".."} & set(parsed.path.split("/")):
        raise RefusedError(
            f"{path!r} contains #, ?, a control character or a folder . or .., which readers of tables understand "
            "differently",
            hint="rename the file or its folder, or load its rows with `lake ingest`",
        )
    if not parsed.is_local:
        return path
    if os.path.islink(parsed.path):
        raise RefusedError(
            f"{path} is a symbolic link, and lake does not follow links to files of a table",
            hint="name the file itself",
        )
    return f"file://{name}" if locations.has_scheme(table.metadata.location) else name


def _refuse_tables(table: Table, paths: Sequence[str]) -> None:
    """Refuse files in the folders to which a table's writers write.

    Raises:
        RefusedError: the file may be one of an unfinished load, or another table may delete it.
    """
    names = FileNames()
    folders = [
        f"{folder.rstrip('/')}/"
        for folder in (
            table.data_location,
            table.metadata_folder,
            *(locations.join(root, name) for root in table.roots for name in ("data", "metadata")),
        )
    ]
    own = tuple(names.of(pa.array(folders, pa.string())).to_pylist())
    others: dict[str, NestedTables] = {}
    for path, name in zip(paths, names.of(pa.array(paths, pa.string())).to_pylist(), strict=True):
        if name.startswith(own):
            raise RefusedError(
                f"{path} is in a folder to which {table.identifier} is written: it may be part of a load that is not "
                "finished, or that was undone",
                hint=_COPY,
            )
        top = _top(path)
        if others.setdefault(top, NestedTables(table.storage, [top])).owns(path):
            raise RefusedError(
                f"{path} is in a folder of another table, whose maintenance may delete it",
                hint=_COPY,
            )
    if found := table_of_file(table, paths):  # check: added-file-of-other-table
        raise RefusedError(
            f"{found[0]} is in a folder of another table, whose maintenance may delete it: {found[1]}",
            hint=_COPY,
        )


def _top(path: str) -> str:
    """Return the bucket of a location, or the first folder of a local path."""
    parsed = locations.parse(path)
    first = "" if not parsed.is_local else "/" + parsed.path.split("/")[1]
    return f"{parsed.scheme}://{parsed.authority}{first}"


def _refuse_referenced(table: Table, paths: Sequence[str]) -> None:
    known = find_referenced(table.storage, table.metadata, paths)
    refuse_known(table, known)


def _refuse_second_names(table: Table, paths: Sequence[str], branch: str) -> None:
    """Refuse hard links: a file under two names would be in the table twice, and its rows too.

    Raises:
        RefusedError: two of the files, or one of them and a file of the branch, are the same file.
    """
    linked: dict[tuple[int, int], str] = {}
    for path in paths:
        if (identity := _linked_file(path)) is None:
            continue
        if identity in linked:
            raise RefusedError(
                f"{path} and {linked[identity]} are the same file under two names (hard links)",
                hint="nothing was changed; give one of them",
            )
        linked[identity] = path
    head = ancestry.branch_head(table.metadata, branch)
    if not linked or head is None:
        return
    live = live_files(table, head, columns=("file_path",), with_deletes=False)
    paths_of = (part["file_path"].to_pylist() for part in live.by_spec.values())
    for path in chain.from_iterable(paths_of):
        if (identity := _linked_file(path)) in linked:
            raise RefusedError(
                f"{linked[identity]} is the same file as {path} of {table.identifier}, under another name (a hard "
                "link)",
                hint="nothing was changed; a file that is added again would double its rows",
            )


def _linked_file(path: str) -> tuple[int, int] | None:
    """Return the device and the inode of a local file that has several names; None for any other file."""
    parsed = locations.parse(path)
    if not parsed.is_local:
        return None
    try:
        status = os.stat(parsed.path)
    except OSError:
        # A file of the table that is missing is not one of these files.
        return None
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 else None


def refuse_known(table: Table, known: frozenset[str]) -> None:
    """Refuse files that a snapshot of the table references.

    Raises:
        RefusedError: there are some.
    """
    if known:
        raise RefusedError(
            f"{len(known)} of the files are or were in {table.identifier}, e.g. {min(known)}",
            hint="nothing was changed; a file that is added again would double its rows",
        )
