"""Runs whose files are written and not committed yet, told of by manifests such as Flink's sinks leave.

A run leaves one temporary manifest a kind of files, at places that follow from its id, named and laid out as
Iceberg's ManifestOutputFileFactory and FlinkManifestUtil do: the job is the run, the operator lake, the
attempt 0, the checkpoint 1. More entries of the Avro header say what a commit must know. The first manifest
is written last and removed first: a run without it is none that could be committed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.avro.codecs import codec_of_manifests
from lake.core.avro.container import Container, read_container
from lake.core.errors import BadInputError, CorruptFileError, NotFoundError
from lake.core.flink.commits import LAKE_OPERATOR_ID, MANIFESTS_LOCATION
from lake.core.manifests.api import encode_manifest, entries_of, files_of
from lake.core.manifests.data_files import DATA, DataFile
from lake.core.manifests.decode import decode_entries, open_manifest
from lake.core.manifests.schemas import ADDED, ENTRY_COLUMNS, MANIFEST_COLUMNS
from lake.core.snapshots import ancestry
from lake.core.units import whole_number

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table

CHECKPOINT_ID = 1
# Entries of the header: of the run, the same in all its manifests, and how many entries this one has.
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
_SNAPSHOT_ID = 0  # as Flink's sinks: the real one is known at the commit
_HEX = re.compile(r"[0-9a-f]{32}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMarks:
    """What its manifests say of a run.

    Args:
        run_id: its id.
        operation_id: a UUID that is part of all its files' names; empty where that cannot be read.
        branch: where it is to be committed.
        base_snapshot_id: the branch's head when the run began; None for an empty branch.
        writer: the process that is about to commit it (`lake.core.process_identity`); empty for a run that waits.
        written_ms: when the manifests were written, in ms since 1970.
    """

    run_id: str
    operation_id: str = ""
    branch: str = ancestry.MAIN
    base_snapshot_id: int | None = None
    writer: str = ""
    written_ms: int = 0

    @property
    def job_id(self) -> str:
        """What stands for the run in the names of its manifests."""
        return job_id_of(self.run_id)

    def to_header(self) -> dict[str, str]:
        """Return the entries of an Avro header."""
        return {
            RUN: self.run_id,
            OPERATION: self.operation_id,
            BRANCH: self.branch,
            BASE: "" if self.base_snapshot_id is None else str(self.base_snapshot_id),
            WRITER: self.writer,
            WRITTEN: str(self.written_ms),
        }

    @classmethod
    def of_header(cls, header: Mapping[str, str], run_id: str) -> RunMarks:
        """Read an Avro header that may say anything; ``run_id`` is what the manifest was looked for by."""
        operation_id, base = header.get(OPERATION, ""), whole_number(header.get(BASE, ""))
        told = header.get(RUN, run_id)
        return cls(
            run_id=told if job_id_of(told) == job_id_of(run_id) else run_id,
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
        marks: what is known of it.
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
        """Its files by what the manifest that names them holds, as many as there are manifests."""
        return [item for item in ((DATA, self.data), (_DELETES, self.deletes)) if item[1]]


def job_id_of(run_id: str) -> str:
    """Return what stands for a run in the place of Flink's job id: 32 hexadecimal digits."""
    plain = run_id.replace("-", "") if _UUID.fullmatch(run_id) else run_id
    return plain if _HEX.fullmatch(plain) else hashlib.sha256(run_id.encode()).hexdigest()[:32]


def manifests_folder(table: Table) -> str:
    """Return where a table's temporary manifests lie."""
    chosen = table.properties.get(MANIFESTS_LOCATION, "").rstrip("/")
    return chosen or table.metadata_folder


def manifest_locations(table: Table, run_id: str) -> list[str]:
    """Return where a run's manifests lie: data first, and as many as there are kinds of files."""
    name = f"{job_id_of(run_id)}-{LAKE_OPERATOR_ID}-{0:05}-{0}-{CHECKPOINT_ID}"
    return [
        locations.join(manifests_folder(table), f"{name}-{number:05}.avro")
        for number in range(1, _MOST_MANIFESTS + 1)
    ]


def publish_manifests(table: Table, run: StagedRun) -> None:
    """Write a run's manifests; its files, all of one partition spec, are there already.

    Raises:
        BadInputError: a file is of another spec than the first.
    """
    marks = {**run.marks.to_header(), MANIFESTS: str(len(run.kinds))}
    places = manifest_locations(table, run.marks.run_id)[: len(run.kinds)]
    for location, (content, files) in reversed(list(zip(places, run.kinds, strict=True))):
        # Before a commit they only serve one who dies alone; if the machine does, the source is loaded anew.
        table.storage.write(
            location, _encoded(table, content, files, marks), durable=not run.marks.writer
        )


def _encoded(
    table: Table, content: int, files: Sequence[DataFile], marks: Mapping[str, str]
) -> bytes:
    metadata = table.metadata
    spec, schema = metadata.specs()[files[0].spec_id], metadata.schema()
    codec, level = codec_of_manifests(metadata.properties)
    return encode_manifest(
        entries_of(files, spec=spec, schema=schema, status=ADDED, snapshot_id=_SNAPSHOT_ID),
        format_version=metadata.format_version,
        spec=spec,
        schema=schema,
        content=content,
        codec=codec,
        level=level,
        # Cut at the edge of a block, an Avro file is a valid shorter one.
        marks={**marks, FILES: str(len(files))},
    )


def find_run(table: Table, run_id: str) -> StagedRun | None:
    """Return what lies there of a run; None if nothing does."""
    found: list[Container] = []
    problem: str | None = None
    for location in manifest_locations(table, run_id):
        try:
            found.append(read_container(table.storage.read(location), name=location))
        except NotFoundError:
            continue
        except CorruptFileError as error:
            problem = error.message
    if not found and problem is None:
        return None
    header = _header(found[0]) if found else {}
    marks = RunMarks.of_header(header, run_id)
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
        raise CorruptFileError(f"{container.name} is of a partition spec that the table lacks")
    row = {
        **dict.fromkeys(MANIFEST_COLUMNS),
        "manifest_path": container.name,
        "partition_spec_id": spec.spec_id,
        "content": content,
        # What entries inherit here is replaced at the commit.
        "sequence_number": 0,
        "added_snapshot_id": _SNAPSHOT_ID,
    }
    entries = decode_entries([open_manifest(row, container)], metadata, list(ENTRY_COLUMNS))
    return files_of(entries.select(list(ENTRY_COLUMNS)), spec=spec, schema=metadata.schema())


def _header(container: Container) -> dict[str, str]:
    return {key: value.decode(errors="replace") for key, value in container.metadata.items()}


def remove_manifests(table: Table, run_id: str, *, count: int = _MOST_MANIFESTS) -> list[str]:
    """Remove a run's manifests, the first one first; return those that could not be.

    Args:
        table: the table.
        run_id: the run.
        count: how many there are at most.
    """
    failed: list[str] = []
    for location in manifest_locations(table, run_id)[:count]:
        if not failed:
            failed += table.storage.delete([location]).failed
    return failed
