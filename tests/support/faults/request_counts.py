"""The commands whose requests to a store are counted, in the order in which they run on one table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lake.core.table.metadata import files
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Proxy
from support.servers.s3_server import S3

# The commits before `compact`, each of one small file, and those before `scan`.
COMMITS, FIRST_COMMITS = 40, 2


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
    """Run the commands through a proxy, and yield what each took.

    Args:
        server: the store; the table gets a new bucket.
        folder: for the catalog and the sources.
        token: a session token.
        delay_seconds: how long the proxy holds back each answer.
    """
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
