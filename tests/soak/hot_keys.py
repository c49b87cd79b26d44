"""Iceberg Java and `lake` change the same few keys of one table at once, and processes are killed.

    cd tests && python -m soak.hot_keys [--operations 2000] [--catalog sql|rest] [--format-version 2|3] [--seed S]

Two threads run `lake` commands, each in a separate process that is killed at random times; a third one
runs MERGE, UPDATE, DELETE, INSERT and maintenance procedures in Iceberg Java. Every command writes a token
into the summary of its snapshot, and a ledger records what the command reported. The history of the table
determines its rows: the commands are applied to a dictionary in the order of their snapshots.

Checked each time all threads are idle:

- a command that reported success is in the history exactly once;
- a command that reported that nothing changed (exit code 4, or an exception of Java) is not in the history;
- a command that was killed, or whose outcome is unknown, is in the history at most once;
- Iceberg Java and `lake` read exactly the rows in the dictionary.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from support.cli.command_worker import CommandWorker
from support.peers.java_peer import JavaPeer

HOT_KEYS = range(1, 9)
# Larger ids are written by one command only.
_FIRST_COLD = 1000
_TABLE = "db.hot"
_TOKEN = "hot-keys.token"
_JAVA_TOKEN = f"spark.sql.iceberg.snapshot-property.{_TOKEN}"
_RUN_ID = "lake.run-id"
_KILLED_SHARE = 0.15
_LONGEST_LIFE_SECONDS = 1.2
_AGAIN_SHARE = 0.5
_ATTEMPTS = 30
_ROUND = 150
CONFLICT, UNKNOWN_OUTCOME = 4, 5
# Exit codes after which nothing was changed: refused, conflict, bad input, locked, timed out.
_CHANGED_NOTHING = {3, CONFLICT, 7, 8, 10}

Outcome = Literal["done", "unchanged", "unknown", "running"]
Row = tuple[str, int]


@dataclass
class Command:
    """One change of rows, and its reported outcome."""

    token: str
    kind: str
    ids: tuple[int, ...]
    count: int = 0
    outcome: Outcome = "running"

    def apply(self, rows: dict[int, Row]) -> None:
        """Change the model's rows as the command changes the table's rows."""
        for key in self.ids:
            count = rows[key][1] + 1 if key in rows else 0
            if self.kind == "delete":
                rows.pop(key, None)
            elif self.kind == "update":
                if key in rows:
                    rows[key] = (self.token, count)
            elif self.kind == "first-row":
                rows.setdefault(key, (self.token, self.count))
            elif self.kind == "sequence":
                if key not in rows or rows[key][1] <= self.count:
                    rows[key] = (self.token, self.count)
            else:
                rows[key] = (self.token, count if self.kind == "merge" else 0)


@dataclass
class Ledger:
    """The commands of all threads, by token."""

    commands: dict[str, Command] = field(default_factory=dict)
    reports: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _next_cold: int = _FIRST_COLD

    def begin(self, who: str, kind: str, ids: Sequence[int], count: int = 0) -> Command:
        """Record a command before it is sent."""
        with self._lock:
            command = Command(f"{who}-{len(self.commands)}", kind, tuple(ids), count)
            self.commands[command.token] = command
            return command

    def cold(self) -> int:
        """Return an id that no other command writes."""
        with self._lock:
            self._next_cold += 1
            return self._next_cold

    def count(self, report: str) -> None:
        """Count how a command ended."""
        with self._lock:
            self.reports[report] += 1

    def problem(self, text: str) -> None:
        """Record a violation of a rule."""
        with self._lock:
            self.problems.append(text)


class LakeThread:
    """Runs `lake` commands in a process that is sometimes killed."""

    def __init__(self, race: Race, name: str, seed: str) -> None:
        self._race = race
        self._name = name
        self._random = random.Random(seed)
        self._worker = CommandWorker()

    def end(self) -> None:
        """End the process."""
        self._worker.close()

    def step(self) -> None:
        """Run one command, and run it again if that may be needed."""
        kind = self._random.choices(
            [
                *("position", "equality", "copy-on-write", "first-row", "sequence"),
                *("append", "overwrite", "compact", "expire"),
            ],
            [18, 10 * self._race.by_equality, 15, 6, 6, 15, 8, 12, 5],
        )[0]
        if kind in {"compact", "expire"}:
            self._maintain(kind)
            return
        if kind == "append":
            ids = [self._race.ledger.cold() for _ in range(2)]
        elif kind == "overwrite":
            ids = [self._random.choice(HOT_KEYS)]
        else:
            ids = self._random.sample(HOT_KEYS, self._random.randint(1, 4))
        count = 0
        if kind in {"first-row", "sequence"}:
            # A row that is certainly new, so that each command creates a snapshot.
            ids = [*ids, self._race.ledger.cold()]
            count = self._random.randint(0, 2)
        command = self._race.ledger.begin(self._name, kind, ids, count)
        self._change(command)

    def _change(self, command: Command) -> None:
        words = self._words(command)
        for attempt in range(_ATTEMPTS):
            ended = self._run(words, may_die=attempt < _ATTEMPTS - 1)
            self._race.ledger.count(f"lake {command.kind}: {_report(ended)}")
            self._settle(command, ended)
            if command.outcome == "done" or self._random.random() > _AGAIN_SHARE:
                return

    def _settle(self, command: Command, ended: dict[str, Any] | None) -> None:
        """Record what a command reported; if it was killed, a later run determines the outcome."""
        code = ended["code"] if ended else None
        if ended and code == 0:
            if ended["status"] not in {"done", "nothing-to-do"}:
                self._race.ledger.problem(f"{command} ended with {ended}")
            if ended["status"] == "nothing-to-do" and command.outcome != "unknown":
                self._race.ledger.problem(f"{command} had nothing to do: {ended}")
            command.outcome = "done"
        elif code in _CHANGED_NOTHING:
            # An earlier attempt that was killed may have been committed.
            if command.outcome != "unknown":
                command.outcome = "unchanged"
        else:
            command.outcome = "unknown"
            if code not in {None, UNKNOWN_OUTCOME}:
                self._race.ledger.problem(f"{command} ended with {ended}")

    def _maintain(self, kind: str) -> None:
        words = {
            "compact": [
                "compact",
                _TABLE,
                "--min-input-files",
                "2",
                "--delete-file-threshold",
                "1",
            ],
            "expire": [
                *["expire", "--older-than", "0s", "--retain-last", "40", "--unsafe-retention"],
                _TABLE,
            ],
        }[kind]
        ended = self._run(words, may_die=True)
        self._race.ledger.count(f"lake {kind}: {_report(ended)}")
        if ended and ended["code"] not in {0, 6, UNKNOWN_OUTCOME, *_CHANGED_NOTHING}:
            self._race.ledger.problem(f"{kind} ended with {ended}")

    def _run(self, words: Sequence[str], *, may_die: bool) -> dict[str, Any] | None:
        deadline = None
        if may_die and self._random.random() < _KILLED_SHARE:
            deadline = threading.Timer(
                self._random.uniform(0, _LONGEST_LIFE_SECONDS), self._worker.kill
            )
            deadline.start()
        ended = self._worker.run([*self._race.prefix, *words])
        if deadline:
            deadline.cancel()
        if ended is None:
            self._worker.close()
            self._worker = CommandWorker()
        return ended

    def _words(self, command: Command) -> list[str]:
        source = self._race.folder / f"{command.token}.csv"
        lines = [f"{key},{command.token},{command.count}" for key in command.ids]
        source.write_text("\n".join(["id,v,n", *lines, ""]))
        words = ["ingest", _TABLE, str(source), "--run-id", command.token]
        if command.kind == "overwrite":
            return [*words, "--overwrite-where", f"id = {command.ids[0]}"]
        if command.kind == "append":
            return words
        words += ["--upsert", "--key", "id"]
        if command.kind == "first-row":
            return [*words, "--merge", "first-row"]
        if command.kind == "sequence":
            return [*words, "--deletes", "position", "--sequence", "n"]
        return [*words, "--deletes", command.kind]


class JavaThread:
    """Runs statements of Iceberg Java."""

    def __init__(self, race: Race, seed: str) -> None:
        self._race = race
        self._random = random.Random(seed)
        # Rows that only one statement deletes or changes, so that each statement creates a snapshot.
        self._spare: list[int] = []

    def end(self) -> None:
        """There is nothing to release."""

    def step(self) -> None:
        """Run one statement."""
        kind = self._random.choices(
            ["merge", "update", "delete", "insert", "rewrite", "rewrite deletes", "expire"],
            [30, 15, 15, 20, 12, 4, 3],
        )[0]
        if kind in {"update", "delete"} and not self._spare:
            kind = "insert"
        if kind in {"merge", "update", "delete", "insert"}:
            self._change(kind)
        else:
            self._maintain(kind)

    def _change(self, kind: str) -> None:
        hot = self._random.sample(HOT_KEYS, self._random.randint(1, 3))
        if kind == "insert":
            ids = [self._race.ledger.cold()]
        elif kind == "merge":
            ids = hot
        else:
            ids = [*hot, self._spare.pop()]
        command = self._race.ledger.begin("java", kind, ids)
        report = self._run(self._statement(command), command.token)
        self._race.ledger.count(f"java {kind}: {report}")
        command.outcome = _java_outcome(report)
        if command.outcome == "done" and kind == "insert":
            self._spare.append(ids[0])

    def _statement(self, command: Command) -> str:
        listed = ", ".join(map(str, command.ids))
        name = f"{{c}}.{_TABLE}"
        if command.kind == "delete":
            # Spark deletes whole files without the session's snapshot properties, if a filter of bounds selects them.
            return f"DELETE FROM {name} WHERE id IN ({listed}) AND length(v) > 0"
        if command.kind == "update":
            return f"UPDATE {name} SET v = '{command.token}', n = n + 1 WHERE id IN ({listed})"
        rows = ", ".join(f"({key}L, '{command.token}', 0L)" for key in command.ids)
        if command.kind == "insert":
            return f"INSERT INTO {name} VALUES {rows}"
        return (
            f"MERGE INTO {name} t USING (SELECT * FROM VALUES {rows} AS s(id, v, n)) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET t.v = s.v, t.n = t.n + 1 WHEN NOT MATCHED THEN INSERT *"
        )

    def _maintain(self, kind: str) -> None:
        calls = {
            "rewrite": f"rewrite_data_files(table => '{_TABLE}', options => map('min-input-files', '2', "
            "'delete-file-threshold', '1'))",
            "rewrite deletes": f"rewrite_position_delete_files(table => '{_TABLE}', "
            "options => map('rewrite-all', 'true'))",
            "expire": f"expire_snapshots(table => '{_TABLE}', retain_last => 40, "
            "older_than => TIMESTAMP '2100-01-01 00:00:00')",
        }
        report = self._run(f"CALL {{c}}.system.{calls[kind]}", "maintenance")
        self._race.ledger.count(f"java {kind}: {report}")

    def _run(self, statement: str, token: str) -> str:
        try:
            self._race.sql(f"SET `{_JAVA_TOKEN}`=`{token}`")
            self._race.sql(statement)
        except RuntimeError as error:
            return _cause(str(error))
        return "done"


class Race:
    """One table, the threads that change it, and the judge.

    Args:
        folder: the folder for sources, and for the warehouse of a SQL catalog.
        java: the peer.
        place: the peer's name of the catalog: the warehouse, or the server's address.
        prefix: global options of each `lake` command.
        metadata_folder: the folder of the table's metadata files.
        by_equality: whether `lake` writes equality deletes.
    """

    def __init__(
        self,
        folder: Path,
        java: JavaPeer,
        place: str,
        prefix: Sequence[str],
        metadata_folder: Path,
        *,
        by_equality: bool,
    ) -> None:
        self.folder = folder
        self.by_equality = by_equality
        self.prefix = list(prefix)
        self.ledger = Ledger()
        self._java = java
        self._place = place
        self._metadata_folder = metadata_folder
        self._read: set[str] = set()
        self._snapshots: dict[int, dict[str, Any]] = {}
        self._judged: int | None = None
        self._rows: dict[int, Row] = {}
        self._seen: Counter[str] = Counter()

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Run a statement of Iceberg Java."""
        return self._java.sql(self._place, statement)

    def make_table(self, version: int, properties: dict[str, str], location: str) -> None:
        """Create the empty table."""
        listed = {"format-version": str(version), **properties}
        text = ", ".join(f"'{key}'='{value}'" for key, value in listed.items())
        self.sql("CREATE NAMESPACE IF NOT EXISTS {c}.db")
        self.sql(
            f"CREATE TABLE {{c}}.{_TABLE} (id bigint, v string, n bigint) USING iceberg "
            f"LOCATION '{location}' TBLPROPERTIES ({text})"
        )

    def run(self, operations: int, seed: str) -> None:
        """Run about ``operations`` commands, and judge after each round."""
        with ExitStack() as stack:
            threads: list[LakeThread | JavaThread] = [
                LakeThread(self, "a", f"{seed}-a"),
                LakeThread(self, "b", f"{seed}-b"),
                JavaThread(self, f"{seed}-java"),
            ]
            for one in threads:
                stack.callback(one.end)
            while operations > 0:
                count = min(_ROUND, operations)
                self._round(threads, count)
                operations -= count
                self.judge()

    def _round(self, threads: Sequence[LakeThread | JavaThread], count: int) -> None:
        """Let each thread run its share of the commands, and wait for all threads."""

        def work(step: Callable[[], None]) -> None:
            try:
                for _ in range(-(-count // len(threads))):
                    step()
            except Exception:
                self.ledger.problem(f"a thread ended: {traceback.format_exc()}")

        running = [threading.Thread(target=work, args=(one.step,)) for one in threads]
        for one in running:
            one.start()
        for one in running:
            one.join()

    def judge(self) -> None:
        """Compare the history with the ledger, and the rows with the history."""
        for snapshot in self._new_history():
            summary = snapshot["summary"]
            if token := summary.get(_RUN_ID) or summary.get(_TOKEN):
                self._apply(token, summary)
        for command in self.ledger.commands.values():
            self._compare(command)
        expected = sorted((key, *row) for key, row in self._rows.items())
        by_java = self.sql(f"SELECT id, v, n FROM {{c}}.{_TABLE}")
        self._same_rows("Iceberg Java", expected, sorted(tuple(row.values()) for row in by_java))
        self._same_rows("lake", expected, self._rows_by_lake())

    def _apply(self, token: str, summary: dict[str, str]) -> None:
        command = self.ledger.commands.get(token)
        if command is not None:
            self._seen[token] += 1
            command.apply(self._rows)
        elif summary["operation"] != "replace":
            self.ledger.problem(f"a snapshot of no command: {summary}")

    def _compare(self, command: Command) -> None:
        times = self._seen[command.token]
        allowed = {"done": {1}, "unchanged": {0}, "unknown": {0, 1}, "running": {0, 1}}[
            command.outcome
        ]
        if times not in allowed:
            self.ledger.problem(f"{command} is in the history {times} times")

    def _same_rows(self, reader: str, expected: Any, found: Any) -> None:
        if expected != found:
            missing, more = set(expected) - set(found), Counter(found) - Counter(expected)
            self.ledger.problem(f"{reader} reads other rows: missing {missing}, more {more}")
            for key in sorted({row[0] for row in (*missing, *more)}):
                self.ledger.problem(f"the history of {key}: {', '.join(self._changes_of(key))}")

    def _changes_of(self, key: int) -> Iterator[str]:
        """Yield the snapshots of the table that may have changed a key, and rewrites, oldest first."""
        current = self._judged
        found = []
        while current is not None and current in self._snapshots:
            snapshot = self._snapshots[current]
            summary = snapshot["summary"]
            token = summary.get(_RUN_ID) or summary.get(_TOKEN)
            command = self.ledger.commands.get(token or "")
            if command is None or key in command.ids:
                kind = command.kind if command else summary["operation"]
                found.append(f"{snapshot['sequence-number']} {kind} {token} ({current})")
            current = snapshot.get("parent-snapshot-id")
        yield from reversed(found)

    def _rows_by_lake(self) -> list[tuple[int, str, int]]:
        target = self.folder / "rows.json"
        worker = CommandWorker()
        ended = worker.run([*self.prefix, "scan", _TABLE, "--output", str(target), "--replace"])
        worker.close()
        if not ended or ended["code"] != 0:
            self.ledger.problem(f"lake cannot read the table: {ended}")
            return []
        rows = [json.loads(line) for line in target.read_text().splitlines()]
        return sorted((row["id"], row["v"], row["n"]) for row in rows)

    def _new_history(self) -> list[dict[str, Any]]:
        """Return the snapshots of main since the last check, oldest first."""
        head = self._head()
        found = []
        current = head
        while current is not None and current != self._judged:
            snapshot = self._snapshots[current]
            found.append(snapshot)
            current = snapshot.get("parent-snapshot-id")
        self._judged = head
        return found[::-1]

    def _head(self) -> int | None:
        """Read the snapshots in the metadata files of all commits since the last call, and return main's."""
        named = [
            row["file"] for row in self.sql(f"SELECT file FROM {{c}}.{_TABLE}.metadata_log_entries")
        ]
        # Only of committed files: an attempt that was refused has its snapshot's id, and another parent.
        while named:
            name = named.pop().rpartition("/")[2]
            if name not in self._read:
                self._read.add(name)
                metadata = json.loads((self._metadata_folder / name).read_text())
                for snapshot in metadata["snapshots"]:
                    self._snapshots[snapshot["snapshot-id"]] = snapshot
                named += [entry["metadata-file"] for entry in metadata["metadata-log"]]
        refs = self.sql(f"SELECT snapshot_id FROM {{c}}.{_TABLE}.refs WHERE name = 'main'")
        return refs[0]["snapshot_id"] if refs else None


def _report(ended: dict[str, Any] | None) -> str:
    return "killed" if ended is None else f"{ended['code']} {ended['status']}"


def _cause(text: str) -> str:
    for word in (
        "CommitStateUnknown",
        "CommitFailed",
        "ValidationException",
        "SQLITE_BUSY",
        "the peer died",
    ):
        if word in text:
            return word
    return text[:300]


def _java_outcome(report: str) -> Outcome:
    if report == "done":
        return "done"
    if report in {"CommitFailed", "ValidationException"}:
        return "unchanged"
    return "unknown"


def race(
    folder: Path, java: JavaPeer, *, operations: int, catalog: str, version: int, seed: str
) -> Ledger:
    """Race on a new table and return the ledger; `problems` is empty if no rule was violated."""
    chosen = random.Random(seed)
    properties = {
        "write.merge.mode": chosen.choice(["merge-on-read", "copy-on-write"]),
        "write.update.mode": chosen.choice(["merge-on-read", "copy-on-write"]),
        "write.delete.mode": chosen.choice(["merge-on-read", "copy-on-write"]),
        # Few retries: commands that fail are part of the test.
        "commit.retry.num-retries": chosen.choice(["0", "1", "4"]),
    }
    metadata = folder / "warehouse" / "db" / "hot" / "metadata"
    with ExitStack() as stack:
        if catalog == "rest":
            place, prefix = _served(stack, folder), ["--catalog", "hot"]
        else:
            (folder / "warehouse").mkdir()
            place, prefix = str(folder / "warehouse"), ["--warehouse", str(folder / "warehouse")]
            _make_database(folder / "warehouse")
        # Iceberg Java's copy-on-write DELETE and UPDATE look for new delete files by the bounds of the columns in
        # their filter. They miss an equality delete of another key in a file that they rewrite: its row comes back.
        # Source: validateNoNewDeletesForDataFiles in MergingSnapshotProducer, Iceberg 1.12.
        rewrites = {properties["write.update.mode"], properties["write.delete.mode"]}
        by_equality = "copy-on-write" not in rewrites
        found = Race(folder, java, place, prefix, metadata, by_equality=by_equality)
        found.make_table(version, properties, f"file://{metadata.parent}")
        found.run(operations, seed)
    return found.ledger


def _served(stack: ExitStack, folder: Path) -> str:
    from support.servers.rest_server import RestServer

    server = RestServer({})
    stack.callback(server.end)
    text = f"catalog:\n  hot:\n    type: rest\n    uri: {server.uri}\n"
    (folder / ".pyiceberg.yaml").write_text(text)
    return server.uri


def _make_database(warehouse: Path) -> None:
    """Create the catalog's database as `lake` does, for a table that Java creates."""
    from pyiceberg.catalog.sql import SqlCatalog

    SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}")


def main() -> int:
    """Run the race and print its result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--catalog", choices=["sql", "rest"], default="sql")
    parser.add_argument("--format-version", type=int, choices=[2, 3], default=2)
    parser.add_argument("--seed", default="hot")
    options = parser.parse_args()
    started = time.monotonic()
    java = JavaPeer()
    folder = tempfile.mkdtemp(prefix="lake-hot-")
    os.environ["PYICEBERG_HOME"] = folder
    ledger = race(
        Path(folder),
        java,
        operations=options.operations,
        catalog=options.catalog,
        version=options.format_version,
        seed=options.seed,
    )
    java.close()
    print(json.dumps(dict(sorted(ledger.reports.items())), indent=1))
    outcomes = Counter(command.outcome for command in ledger.commands.values())
    print(f"{dict(outcomes)} in {time.monotonic() - started:.0f} s")
    for problem in ledger.problems:
        print(f"PROBLEM: {problem}")
    if ledger.problems:
        print(f"the table is kept in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
