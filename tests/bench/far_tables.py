"""Time maintenance of many small tables in an S3 store that is as far away as stores are: `lake` and Zamboni.

    python tests/bench/far_tables.py --zamboni PATH [--tables 100] [--files 6] [--delay-ms 30] [--rounds 2]

The store is Versity's gateway on this machine (needs Go), the catalog the Iceberg project's REST server (needs a JDK
and Maven). A process before the store passes bytes on, each after half of the delay; the catalog answers at once.
PyIceberg makes new tables for each run, each with as many files and snapshots. Both programs get one line that asks
for a compaction and an expiration, as in ``many_tables.py``. Target: `lake` is 3 times as fast as Zamboni.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from many_tables import POLICY, done_by_lake, done_by_zamboni, zamboni_config  # noqa: E402
from shared import parser_of  # noqa: E402
from store_plan import far_away  # noqa: E402
from support.servers import maven, s3_gateway  # noqa: E402
from support.servers.rest_server import RestServer  # noqa: E402
from support.servers.s3_server import REGION  # noqa: E402
from support.servers.server_process import HOST  # noqa: E402
from turns import Run, run  # noqa: E402

_KEY, _SECRET = "bench-key", "bench-secret"


def make_tables(catalog: Any, namespace: str, tables: int, files: int) -> list[str]:
    """Make tables in a new namespace, each by as many appends as it has files; return their names."""
    catalog.create_namespace(namespace)
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    names = [f"{namespace}.t{number:04}" for number in range(tables)]
    for name in names:
        table = catalog.create_table(name, rows.schema)
        for _ in range(files):
            table.append(rows)
    return names


def lake(folder: Path, names: list[str]) -> Run:
    """Run `lake maintain`; it must have compacted and expired each table."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    namespace = names[0].rpartition(".")[0]
    command = [sys.executable, "-m", "lake.cli", "--catalog", "far", "--json", "maintain"]
    command += [f"{namespace}.*", "--policy", str(policy), "--log", str(folder / "runs.jsonl")]
    return done_by_lake(run(command))


def zamboni(program: str, folder: Path, uri: str, endpoint: str, names: list[str]) -> Run:
    """Run Zamboni's maintenance; it must have compacted and expired each table."""
    os.environ["ZAMBONI_S3_SECRET_ACCESS_KEY"] = _SECRET
    command = [program, "maintenance", "--uri", uri, "--db", "far", "--s3-endpoint", endpoint]
    command += ["--s3-access-key-id", _KEY, "--s3-region", REGION]
    command += zamboni_config(folder, "far", names)
    return done_by_zamboni(run(command), names)


def main() -> int:
    """Make the tables and let the programs maintain them in turn."""
    parser = parser_of(__doc__, java=False, tables=100, files=6, delay_ms=30)
    parser.add_argument("--zamboni", required=True, help="its program")
    options = parser.parse_args()
    if reason := s3_gateway.missing() or maven.missing():
        print(f"needs {reason}", file=sys.stderr)
        return 2
    store = s3_gateway.Gateway(_KEY, _SECRET)
    try:
        with far_away(store.server.port, options.delay_ms) as port:
            compare(options, store, f"http://{HOST}:{port}")
    finally:
        store.server.end()
    return 0


def compare(options: Any, store: s3_gateway.Gateway, endpoint: str) -> None:
    """Let the programs maintain tables of their own in turn, whose files are beyond an endpoint."""
    far = store.properties(endpoint)
    # Clients have properties of their own: the tables are made without the delay.
    settings = {"include-credentials": "false", "warehouse": f"s3://{store.bucket()}/tables"}
    server = RestServer({**far, **settings})
    try:
        properties = {"type": "rest", "uri": server.uri, **far}
        near = load_catalog("near", **{**properties, **store.properties()})
        for name, value in properties.items():
            key = name.upper().replace(".", "__").replace("-", "_")
            os.environ[f"PYICEBERG_CATALOG__FAR__{key}"] = value
        folder = options.folder
        turns: dict[str, Callable[[list[str]], Run]] = {
            "lake": lambda names: lake(folder, names),
            "zamboni": lambda names: zamboni(options.zamboni, folder, server.uri, endpoint, names),
        }
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        for number in range(options.rounds):
            for name, turn in turns.items():
                names = make_tables(near, f"{name}{number}", options.tables, options.files)
                done = turn(names)
                seconds[name].append(done.seconds)
                print(f"{name}: {done}", flush=True)
    finally:
        server.end()
    found = {name: round(median(each), 1) for name, each in seconds.items()}
    print(json.dumps({**found, "times as fast": round(found["zamboni"] / found["lake"], 1)}))


if __name__ == "__main__":
    raise SystemExit(main())
