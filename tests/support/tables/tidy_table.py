"""A table with files planted in its folders that no snapshot references."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in

DAY = 24 * 3600


class Tidy:
    """A table of three loads, and files that are planted in its folders."""

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self.lake = CommandLine(self.warehouse, engine="inline")
        for number in (1, 2, 3):
            file = folder / f"{number}.csv"
            file.write_text(f"id,name\n{number},a\n")
            self.lake.ok("ingest", "db.t", file, "--create")
        self.root = self.warehouse / "db" / "t"

    def plant(self, name: str, *, days: float = 30, text: str = "x") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        moment = time.time() - days * DAY
        os.utime(path, (moment, moment))
        return path

    def clean(self, *more: object) -> dict[str, Any]:
        return self.lake.ok("clean", "db.t", "--max-share", "100%", *more)

    @property
    def ids(self) -> list[int]:
        return sorted(ids_in(self.warehouse))

    def files(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


def of_failed_commit(text: str) -> str:
    """Return the metadata of a commit that failed and removed its manifest list."""
    plain = json.loads(text)
    for snapshot in plain["snapshots"]:
        snapshot["manifest-list"] += "-removed"
    return json.dumps(plain)


def planted_orphans(tidy: Tidy) -> list[Path]:
    """Plant one orphan file of each kind."""
    current = max(path.name for path in (tidy.root / "metadata").glob("*.metadata.json"))
    text = of_failed_commit((tidy.root / "metadata" / current).read_text())
    return [
        tidy.plant("data/lost.parquet"),
        tidy.plant("data/day=2026-01-01/lost.parquet"),
        tidy.plant("data/deep/lost.orc"),
        tidy.plant("metadata/8f6ef118-cd39-4391-b863-bfabac8e4ffe-m0.avro"),
        tidy.plant("metadata/snap-1-1-8f6ef118-cd39-4391-b863-bfabac8e4ffe.avro"),
        tidy.plant("metadata/1.stats"),
        tidy.plant(f"metadata/00000-{uuid.uuid4()}.metadata.json", text=text),
        tidy.plant("data/dv.puffin"),
    ]
