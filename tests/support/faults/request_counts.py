"""The commands whose requests to a store are counted, in the order in which they run on one table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lake.core.table.metadata import files
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Proxy
from support.servers.s3_server import S3

# The commits before `compact`, each of one small file, and those before `scan`.
COMMITS, FIRST_COMMITS = 40, 2
# A file of 20 MiB, and the number of them before `compact`.
LARGE_COLUMNS, LARGE_ROWS, LARGE_FILES = 6, 437_000, 3
# The files of two rows each of `counted_scans`.
SCANNED_FILES = 40


@dataclass(frozen=True)
class Counted:
    """What a command took.

    Args:
        name: the command.
        requests: those to the store.
        seconds: from its begin to its end.
    """

    name: str
    requests: int
    seconds: float


def counted(
    server: S3, folder: Path, *, token: str | None = None, delay_seconds: float = 0.0
) -> Iterator[Counted]:
    """Run commands on small files through a proxy, and yield what each took.

    Args:
        server: the store; the table gets a new bucket.
        folder: for the catalog and the sources.
        token: a session token.
        delay_seconds: how long the proxy holds back each answer.
    """
    with _commands(server, folder, delay_seconds, token) as run:

        def source(number: int) -> Path:
            return csv(folder, f"{number}.csv", id=[number], name=[f"n{number}"])

        yield run("first ingest", "ingest", source(0), "--create")
        yield run("second ingest", "ingest", source(1))
        yield run("snapshots", "snapshots")
        yield run("scan --plan", "scan", "--plan")
        yield run("scan", "scan")
        for number in range(FIRST_COMMITS, COMMITS):
            run("ingest", "ingest", source(number))
        yield run("compact", "compact", "--rewrite-all")
        yield run("expire", "expire", "--older-than", "0s", "--unsafe-retention")


def counted_large(server: S3, folder: Path, *, delay_seconds: float = 0.0) -> Iterator[Counted]:
    """Run commands on files of 20 MiB, and yield what each took; see `counted`."""
    source = folder / "large.parquet"
    drawn = np.random.default_rng(7).integers(0, 1 << 62, (LARGE_COLUMNS, LARGE_ROWS))
    columns = {f"c{number}": column for number, column in enumerate(drawn)}
    pq.write_table(pa.table(columns), source, use_dictionary=False)
    with _commands(server, folder, delay_seconds) as run:
        yield run("large ingest", "ingest", source, "--create")
        yield run("large scan", "scan", "--select", "c1,c4", "--output", folder / "scan.parquet")
        for _ in range(LARGE_FILES - 1):
            run("ingest", "ingest", source)
        yield run("large compact", "compact", "--rewrite-all")


def counted_scans(server: S3, folder: Path, *, delay_seconds: float = 0.0) -> Iterator[Counted]:
    """Scan a table of many files, some of whose rows are deleted then, and yield what each took; see `counted`."""
    numbers = [*range(SCANNED_FILES)]
    rows = {"id": [*[0] * len(numbers), *[1] * len(numbers)], "part": numbers * 2}
    source = csv(folder, "rows.csv", **rows)
    with _commands(server, folder, delay_seconds) as run:
        create = ("--create", "--partition-by", "part", "--property", "format-version=3")
        run("ingest", "ingest", source, *create)
        yield run("scan --limit 1", "scan", "--limit", "1")
        yield run("scan --limit 6", "scan", "--limit", "6")
        yield run("scan --limit 6 --output", "scan", "--limit", "6", "--output", folder / "6.csv")
        yield run("scan of all", "scan", "--output", folder / "all.csv")
        run("delete", "delete", "--where", "id = 0 and part < 30", "--deletes", "position")
        yield run("scan of all with deletes", "scan", "--output", folder / "left.csv")


@contextmanager
def _commands(
    server: S3, folder: Path, delay_seconds: float, token: str | None = None
) -> Iterator[Callable[..., Counted]]:
    """Open a proxy; return a function that runs a command on a table behind it."""
    with Proxy(server.endpoint, delay_seconds=delay_seconds) as proxy:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
            "warehouse": f"s3://{server.bucket()}/tables",
            **server.properties(proxy.uri),
            **({"s3.session-token": token} if token else {}),
        }
        service = Service("counted", properties, folder, set)
        lake, table = service.line("inline"), service.table()

        def run(name: str, verb: str, *words: object) -> Counted:
            # Each command is a process of its own.
            files._kept.clear()
            proxy.asked.clear()
            began = time.perf_counter()
            lake.ok(verb, table, *words)
            return Counted(name, len(proxy.asked), time.perf_counter() - began)

        yield run
