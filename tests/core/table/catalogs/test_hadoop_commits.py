"""Commits to catalogs that are folders: the next version by exclusive creation, then the hint."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import AssertCreate, AssertTableUUID, SetPropertiesUpdate
from support.cli import hadoop_racer
from support.cli.command_line import CommandLine, Result
from support.faults import hadoop_steps
from support.tables import flink_fixtures
from support.tables.iceberg_tables import SCHEMA, files_below
from support.tiers import examples

from lake.core.base.clock import SystemClock, SystemIds
from lake.core.base.errors import CorruptFileError, LakeError, RefusedError
from lake.core.base.settings import Settings
from lake.core.io.storage import atomic_files
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs import hadoop
from lake.core.table.catalogs.catalog import Catalog, Table
from lake.core.table.catalogs.hadoop import HadoopCatalog, current_metadata
from lake.core.table.catalogs.selection import open_catalog

Write = Callable[..., Path]


def failure(result: Result, code: int) -> dict[str, str]:
    assert result.exit_code == code, result
    error: dict[str, str] = result.json()["error"]
    return error


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", catalog_type="hadoop")


@pytest.fixture
def source(tmp_path: Path) -> Write:
    """Writes a Parquet file of rows."""

    def write(first: int, end: int) -> Path:
        ids = list(range(first, end))
        rows = pa.table({"id": ids, "name": [f"n{number}" for number in ids]})
        path = tmp_path / f"{first}-{end}.parquet"
        pq.write_table(rows, path)
        return path

    return write


def metadata_of(lake: CommandLine, table: str = "db.t") -> Path:
    return lake.warehouse.joinpath(*table.split("."), "metadata")


def versions(folder: Path) -> dict[int, str]:
    return {
        int(path.name[1:].partition(".")[0]): path.name for path in folder.glob("v*.metadata.json*")
    }


def content(folder: Path, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"v{version}.metadata.json").read_text())
    return found


def ids(lake: CommandLine, tmp_path: Path, table: str = "db.t") -> list[int]:
    output = tmp_path / "rows.parquet"
    lake.ok("scan", table, "--output", output, "--replace")
    found: list[int] = sorted(pq.read_table(output)["id"].to_pylist())
    return found


def test_a_table_is_made_and_goes_on_version_by_version(
    lake: CommandLine, source: Write, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(0, 10), "--create")
    lake.ok("ingest", "db.t", source(10, 20))
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    folder = metadata_of(lake)
    assert versions(folder) == {number: f"v{number}.metadata.json" for number in (1, 2, 3, 4)}
    assert (folder / "version-hint.text").read_text() == "4"
    assert content(folder, 4)["location"] == str(lake.warehouse / "db/t")
    assert [entry["metadata-file"] for entry in content(folder, 4)["metadata-log"]] == [
        str(folder / f"v{number}.metadata.json") for number in (1, 2, 3)
    ]
    assert not list(folder.glob("*.unfinished"))
    assert ids(lake, tmp_path) == list(range(20))


# Versions, whatever the folder contains


def opened(warehouse: Path) -> Catalog:
    return open_catalog(Settings(warehouse=str(warehouse), catalog_type="hadoop"))


def staged(warehouse: Path, name: str = "db.t", **properties: str) -> Table:
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

    named = {key.replace("_", "-"): value for key, value in properties.items()}
    return opened(warehouse).stage(
        name, SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, named
    )


def made(warehouse: Path, **properties: str) -> Table:
    """Make a table without snapshots and return it."""
    table = staged(warehouse, **properties)
    table.send((AssertCreate(),), table.creating, SystemClock())
    return table.refreshed()


def change(table: Table, **properties: str) -> None:
    """Set properties, on whatever version is current."""
    named = {key.replace("_", "-"): value for key, value in properties.items()}
    table.send(
        (AssertTableUUID(uuid=table.metadata.table_uuid),),
        (SetPropertiesUpdate(updates=named),),
        SystemClock(),
    )


CODEC = "write.metadata.compression-codec"
SUFFIXES = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")
NEW_SUFFIX = {"none": ".metadata.json", "gzip": ".gz.metadata.json"}
LEFTOVERS = (
    "0f0e0d0c-0b0a-4000-8000-000000000000-v3.metadata.json.unfinished",
    "0f0e0d0c-0b0a-4000-8000-000000000001-version-hint.text.unfinished",
)
OTHERS = (
    "0f0e0d0c-0b0a-4000-8000-000000000002.metadata.json",
    "0f0e0d0c-0b0a-4000-8000-000000000003-version-hint.temp",
    "snap-1-1-x.avro",
    "v99.temp",
    "v99.metadata.json.crc",
    "x.temp",
)
hints = st.one_of(
    st.none(), st.integers(-1, 9).map(str), st.binary(max_size=12), st.just(b"1" * 5000)
)


@settings(deadline=None, max_examples=examples(80))
@example(
    suffixes=[".metadata.json"] * 5,
    beyond=(7, ".metadata.json"),
    hint="1",
    codec="none",
    leftovers=set(),
    checksums=False,
)
@given(
    suffixes=st.lists(st.sampled_from(SUFFIXES), min_size=1, max_size=5),
    beyond=st.none() | st.tuples(st.integers(7, 9), st.sampled_from(SUFFIXES)),
    hint=hints,
    codec=st.sampled_from(["none", "gzip", "GZIP", "None"]),
    leftovers=st.sets(st.sampled_from([*LEFTOVERS, *OTHERS])),
    checksums=st.booleans(),
)
def test_the_next_version_is_created_whatever_the_folder_contains(
    tmp_path_factory: pytest.TempPathFactory,
    suffixes: list[str],
    beyond: tuple[int, str] | None,
    hint: str | bytes | None,
    codec: str,
    leftovers: set[str],
    checksums: bool,
) -> None:
    warehouse = tmp_path_factory.mktemp("warehouse")
    table = made(warehouse, **{CODEC: codec})
    folder = warehouse / "db/t/metadata"
    text = table.metadata.model_dump_json().encode()
    (folder / f"v1{NEW_SUFFIX[codec.lower()]}").unlink()
    for number, suffix in [*enumerate(suffixes, 1), *([beyond] if beyond else [])]:
        (folder / f"v{number}{suffix}").write_bytes(gzip.compress(text) if "gz" in suffix else text)
    for name in leftovers:
        (folder / name).write_bytes(b"half")
    (folder / "version-hint.text").unlink()
    if hint is not None:
        (folder / "version-hint.text").write_bytes(
            hint if isinstance(hint, bytes) else hint.encode()
        )
    if checksums:
        for number in range(1, 12):
            for suffix in NEW_SUFFIX.values():
                (folder / f".v{number}{suffix}.crc").write_bytes(b"crc")
        (folder / ".version-hint.text.crc").write_bytes(b"crc")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    try:
        current = current_metadata(Storage(), str(warehouse / "db/t"))
    except CorruptFileError:
        with pytest.raises(CorruptFileError):
            change(table, a="b")
        after = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert after == {key: value for key, value in before.items() if key not in LEFTOVERS}
        return
    if current is None:  # a hint of 0
        with pytest.raises(LakeError):
            table.refreshed()
        return

    if beyond and beyond[0] == current.version + 2:
        # Readers walk up: they would go on to it.
        with pytest.raises(RefusedError):
            change(table, a="b")
        assert current_metadata(Storage(), str(warehouse / "db/t")) == current
        return
    change(table, a="b")

    name = f"v{current.version + 1}{NEW_SUFFIX[codec.lower()]}"
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    gone = {".version-hint.text.crc", f".{name}.crc", *LEFTOVERS}
    assert after.pop("version-hint.text") == str(current.version + 1).encode()
    data = after.pop(name)
    before.pop("version-hint.text", None)
    assert after == {key: value for key, value in before.items() if key not in gone}
    metadata = TableMetadataUtil.parse_raw(
        (gzip.decompress(data) if ".gz." in name else data).decode()
    )
    assert metadata.properties["a"] == "b"
    assert metadata.metadata_log[-1].metadata_file == current.location
    assert metadata == table.refreshed().metadata


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_version_that_another_writer_made_meanwhile_is_never_overwritten(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    folder = tmp_path / "db/t/metadata"
    original = hadoop.read_metadata

    def overtaken(storage: Storage, location: str) -> Any:
        (folder / f"v2{suffix}").write_bytes(b"another's")
        return original(storage, location)

    monkeypatch.setattr(hadoop, "read_metadata", overtaken)

    with pytest.raises(CommitFailedException, match="version 2 already exists"):
        change(table, a="b")

    assert (folder / f"v2{suffix}").read_bytes() == b"another's"
    assert (folder / "version-hint.text").read_text() == "1"
    assert not list(folder.glob("*.unfinished"))


def test_a_version_made_in_the_last_moment_is_never_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    folder = tmp_path / "db/t/metadata"
    original = os.link

    def overtaken(temporary: str, path: str) -> None:
        Path(path).write_bytes(b"another's")
        original(temporary, path)

    monkeypatch.setattr(os, "link", overtaken)

    with pytest.raises(CommitFailedException, match="File exists"):
        change(table, a="b")

    assert (folder / "v2.metadata.json").read_bytes() == b"another's"
    assert not list(folder.glob("*.unfinished"))


def test_a_version_made_behind_the_tables_back_is_an_open_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another engine went on and cleaned up between our look and our step."""
    table = made(tmp_path)
    folder = tmp_path / "db/t/metadata"
    original = os.link

    def overtaken(temporary: str, path: str) -> None:
        os.rename(folder / "v1.metadata.json", folder / "v7.metadata.json")
        (folder / "version-hint.text").write_text("7")
        original(temporary, path)

    monkeypatch.setattr(os, "link", overtaken)

    with pytest.raises(CommitStateUnknownException, match="version 7 is current"):
        change(table, a="b")

    assert (folder / "version-hint.text").read_text() == "7"


