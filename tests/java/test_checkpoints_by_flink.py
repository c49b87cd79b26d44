"""Checkpoints and savepoints that a real Flink just wrote are read, however it keeps its state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.peers.flink_peer import FlinkPeer, Job
from support.tables.flink_fixtures import FlinkFixture

from lake.core.io.storage.storage import Storage
from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.state import DYNAMIC_SINK, FLINK_SINK, ICEBERG_SINK

pytestmark = pytest.mark.java

_IN_FILES = {"execution.checkpointing.data-inline-threshold": "0 b"}
_COMPRESSED = {"execution.checkpointing.snapshot-compression": "true"}
_MERGED = {"execution.checkpointing.file-merging.enabled": "true"}
_ACROSS = {"execution.checkpointing.file-merging.across-checkpoint-boundary": "true"}
_UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}
_SINKS = {"v1": FLINK_SINK, "v2": ICEBERG_SINK, "dynamic": DYNAMIC_SINK}


@pytest.mark.parametrize(
    ("sink", "name", "settings"),
    [
        ("v1", "a-append", _COMPRESSED | _IN_FILES),
        ("v1", "a-append", _MERGED | _ACROSS | _IN_FILES | _UNALIGNED),
        ("v2", "a-append", _MERGED | _COMPRESSED | _IN_FILES),
        ("v2", "a-append", _COMPRESSED | _UNALIGNED),
        ("dynamic", "n-dynamic", _MERGED | _IN_FILES),
    ],
)
def test_what_is_pending_is_found_in_any_checkpoint_and_where_that_was_moved_to(
    flink_lent: Callable[[str], FlinkFixture],
    flink_jobs: FlinkPeer,
    sink: str,
    name: str,
    settings: dict[str, str],
    tmp_path: Path,
) -> None:
    fixture = flink_lent(name)
    rows = str(min(fixture.warehouse.rglob("*.parquet")))
    folder = tmp_path / "checkpoints"
    job = Job(
        catalog=fixture.truth["table"]["catalog"],
        warehouse=str(fixture.warehouse),
        table=fixture.table,
        sink=sink,
        checkpoints=str(folder),
        parallelism=2,
        flink=settings,
    )
    steps = [
        *(("rows", rows), ("savepoint", str(folder / "canonical"), "CANONICAL")),
        *(("rows", rows), ("savepoint", str(folder / "native"), "NATIVE")),
        *(("rows", rows), ("checkpoint",)),
    ]
    report = flink_jobs.run(job, *steps)
    moved = folder.rename(tmp_path / "moved")
    for number, made in enumerate(report["made"], start=1):
        place = made.removeprefix("file:").replace(str(folder), str(moved))
        (committer,) = read_checkpoint(Storage(), place).committers
        assert (committer.sink, committer.job_id) == (_SINKS[sink], report["job"])
        taken = {item.checkpoint_id: item.manifests for item in committer.checkpoints}
        assert list(taken) == list(range(1, number + 1))
        for manifests in taken.values():
            (manifest,) = manifests
            assert (manifest.added_files, manifest.content) == (1, 0)
            assert manifest.path.startswith(str(fixture.root))
