"""Iceberg Java reads what the tasks of a DataFrame wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.peers.java_peer import JavaPeer
from support.tables.frame_writes import Write
from support.tables.iceberg_tables import make_table, named_rows

pytestmark = pytest.mark.java


def test_java_reads_epochs_and_overwrites(warehouse: Path, java: JavaPeer) -> None:
    by_name = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    make_table(warehouse, spec=by_name)
    for epoch in (0, 1, 1):
        write = Write(warehouse)
        write.commit(*(write.task(n, named_rows(2 * epoch + n)) for n in range(2)), epoch=epoch)
    write = Write(warehouse, mode="overwrite-where", overwrite_where="name = 'n3'")
    write.commit(write.task(0, pa.table({"id": [30], "name": ["n3"]})))

    found = sorted((row["id"], row["name"]) for row in java.read(warehouse, "db.t"))

    assert found == [(0, "n0"), (1, "n1"), (2, "n2"), (30, "n3")]
