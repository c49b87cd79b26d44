"""A table whose metadata, lists and manifests name the files of another table of the catalog, in many layouts."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
from support.cli.command_line import CommandLine
from world.reference import local

from hostile import edits
from hostile.guard import WrongError
from hostile.metadata import changed_at_random
from hostile.places import CONTROLS
from hostile.tables import rows_of

_OURS, _THEIRS = "db.t", "db.u"
_NOW = ("--older-than", "0s", "--unsafe-retention")
_EXPIRE = (*_NOW, "--retain-last", "1", "--keep-checkpoints", "0s")
# The ends of a command: done, refused in four ways, not confirmed, done in part.
_DONE, _IN_PART = 0, 6
_ENDS = {_DONE, 2, 3, 4, 5, _IN_PART, 7}
# Where the other table is, seen from the first one's folder, and where its data and metadata are.
LAYOUTS: dict[str, Mapping[str, str]] = {
    "beside": {},
    "data in data": {"write.data.path": "{t}/data/theirs"},
    "data in a partition": {"write.data.path": "{t}/data/part=even"},
    "data in the folder": {"write.data.path": "{t}/theirs"},
    "data is data": {"write.data.path": "{t}/data"},
    "data behind a link": {"write.data.path": "{link}/data/theirs"},
    "metadata in data": {
        "write.data.path": "{t}/data/theirs",
        "write.metadata.path": "{t}/data/theirs",
    },
    "metadata in metadata": {"write.metadata.path": "{t}/metadata/theirs"},
}


# An expiration does not read the metadata of all tables, so it does not know the data folders of tables beside.
_KNOWN_TO_EXPIRE = ("beside", "metadata in data", "metadata in metadata")


class Neighbours:
    """Wrong metadata of one table that names the other: no file, row or entry of the other one changes."""

    count = 10**9

    def __init__(self, folder: Path, layout: str) -> None:
        layout = layout.replace("-", " ")
        self._names = [name for name in _COMMANDS if name != "expire" or layout in _KNOWN_TO_EXPIRE]
        self._folder = folder
        self._warehouse = folder / "warehouse"
        self._warehouse.mkdir()
        self._lake = CommandLine(self._warehouse, engine="inline")
        self._ours = self._warehouse / "db" / "t"
        self._link = self._warehouse / "link"
        properties = {
            name: text.format(t=f"file://{self._ours}", link=f"file://{self._link}")
            for name, text in LAYOUTS[layout].items()
        }
        options = [
            part for name, text in properties.items() for part in ("--property", f"{name}={text}")
        ]
        self._load(_OURS, range(10), "--create", "--partition-by", "part")
        self._link.symlink_to(self._ours)
        self._load(_THEIRS, range(100, 110), "--create", "--partition-by", "part", *options)
        self._load(_THEIRS, range(110, 120))
        self._make_history()
        self._added = folder / "added.parquet"
        pq.write_table(rows_of((50, 52)), self._added)
        self._saved = folder / "saved"
        shutil.copytree(self._warehouse, self._saved, symlinks=True)
        self._place = Path(local(self._entries()[_OURS]))
        self._document = self._place.read_text()
        self._their_entry = self._entries()[_THEIRS]
        self._their_files = self._found()
        self._their_document = json.loads(Path(local(self._their_entry)).read_text())

    def _make_history(self) -> None:
        lake = self._lake
        lake.ok("tag", _OURS, "kept")
        lake.ok("ref", _OURS, "--branch-create", "audit")
        self._load(_OURS, range(20, 30), "--branch", "audit")
        self._load(_OURS, range(10, 20))
        lake.ok("compact", _OURS, "--rewrite-all", "--min-input-files", "1")
        self._load(_OURS, (2, 5), "--upsert", "--key", "id")
        lake.ok("stats", _OURS)
        lake.ok("stats", _OURS, "--partitions")

    def _load(self, table: str, ids: Any, *options: str) -> None:
        source = self._folder / "source.parquet"
        pq.write_table(rows_of(ids), source)
        self._lake.ok("ingest", table, source, *options)

    def _entries(self) -> dict[str, str]:
        with sqlite3.connect(self._warehouse / "catalog.db") as catalog:
            query = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
            return {f"{space}.{name}": place for space, name, place in catalog.execute(query)}

    def _found(self) -> dict[Path, bytes]:
        """Return the files that the other table needs, and its metadata file."""
        place = Path(local(self._entries()[_THEIRS]))
        document = json.loads(place.read_text())
        found = {place}
        for snapshot in document["snapshots"]:
            listed = Path(local(snapshot["manifest-list"]))
            found.add(listed)
            for row in edits.opened(listed.read_bytes()).records:
                manifest = Path(local(row["manifest_path"]))
                found.add(manifest)
                found |= {
                    Path(local(entry["data_file"]["file_path"]))
                    for entry in edits.opened(manifest.read_bytes()).records
                }
        return {path: path.read_bytes() for path in found}

    def _all(self) -> dict[Path, tuple[int, int]]:
        return {
            Path(folder, name): (found.st_size, found.st_mtime_ns)
            for folder, _, names in os.walk(self._warehouse)
            for name in names
            if not name.startswith("catalog.db")
            and (found := Path(folder, name).lstat()) is not None
        }

    def attempt(self, number: int) -> str:
        """Make the first table name files of the other one, and run a command on it."""
        chance = random.Random(f"neighbours {number}")
        document = json.loads(self._document)
        try:
            times = chance.choice((1, 1, 1, 2, 3))
            made = [self._changed(document, chance) for _ in range(times)]
            self._place.write_text(json.dumps(document))
            command = chance.choice(self._names)
            line = [self._word(part, document, chance) for part in _COMMANDS[command]]
            if command == "register":
                self._remove_entry(chance)
            return self._judged(f"{'; '.join(made)}: {' '.join(line)}", command, line)
        finally:
            self._restore()

    def _restore(self) -> None:
        shutil.rmtree(self._warehouse)
        shutil.copytree(self._saved, self._warehouse, symlinks=True)

    def _remove_entry(self, chance: random.Random) -> None:
        if chance.random() < 0.7:
            with sqlite3.connect(self._warehouse / "catalog.db") as catalog:
                catalog.execute("DELETE FROM iceberg_tables WHERE table_name = 't'")

    def _word(self, part: str, document: Any, chance: random.Random) -> str:
        ids = [str(item.get("snapshot-id")) for item in _dicts(document.get("snapshots"))]
        return part.format(
            added=self._added,
            place=self._place,
            snapshot=chance.choice([*ids, "audit", "kept", str(2**63 - 1), "999999"]),
            file=chance.choice(sorted(map(str, self._their_files))),
        )

    def _judged(self, what: str, command: str, line: list[str]) -> str:
        before = self._all()
        result = self._lake("--json", *line)
        for path, content in self._their_files.items():
            if not path.exists() or path.read_bytes() != content:
                raise WrongError(f"{what}: {path} of the other table is gone: {result}")
        if self._entries().get(_THEIRS) != self._their_entry:
            raise WrongError(f"{what}: the other table's entry changed: {result}")
        code = result.exit_code
        if code not in _ENDS or "Traceback" in result.stderr:
            raise WrongError(f"{what}: ended with {code}: {result}")
        if bad := CONTROLS & set(result.stdout + result.stderr):
            raise WrongError(f"{what}: printed {bad}: {result}")
        if code not in {_DONE, _IN_PART, 5}:
            now = self._all()
            if changed := [
                path for path in before.keys() | now.keys() if before.get(path) != now.get(path)
            ]:
                raise WrongError(f"{what}: failed and changed {changed}: {result}")
        return "right" if code in {_DONE, _IN_PART} else "typed"

    # Changes of the metadata

    def _changed(self, document: Any, chance: random.Random) -> str:
        change = chance.choice(_CHANGES)
        try:
            return f"{change.__name__} {change(self, document, chance)}"
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, OSError):
            # What an earlier one left has no such place.
            return "nothing"

    def _spelled(self, path: str, chance: random.Random) -> str:
        """Spell the location of a file or folder in one of many ways."""
        path = local(path)
        folder, _, name = path.rpartition("/")
        below = path.removeprefix(str(self._ours))
        return chance.choice(
            [
                *(path, f"file://{path}", f"file:{path}", f"file://localhost{path}"),
                *(f"{folder}//{name}", f"{folder}/./{name}", f"{folder}/x/../{name}"),
                *(f"{path}/", path.replace("/db/", "/db/../db/"), f"FILE://{path}"),
                *(f"{folder}/%2e/{name}", path.replace("/db/", "%2Fdb/"), f"gs9://b{path}"),
                f"{self._link}{below}" if below != path else f"{self._link}/../u{path[-1]}",
                f"{self._link}/..{path.removeprefix(str(self._ours.parent))}",
            ]
        )

    def _write(self, path: Path, data: bytes) -> None:
        if path.resolve() in self._their_files:
            raise KeyError(path)
        path.write_bytes(data)

    def _their(self, chance: random.Random) -> str:
        return str(chance.choice(sorted(self._their_files)))

    def _name_file(self, document: Any, chance: random.Random) -> str:
        """Name one of their files in the log, as a list or as statistics."""
        text = self._spelled(self._their(chance), chance)
        kind = chance.choice(("log", "list", "statistics", "partition-statistics"))
        if kind == "log":
            document["metadata-log"].insert(0, {"timestamp-ms": 1, "metadata-file": text})
        elif kind == "list":
            chance.choice(document["snapshots"])["manifest-list"] = text
        else:
            chance.choice(document[kind])["statistics-path"] = text
        return f"{kind} {text}"

    def _name_folder(self, document: Any, chance: random.Random) -> str:
        """Take one of their folders as a folder of this table."""
        folder = Path(self._their(chance)).parent
        text = self._spelled(str(chance.choice([folder, folder.parent])), chance)
        kind = chance.choice(("location", "write.data.path", "write.metadata.path"))
        if kind == "location":
            document["location"] = text
            if chance.random() < 0.5:
                document["properties"]["write.metadata.path"] = f"file://{self._ours}/metadata"
        else:
            document["properties"][kind] = text
        return f"{kind} {text}"

    def _name_in_manifest(self, document: Any, chance: random.Random) -> str:
        """Name one of their files in an entry of a manifest."""
        listed = Path(local(chance.choice(document["snapshots"])["manifest-list"]))
        rows = edits.opened(listed.read_bytes()).records
        manifest = Path(local(chance.choice(rows)["manifest_path"]))
        text = self._spelled(self._their(chance), chance)
        file = edits.opened(manifest.read_bytes())
        chance.choice(file.records)["data_file"]["file_path"] = text
        data = edits.written(file)
        self._write(manifest, data)
        for snapshot in document["snapshots"]:
            path = Path(local(snapshot["manifest-list"]))
            if path.resolve() not in self._their_files:
                self._write(path, edits.with_length(path.read_bytes(), manifest, len(data)))
        return f"an entry {text}"

    def _name_in_list(self, document: Any, chance: random.Random) -> str:
        """Name one of their manifests, or one of ours twice, in a list."""
        path = Path(local(chance.choice(document["snapshots"])["manifest-list"]))
        file = edits.opened(path.read_bytes())
        theirs = Path(local(chance.choice(self._their_document["snapshots"])["manifest-list"]))
        row = chance.choice([*edits.opened(theirs.read_bytes()).records, *file.records])
        row = {**row, "manifest_path": self._spelled(row["manifest_path"], chance)}
        if chance.random() < 0.5:
            row["sequence_number"] = 1
            row["min_sequence_number"] = 1
        file.records.append(row)
        self._write(path, edits.written(file))
        return f"a manifest {row['manifest_path']}"

    def _take_list(self, document: Any, chance: random.Random) -> str:
        """Take over a snapshot of the other table with its files."""
        theirs = chance.choice(self._their_document["snapshots"])
        own = chance.choice(document["snapshots"])
        own.update({"manifest-list": theirs["manifest-list"], "summary": theirs["summary"]})
        own["sequence-number"] = max(own["sequence-number"], theirs["sequence-number"])
        return f"the list {theirs['manifest-list']}"

    def _change_uuid(self, document: Any, chance: random.Random) -> str:
        uuid = chance.choice([self._their_document["table-uuid"], str(uuid4())])
        document["table-uuid"] = uuid
        return str(uuid)

    def _change_lineage(self, document: Any, chance: random.Random) -> str:
        """Give a snapshot another parent, sequence number, id or ref."""
        one, other = chance.choice(document["snapshots"]), chance.choice(document["snapshots"])
        value = chance.choice([other["snapshot-id"], 2**63 - 1, -(2**63), 0, -1, 5, None])
        kind = chance.choice(
            ("parent-snapshot-id", "snapshot-id", "sequence-number", "ref", "ref", "summary")
        )
        if kind == "ref":
            name = chance.choice([*document["refs"], "new"])
            type_ = chance.choice(("branch", "tag"))
            document["refs"][name] = {"snapshot-id": value, "type": type_}
        elif kind == "summary":
            key = chance.choice(_SUMMARY)
            one["summary"][key] = str(chance.choice([value, "true", "append", "", "w"]))
        elif kind == "sequence-number":
            one[kind] = chance.choice([0, 1, 2**62, other[kind], -1])
        else:
            one[kind] = value
        return f"{kind} {value}"

    def _change_at_random(self, document: Any, chance: random.Random) -> str:
        return changed_at_random(document, chance)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_SUMMARY = (
    *("operation", "wap.id", "published-wap-id", "source-snapshot-id", "replace-partitions"),
    *("total-data-files", "added-data-files", "deleted-data-files", "total-records"),
)
_Change = Callable[[Neighbours, Any, random.Random], str]
_CHANGES: tuple[_Change, ...] = (
    *(Neighbours._name_file, Neighbours._name_folder, Neighbours._name_folder),
    *(Neighbours._name_in_manifest, Neighbours._name_in_manifest, Neighbours._name_in_list),
    *(Neighbours._take_list, Neighbours._change_uuid, Neighbours._change_lineage),
    Neighbours._change_at_random,
)
_COMMANDS: dict[str, tuple[str, ...]] = {
    "purge": ("drop", _OURS, "--purge", "--yes"),
    "purge again": ("drop", _OURS, "--purge", "--yes"),
    "purge-dry": ("drop", _OURS, "--purge"),
    "drop": ("drop", _OURS),
    "expire": ("expire", _OURS, *_EXPIRE),
    "clean": ("clean", _OURS, *_NOW, "--max-share", "100%", "--delete"),
    "register": ("register", _OURS, "{place}"),
    "register twice": ("register", "db.v", "{place}"),
    "register over": ("register", _THEIRS, "{place}"),
    "register theirs": ("register", _OURS, "{file}"),
    "rename": ("rename", _OURS, "db.v"),
    "rename over": ("rename", _OURS, _THEIRS),
    "cherry-pick": ("cherry-pick", _OURS, "{snapshot}"),
    "publish": ("publish", _OURS, "--wap-id", "w"),
    "forward": ("ref", _OURS, "--fast-forward", "main", "--to", "{snapshot}"),
    "rollback": ("rollback", _OURS, "{snapshot}"),
    "rollback anywhere": ("rollback", _OURS, "{snapshot}", "--anywhere"),
    "add-files": ("add-files", _OURS, "{added}"),
    "add theirs": ("add-files", _OURS, "{file}"),
    "compact": ("compact", _OURS, "--rewrite-all", "--min-input-files", "1"),
    "stats": ("stats", _OURS, "--partitions"),
}