def test_requirements_are_checked_against_the_version_that_is_current_now(tmp_path: Path) -> None:
    from pyiceberg.table.update import AssertCurrentSchemaId

    table = made(tmp_path)
    change(table, a="b")

    with pytest.raises(CommitFailedException, match="current schema id"):
        table.send(
            (AssertCurrentSchemaId(current_schema_id=7),),
            (SetPropertiesUpdate(updates={"c": "d"}),),
            SystemClock(),
        )
    change(table, c="d")

    assert {"a": "b", "c": "d"}.items() <= table.refreshed().properties.items()


def test_a_change_that_changes_nothing_makes_no_version(tmp_path: Path) -> None:
    table = made(tmp_path)
    before = files_below(tmp_path)

    table.send((), (), SystemClock())

    assert files_below(tmp_path) == before


def test_the_log_of_versions_is_as_long_as_the_table_wants(tmp_path: Path) -> None:
    table = made(tmp_path, **{"write.metadata.previous-versions-max": "3"})
    for number in range(6):
        change(table, a=str(number))

    log = table.refreshed().metadata.metadata_log

    assert [entry.metadata_file for entry in log] == [
        f"{tmp_path}/db/t/metadata/v{number}.metadata.json" for number in (4, 5, 6)
    ]


def test_compression_is_as_the_table_wants_from_the_very_version_that_says_so(
    tmp_path: Path,
) -> None:
    table = made(tmp_path)
    for codec in ("gzip", "none"):
        change(table, **{CODEC: codec})
    folder = tmp_path / "db/t/metadata"

    assert versions(folder) == {
        1: "v1.metadata.json",
        2: "v2.gz.metadata.json",
        3: "v3.metadata.json",
    }
    assert gzip.decompress((folder / "v2.gz.metadata.json").read_bytes())[:1] == b"{"


