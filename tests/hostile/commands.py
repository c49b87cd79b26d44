"""Runs lake's commands on a broken table and judges how each ends."""

from __future__ import annotations

import functools
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from support.cli.command_line import CommandLine, Result

from hostile.guard import WrongError
from hostile.tables import (
    ADDED,
    SCHEMA,
    TAG,
    UPSERTED,
    WAP_ID,
    BrokenTable,
    Truth,
    rows_of,
)
from lake.core.base.settings import Settings
from lake.core.table.catalogs.selection import open_catalog
from lake.core.transaction.session import Session

READS = (
    "plan",
    "scan",
    "snapshots",
    "tables",
    "health",
    "show",
    "inspect",
    "inspect-log",
    "inspect-files",
    "inspect-entries",
    "deletes",
    "deletes-exact",
    "check",
    "check-rows",
    "check-deep",
    "inspect-manifests",
    "inspect-partitions",
    "consumers",
    "repair-dry",
    "rename-dry",
    "purge-dry",
    "expire-partitions-dry",
    "cherry-pick-dry",
    "publish-dry",
    "compact-dry",
    "expire-dry",
    "replay",
    "partitions",
    "refs",
    "clean-dry",
)
WRITES = (
    "expire",
    "compact",
    "upsert",
    "manifests",
    "convert",
    "clean",
    "stats",
    "partition-stats",
    "repair",
    "branch",
    "tag",
    "alter",
    "rollback",
    "add-files",
    "rewrite-deletes",
    "forward",
    "cherry-pick",
    "publish",
    "expire-partitions",
    "create",
    "rename",
    "drop",
    "purge",
    "register",
)
# Refused by a rule, bad input; a conflict is what a plan that does not hold looks like to a commit.
_TYPED = {2: "refused", 3: "refused", 4: "conflict", 7: "bad input"}
_PARTIAL = 6
# Commands that may end with that code on broken metadata.
_PARTLY = {
    *("expire", "tables", "health", "check", "check-rows", "check-deep", "purge"),
    "expire-partitions",
}
_DELETE = {"expire", "clean", "purge"}
_NEW = "db.new"
_ROW_ERRORS = {"bad-input", "corrupt", "not-found", "refused"}
_LOADED = "db.loaded"
_EXPIRE = [
    "--older-than",
    "0s",
    "--retain-last",
    "1",
    "--unsafe-retention",
    "--keep-checkpoints",
    "0s",
]
CLEAN = ["--older-than", "0s", "--unsafe-retention", "--max-share", "100%"]
# Without missing files: in a manifest with another name of a file, that file is missing.
_REPAIRS = ("totals", "refs", "statistics", "dangling-deletes", "duplicate-files")
_PARTITIONS = ["--strategy", "update-time", "--older-than", "0s", "--unsafe-retention"]
_COMPACT = ["--rewrite-all", "--min-input-files", "1"]


