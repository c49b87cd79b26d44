"""Checkpoints that a real Flink wrote are read as what wrote them says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tables.flink_fixtures import FlinkFixture, names, shared

from lake.core.io.storage.storage import Storage
from lake.core.table.flink.checkpoint import read_checkpoint
from lake.core.table.flink.state import (
    DYNAMIC_SINK,
    FLINK_SINK,
    ICEBERG_SINK,
    Checkpoint,
    ManifestReference,
)

_SINKS = {
    "FlinkSink": FLINK_SINK,
    "IcebergSink": ICEBERG_SINK,
    "DynamicIcebergSink": DYNAMIC_SINK,
}


def _manifests(checkpoint: Checkpoint) -> list[ManifestReference]:
    return [
        manifest
        for committer in checkpoint.committers
        for taken in committer.checkpoints
        for manifest in taken.manifests
    ]


def _retained(fixture: FlinkFixture) -> list[Path]:
    return sorted(fixture.root.glob("checkpoint/*/chk-*/_metadata"))


def _reference(record: dict[str, Any]) -> ManifestReference:
    return ManifestReference(
        path=record["manifest_path"],
        length=record["manifest_length"],
        spec_id=record["partition_spec_id"],
        content=record["content"] or 0,
        added_files=record["added_files_count"],
        added_rows=record["added_rows_count"],
    )


@pytest.mark.parametrize("name", names())
def test_the_last_checkpoint_names_the_manifests_that_flink_put_in_its_state(name: str) -> None:
    with shared(name) as fixture:
        replay = fixture.truth.get("replay") or {}
        if not replay.get("from_checkpoint"):
            assert fixture.truth["state_records"] == []
            return
        found = read_checkpoint(Storage(), str(fixture.root / replay["from_checkpoint"]))
        expected = [_reference(record) for record in fixture.truth["state_records"]]
    assert sorted(_manifests(found), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("name", names())
def test_every_retained_checkpoint_contains_its_sink_job_operator_and_numbers(name: str) -> None:
    with shared(name) as fixture:
        for metadata in _retained(fixture):
            job, folder = metadata.parts[-3:-1]
            found = read_checkpoint(Storage(), str(metadata))
            assert found.location == str(metadata)
            assert found.checkpoint_id == int(folder.removeprefix("chk-"))
            (committer,) = found.committers
            assert committer.sink == _SINKS[fixture.truth["sink"].split()[0]]
            assert committer.job_id == job
            numbers = [taken.checkpoint_id for taken in committer.checkpoints]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] == found.checkpoint_id
            for taken in committer.checkpoints:
                assert not (taken.blank and taken.manifests)
                for manifest in taken.manifests:
                    base = f"{job}-{committer.operator_id}-00000-"
                    assert Path(manifest.path).name.startswith(base)
                    assert f"-{taken.checkpoint_id}-" in Path(manifest.path).name
