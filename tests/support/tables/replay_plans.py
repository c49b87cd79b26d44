"""Replay plans by hand, from the temporary manifests that must be replayed or from invented ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from lake.core.base.settings import Settings
from lake.core.load.replay.model import PENDING, FoundCheckpoint, PendingJob, ReplayPlan
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.selection import open_catalog
from lake.core.table.flink.state import DYNAMIC_SINK, FLINK_SINK, ICEBERG_SINK
from lake.core.table.manifests.api import (
    ManifestContext,
    encode_manifest,
    entries_of,
    read_manifest,
)
from lake.core.table.manifests.data_files import DATA, DataFile
from lake.core.table.manifests.schemas import ADDED, ENTRY_COLUMNS
from lake.core.table.snapshots import ancestry
from lake.core.transaction.session import Session
from lake.core.transaction.staging.temporary_manifests import TemporaryManifest
from support.tables.checkpoint_writer import (
    byte_array,
    collector,
    delta_manifests,
    iceberg_committable,
    java_string,
    manifest,
    metadata,
    operator,
    operator_bytes,
    operator_handle,
    relative,
    sorted_map,
    subtask_state,
)
from support.tables.flink_fixtures import FlinkFixture

GIVEN_ANEW = ("snapshot_id", "sequence_number", "file_sequence_number", "first_row_id")


def session_on(fixture: FlinkFixture, clock: Any = None) -> Session:
    """Open a session on a fixture's catalog."""
    settings = Settings(warehouse=str(fixture.warehouse), catalog_type=fixture.catalog_type)
    session = Session(settings=settings, catalog=open_catalog(settings))
    if clock is not None:
        session.clock = clock
    return session


def sink_of(fixture: FlinkFixture) -> str:
    """Return which sink wrote a fixture."""
    sink = fixture.truth["sink"].split()[0]
    assert sink in {FLINK_SINK, ICEBERG_SINK, DYNAMIC_SINK}
    return str(sink)


def plan_of(
    session: Session, fixture: FlinkFixture, *, replace_partitions: bool = False
) -> ReplayPlan:
    """Return the plan that replays exactly what a fixture's truth says."""
    table = session.table(fixture.table)
    groups: dict[tuple[str, str, int, int], list[TemporaryManifest]] = {}
    for item in fixture.truth["temp_manifests"]:
        if item["must_replay"]:
            key = (item["job"], item["operator"], item["checkpoint"], item["attempt"])
            groups.setdefault(key, []).append(temporary_manifest(table, Path(item["path"])))
    found = tuple(
        checkpoint(number, manifests, job_id=job, operator_id=operator, attempt=attempt)
        for (job, operator, number, attempt), manifests in sorted(groups.items())
    )
    return plan(table, found, sink=sink_of(fixture), replace_partitions=replace_partitions)


def plan(
    table: Table,
    checkpoints: Iterable[FoundCheckpoint],
    *,
    sink: str = FLINK_SINK,
    branch: str = ancestry.MAIN,
    replace_partitions: bool = False,
) -> ReplayPlan:
    """Return the plan that commits checkpoints."""
    found = tuple(checkpoints)
    jobs: dict[tuple[str, str], list[FoundCheckpoint]] = {}
    for item in found:
        jobs.setdefault((item.job_id, item.operator_id), []).append(item)
    head = ancestry.branch_head(table.metadata, branch)
    return ReplayPlan(
        table=table,
        branch=branch,
        base_snapshot_id=head.snapshot_id if head else None,
        found=found,
        jobs=tuple(
            PendingJob(sink=sink, job_id=job, operator_id=operator, checkpoints=tuple(items))
            for (job, operator), items in jobs.items()
        ),
        replace_partitions=replace_partitions,
    )


JOB = "a" * 32
OPERATOR = "b" * 32


