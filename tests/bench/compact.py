"""Compaction of many small files, side by side with Iceberg Java, alternating in one run.

    python tests/bench/compact.py [--files 300] [--rows 20000] [--rounds 3] [--engine spark] [--no-java]
                                  [--deletes] [--sort l_shipdate] [--sort 'zorder(l_partkey, l_shipdate)']

With ``--deletes`` a tenth of the rows is deleted first: half of them by position delete files, one a data file,
half by three equality delete files. Prints, per round and as medians: seconds of the whole process of each, the
ratio, lake's peak memory (the largest Python process that did the work), and the seconds that bare PyArrow
takes for the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, IntegerType, LongType, NestedField, StringType

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/bench")]

from shared import java_command, lake_command, parser_of  # noqa: E402
from support.tables.delete_files import commit_deletes, equality_file, position_file  # noqa: E402
from support.tables.iceberg_tables import make_table, open_session  # noqa: E402

from lake.core.transaction.session import Session  # noqa: E402

_MONEY = DecimalType(15, 2)
_COLUMNS = {
    "l_orderkey": LongType(),
    "l_partkey": LongType(),
    "l_suppkey": LongType(),
    "l_linenumber": IntegerType(),
    "l_quantity": _MONEY,
    "l_extendedprice": _MONEY,
    "l_discount": _MONEY,
    "l_tax": _MONEY,
    "l_returnflag": StringType(),
    "l_linestatus": StringType(),
    "l_shipdate": DateType(),
    "l_commitdate": DateType(),
    "l_receiptdate": DateType(),
    "l_shipinstruct": StringType(),
    "l_shipmode": StringType(),
    "l_comment": StringType(),
}
SCHEMA = Schema(
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, kind) in enumerate(_COLUMNS.items(), 1)
    )
)
_WORDS = [
    "furiously",
    "quickly",
    "carefully",
    "slyly",
    "blithely",
    "even",
    "regular",
    "final",
    "ironic",
    "special",
    "pending",
    "bold",
    "express",
    "unusual",
    "silent",
    "packages",
    "deposits",
    "accounts",
    "requests",
    "instructions",
    "theodolites",
    "foxes",
    "ideas",
    "pinto",
    "beans",
    "dependencies",
    "excuses",
    "platelets",
    "asymptotes",
    "courts",
    "sleep",
    "wake",
    "haggle",
    "nag",
    "use",
    "boost",
    "affix",
    "detect",
    "integrate",
    "cajole",
    "are",
    "about",
    "above",
    "according",
    "to",
    "across",
    "after",
    "against",
    "along",
    "among",
    "around",
    "at",
    "the",
    "of",
]


def lineitems(number: int, rows: int) -> pa.Table:
    """Return the rows of the file with a number: the same in every run."""
    rng = np.random.default_rng(number)
    first = number * rows
    quantity = rng.integers(1, 51, rows)
    part = rng.integers(1, 200_000, rows)
    ship = rng.integers(8036, 10_560, rows)
    columns = [
        pa.array(np.arange(first, first + rows) // 4 * 8 + 1),
        pa.array(part),
        pa.array(part % 10_000 + rng.integers(0, 4, rows) * 2500),
        pa.array((np.arange(rows) % 4 + 1).astype(np.int32)),
        _money(quantity * 100),
        _money(quantity * (90_000 + part // 10 % 20_001 + 100 * (part % 1000))),
        _money(rng.integers(0, 11, rows)),
        _money(rng.integers(0, 9, rows)),
        _chosen(rng, ["R", "A", "N"], rows),
        _chosen(rng, ["O", "F"], rows),
        _date(ship),
        _date(ship + rng.integers(-90, 91, rows)),
        _date(ship + rng.integers(1, 31, rows)),
        _chosen(rng, ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"], rows),
        _chosen(rng, ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"], rows),
        _comments(rng, rows),
    ]
    return pa.table(columns, names=list(_COLUMNS))


def _money(cents: Any) -> pa.Array:
    wide = np.zeros((len(cents), 2), np.int64)
    wide[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(cents), [None, pa.py_buffer(wide)])


def _date(days: Any) -> pa.Array:
    return pa.array(days.astype(np.int32)).view(pa.date32())


def _chosen(rng: Any, words: list[str], rows: int) -> pa.Array:
    return pa.array(words).take(pa.array(rng.integers(0, len(words), rows)))


def _comments(rng: Any, rows: int) -> pa.Array:
    words = np.array(_WORDS)
    picked = words[rng.integers(0, len(words), (rows, 4))]
    return pa.array([" ".join(row) for row in picked])


def make_files(warehouse: Path, files: int, rows: int) -> None:
    """Make ``db.t`` with the given number of files, committed as one append."""
    make_table(warehouse, schema=SCHEMA)
    fill(open_session(warehouse), files, rows)


def fill(session: Session, files: int, rows: int) -> None:
    """Append the given number of files to ``db.t`` by one commit."""
    from lake.core.data.rows.writer import WriteSettings, open_writer
    from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
    from lake.core.transaction.commit.operations import AppendFiles

    table = session.table("db.t")
    operation = session.ids.uuid()
    settings = WriteSettings.of(table, operation)
    written = []
    for number in range(files):
        with open_writer(table.storage, settings, task=number, attempt="b") as writer:
            batch = lineitems(number, rows).combine_chunks().to_batches()[0]
            writer.write(batch)
            written += writer.close()
    commit_snapshot(
        session, table, AppendFiles(added=written), CommitRequest(operation_id=operation)
    )


def delete_rows(warehouse: Path, files: int, rows: int) -> None:
    """Delete a twentieth of the rows by position, and as many orders by key, in three commits."""
    session = open_session(warehouse)
    table = session.table("db.t")
    rng = np.random.default_rng(7)
    paths = [f"file://{path}" for path in data_files(warehouse)]
    places = [np.sort(rng.choice(rows, rows // 20, replace=False)) for _ in paths]
    positions = [
        position_file(table, [(path, int(place)) for place in mine])
        for path, mine in zip(paths, places, strict=True)
    ]
    table = commit_deletes(table, *positions)
    orders = files * rows // 4
    for part in np.array_split(rng.choice(orders, orders // 20, replace=False) * 8 + 1, 3):
        keys = [{"l_orderkey": int(key)} for key in part]
        table = commit_deletes(table, equality_file(table, keys, ["l_orderkey"]))


def copy_of(source: Path, target: Path) -> None:
    """Copy a warehouse to a place that is then used instead of the first."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)


