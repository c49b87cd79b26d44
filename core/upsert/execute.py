"""Carry an upsert out: the source to data files, its keys settled and matched against the table, one commit.

A lost race is matched again, against the new head and with the same data files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyroaring import BitMap

from lake.core.engine import Task, TaskResult
from lake.core.errors import CommitConflictError, LakeError, RefusedError
from lake.core.ingest.execute import commit_rows, no_empty_folders, preview, run_source
from lake.core.outcome import Outcome, Status
from lake.core.rows.reader import FileSlice, ReadSettings, slices_of
from lake.core.rows.schema import moved_schema, schema_to_plain
from lake.core.session import Session
from lake.core.table import lineage
from lake.core.table.catalog import Table
from lake.core.table.commit import Committed
from lake.core.table.delete_scopes import PUFFIN
from lake.core.table.files import POSITION_DELETES, DataFile, stored_bytes
from lake.core.table.live import LiveFiles, live_files
from lake.core.table.operations import (
    SERIALIZABLE,
    AppendFiles,
    DeleteKey,
    Operation,
    OverwriteFiles,
    RowDelta,
)
from lake.core.table.staging import staged
from lake.core.upsert.key_filter import key_filter
from lake.core.upsert.key_rows import read_arrow
from lake.core.upsert.options import COPY_ON_WRITE, EQUALITY, refuse_other_specs
from lake.core.upsert.plan import UpsertPlan, describe_upsert
from lake.core.upsert.rejects import removed_on_failure, temporary_files, write_rejects

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement

_SOURCE = "lake.core.upsert.source_tasks"
_SETTLE = "lake.core.upsert.settle_tasks"
_MATCH = "lake.core.upsert.match_tasks"
_EQUALITY = "lake.core.upsert.equality_tasks"
# Keys of which an index takes some 100 to 200 MiB.
_BUCKET_ROWS = 4_000_000
_BUCKET_BYTES = 128 * 1024 * 1024
_TASK_ROWS = 4_000_000
_TASK_FILES = 500
_ROUNDS = 5
_SHOWN_KEYS = 3
# What is told of a bucket to which no key was sent.
_EMPTY_BUCKET = {"keys": None, "rows": 0, "losers": None, "lost": 0, "values": None}
# The numbers of tasks that match start here, so that no name meets a loading task's.
_FIRST_MATCHER = 50_000


@dataclass(slots=True)
class _Source:
    """The source's rows as files, and their keys by bucket.

    Args:
        files: the data files.
        claims: what was told of each unit.
        buckets: what was told of each bucket of keys.
    """

    files: list[DataFile] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    buckets: list[dict[str, Any]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def rows_read(self) -> int:
        return sum(claim["rows_read"] for claim in self.claims)

    @property
    def rejected(self) -> int:
        return sum(claim["rejected"] for claim in self.claims)

    @property
    def lost(self) -> int:
        return sum(bucket["lost"] for bucket in self.buckets)


@dataclass(slots=True)
class _Matched:
    """What the table had of the source's keys at one snapshot.

    Args:
        table: as it was.
        base: the branch's head; None for an empty branch.
        condition: a filter that all rows of these keys match.
        found: by bucket which keys were there.
        again: which of them more than once.
        hit: data files that had some.
        kept: files of those rows of hit files that stay, when these are copied on write.
        deletes: delete files of the rows that go, in the other modes.
        superseded: delete files whose positions ``deletes`` holds again.
    """

    table: Table
    base: Snapshot | None
    condition: BooleanExpression | None
    found: list[BitMap]
    again: list[BitMap]
    hit: list[str] = field(default_factory=list)
    kept: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    superseded: list[DeleteKey] = field(default_factory=list)

    @property
    def updated(self) -> int:
        return sum(len(bits) for bits in self.found)

    @property
    def files(self) -> list[DataFile]:
        """The files that matching wrote."""
        return [*self.kept, *self.deletes]


def preview_upsert(plan: UpsertPlan) -> Outcome:
    """Describe a plan without carrying it out."""
    return replace(preview(plan.ingest), plan=describe_upsert(plan))


def execute_upsert(session: Session, plan: UpsertPlan) -> Outcome:
    """Write the rows, delete those that they replace, and commit both as one snapshot.

    Raises:
        BadInputError: a row does not fit, or its key is NULL or NaN; nothing is left behind.
        RefusedError: the table has several rows of a key; nothing is left behind.
        CommitConflictError: others kept changing what is replaced; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every data file stays.
    """
    ingest = plan.ingest
    if ingest.already:
        return _outcome(plan, Status.NOTHING_TO_DO, _Source())
    run = _Run(session, plan, session.ids.uuid())
    with (
        no_empty_folders(ingest.table),
        staged(session, ingest.table, run.operation_id),
        temporary_files(session, ingest.table, run.temporary_name),
        removed_on_failure(plan.options.rejects),
    ):
        source = run.load()
        if plan.options.rejects is not None and source.rejected:
            write_rejects(ingest.table.storage, ingest.schema, source.claims, plan.options.rejects)
        if not source.files:
            return _outcome(plan, Status.NOTHING_TO_DO, source)
        matched, committed, commit_id = run.match_and_commit(source)
    if committed.already:
        # The same run, by another process: its snapshot holds none of these files.
        written = [*source.files, *(matched.files if matched else [])]
        ingest.table.storage.delete(file.path for file in written)
        return _outcome(plan, Status.NOTHING_TO_DO, _Source(), None, commit_id, committed)
    return _outcome(plan, Status.DONE, source, matched, commit_id, committed)


class _Run:
    """One carrying out; all files that it writes have its operation id in their names."""

    def __init__(self, session: Session, plan: UpsertPlan, operation_id: str) -> None:
        self.session = session
        self.plan = plan
        self.operation_id = operation_id
        self._storage = plan.ingest.table.storage
        self._matchers = _FIRST_MATCHER

    @property
    def temporary_name(self) -> str:
        """How the names of the files of keys begin."""
        return f"lake-keys-{self.operation_id}"

    @property
    def _new_files(self) -> dict[str, str]:
        return {"folder": self.plan.ingest.table.data_location, "name": self.temporary_name}

    # The source

    def load(self) -> _Source:
        """Write the source's rows, each key once."""
        source = self._write(losers=None)
        source.buckets = self._settle(source.claims)
        if source.lost:
            buckets, claims = source.buckets, source.claims
            self._storage.delete(file.path for file in source.files)
            losers = [bucket["losers"] for bucket in buckets if bucket["losers"]]
            source = self._write(losers=losers)
            source.buckets, source.claims = buckets, claims
        expected = source.rows_read - source.rejected - source.lost
        if source.rows != expected:
            raise LakeError(
                f"{expected} rows were to be written, but there are {source.rows}: "
                "nothing was committed"
            )
        return source

    def _write(self, *, losers: list[str] | None) -> _Source:
        keys = {
            "ids": list(self.plan.key),
            "order": list(self.plan.order),
            "rejects": self.plan.options.rejects is not None,
            "losers": losers,
            **self._new_files,
        }
        source = _Source()
        for value in run_source(
            self.session,
            self.plan.ingest,
            self.operation_id,
            f"{_SOURCE}:write_rows",
            f"{_SOURCE}:send_rows",
            {"keys": keys},
        ):
            source.files += [DataFile.from_plain(file) for file in value["files"]]
            source.claims += value.get("claims", ())
        source.claims.sort(key=lambda claim: int(claim["place"]))
        return source

    def _settle(self, claims: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Decide which row stands for each key; return the buckets of keys, in order."""
        files = [
            {"place": claim["place"], "keys": claim["keys"]} for claim in claims if claim["keys"]
        ]
        if not files:
            return []
        count = max(
            -(-sum(claim["rows"] for claim in claims) // _BUCKET_ROWS),
            -(-sum(claim["key_bytes"] for claim in claims) // _BUCKET_BYTES),
        )
        common = {"key_columns": len(self.plan.key), **self._new_files}
        engine = self.session.engine(self.plan.ingest.input_bytes)
        results: Iterator[TaskResult]
        if count == 1:
            task = Task({**common, "files": files, "bucket": 0})
            results = engine.run([task], f"{_SETTLE}:settle", storage=self._storage)
        else:
            # The input's order is that of the tasks.
            results = engine.exchange(
                [Task({**common, "files": [file], "buckets": count}) for file in files],
                f"{_SETTLE}:send_keys",
                f"{_SETTLE}:settle_sent",
                [{**common, "bucket": bucket} for bucket in range(count)],
                storage=self._storage,
            )
        settled = {result.value["bucket"]: dict(result.value) for result in results}
        return [settled.get(bucket, _EMPTY_BUCKET) for bucket in range(count)]

    # The table

    def match_and_commit(self, source: _Source) -> tuple[_Matched | None, Committed, str]:
        """Commit, matching again whenever another writer won."""
        ingest = self.plan.ingest
        if ingest.table.creating:
            landed = self._commit(AppendFiles(added=source.files), ingest.table, self.operation_id)
            return None, landed, self.operation_id
        table, commit_id = ingest.table, self.operation_id
        blind = self._blindly
        for round_number in range(1, _ROUNDS + 1):
            matched = (self._blind if blind else self._match)(table, source)
            self._refuse_duplicates(matched, source)
            operation = _operation(matched, source, validates=not blind)
            try:
                committed = self._commit(operation, table, commit_id)
            except CommitConflictError:
                if round_number == _ROUNDS:
                    raise
            else:
                return matched, committed, commit_id
            self._storage.delete(file.path for file in matched.files)
            table, commit_id = self._refreshed(table), self.session.ids.uuid()
        raise CommitConflictError("the upsert was never committed")

    def _refreshed(self, table: Table) -> Table:
        """Return the table as it is now.

        Raises:
            CommitConflictError: what was written does not go with it any more.
        """
        now, then = table.refreshed(), self.plan.ingest.table
        evolved = now.metadata.current_schema_id != then.metadata.current_schema_id
        moved = now.spec.spec_id != then.spec.spec_id
        if (evolved and self.plan.ingest.evolves) or (moved and self._blindly):
            raise CommitConflictError(
                f"the {'schema' if evolved else 'partition spec'} of {now.identifier} was changed "
                "meanwhile",
                hint="run the command again",
            )
        return now

    @property
    def _blindly(self) -> bool:
        return self.plan.options.deletes == EQUALITY

    def _commit(self, operation: Operation, table: Table, commit_id: str) -> Committed:
        conditions: tuple[TableRequirement, ...] = ()
        if self._blindly and not table.creating:
            from pyiceberg.table.update import AssertDefaultSpecId  # noqa: PLC0415

            # Equality deletes reach the files of their own spec only.
            spec_id = self.plan.ingest.table.spec.spec_id
            conditions = (AssertDefaultSpecId(default_spec_id=spec_id),)
        return commit_rows(
            self.session,
            self.plan.ingest,
            operation,
            commit_id,
            table=table,
            conditions=conditions,
        )

    def _blind(self, table: Table, source: _Source) -> _Matched:
        """Delete the source's keys without a look at the table's rows."""
        ingest = self.plan.ingest
        base = lineage.branch_head(table.metadata, ingest.options.branch)
        if base is not None:
            refuse_other_specs(live_files(table, base, columns=("status", "content")))
        names = [ingest.schema.find_column_name(column) or "" for column in self.plan.key]
        fields = [ingest.schema.find_field(name) for name in names]
        tasks = [
            Task(
                {
                    "keys": bucket["keys"],
                    "ids": list(self.plan.key),
                    "columns": schema_to_plain(Schema(*fields)),
                    "writing": ingest.settings(self.operation_id).to_plain(),
                    "task": number,
                }
            )
            for number, bucket in enumerate(source.buckets, _FIRST_MATCHER)
            if bucket["keys"]
        ]
        matched = _Matched(table, base, None, [], [])
        engine = self.session.engine(ingest.input_bytes)
        for result in engine.run(tasks, f"{_EQUALITY}:write_deletes", storage=self._storage):
            matched.deletes += [DataFile.from_plain(file) for file in result.value["deletes"]]
        return matched

    def _match(self, table: Table, source: _Source) -> _Matched:
        ingest, key = self.plan.ingest, self.plan.key
        base = lineage.branch_head(table.metadata, ingest.options.branch)
        known = set(key) <= set(table.schema.field_ids)
        condition = (
            key_filter(table.schema, key, [one["values"] for one in source.buckets if one["keys"]])
            if known
            else None
        )
        nothing = [BitMap() for _ in source.buckets]
        matched = _Matched(table, base, condition, nothing, [BitMap() for _ in nothing])
        if base is None or not known:
            return matched
        found = live_files(table, base, condition)
        tasks = list(self._tasks(found, source, condition))
        total = sum(task.input_bytes for task in tasks)
        self.session.progress.start("matching", tasks=len(tasks), total_bytes=total)
        engine = self.session.engine(ingest.input_bytes)
        for result in engine.run(tasks, f"{_MATCH}:match", storage=self._storage):
            value = result.value
            for bucket, text in enumerate(value["found"]):
                new = _bits(text)
                matched.again[bucket] |= _bits(value["found_again"][bucket])
                matched.again[bucket] |= matched.found[bucket] & new
                matched.found[bucket] |= new
            matched.kept += [DataFile.from_plain(file) for file in value["kept"]]
            matched.deletes += [DataFile.from_plain(file) for file in value["deletes"]]
            matched.hit += value["hit"]
            self.session.progress.advance(
                tasks=1, done_bytes=tasks[result.task].input_bytes, rows=value["rows"]
            )
        self.session.progress.finish()
        matched.superseded = _superseded(found, matched)
        return matched

    def _tasks(
        self, found: LiveFiles, source: _Source, condition: BooleanExpression | None
    ) -> Iterator[Task]:
        ingest, key, table = self.plan.ingest, list(self.plan.key), found.table
        copies = self.plan.options.deletes == COPY_ON_WRITE
        names = [ingest.schema.find_column_name(column) or "" for column in key]
        common: dict[str, Any] = {
            "ids": key,
            "buckets": [bucket["keys"] for bucket in source.buckets],
            "mode": self.plan.options.deletes,
            "format_version": table.metadata.format_version,
        }
        # Row ids of version 3 move with their rows.
        copied = moved_schema(ingest.schema, table.metadata)
        writing = ingest.settings(self.operation_id)
        if copies:
            writing = replace(writing, schema=copied)
        common["writing"] = writing.to_plain()
        for numbers, files in self._groups(found):
            deletes = found.deletes_of(np.array(numbers, np.int64))
            reading = ReadSettings.of(
                table,
                projection=ingest.schema.select(*names),
                # To copy, all rows are counted.
                row_filter=None if copies else condition,
                deletes=deletes,
            )
            everything = ReadSettings.of(table, projection=copied, deletes=deletes)
            payload = {
                **common,
                "task": self._matchers,
                "files": [file.to_plain() for file in files],
                "reading": reading.to_plain(),
                "rewriting": everything.to_plain() if copies else None,
            }
            self._matchers += 1
            yield Task(payload, sum(file.size_bytes for file in files))

    def _groups(self, found: LiveFiles) -> Iterator[tuple[list[int], list[FileSlice]]]:
        """Yield neighbouring data files with their numbers: all cores have work, and no task too much."""
        specs = found.table.metadata.specs()
        files = [
            item
            for spec_id, entries in found.by_spec.items()
            for item in slices_of(entries, spec=specs[spec_id], schema=found.schema)
        ]
        engine = self.session.engine(self.plan.ingest.input_bytes)
        rows = sum(file.record_count for file in files)
        most = min(_TASK_ROWS, -(-rows // engine.parallelism))
        group: tuple[list[int], list[FileSlice]] = ([], [])
        taken = 0
        for number, file in enumerate(files):
            if group[0] and (taken + file.record_count > most or len(group[0]) >= _TASK_FILES):
                yield group
                group, taken = ([], []), 0
            group[0].append(number)
            group[1].append(file)
            taken += file.record_count
        if group[0]:
            yield group

    def _refuse_duplicates(self, matched: _Matched, source: _Source) -> None:
        count = sum(len(bits) for bits in matched.again)
        if not count or self.plan.options.repair_duplicates:
            return
        schema = self.plan.ingest.schema
        names = [schema.find_column_name(column) for column in self.plan.key]
        shown = list(self._some_keys(matched.again, source))
        told = "; ".join(
            ", ".join(f"{name} {value}" for name, value in zip(names, key, strict=True))
            for key in sorted(shown)
        )
        raise RefusedError(
            f"{matched.table.identifier} has several rows of {count} of the source's keys: {told}"
            f"{' ...' if count > len(shown) else ''}",
            hint="--repair-duplicates replaces all rows of such a key by the source's row",
        )

    def _some_keys(self, again: Sequence[BitMap], source: _Source) -> Iterator[tuple[str, ...]]:
        left = _SHOWN_KEYS
        for bucket, bits in zip(source.buckets, again, strict=True):
            wanted = list(bits[:left])
            left -= len(wanted)
            start = 0
            for batch in read_arrow(self._storage, bucket["keys"]) if wanted else ():
                end = start + batch.num_rows
                for row in (row for row in wanted if start <= row < end):
                    yield tuple(_shown(column[row - start]) for column in batch.columns)
                start = end


def _superseded(found: LiveFiles, matched: _Matched) -> list[DeleteKey]:
    """Return the vectors, and the delete files for one data file, that new vectors take the place of."""
    if not any(file.format == PUFFIN for file in matched.deletes):
        return []
    paths = set(matched.hit)
    hit = pa.array(matched.hit, pa.string())
    masks = [
        pc.is_in(entries["file_path"].cast(pa.string()), value_set=hit).to_numpy()
        for entries in found.by_spec.values()
    ]
    known = found.deletes_of(np.flatnonzero(np.concatenate(masks)))
    return [
        DeleteKey(item.path, item.content_offset)
        for item in known
        if item.content == POSITION_DELETES and item.referenced_data_file in paths
    ]


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        # Python has no dates beyond the year 9999.
        return str(value.cast(pa.string()).as_py())


def _bits(text: str) -> BitMap:
    return BitMap.deserialize(base64.b64decode(text))


def _operation(matched: _Matched, source: _Source, *, validates: bool) -> Operation:
    """Return the change; whoever inserts one of the keys meanwhile is a conflict at any isolation level."""
    base_id = matched.base.snapshot_id if matched.base else None
    if matched.hit and not matched.deletes:
        return OverwriteFiles(
            added=[*source.files, *matched.kept],
            removed_paths=matched.hit,
            base_snapshot_id=base_id,
            conflict_filter=matched.condition,
            isolation=SERIALIZABLE,
        )
    return RowDelta(
        added=source.files,
        deletes=matched.deletes,
        replaced_deletes=matched.superseded,
        base_snapshot_id=base_id,
        validates=validates,
        conflict_filter=matched.condition,
        isolation=SERIALIZABLE,
    )


def _outcome(
    plan: UpsertPlan,
    status: Status,
    source: _Source,
    matched: _Matched | None = None,
    commit_id: str | None = None,
    committed: Committed | None = None,
) -> Outcome:
    blind = plan.options.deletes == EQUALITY and not plan.ingest.table.creating
    updated = matched.updated if matched else 0
    data = [*source.files, *(matched.kept if matched else [])]
    deletes = matched.deletes if matched else []
    return Outcome(
        command="ingest",
        table=plan.ingest.table.identifier,
        branch=plan.ingest.options.branch,
        status=status,
        operation_id=commit_id if committed else None,
        base_snapshot_id=matched.base.snapshot_id
        if matched and matched.base
        else plan.ingest.base_snapshot_id,
        snapshot_ids=[committed.snapshot_id] if committed else [],
        plan=describe_upsert(plan),
        result={
            "rows_read": source.rows_read,
            "rows_written": source.rows,
            # Who deletes blindly does not know what was there.
            "rows_inserted": None if blind else source.rows - updated,
            "rows_updated": None if blind else updated,
            "rows_rejected": source.rejected,
            "data_files": len(data),
            "delete_files": len(deletes),
            "bytes_written": sum(file.size_bytes for file in data) + stored_bytes(deletes),
        },
    )