class Commands:
    """lake's commands on one table, in this process."""

    def __init__(self, table: BrokenTable) -> None:
        self.table = table
        self._stack = ExitStack()
        self._catalog: Any = None
        self._lake = CommandLine(
            table.warehouse,
            engine="inline",
            catalog_type=table.catalog_type,
            open_session=self._session,
        )
        self._source = table.folder / "upserted.parquet"
        self._added = table.folder / "added.parquet"
        pq.write_table(rows_of(ADDED).cast(schema_to_pyarrow(SCHEMA)), self._added)
        self._out = table.folder / "out.parquet"
        ids = list(UPSERTED)
        rows = rows_of(ids)
        pq.write_table(rows.set_column(2, "value", [list(UPSERTED.values())]), self._source)
        self._truth = table.truth
        self._staged = table.staged_id
        facts = self._ok("plan")["plan"]
        if any(facts[key] != count for key, count in self._truth.facts.items()):
            raise AssertionError(f"{facts} are not {self._truth.facts}")
        self._ok("snapshots")

    def _session(self, settings: Settings) -> Session:
        # Opening SQLite again takes longer than most commands.
        if self._catalog is None:
            self._catalog = open_catalog(settings)
        return Session(settings=settings, catalog=self._catalog)

    def arguments(self, command: str) -> list[str]:
        """Return a command's line."""
        name = self.table.name
        return {
            "plan": ["scan", name, "--plan"],
            "scan": ["scan", name, "--output", str(self._out), "--replace"],
            "snapshots": ["snapshots", name],
            "tables": ["tables", name],
            "health": ["health", name, "--explain"],
            "show": ["show", name],
            "inspect": ["inspect", name, "snapshots"],
            "inspect-log": ["inspect", name, "metadata-log"],
            "inspect-files": ["inspect", name, "files"],
            "inspect-entries": ["inspect", name, "entries"],
            "deletes": ["deletes", name],
            "deletes-exact": ["deletes", name, "--exact"],
            "check": ["check", name],
            "check-rows": ["check", name, "--rows"],
            "check-deep": ["check", name, "--deep"],
            "inspect-manifests": ["inspect", name, "manifests"],
            "inspect-partitions": ["inspect", name, "partitions"],
            "consumers": ["consumers", name],
            "rename-dry": ["rename", name, _NEW, "--dry-run"],
            "rename": ["rename", name, _NEW],
            "drop": ["drop", name],
            "purge-dry": ["drop", name, "--purge"],
            "purge": ["drop", name, "--purge", "--yes"],
            "register": ["register", name, self.table.pointer],
            "create": ["create", _NEW, "--from", name],
            "expire-partitions-dry": ["expire-partitions", name, *_PARTITIONS, "--dry-run"],
            "expire-partitions": ["expire-partitions", name, *_PARTITIONS],
            "cherry-pick-dry": ["cherry-pick", name, self._staged, "--dry-run"],
            "cherry-pick": ["cherry-pick", name, self._staged],
            "publish-dry": ["publish", name, "--wap-id", WAP_ID, "--dry-run"],
            "publish": ["publish", name, "--wap-id", WAP_ID],
            "rewrite-deletes": ["deletes", name, "--rewrite"],
            "forward": ["ref", name, "--fast-forward", "main", "--to", self._staged],
            "repair-dry": ["check", name, *_repairs(*_REPAIRS, "missing-files")],
            "repair": ["check", name, *_repairs(*_REPAIRS), "--yes"],
            "manifests": ["manifests", name, "--rewrite-all"],
            "convert": ["deletes", name, "--convert"],
            "compact-dry": ["compact", name, *_COMPACT, "--dry-run"],
            "compact": ["compact", name, *_COMPACT],
            "expire-dry": ["expire", name, *_EXPIRE, "--dry-run"],
            "expire": ["expire", name, *_EXPIRE],
            "replay": ["replay", name],
            "partitions": ["partitions", name],
            "refs": ["ref", name],
            "clean-dry": ["clean", name, *CLEAN],
            "clean": ["clean", name, *CLEAN, "--delete"],
            "stats": ["stats", name],
            "partition-stats": ["stats", name, "--partitions"],
            "branch": ["ref", name, "--branch-create", "more"],
            "tag": ["tag", name, "more"],
            "alter": ["alter", name, "--add-column", "more string"],
            "rollback": ["rollback", name, TAG],
            "add-files": ["add-files", name, str(self._added)],
            "upsert": ["ingest", name, str(self._source), "--upsert", "--key", "id"],
        }[command]

    def _ok(self, command: str) -> dict[str, Any]:
        return self._lake.ok(*self.arguments(command))

    def run(self, command: str) -> Result:
        """Run a command; with ``-text`` as people read it."""
        if command.endswith("-text"):
            line = self.arguments(command.removesuffix("-text"))
            return self._lake("--verbose", *line, "--dry-run")
        return self._lake("--json", *self.arguments(command))

    def line(self, *arguments: object) -> Result:
        """Run a command line."""
        return self._lake(*arguments)

    def all_judged(
        self, commands: Sequence[str], broken: Mapping[Path, bytes], *, believed: bool = False
    ) -> list[str]:
        """Run commands, each on the table with some files broken; return how they ended.

        Args:
            commands: which.
            broken: the files' contents.
            believed: whether what the reference makes of the broken table is right too.
        """
        truths = [self._truth]
        if believed and (other := self._believed(broken)) is not None:
            truths.append(other)
        ends = []
        for command in commands:
            for path, data in broken.items():
                self.table.write(path, data)
            try:
                if command == "source":
                    ends.append(self._loaded(next(iter(broken))))
                else:
                    if command == "register":
                        self.table.enter()
                    ends.append(self._judged_by(command, broken, truths))
            finally:
                self.table.restore()
        return ends

    def _loaded(self, path: Path) -> str:
        """Load a broken file into a new table; return how that ended."""
        original = pq.read_table(io.BytesIO(self.table.original(path)), partitioning=None)
        try:
            result = self._lake("--json", "ingest", _LOADED, path, "--create")
            if result.exit_code in _TYPED:
                return _TYPED[result.exit_code]
            if result.exit_code:
                raise WrongError(f"ingest ended with {result.exit_code}: {result}")
            found = Counter(
                tuple(dict(row).get(number) for number in range(1, original.num_columns + 1))
                for row in self.table.rows_of(_LOADED).elements()
            )
            expected = Counter(tuple(row.values()) for row in original.to_pylist())
            if found != expected:
                raise WrongError(f"ingest loaded {_difference(found, expected)}")
            return "right"
        finally:
            self.table.forget(_LOADED)

    def _believed(self, broken: Mapping[Path, bytes]) -> Truth | None:
        for path, data in broken.items():
            self.table.write(path, data)
        try:
            return self.table.truth_now()
        except Exception:
            return None
        finally:
            self.table.restore()

    @contextmanager
    def adding(self, what: str) -> Iterator[None]:
        """Add what was broken to the message of an error."""
        try:
            yield
        except WrongError as error:
            raise WrongError(f"{what}: {error}") from error

    def _judged_by(
        self, command: str, broken: Mapping[Path, bytes], truths: Sequence[Truth]
    ) -> str:
        """Run a command and return how it ended.

        Raises:
            WrongError: it ended neither in a typed error that changed nothing nor in what is right.
        """
        result = self.run(command)
        code = result.exit_code
        self._untouched(command, result, truths)
        if code in _TYPED:
            self._nothing_changed(command, result)
            return _TYPED[code]
        if code not in {0, _PARTIAL} or (code == _PARTIAL and command not in _PARTLY):
            raise WrongError(
                f"{command} ended with {code}: {result.stdout[-800:]} {result.stderr[-1200:]}"
            )
        check = getattr(self, f"_{command.replace('-', '_')}_is_right", None)
        if check is not None and not any(self._holds(check, result, truth) for truth in truths):
            # What cannot be read while it is broken is what it was.
            for path in broken:
                if path.exists():
                    self.table.write(path, self.table.original(path))
            self._checked(check, result, truths[0])
        return "right" if code == 0 else "right, in part"

    def _checked(self, check: Any, result: Result, truth: Truth) -> None:
        try:
            check(result.json(), truth)
        except WrongError:
            raise
        except Exception as error:
            raise WrongError(f"what is left cannot be read: {error!r} after {result}") from error

    def _holds(self, check: Any, result: Result, truth: Truth) -> bool:
        try:
            check(result.json(), truth)
        except Exception:
            return False
        return True

    def _untouched(self, command: str, result: Result, truths: Sequence[Truth]) -> None:
        """Check that nothing that is needed, and nothing outside, went."""
        if self.table.canary_changed():
            raise WrongError(f"{command} changed a file beside the warehouse: {result}")
        if command == "purge":
            return
        if self.table.is_lost:
            raise WrongError(f"{command} deleted the table's metadata: {result.stdout[-800:]}")
        gone = {path for path in self.table.changes()[1] if path.suffix != ".crc"}
        # What any reader needs of one or the other.
        lost = min((gone & truth.needed for truth in truths), key=len)
        if lost:
            raise WrongError(f"{command} deleted live files {lost}: {result.stdout[-800:]}")
        if gone and command not in _DELETE:
            raise WrongError(f"{command} deleted {gone}: {result.stdout[-800:]}")

    def _nothing_changed(self, command: str, result: Result) -> None:
        come, gone = self.table.changes()
        is_absent = command == "register" and self.table.catalog_type == "sql"
        has_moved = bool(self.table.pointers()) if is_absent else self.table.has_moved
        if come or gone or has_moved:
            changed = [path.name for path in (*come, *gone)]
            raise WrongError(f"{command} failed and changed {changed}: {result.stdout[-800:]}")

    def _plan_is_right(self, document: dict[str, Any], truth: Truth) -> None:
        keys = ("files", "delete_files", "records")
        found = {key: document["plan"][key] for key in keys}
        if found != truth.facts and not document["warnings"]:
            raise WrongError(f"scan --plan shows {found}, there are {truth.facts}")

    def _scan_is_right(self, document: dict[str, Any], truth: Truth) -> None:
        rows = pq.read_table(self._out)
        found = Counter(
            frozenset(
                (number, value)
                for number, value in zip(self._ids, row.values(), strict=True)
                if value is not None
            )
            for row in rows.to_pylist()
        )
        if found != truth.rows and not document["warnings"]:
            raise WrongError(f"scan gave {_difference(found, truth.rows)}")

    @functools.cached_property
    def _ids(self) -> list[int]:
        return [field.field_id for field in self.table.metadata.schema().fields]

    def _snapshots_is_right(self, document: dict[str, Any], _truth: Truth) -> None:
        known = {str(one.snapshot_id) for one in self.table.metadata.snapshots}
        found = [one["snapshot_id"] for one in document["result"]["snapshots"]]
        if not known.issuperset(found) or len(found) != len(set(found)):
            raise WrongError(f"snapshots shows {document['result']}")

    def _tables_is_right(self, document: dict[str, Any], _truth: Truth) -> None:
        rows = document["result"]["tables"]
        kinds = {row["error"]["kind"] for row in rows if row["error"] is not None}
        if [row["table"] for row in rows] != [self.table.name] or kinds - _ROW_ERRORS:
            raise WrongError(f"tables shows {document['result']}")

    def _health_is_right(self, document: dict[str, Any], truth: Truth) -> None:
        (row,) = document["result"]["tables"]
        if row["error"] is not None:
            # A property that a compaction refuses, too.
            if row["error"]["kind"] not in {*_ROW_ERRORS, "invalid-request"}:
                raise WrongError(f"health shows {row}")
            return
        found = {"files": row["files"], "delete_files": row["delete_files"], "records": row["rows"]}
        if found != truth.facts:
            raise WrongError(f"health shows {found}, there are {truth.facts}")

    def _compact_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "compact")

    def _manifests_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "manifests")

    def _convert_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "deletes --convert")

    def _repair_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "check --repair")

    def _clean_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "clean")

    def _stats_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "stats")

    def _rewrite_deletes_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "deletes --rewrite")

    def _cherry_pick_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.picked, "cherry-pick")
        self._only_once("cherry-pick")

    def _publish_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.picked, "publish")
        self._only_once("publish")

    def _forward_is_right(self, document: dict[str, Any], truth: Truth) -> None:
        done = document["status"] == "done"
        self._rows_are(truth.picked if done else truth.rows, "ref --fast-forward")

    def _rollback_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.tagged, "rollback")

    def _only_once(self, command: str) -> None:
        if self.run(command).exit_code == 0:
            raise WrongError(f"{command} adds the same rows again")

    def _expire_partitions_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        found = self.table.rows_now()
        if found - truth.rows:
            raise WrongError(f"after expire-partitions there are {_difference(found, truth.rows)}")
        for value in {dict(row).get(2) for row in found}:
            whole = Counter({row: n for row, n in truth.rows.items() if dict(row).get(2) == value})
            left = Counter({row: n for row, n in found.items() if dict(row).get(2) == value})
            if whole != left:
                raise WrongError(f"expire-partitions left {left.total()} rows of {value}")

    def _rename_is_right(self, _document: dict[str, Any], _truth: Truth) -> None:
        names = [row[1:4] for row in self.table.entries()]
        if names != [(*_NEW.split("."), self.table.pointer)]:
            raise WrongError(f"rename left the entries {names}")

    def _drop_is_right(self, _document: dict[str, Any], _truth: Truth) -> None:
        if self.table.entries() or self.table.changes() != (set(), set()):
            raise WrongError(f"drop left {self.table.entries()} and {self.table.changes()}")

    def _purge_is_right(self, document: dict[str, Any], _truth: Truth) -> None:
        if self.table.entries() and document["status"] != "partial":
            raise WrongError(f"drop --purge left {self.table.entries()}")

    def _register_is_right(self, _document: dict[str, Any], _truth: Truth) -> None:
        if self.table.pointers() != [self.table.pointer]:
            raise WrongError(f"register made the entries {self.table.entries()}")
        if (end := self._lake("--json", "drop", self.table.name)).exit_code:
            raise WrongError(f"what was registered cannot be dropped: {end}")

    def _partition_stats_is_right(self, document: dict[str, Any], truth: Truth) -> None:
        self._rows_are(truth.rows, "stats --partitions")
        plan = document["plan"]
        found = (plan.get("data_files"), plan.get("records"))
        if document["status"] == "done" and found != (truth.facts["files"], truth.facts["records"]):
            raise WrongError(f"stats --partitions counts {plan}, there are {truth.facts}")

    def _branch_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        if not {*truth.refs, "more"}.issubset(self.table.metadata.refs):
            raise WrongError(f"ref left the refs {set(self.table.metadata.refs)}")

    def _tag_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        if not {*truth.refs, "more"}.issubset(self.table.metadata.refs):
            raise WrongError(f"tag left the refs {set(self.table.metadata.refs)}")

    def _add_files_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        new = Counter(frozenset([(1, number), (2, "even"), (3, number)]) for number in ADDED)
        self._rows_are(truth.rows + new, "add-files")

    def _upsert_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        kept = Counter(
            {row: count for row, count in truth.rows.items() if dict(row)[1] not in UPSERTED}
        )
        new = Counter(
            frozenset([(1, number), (2, "even" if number % 2 == 0 else "odd"), (3, value)])
            for number, value in UPSERTED.items()
        )
        self._rows_are(kept + new, "upsert")

    def _expire_is_right(self, _document: dict[str, Any], truth: Truth) -> None:
        # The files that are kept exist, or `_untouched` had failed; all others may stay or go.
        self._rows_are(truth.rows, "expire")
        if set(self.table.metadata.refs) != truth.refs:
            raise WrongError(f"expire left the refs {set(self.table.metadata.refs)}")

    def _rows_are(self, expected: Counter[Any], command: str) -> None:
        found = self.table.rows_now()
        if found != expected:
            raise WrongError(f"after {command} there are {_difference(found, expected)}")


def _repairs(*names: str) -> list[str]:
    return [text for name in names for text in ("--repair", name)]


def _difference(found: Counter[Any], expected: Counter[Any]) -> str:
    lost, more = expected - found, found - expected
    return f"{lost.total()} rows too few and {more.total()} too many: {[*lost][:2]} {[*more][:2]}"


__all__ = ["CLEAN", "READS", "TAG", "WRITES", "Commands"]