def data_files(warehouse: Path) -> list[Path]:
    """Return the Parquet files of ``db.t`` in the order in which they were made."""
    return sorted(warehouse.rglob("*.parquet"))


def bare(paths: list[Path], target: Path) -> float:
    """Return the seconds that PyArrow takes to read files in turn and write them as one."""
    started = time.perf_counter()
    schema = pq.read_schema(paths[0])
    with pq.ParquetWriter(target, schema, compression="zstd", write_page_checksum=True) as writer:
        for path in paths:
            writer.write_table(pq.read_table(path, use_threads=False))
    return time.perf_counter() - started


class PeakMemory:
    """The most resident memory, in MiB, that any Python process below a process reached."""

    def __init__(self, pid: int) -> None:
        self.peak = 0.0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            for pid in [self._pid, *below(self._pid)]:
                self.peak = max(self.peak, _python_peak(pid))

    def stop(self) -> float:
        """End watching and return the peak."""
        self._stop.set()
        self._thread.join()
        return self.peak


def own_environment() -> dict[str, str]:
    """Return the environment without what makes each process compile `lake`, which is compiled when installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def below(pid: int) -> list[int]:
    """Return the children of a process, and theirs."""
    children: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(text) for text in (task / "children").read_text().split()]
    except OSError:
        # It has ended.
        pass
    return [*children, *(deeper for child in children for deeper in below(child))]


def _python_peak(pid: int) -> float:
    try:
        command = Path(f"/proc/{pid}/comm").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    if "java" in command:
        return 0.0
    line = next((text for text in status.splitlines() if text.startswith("VmHWM")), "VmHWM: 0 kB")
    return int(line.split()[1]) / 1024


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """Return each one's median, and how often lake's goes into Java's."""
    found = {name: round(statistics.median(each), 2) for name, each in seconds.items() if each}
    if "java" in found:
        found["ratio"] = round(found["java"] / found["lake"], 2)
    return found


