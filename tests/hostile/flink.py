"""What Flink leaves: checkpoints, and temporary manifests that a replay commits."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from types import ModuleType

from support.cli.command_line import CommandLine
from support.tables import flink_fixtures

from hostile import edits
from hostile.guard import WrongError

_TESTS = Path(__file__).parent.parent


def _module(path: str) -> ModuleType:
    """Return a module of tests, which are in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, _TESTS / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Checkpoints:
    """Checkpoints with bytes changed at random, fifty at a time; see `tests/core/table/flink/test_damage.py`."""

    count = 10**9
    at_once = 50

    def __init__(self, _folder: Path) -> None:
        self._damage = _module("core/table/flink/test_damage.py")

    def attempt(self, number: int) -> str:
        damage, chance = self._damage, random.Random(f"checkpoint {number}")
        for _ in range(self.at_once):
            name = chance.choice(list(damage._CHECKPOINTS))
            path = chance.choice(list(damage._files(name)))
            found = damage._read(name, path, damage._mutant(chance, damage._files(name)[path]))
            if found is None:
                continue
            original = damage._original(name)
            if found.checkpoint_id != original.checkpoint_id:
                raise WrongError(f"{path}: checkpoint {found.checkpoint_id}")
            if damage._belonging(found) != damage._belonging(original):
                raise WrongError(f"{path}: manifests moved to {damage._belonging(found)}")
        return "bad input"


class Pending:
    """A pending checkpoint's temporary manifests with bytes changed at random: all of it is committed, or nothing."""

    count = 10**9

    def __init__(self, folder: Path, name: str = "b2-append-pending") -> None:
        self._stack = flink_fixtures.lent(name)
        fixture = self._stack.__enter__()
        self._fixture = fixture
        self._lake = CommandLine(
            fixture.warehouse, engine="inline", catalog_type=fixture.catalog_type
        )
        self._out = folder / "rows.parquet"
        (self._checkpoint,) = fixture.root.glob("checkpoint/*/chk-5")
        self._contents = {
            path: path.read_bytes() for path in fixture.warehouse.rglob("*") if path.is_file()
        }
        self._manifests = sorted(
            path
            for path, data in self._contents.items()
            if path.suffix == ".avro"
            and not path.name.startswith("snap-")
            and b"flink" in data[:4000].lower()
        ) or sorted(
            path for path in self._contents if "-m" not in path.name and path.suffix == ".avro"
        )
        self._times = {path: path.stat() for path in self._contents}

    def attempt(self, number: int) -> str:
        import os

        chance = random.Random(f"pending {number}")
        path = chance.choice(self._manifests)
        path.write_bytes(edits.flipped(self._contents[path], chance))
        os.utime(path, ns=(self._times[path].st_atime_ns, self._times[path].st_mtime_ns))
        try:
            return self._replayed(path)
        finally:
            self._restore()

    def _replayed(self, path: Path) -> str:
        table = self._fixture.table
        result = self._lake(
            "--json", "replay", table, "--checkpoint", self._checkpoint, "--quiet-time", "0s"
        )
        if result.exit_code not in {0, 3, 7}:
            raise WrongError(f"{path.name}: replay ended with {result}")
        path.write_bytes(self._contents[path])
        import pyarrow.parquet as pq

        self._lake.ok("scan", table, "--output", self._out, "--replace")
        rows = flink_fixtures.canonical_rows(pq.read_table(self._out))
        allowed = [self._fixture.rows("committed"), self._fixture.rows("full")]
        if rows not in allowed[: 2 if result.exit_code == 0 else 1]:
            raise WrongError(f"{path.name}: {len(rows)} rows after {result}")
        return "right" if result.exit_code == 0 else "bad input"

    def _restore(self) -> None:
        import os

        for path in self._fixture.warehouse.rglob("*"):
            if path.is_file() and path not in self._contents:
                path.unlink()
        for path, data in self._contents.items():
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
                found = self._times[path]
                os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
