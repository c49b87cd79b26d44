"""Time plans of scans of a table with many manifests in an S3 store that is as far away as stores are.

    python tests/bench/store_plan.py [--files 1000000] [--manifests 5000] [--delay-ms 30] [--rounds 3] [--folder DIR]

The store is Versity's gateway on this machine (needs Go). A process before it passes bytes on, each after half of
the delay. Prints seconds of the whole process, its processor time and its memory. Target: 6 seconds for 5,000
manifests.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs as pafs
from pyiceberg.catalog import load_catalog

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from expire import History, rows_of  # noqa: E402
from shared import parser_of  # noqa: E402
from support.servers import s3_gateway  # noqa: E402
from support.servers.server_process import HOST, free_port  # noqa: E402
from turns import run  # noqa: E402

_TABLE, _TARGET_SECONDS = "db.t", 6.0
_READ_BYTES = 256 * 1024


def make(server: s3_gateway.Gateway, folder: Path, files: int, manifests: int) -> str:
    """Make a table of one snapshot in a new bucket; return the location of its metadata file."""
    bucket = server.bucket()
    history = History(folder, 1, location=f"s3://{bucket}/db/t")
    each = files // manifests
    rows = [history.manifest(0, range(first, first + each)) for first in range(0, files, each)]
    history.snapshot(0, rows_of(rows))
    made = history.finish()
    pafs.copy_files(
        str(made.parent), f"{bucket}/db/t/metadata", destination_filesystem=server.files()
    )
    return f"{history.location}/metadata/{made.name}"


@contextmanager
def far_away(port: int, delay_ms: int) -> Iterator[int]:
    """Let a process pass connections on to a port, and give its own."""
    own = free_port()
    process = multiprocessing.Process(target=_forward, args=(own, port, delay_ms / 2000))
    process.start()
    try:
        yield own
    finally:
        process.terminate()
        process.join()


def _forward(own: int, port: int, seconds: float) -> None:
    asyncio.run(_serve(own, port, seconds))


async def _serve(own: int, port: int, seconds: float) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(HOST, port)
        async with asyncio.TaskGroup() as both:
            both.create_task(_pass_on(reader, requests, seconds))
            both.create_task(_pass_on(answers, writer, seconds))

    server = await asyncio.start_server(accept, HOST, own, backlog=1024)
    await server.serve_forever()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(_READ_BYTES):
        loop.call_later(seconds, writer.write, data)
    loop.call_later(seconds, writer.close)


def main() -> int:
    """Make the table and plan."""
    options = parser_of(
        __doc__, java=False, files=1_000_000, manifests=5_000, delay_ms=30
    ).parse_args()
    if reason := s3_gateway.missing():
        print(f"needs {reason}", file=sys.stderr)
        return 2
    server = s3_gateway.Gateway("bench-key", "bench-secret")
    try:
        folder = Path(tempfile.mkdtemp(dir=options.folder))
        location = make(server, folder / "made", options.files, options.manifests)
        with far_away(server.server.port, options.delay_ms) as port:
            properties = {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": location.rpartition("/db/")[0],
                **server.properties(f"http://{HOST}:{port}"),
            }
            catalog = load_catalog("far", **properties)
            catalog.create_namespace("db")
            catalog.register_table(_TABLE, location)
            for name, value in properties.items():
                key = name.upper().replace(".", "__").replace("-", "_")
                os.environ[f"PYICEBERG_CATALOG__FAR__{key}"] = value
            command = [sys.executable, "-m", "lake.cli", "--catalog", "far", "--json"]
            found = []
            for _ in range(options.rounds):
                found.append(run([*command, "scan", _TABLE, "--plan"]))
                files = json.loads(found[-1].output)["plan"]["files"]
                print(f"lake: {found[-1]}, {files:,} files", flush=True)
    finally:
        server.server.end()
    seconds = sorted(one.seconds for one in found)[len(found) // 2]
    print(json.dumps({"seconds": round(seconds, 2), "met": seconds <= _TARGET_SECONDS}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
