"""Footers of Parquet files with wrong values: PyArrow must not end the process when it describes them."""

from __future__ import annotations

import io
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from support.cli.command_line import CommandLine

from lake.core.base.errors import LakeError
from lake.core.data.formats.parquet.footer import open_parquet

_END = 8


def test_every_bit_of_a_footer_may_be_wrong_and_what_is_accepted_can_be_described() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, None]}), sink, store_schema=False)
    data = sink.getvalue()
    footer = int.from_bytes(data[-_END:-4], "little")
    refused = accepted = 0
    for bit in range(footer * 8):
        found = bytearray(data)
        found[len(data) - _END - footer + bit // 8] ^= 1 << bit % 8
        try:
            parquet, checks = open_parquet(pa.BufferReader(bytes(found)), "file")
            checks.all_groups()
        except (OSError, pa.ArrowException, UnicodeDecodeError, LakeError):
            refused += 1
            continue
        accepted += 1
        metadata = parquet.metadata
        for group in range(metadata.num_row_groups):
            for position in range(metadata.num_columns):
                statistics = metadata.row_group(group).column(position).statistics
                if statistics is not None and statistics.has_min_max:
                    assert type(statistics.min_raw) is type(statistics.max_raw)
    assert refused
    assert accepted


def test_a_source_whose_chunks_cannot_be_described_is_refused(lake: CommandLine) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2, None]}), sink, store_schema=False)
    data = sink.getvalue()
    footer = int.from_bytes(data[-_END:-4], "little")
    path = lake.warehouse.parent / "bad.parquet"
    tried = 0
    for bit in range(footer * 8):
        found = bytearray(data)
        found[len(data) - _END - footer + bit // 8] ^= 1 << bit % 8
        with suppress(OSError, pa.ArrowException, UnicodeDecodeError, LakeError):
            _, checks = open_parquet(pa.BufferReader(bytes(found)), "file")
            try:
                checks.group(0)
            except OSError:
                path.write_bytes(bytes(found))
                result = lake("ingest", "db.t", path, "--create", "--dry-run")
                assert result.exit_code == 7, result
                tried += 1
        if tried == 5:
            return
    raise AssertionError
