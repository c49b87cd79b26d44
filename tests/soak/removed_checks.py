"""Safety checks of lake, each with an edit that removes it and the tests that must then fail.

A comment in the source marks the code of a check, ``# check: NAME``; `soak.markers` describes what it marks.
"""

from __future__ import annotations

from dataclasses import dataclass

from soak.markers import Edit, always, becomes, instead, never, removed, without

_CORE = "tests/core"
_COMMIT = f"{_CORE}/transaction/commit/test_commit.py"
_CHAIN = f"{_CORE}/transaction/commit/test_snapshot_sequence.py"
_ROW_DELTA = f"{_CORE}/transaction/commit/test_row_delta.py"
_MANIFESTS = f"{_CORE}/table/manifests/test_manifests.py"
_REWRITTEN_MANIFESTS = "tests/commands/test_manifests.py"
_AVRO = f"{_CORE}/io/avro/test_avro.py"
_LISTS = f"{_CORE}/table/manifests/test_manifest_lists.py"
_WHOLE_LISTS = f"{_CORE}/table/snapshots/test_completeness.py"
_HADOOP = f"{_CORE}/table/catalogs/test_hadoop_commits.py"
_COMPACTION = f"{_CORE}/maintain/compaction/test_execute.py"
_KEEPER = f"{_CORE}/maintain/compaction/test_base_keeper.py"
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
_STATE_FOLDER = f"{_CORE}/io/storage/test_state_folder.py"
_OVERLAPS = "tests/commands/test_scan_follow_overlaps.py"
_WATCH_STATE = f"{_CORE}/load/continuous/test_state.py"
_IN_PARTS = "tests/commands/test_deletes_in_parts.py"
_REPAIR = "tests/commands/test_repair.py"
_RACES = "tests/world/test_races.py"
_WORLD = "tests/world/test_world.py"
_CRASHES = "tests/world/test_crashes.py"
_FOLLOWING = "tests/world/test_following.py"
_CLEAN = "tests/commands/test_clean.py"
_FOOTERS = "tests/commands/test_damaged_footers.py"
_ENTRIES = "tests/commands/test_table_entries.py"
_GLUE = "tests/services/test_glue.py"
_S3_FAULTS = "tests/services/test_s3_faults.py"
_CHERRY_PICK = "tests/commands/test_cherry_pick.py"
_REF = "tests/commands/test_ref.py"
_BRANCHES = "tests/commands/test_branches.py"
_ROLLBACK = "tests/commands/test_rollback.py"
_MISSING = "tests/commands/test_missing_columns.py"
_TWO_CATALOGS = "tests/commands/test_two_catalogs.py"
_SHARED = "tests/commands/test_shared_folders.py"
_OWNERSHIP = "tests/commands/test_clean_ownership.py"
_FOLLOW_OUTPUT = "tests/commands/test_scan_follow_output.py"
_EXPIRE_PARTITIONS = "tests/commands/test_expire_partitions.py"
_MESSY_FILES = "tests/commands/test_messy_files.py"
_REPLACED_PARTITIONS = "tests/commands/test_replaced_partitions.py"
_ADD_FILES = "tests/commands/test_add_files.py"
_EXPIRE_COMMAND = "tests/commands/test_expire.py"
_VERIFY = f"{_CORE}/maintain/compaction/test_verify.py"
_LOCATIONS = f"{_CORE}/base/test_locations.py"
_STORAGE = f"{_CORE}/io/storage/test_storage.py"
_STAGED_RUN = f"{_CORE}/transaction/staging/test_staged_run.py"
_FOREIGN_FILES = "tests/commands/test_foreign_files.py"
_TRASH = "tests/commands/test_clean_trash.py"
_FOOTER_STATISTICS = "tests/commands/test_footer_statistics.py"
_PARTIAL_UPDATE = "tests/commands/test_partial_update.py"


