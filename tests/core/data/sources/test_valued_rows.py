"""Rows that are divided by a column: each row is in one part, as it is read without division, with its place."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.tiers import examples

from lake.core.data.sources.acceptance import Acceptance, RejectedRows
from lake.core.data.sources.batches import source_batches
from lake.core.data.sources.csv import texts
from lake.core.data.sources.discovery import Source
from lake.core.data.sources.json import blocks
from lake.core.data.sources.valued_rows import valued_rows
from lake.core.io.storage.storage import Storage

SCHEMA = Schema(
    NestedField(1, "kind", StringType(), required=False),
    NestedField(2, "n", LongType(), required=False),
)
# Few values, so that parts have several rows; NULL, and one that needs quotes.
KINDS = st.sampled_from(["a", "b", "c d", 'e"\n', None])
ROWS = st.lists(st.tuples(KINDS, st.one_of(st.integers(0, 9), st.just("x"))), max_size=40)


class _Rejects:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, str, str]] = []

    def add(self, rejected: RejectedRows) -> None:
        texts = rejected.texts or [""] * len(rejected.lines)
        self.rows += zip(rejected.lines, texts, rejected.reasons, strict=True)


def write(path: Path, rows: list[tuple[str | None, Any]]) -> Source:
    """Write rows; the suffix is the format. JSON contains lines that are not objects, CSV rows that are ragged."""
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(["kind", "n"])
        for kind, n in rows:
            writer.writerow([kind, n] if n != 9 else [kind, n, n])
        path.write_text(text.getvalue())
        return Source(path=str(path), format="csv", size_bytes=path.stat().st_size)
    objects = [json.dumps({"kind": kind, "n": n}) for kind, n in rows]
    if path.name == "array.json":
        path.write_text(f"[{','.join(objects)}]")
    else:
        lines = ["oops" if n == 9 else text for text, (_, n) in zip(objects, rows, strict=True)]
        path.write_text("".join(f"{line}\n\n" for line in lines))
    return Source(path=str(path), format="json", size_bytes=path.stat().st_size)


def undivided(source: Source) -> tuple[Counter[Any], list[tuple[Any, str, str]]]:
    rejects = _Rejects()
    found: Counter[Any] = Counter()
    for batch in source_batches(Storage({}), source, SCHEMA, Acceptance((), rejects)):
        found.update((row["kind"], row["n"]) for row in batch.to_pylist())
    return found, rejects.rows


def divided(source: Source) -> tuple[Counter[Any], list[tuple[Any, str, str]]]:
    found: Counter[Any] = Counter()
    rejected: list[tuple[Any, str, str]] = []
    for rows in valued_rows(Storage({}), source, "kind", pa.string(), ["kind", "n"], rejects=True):
        bad = [(row.number, row.reason) for row in rows.unreadable]
        values = rows.values.to_pylist()
        for value in dict.fromkeys(values):
            indexes = [index for index, one in enumerate(values) if one == value]
            collected = _Rejects()
            raw = rows.part(indexes, SCHEMA, None)
            batch = Acceptance((), collected).accepted(raw, source.path)
            assert {row["kind"] for row in batch.to_pylist()} <= {value}
            found.update((row["kind"], row["n"]) for row in batch.to_pylist())
            bad += [(number, reason) for number, _, reason in collected.rows]
        bad.sort()
        lines, texts = rows.locate([number for number, _ in bad])
        reasons = [reason for _, reason in bad]
        rejected += zip(lines, texts, reasons, strict=True)
    return found, rejected


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "array.json"])
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=ROWS)
def test_divided_rows_and_rejects_are_those_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: list[tuple[str | None, Any]]
) -> None:
    # Several blocks.
    monkeypatch.setattr(blocks, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(texts, "BLOCK_BYTES", 64)
    source = write(tmp_path / name, rows)

    assert divided(source) == undivided(source)


def test_rows_of_parquet_are_divided_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    kinds = pa.array(["a", "b", None, "a", "b"]).dictionary_encode()
    table = pa.table({"kind": kinds, "n": pa.array(["1", "2", "3", "x", "5"])})
    pq.write_table(table, path, row_group_size=2)
    source = Source(path=str(path), format="parquet", size_bytes=path.stat().st_size)

    found = [
        (value, rows.numbers[index])
        for rows in valued_rows(
            Storage({}), source, "kind", pa.string(), ["kind", "n"], rejects=True
        )
        for index, value in enumerate(rows.values.to_pylist())
    ]

    assert found == [("a", 1), ("b", 2), (None, 3), ("a", 4), ("b", 5)]


def test_a_name_with_an_escaped_character_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{"kind": "a", "n": 1}\n{"\\u006bind": "b", "n": 2}\n')
    source = Source(path=str(path), format="json", size_bytes=path.stat().st_size)

    assert divided(source) == (Counter({("a", 1): 1, ("b", 2): 1}), [])
