"""Safety checks of lake, each with an edit that removes it and the tests that must then fail."""

from __future__ import annotations

from dataclasses import dataclass

_CORE = "tests/core"
_COMMIT = f"{_CORE}/transaction/commit/test_commit.py"
_CHAIN = f"{_CORE}/transaction/commit/test_snapshot_sequence.py"
_ROW_DELTA = f"{_CORE}/transaction/commit/test_row_delta.py"
_MANIFESTS = f"{_CORE}/table/manifests/test_manifests.py"
_AVRO = f"{_CORE}/io/avro/test_avro.py"
_LISTS = f"{_CORE}/table/manifests/test_manifest_lists.py"
_WHOLE_LISTS = f"{_CORE}/table/snapshots/test_completeness.py"
_HADOOP = f"{_CORE}/table/catalogs/test_hadoop_commits.py"
_COMPACTION = f"{_CORE}/maintain/compaction/test_execute.py"
_SORTED = "tests/commands/test_sorted.py"
_EXPIRE = f"{_CORE}/maintain/expiration/test_expire.py"
_JOURNAL = f"{_CORE}/maintain/expiration/test_journal.py"
_EXPIRE_FILES = "tests/commands/test_expire_files.py"
_RUN_IDS = f"{_CORE}/table/snapshots/test_run_ids.py"
_REPLAY = f"{_CORE}/load/replay/test_execute.py"
_REFUSALS = "tests/commands/test_replay_refusals.py"
_UPSERT = "tests/commands/test_upsert.py"
_DELETE = "tests/commands/test_delete.py"
_INGEST = "tests/commands/test_ingest.py"
_STAGES = "tests/commands/test_ingest_stages.py"
_LOOKUP_SOURCES = "tests/commands/test_ingest_lookup_sources.py"
_APPLY = f"{_CORE}/data/deletes/test_apply.py"
_EQUALITY = f"{_CORE}/data/deletes/test_equality.py"
_WATCH = "tests/commands/test_ingest_watch.py"
_WATCH_CRASHES = "tests/commands/test_ingest_watch_crashes.py"
_ODD_FILES = "tests/commands/test_ingest_watch_odd_files.py"
_CONSUMERS = "tests/commands/test_consumers.py"
_ROUTE = "tests/commands/test_ingest_route.py"
_VALUED_ROWS = f"{_CORE}/data/sources/test_valued_rows.py"
_KAFKA = f"{_CORE}/load/continuous/test_kafka.py"
_IN_PARTS = "tests/commands/test_deletes_in_parts.py"
_REPAIR = "tests/commands/test_repair.py"
_RACES = "tests/world/test_races.py"
_WORLD = "tests/world/test_world.py"
_CRASHES = "tests/world/test_crashes.py"
_FOLLOWING = "tests/world/test_following.py"
_MANIFESTS = "tests/commands/test_manifests.py"
_CLEAN = "tests/commands/test_clean.py"
_FOOTERS = "tests/commands/test_damaged_footers.py"
_ENTRIES = "tests/commands/test_table_entries.py"
_CHERRY_PICK = "tests/commands/test_cherry_pick.py"
_REF = "tests/commands/test_ref.py"
_ROLLBACK = "tests/commands/test_rollback.py"
_MISSING = "tests/commands/test_missing_columns.py"
_TWO_CATALOGS = "tests/commands/test_two_catalogs.py"
_SHARED = "tests/commands/test_shared_folders.py"
_OWNERSHIP = "tests/commands/test_clean_ownership.py"
_FOLLOW_OUTPUT = "tests/commands/test_scan_follow_output.py"


