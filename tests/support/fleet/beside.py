"""Writers beside `lake maintain`: appends each second as a Flink job makes them, and merges of Iceberg Java."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException

from support.fleet.files import rows_of
from support.fleet.fleet import Fleet
from support.fleet.judge import maintained
from support.tables.iceberg_tables import pyiceberg_catalog

_APPENDED = ("fleet.many_appends", "fleet.manifests_identity", "fleet.added_v2")
_MERGED = ("fleet.small_files_truncate", "fleet.position_deletes_identity", "fleet.tidy_hour")
# The commits of each writer before maintenance begins: nothing can know of a writer that has not committed.
_KNOWN_COMMITS = 3
# How Java reports that another writer replaced what a merge replaces.
_CONFLICTS = ("conflict", "missing required files to delete")
# Keys that no table of a fleet has.
_FIRST_KEY = 10_000_000


@dataclass
class Written:
    """What writers did.

    Args:
        rows: the keys that were committed to each table, once each.
        counts: commits and conflicts of each kind of writer.
        errors: what else failed.
    """

    rows: dict[str, set[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


def compared(fleet: Fleet, java: Any, seconds: float) -> list[str]:
    """Let writers work alone, and then beside maintenance; return what is wrong.

    Both kinds of writers try a commit that another writer was faster than again, as their programs do; what still
    fails then is lost. None may be lost beside maintenance that would not have been lost alone.
    """
    fleet.restored()
    alone = _written(fleet, java, seconds, lambda: time.sleep(0.2))
    print(f"alone: {dict(alone.counts)}, {alone.errors[:2]}")
    fleet.restored()
    fleet.log("beside").unlink(missing_ok=True)
    rounds: Counter[str] = Counter()

    def maintain() -> None:
        result = maintained(fleet, "beside")
        rounds.update(f"{item['action']} {item['status']}" for item in result["actions"])
        rounds["rounds"] += 1

    beside = _written(fleet, java, seconds, maintain)
    print(f"beside: {dict(beside.counts)}; {dict(rounds)}")
    return [
        *beside.errors,
        *(
            f"{beside.counts[name]} {name} beside maintenance, {alone.counts[name]} alone"
            for name in ("appends lost", "merges lost")
            if beside.counts[name] > alone.counts[name]
        ),
        *_missing(fleet, java, beside),
    ]


def _written(fleet: Fleet, java: Any, seconds: float, maintain: Callable[[], None]) -> Written:
    """Write for some time while something else is repeated."""
    written = Written()
    until = time.monotonic() + seconds
    threads = [
        *(
            threading.Thread(target=_append, args=(fleet, name, until, written))
            for name in _APPENDED
        ),
        threading.Thread(target=_merge, args=(fleet, java, until, written)),
    ]
    for thread in threads:
        thread.start()
    while time.monotonic() < until:
        if all(len(written.rows.get(name, ())) >= _KNOWN_COMMITS for name in _APPENDED + _MERGED):
            maintain()
        else:
            time.sleep(0.2)
    for thread in threads:
        thread.join()
    return written


def _append(fleet: Fleet, name: str, until: float, written: Written) -> None:
    """Append a row each second; a commit that conflicts is tried again on the table as it is then."""
    catalog = pyiceberg_catalog(fleet.warehouse)
    keys = written.rows.setdefault(name, set())
    for key in count(_FIRST_KEY):
        if (begun := time.monotonic()) >= until:
            return
        for _ in range(5):
            try:
                catalog.load_table(name).append(_row(key))
            except CommitFailedException:
                written.counts["appends tried again"] += 1
            except Exception as error:
                written.errors.append(f"{name}: {type(error).__name__}: {error}")
            else:
                keys.add(key)
                written.counts["appends"] += 1
                break
        else:
            written.counts["appends lost"] += 1
        time.sleep(max(begun + 1 - time.monotonic(), 0))


def _row(key: int) -> pa.Table:
    return rows_of([key], key % 3)


def _merge(fleet: Fleet, java: Any, until: float, written: Written) -> None:
    """Merge one new row and a change of it, in one table after the other."""
    for key in count(_FIRST_KEY * 2):
        for name in _MERGED:
            if time.monotonic() >= until:
                return
            keys = written.rows.setdefault(name, set())
            statement = (
                f"MERGE INTO {{c}}.{name} t USING (SELECT {key} id UNION ALL SELECT {key - 1} id) s "
                "ON t.id = s.id WHEN MATCHED THEN UPDATE SET amount = t.amount + 1 WHEN NOT MATCHED "
                "THEN INSERT (id, part, ts, amount) VALUES "
                "(s.id, 'a0', timestamp'2026-03-01 05:00:00', 0)"
            )
            try:
                java.sql(fleet.warehouse, statement)
            except RuntimeError as error:
                is_conflict = any(text in str(error).lower() for text in _CONFLICTS)
                kind = "merges lost" if is_conflict else "merges failed"
                written.counts[kind] += 1
                if kind == "merges failed":
                    written.errors.append(f"{name}: {error}")
            else:
                keys.update((key, key - 1))
                written.counts["merges"] += 1


def _missing(fleet: Fleet, java: Any, written: Written) -> list[str]:
    """Return a line for each table whose rows are not those that were committed, as Java reads them."""
    found = []
    for name, keys in written.rows.items():
        statement = f"SELECT id FROM {{c}}.{name} WHERE id >= {_FIRST_KEY - 1}"
        rows = Counter(row["id"] for row in java.sql(fleet.warehouse, statement))
        if rows != Counter(keys):
            lost, more = Counter(keys) - rows, rows - Counter(keys)
            found.append(f"{name}: lost {sorted(lost)[:9]}, and has {sorted(more)[:9]} too often")
    return found
