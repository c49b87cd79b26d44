"""Columns that are added to a source: each row keeps its own values, whatever other rows are set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType

from lake.core.base.errors import BadInputError, CorruptFileError
from lake.core.data.sources.acceptance import EVERY_ROW, Acceptance, RejectedRows
from lake.core.data.sources.added_columns import write_added
from lake.core.data.sources.batches import source_batches, source_columns
from lake.core.data.sources.discovery import Source
from lake.core.io.storage.storage import Storage

STORAGE = Storage({})


def schema(key: IcebergType) -> Schema:
    return Schema(
        NestedField(1, "key", key, required=False),
        NestedField(2, "n", LongType(), required=False),
    )


class _Rejects:
    def __init__(self) -> None:
        self.lines: list[int | None] = []
        self.reasons: list[str] = []

    def add(self, rejected: RejectedRows) -> None:
        self.lines += rejected.lines
        self.reasons += rejected.reasons


def write(folder: Path, lines: list[str], column: pa.Array) -> Source:
    """Write lines of JSON and the values of an added column."""
    path = folder / "rows.json"
    path.write_text("".join(f"{line}\n" for line in lines))
    added = f"{path}.added"
    write_added(added, pa.record_batch({"key": column}))
    return Source(path=str(path), format="json", size_bytes=path.stat().st_size, added=added)


def read(source: Source, wanted: Schema, acceptance: Acceptance = EVERY_ROW) -> list[Any]:
    batches = source_batches(STORAGE, source, wanted, acceptance)
    return [row for batch in batches for row in batch.to_pylist()]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(kinds=st.lists(st.sampled_from(["good", "no object", "no number"]), max_size=30))
def test_each_row_has_its_own_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: list[str]
) -> None:
    texts = {"no object": "oops", "no number": '{"n": "x"}'}
    lines = [texts.get(kind, json.dumps({"n": n})) for n, kind in enumerate(kinds)]
    source = write(tmp_path, lines, pa.array(range(len(lines)), pa.int64()))
    # Several blocks.
    monkeypatch.setattr("lake.core.data.sources.json.blocks._BLOCK_BYTES", 40)
    rejects = _Rejects()

    rows = read(source, schema(LongType()), Acceptance(rejects=rejects))

    good = [n for n, kind in enumerate(kinds) if kind == "good"]
    assert rows == [{"key": n, "n": n} for n in good]
    assert rejects.lines == [n + 1 for n, kind in enumerate(kinds) if kind != "good"]


def test_bytes_are_text_in_a_column_of_text(tmp_path: Path) -> None:
    source = write(tmp_path, ['{"n": 1}', '{"n": 2}', '{"n": 3}'], pa.array([b"a", b"\xff", None]))
    rejects = _Rejects()
    wanted = schema(StringType())

    rows = read(source, wanted, Acceptance(rejects=rejects))

    assert rows == [{"key": "a", "n": 1}, {"key": None, "n": 3}]
    assert rejects.lines == [2]
    assert "key" in rejects.reasons[0]
    with pytest.raises(BadInputError, match="row 2: .* is not a valid string"):
        read(source, wanted)
    columns = source_columns(STORAGE, source, None, infer=True)
    assert columns == pa.schema({"n": pa.int64(), "key": pa.binary()})


def test_rows_without_added_values_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path, ['{"n": 1}', '{"n": 2}'], pa.array([1], pa.int64()))

    with pytest.raises(CorruptFileError, match="added columns have 1"):
        read(source, schema(LongType()))