def timed(command: list[str], **environment: str) -> tuple[float, float, str]:
    """Run a process; return its seconds, peak memory in MiB, and output."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**own_environment(), **environment},
        cwd=ROOT,
    )
    memory = PeakMemory(process.pid)
    output, errors = process.communicate()
    seconds, peak = time.perf_counter() - started, memory.stop()
    if process.returncode != 0:
        raise SystemExit(f"{command} failed:\n{output}\n{errors}")
    return seconds, peak, output


def lake_compaction(warehouse: Path, engine: str, *more: str) -> list[str]:
    """Return the command line of lake's compaction."""
    return lake_command(warehouse, "--engine", engine, "compact", "db.t", *more)


def lake_order(terms: str) -> list[str]:
    """Return lake's options for an order as Java's `sort_order` names it."""
    if terms.startswith("zorder("):
        columns = terms.removeprefix("zorder(").removesuffix(")")
        return ["--strategy", "zorder", "--by", columns]
    return ["--strategy", "sort", "--by", terms]


def java_compaction(warehouse: Path, order: str | None) -> list[str]:
    """Return the command line of the peer's compaction."""
    sort = f", strategy => 'sort', sort_order => '{order}'" if order else ""
    call = f"CALL lake.system.rewrite_data_files(table => 'db.t'{sort})"
    return java_command(warehouse, call)


def main() -> None:
    """Run the comparison."""
    parser = parser_of(__doc__, files=300, rows=20_000)
    parser.add_argument("--engine", default="spark")
    parser.add_argument("--deletes", action="store_true", help="delete a tenth of the rows first")
    parser.add_argument("--sort", metavar="TERMS", help="e.g. 'l_shipdate' or 'zorder(a, b)'")
    parser.add_argument("more", nargs="*", help="further options of `lake compact`")
    arguments = parser.parse_args()
    folder = arguments.folder
    used = folder / "warehouse"
    suffix = "-deletes" if arguments.deletes else ""
    kept = folder / f"made-{arguments.files}-{arguments.rows}{suffix}"
    if not kept.exists():
        # Locations in metadata are absolute: the table is made where it will be used.
        shutil.rmtree(used, ignore_errors=True)
        make_files(used, arguments.files, arguments.rows)
        if arguments.deletes:
            delete_rows(used, arguments.files, arguments.rows)
        used.rename(kept)
    more = [*arguments.more]
    if arguments.sort:
        more += lake_order(arguments.sort)
    seconds: dict[str, list[float]] = {"lake": [], "java": [], "bare": []}
    peaks = []
    for _ in range(arguments.rounds):
        copy_of(kept, used)
        if not arguments.deletes:
            seconds["bare"].append(bare(data_files(used), folder / "bare.parquet"))
        took, peak, output = timed(lake_compaction(used, arguments.engine, *more))
        seconds["lake"].append(took)
        peaks.append(peak)
        result = json.loads(output)["result"]
        print(f"lake {took:.2f} s, peak {peak:.0f} MiB, {result}", flush=True)
        if not arguments.no_java:
            copy_of(kept, used)
            took, _, _ = timed(java_compaction(used, arguments.sort))
            seconds["java"].append(took)
            print(f"java {took:.2f} s", flush=True)
    print(json.dumps({**medians(seconds), "peak_mib": round(max(peaks))}))


if __name__ == "__main__":
    main()
