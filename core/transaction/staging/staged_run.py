"""Staged runs: files that are written but not committed, listed in manifests like those of Flink's sinks.

A run has one temporary manifest per kind of file. Their locations are derived from its id, and their names and
structure match Iceberg's ManifestOutputFileFactory and FlinkManifestUtil: the job is the run or the stream, the
operator is lake, the attempt 0, the checkpoint 1 or the stream's epoch. Additional Avro header entries contain what
a commit needs. The first manifest is written last and removed first: without it, a run cannot be committed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.clock import UUID_FORM
from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError
from lake.core.base.units import whole_number
from lake.core.io.avro.container import Container, read_container
from lake.core.table.flink.commits import LAKE_OPERATOR_ID, MANIFESTS_LOCATION, job_id_of
from lake.core.table.manifests.api import ManifestContext, encode_manifest, entries_of, files_of
from lake.core.table.manifests.data_files import DATA, DataFile
from lake.core.table.manifests.decode import decode_entries, open_manifest
from lake.core.table.manifests.schemas import ADDED, ENTRY_COLUMNS, MANIFEST_COLUMNS
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.streams import STREAM, StreamEpoch
from lake.core.transaction.commit.guards import Guard, RunGuard, StreamGuard

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

# The checkpoint of a run that is not an epoch of a stream.
RUN_CHECKPOINT = 1
# What a run is found by: its id, or the epoch that it is.
RunName = str | StreamEpoch
# Header entries: those of the run, equal in all its manifests, and the number of entries in this manifest.
RUN = "lake.run-id"
OPERATION = "lake.operation-id"
BRANCH = "lake.branch"
BASE = "lake.base-snapshot-id"
WRITER = "lake.writer"
WRITTEN = "lake.written-at-ms"
MANIFESTS = "lake.manifests"
FILES = "lake.files"

_DELETES = 1
_MOST_MANIFESTS = 2
_CONTENTS = {"data": DATA, "deletes": _DELETES}
_SNAPSHOT_ID = 0  # as in Flink's sinks: the actual id is known at the commit
_UUID = re.compile(UUID_FORM)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMarks:
    """The properties of a run in its manifests' headers.

    Args:
        run_id: the run's id; that of the stream for an epoch.
        operation_id: a UUID that is part of the names of all its files; empty if it is not valid.
        branch: the branch to which it will be committed.
        base_snapshot_id: the branch's head when the run began; None for an empty branch.
        writer: the process that is about to commit it (`lake.core.base.process_identity`); empty for a staged run.
        written_ms: when the manifests were written, in ms since 1970.
        epoch: the epoch of a stream that the run is; None for another run.
    """

    run_id: str
    operation_id: str = ""
    branch: str = ancestry.MAIN
    base_snapshot_id: int | None = None
    writer: str = ""
    written_ms: int = 0
    epoch: StreamEpoch | None = None

    @property
    def name(self) -> RunName:
        """What the run is found by."""
        return self.epoch or self.run_id

    @property
    def guard(self) -> Guard:
        """What shows that the run is committed."""
        return guard_of(self.name)

    @property
    def is_interrupted(self) -> bool:
        """Whether a load that was going to commit the run itself wrote it, not one with the option to stage."""
        return bool(self.writer)

    @property
    def has_own_id(self) -> bool:
        """Whether a user named the run; else its id is that of the operation that wrote it."""
        return self.run_id != self.operation_id

    def to_header(self) -> dict[str, str]:
        """Return the entries of an Avro header."""
        return {
            RUN: self.run_id,
            OPERATION: self.operation_id,
            BRANCH: self.branch,
            BASE: "" if self.base_snapshot_id is None else str(self.base_snapshot_id),
            WRITER: self.writer,
            WRITTEN: str(self.written_ms),
            **({STREAM: self.epoch.text} if self.epoch else {}),
        }

    @property
    def is_known(self) -> bool:
        """Whether the marks were read; otherwise only the name is known."""
        return bool(self.operation_id)

    @classmethod
    def of(cls, name: RunName) -> RunMarks:
        """Return the marks of a run of which only the name is known."""
        return cls(run_id=name) if isinstance(name, str) else cls(run_id=name.stream, epoch=name)

    @classmethod
    def of_header(cls, header: Mapping[str, str], run_id: str) -> RunMarks:
        """Read an untrusted Avro header; ``run_id`` is the id or the job id for which the manifest was found."""
        operation_id, base = header.get(OPERATION, ""), whole_number(header.get(BASE, ""))
        run_id_in_header = header.get(RUN, run_id)
        epoch = StreamEpoch.of_text(header.get(STREAM))
        return cls(
            run_id=run_id_in_header if job_id_of(run_id_in_header) == job_id_of(run_id) else run_id,
            epoch=epoch if epoch and job_id_of(epoch.stream) == job_id_of(run_id) else None,
            operation_id=operation_id if _UUID.fullmatch(operation_id) else "",
            branch=header.get(BRANCH, ancestry.MAIN),
            base_snapshot_id=base,
            writer=header.get(WRITER, ""),
            written_ms=whole_number(header.get(WRITTEN, "")) or 0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRun:
    """A run that is written and not known to be committed.

    Args:
        marks: its properties.
        data: its data files.
        deletes: its delete files.
        problem: why it cannot be committed; None if it can.
    """

    marks: RunMarks
    data: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    problem: str | None = None

    @property
    def files(self) -> list[DataFile]:
        """All its files."""
        return [*self.data, *self.deletes]

    @property
    def kinds(self) -> list[tuple[int, Sequence[DataFile]]]:
        """Its files by manifest content; one item for each manifest."""
        return [item for item in ((DATA, self.data), (_DELETES, self.deletes)) if item[1]]


def shown_run(name: RunName) -> str:
    """Return how messages refer to a run."""
    return f"run {name}" if isinstance(name, str) else str(name)


def guard_of(name: RunName) -> Guard:
    """Return what shows that a run is committed."""
    return RunGuard(name) if isinstance(name, str) else StreamGuard(name)


def job_and_checkpoint(name: RunName) -> tuple[str, int]:
    """Return a run's identifiers in place of Flink's job id and checkpoint."""
    if isinstance(name, str):
        return job_id_of(name), RUN_CHECKPOINT
    return job_id_of(name.stream), name.number


def manifests_folder(table: Table) -> str:
    """Return the folder of a table's temporary manifests."""
    chosen = table.properties.get(MANIFESTS_LOCATION, "").rstrip("/")
    return chosen or table.metadata_folder