def checkpoint(
    number: int,
    manifests: Iterable[TemporaryManifest] = (),
    *,
    state: str = PENDING,
    job_id: str = JOB,
    operator_id: str = OPERATOR,
    **more: Any,
) -> FoundCheckpoint:
    """Return a checkpoint with the given manifests."""
    return FoundCheckpoint(
        job_id=job_id,
        operator_id=operator_id,
        checkpoint_id=number,
        state=state,
        reason="the test says so",
        manifests=tuple(sorted(manifests, key=lambda item: item.content)),
        **more,
    )


def temporary_manifest(table: Table, path: Path) -> TemporaryManifest:
    """Read a temporary manifest, its header by fastavro."""
    with path.open("rb") as file:
        header: Mapping[str, Any] = fastavro.reader(file).metadata
    content = DATA if header.get("content", "data") == "data" else 1
    spec_id = int(header["partition-spec-id"])
    row = {
        "manifest_path": str(path),
        "manifest_length": path.stat().st_size,
        "partition_spec_id": spec_id,
        "content": content,
        "added_snapshot_id": None,
        "sequence_number": 0,
        "first_row_id": None,
    }
    entries = read_manifest(table.storage, row, table.metadata)
    columns = {
        name: pa.nulls(entries.num_rows, kind) if name in GIVEN_ANEW else entries[name]
        for name, kind in ENTRY_COLUMNS.items()
    }
    return TemporaryManifest(
        path=str(path),
        length=path.stat().st_size,
        modified_ms=int(path.stat().st_mtime * 1000),
        content=content,
        spec_id=spec_id,
        entries=pa.table(columns),
    )


def write_manifest(
    table: Table,
    files: Sequence[DataFile],
    *,
    checkpoint_id: int,
    counter: int,
    job_id: str = JOB,
    operator_id: str = OPERATOR,
    attempt: int = 0,
    folder: str | None = None,
) -> str:
    """Write a temporary manifest as a sink does, all files of one spec and kind; return its path."""
    spec = table.metadata.specs()[files[0].spec_id]
    entries = entries_of(files, spec=spec, schema=table.schema, status=ADDED, snapshot_id=0)
    data = encode_manifest(
        entries,
        ManifestContext(
            format_version=table.metadata.format_version,
            spec=spec,
            schema=table.schema,
            content=min(files[0].content, 1),
        ),
    )
    name = f"{job_id}-{operator_id}-00000-{attempt}-{checkpoint_id}-{counter:05d}.avro"
    location = f"{folder or table.metadata_folder}/{name}"
    table.storage.write(location, data)
    return location


def _length(location: str) -> int:
    return Path(location.removeprefix("file://")).stat().st_size


def take_checkpoint(
    folder: Path,
    sink: str,
    manifests: Mapping[int, Sequence[tuple[str, int]]],
    length: Callable[[str], int] = _length,
) -> None:
    """Write a checkpoint whose state names the manifests: number to (location, content) of each.

    Args:
        folder: where the checkpoint is written.
        sink: the sink's state.
        manifests: by number of the checkpoint.
        length: returns the length of a manifest in bytes.
    """
    number = max(manifests)
    deltas = {
        key: delta_manifests(
            *(
                manifest(path, length=length(path), content=c, files=None, rows=None)
                for path, c in named
            )
        )
        for key, named in manifests.items()
    }
    if sink == FLINK_SINK:
        states = {
            "iceberg-flink-job-id": (0, [java_string(JOB)]),
            "iceberg-files-committer-state": (0, [sorted_map(deltas)]),
        }
    else:
        requests = {
            key: [(1, iceberg_committable(JOB, OPERATOR, key, delta), 0)]
            for key, delta in deltas.items()
        }
        element = byte_array(collector("2", requests))
        states = {"streaming_committer_raw_states": (0, [element])}
    data, offsets = operator_bytes(states)
    # State of this size is in a file of its own.
    (folder / "state").write_bytes(data)
    managed = operator_handle(offsets, relative("state", len(data)))
    committer = operator(6, OPERATOR, {0: subtask_state(6, managed=managed)})
    (folder / "_metadata").write_bytes(metadata(6, number, [committer]))
