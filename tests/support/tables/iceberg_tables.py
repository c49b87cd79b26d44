"""Real tables for tests: a SQLite catalog, Parquet files, faults injected at the catalog's door."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lake.core.base.settings import Settings
from lake.core.load.ingest.options import IngestOptions, LoadRequest
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.selection import open_catalog
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.session import Session

# Is given a commit as a function without arguments, and may call it or not.
Fault = Callable[[Callable[[], Any]], Any]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)


class FixedClock:
    """A clock that moves only when a test moves it, and records how long it was asked to wait."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now = now_ms
        self.waits: list[float] = []

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += int(seconds * 1000)


def open_session(warehouse: Path, clock: Any = None) -> Session:
    """Open a session on an embedded catalog."""
    settings = Settings(warehouse=str(warehouse))
    session = Session(settings=settings, catalog=open_catalog(settings))
    if clock is not None:
        session.clock = clock
    return session


def request_of(*sources: Path | str, **options: Any) -> LoadRequest:
    """Return the request of a load of files that is not an epoch of a stream."""
    asked = IngestOptions(sources=[str(source) for source in sources], **options)
    return LoadRequest(options=asked, epoch=None)


def pyiceberg_catalog(warehouse: Path) -> SqlCatalog:
    """Open the same catalog by PyIceberg alone."""
    warehouse.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(
        "lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=f"file://{warehouse}"
    )


def pyiceberg_table(warehouse: Path, name: str = "db.t") -> Any:
    """Return a table as PyIceberg reads it."""
    return pyiceberg_catalog(warehouse).load_table(name)


def named_rows(*ids: int) -> pa.Table:
    """Return rows with names for a table of the schema that tables have by default."""
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{one}" for one in ids]})


def make_table(
    warehouse: Path,
    name: str = "db.t",
    schema: Schema = SCHEMA,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    **properties: str,
) -> Any:
    """Create an empty table by PyIceberg; ``__`` in property names stands for ``.`` and ``_`` for ``-``."""
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace_if_not_exists(name.split(".", maxsplit=1)[0])
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    return catalog.create_table(name, schema, partition_spec=spec, properties=named)


def write_file(
    table: Table, ids: Iterable[int], *, partition: tuple[bytes | None, ...] = ()
) -> DataFile:
    """Write one Parquet file with rows (id, "n<id>") below the table and describe it."""
    rows = list(ids)
    schema = schema_to_pyarrow(SCHEMA)
    data = pa.table([pa.array(rows, pa.int64()), [f"n{row}" for row in rows]], names=["id", "name"])
    location = f"{table.data_location}/{uuid.uuid4()}.parquet"
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data.cast(schema), path)
    return DataFile(
        path=location,
        spec_id=table.spec.spec_id,
        partition=partition,
        record_count=len(rows),
        size_bytes=path.stat().st_size,
    )


def ids_in(warehouse: Path, name: str = "db.t", snapshot_id: int | None = None) -> list[int]:
    """Return the sorted ids that PyIceberg reads."""
    table = pyiceberg_catalog(warehouse).load_table(name)
    return sorted(table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())


def inject(session: Session, faults: list[Fault | None]) -> None:
    """Let the catalog's next commits run through faults, one a commit; None lets one pass.

    A fault is given the real commit as a function without arguments and may call it or not.
    """
    handle = session.catalog.handle
    real = handle.commit_table

    def commit(table: Any, requirements: Any, updates: Any) -> Any:
        fault = faults.pop(0) if faults else None
        if fault is None:
            return real(table, requirements, updates)
        return fault(lambda: real(table, requirements, updates))

    handle.commit_table = commit  # type: ignore[method-assign]


def applied_then(error: Exception) -> Fault:
    """The commit happens, and its answer is an error."""

    def fault(commit: Callable[[], Any]) -> Any:
        commit()
        raise error

    return fault


def refused_with(error: Exception) -> Fault:
    """The commit does not happen."""

    def fault(_: Callable[[], Any]) -> Any:
        raise error

    return fault


def stopped(commit: Callable[[], Any]) -> Any:
    """A stop comes while the commit is on its way, which happens (a fault)."""
    signal.raise_signal(signal.SIGTERM)
    return commit()


def after(other: Callable[[], Any]) -> Fault:
    """Another writer commits just before."""

    def fault(commit: Callable[[], Any]) -> Any:
        other()
        return commit()

    return fault


def unsealed(data: bytes) -> bytes:
    """Return a manifest, or a list of them, as of a writer whose sync markers do not depend on the contents."""
    found = data.replace(b"lake.sync-marker", b"else.sync-marker", 1)
    assert found != data
    return found


def files_below(warehouse: Path) -> set[str]:
    """Return all files of a warehouse but the catalog's own."""
    return {
        str(path.relative_to(warehouse))
        for path in warehouse.rglob("*")
        if path.is_file() and not path.name.startswith("catalog.db")
    }
