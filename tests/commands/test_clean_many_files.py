"""`lake clean` on a table of 2,000 files: 50 orphan files of each kind among all that must stay."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.flink_fixtures import FlinkFixture, canonical_rows
from support.tables.iceberg_tables import SCHEMA, open_session, pyiceberg_catalog, pyiceberg_table
from support.tables.tidy_table import of_failed_commit

from lake.core.io.storage import storage
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

# More files than in one batch of a listing, which has fewer of them here.
_FILES, _FOLDERS, _BATCH = 2_000, 50, 1_024
_OF_EACH_KIND = 50
_ORPHANS = 10 * _OF_EACH_KIND
# The metadata files of failed commits are most of the bytes.
_ALLOWED = ("--max-share", "80%")
_OLD = 1_700_000_000
_PRUNED = 10**12


class Large:
    """A table of Flink's with uncommitted checkpoints, and 2,000 more files that scans of small ids do not read."""

    def __init__(self, fixture: FlinkFixture) -> None:
        self.fixture = fixture
        self.lake = CommandLine(fixture.warehouse)
        self.name = fixture.table
        self.root = fixture.warehouse.joinpath(*self.name.split("."))
        self.checkpoint = fixture.root / fixture.truth["replay"]["from_checkpoint"]
        paths = [f"{self.root}/data/many-{i % _FOLDERS}/{i}.parquet" for i in range(_FILES)]
        # Most of their locations are written in one of two ways; one is that of another store.
        located = [f"file:{path}" if i % 2 else path for i, path in enumerate(paths)]
        located[7] = f"hdfs://names:8020{paths[7]}"
        # The other names of a file are made faster than files.
        first = [self.plant(Path(path)) for path in paths[:_FOLDERS]]
        for number, path in enumerate(paths[_FOLDERS:]):
            os.link(first[number % _FOLDERS], path)
        self._add(located)

    def plant(self, path: Path, text: str = "x") -> Path:
        """Make a file that was written long ago."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (_OLD, _OLD))
        return path

    def _add(self, located: list[str]) -> None:
        session = open_session(self.fixture.warehouse)
        table = session.table(self.name)
        ids = table.schema.find_field("id").field_id
        bound = {ids: pack("<q", _PRUNED)}
        files = [
            DataFile(
                path=path,
                spec_id=table.spec.spec_id,
                partition=(pack("<i", number % 2_000),),
                record_count=1,
                size_bytes=1,
                lower_bounds=bound,
                upper_bounds=bound,
            )
            for number, path in enumerate(located)
        ]
        request = CommitRequest(operation_id=str(uuid.uuid4()))
        commit_snapshot(session, table, AppendFiles(added=files), request)

    def nest(self, name: str, folder: Path) -> Path:
        """Create a table in a folder of this table's, and load a row."""
        catalog = pyiceberg_catalog(self.fixture.warehouse)
        catalog.create_namespace_if_not_exists(name.split(".", maxsplit=1)[0])
        made = catalog.create_table(name, SCHEMA, location=f"file://{folder}")
        made.append(pa.Table.from_pylist([{"id": 1}], SCHEMA.as_arrow()))
        for path in folder.rglob("*"):
            os.utime(path, (_OLD, _OLD))
        return folder

    def stage(self, tmp_path: Path) -> None:
        """Stage a load of one row of the table's own."""
        rows = tmp_path / "staged.parquet"
        self.lake.ok("scan", self.name, "--where", "id < 3", "--output", rows)
        self.lake.ok("ingest", self.name, rows, "--stage", "--run-id", "r")
        for path in self.files():
            if "/many-" not in path:
                os.utime(path, (_OLD, _OLD))

    def files(self) -> set[str]:
        """Return the files below the table's folder."""
        return {
            os.path.join(where, name) for where, _, names in os.walk(self.root) for name in names
        }

    def clean(self, *more: object) -> dict[str, Any]:
        return self.lake.ok("clean", self.name, "--prefix-mismatch", "ignore", *more)

    def rows(self, output: Path) -> list[str]:
        """Return the rows of Flink's files, those that pruning leaves."""
        self.lake.ok("scan", self.name, "--where", f"id < {_PRUNED}", "--output", output)
        return canonical_rows(pq.read_table(output))


