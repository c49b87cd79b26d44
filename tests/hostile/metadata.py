"""Table metadata: bombs, named wrong values, and values changed at random."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile.commands import READS, WRITES, Commands
from hostile.guard import WrongError
from hostile.tables import WAP_ID, broken_table, edited

_DEEPEST = 200
_TURNS = (*READS, *WRITES)
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2, 3, 4, 99, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40),
    *(
        0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "..",
        "/",
        "\0",
        "\u202e\n\x1b[2J",
        "main",
        "-1",
        "1e400",
        "²",
    ),
    *([], {}, [[]], {"a": 1}, [None], "x" * 100_000, "9" * 5000, "[" * 100_000),
)
# What lake or PyIceberg makes a number, a mode or a document of.
_PROPERTIES = (
    "write.parquet.row-group-size-bytes",
    "write.parquet.page-size-bytes",
    "write.parquet.compression-level",
    "write.parquet.compression-codec",
    "write.target-file-size-bytes",
    "write.delete.target-file-size-bytes",
    "write.metadata.metrics.default",
    "write.metadata.metrics.column.id",
    "write.metadata.metrics.max-inferred-column-defaults",
    "write.metadata.previous-versions-max",
    "write.metadata.delete-after-commit.enabled",
    "write.format.default",
    "write.distribution-mode",
    "commit.retry.num-retries",
    "commit.manifest.target-size-bytes",
    "commit.manifest.min-count-to-merge",
    "history.expire.max-snapshot-age-ms",
    "history.expire.min-snapshots-to-keep",
    "history.expire.max-ref-age-ms",
    "read.split.target-size",
    "read.split.planning-lookback",
    "schema.name-mapping.default",
    "flink.max-continuous-empty-commits",
    "lake.expired-run-ids",
)


class Values:
    """One to three places of metadata.json changed at random, as the number says."""

    count = 10**9

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._path = self._table.metadata_path
        self._text = self._path.read_bytes()

    def attempt(self, number: int) -> str:
        chance = random.Random(f"metadata {number}")
        edits_made: list[str] = []

        def change(document: Any) -> None:
            times = chance.choice((1, 1, 1, 2, 3))
            edits_made.extend(changed_at_random(document, chance) for _ in range(times))

        data = edited(self._text, change)
        if chance.random() < 0.1:
            at = chance.randrange(len(data))
            data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        commands = [_TURNS[number % len(_TURNS)]]
        with self._commands.adding("; ".join(edits_made)):
            return " / ".join(
                self._commands.all_judged(commands, {self._path: data}, believed=True)
            )


def changed_at_random(document: Any, chance: random.Random) -> str:
    """Change something in a document; return a description."""
    places = list(_places(document, ""))
    # Schemas are most of a document, and the least of what counts.
    weighed = [place for place in places if "schema" not in place[2] or chance.random() < 0.2]
    outer, key, name = chance.choice(weighed or places)
    match chance.choice(("value", "value", "value", "away", "again", "other", "deep", "property")):
        case "property" if isinstance(document.get("properties"), dict):
            name, value = chance.choice(_PROPERTIES), str(chance.choice(_VALUES))
            document["properties"][name] = value
            return f"{name} = {value[:40]!r}"
        case "away":
            del outer[key]
            return f"{name} away"
        case "again" if isinstance(outer, list):
            outer.append(outer[key])
            return f"{name} again"
        case "other":
            donor, from_key, other = chance.choice(places)
            try:
                outer[key] = json.loads(json.dumps(donor[from_key]))
            except (KeyError, IndexError):
                return "nothing"
            return f"{name} from {other}"
        case "deep":
            value: Any = outer[key]
            for _ in range(chance.choice((1, 5, 200))):
                value = [value]
            outer[key] = value
            return f"{name} deep"
    outer[key] = chance.choice(_VALUES)
    return f"{name} = {str(outer[key])[:40]!r}"


def _places(value: Any, name: str) -> Iterator[tuple[Any, Any, str]]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield value, key, f"{name}.{key}"
        if name.count(".") < _DEEPEST:
            yield from _places(item, f"{name}.{key}")


class WrongValues:
    """Metadata with one wrong value that has a name; every command is run on each."""

    def __init__(self, folder: Path, name: str) -> None:
        self._table = broken_table(folder, name)
        self._commands = Commands(self._table)
        self._path = self._table.metadata_path
        text = self._path.read_bytes()
        canary = folder / "canary"
        self._mutants = list(_wrong_values(text, canary, self._path).items())
        self.count = len(self._mutants)

    def attempt(self, number: int) -> str:
        name, make = self._mutants[number]
        data = make()
        packed = "gzip" in name
        path = self._path.with_name("00099-x.gz.metadata.json") if packed else self._path
        with self._commands.adding(name):
            if not packed:
                return self._all({path: data}, believed="bomb" not in name)
            if self._table.catalog_type != "sql":
                return "not so named"
            return self._pointed(path, data)

    def _all(self, broken: dict[Path, bytes], *, believed: bool) -> str:
        return " / ".join(self._commands.all_judged((*READS, *WRITES), broken, believed=believed))

    def _pointed(self, path: Path, data: bytes) -> str:
        ends = []
        for command in ("plan", "expire", "upsert"):
            path.write_bytes(data)
            self._table.point_at(f"file://{path}")
            try:
                code = self._commands.run(command).exit_code
            finally:
                self._table.restore()
            if code not in {3, 7}:
                raise WrongError(f"{command} ended with {code}")
            ends.append("bad input")
        return " / ".join(ends)


def _wrong_values(text: bytes, canary: Path, own: Path) -> dict[str, Callable[[], bytes]]:
    document = json.loads(text)
    head = document["current-snapshot-id"]
    found: dict[str, Callable[[], bytes]] = {}

    def add(name: str, change: Callable[[Any], Any]) -> None:
        found[name] = lambda: edited(text, change)

    for version in (-1, 0, 1, 4, 99, "2", None):
        add(f"version {version}", lambda one, to=version: one.update({"format-version": to}))
    add("unknown fields", lambda one: one.update({"x-unknown": {"a": [1]}, "encryption-keys": []}))
    for place in (
        "/",
        "",
        "gs9://other-bucket",
        "gs9://other-bucket/db/t",
        "..",
        "/etc",
        "relative",
    ):
        add(f"location {place!r}", lambda one, to=place: one.update(location=to))
    places = (f"{canary}/a.parquet", "/etc/passwd", "", "gs9://x/y", "/dev/zero", "\0", str(own))
    for place in places:
        add(
            f"the head's list {place!r}",
            lambda one, to=place: one["snapshots"][-1].update({"manifest-list": to}),
        )
        add(
            f"the oldest list {place!r}",
            lambda one, to=place: one["snapshots"][0].update({"manifest-list": to}),
        )
        add(
            f"log {place!r}",
            lambda one, to=place: one.update(
                {"metadata-log": [{"timestamp-ms": 1, "metadata-file": to}]}
            ),
        )
        add(
            f"statistics {place!r}",
            lambda one, to=place: one.update(
                statistics=[
                    {
                        "snapshot-id": one["snapshots"][0]["snapshot-id"],
                        "statistics-path": to,
                        "file-size-in-bytes": 1,
                        "file-footer-size-in-bytes": 1,
                        "blob-metadata": [],
                    }
                ]
            ),
        )
        add(
            f"partition statistics {place!r}",
            lambda one, to=place: one.update(
                {
                    "partition-statistics": [
                        {
                            "snapshot-id": head,
                            "statistics-path": to,
                            "file-size-in-bytes": 1,
                        }
                    ]
                }
            ),
        )
    add("a circle of parents", lambda one: _circle(one["snapshots"]))
    add("its own parent", lambda one: one["snapshots"][-1].update({"parent-snapshot-id": head}))
    add("a snapshot twice", lambda one: one["snapshots"].append(one["snapshots"][-1]))
    add(
        "an id of two snapshots",
        lambda one: one["snapshots"][0].update({"snapshot-id": head}),
    )
    add("a schema twice", lambda one: one["schemas"].append(one["schemas"][0]))
    add("a spec twice", lambda one: one["partition-specs"].append(one["partition-specs"][0]))
    add("no current snapshot", lambda one: one.pop("current-snapshot-id"))
    add("a missing current snapshot", lambda one: one.update({"current-snapshot-id": 5}))
    add("no snapshots", lambda one: one.update(snapshots=[]))
    add("a ref to nothing", lambda one: one["refs"].update(lost={"snapshot-id": 5, "type": "tag"}))
    add("main to nothing", lambda one: one["refs"]["main"].update({"snapshot-id": 5}))
    add("main as a tag", lambda one: one["refs"]["main"].update(type="tag"))
    add("refs of odd names", lambda one: one["refs"].update({"\x1b[2J\n": one["refs"]["main"]}))
    add("no refs", lambda one: one.pop("refs"))
    for name, change in {
        "a WAP id twice": lambda own, every: every[0]["summary"].update({"wap.id": WAP_ID}),
        "published already": lambda own, every: every[-1]["summary"].update(
            {"published-wap-id": WAP_ID}
        ),
        "picked already": lambda own, every: every[-1]["summary"].update(
            {"source-snapshot-id": str(own["snapshot-id"])}
        ),
        "picked from itself": lambda own, every: own["summary"].update(
            {"source-snapshot-id": str(own["snapshot-id"])}
        ),
        "its own parent, staged": lambda own, every: own.update(
            {"parent-snapshot-id": own["snapshot-id"]}
        ),
        "no parent, staged": lambda own, every: own.pop("parent-snapshot-id", None),
        "a missing parent, staged": lambda own, every: own.update({"parent-snapshot-id": 5}),
        "the head's list, staged": lambda own, every: own.update(
            {"manifest-list": every[-1]["manifest-list"]}
        ),
        "replaced partitions, staged": lambda own, every: own["summary"].update(
            {"operation": "overwrite", "replace-partitions": "true"}
        ),
        "deleted, staged": lambda own, every: own["summary"].update({"operation": "delete"}),
        "an unknown operation, staged": lambda own, every: own["summary"].update(operation="x"),
        "no operation, staged": lambda own, every: own["summary"].pop("operation"),
        "no summary, staged": lambda own, every: own.pop("summary"),
        "many added files, staged": lambda own, every: own["summary"].update(
            {"added-data-files": "9" * 30}
        ),
        "a sequence number to come, staged": lambda own, every: own.update(
            {"sequence-number": 2**62}
        ),
        "an old sequence number, staged": lambda own, every: own.update({"sequence-number": 0}),
        "a WAP id of numbers": lambda own, every: own["summary"].update({"wap.id": 1}),
        "a huge WAP id": lambda own, every: own["summary"].update({"wap.id": WAP_ID * 10**5}),
    }.items():
        add(name, lambda one, edit=change: edit(_staged(one), one["snapshots"]))
    add("a low last sequence number", lambda one: one.update({"last-sequence-number": 0}))
    add("a negative last sequence number", lambda one: one.update({"last-sequence-number": -5}))
    add("a low next row id", lambda one: one.update({"next-row-id": 0}))
    add("a low last column", lambda one: one.update({"last-column-id": 0}))
    add("a missing schema", lambda one: one.update({"current-schema-id": 77}))
    add("a missing spec", lambda one: one.update({"default-spec-id": 77}))
    add(
        "a spec of a missing column",
        lambda one: one["partition-specs"][0]["fields"][0].update({"source-id": 77}),
    )
    add(
        "an unknown transform",
        lambda one: one["partition-specs"][0]["fields"][0].update(transform="x"),
    )
    add(
        "times to come",
        lambda one: [item.update({"timestamp-ms": 2**62}) for item in one["snapshots"]],
    )
    add(
        "times before",
        lambda one: [item.update({"timestamp-ms": -(2**62)}) for item in one["snapshots"]],
    )
    for key, value in {
        "py-io-impl": "os.system",
        "py-catalog-impl": "os.system",
        "write.py-location-provider.impl": "os.system",
        "write.location-provider.impl": "x.Y",
        "write.data.path": "/",
        "write.metadata.path": "..",
        "write.target-file-size-bytes": "9" * 99,
        "write.parquet.row-group-size-bytes": "-1",
        "write.parquet.compression-level": "99",
        "commit.retry.num-retries": "9" * 30,
        "read.split.target-size": "0",
        "history.expire.max-snapshot-age-ms": "-1",
        "history.expire.min-snapshots-to-keep": "1e9",
        "schema.name-mapping.default": "[" * 5000,
        "gc.enabled": "false",
        "s3.endpoint": "http://127.0.0.1:1",
    }.items():
        add(
            f"{key} = {value[:20]}",
            lambda one, k=key, v=value: one.setdefault("properties", {}).update({k: v}),
        )
    found |= {
        name: lambda raw=raw: text.replace(
            b'"last-updated-ms":', b'"last-updated-ms":' + raw + b',"x":', 1
        )
        for name, raw in {
            "NaN": b"NaN",
            "1e400": b"1e400",
            "-1e400": b"-1e400",
            "many digits": b"9" * 5000,
        }.items()
    }
    found["deep"] = lambda: text.rstrip()[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    found["deep objects"] = lambda: (
        text.rstrip()[:-1] + b',"x":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001
    )
    found["nothing"] = lambda: b""
    found["null"] = lambda: b"null"
    found["a list"] = lambda: b"[]"
    found["not UTF-8"] = lambda: b"\xff\xfe" + text
    found["cut"] = lambda: text[: len(text) // 2]
    found["keys twice"] = lambda: text.rstrip()[:-1] + b',"location":"/"}'
    found["bomb of snapshots"] = lambda: edited(text, _many_snapshots)
    found["bomb of properties"] = lambda: edited(
        text, lambda one: one.update(properties={f"k{n}": "v" * 100 for n in range(10**5)})
    )
    found["bomb of spaces"] = lambda: text + b" " * 2**28
    found["gzip bomb"] = lambda: _bomb(text, b" ", 2**30)
    found["gzip bomb of digits"] = lambda: _bomb(b'{"a":', b"1", 2**29)
    found["gzip cut"] = lambda: gzip.compress(text)[:-20]
    found["gzip not so"] = lambda: text
    return found


def _staged(document: Any) -> Any:
    """Return the snapshot with a WAP id, or the first one."""
    every = document["snapshots"]
    return next((one for one in every if one["summary"].get("wap.id") == WAP_ID), every[0])


def _bomb(start: bytes, byte: bytes, times: int) -> bytes:
    """Pack a text and ``times`` bytes behind it, which are never in memory at once."""
    piece = byte * 2**20
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS + 16)
    pieces = [packer.compress(start), *(packer.compress(piece) for _ in range(times // len(piece)))]
    return b"".join([*pieces, packer.flush()])


def _circle(snapshots: list[Any]) -> None:
    for one, other in zip(snapshots, [*snapshots[1:], snapshots[0]], strict=True):
        one["parent-snapshot-id"] = other["snapshot-id"]


def _many_snapshots(document: Any) -> None:
    first = document["snapshots"][0]
    document["snapshots"] = [
        {**first, "snapshot-id": number + 1, "parent-snapshot-id": number or None}
        for number in range(10**5)
    ] + document["snapshots"]