def manifest_locations(table: Table, run: RunName) -> list[str]:
    """Return the locations of a run's manifests, that of the data manifest first."""
    job_id, checkpoint_id = job_and_checkpoint(run)
    name = f"{job_id}-{LAKE_OPERATOR_ID}-{0:05}-{0}-{checkpoint_id}"
    return [
        locations.join(manifests_folder(table), f"{name}-{number:05}.avro")
        for number in range(1, _MOST_MANIFESTS + 1)
    ]


def publish_manifests(table: Table, run: StagedRun) -> None:
    """Write a run's manifests; its files, all with one partition spec, already exist.

    Raises:
        BadInputError: a file has another spec than the first.
    """
    marks = {**run.marks.to_header(), MANIFESTS: str(len(run.kinds))}
    locations_of_run = manifest_locations(table, run.marks.name)[: len(run.kinds)]
    for location, (content, files) in reversed(list(zip(locations_of_run, run.kinds, strict=True))):
        # Before a commit they are used only if this process dies; if the machine does, the source is loaded again.
        table.storage.write(
            location, _encoded(table, content, files, marks), durable=not run.marks.writer
        )


def _encoded(
    table: Table, content: int, files: Sequence[DataFile], marks: Mapping[str, str]
) -> bytes:
    context = ManifestContext.of(table.metadata, files[0].spec_id, content)
    spec, schema = context.spec, context.schema
    return encode_manifest(
        entries_of(files, spec=spec, schema=schema, status=ADDED, snapshot_id=_SNAPSHOT_ID),
        context,
        # An Avro file that is cut at the end of a block is a valid shorter one.
        marks={**marks, FILES: str(len(files))},
    )