def orphans(large: Large) -> list[Path]:
    """Plant orphan files of ten kinds."""
    newest = max((large.root / "metadata").glob("*.metadata.json"), key=lambda path: path.name)
    text = of_failed_commit(newest.read_text())
    found = []
    for number in range(_OF_EACH_KIND):
        own = uuid.uuid4()
        names = {
            f"data/lost-{number}.parquet": "x",
            f"data/ts_day=2024-02-29/lost-{number}.parquet": "x",
            f"data/many-{number % _FOLDERS}/lost-{number}.orc": "x",
            f"data/lost-{number}/a.avro": "x",
            f"data/other-{number}.parquet": "x",
            f"data/lost-{number}.puffin": "x",
            f"metadata/{own}-m0.avro": "x",
            f"metadata/snap-{number}-1-{own}.avro": "x",
            f"metadata/{number}.stats": "x",
            f"metadata/00000-{own}.metadata.json": text,
        }
        found += [large.plant(large.root / name, body) for name, body in names.items()]
    return found


@pytest.mark.slow
def test_exactly_the_orphans_among_2_000_files_go_and_come_back(
    flink_lent: Callable[[str], FlinkFixture], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_BATCH_FILES", _BATCH)
    large = Large(flink_lent("b-append-pending"))
    nested = [
        large.nest("inner.one", large.root / "data" / "inner"),
        large.nest("inner.two", large.root / "data" / "many-3" / "deep" / "two"),
    ]
    unstaged = large.files()
    large.stage(tmp_path)
    before = large.files()
    staged_files = sum(path.endswith((".avro", ".parquet")) for path in before - unstaged)
    lost = orphans(large)
    assert len(lost) == _ORPHANS
    contents = {path: path.read_bytes() for path in lost}

    # Without an answer for the file that is named by another scheme, nothing is decided.
    assert large.lake("clean", large.name, "--delete").exit_code == 3
    listed = large.clean()["plan"]
    assert listed["orphans"] == _ORPHANS
    assert listed["kept"]["prefix-mismatch"] == 1
    # Each of Flink's checkpoints has a manifest and four data files.
    pending = len(large.fixture.truth["replay"]["pending_checkpoints"])
    assert listed["kept"]["checkpoint"] == staged_files + 5 * pending
    inside = sum(path.is_file() for folder in nested for path in folder.rglob("*"))
    assert listed["kept"]["other-table"] + listed["kept"]["metadata"] >= inside

    run = large.clean("--quarantine", *_ALLOWED)["result"]
    assert run["quarantined"] == _ORPHANS
    assert {path for path in large.files() if "/.lake-trash/" not in path} == before
    large.lake.ok("clean", large.name, "--restore", run["run_id"])
    assert {path: path.read_bytes() for path in lost} == contents
    assert large.files() == before | {str(path) for path in lost}

    assert large.clean("--delete", *_ALLOWED)["result"]["deleted"] == _ORPHANS
    assert large.files() == before
    assert large.clean("--delete")["status"] == "nothing-to-do"

    # What needed the files that stayed still works.
    for name in ("inner.one", "inner.two"):
        assert pyiceberg_table(large.fixture.warehouse, name).scan().count() == 1
    large.lake.ok("replay", large.name, "--checkpoint", large.checkpoint)
    assert large.rows(tmp_path / "rows.parquet") == large.fixture.rows("full")
    large.lake.ok("replay", large.name, "--all-staged")
    after = large.rows(tmp_path / "more.parquet")
    staged = canonical_rows(pq.read_table(tmp_path / "staged.parquet"))
    assert after == sorted([*large.fixture.rows("full"), *staged])
