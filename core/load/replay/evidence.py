"""Collect the facts about each checkpoint: its manifests, its files, and which of them occur in snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.load.replay.classification import Evidence, JobKey
from lake.core.load.replay.staged import as_run, is_staged
from lake.core.table.flink.manifest_names import parse_name
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.transaction.staging.manifest_files import find_manifests, manifest_roots
from lake.core.transaction.staging.temporary_manifests import (
    Reading,
    TemporaryManifest,
    missing_files,
    read_temporary_manifests,
)

if TYPE_CHECKING:
    from lake.core.io.storage.storage import StoredFile
    from lake.core.load.replay.checkpoint_selection import SelectedCheckpoints
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.flink.state import ManifestReference, TakenCheckpoint

_Group = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Findings:
    """The evidence of all checkpoints.

    Args:
        evidence: one item for each checkpoint.
        newest_ms: when the newest file of each job was written, in ms since 1970, by job id.
    """

    evidence: tuple[Evidence, ...]
    newest_ms: Mapping[str, int] = field(default_factory=dict)


def collect_evidence(table: Table, given: SelectedCheckpoints) -> Findings:
    """Find, read and check the temporary manifests of a table and those that the given checkpoints name.

    Raises:
        BadInputError: metadata of a retained snapshot is damaged or missing.
    """
    readings = _read(table, given)
    grouped = [*_named(given, readings), *_unnamed(table, given, readings)]
    files = {path for item in grouped for path in _files(item.manifests)}
    known = find_referenced(table.storage, table.metadata, files)
    counted = [replace(item, known_files=_count(item.manifests, known)) for item in grouped]
    return _with_missing(table, counted)


def _read(table: Table, given: SelectedCheckpoints) -> dict[str, Reading]:
    """Read the manifests; return the results by canonical location."""
    files = {locations.canonical(file.location): file for file in find_manifests(table)}
    roots = manifest_roots(table)
    others = [
        item.path
        for _, taken in given.taken()
        for item in taken.manifests
        if locations.canonical(item.path) not in files
        and any(locations.within(item.path, root) for root in roots)
    ]
    looked_up = table.storage.look_up(others).values()
    found: list[StoredFile] = [*files.values(), *(file for file in looked_up if file)]
    return {
        locations.canonical(reading.location): reading
        for reading in read_temporary_manifests(table, found)
    }


def _named(given: SelectedCheckpoints, readings: Mapping[str, Reading]) -> list[Evidence]:
    return [_of_state(job, taken, readings) for job, taken in given.taken()]


def _of_state(job: JobKey, taken: TakenCheckpoint, readings: Mapping[str, Reading]) -> Evidence:
    found = [(item, readings.get(locations.canonical(item.path))) for item in taken.manifests]
    existing = [reading for _, reading in found if reading]
    problems = [
        problem for item, reading in found if reading and (problem := _mismatch(item, reading))
    ]
    names = [name for reading in existing if (name := parse_name(reading.location))]
    return Evidence(
        job_id=job[0],
        operator_id=job[1],
        checkpoint_id=taken.checkpoint_id,
        attempt=max((name.attempt for name in names), default=None),
        manifests=_manifests(existing),
        blank=taken.blank,
        named=True,
        written_ms=min(_moments(existing), default=None),
        last_ms=max(_moments(existing), default=None),
        problem=problems[0] if problems else None,
        has_missing_manifests=len(existing) < len(found),
        foreign=next((reading.foreign for reading in existing if reading.foreign), None),
    )


def _mismatch(reference: ManifestReference, reading: Reading) -> str | None:
    """Return how a manifest differs from its description in the checkpoint's state; None if it does not."""
    manifest = reading.manifest
    if manifest is None:
        return reading.problem
    rows = sum(manifest.entries["record_count"].to_pylist())
    comparisons = {
        "bytes": (reference.length, manifest.length),
        "as its partition spec": (reference.spec_id, manifest.spec_id),
        "as its content": (reference.content, manifest.content),
        "files": (reference.added_files, manifest.entries.num_rows),
        "rows": (reference.added_rows, rows),
    }
    for what, (expected, actual) in comparisons.items():
        if expected is not None and expected != actual:
            return f"{manifest.path} has {actual} {what}, but the checkpoint says {expected}"
    return None


def _unnamed(
    table: Table, given: SelectedCheckpoints, readings: Mapping[str, Reading]
) -> list[Evidence]:
    named = {
        locations.canonical(item.path) for _, taken in given.taken() for item in taken.manifests
    }
    groups: dict[tuple[_Group, str | None], list[Reading]] = {}
    for location, reading in readings.items():
        name = parse_name(location)
        if name and location not in named:
            group = (name.job_id, name.operator_id, name.checkpoint_id, name.attempt)
            groups.setdefault((group, given.elsewhere.get(location)), []).append(reading)
    found = []
    for ((job, operator, checkpoint, attempt), elsewhere), parts in groups.items():
        item = Evidence(
            job_id=job,
            operator_id=operator,
            checkpoint_id=checkpoint,
            attempt=attempt,
            manifests=_manifests(parts),
            written_ms=min(_moments(parts), default=None),
            last_ms=max(_moments(parts), default=None),
            problem=next((part.problem for part in parts if part.problem), None),
            foreign=elsewhere or next((part.foreign for part in parts if part.foreign), None),
        )
        staged = is_staged(operator)
        found.append(as_run(item, parts, table, given.branch) if staged else item)
    return found


def _manifests(readings: Iterable[Reading]) -> tuple[TemporaryManifest, ...]:
    found = [reading.manifest for reading in readings if reading.manifest]
    return tuple(sorted(found, key=lambda item: (item.content, item.path)))


def _moments(readings: Sequence[Reading]) -> list[int]:
    return [item.modified_ms for item in readings if item.modified_ms is not None]


def _files(manifests: Iterable[TemporaryManifest]) -> list[str]:
    return [path for item in manifests for path in item.file_paths]


def _count(manifests: Iterable[TemporaryManifest], known: frozenset[str]) -> int:
    return sum(locations.canonical(path) in known for path in _files(manifests)) if known else 0


def _with_missing(table: Table, evidence: Sequence[Evidence]) -> Findings:
    """Check the existence of files that are in no snapshot; committed files may have been removed since."""
    checked = [item for item in evidence if not (item.known_files or item.foreign)]
    newest: dict[str, int] = {}
    problems, changed = missing_files(
        table.storage, [manifest for item in checked for manifest in item.manifests]
    )
    found = []
    for item in evidence:
        own = _files(item.manifests)
        missing = next((problems[path] for path in own if path in problems), None)
        found.append(replace(item, missing=missing))
        moments = [item.last_ms or 0, *(changed.get(path, 0) for path in own)]
        newest[item.job_id] = max(newest.get(item.job_id, 0), *moments)
    return Findings(tuple(found), newest)