def find_marks(table: Table, name: RunName) -> RunMarks | None:
    """Return the marks in the first manifest of a run, without which it cannot be committed; None if it is missing.

    Raises:
        CorruptFileError: the manifest is damaged.
    """
    location = manifest_locations(table, name)[0]
    try:
        container = read_container(table.storage.read(location), name=location)
    except NotFoundError:
        return None
    return RunMarks.of_header(_header(container), RunMarks.of(name).run_id)


def find_run(table: Table, name: RunName) -> StagedRun | None:
    """Return the staged run with this name; None if there is none."""
    found: list[Container] = []
    problem: str | None = None
    for location in manifest_locations(table, name):
        try:
            found.append(read_container(table.storage.read(location), name=location))
        except NotFoundError:
            continue
        except CorruptFileError as error:
            problem = error.message
    if not found and problem is None:
        return None
    marks = RunMarks.of(name)
    if found:
        marks = RunMarks.of_header(_header(found[0]), marks.run_id)
    if marks.name != name and not (isinstance(name, str) and marks.epoch is None):
        problem = (
            problem or f"the files of {shown_run(marks.name)} have the names of {shown_run(name)}"
        )
    if problem is None:
        try:
            data, deletes = _files(table, found)
            return StagedRun(marks=marks, data=data, deletes=deletes)
        except BadInputError as error:
            problem = error.message
    return StagedRun(marks=marks, problem=problem)


def _files(table: Table, containers: Sequence[Container]) -> tuple[list[DataFile], list[DataFile]]:
    """Return data and delete files.

    Raises:
        CorruptFileError: a manifest or a file of the run is missing, cut short or damaged.
    """
    headers = [_header(container) for container in containers]
    if any(whole_number(header.get(MANIFESTS, "")) != len(containers) for header in headers):
        raise CorruptFileError(f"{containers[0].name} is not the run's only manifest")
    files: dict[int, list[DataFile]] = {DATA: [], _DELETES: []}
    for container, header in zip(containers, headers, strict=True):
        content = _CONTENTS.get(header.get("content", "data"), DATA)
        found = _entries(table, container, header, content)
        if len(found) != whole_number(header.get(FILES, "")):
            raise CorruptFileError(f"{container.name} is cut short")
        files[content] += found
    _check_sizes(table, [*files[DATA], *files[_DELETES]])
    return files[DATA], files[_DELETES]


def _check_sizes(table: Table, files: Sequence[DataFile]) -> None:
    there = table.storage.look_up(file.path for file in files)
    for file in files:
        found = there[file.path]
        if found is None or found.length != file.size_bytes:
            what = "is missing" if found is None else f"does not have {file.size_bytes} bytes"
            raise CorruptFileError(f"{file.path} {what}")


def _entries(
    table: Table, container: Container, header: Mapping[str, str], content: int
) -> list[DataFile]:
    metadata, spec_id = table.metadata, whole_number(header.get("partition-spec-id", ""))
    spec = metadata.specs().get(-1 if spec_id is None else spec_id)
    if spec is None:
        raise CorruptFileError(f"{container.name} has a partition spec that the table lacks")
    row = {
        **dict.fromkeys(MANIFEST_COLUMNS),
        "manifest_path": container.name,
        "partition_spec_id": spec.spec_id,
        "content": content,
        # Inherited values are replaced at the commit.
        "sequence_number": 0,
        "added_snapshot_id": _SNAPSHOT_ID,
    }
    entries = decode_entries([open_manifest(row, container)], metadata, list(ENTRY_COLUMNS))
    return files_of(entries.select(list(ENTRY_COLUMNS)), spec=spec, schema=metadata.schema())


def _header(container: Container) -> dict[str, str]:
    return {key: value.decode(errors="replace") for key, value in container.metadata.items()}


def remove_manifests(table: Table, name: RunName, *, count: int = _MOST_MANIFESTS) -> list[str]:
    """Remove a run's manifests, beginning with the first; return those that could not be removed."""
    failed: list[str] = []
    for location in manifest_locations(table, name)[:count]:
        if not failed:
            failed += table.storage.delete([location]).failed
    return failed
