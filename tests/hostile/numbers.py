"""How many inputs of which kind there are in all, in pieces that one process tries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hostile.guard import Input, attempts
from hostile.neighbours import LAYOUTS
from hostile.tables import FLINK, STAGED_TABLES, TABLES

# In one process: it takes seconds to start.
_INPUTS, _KINDS = 400, 10
_OWN = tuple(name for name in TABLES if name not in FLINK)


def _every() -> Iterator[tuple[str, Sequence[int]]]:
    """Yield kinds with the numbers of their inputs; those beyond a kind's own count are ignored."""
    # The head's list in whole where every record is a block of its own and where all are one, and points of all.
    for name in ("blocks", "pyiceberg-v2"):
        yield f"avro:Truncations:{name}", range(5200)
    for index, name in enumerate(TABLES):
        if name != "hadoop" and name not in STAGED_TABLES:
            yield f"avro:Truncations:{name}", range(5200 + index, 70_000, 200)
        yield f"avro:Flips:{name}", range(300)
    yield "avro:WrongValues:lake-v2", range(600)
    for name in STAGED_TABLES:
        yield f"avro:StagedValues:{name}", range(400)
        yield f"avro:StagedFlips:{name}", range(1000)
    for index, name in enumerate(("lake-v3", "pyiceberg-v1", "flink-upsert")):
        yield f"avro:WrongValues:{name}", range(index, 600, 3)
    for name, count in (
        ("lake-v2", 400),
        ("lake-v3", 300),
        ("flink-append", 100),
        ("flink-upsert", 200),
    ):
        yield f"parquet:Flips:{name}", range(count)
    for name, count in (("lake-v2", 2000), ("lake-v3", 500), ("flink-upsert", 500)):
        yield f"parquet:Footers:{name}", range(count)
    yield "parquet:WrongValues:lake-v2", range(400)
    yield "parquet:WrongValues:flink-upsert", range(0, 400, 3)
    yield "parquet:Bombs", range(20)
    for file in ("orc:zlib", "orc:none", "avro:gzip", "avro:uncompressed"):
        yield f"formats:Mutants:{file}", range(500)
    yield "formats:Bombs", range(6)
    yield "parquet:Vectors:lake-v3", range(1000)
    for name, count in (
        ("lake-v2", 400),
        ("lake-v3", 300),
        ("pyiceberg-v1", 300),
        *((one, 400) for one in STAGED_TABLES),
    ):
        yield f"metadata:Values:{name}", range(count)
    yield "metadata:WrongValues:lake-v2", range(170)
    yield "metadata:WrongValues:lake-v3", range(0, 170, 4)
    yield "metadata:WrongValues:staged", range(0, 170, 2)
    yield "places:Named", range(600)
    yield "places:Arguments", range(400)
    yield "places:Nested", range(16)
    yield "inventories:Inventories", range(400)
    for layout in LAYOUTS:
        yield f"neighbours:Neighbours:{layout.replace(' ', '-')}", range(1000)
    yield "trash:Lists", range(500)
    yield "catalogs:Rows", range(600)
    yield "catalogs:Folders", range(100)
    yield "arguments:Texts", range(5000)
    yield "environment:Environments", range(2000)
    yield "partitions:Values", range(1800)
    yield "rest:Answers", range(400)
    yield "flink:Checkpoints", range(200)
    yield "flink:Pending", range(1000)
    yield "sources:Sources", range(60)


def pieces(part: float) -> Iterator[list[Input]]:
    """Yield the inputs that one process tries, of a part of all."""
    piece: list[Input] = []
    for kind, numbers in _every():
        wanted = max(1, round(len(numbers) * part))
        for index in range(wanted):
            piece.append((kind, numbers[index * len(numbers) // wanted]))
            if len(piece) == _INPUTS:
                yield piece
                piece = []
        if len({name for name, _ in piece}) == _KINDS:
            yield piece
            piece = []
    if piece:
        yield piece


def tried(inputs: Sequence[Input]) -> tuple[Counter[str], list[str]]:
    """Try inputs; return how they ended, and what is wrong."""
    counts: Counter[str] = Counter()
    wrong = []
    for one in attempts(inputs):
        if one.outcome == NONE:
            continue
        group = ":".join(one.kind.split(":")[:2])
        counts["inputs"] += one.inputs
        counts[f"{group} {_brief(one.outcome)}"] += one.inputs
        for what, value in (("ms", int(one.seconds * 1000)), ("MiB", one.bytes >> 20)):
            counts[f"{group} most {what}"] = max(counts[f"{group} most {what}"], value)
        if one.wrong is not None:
            wrong.append(f"{one.kind} {one.number}: {one.wrong}")
    return counts, wrong


def _brief(outcome: str) -> str:
    ends = outcome.split(" / ")
    if outcome in {"crash", "wrong"}:
        return outcome
    if all(end in TYPED for end in ends):
        return "typed error"
    return "right" if not set(ends) & TYPED else "typed error or right, by command"


NONE = "none"
TYPED = frozenset({"bad input", "refused", "conflict", "typed"})