# Racing


def test_one_of_many_creates_a_file_and_it_is_whole(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        try:
            atomic_files.create(str(tmp_path / "file"), bytes([number]) * 100_000, ids=SystemIds())
        except atomic_files.NotCreatedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))

    assert won.count(True) == 1
    assert (tmp_path / "file").read_bytes() == bytes([won.index(True)]) * 100_000
    assert not list(tmp_path.glob("*.unfinished"))


def test_one_of_two_codecs_makes_a_table(tmp_path: Path) -> None:
    """Their names differ, so only the lock keeps them apart."""
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        table = staged(tmp_path, **{CODEC: ("gzip", "none")[number % 2]})
        start.wait()
        try:
            table.send((AssertCreate(),), table.creating, SystemClock())
        except CommitFailedException:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(create, range(8))).count(True) == 1

    assert len(versions(tmp_path / "db/t/metadata")) == 1


@pytest.mark.slow
def test_two_processes_land_all_their_commits_once(
    lake: CommandLine, source: Write, tmp_path: Path
) -> None:
    retries = ("--property", "commit.retry.num-retries=60", "--property")
    waits = ("commit.retry.min-wait-ms=10", "--property", "commit.retry.max-wait-ms=200")
    lake.ok("ingest", "db.t", source(0, 1), "--create", *retries, *waits)
    racers = [
        subprocess.Popen(
            [
                sys.executable,
                hadoop_racer.__file__,
                "20",
                *lake.arguments("ingest", "db.t", source(first, first + 1)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for first in (1, 2)
    ]
    for racer in racers:
        out, errors = racer.communicate()
        assert out.decode().split() == ["0"] * 20, errors

    assert ids(lake, tmp_path) == [0, *[1] * 20, *[2] * 20]
    folder = metadata_of(lake)
    assert sorted(versions(folder)) == list(range(1, 42))
    assert (folder / "version-hint.text").read_text() == "41"
    assert not list(folder.glob("*.unfinished"))
    parents = [content(folder, number)["snapshots"][-1] for number in range(1, 42)]
    assert [item["parent-snapshot-id"] for item in parents[1:]] == [
        item["snapshot-id"] for item in parents[:-1]
    ]


def test_a_writer_that_never_lets_go_is_a_conflict(
    lake: CommandLine, source: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create", "--property", "commit.retry.num-retries=1")
    monkeypatch.setattr("lake.core.table.catalogs.hadoop._LOCK_WAIT_SECONDS", 0.1)
    before = files_below(lake.warehouse)
    descriptor = os.open(metadata_of(lake), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        error = failure(lake("--json", "ingest", "db.t", source(1, 2)), 4)
    finally:
        os.close(descriptor)

    assert "another process is writing" in error["message"]
    assert files_below(lake.warehouse) == before


def test_a_disk_without_locks_still_has_one_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    table = made(tmp_path)
    start = threading.Barrier(4)

    def commit(number: int) -> bool | None:
        start.wait()
        try:
            change(table, **{f"k{number}": "v"})
        except CommitFailedException:
            return False
        except CommitStateUnknownException:
            # Without a lock another thread may make the next version before this one is confirmed.
            return None
        return True

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(commit, range(4)))

    found = table.refreshed()
    there = [f"k{number}" in found.properties for number in range(4)]
    assert all(win in {None, is_there} for win, is_there in zip(won, there, strict=True))
    assert any(there)
    assert sorted(versions(tmp_path / "db/t/metadata")) == list(range(1, 2 + there.count(True)))


def test_versions_of_writers_without_the_lock_are_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    [first] = (tmp_path / "db/t/metadata").glob("v1.*")
    looked: list[int] = []
    real = hadoop._metadata_file

    def racing(storage: Storage, folder: str, version: int) -> Any:
        found = real(storage, folder, version)
        looked.append(version)
        # The commit looked for the versions behind the current one, and then for those that it must not find.
        if sum(number > 1 for number in looked) == 2:
            for number in (2, 3):
                shutil.copy(first, first.with_name(f"v{number}.metadata.json"))
        return found

    monkeypatch.setattr(hadoop, "_metadata_file", racing)
    with pytest.raises(CommitFailedException, match="version 2 already exists"):
        change(table, k="v")


# Dying and failing


@pytest.mark.slow
@pytest.mark.parametrize("step", hadoop_steps.STEPS)
@pytest.mark.parametrize("creating", [False, True])
def test_a_run_killed_at_any_step_has_committed_or_not(
    lake: CommandLine, source: Write, tmp_path: Path, step: str, creating: bool
) -> None:
    if not creating:
        lake.ok("ingest", "db.t", source(0, 1), "--create", "--run-id", "first")
    command = ("ingest", "db.t", source(1, 2), "--create", "--run-id", "second")

    killed = subprocess.run(
        [sys.executable, hadoop_steps.__file__, step, *lake.arguments(*command)],
        capture_output=True,
        check=False,
    )

    assert killed.returncode == -9, killed
    landed = step != "the metadata is written"
    folder = metadata_of(lake)
    assert len(versions(folder)) == (not creating) + landed
    again = lake.ok(*command)["status"]
    assert again == ("nothing-to-do" if landed else "done")
    assert ids(lake, tmp_path) == [1] if creating else [0, 1]
    lake.ok("ingest", "db.t", source(2, 3))
    assert sorted(versions(folder)) == list(range(1, 3 + (not creating)))
    assert (folder / "version-hint.text").read_text() == str(max(versions(folder)))
    assert not list(folder.glob("*.unfinished"))


def test_a_hint_that_cannot_be_written_is_a_warning(
    lake: CommandLine, source: Write, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create")
    hint = metadata_of(lake) / "version-hint.text"
    hint.unlink()
    (hint / "in the way").mkdir(parents=True)

    done = lake.ok("ingest", "db.t", source(1, 2))

    assert "version-hint.text could not be written" in done["warnings"][0]
    assert ids(lake, tmp_path) == [0, 1]
    assert not list(metadata_of(lake).glob("*.unfinished"))


def test_a_hint_that_cannot_be_renewed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one would name a version that a later commit may clean up."""
    table = made(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    change(table, a="b")

    assert sorted(versions(tmp_path / "db/t/metadata")) == [1, 2]
    assert not (tmp_path / "db/t/metadata/version-hint.text").exists()
    assert table.refreshed().properties["a"] == "b"


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, 4, "No space left"),
        (errno.EACCES, 9, "Permission denied"),
        (errno.EPERM, 3, "does not support hard links"),
        (errno.EOPNOTSUPP, 3, "does not support hard links"),
    ],
)
def test_a_step_that_fails_changes_nothing_and_is_reported(
    lake: CommandLine,
    source: Write,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
    words: str,
) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create", "--property", "commit.retry.num-retries=0")
    before = files_below(lake.warehouse)

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fails)
    error = failure(lake("--json", "ingest", "db.t", source(1, 2)), code)

    assert words in error["message"]
    assert files_below(lake.warehouse) == before


def test_a_step_whose_answer_is_lost_has_been_made(
    lake: CommandLine, source: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network file system does when it sends a request twice."""
    lake.ok("ingest", "db.t", source(0, 1), "--create")
    original = os.link

    def twice(temporary: str, path: str) -> None:
        original(temporary, path)
        original(temporary, path)

    monkeypatch.setattr(os, "link", twice)
    lake.ok("ingest", "db.t", source(1, 2))

    assert ids(lake, tmp_path) == [0, 1]
    assert sorted(versions(metadata_of(lake))) == [1, 2]


def test_an_error_behind_the_step_is_a_success(
    lake: CommandLine, source: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create")

    def lost(_: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(atomic_files, "flush", lost)
    lake.ok("ingest", "db.t", source(1, 2))

    assert ids(lake, tmp_path) == [0, 1]
    assert sorted(versions(metadata_of(lake))) == [1, 2]


def test_a_table_dropped_meanwhile_is_reported(
    lake: CommandLine, source: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create")
    original = HadoopCatalog.commit_table

    def dropped(self: HadoopCatalog, table: IcebergTable, *rest: Any) -> Any:
        shutil.rmtree(metadata_of(lake))
        return original(self, table, *rest)

    monkeypatch.setattr(HadoopCatalog, "commit_table", dropped)

    error = failure(lake("--json", "ingest", "db.t", source(1, 2)), 7)

    assert "dropped meanwhile" in error["message"]


@pytest.mark.parametrize("value", ["many", "-1", "1e3"])
def test_properties_that_are_not_numbers_are_named_and_nothing_is_committed(
    lake: CommandLine, source: Write, value: str
) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create")
    edit(metadata_of(lake) / "v1.metadata.json", "write.metadata.previous-versions-max", value)
    before = files_below(lake.warehouse)

    result = lake("--json", "ingest", "db.t", source(1, 2))

    assert "write.metadata.previous-versions-max" in failure(result, 2)["message"]
    assert files_below(lake.warehouse) == before


def edit(path: Path, key: str, value: str) -> None:
    metadata = json.loads(path.read_text())
    metadata["properties"][key] = value
    path.write_text(json.dumps(metadata))


# All commands


def test_old_versions_go_where_the_table_wants_that_with_their_checksums(
    lake: CommandLine, source: Write, tmp_path: Path
) -> None:
    lake.ok(
        "ingest",
        "db.t",
        source(0, 1),
        "--create",
        "--property",
        "write.metadata.delete-after-commit.enabled=true",
        "--property",
        "write.metadata.previous-versions-max=2",
    )
    folder = metadata_of(lake)
    for number in range(1, 6):
        (folder / f".v{number}.metadata.json.crc").write_bytes(b"crc")
        lake.ok("ingest", "db.t", source(number, number + 1))

    assert sorted(versions(folder)) == [4, 5, 6]
    assert not (folder / ".v1.metadata.json.crc").exists()
    assert ids(lake, tmp_path) == list(range(6))

    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert sorted(versions(folder)) == [5, 6, 7]
    assert ids(lake, tmp_path) == list(range(6))


def test_a_log_of_versions_takes_no_file_of_another_kind_along(
    lake: CommandLine, source: Write, tmp_path: Path
) -> None:
    bounded = ("write.metadata.delete-after-commit.enabled=true", "previous-versions-max=1")
    options = ["--property", bounded[0], "--property", f"write.metadata.{bounded[1]}"]
    lake.ok("ingest", "db.t", source(0, 1), "--create", *options)
    lake.ok("ingest", "db.t", source(1, 2))
    newest = metadata_of(lake) / "v2.metadata.json"
    metadata = json.loads(newest.read_text())
    data = sorted((metadata_of(lake).parent / "data").glob("*.parquet"))
    moment = metadata["metadata-log"][0]["timestamp-ms"]
    metadata["metadata-log"] = [
        {"metadata-file": str(path), "timestamp-ms": moment} for path in data
    ]
    newest.write_text(json.dumps(metadata))

    lake.ok("ingest", "db.t", source(2, 3))

    assert ids(lake, tmp_path) == [0, 1, 2]


def test_every_way_of_writing_works(lake: CommandLine, source: Write, tmp_path: Path) -> None:
    lake.ok("ingest", "a.b.t", source(0, 10), "--create", "--partition-by", "bucket(2, id)")
    lake.ok("ingest", "a.b.t", source(5, 15), "--upsert", "--key", "id")
    lake.ok("ingest", "a.b.t", source(5, 15), "--upsert", "--key", "id", "--deletes", "equality")
    log = tmp_path / "log.csv"
    log.write_text("op,id,name\n-D,0,n0\n+I,20,n20\n")
    lake.ok(
        "ingest", "a.b.t", log, "--changes-column", "op", "--changes-mode", "upsert", "--key", "id"
    )
    assert ids(lake, tmp_path, "a.b.t") == [*range(1, 15), 20]
    lake.ok("compact", "a.b.t", "--rewrite-all")
    assert ids(lake, tmp_path, "a.b.t") == [*range(1, 15), 20]
    lake.ok("ingest", "a.b.t", source(0, 3), "--overwrite-where", "id < 5")
    lake.ok("expire", "a.b.t", "--older-than", "0s", "--unsafe-retention")
    assert ids(lake, tmp_path, "a.b.t") == [0, 1, 2, *range(5, 15), 20]
    lake.ok("ingest", "a.b.t", source(7, 9), "--overwrite")
    lake.ok("ingest", "a.c", "--from-table", "a.b.t", "--create")

    assert ids(lake, tmp_path, "a.b.t") == ids(lake, tmp_path, "a.c") == [7, 8]
    folder = metadata_of(lake, "a.b.t")
    assert sorted(versions(folder)) == list(range(1, 9))


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_every_format_version_is_written(
    lake: CommandLine, source: Write, tmp_path: Path, version: str
) -> None:
    lake.ok("ingest", "db.t", source(0, 3), "--create", "--property", f"format-version={version}")
    lake.ok("ingest", "db.t", source(3, 6))

    assert content(metadata_of(lake), 2)["format-version"] == int(version)
    assert ids(lake, tmp_path) == list(range(6))


def test_a_dry_run_touches_nothing(lake: CommandLine, source: Write) -> None:
    lake.ok("ingest", "db.t", source(0, 1), "--create", "--dry-run")
    assert not lake.warehouse.exists()
    lake.ok("ingest", "db.t", source(0, 1), "--create")
    lake.ok("ingest", "db.t", source(1, 2))
    before = files_below(lake.warehouse)

    lake.ok("ingest", "db.t", source(2, 3), "--dry-run")
    lake.ok("compact", "db.t", "--rewrite-all", "--dry-run")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--dry-run")

    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize("name", flink_fixtures.names(catalog="hadoop"))
def test_tables_of_flink_go_on(
    flink_lent: Callable[[str], flink_fixtures.FlinkFixture], name: str, tmp_path: Path
) -> None:
    fixture = flink_lent(name)
    lake = CommandLine(fixture.warehouse, catalog_type="hadoop")
    folder = metadata_of(lake, fixture.table)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    newest = max(versions(folder))

    done = lake.ok("compact", fixture.table, "--rewrite-all")

    assert done["status"] == "done"
    assert (folder / "version-hint.text").read_text() == str(newest + 1)
    kept = {path: data for path, data in before.items() if "version-hint" not in path.name}
    assert {path: path.read_bytes() for path in kept} == kept
    assert not (folder / ".version-hint.text.crc").exists()
    output = tmp_path / "rows.parquet"
    lake.ok("scan", fixture.table, "--output", output)
    assert flink_fixtures.canonical_rows(pq.read_table(output)) == fixture.rows()


# What is refused


@pytest.fixture
def grown(lake: CommandLine, source: Write) -> CommandLine:
    """A table with two snapshots, none of whose files may change."""
    lake.ok("ingest", "db.t", source(0, 10), "--create")
    lake.ok("ingest", "db.t", source(20, 30))
    return lake


def refused(lake: CommandLine, source: Path, *words: str) -> None:
    """Let all commands be refused by a message that contains one of the texts."""
    before = files_below(lake.warehouse)
    for command in (
        ["ingest", "db.t", source],
        ["compact", "db.t", "--rewrite-all"],
        ["expire", "db.t", "--older-than", "0s", "--unsafe-retention"],
    ):
        error = failure(lake("--json", *command), 3)
        assert error["kind"] == "refused"
        assert any(text in error["message"] for text in words)
    assert files_below(lake.warehouse) == before


def test_what_java_refuses_is_refused(grown: CommandLine, source: Write) -> None:
    key = "write.metadata.path"
    edit(metadata_of(grown) / "v2.metadata.json", key, "/some/where/else")

    refused(grown, source(30, 31), key)


@pytest.mark.parametrize("codec", ["zstd", ""])
def test_an_unknown_codec_of_metadata_is_named(
    grown: CommandLine, source: Write, codec: str
) -> None:
    edit(metadata_of(grown) / "v2.metadata.json", CODEC, codec)
    before = files_below(grown.warehouse)

    result = grown("--json", "ingest", "db.t", source(30, 31))

    assert CODEC in failure(result, 2)["message"]
    assert files_below(grown.warehouse) == before


def test_what_java_refuses_is_refused_of_a_new_table(lake: CommandLine, source: Write) -> None:
    for setting, code in (("write.metadata.path=/elsewhere", 3), (f"{CODEC}=zstd", 2)):
        create = ("ingest", "db.t", source(0, 1), "--create", "--property", setting)
        assert setting.partition("=")[0] in failure(lake("--json", *create), code)["message"]
        assert files_below(lake.warehouse) == set()


def test_a_copied_table_is_not_written(grown: CommandLine, source: Write, tmp_path: Path) -> None:
    shutil.copytree(grown.warehouse, tmp_path / "copy")
    before = files_below(grown.warehouse)

    refused(
        CommandLine(tmp_path / "copy", catalog_type="hadoop"),
        source(0, 1),
        "metadata contains the location",
        "is outside of the table's folders",
    )

    assert files_below(grown.warehouse) == before


@pytest.mark.parametrize("form", ["file://{0}", "file:{0}", "{0}/", "{0}/../warehouse", "{0}-link"])
def test_a_table_under_another_name_of_its_place_is_written(
    grown: CommandLine, source: Write, tmp_path: Path, form: str
) -> None:
    (tmp_path / "warehouse-link").symlink_to(grown.warehouse)
    place = form.format(grown.warehouse)
    other = CommandLine(Path(place), catalog_type="hadoop")
    other.arguments = lambda *rest: [  # type: ignore[method-assign]
        "--warehouse",
        place,
        "--catalog-type",
        "hadoop",
        *map(str, rest),
    ]

    other.ok("ingest", "db.t", source(30, 31))

    assert ids(grown, tmp_path) == [*range(10), *range(20, 31)]


@pytest.mark.parametrize("warehouse", ["s3://bucket/warehouse", "hdfs://name/warehouse"])
def test_storage_without_exclusive_creation_is_refused(tmp_path: Path, warehouse: str) -> None:
    local = made(tmp_path)
    catalog = HadoopCatalog("lake", warehouse, Storage(), {}, SystemClock().now_ms)
    table = IcebergTable(("db", "t"), local.metadata, "", local.handle.io, catalog)

    for metadata in (None, local.metadata):
        with pytest.raises(RefusedError, match="without exclusive creation"):
            catalog.refuse_commits("db.t", metadata)
    for requirements in ((), (AssertCreate(),)):
        with pytest.raises(RefusedError, match="without exclusive creation"):
            catalog.commit_table(table, requirements, ())


# Two kinds of catalogs on one folder


def test_a_table_of_another_kind_of_catalog_is_reported_and_not_overwritten(
    tmp_path: Path, source: Write
) -> None:
    sql, folders = (CommandLine(tmp_path / "w", catalog_type=kind) for kind in ("sql", "hadoop"))
    sql.ok("ingest", "db.t", source(0, 1), "--create")
    before = files_below(tmp_path / "w")

    error = failure(folders("--json", "snapshots", "db.t"), 7)
    assert error["kind"] == "not-found"
    assert "a catalog of another type" in error["hint"]
    assert "db.t" not in failure(folders("--json", "snapshots", "db.x"), 7)["hint"]
    error = failure(folders("--json", "ingest", "db.t", source(0, 1), "--create"), 3)
    assert "another catalog" in error["message"]
    assert files_below(tmp_path / "w") == before


def test_a_hadoop_table_is_named_in_the_hint_of_another_catalog_type(
    tmp_path: Path, source: Write
) -> None:
    sql, folders = (CommandLine(tmp_path / "w", catalog_type=kind) for kind in ("sql", "hadoop"))
    folders.ok("ingest", "db.t", source(0, 1), "--create")
    before = files_below(tmp_path / "w")

    assert "--catalog-type hadoop" in failure(sql("--json", "snapshots", "db.t"), 7)["hint"]
    error = failure(sql("--json", "ingest", "db.t", source(0, 1), "--create"), 3)
    assert "--catalog-type hadoop" in error["hint"]
    assert files_below(tmp_path / "w") == before

    sql.ok("ingest", "db.other", source(0, 1), "--create")
    assert "--catalog-type hadoop" in failure(sql("--json", "snapshots", "db.t"), 7)["hint"]
