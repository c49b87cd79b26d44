"""Times with nanoseconds in tables of format version 3: filters, partitions, keys and compaction."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tiers import chosen

DAY = 86_400 * 10**9
BEFORE_1970 = [-1, -999, -1000, -1001, -DAY - 1, -DAY, -3_600 * 10**9 - 1, -(10**18) - 7]
SINCE_1970 = [0, 1, 999, 1000, 1_001, DAY, DAY + 1, 1_510_871_468_000_001_001, 10**18 + 7]
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
KINDS = ("parquet", "orc", "avro")
DELETES = ("position", "equality", "copy-on-write")
SPECS = ("bucket(4, ts)", "day(ts)", "ts", "year(ts)", "month(ts)", "hour(ts)", "void(ts)")
QUICK = [(spec, None) for spec in SPECS[:2]]
# The first spec has both zones, each other one a zone or none in turn.
EVERYDAY = [QUICK[0], *zip(SPECS, cycle(("UTC", None)))]


def written(
    lake: CommandLine, folder: Path, numbers: list[int], *options: str, zone: str | None
) -> int:
    path = folder / "source.parquet"
    times = pa.array(numbers, pa.timestamp("ns", zone))
    pq.write_table(pa.table({"ts": times, "n": pa.array(numbers, pa.int64())}), path)
    rows: int = lake.ok("ingest", "db.t", path, *options)["result"]["rows_written"]
    return rows


def found(lake: CommandLine, folder: Path, *options: str) -> list[tuple[int, int]]:
    """Return (time, number) of the rows of a scan, from its Arrow file."""
    out = folder / "out.arrow"
    lake.ok("scan", "db.t", *options, "--output", out, "--replace")
    with pa.ipc.open_file(out) as file:
        table = file.read_all()
    times = table["ts"].cast(pa.int64()).to_pylist()
    return sorted(zip(times, table["n"].to_pylist(), strict=True))


def text(number: int, zone: str | None) -> str:
    return str(np.datetime64(number, "ns")) + ("Z" if zone else "")


@pytest.mark.parametrize(
    ("spec", "zone"),
    [
        pytest.param(*one, marks=() if one in QUICK else pytest.mark.slow)
        for one in chosen(EVERYDAY, list(product(SPECS, (None, "UTC"))))
    ],
)
def test_filters_find_the_rows_whatever_the_partitions_are(
    spec: str, zone: str | None, lake: CommandLine, tmp_path: Path
) -> None:
    numbers = BEFORE_1970 + SINCE_1970
    options = ("--create", "--property", "format-version=3", "--partition-by", spec)
    assert written(lake, tmp_path, numbers, *options, zone=zone) == len(numbers)

    for literal in (-1, -1000, -DAY, 0, 1_510_871_468_000_001_001):
        for sign, compare in OPERATORS.items():
            condition = f"ts {sign} '{text(literal, zone)}'"
            expected = sorted((one, one) for one in numbers if compare(one, literal))
            assert found(lake, tmp_path, "--where", condition) == expected, condition
    some = [-1001, 999, 10**18 + 7]
    condition = f"ts in ({', '.join(repr(text(one, zone)) for one in some)})"
    assert found(lake, tmp_path, "--where", condition) == [(one, one) for one in some]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "deletes"),
    chosen(list(zip(KINDS, DELETES, strict=True)), list(product(KINDS, DELETES))),
)
def test_a_time_is_a_key_and_survives_compaction_to_the_nanosecond(
    kind: str, deletes: str, lake: CommandLine, tmp_path: Path
) -> None:
    numbers = SINCE_1970 if kind == "orc" else BEFORE_1970 + SINCE_1970
    made = ("--create", "--property", "format-version=3", "--partition-by", "bucket(2, ts)")
    form = ("--property", f"write.format.default={kind}")
    written(lake, tmp_path, numbers, *made, *form, zone=None)
    changed = [1, 1_001, 5]
    path = tmp_path / "changed.parquet"
    times = pa.array(changed, pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": times, "n": pa.array([100, 200, 300])}), path)

    lake.ok("ingest", "db.t", path, "--upsert", "--key", "ts", "--deletes", deletes)

    kept = [(one, one) for one in numbers if one not in changed]
    expected = sorted([*kept, (1, 100), (1_001, 200), (5, 300)])
    assert found(lake, tmp_path) == expected
    for strategy in (("binpack",), ("sort", "--by", "ts desc"), ("zorder", "--by", "ts,n")):
        lake.ok("compact", "db.t", "--rewrite-all", "--verify", "--strategy", *strategy)
        assert found(lake, tmp_path) == expected


@pytest.mark.parametrize("name", ["out.csv", "out.json"])
def test_the_first_second_comes_back_from_text(
    name: str, lake: CommandLine, tmp_path: Path
) -> None:
    numbers = [
        -(2**63),
        -(2**63) + 1,
        -9_223_372_036 * 10**9 - 1,
        -9_223_372_036 * 10**9,
        2**63 - 1,
    ]
    made = ("--create", "--property", "format-version=3")
    assert written(lake, tmp_path, numbers, *made, zone="UTC") == len(numbers)
    out = tmp_path / name
    lake.ok("scan", "db.t", "--output", out)
    lake.ok("ingest", "db.t", out, "--overwrite")

    assert found(lake, tmp_path) == sorted(zip(numbers, numbers, strict=True))
    lines = out.read_text()
    out.write_text(lines.replace("43.145224192Z", "43.145224191Z"))
    refused = lake("ingest", "db.t", out)
    assert refused.exit_code == 7
    assert "43.145224191Z' is not a valid timestamptz_ns" in refused.stderr
    out.write_text(lines.replace("00:12:43.145224192Z", "02:12:43.145224192+02:00"))
    lake.ok("ingest", "db.t", out, "--overwrite")
    assert found(lake, tmp_path) == sorted(zip(numbers, numbers, strict=True))
