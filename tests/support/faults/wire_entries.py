"""Actions on refs, on entries of the catalog, on partitions and on trash, and what each changes beside the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError

from support.cli.service_line import Service, csv

Make = Callable[..., dict[str, Any]]
_OLD = ("--older-than", "0s", "--unsafe-retention", "--max-share", "100%")
_SECOND = 1.1
_DAYS = (date(2001, 1, 1), date(2999, 1, 1))


@dataclass(frozen=True)
class Planned:
    """A command, and what it changes.

    Args:
        words: the verb and what follows the name of the table.
        rows: the rows of the table `t` afterwards.
        look: reads what else it changes.
        before: what `look` returns before the command.
        after: what it returns after it.
        again: the exit codes of the same command once it was successful.
        halfway: other states that an unknown or partial end may leave.
        table: the table that it works on.
    """

    words: list[Any]
    rows: dict[int, str]
    look: Callable[[], Any] = lambda: None
    before: Any = None
    after: Any = None
    again: frozenset[int] = frozenset({0})
    halfway: tuple[Any, ...] = ()
    table: str = "t"


@dataclass(frozen=True)
class Entries:
    """Makes what the actions need, without faults.

    Args:
        direct: the service without proxies.
        make: runs `lake` there: verb, table, words.
        options: of tables that are made.
    """

    direct: Service
    make: Make
    options: tuple[str, ...]

    def plan(self, action: str, name: str, key: int, rows: dict[int, str]) -> Planned:
        """Return an action; ``name`` and ``key`` are new, ``rows`` those of the table."""
        plans: dict[str, Callable[[str, int, dict[int, str]], Planned]] = {
            "tag": self._tag,
            "alter": self._alter,
            "branch-create": self._branch_create,
            "branch-drop": self._branch_drop,
            "fast-forward": self._fast_forward,
            "publish": self._publish,
            "quarantine": self._quarantine,
            "restore": self._restore,
            "purge": self._purge,
            "create": self._create,
            "register": self._register,
            "rename": self._rename,
            "drop": self._drop,
            "drop-purge": self._drop_purge,
            "partition-stats": self._partition_stats,
            "expire-partitions": self._expire_partitions,
        }
        return plans[action](name.replace("-", "_"), key, rows)

    def _has_ref(self, name: str) -> Callable[[], bool]:
        return lambda: name in self._metadata().refs

    def _metadata(self, table: str = "t") -> Any:
        return self.direct.catalog().load_table(self.direct.table(table)).metadata

    def _tag(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        return Planned(["tag", name], rows, self._has_ref(name), before=False, after=True)

    def _alter(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        def look() -> str | None:
            return self._metadata().properties.get("step")

        return Planned(["alter", "--set", f"step={name}"], rows, look, look(), name)

    def _branch_create(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        words = ["ref", "--branch-create", name]
        again = frozenset({0, 3})
        return Planned(words, rows, self._has_ref(name), before=False, after=True, again=again)

    def _branch_drop(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        self.make("ref", "t", "--branch-create", name)
        words, again = ["ref", "--drop", name], frozenset({0, 3, 7})
        return Planned(words, rows, self._has_ref(name), before=True, after=False, again=again)

    def _fast_forward(self, name: str, key: int, rows: dict[int, str]) -> Planned:
        self.make("ref", "t", "--branch-create", name)
        self.make("ingest", "t", self._source(key, name), "--branch", name)
        return Planned(["ref", "--fast-forward", "main", "--to", name], {**rows, key: name})

    def _source(self, key: int, name: str) -> Path:
        return csv(self.direct.folder, "new.csv", id=[key], name=[name])

    def _publish(self, name: str, key: int, rows: dict[int, str]) -> Planned:
        self.make("ref", "t", "--branch-create", name)
        table = self.direct.catalog().load_table(self.direct.table())
        staged = pa.table({"id": [key], "name": [name]})
        table.append(staged, snapshot_properties={"wap.id": name}, branch=name)
        # Not a fast-forward.
        self.make("ingest", "t", self._source(-key, name))
        rows[-key] = name
        return Planned(["publish", "--wap-id", name], {**rows, key: name}, again=frozenset({0, 3}))

    def _orphan(self, name: str) -> Callable[[], bool]:
        """Write a file that the table does not reference; return what looks for it."""
        table = self.direct.catalog().load_table(self.direct.table())
        path = f"{table.location()}/data/{name}.parquet"
        with table.io.new_output(path).create() as sink:
            sink.write(name.encode())
        # The times of a store are in seconds.
        time.sleep(_SECOND)
        return lambda: table.io.new_input(path).exists()

    def _quarantine(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        look = self._orphan(name)
        words = ["clean", "--quarantine", *_OLD]
        return Planned(words, rows, look, before=True, after=False, halfway=(True,))

    def _restore(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        look, run = self._moved(name)
        words, again = ["clean", "--restore", run], frozenset({0, 6, 7})
        return Planned(words, rows, look, before=False, after=True, again=again, halfway=(False,))

    def _moved(self, name: str) -> tuple[Callable[[], bool], str]:
        look = self._orphan(name)
        run = self.make("clean", "t", "--quarantine", *_OLD)["result"]["run_id"]
        return look, run

    def _purge(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        _, run = self._moved(name)

        def look() -> bool:
            return any(f".lake-trash/{run}/" in path for path in self.direct.list_files())

        words, again = ["clean", "--purge", run], frozenset({0, 7})
        return Planned(words, rows, look, before=True, after=False, again=again, halfway=(True,))

    def _contents(self, *names: str) -> Callable[[], Any]:
        """Return what reads the rows of tables; None for a table that does not exist."""

        def rows(name: str) -> Any:
            try:
                return self.direct.rows(name)
            except NoSuchTableError:
                return None

        return lambda: tuple(rows(name) for name in names)

    def _new(self, name: str, *words: str) -> list[tuple[Any, ...]]:
        source = csv(self.direct.folder, "new.csv", day=list(_DAYS), id=[1, 2])
        self.make("ingest", name, source, "--create", *self.options, *words)
        return self.direct.rows(name)

    def _create(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        words = ["create", "id long", *self.options]
        look, again = self._contents(name), frozenset({0, 3})
        return Planned(words, rows, look, (None,), ([],), again, table=name)

    def _register(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        contents = self._new(name)
        file = self.make("drop", name)["result"]["metadata_location"]
        words, again = ["register", file], frozenset({0, 3})
        return Planned(words, rows, self._contents(name), (None,), (contents,), again, table=name)

    def _rename(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        contents, other = self._new(name), f"{name}_new"
        words, again = ["rename", self.direct.table(other)], frozenset({0, 3, 7})
        look = self._contents(name, other)
        before, after = (contents, None), (None, contents)
        return Planned(words, rows, look, before, after, again, table=name)

    def _drop(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        contents = self._new(name)
        file = self._file(name)

        def look() -> Any:
            return (*self._contents(name)(), file in self.direct.list_files())

        again = frozenset({0, 3, 7})
        return Planned(["drop"], rows, look, (contents, True), (None, True), again, table=name)

    def _file(self, name: str) -> str:
        path = self.direct.catalog().load_table(self.direct.table(name)).metadata_location
        return path.removeprefix("s3://")

    def _drop_purge(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        contents = self._new(name)
        folder = self._file(name).rpartition("/metadata/")[0]

        def look() -> Any:
            files = [path for path in self.direct.list_files() if path.startswith(f"{folder}/")]
            # A run that cannot remove its lock leaves it.
            return (*self._contents(name)(), any(not path.endswith(".lock") for path in files))

        words, again = ["drop", "--purge", "--yes"], frozenset({0, 3, 7})
        return Planned(
            words,
            rows,
            look,
            (contents, True),
            (None, False),
            again,
            # Files whose deletion failed stay, and the table's name is gone.
            halfway=((None, True),),
            table=name,
        )

    def _partition_stats(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        self._new(name, "--partition-by", "day")

        def look() -> bool:
            listed: Iterable[Any] = self._metadata(name).partition_statistics
            files = self.direct.list_files()
            paths = [item.statistics_path.removeprefix("s3://") for item in listed]
            assert all(path in files for path in paths), (paths, files)
            return bool(paths)

        words = ["stats", "--partitions"]
        return Planned(words, rows, look, before=False, after=True, table=name)

    def _expire_partitions(self, name: str, _: int, rows: dict[int, str]) -> Planned:
        before = self._new(name, "--partition-by", "day")
        words = ["expire-partitions", "--older-than", "90d", "--by", "day"]
        look = self._contents(name)
        return Planned(words, rows, look, (before,), (before[1:],), table=name)
