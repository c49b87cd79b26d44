"""Compaction of small files in an S3 store that is as far away as stores are: `lake`, the same on a disk, and Java.

    python tests/bench/far_compact.py [--files 300] [--rows 20000] [--delay-ms 30] [--rounds 3] [--engine spark]
                                      [--no-java] [--folder DIR]

The store is Versity's gateway on this machine (needs Go). A process before it passes bytes on, each after half of
the delay. Java is Iceberg's procedure with S3FileIO (needs a JDK and Maven). All of them share the processors. The
rows are those of ``compact.py``; each run finds the table as it was made. Targets: `lake` is five times as fast as
Java, and takes at most 1.3 times as long as on a disk.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import (  # noqa: E402
    SCHEMA,
    copy_of,
    fill,
    java_compaction,
    lake_compaction,
    make_files,
)
from shared import parser_of  # noqa: E402
from store_plan import far_away  # noqa: E402
from support.servers import s3_gateway  # noqa: E402
from support.servers.server_process import HOST  # noqa: E402
from turns import Run, run, take_turns  # noqa: E402

from lake.core.base.settings import Settings  # noqa: E402
from lake.core.table.catalogs.selection import open_catalog  # noqa: E402
from lake.core.transaction.session import Session  # noqa: E402

_TABLE, _RATIO, _OF_DISK = "db.t", 5, 1.3


def configure(uri: str, properties: dict[str, str]) -> None:
    """Let lake and the peer find the catalog ``lake``, whose tables are in a store."""
    for name, value in {"type": "sql", "uri": uri, **properties}.items():
        key = name.upper().replace(".", "__").replace("-", "_")
        os.environ[f"PYICEBERG_CATALOG__LAKE__{key}"] = value
    os.environ["LAKE_PEER_STORAGE"] = json.dumps(properties)


def make(uri: str, properties: dict[str, str], files: int, rows: int) -> str:
    """Make the table in the store; return the location of its metadata file."""
    catalog = SqlCatalog("lake", uri=uri, **properties)
    catalog.create_namespace("db")
    catalog.create_table(_TABLE, SCHEMA)
    configure(uri, properties)
    settings = Settings(catalog="lake")
    fill(Session(settings=settings, catalog=open_catalog(settings)), files, rows)
    return catalog.load_table(_TABLE).metadata_location


def main() -> int:
    """Make the tables and let the programs compact them in turn."""
    parser = parser_of(__doc__, files=300, rows=20_000, delay_ms=30)
    parser.add_argument("--engine", default="spark")
    options = parser.parse_args()
    if reason := s3_gateway.missing():
        print(f"needs {reason}", file=sys.stderr)
        return 2
    kept, disk = options.folder / "made", options.folder / "disk"
    store_catalog = options.folder / "store"
    for folder in (kept, disk, store_catalog):
        shutil.rmtree(folder, ignore_errors=True)
    # Locations in metadata are absolute: the table is made where it will be used.
    make_files(disk, options.files, options.rows)
    disk.rename(kept)
    store_catalog.mkdir()
    uri = f"sqlite:///{store_catalog}/catalog.db"
    store = s3_gateway.Gateway("bench-key", "bench-secret")
    try:
        near = {"warehouse": f"s3://{store.bucket()}", **store.properties()}
        metadata = make(uri, near, options.files, options.rows)
        with far_away(store.server.port, options.delay_ms) as port:
            configure(uri, {**near, **store.properties(f"http://{HOST}:{port}")})

            def of_store(command: list[str]) -> Run:
                catalog = SqlCatalog("lake", uri=uri, **near)
                catalog.drop_table(_TABLE)
                catalog.register_table(_TABLE, metadata)
                return run(command)

            def of_disk() -> Run:
                copy_of(kept, disk)
                return run(lake_compaction(disk, options.engine))

            lake = [sys.executable, "-m", "lake.cli", "--catalog", "lake", "--json"]
            lake += ["--engine", options.engine, "compact", _TABLE]
            turns = {"lake": partial(of_store, lake), "disk": of_disk}
            if not options.no_java:
                turns["java"] = partial(of_store, java_compaction(store_catalog, None))
            found = take_turns(options.rounds, turns)
    finally:
        store.server.end()
    limits = {"of_disk": found["lake_s"] / found["disk_s"] <= _OF_DISK}
    if "java_s" in found:
        limits["java_ratio"] = found["java_s"] / found["lake_s"] >= _RATIO
    print(json.dumps({"met": limits}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