@dataclass(frozen=True, slots=True)
class RemovedCheck:
    """A copy of lake that lacks one check.

    Args:
        name: the name of its marker.
        edit: what takes the check out of the marked code.
        tests: the tests that must fail without the check.
    """

    name: str
    edit: Edit
    tests: tuple[str, ...]


def _check(name: str, edit: Edit, *tests: str) -> RemovedCheck:
    return RemovedCheck(name, edit, tests)


CHECKS = (
    # Commits.
    _check("pinned-head", without("pinned"), _COMMIT, _RACES),
    _check("same-table", without("same"), _COMMIT, _CHAIN),
    _check("unknown-outcome", becomes("return None, first_line(error)"), _COMMIT),
    _check("manifests-of-sent-commit", without("locations.canonical(path) not in owned"), _COMMIT),
    _check("reload-after-refusal", instead("self._find_after_refusal(error)", "None"), _COMMIT),
    _check("refused-and-expired", instead("self._was_in(now)", "False"), _COMMIT),
    _check("refused-and-replaced", instead("refused.was_made(table)", "False"), _ROLLBACK),
    _check("moves-since-refusal", instead("log[since[-1] :]", "log"), _ROLLBACK),
    _check("refusal-by-server", without("self._is_local()"), _COMMIT),
    _check("metadata-of-refused-commit", removed, _COMMIT),
    _check(
        "manifests-of-unknown-outcome",
        becomes("self._delete_unused(table, self.sequence.written)"),
        _COMMIT,
    ),
    _check("files-of-unknown-outcome", removed, _COMMIT, _INGEST, _STAGES),
    _check(
        "stop-after-commit",
        instead("after is None and unknown is None", "stop"),
        "tests/commands/test_stopping.py::test_a_stop_that_comes_while_a_commit_lands_is_too_late",
    ),
    _check("stops-until-record", never, "tests/core/base/test_interrupts.py", _WATCH),
    _check(
        "live-metadata-file",
        instead("unnamed(table.catalog.written_metadata, live)", "table.catalog.written_metadata"),
        _ROLLBACK,
    ),
    _check("run-id-guard", instead("self._is_guarded(table)", "False"), _COMMIT),
    _check("ascending-times", instead("latest_ms(metadata)", "0"), _COMMIT, _CHAIN),
    _check("distinct-snapshot-ids", without("candidate not in taken"), _CHAIN),
    _check("exclusive-version", instead("os.link", "os.replace"), _HADOOP),
    _check("own-lock-only", always, f"{_CORE}/transaction/locks/test_local.py"),
    # Conflicts with other commits.
    _check("complete-history", never, _COMMIT, _RACES),
    _check("conflict-with-added-data", never, _COMMIT, _ROW_DELTA, _RACES),
    _check("conflict-with-added-deletes", never, _ROW_DELTA),
    _check("deletes-of-replaced-files", never, _COMPACTION, _ROW_DELTA, _RACES),
    _check("deletes-before-a-look", becomes("pass"), _KEEPER),
    _check("equality-deletes-of-replaced-files", always, _COMPACTION, _ROW_DELTA, _RACES),
    _check("global-equality-deletes", without("is_global(spec)"), _ROW_DELTA),
    _check("deletes-of-replace-snapshots", without('"replace"'), _ROW_DELTA),
    _check("replaced-files-live", never, _COMMIT, _COMPACTION, _RACES),
    _check("one-vector-per-file", without("duplicated"), _ROW_DELTA),
    _check(
        "one-new-vector-per-file",
        removed,
        f"{_DELETE}::test_a_file_that_is_listed_twice_gets_no_two_vectors",
    ),
    _check("replaced-vector-live", without("replaced - live"), _ROW_DELTA),
    _check(
        "sole-spec", never, _ROW_DELTA, "tests/commands/test_ingest_changes.py", _UPSERT, _STAGES
    ),
    _check("delete-kinds-of-version", removed, _ROW_DELTA),
    _check("no-encryption", removed, _COMMIT, _INGEST, _COMPACTION),
    # Expiry and deletion of files.
    _check("refs-unmoved-at-expiry", instead("self._requirements(table)", "()"), _EXPIRE, _RACES),
    _check("no-ref-lost-at-expiry", never, _EXPIRE),
    _check("refs-of-other-runs-restored", removed, _JOURNAL),
    _check("refs-that-others-dropped", instead("_whole_refs(after)", "()"), _JOURNAL),
    _check("refs-before-the-log", instead("_log_of(before)", "[]"), _JOURNAL),
    _check("whole-refs", removed, _JOURNAL),
    _check("removed-refs-restored", removed, _EXPIRE, _JOURNAL, _RACES),
    _check("recheck-at-reload", becomes("checked = now.metadata_location"), _EXPIRE, _JOURNAL),
    _check(
        "reload-during-deletion",
        instead("now.metadata_location != checked", "not checked"),
        _EXPIRE,
        _JOURNAL,
    ),
    _check(
        "inside-own-roots", without("paths.deletable(path, table.roots)"), _EXPIRE, _EXPIRE_COMMAND
    ),
    _check("outside-nested-tables", removed, f"{_CORE}/transaction/garbage/test_own_files.py"),
    _check("metadata-by-name", removed, _JOURNAL),
    _check("only-metadata-names", without("metadata_files.is_metadata_name(location)"), _HADOOP),
    _check("only-names-of-flink", without("parse_name(path)"), _REPLAY),
    _check("slept-during-deletion", removed, _JOURNAL),
    _check("folders-of-tasks", never, "tests/core/transaction/garbage/test_manifest_files.py"),
    _check("kept-files", becomes("return files"), _EXPIRE_COMMAND),
    _check("checkpoint-files", never, _CLEAN),
    _check("young-files", never, _CLEAN),
    _check("recheck-orphans", removed, _CLEAN),
    _check("share-of-orphans", removed, _CLEAN),
    _check("earlier-metadata", never, _CLEAN),
    _check("metadata-of-other-tables", never, _CLEAN),
    _check("nested-table-files", never, _CLEAN),
    _check("paths-of-trash-list", removed, _CLEAN),
    _check("files-back-in-place", becomes("others = set[str]()"), _CLEAN),
    _check("equal-copy-in-trash", without("are_equal(table.storage, path, place)"), _CLEAN),
    _check("complete-listing", never, _CLEAN),
    _check("histories-listed", never, _S3_FAULTS),
    _check("manifests-still-live", never, _REWRITTEN_MANIFESTS),
    _check("deleted-entries", becomes("live = entries"), _REWRITTEN_MANIFESTS),
    _check("retention-floor", never, _EXPIRE, _EXPIRE_COMMAND),
    _check("gc-enabled", never, _EXPIRE, _EXPIRE_COMMAND),
    _check(
        "snapshots-of-flink-job",
        never,
        f"{_CORE}/maintain/expiration/test_flink_retention.py",
        "tests/commands/test_expire_flink.py",
    ),
    _check("killed-expiry-finished", removed, _JOURNAL, _CRASHES),
    _check("run-ids-of-expired", becomes("notes = {}"), _RUN_IDS, _INGEST),
    _check("expiry-times-of-runs", never, _RUN_IDS),
    _check("rolled-back-runs", always, _RUN_IDS),
    _check("left-runs", never, _BRANCHES),
    _check("statistics-before-expiry", removed, _EXPIRE_FILES),
    _check("links-to-files", becomes("return held"), _EXPIRE_FILES),
    _check("links-to-folders", instead("links < _MAX_LINKS", "False"), _EXPIRE_FILES),
    _check(
        "no-link-in-place-of-file", instead("follow_link", "True"), "tests/commands/test_links.py"
    ),
    # Rewrites of rows.
    _check(
        "sequence-number-of-rewrite",
        instead("operation.data_sequence_number", "None"),
        _COMPACTION,
        _RACES,
    ),
    _check("referenced-files-live", removed, "tests/commands/test_deletes_rewrite.py"),
    _check("converted-files-only", without("self.had(entries)"), _IN_PARTS),
    _check(
        "possible-conversion-record",
        without("found.sequence_number >= (snapshot.sequence_number or 0)"),
        _IN_PARTS,
    ),
    _check(
        "last-reader-of-equality-deletes",
        without("~work.needed_by(np.sort(order[most:]))"),
        _IN_PARTS,
    ),
    _check("newer-equality-deletes", without("again & self._since"), _IN_PARTS),
    _check("rows-written", never, _VERIFY, _COMPACTION),
    _check("rows-read", never, _VERIFY, _COMPACTION),
    _check("values-written", never, _COMPACTION, "tests/commands/test_compact.py"),
    _check("values-sorted", never, _SORTED),
    *(
        _check(name, never, f"{_CORE}/data/formats/test_copied_row_groups.py")
        for name in ("columns-of-copies", "writers-of-copies", "values-of-copies", "copied-footer")
    ),
    *(
        _check(name, never, "tests/commands/test_compact_copies.py")
        for name in ("checksums-of-copies", "deletes-of-copies")
    ),
    _check("sort-order-of-files", without("tuple(order.fields) == tuple(fields)"), _SORTED),
    _check(
        "dangling-position-deletes", instead("numbers < oldest", "numbers <= oldest"), _ROW_DELTA
    ),
    _check(
        "row-ids-of-compaction",
        instead("moved_schema(self.table.schema, self.table.metadata)", "self.table.schema"),
        "tests/java/test_compact_deletes_by_java.py",
    ),
    _check("serializable-upsert", instead("SERIALIZABLE", '"snapshot"'), _UPSERT, _RACES),
    _check(
        "isolation-of-deletion",
        instead("plan.isolation", '"snapshot"'),
        f"{_DELETE}::test_rows_that_are_appended_meanwhile_are_considered_too",
    ),
    _check(
        "equality-deletes-of-copied-rows",
        always,
        f"{_DELETE}::test_whatever_commits_meanwhile_no_row_is_lost_or_comes_back",
    ),
    _check(
        "deletes-of-removed-files",
        instead("{**files.partitions, **gone.partitions}", "files.partitions"),
        f"{_DELETE}::test_whatever_commits_meanwhile_no_row_is_lost_or_comes_back",
    ),
    _check(
        "row-ids-of-deletion",
        instead("moved_schema(table.schema, table.metadata)", "table.schema"),
        "tests/java/test_delete_by_java.py",
    ),
    _check(
        "earlier-positions-in-vector",
        instead("deletes.positions_of(file)", "RowPositions()"),
        f"{_DELETE}::test_a_row_that_is_deleted_already_does_not_count",
    ),
    _check(
        "max-rows-of-deletion",
        always,
        f"{_DELETE}::test_more_rows_than_allowed_are_refused_and_nothing_changes",
    ),
    _check("sequence-of-table-changes", never, _LOOKUP_SOURCES),
    _check(
        "order-of-table-rows",
        instead("(item[1].sequence_number, item[1].path)", "0"),
        _LOOKUP_SOURCES,
        "tests/commands/test_ingest_follow.py",
    ),
    _check("all-key-columns", without("right"), f"{_CORE}/data/keys/test_last_rows.py"),
    _check("null-keeps-value", instead("item.field_id in overwrites", "True"), _PARTIAL_UPDATE),
    _check("newer-source-rows", becomes("high[open_[mask]] = middle[mask]"), _PARTIAL_UPDATE),
    _check(
        "row-ids-of-upsert", becomes("copied = ingest.schema"), "tests/java/test_upsert_by_java.py"
    ),
    _check("one-row-per-key", always, _UPSERT),
    _check("upsert-matched-again", never, _UPSERT, _RACES),
    _check(
        "equality-deletes-of-older-rows",
        instead(
            "self._index.sequences(keys) > sequence_number",
            "self._index.sequences(keys) >= sequence_number",
        ),
        _EQUALITY,
        _APPLY,
    ),
    _check(
        "position-deletes-of-own-commit",
        instead(
            "file.sequence_number <= item.sequence_number",
            "file.sequence_number < item.sequence_number",
        ),
        _APPLY,
    ),
    _check("vector-checksum", never, f"{_CORE}/data/deletes/test_row_positions.py"),
    _check("vector-of-this-file", never, _APPLY, f"{_CORE}/data/deletes/test_puffin.py"),
    # Repairs.
    _check("second-lookup", removed, _REPAIR),
    _check("place-reachable", removed, _REPAIR),
    _check("no-revived-rows", removed, _REPAIR),
    _check("file-back-before-repair", never, _REPAIR),
    _check("statistics-unchanged", never, _REPAIR),
    _check("equal-duplicates", never, _REPAIR),
    _check("head-of-duplicates", never, f"{_CORE}/transaction/commit/test_duplicate_entries.py"),
    _check("ref-of-consumer", without("ancestry.is_consumer(name)"), _REPAIR),
    # Staged runs.
    _check("claimed-run", removed, _STAGES, _STAGED_RUN),
    _check("run-still-staged", removed, _STAGES, _STAGED_RUN),
    _check("run-not-written-again", never, _STAGED_RUN),
    _check("committed-files-of-discard", removed, _STAGES, _STAGED_RUN),
    _check("clock-of-discard", removed, _STAGED_RUN),
    _check(
        "claim-of-late-clock",
        instead("max(written_ms, stored_ms or written_ms)", "written_ms"),
        _STAGED_RUN,
    ),
    _check("base-snapshot-retained", never, _STAGES),
    _check("run-held-by-snapshots", never, _STAGES),
    # Loads that continue.
    _check("epoch-committed", never, _WATCH),
    _check("query-epoch", always, f"{_CORE}/load/frames/test_load.py"),
    _check("query-rows", never, f"{_CORE}/load/frames/test_upsert.py"),
    _check("frame-not-committed", never, f"{_CORE}/load/frames/test_load.py"),
    _check("offer-before-load", removed, _WATCH_CRASHES),
    _check("offer-continued", becomes("offer = None"), _WATCH_CRASHES),
    _check("state-of-this-source", always, _ODD_FILES),
    _check("moved-source-file", never, _ODD_FILES),
    _check("settled-source-file", without("now_ms - one.seen_ms >= settle_ms"), _ODD_FILES),
    _check("list-given-up", never, _ODD_FILES),
    _check(
        "state-unchanged", instead("lambda: _read(self.folder) == before", "None"), _WATCH_STATE
    ),
    _check("part-of-older-revision", instead("written_at < state.revision", "True"), _WATCH_STATE),
    _check("part-of-latest-run", instead("lambda: True", "None"), _WATCH_STATE),
    _check("latest-run", always, _STATE_FOLDER),
    _check(
        "place-alone",
        instead("self.alone(lambda: True)", "translate_errors(self.path)"),
        _STATE_FOLDER,
    ),
    # Loads into several tables.
    _check("max-tables-of-route", never, _ROUTE),
    _check("plain-table-names", instead('r"[A-Za-z0-9_]+"', '".+"'), _ROUTE),
    _check("one-name-per-table", never, _ROUTE),
    _check("keys-of-routed-rows", instead("target.checks", "()"), _ROUTE),
    _check("rejects-of-first-run", never, _ROUTE),
    _check("rejects-of-commit", without("not has_committed"), "tests/commands/test_rejects.py"),
    _check("row-located-in-file", removed, _VALUED_ROWS, _ROUTE),
    # Readers.
    _check(
        "snapshots-ahead-of-consumer",
        instead("(*item.needed, *item.ahead)", "item.needed[:1]"),
        _CONSUMERS,
    ),
    _check("commits-on-consumer-ref", never, _CONSUMERS),
    _check("no-commits-for-consumers", never, _CONSUMERS),
    _check("gap-in-topic", never, _KAFKA),
    _check("same-topic", removed, _KAFKA),
    # Replays.
    _check("checkpoint-done", becomes("not self._ran(table, item)"), _REPLAY),
    _check("files-added-already", becomes("return frozenset()"), _REPLAY),
    _check("history-of-replay", removed, _REPLAY),
    _check("quiet-job", never, _REFUSALS),
    _check("checkpoint-of-this-table", removed, _REFUSALS),
    _check("known-job", removed, _REFUSALS),
    _check("no-missing-manifests", removed, _REFUSALS),
    _check("whole-checkpoints", removed, _REFUSALS),
    _check("checkpoint-before-expiry", removed, _REFUSALS),
    _check("mode-of-checkpoint", removed, _REFUSALS),
    # Continuous reads.
    _check(
        "hidden-folder-on-disk",
        removed,
        f"{_FOLLOWING}::test_a_follow_continues_after_a_power_cut_at_each_of_its_steps",
    ),
    _check(
        "prepared-before-rename",
        instead("store.save(state.changed(prepared=prepared))", "state.changed(prepared=prepared)"),
        f"{_FOLLOWING}::test_a_follow_continues_after_a_power_cut_at_each_of_its_steps",
    ),
    _check(
        "output-mounted",
        never,
        f"{_FOLLOW_OUTPUT}::test_an_output_that_is_not_mounted_does_not_lose_the_prepared_epoch",
    ),
    _check(
        "sweep-alone", instead("self.folder.alone(self._is_known)", "open(__file__)"), _OVERLAPS
    ),
    _check("folder-of-this-run", instead('f"{name}-{run}"', "name"), _OVERLAPS),
    _check(
        "rows-of-discovery",
        never,
        f"{_FOLLOW_OUTPUT}::test_an_epoch_that_ends_a_discovery_with_too_few_rows_is_not_handed_over",
    ),
    _check(
        "start-of-discovery",
        never,
        f"{_FOLLOW_OUTPUT}::test_a_discovery_that_starts_elsewhere_is_dropped",
    ),
    _check(
        "digest-of-splits", never, f"{_FOLLOW_OUTPUT}::test_a_damaged_file_of_splits_is_refused"
    ),
    # Inputs, other tables and entries.
    _check("column-chunks", removed, _FOOTERS),
    _check("widths-of-statistics", instead("widths", "{}"), _FOOTERS),
    _check("bounds-of-trusted-writer", without("are_bounds"), _FOOTER_STATISTICS),
    _check(
        "null-counts-of-trusted-writer",
        becomes("nulls, counts = found.null_count, found.has_null_count"),
        _FOOTER_STATISTICS,
    ),
    _check("partition-fits", never, "tests/commands/test_partition_ranges.py"),
    _check("rows-of-row-groups", never, _FOOTERS),
    _check("manifest-length", never, _MANIFESTS),
    _check("manifest-seal", never, _AVRO),
    _check("live-rows-of-manifest", always, "tests/commands/test_foreign_tables.py"),
    _check("lost-values", never, _FOREIGN_FILES),
    _check("julian-dates", never, _FOREIGN_FILES),
    _check("all-manifests-of-append", always, f"{_CORE}/read/scan/test_added_manifests.py"),
    _check("manifest-named-once", never, _LISTS),
    _check("list-not-repeated", never, _LISTS),
    _check("list-read-twice", never, _WHOLE_LISTS),
    _check("manifest-counts", never, _MANIFESTS),
    _check("sync-marker", never, _AVRO),
    _check("unsafe-path-parts", never, _LOCATIONS),
    _check("trailing-slash", never, _LOCATIONS),
    _check("not-a-bucket-root", always, _LOCATIONS),
    _check("no-link-to-folder", never, _STORAGE, _EXPIRE),
    _check("same-file", instead("state != known", "known is None"), _STORAGE),
    _check("no-late-link", without("os.O_NOFOLLOW"), _STORAGE),
    _check("one-version-of-source", never, "tests/commands/test_changed_sources.py"),
    _check("one-version-of-object", never, "tests/core/io/objects/test_large_file.py"),
    _check("folder-unchanged-at-purge", removed, _ENTRIES),
    _check("purge-is-explicit", removed, _RACES),
    _check("one-name-at-register", never, _RACES),
    _check(
        "partition-age",
        instead("options.older_than", "options.older_than + 10 * FLOOR_MS"),
        _WORLD,
    ),
    _check("one-time-column", never, _EXPIRE_PARTITIONS),
    _check("period-of-format", never, _EXPIRE_PARTITIONS),
    _check("all-digits", never, _EXPIRE_PARTITIONS, _MESSY_FILES),
    _check("replaced-in-every-spec", never, _REPLACED_PARTITIONS),
    _check("name-in-files", never, _ADD_FILES),
    _check("not-registered-again", never, _ENTRIES),
    _check("newer-version-of-folder", never, _ENTRIES),
    _check("metadata-of-other-catalogs", never, _ENTRIES),
    _check("purge-can-commit", removed, _ENTRIES),
    _check("one-name-at-expiry", removed, _EXPIRE_COMMAND),
    _check("continued-elsewhere", always, _TWO_CATALOGS),
    _check(
        "versions-off-the-log",
        instead(
            "key not in known", "key not in known and version_of(key) in map(version_of, known)"
        ),
        _TWO_CATALOGS,
    ),
    _check("newer-than-backup", always, _TWO_CATALOGS),
    _check("catalog-in-folder-above", instead("file != own", "file == own"), _TWO_CATALOGS),
    _check("no-copy-registered", removed, _TWO_CATALOGS),
    _check("gc-of-metadata-log", never, _TWO_CATALOGS),
    _check("metadata-in-roots", never, _SHARED),
    _check("folder-of-other-table", never, _SHARED),
    _check("place-of-other-table", removed, _SHARED),
    _check("roots-around-home", without("root != home"), _SHARED),
    _check("links-to-other-folders", always, _SHARED),
    _check("drop-of-same-table", removed, _ENTRIES),
    _check("rename-of-same-entry", removed, _GLUE),
    _check("stop-is-no-failure", instead("ReportedError", "LakeError"), _SHARED),
    _check("transient-failure-of-table", never, _SHARED),
    _check(
        "transient-failure-of-namespace", without("isinstance(error, TRANSIENT_ERRORS)"), _SHARED
    ),
    _check("next-namespaces", becomes("raise error"), _SHARED),
    _check("transient-failure-of-inner-namespaces", removed, _SHARED),
    _check("transient-failure-of-other-folder", removed, _SHARED),
    _check("transient-failure-of-checkpoint", removed, _REFUSALS),
    _check(
        "transient-failure-of-epochs",
        instead("found.listed()", "found.tables"),
        "tests/commands/test_ingest_route_watch.py",
    ),
    _check("spared-by-other-tables", removed, _SHARED),
    _check("owned-by-other-tables", becomes("return found"), _SHARED, _OWNERSHIP),
    _check("other-tables-readable", never, _OWNERSHIP),
    _check("replaced-whole-partitions", removed, _CHERRY_PICK),
    _check("contents-of-head", removed, _REF),
    _check("contents-of-picked-head", removed, _REF),
    _check("target-readable", removed, _ROLLBACK),
    _check("added-file-of-other-table", never, _SHARED),
    _check("picked-rewrite", never, _CHERRY_PICK),
    _check("picked-files-stored", removed, _CHERRY_PICK),
    _check("folder-of-property", removed, _OWNERSHIP),
    _check("clock-of-store", never, "tests/commands/test_clocks.py"),
    _check("trash-is-no-link", never, _TRASH),
    _check("names-of-writers", becomes("return Place.OWN"), _OWNERSHIP),
    _check("files-off-the-list", without("here.keys() - listed"), _TRASH),
    _check("columns-of-upsert", removed, _MISSING),
    _check("columns-of-objects", removed, _MISSING),
    _check("copies-without-rows", without("copies and matched.hit"), _MISSING),
    _check("descent-of-branch", removed, "tests/commands/test_wrong_contents.py"),
)
