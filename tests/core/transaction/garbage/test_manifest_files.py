"""Which files manifests name, read by this process or by tasks: judged by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.tables.iceberg_tables import make_table, open_session, pyiceberg_table

from lake.core.base.errors import CorruptFileError, EngineError
from lake.core.base.settings import Settings
from lake.core.engine import selection
from lake.core.engine.inline import InlineEngine
from lake.core.engine.selection import reads_manifests_on_spark
from lake.core.engine.tasks import Engine
from lake.core.io.storage.file_names import FileNames
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests import batches
from lake.core.table.manifests.api import read_manifest_list, read_manifests
from lake.core.transaction.garbage.manifest_files import ManifestFiles

SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


@pytest.fixture(params=["here", "tasks"])
def engine_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read one manifest at a time, here or in tasks, of which some are given at a time."""
    monkeypatch.setattr(batches, "_BATCH_BYTES", 1)
    monkeypatch.setattr(batches, "_TASK_BYTES", 1)
    engine = InlineEngine(1)
    return lambda _: None if request.param == "here" else engine


@pytest.fixture
def made(warehouse: Path) -> Table:
    """A table of six snapshots, each with a manifest of two files in two partitions."""
    make_table(warehouse, spec=SPEC)
    for number in range(6):
        ids = pa.array([number, number + 100], pa.int64())
        pyiceberg_table(warehouse).append(pa.table({"id": ids, "name": ["a", "b"]}))
    return open_session(warehouse).table("db.t")


def manifests_of(table: Table) -> pa.Table:
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    return read_manifest_list(table.storage, snapshot.manifest_list)


def test_all_files_of_all_manifests_are_found(made: Table, warehouse: Path, engine_of: Any) -> None:
    reader = ManifestFiles(made.storage, engine_of=engine_of)
    manifests = manifests_of(made)
    expected = pyiceberg_table(warehouse).inspect.files().to_pylist()

    held = reader.held(made.metadata, manifests)
    spool, unreadable = reader.files(made.metadata, manifests)

    names = FileNames().of(pa.array([row["file_path"] for row in expected]))
    assert len(names) == 12
    assert held.names.has(names).to_pylist() == [True] * 12
    assert len(held.names) == 12
    assert not held.names.has(pa.array(["/another"]))[0].as_py()
    assert set(held.folders.to_pylist()) == {
        name.rpartition("/")[0] + "/" for name in names.to_pylist()
    }
    with closing(spool):
        rows = [row for number in range(len(spool)) for row in spool.read(number).to_pylist()]
    assert not unreadable
    assert sorted((row["path"], row["bytes"]) for row in rows) == sorted(
        (row["file_path"], row["file_size_in_bytes"]) for row in expected
    )
    assert {row["kind"] for row in rows} == {"data_files"}


def test_a_manifest_that_was_read_must_have_the_length_that_each_list_declares(made: Table) -> None:
    manifests = manifests_of(made)
    read_manifests(made.storage, manifests, made.metadata)
    longer = pc.add(manifests["manifest_length"], 1)
    index = manifests.schema.get_field_index("manifest_length")

    with pytest.raises(CorruptFileError, match="declares"):
        read_manifests(
            made.storage, manifests.set_column(index, "manifest_length", longer), made.metadata
        )


def test_what_was_read_of_a_table_is_used_again_by_the_commands_on_it_only(
    made: Table, warehouse: Path
) -> None:
    make_table(warehouse, "db.u")
    session, reads = open_session(warehouse), list[str]()
    table, manifests = session.table("db.t"), manifests_of(made)

    def counted(table: Table) -> int:
        reads.clear()
        read = Storage.read

        def reading(self: Storage, location: str, **limit: int) -> bytes:
            reads.append(location)
            return read(self, location, **limit)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Storage, "read", reading)
            read_manifests(table.storage, manifests, made.metadata)
        return len(reads)

    session.work_on(table)
    assert counted(table) == 6
    assert counted(session.table("db.t")) == 0
    assert counted(session.table("db.t").refreshed()) == 0
    session.table("db.u")
    assert counted(session.table("db.t")) == 6
    session.work_on(None)
    assert counted(session.table("db.t")) == 6


def test_a_damaged_manifest_stops_what_needs_it_and_is_named_by_what_does_not(
    made: Table, engine_of: Any
) -> None:
    reader = ManifestFiles(made.storage, engine_of=engine_of)
    manifests = manifests_of(made)
    path = manifests["manifest_path"][3].as_py()
    Path(path.removeprefix("file://")).write_bytes(b"Obj\x01")

    with pytest.raises(CorruptFileError, match="declares"):
        reader.held(made.metadata, manifests)
    spool, unreadable = reader.files(made.metadata, manifests)

    with closing(spool):
        assert sum(spool.read(number).num_rows for number in range(len(spool))) == 10
    assert unreadable == (path,)


def test_a_folder_that_is_another_one_for_tasks_ends_the_command(
    made: Table, warehouse: Path, tmp_path: Path
) -> None:
    # As if the tasks ran on a machine on which a link points to another folder.
    names = FileNames()
    seen = Path(names.of(pa.array([f"{made.metadata.location}/data/x"]))[0].as_py()).parent
    moved = tmp_path / "moved"
    seen.rename(moved)
    seen.symlink_to(moved)
    engine: Engine = InlineEngine(1)

    with pytest.raises(EngineError, match="on this machine"):
        ManifestFiles(made.storage, names, lambda _: engine).held(made.metadata, manifests_of(made))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(selection, "MANIFEST_BYTES", 1000)
    return 1000


@pytest.mark.parametrize(
    ("settings", "few", "many"),
    [
        (Settings(), False, False),
        (Settings(master="local[8]"), False, False),
        (Settings(master="spark://host:7077"), False, True),
        (Settings(spark_conf={"spark.master": "yarn"}), False, True),
        (Settings(remote="sc://host"), False, True),
        (Settings(engine="inline", master="spark://host:7077"), False, False),
        (Settings(engine="spark"), True, True),
    ],
)
def test_spark_reads_manifests_if_asked_and_a_cluster_reads_many(
    settings: Settings, few: bool, many: bool, small: int
) -> None:
    assert reads_manifests_on_spark(small, settings) is few
    assert reads_manifests_on_spark(small + 1, settings) is many