@dataclass(frozen=True, slots=True)
class RemovedCheck:
    """A copy of lake that lacks one check.

    Args:
        name: what is not checked.
        file: its path below the root.
        old: text that occurs in it once.
        new: the text that replaces it.
        tests: the tests that must fail without the check.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _checks() -> tuple[RemovedCheck, ...]:
    return (
        *_commits(),
        *_validation(),
        *_expiry(),
        *_rewrites(),
        *_repairs(),
        *_runs(),
        *_streams(),
        *_routes(),
        *_readers(),
        *_replays(),
        *_follows(),
        *_inputs(),
    )


def _commits() -> tuple[RemovedCheck, ...]:
    attempt, commit = "core/transaction/commit/attempt.py", "core/transaction/commit/commit.py"
    return (
        RemovedCheck(
            "the head is not pinned",
            commit,
            "return ChangeSet((same, pinned, *self.request.requirements), updates, files)",
            "return ChangeSet((same, *self.request.requirements), updates, files)",
            (_COMMIT, _RACES),
        ),
        RemovedCheck(
            "a different table of the same name is accepted",
            commit,
            "return ChangeSet((same, pinned, *self.request.requirements), updates, files)",
            "return ChangeSet((pinned, *self.request.requirements), updates, files)",
            (_COMMIT, _CHAIN),
        ),
        RemovedCheck(
            "an unknown outcome counts as a refusal",
            attempt,
            '            return self._await_visible(error), ""\n        for warning',
            "            return None, first_line(error)\n        for warning",
            (_COMMIT,),
        ),
        RemovedCheck(
            "a stop while a commit is sent deletes its manifests",
            commit,
            "[path for path in written if locations.canonical(path) not in owned]",
            "list(written)",
            (_COMMIT,),
        ),
        RemovedCheck(
            "a conflict is accepted without reloading the table",
            attempt,
            "            return self._find_after_refusal(error), first_line(error)",
            "            return None, first_line(error)",
            (_COMMIT,),
        ),
        RemovedCheck(
            "a server's refusal is believed because the table is gone",
            attempt,
            "            if isinstance(error, NotFoundError) and self._is_local():\n",
            "            if isinstance(error, NotFoundError):\n",
            (_COMMIT,),
        ),
        RemovedCheck(
            "the metadata file of a refused commit stays with a dropped table",
            attempt,
            "                self._delete_own_metadata(None)\n                return None\n",
            "                return None\n",
            (_COMMIT,),
        ),
        RemovedCheck(
            "manifests are deleted although the commit may have succeeded",
            commit,
            "            error.operation_id = self.sequence.operation_id\n            raise",
            "            self._delete_unused(table, self.sequence.written)\n            raise",
            (_COMMIT,),
        ),
        RemovedCheck(
            "data files of a commit with an unknown outcome may be deleted",
            attempt,
            "                context.protected_files.update(owned)\n",
            "",
            (_COMMIT, _INGEST, _STAGES),
        ),
        RemovedCheck(
            "a stop deletes files of a successful commit",
            attempt,
            "            if after is None and unknown is None:\n                raise\n",
            "            if stop:\n                raise\n",
            (
                "tests/commands/test_stopping.py::test_a_stop_that_comes_while_a_commit_lands_is_too_late",
            ),
        ),
        RemovedCheck(
            "a metadata file of this commit is deleted although it is live",
            attempt,
            "for location in unnamed(table.catalog.written_metadata, live)",
            "for location in table.catalog.written_metadata",
            (_COMMIT, _HADOOP),
        ),
        RemovedCheck(
            "a committed run is committed again",
            commit,
            "self.steps = () if self._is_guarded(table) else self.decide(table)",
            "self.steps = self.decide(table)",
            (_COMMIT,),
        ),
        RemovedCheck(
            "times in the history may decrease",
            "core/transaction/commit/snapshot_sequence.py",
            "timestamp_ms=max(self.context.clock.now_ms(), latest_ms(metadata))",
            "timestamp_ms=self.session.clock.now_ms()",
            (_COMMIT, _CHAIN),
        ),
        RemovedCheck(
            "two steps of one commit may get one snapshot id",
            "core/transaction/commit/snapshot_sequence.py",
            "if candidate not in taken and table.metadata",
            "if table.metadata",
            (_CHAIN,),
        ),
        RemovedCheck(
            "a version of a Hadoop table is overwritten",
            "core/io/storage/atomic_files.py",
            "        os.link(temporary, path)\n",
            "        os.replace(temporary, path)\n",
            (_HADOOP,),
        ),
        RemovedCheck(
            "another run's lock is removed",
            "core/transaction/locks/local.py",
            "                if _refers_to(self._path, self._descriptor):\n",
            "                if True:\n",
            (f"{_CORE}/transaction/locks/test_local.py",),
        ),
    )


def _validation() -> tuple[RemovedCheck, ...]:
    validation = "core/transaction/commit/conflicts.py"
    return (
        RemovedCheck(
            "a history with a gap counts as complete",
            validation,
            "        if not complete:\n",
            "        if False:\n",
            (_COMMIT, _RACES),
        ),
        RemovedCheck(
            "new data files do not conflict",
            validation,
            "    for entries in since.added_data():\n",
            "    for entries in ():\n",
            (_COMMIT, _ROW_DELTA, _RACES),
        ),
        RemovedCheck(
            "new delete files do not conflict with an overwrite",
            validation,
            "    for entries in since.added_deletes():\n        _refuse_any",
            "    for entries in ():\n        _refuse_any",
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "new deletes for replaced files are lost",
            validation,
            "    if affected:\n",
            "    if False:\n",
            (_COMPACTION, _ROW_DELTA, _RACES),
        ),
        RemovedCheck(
            "new equality deletes for replaced files are ignored",
            validation,
            "        if ignore_equality:\n",
            "        if True:\n",
            (_COMPACTION, _ROW_DELTA, _RACES),
        ),
        RemovedCheck(
            "global equality deletes do not apply to other specs",
            validation,
            "(spec is None or is_global(spec))",
            "spec is None",
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "new deletes for rewritten files are ignored",
            validation,
            '_ADDS_DELETES = frozenset({"overwrite", "delete", "replace"})',
            '_ADDS_DELETES = frozenset({"overwrite", "delete"})',
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "a replaced file need not be live",
            "core/transaction/commit/removed_files.py",
            "    if missing:\n",
            "    if False:\n",
            (_COMMIT, _COMPACTION, _RACES),
        ),
        RemovedCheck(
            "a data file may get two deletion vectors",
            "core/transaction/commit/delete_conflicts.py",
            "if duplicated or replaced - live:",
            "if replaced - live:",
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "a vector replaces one that is not live",
            "core/transaction/commit/delete_conflicts.py",
            "if duplicated or replaced - live:",
            "if duplicated:",
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "data files of another spec may be added beside equality deletes",
            "core/transaction/commit/snapshot_producer.py",
            "        if operation.sole_spec is not None:\n",
            "        if False:\n",
            (_ROW_DELTA, "tests/commands/test_ingest_changes.py", _UPSERT, _STAGES),
        ),
        RemovedCheck(
            "the format version does not limit the kinds of delete files",
            "core/transaction/commit/delete_conflicts.py",
            "        _check_version(metadata.format_version, added)\n",
            "",
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "an encrypted table is written",
            "core/transaction/commit/preconditions.py",
            "    refuse_encrypted(table.metadata, table.identifier)\n",
            "",
            (_COMMIT, _INGEST, _COMPACTION),
        ),
    )


def _expiry() -> tuple[RemovedCheck, ...]:
    return (
        RemovedCheck(
            "a ref that moves concurrently does not stop an expiry",
            "core/maintain/expiration/execute.py",
            "return ChangeSet(self._requirements(metadata), updates, needed) if updates else None",
            "return ChangeSet((), updates, needed) if updates else None",
            (_EXPIRE, _RACES),
        ),
        RemovedCheck(
            "files are deleted before the refs that other runs lost are back",
            "core/maintain/expiration/execute.py",
            "            self.after = others.restore_refs(self.after)\n",
            "",
            (_JOURNAL,),
        ),
        RemovedCheck(
            "a ref that a race removed is not restored",
            "core/maintain/expiration/execute.py",
            "        self.after = restore_refs(session, self.after, self.expired, self.removed_refs)\n",
            "",
            (_EXPIRE, _JOURNAL, _RACES),
        ),
        RemovedCheck(
            "the table is not reloaded before files are deleted",
            "core/transaction/garbage/file_deletion.py",
            "            remaining, checked = recheck(now, remaining), now.metadata_location\n",
            "            checked = now.metadata_location\n",
            (_EXPIRE, _JOURNAL),
        ),
        RemovedCheck(
            "the table is not reloaded while files are deleted",
            "core/transaction/garbage/file_deletion.py",
            "        if now.metadata_location != checked:\n",
            "        if not checked:\n",
            (_EXPIRE, _JOURNAL),
        ),
        RemovedCheck(
            "files outside the table are deleted",
            "core/transaction/garbage/own_files.py",
            "        paths.deletable(path, table.roots)\n        and not metadata",
            "        not metadata",
            (_EXPIRE, "tests/commands/test_expire.py"),
        ),
        RemovedCheck(
            "files of a table in another one's folder are deleted",
            "core/transaction/garbage/own_files.py",
            "        and not nested.owns(path)\n",
            "",
            (_EXPIRE, "tests/commands/test_expire.py"),
        ),
        RemovedCheck(
            "table metadata is deleted if a manifest list names it",
            "core/transaction/garbage/own_files.py",
            "        and not metadata_files.is_metadata_name(path)\n",
            "",
            (_JOURNAL,),
        ),
        RemovedCheck(
            "files that are not metadata are deleted with old metadata",
            "core/transaction/commit/attempt.py",
            "if metadata_files.is_metadata_name(location) and locations",
            "if locations",
            (_HADOOP,),
        ),
        RemovedCheck(
            "a live manifest is deleted if a checkpoint names it",
            "core/load/replay/execute.py",
            "if parse_name(path) and locations.deletable(path, roots)]",
            "if locations.deletable(path, roots)]",
            (_REPLAY,),
        ),
        RemovedCheck(
            "a suspended process continues with its outdated list",
            "core/transaction/garbage/file_deletion.py",
            "            self._slept = True\n",
            "            pass\n",
            (_JOURNAL,),
        ),
        RemovedCheck(
            "files of kept snapshots are deleted",
            "core/transaction/garbage/reachability.py",
            "        files = self._without(files, live, kept_manifests, kept, named)\n",
            "",
            ("tests/commands/test_expire.py",),
        ),
        RemovedCheck(
            "files of a checkpoint are orphans",
            "core/maintain/orphans/plan.py",
            "        elif is_pending:\n",
            "        elif is_pending and not path:\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "young files are orphans",
            "core/maintain/orphans/plan.py",
            "        elif time_ms > limit_ms:\n",
            "        elif time_ms > limit_ms and not path:\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "orphan files are not checked again before they go",
            "core/maintain/orphans/execute.py",
            "    files = plan.reach.unreached(now.metadata, files)\n",
            "",
            (_CLEAN,),
        ),
        RemovedCheck(
            "a large part of the files may go",
            "core/maintain/orphans/execute.py",
            "    plan.check()\n",
            "",
            (_CLEAN,),
        ),
        RemovedCheck(
            "files of earlier metadata are orphans",
            "core/maintain/orphans/references.py",
            "        if location != table.metadata_location:\n",
            "        if not location:\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "metadata of another table in the folder is ignored",
            "core/maintain/orphans/kept_files.py",
            "if uuid is not None and uuid != own and is_shared:",
            "if uuid is not None and uuid != own and not path:",
            (_CLEAN,),
        ),
        RemovedCheck(
            "orphan files of a nested table go",
            "core/maintain/orphans/plan.py",
            "        elif path in nested:\n",
            "        elif path in nested and not path:\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "a list of moved files is trusted",
            "core/maintain/orphans/trash.py",
            "    _check_paths(table, run, rows)\n",
            "",
            (_CLEAN,),
        ),
        RemovedCheck(
            "the old version of a file that exists again is deleted",
            "core/maintain/orphans/trash.py",
            "    others = set(present)\n",
            "    others = set[str]()\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "a file of the same size is taken for a copy of the file in the trash",
            "core/maintain/orphans/trash.py",
            "        return is_equal and _are_equal(table.storage, path, place)\n",
            "        return is_equal\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "an incomplete listing is trusted",
            "core/maintain/orphans/listing.py",
            "    if not has_current:\n",
            "    if not current:\n",
            (_CLEAN,),
        ),
        RemovedCheck(
            "a manifest that another writer replaced is rewritten",
            "core/transaction/commit/snapshot_producer.py",
            "        if len(chosen) < len(operation.manifests):\n",
            "        if not operation.manifests:\n",
            (_MANIFESTS,),
        ),
        RemovedCheck(
            "deleted entries of rewritten manifests come back",
            "core/transaction/commit/clustered_entries.py",
            '            live = entries.filter(pc.not_equal(entries["status"], DELETED))\n',
            "            live = entries\n",
            (_MANIFESTS,),
        ),
        RemovedCheck(
            "the minimum age of 24 hours is not enforced",
            "core/maintain/expiration/retention.py",
            "older_than > now_ms - FLOOR_MS and not options.unsafe",
            "False",
            (_EXPIRE, "tests/commands/test_expire.py"),
        ),
        RemovedCheck(
            "gc.enabled is ignored",
            "core/maintain/expiration/retention.py",
            "not GC_ENABLED.of(metadata.properties)",
            "False",
            (_EXPIRE, "tests/commands/test_expire.py"),
        ),
        RemovedCheck(
            "snapshots that a Flink job needs are not kept",
            "core/maintain/expiration/flink_retention.py",
            "            if item.commit.snapshot.timestamp_ms >= since_ms\n",
            "            if False\n",
            (
                f"{_CORE}/maintain/expiration/test_flink_retention.py",
                "tests/commands/test_expire_flink.py",
            ),
        ),
        RemovedCheck(
            "a killed expiry's journal is not finished",
            "core/maintain/expiration/journal_recovery.py",
            "        delete_files(self._session, table, reach, item.files, removed, others)\n",
            "",
            (_JOURNAL, _CRASHES),
        ),
        RemovedCheck(
            "a run id is forgotten with its snapshot",
            "core/transaction/commit/commit.py",
            "        self.has_notes = bool(notes)\n",
            "        notes = {}\n",
            (_RUN_IDS, _INGEST),
        ),
        RemovedCheck(
            "an expiry does not note when a run's snapshot expired",
            "core/maintain/expiration/execute.py",
            "        if updates and self.may_record_runs:\n",
            "        if False:\n",
            (_RUN_IDS,),
        ),
        RemovedCheck(
            "a run that was rolled back and expired counts as loaded",
            "core/table/snapshots/branch_notes.py",
            "    return not oldest or note.sequence_number < oldest\n",
            "    return True\n",
            (_RUN_IDS,),
        ),
        RemovedCheck(
            "statistics of expired snapshots are searched for in the new metadata",
            "core/maintain/expiration/execute.py",
            "            before=self.before,\n",
            "",
            (_EXPIRE_FILES,),
        ),
        RemovedCheck(
            "a link to a deleted file is ignored",
            "core/transaction/garbage/reachability.py",
            "        return HeldNames.joined([held, HeldNames.of(self.names.linked_in(held.folders))])\n",
            "        return held\n",
            (_EXPIRE_FILES,),
        ),
        RemovedCheck(
            "a file below a linked folder counts as a different file",
            "core/io/storage/file_names.py",
            "                target = self._target(below) if links < _MAX_LINKS else None\n",
            "                target = None\n",
            (_EXPIRE_FILES,),
        ),
        RemovedCheck(
            "a link in place of a table's file is followed",
            "core/io/storage/storage.py",
            "os.stat(path, follow_symlinks=follow_link)",
            "os.stat(path)",
            ("tests/commands/test_links.py",),
        ),
    )


def _repairs() -> tuple[RemovedCheck, ...]:
    absence, missing = "core/maintain/repair/absence.py", "core/maintain/repair/missing_files.py"
    return (
        RemovedCheck(
            "a file that one lookup does not find is missing",
            absence,
            "            if is_gone\n",
            "",
            (_REPAIR,),
        ),
        RemovedCheck(
            "all files of a place may be missing",
            missing,
            "    require_reachable(table, live.paths, gone)\n",
            "",
            (_REPAIR,),
        ),
        RemovedCheck(
            "missing delete files are dropped, and deleted rows come back",
            missing,
            "    _refuse_revived(table, gone_deletes, after)\n",
            "",
            (_REPAIR,),
        ),
        RemovedCheck(
            "a file that is there again is dropped",
            "core/maintain/repair/execute.py",
            "    if back := gone - gone_files(now.storage, sorted(gone)):\n",
            "    if back := frozenset[str]():\n",
            (_REPAIR,),
        ),
        RemovedCheck(
            "statistics that others computed meanwhile are removed",
            "core/table/metadata/snapshot_updates.py",
            "    if found != expected:\n",
            "    if False:\n",
            (_REPAIR,),
        ),
        RemovedCheck(
            "entries that differ count as duplicates",
            "core/maintain/repair/duplicates.py",
            "        if len(set(alike)) > 1:\n",
            "        if False:\n",
            (_REPAIR,),
        ),
        RemovedCheck(
            "the entries of duplicates are dropped on another head",
            "core/transaction/commit/snapshot_producer.py",
            "        if parent.snapshot_id != operation.base_snapshot_id:\n",
            "        if False:\n",
            (f"{_CORE}/transaction/commit/test_duplicate_entries.py",),
        ),
        RemovedCheck(
            "the ref of a consumer is dropped, and it reads all again",
            "core/maintain/repair/metadata_entries.py",
            "        if name == ancestry.MAIN or ancestry.is_consumer(name):\n",
            "        if name == ancestry.MAIN:\n",
            (_REPAIR,),
        ),
    )


def _rewrites() -> tuple[RemovedCheck, ...]:
    return (
        RemovedCheck(
            "a rewrite gets a new sequence number",
            "core/transaction/commit/snapshot_producer.py",
            "            number = operation.data_sequence_number\n",
            "            number = None\n",
            (_COMPACTION, _RACES),
        ),
        RemovedCheck(
            "deletes of a data file that is gone are written",
            "core/transaction/commit/snapshot_producer.py",
            "        find_live(self.storage, metadata, parent.manifests, frozenset(operation.referenced_paths))\n",
            "",
            ("tests/commands/test_deletes_rewrite.py",),
        ),
        RemovedCheck(
            "data files that were added since are taken for converted",
            "core/maintain/delete_conversion/converted.py",
            "        found: Mask = self.had(entries) & before.to_numpy(zero_copy_only=False)\n",
            "        found: Mask = before.to_numpy(zero_copy_only=False)\n",
            (_IN_PARTS,),
        ),
        RemovedCheck(
            "a record of a conversion that cannot be true is believed",
            "core/maintain/delete_conversion/converted.py",
            "            if found is None or found.sequence_number >= (snapshot.sequence_number or 0):\n",
            "            if found is None:\n",
            (_IN_PARTS,),
        ),
        RemovedCheck(
            "equality deletes go before the last data file is read",
            "core/maintain/delete_conversion/conversion_plan.py",
            "        done = work.chosen & ~work.needed_by(np.sort(order[most:]))\n",
            "        done = work.chosen\n",
            (_IN_PARTS,),
        ),
        RemovedCheck(
            "newer equality deletes are taken for applied",
            "core/maintain/delete_conversion/conversion_plan.py",
            "        found: Mask = (needed & self.chosen) | (again & self._since)\n",
            "        found: Mask = needed & self.chosen\n",
            (_IN_PARTS,),
        ),
        RemovedCheck(
            "rows that a rewrite lost are not noticed",
            "core/maintain/compaction/verify.py",
            "    if written != rows_read:\n",
            "    if False:\n",
            (f"{_CORE}/maintain/compaction/test_verify.py", _COMPACTION),
        ),
        RemovedCheck(
            "rows that a file lacks are not noticed",
            "core/maintain/compaction/verify.py",
            "    if rows_read + dropped != expected:\n",
            "    if False:\n",
            (f"{_CORE}/maintain/compaction/test_verify.py", _COMPACTION),
        ),
        RemovedCheck(
            "changed values pass --verify",
            "core/maintain/compaction/tasks.py",
            "    if found != expected:\n",
            "    if False:\n",
            (_COMPACTION, "tests/commands/test_compact.py"),
        ),
        RemovedCheck(
            "values that sorting changed pass --verify",
            "core/maintain/compaction/rewrite.py",
            "    if read != written:\n",
            "    if False:\n",
            (_SORTED,),
        ),
        RemovedCheck(
            "files declare the table's sort order without having it",
            "core/spec/types/sort_orders.py",
            "if fields and tuple(order.fields) == tuple(fields)",
            "if fields",
            (_SORTED,),
        ),
        RemovedCheck(
            "a delete that still applies is dropped",
            "core/maintain/compaction/dangling_deletes.py",
            "np.where(is_equality, numbers <= oldest, numbers < oldest)",
            "numbers <= oldest",
            (_ROW_DELTA,),
        ),
        RemovedCheck(
            "rewritten rows get new row ids",
            "core/maintain/compaction/plan.py",
            "return moved_schema(self.table.schema, self.table.metadata)",
            "return self.table.schema",
            ("tests/java/test_compact_deletes_by_java.py",),
        ),
        RemovedCheck(
            "an upsert ignores concurrently added rows with its keys",
            "core/load/upsert/execute.py",
            "            conflict_filter=matched.condition,\n"
            "            isolation=SERIALIZABLE,\n"
            "            sole_spec=",
            "            conflict_filter=matched.condition,\n"
            '            isolation="snapshot",\n'
            "            sole_spec=",
            (_UPSERT, _RACES),
        ),
        RemovedCheck(
            "a deletion ignores concurrently added rows",
            "core/maintain/row_deletion/execute.py",
            "        isolation=plan.isolation,\n",
            '        isolation="snapshot",\n',
            (f"{_DELETE}::test_rows_that_are_appended_meanwhile_are_considered_too",),
        ),
        RemovedCheck(
            "rows that a deletion copies may have been deleted by key meanwhile",
            "core/maintain/row_deletion/execute.py",
            "ignore_equality=not deleted.kept",
            "ignore_equality=True",
            (f"{_DELETE}::test_whatever_commits_meanwhile_no_row_is_lost_or_comes_back",),
        ),
        RemovedCheck(
            "files that a commit removes may have got new deletes",
            "core/transaction/commit/snapshot_producer.py",
            "{**files.partitions, **gone.partitions}",
            "files.partitions",
            (f"{_DELETE}::test_whatever_commits_meanwhile_no_row_is_lost_or_comes_back",),
        ),
        RemovedCheck(
            "rows that a deletion copies get new row ids",
            "core/maintain/row_deletion/execute.py",
            "copied = moved_schema(table.schema, table.metadata) if",
            "copied = table.schema if",
            ("tests/java/test_delete_by_java.py",),
        ),
        RemovedCheck(
            "the vectors of a deletion lack the rows deleted before",
            "core/data/deletes/written_positions.py",
            "deletes.positions_of(file))",
            "RowPositions())",
            (f"{_DELETE}::test_a_row_that_is_deleted_already_does_not_count",),
        ),
        RemovedCheck(
            "a deletion deletes more rows than it may",
            "core/maintain/row_deletion/execute.py",
            "if most is None or plan.removals.rows_at_most <= most:",
            "if True:",
            (f"{_DELETE}::test_more_rows_than_allowed_are_refused_and_nothing_changes",),
        ),
        RemovedCheck(
            "changes of a table are applied without an order",
            "core/load/upsert/plan.py",
            "    if options.changes_column is not None and ingest.from_table and options.sequence is None:\n",
            "    if False:\n",
            (_LOOKUP_SOURCES,),
        ),
        RemovedCheck(
            "any of several rows with one key in a table replaces the others",
            "core/load/ingest/units.py",
            "sorted(enumerate(files), key=lambda item: (item[1].sequence_number, item[1].path))",
            "list(enumerate(files))",
            (_LOOKUP_SOURCES, "tests/commands/test_ingest_follow.py"),
        ),
        RemovedCheck(
            "keys that differ in one column are merged",
            "core/data/keys/last_rows.py",
            "left.astype(np.int64) * other.limit + right",
            "left.astype(np.int64)",
            (f"{_CORE}/data/keys/test_last_rows.py",),
        ),
        RemovedCheck(
            "a partial update replaces values by NULL",
            "core/load/upsert/new_values.py",
            "mask = hit if item.field_id in overwrites else values.is_valid()",
            "mask = hit",
            ("tests/commands/test_partial_update.py",),
        ),
        RemovedCheck(
            "a partial update merges source rows that are older than the table's row",
            "core/load/upsert/new_values.py",
            "low[open_[mask]] = middle[mask] + 1",
            "high[open_[mask]] = middle[mask]",
            ("tests/commands/test_partial_update.py",),
        ),
        RemovedCheck(
            "rows that are merged get new row ids",
            "core/load/upsert/key_matching.py",
            "            writing = replace(writing, schema=copied)\n",
            "            copied = ingest.schema\n",
            ("tests/java/test_upsert_by_java.py",),
        ),
        RemovedCheck(
            "several rows with one key are replaced",
            "core/load/upsert/execute.py",
            "if not count or self.upsert.options.repair_duplicates or self.upsert.keeps_first:",
            "if True:",
            (_UPSERT,),
        ),
        RemovedCheck(
            "an upsert is not matched again after a conflict",
            "core/load/upsert/execute.py",
            "            if not self._blindly:\n",
            "            if False:\n",
            (_UPSERT, _RACES),
        ),
        RemovedCheck(
            "equality deletes apply to rows of their own commit",
            "core/data/deletes/equality.py",
            "return self._index.sequences(keys) > sequence_number",
            "return self._index.sequences(keys) >= sequence_number",
            (_EQUALITY, _APPLY),
        ),
        RemovedCheck(
            "position deletes do not apply to rows of their own commit",
            "core/data/deletes/apply.py",
            "            if file.sequence_number <= item.sequence_number:\n",
            "            if file.sequence_number < item.sequence_number:\n",
            (_APPLY,),
        ),
        RemovedCheck(
            "a damaged deletion vector is accepted",
            "core/data/deletes/row_positions.py",
            "!= zlib.crc32(body):",
            "== object():",
            (f"{_CORE}/data/deletes/test_row_positions.py",),
        ),
        RemovedCheck(
            "another file's deletion vector is accepted",
            "core/data/deletes/position_files.py",
            "    if len(found) != file.record_count:\n",
            "    if False:\n",
            (_APPLY, f"{_CORE}/data/deletes/test_puffin.py"),
        ),
    )


def _runs() -> tuple[RemovedCheck, ...]:
    return (
        RemovedCheck(
            "a run that may be committing is discarded",
            "core/transaction/staging/claims.py",
            "        _refuse_claims(session, table, marks, claims, own_operation)\n",
            "",
            (_STAGES, f"{_CORE}/transaction/staging/test_staged_run.py"),
        ),
        RemovedCheck(
            "a run that is being discarded is committed",
            "core/transaction/staging/claims.py",
            "            _require_there(table, name)\n",
            "            pass\n",
            (_STAGES, f"{_CORE}/transaction/staging/test_staged_run.py"),
        ),
        RemovedCheck(
            "a discard deletes committed files",
            "core/transaction/staging/claims.py",
            "            if locations.canonical(path) not in rest.referenced | session.protected_files\n",
            "",
            (_STAGES, f"{_CORE}/transaction/staging/test_staged_run.py"),
        ),
        RemovedCheck(
            "a staged run whose base snapshot expired is committed",
            "core/load/ingest/recovery.py",
            "    if expired is not None:\n",
            "    if False:\n",
            (_STAGES,),
        ),
        RemovedCheck(
            "a staged run is committed although snapshots contain it",
            "core/load/ingest/recovery.py",
            "    if _is_held(session, plan, run):\n        return _outcome",
            "    if False:\n        return _outcome",
            (_STAGES,),
        ),
    )


def _streams() -> tuple[RemovedCheck, ...]:
    return (
        RemovedCheck(
            "an epoch of a stream is committed again after its snapshot expired",
            "core/transaction/commit/guards.py",
            "        return newest is not None and newest.number >= self.epoch.number\n",
            "        return False\n",
            (_WATCH,),
        ),
        RemovedCheck(
            "a watch loads files before it has noted them",
            "core/load/continuous/epochs.py",
            "        self._offer(offer)\n        self._finish(offer)\n",
            "        self._finish(offer)\n",
            (_WATCH_CRASHES,),
        ),
        RemovedCheck(
            "a watch takes a new list of files for an epoch that was begun",
            "core/load/continuous/epochs.py",
            "        offer = self.state.offered\n        if offer is not None and not offer.loaded:\n",
            "        offer = None\n        if offer is not None and not offer.loaded:\n",
            (_WATCH_CRASHES,),
        ),
        RemovedCheck(
            "a watch loads another folder with the state of the first one",
            "core/load/continuous/files/known.py",
            "    if options.new_source:\n",
            "    if True:\n",
            (_ODD_FILES,),
        ),
        RemovedCheck(
            "a watch loads a loaded file again that was moved",
            "core/load/continuous/files/known.py",
            "                if path != file.path and self._is_same(file, path):\n",
            "                if False:\n",
            (_ODD_FILES,),
        ),
        RemovedCheck(
            "a watch loads a file whose time does not show when it changed",
            "core/load/continuous/files/execute.py",
            "        return {one.file for one in self.ahead if now_ms - one.seen_ms >= settle_ms}\n",
            "        return {one.file for one in self.ahead}\n",
            (_ODD_FILES,),
        ),
        RemovedCheck(
            "a watch takes the commit of a list that was given up for that of its own list",
            "core/load/continuous/epochs.py",
            "        if (is_empty or self.state.given_up) and not self._is_committed(offer) and is_empty:\n",
            "        if False:\n",
            (_ODD_FILES,),
        ),
        RemovedCheck(
            "two runs of a watch change its state at once",
            "core/load/continuous/state.py",
            "expected=lambda: _read(self.folder) == before",
            "expected=None",
            (_WATCH_CRASHES,),
        ),
    )


def _routes() -> tuple[RemovedCheck, ...]:
    split, execute = "core/load/routing/split.py", "core/load/routing/execute.py"
    return (
        RemovedCheck(
            "one run loads any number of tables",
            split,
            "        if len(new | self._targets.keys()) > self._route.max_tables:\n",
            "        if False:\n",
            (_ROUTE,),
        ),
        RemovedCheck(
            "a value names a table although it contains other characters",
            "core/load/routing/options.py",
            'r"[A-Za-z0-9_]+"',
            'r".+"',
            (_ROUTE,),
        ),
        RemovedCheck(
            "two names of one table are loaded with one run id",
            execute,
            "        if other is not None:\n",
            "        if False:\n",
            (_ROUTE,),
        ),
        RemovedCheck(
            "rows without a key are divided, and fail the load of their table",
            split,
            "[null_check, *target.checks]",
            "[null_check]",
            (_ROUTE,),
        ),
        RemovedCheck(
            "the rejects of a repeated run replace other rows",
            execute,
            "    if there and not filecmp.cmp(draft, path, shallow=False):\n",
            "    if False:\n",
            (_ROUTE,),
        ),
        RemovedCheck(
            "a row that is divided is located in its part, not in its file",
            "core/data/sources/json/rows.py",
            "        locate=located_later,\n",
            "",
            (_VALUED_ROWS, _ROUTE),
        ),
    )


def _readers() -> tuple[RemovedCheck, ...]:
    offsets, consumers = (
        "core/load/continuous/kafka/offsets.py",
        "core/read/continuous/consumers.py",
    )
    return (
        RemovedCheck(
            "what was committed after a reader's last run expires",
            "core/maintain/expiration/retention.py",
            "for snapshot in (*item.needed, *item.ahead)",
            "for snapshot in item.needed[:1]",
            (_CONSUMERS,),
        ),
        RemovedCheck(
            "a ref with commits of another program is moved or removed",
            consumers,
            "    if is_foreign and not was_current(metadata, ref.snapshot_id):\n",
            "    if False:\n",
            (_CONSUMERS,),
        ),
        RemovedCheck(
            "lake commits to the ref of a reader",
            "core/transaction/commit/preconditions.py",
            "    if ancestry.is_consumer(branch):\n",
            "    if False:\n",
            (_CONSUMERS,),
        ),
        RemovedCheck(
            "deleted messages of a topic are skipped silently",
            offsets,
            "    if gaps and on_gap is OnGap.FAIL:\n",
            "    if False:\n",
            (_KAFKA,),
        ),
        RemovedCheck(
            "a topic that was created again is continued",
            offsets,
            "    _refuse_another(topic, saved, following)\n",
            "",
            (_KAFKA,),
        ),
    )


def _replays() -> tuple[RemovedCheck, ...]:
    return (
        RemovedCheck(
            "a concurrently committed checkpoint is committed again",
            "core/load/replay/execute.py",
            "                if not _is_done(item, before, now)\n"
            "                and not self._ran(table, item)\n"
            "                and not self._is_held(item, present)\n",
            "                if not self._ran(table, item)\n",
            (_REPLAY,),
        ),
        RemovedCheck(
            "files that were added in another way are added again",
            "core/load/replay/execute.py",
            "        return find_referenced(table.storage, table.metadata, wanted, known=known)\n",
            "        return frozenset()\n",
            (_REPLAY,),
        ),
        RemovedCheck(
            "a concurrent rollback is not noticed",
            "core/load/replay/execute.py",
            "        self._require_history(table)\n",
            "",
            (_REPLAY,),
        ),
        RemovedCheck(
            "a running job is replayed",
            "core/load/replay/safety_checks.py",
            "    if age_ms < survey.options.quiet_ms:\n",
            "    if False:\n",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "a checkpoint of another table is nothing to do",
            "core/load/replay/safety_checks.py",
            "    _refuse_elsewhere(survey)\n",
            "",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "an unknown job is nothing to do",
            "core/load/replay/safety_checks.py",
            "    _refuse_unknown(survey)\n",
            "",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "a missing manifest is not noticed",
            "core/load/replay/safety_checks.py",
            "            _refuse_gaps(survey, job)\n",
            "",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "a broken checkpoint is omitted silently",
            "core/load/replay/safety_checks.py",
            "    _refuse_unfit(survey)\n",
            "",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "a checkpoint that may have been committed before an expiry is committed",
            "core/load/replay/safety_checks.py",
            "    _refuse_expired(survey)\n",
            "",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "appended rows replace partitions",
            "core/load/replay/safety_checks.py",
            "            _refuse_mode(survey, job)\n",
            "",
            (_REFUSALS,),
        ),
    )


def _follows() -> tuple[RemovedCheck, ...]:
    power = f"{_FOLLOWING}::test_a_follow_continues_after_a_power_cut_at_each_of_its_steps"
    count = "test_an_epoch_that_ends_a_discovery_with_too_few_rows_is_not_handed_over"
    count = f"{_FOLLOW_OUTPUT}::{count}"
    return (
        RemovedCheck(
            "an epoch is prepared before the name of its hidden folder is on the disk",
            "core/read/continuous/handover/epochs.py",
            "        atomic_files.flush(os.path.dirname(hidden))\n",
            "",
            (power,),
        ),
        RemovedCheck(
            "an epoch is renamed before the state says that it is prepared",
            "core/read/continuous/handover/epochs.py",
            "state = store.save(state.changed(prepared=prepared))",
            "state = state.changed(prepared=prepared)",
            (power,),
        ),
        RemovedCheck(
            "an output that is not mounted counts as one from which the epoch was taken",
            "core/read/continuous/handover/epochs.py",
            "if not known and not os.path.lexists(output.target(prepared.epoch)):",
            "if False:",
            (
                f"{_FOLLOW_OUTPUT}::test_an_output_that_is_not_mounted_does_not_lose_the_prepared_epoch",
            ),
        ),
        RemovedCheck(
            "a discovery with missing rows is handed over",
            "core/read/continuous/handover/epochs.py",
            "    if found != expected:",
            "    if False:",
            (count,),
        ),
        RemovedCheck(
            "a discovery that does not continue the position is taken",
            "core/read/continuous/handover/discovered.py",
            "if discovery.start != run.position:",
            "if False:",
            (f"{_FOLLOW_OUTPUT}::test_a_discovery_that_starts_elsewhere_is_dropped",),
        ),
        RemovedCheck(
            "a damaged file of splits is read",
            "core/read/continuous/handover/splits_file.py",
            "if found != expected or (digest.hexdigest(), count) != (pending.sha256, pending.count):",
            "if False:",
            (f"{_FOLLOW_OUTPUT}::test_a_damaged_file_of_splits_is_refused",),
        ),
    )


def _inputs() -> tuple[RemovedCheck, ...]:
    return (
        RemovedCheck(
            "column chunks of a data file are described without a check",
            "core/data/formats/parquet/reader.py",
            "        check_group(self._parquet, self._checks, path, group, names)\n",
            "",
            (_FOOTERS,),
        ),
        RemovedCheck(
            "statistics of a data file are decoded without a check",
            "core/data/formats/parquet/chunk_checks.py",
            "        return bound_notes(bytes(self._footer), widths)\n",
            "        return bound_notes(bytes(self._footer), {})\n",
            (_FOOTERS,),
        ),
        RemovedCheck(
            "minima and maxima of a footer are bounds whoever wrote them",
            "core/data/formats/parquet/statistics.py",
            "        if not (bounded and are_bounds):\n",
            "        if not bounded:\n",
            ("tests/commands/test_footer_statistics.py",),
        ),
        RemovedCheck(
            "a footer's count of NULLs is that of the values whoever wrote it",
            "core/data/formats/parquet/statistics.py",
            "        nulls = found.null_count if counts else None\n",
            "        nulls, counts = found.null_count, found.has_null_count\n",
            ("tests/commands/test_footer_statistics.py",),
        ),
        RemovedCheck(
            "a value whose partition does not fit is stored in another one",
            "core/spec/types/transforms.py",
            "    if len(lost):\n",
            "    if False:\n",
            ("tests/commands/test_partition_ranges.py",),
        ),
        RemovedCheck(
            "row groups of a data file have other rows than the file",
            "core/data/formats/parquet/reader.py",
            "        if min(rows, default=0) < 0 or sum(rows) != metadata.num_rows:\n",
            "        if False:\n",
            (_FOOTERS,),
        ),
        RemovedCheck(
            "a manifest with a wrong length is read",
            "core/table/manifests/read.py",
            '    if len(data) != manifest["manifest_length"]:\n',
            "    if False:\n",
            (_MANIFESTS,),
        ),
        RemovedCheck(
            "a manifest with a wrong byte is read",
            "core/io/avro/container.py",
            "    if is_sealed and digest.digest()[:_SYNC_BYTES] != header.sync:\n",
            "    if False:\n",
            (_AVRO,),
        ),
        RemovedCheck(
            "a manifest with other rows than its list says is read",
            "core/table/manifests/decode.py",
            "    if None not in known and sum(count or 0 for count in known) == added + existing:\n",
            "    if known:\n",
            ("tests/commands/test_foreign_tables.py",),
        ),
        RemovedCheck(
            "a compaction reads values as NULL that the metadata of old files counts",
            "core/maintain/compaction/execute.py",
            "            if item.lost_in in missing:\n",
            "            if False:\n",
            ("tests/commands/test_foreign_files.py",),
        ),
        RemovedCheck(
            "old dates in the Julian calendar are loaded",
            "core/data/sources/batches.py",
            "                if legacy:\n",
            "                if False:\n",
            ("tests/commands/test_foreign_files.py",),
        ),
        RemovedCheck(
            "a list without all manifests of an append is enough for it",
            "core/table/snapshots/completeness.py",
            "    return files is not None and files == found.files and rows is not None and rows == found.rows\n",
            "    return True\n",
            ("tests/core/read/scan/test_added_manifests.py",),
        ),
        RemovedCheck(
            "a list that names a manifest twice is read",
            "core/table/manifests/read.py",
            "    if len(np.unique(named)) != rows.num_rows:\n",
            "    if False:\n",
            (_LISTS,),
        ),
        RemovedCheck(
            "a list that repeats a manifest of the list before it is read",
            "core/table/manifests/read.py",
            "    if len(first) != len(every):\n",
            "    if False:\n",
            (_LISTS,),
        ),
        RemovedCheck(
            "a list on which a commit builds is read once",
            "core/table/manifests/read.py",
            "    if read_twice and storage.read(location) != data:\n",
            "    if False:\n",
            (_WHOLE_LISTS,),
        ),
        RemovedCheck(
            "a manifest with other counts than its list says is read",
            "core/table/manifests/decode.py",
            "    if declared is not None and declared != count:\n",
            "    if False:\n",
            (_MANIFESTS,),
        ),
        RemovedCheck(
            "a block without its sync marker is read",
            "core/io/avro/container.py",
            "        if sync != self.sync:\n",
            "        if sync is None:\n",
            (f"{_CORE}/io/avro/test_avro.py",),
        ),
        RemovedCheck(
            "a path with unsafe parts counts as the table's",
            "core/base/locations.py",
            '_UNSAFE_TO_DELETE.search(text) or any(part in {".", ".."} for part in path.split("/"))',
            "False",
            (f"{_CORE}/base/test_locations.py",),
        ),
        RemovedCheck(
            "a name that ends in a slash is another file's",
            "core/base/locations.py",
            '    if location.endswith("/"):\n',
            "    if False:\n",
            (f"{_CORE}/base/test_locations.py",),
        ),
        RemovedCheck(
            "a bucket's root may be a table's location",
            "core/base/locations.py",
            'return len(parts) >= _ROOT_PARTS and ".." not in parts',
            "return True",
            (f"{_CORE}/base/test_locations.py",),
        ),
        RemovedCheck(
            "a file is deleted through a symbolic link",
            "core/io/storage/storage.py",
            "        if os.path.realpath(folder) != os.path.normpath(folder) and _link_below_table(folder):\n",
            "        if False:\n",
            (f"{_CORE}/io/storage/test_storage.py", _EXPIRE),
        ),
        RemovedCheck(
            "a file is deleted through a link that appeared at the last moment",
            "core/io/storage/storage.py",
            "_FOLDER | os.O_NOFOLLOW",
            "_FOLDER",
            (f"{_CORE}/io/storage/test_storage.py",),
        ),
        RemovedCheck(
            "a purge of a folder goes on after another writer's commit",
            "core/maintain/definition/drop.py",
            "        if table.refreshed().metadata_location != table.metadata_location:\n"
            "            raise _changed(plan, deleted)\n"
            "        return\n",
            "        return\n",
            (_ENTRIES,),
        ),
        RemovedCheck(
            "a drop deletes the files",
            "core/maintain/definition/drop.py",
            "    if not purge:\n        return DropPlan(table=table, files=None)\n",
            "",
            (_RACES,),
        ),
        RemovedCheck(
            "a table is registered under a second name",
            "core/maintain/definition/register.py",
            "    if names := names_of_table(session.catalog, metadata, location, storage, identifier):\n",
            "    if names := []:\n",
            (_RACES,),
        ),
        RemovedCheck(
            "partitions expire before they are old",
            "core/maintain/partitions/expire.py",
            "    old = order[ends[order] <= options.older_than_ms]\n",
            "    old = order[ends[order] <= options.older_than_ms + 10 * FLOOR_MS]\n",
            (_WORLD,),
        ),
        RemovedCheck(
            "a purge goes on although the table was registered again",
            "core/maintain/definition/drop.py",
            "    if now.metadata.table_uuid == table.metadata.table_uuid:\n",
            "    if False:\n",
            (_ENTRIES,),
        ),
        RemovedCheck(
            "a purge of a folder leaves a newer version as the table",
            "core/table/catalogs/hadoop.py",
            "            if version > own:\n",
            "            if False:\n",
            (_ENTRIES,),
        ),
        RemovedCheck(
            "a purge of a folder deletes the files of a table of another catalog",
            "core/table/catalogs/hadoop.py",
            "            if _OF_OTHERS.fullmatch(file):\n",
            "            if False:\n",
            (_ENTRIES,),
        ),
        RemovedCheck(
            "a table of a hadoop catalog that cannot be written is purged",
            "core/maintain/definition/drop.py",
            "    session.catalog.refuse_commits(table.identifier, table.metadata)\n",
            "    pass\n",
            (_ENTRIES,),
        ),
        RemovedCheck(
            "files of a table with two names are deleted",
            "core/maintain/expiration/plan.py",
            "        refuse_shared_location(table)\n",
            "        pass\n",
            ("tests/commands/test_expire.py",),
        ),
        RemovedCheck(
            "files of a table that another catalog continues are deleted",
            "core/transaction/garbage/other_histories.py",
            "    if not found:\n        return\n    first,",
            "    if found or True:\n        return\n    first,",
            (_TWO_CATALOGS,),
        ),
        RemovedCheck(
            "files of a table that another catalog continues are deleted if its log is short",
            "core/transaction/garbage/other_histories.py",
            "            others = {key for key in paths if key not in known}\n",
            "            others = {key for key in paths if version_of(key) in map(version_of, known)} - known\n",
            (_TWO_CATALOGS,),
        ),
        RemovedCheck(
            "files of commits that a backup of the catalog does not have are deleted",
            "core/transaction/garbage/other_histories.py",
            "        return place_of(before) in known or not self.listed.may_contain(before)\n",
            "        return True\n",
            (_TWO_CATALOGS,),
        ),
        RemovedCheck(
            "files of a table that a catalog in a folder above it contains are deleted",
            "core/table/catalogs/shared_locations.py",
            "        entry for file in files if file != own and os.path.isfile(file) for entry in _entries(file)\n",
            "        entry for file in files if file == own and os.path.isfile(file) for entry in _entries(file)\n",
            (_TWO_CATALOGS,),
        ),
        RemovedCheck(
            "a copy of a table is registered",
            "core/maintain/definition/register.py",
            "        _refuse_files_of_others(session, plan)\n",
            "        pass\n",
            (_TWO_CATALOGS,),
        ),
        RemovedCheck(
            "the current metadata file of another catalog drops out of the log and is deleted",
            "core/transaction/commit/attempt.py",
            "    if not GC_ENABLED.of(properties):\n",
            "    if False:\n",
            (_TWO_CATALOGS,),
        ),
        RemovedCheck(
            "files of a table whose metadata file is elsewhere are deleted",
            "core/table/catalogs/shared_locations.py",
            "    if not any(is_inside(place, root) for root in roots):\n",
            "    if False:\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "files in the folder of another table are deleted",
            "core/table/catalogs/shared_locations.py",
            "            if _is_folder_of_other(metadata, storage, folder):\n",
            "            if False:\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "a table in the folders of another one is registered",
            "core/table/catalogs/shared_locations.py",
            "        or _is_in_place_of(place, roots, place_of(other.location))\n",
            "",
            (_SHARED,),
        ),
        RemovedCheck(
            "a location outside of which the metadata file is may be another table's",
            "core/table/catalogs/shared_locations.py",
            "        if is_inside(place, root) or (root != home and is_inside(root, home)):\n",
            "        if is_inside(place, root) or is_inside(root, home):\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "links to the folders of another table are not followed",
            "core/table/metadata/folders.py",
            "    if not parsed.is_local:\n        return text\n",
            "    return text\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "another table that has the name now is dropped",
            "core/table/catalogs/sql.py",
            "            IcebergTables.metadata_location == table.metadata_location,\n",
            "",
            (_ENTRIES,),
        ),
        RemovedCheck(
            "a stop signal is taken for a failure",
            "core/base/errors.py",
            "class StoppedError(ReportedError):\n",
            "class StoppedError(LakeError):\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "a failure that may pass hides a table",
            "core/transaction/garbage/other_tables.py",
            "            if isinstance(error, TRANSIENT_ERRORS) and is_near:\n",
            "            if False:\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "a failure that may pass hides a namespace",
            "core/transaction/garbage/other_tables.py",
            "            if error is None or isinstance(error, TRANSIENT_ERRORS):\n",
            "            if error is None:\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "a namespace that cannot be listed hides the next ones",
            "core/transaction/garbage/other_tables.py",
            '                unread.append(_Entry(f"namespace {namespace.name}", None, (), error))\n',
            "                raise error\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "a failure that may pass hides the namespaces in another one",
            "core/table/catalogs/names.py",
            "    except TRANSIENT_ERRORS:\n        raise\n    except (LakeError",
            "    except (LakeError",
            (_SHARED,),
        ),
        RemovedCheck(
            "a failure that may pass hides the folder of another table",
            "core/table/catalogs/shared_locations.py",
            "    except TRANSIENT_ERRORS:\n        raise\n",
            "",
            (_SHARED,),
        ),
        RemovedCheck(
            "a failure that may pass hides a later checkpoint",
            "core/load/replay/checkpoint_selection.py",
            "    except TRANSIENT_ERRORS:\n        raise\n",
            "",
            (_REFUSALS,),
        ),
        RemovedCheck(
            "a failure that may pass hides the epochs of a stream",
            "core/load/routing/stream.py",
            "found.listed()]",
            "found.tables]",
            ("tests/commands/test_ingest_route_watch.py",),
        ),
        RemovedCheck(
            "files in the data folder of another table are orphans",
            "core/maintain/orphans/plan.py",
            "        reasons = _spared(session, table, options, loose, reasons)\n",
            "",
            (_SHARED,),
        ),
        RemovedCheck(
            "only the layout of a table in the folder of another one shows that it is there",
            "core/transaction/garbage/own_files.py",
            '    return found.filter(pc.invert(others.own(found["path"])))\n',
            "    return found\n",
            (_SHARED, _OWNERSHIP),
        ),
        RemovedCheck(
            "files are deleted while a table that may own them cannot be read",
            "core/transaction/garbage/other_tables.py",
            "        if self._must_read and near:\n",
            "        if False:\n",
            (_OWNERSHIP,),
        ),
        RemovedCheck(
            "a snapshot is applied as a replacement of partitions although it kept files in them",
            "core/maintain/branching/cherry_pick.py",
            "        require_replaced_all(table, source, added, frozenset(removed))\n",
            "        pass\n",
            (_CHERRY_PICK,),
        ),
        RemovedCheck(
            "a branch moves forward to a snapshot that lacks files of its head",
            "core/maintain/branching/branches.py",
            "        require_contents(table, head, target)\n",
            "",
            (_REF,),
        ),
        RemovedCheck(
            "a pick moves a branch forward to a snapshot that lacks files of its head",
            "core/maintain/branching/cherry_pick.py",
            "        require_contents(table, head, source)\n",
            "",
            (_REF,),
        ),
        RemovedCheck(
            "a branch is set to a snapshot whose manifest list is gone",
            "core/maintain/branching/rollback.py",
            "    read_list(table.storage, metadata, target)\n",
            "",
            (_ROLLBACK,),
        ),
        RemovedCheck(
            "a file in the data folder of another table is added",
            "core/load/file_addition/plan.py",
            "    if found := table_of_file(table, paths):\n",
            "    if found := table_of_file(table, ()):\n",
            (_SHARED,),
        ),
        RemovedCheck(
            "a rewrite is applied as an append",
            "core/maintain/branching/cherry_pick.py",
            "    elif removed:\n",
            "    elif not removed and removed:\n",
            (_CHERRY_PICK,),
        ),
        RemovedCheck(
            "a snapshot is applied although its files are gone",
            "core/maintain/branching/cherry_pick.py",
            "    require_stored(table, source, added)\n",
            "",
            (_CHERRY_PICK,),
        ),
        RemovedCheck(
            "files of others in a folder that a property names are orphans",
            "core/transaction/garbage/table_layout.py",
            "        if not self._is_in_use(name, folder):\n            return Place.OTHER_FOLDER\n",
            "",
            (_OWNERSHIP,),
        ),
        RemovedCheck(
            "ages are trusted on a machine whose clock is ahead of the store's",
            "core/transaction/locks/store_clock.py",
            "    if ahead_ms > MOST_MS:\n",
            "    if False:\n",
            ("tests/commands/test_clocks.py",),
        ),
        RemovedCheck(
            "a link in place of the trash is followed",
            "core/maintain/orphans/trash.py",
            "            if parsed.is_local and os.path.islink(parsed.path):\n",
            "            if False:\n",
            ("tests/commands/test_clean_trash.py",),
        ),
        RemovedCheck(
            "files whose names no writer of Iceberg makes are orphans",
            "core/transaction/garbage/table_layout.py",
            "        return Place.OWN if _DATA.fullmatch(last) else Place.OTHER_NAME\n",
            "        return Place.OWN\n",
            (_OWNERSHIP,),
        ),
        RemovedCheck(
            "a restore deletes the files that the list of a run lacks",
            "core/maintain/orphans/trash.py",
            "    if not (failed or present or here.keys() - listed):\n",
            "    if not (failed or present):\n",
            ("tests/commands/test_clean_trash.py",),
        ),
        RemovedCheck(
            "an upsert replaces rows by those of a source that lacks columns",
            "core/load/ingest/plan.py",
            "    refuse_lacking(table, columns, options)\n",
            "",
            (_MISSING,),
        ),
        RemovedCheck(
            "an upsert replaces rows by objects that lack columns",
            "core/data/sources/json/exact.py",
            '            source.needed.check_row(row, f"{where}, line {number},")\n',
            "            pass\n",
            (_MISSING,),
        ),
        RemovedCheck(
            "a copy of a file of which no row is left is no change",
            "core/load/upsert/execute.py",
            "        return bool(source.files or matched.files or (copies and matched.hit))\n",
            "        return bool(source.files or matched.files)\n",
            (_MISSING,),
        ),
        RemovedCheck(
            "a branch moves forward to a snapshot that is older than its head",
            "core/maintain/branching/branches.py",
            "        ancestry.require_descent(head, target)\n",
            "        pass\n",
            ("tests/commands/test_wrong_contents.py",),
        ),
    )


CHECKS = _checks()
