"""What `--where` shows and `--overwrite-where` replaces are the rows for which a filter is TRUE."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, pyiceberg_catalog
from support.tiers import examples

TEXTS = ["abc", "a_c", "a%c", "aéc", "a\nc", "a\0c", "ac", "b", "\\", "", None]


def ids_of(lake: CommandLine, *options: str) -> list[int]:
    """Return the sorted ids that a scan writes."""
    done = lake("scan", "db.t", "--output", "-", "--output-format", "json", *options)
    assert done.exit_code == 0, done
    return sorted(json.loads(line)["id"] for line in done.stdout.splitlines())


def ingest_texts(lake: CommandLine, folder: Path, *options: str) -> None:
    """Make a table of `TEXTS`; the id is the place in the list."""
    path = folder / "texts.parquet"
    pq.write_table(pa.table({"id": range(len(TEXTS)), "s": pa.array(TEXTS, pa.string())}), path)
    lake.ok("ingest", "db.t", path, "--create", *options)


LIKES = [
    ("s like 'a_c'", [0, 1, 2, 3, 4, 5]),
    ("s like 'a\\_c'", [1]),
    ("s like '%c'", [0, 1, 2, 3, 4, 5, 6]),
    ("s not like '%c'", [7, 8, 9]),
    ("s like '%b%'", [0, 7]),
    ("s = 'a\0c'", [5]),
    ("s = U&'a\\0000c'", [5]),
    ("s like '_'", [7, 8]),
]


@pytest.mark.parametrize("layout", [(), ("--partition-by", "truncate(1, s)")])
def test_like_finds_the_same_rows_whatever_the_layout(
    lake: CommandLine, tmp_path: Path, layout: tuple[str, ...]
) -> None:
    ingest_texts(lake, tmp_path, *layout)
    for text, wanted in LIKES:
        assert ids_of(lake, "--where", text) == wanted
        assert ids_of(lake, f"--where={text}") == wanted
    plan = lake.ok("scan", "db.t", "--where", "s like 'a_%'", "--plan")["plan"]
    assert plan["files"] == 1
    assert plan["skipped_files"] == (4 if layout else 0)


@pytest.mark.parametrize("layout", [(), ("--partition-by", "s")])
def test_overwrite_where_replaces_exactly_what_like_matches(
    lake_on: CommandLine, tmp_path: Path, layout: tuple[str, ...]
) -> None:
    ingest_texts(lake_on, tmp_path, *layout)
    new = tmp_path / "new.parquet"
    pq.write_table(pa.table({"id": [100], "s": ["axc"]}), new)
    lake_on.ok("ingest", "db.t", new, "--overwrite-where", "s like 'a_c'")
    assert ids_of(lake_on) == [6, 7, 8, 9, 10, 100]


def test_columns_with_dots_and_other_characters_are_filtered(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "odd.parquet"
    nested = pa.array([{"d": 1}, {"d": 2}])
    odd = {"id": [0, 1], "a.d": [2, 1], "é": ["x", "y"], "in": [True, False], "c": nested}
    pq.write_table(pa.table(odd), path)
    lake.ok("ingest", "db.t", path, "--create")
    for text, wanted in [
        ('"a.d" = 1', [1]),
        ("`a.d` = 1e0", [1]),
        ("c.d = 1", [0]),
        ("é = 'y' and true", [1]),
        ('not "in" = false', [0]),
        ('"in"', [0]),
        ("id <=> 1", [1]),
        ('ID <=> 1 or "A.D" = 2', [0, 1]),
    ]:
        assert ids_of(lake, "--where", text, "--ignore-case") == wanted
    refused = lake("scan", "db.t", "--where", "id = 1 or e300 = 2")
    assert refused.exit_code == 7
    assert "no column e300" in refused.stderr
    refused = lake("scan", "db.t", "--where", "id rlike '1'")
    assert refused.exit_code == 7
    assert "cannot read the filter at character 4: \"rlike '1'\": expected =" in refused.stderr


# The model: a filter is a function from a value to True, False or None (unknown).

_SIGNS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
_Logic = Callable[[float | None], bool | None]
NUMBERS = [-math.inf, -1.5, -0.0, 0.0, 1.0, math.inf, math.nan]
WRITTEN = {"'-Infinity'": -math.inf, "-1.5": -1.5, "-0.0": -0.0, "1e0": 1.0, "'Infinity'": math.inf}


def _compare(sign: str, literal: float) -> _Logic:
    return lambda value: None if value is None else _SIGNS[sign](value, literal)


def _both(left: _Logic, right: _Logic) -> _Logic:
    def both(value: float | None) -> bool | None:
        answers = {left(value), right(value)}
        return False if False in answers else None if None in answers else True

    return both


def _not(inner: _Logic) -> _Logic:
    def negated(value: float | None) -> bool | None:
        answer = inner(value)
        return None if answer is None else not answer

    return negated


@st.composite
def filters(draw: Any, depth: int = 3) -> tuple[str, _Logic]:
    kind = draw(st.sampled_from(["compare", "null", "nan", "in", "not", "and", "or"][: 4 + depth]))
    if kind == "compare":
        sign, literal = draw(st.sampled_from(sorted(_SIGNS))), draw(st.sampled_from(list(WRITTEN)))
        return f"f {sign} {literal}", _compare(sign, WRITTEN[literal])
    if kind == "null":
        return "f is null", lambda value: value is None
    if kind == "nan":
        return "f is nan", lambda value: None if value is None else math.isnan(value)
    if kind == "in":
        chosen = draw(st.lists(st.sampled_from(list(WRITTEN)), min_size=1, max_size=3))
        known = {WRITTEN[one] for one in chosen}
        return (
            f"f in ({', '.join(chosen)})",
            lambda value: None if value is None else value in known,
        )
    text, logic = draw(filters(depth - 1))
    if kind == "not":
        return f"not ({text})", _not(logic)
    other_text, other = draw(filters(depth - 1))
    if kind == "and":
        return f"({text}) and ({other_text})", _both(logic, other)
    return f"({text}) or ({other_text})", _not(_both(_not(logic), _not(other)))


FLOATS = Schema(NestedField(1, "id", LongType()), NestedField(2, "f", DoubleType()))
BY_F = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "f"))


@settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    drawn=filters(),
    files=st.lists(
        st.lists(st.none() | st.sampled_from(NUMBERS), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    partitioned=st.booleans(),
)
def test_scans_and_overwrites_agree_on_null_and_nan_with_three_valued_logic(
    lake: CommandLine,
    warehouse: Path,
    tmp_path: Path,
    drawn: tuple[str, _Logic],
    files: list[list[float | None]],
    partitioned: bool,
) -> None:
    text, logic = drawn
    if (warehouse / "catalog.db").exists():
        pyiceberg_catalog(warehouse).drop_table("db.t")
    spec = BY_F if partitioned else UNPARTITIONED_PARTITION_SPEC
    make_table(warehouse, schema=FLOATS, spec=spec)
    rows = [value for file in files for value in file]
    first = 0
    for values in files:
        source = tmp_path / "rows.parquet"
        columns = {"id": range(first, first + len(values)), "f": pa.array(values, pa.float64())}
        pq.write_table(pa.table(columns), source)
        lake.ok("ingest", "db.t", source)
        first += len(values)
    found = [number for number, value in enumerate(rows) if logic(value) is True]
    assert ids_of(lake, "--where", text) == found
    marks = [value for value in [None, *NUMBERS] if logic(value) is True]
    if marks:
        pq.write_table(pa.table({"id": [100], "f": pa.array(marks[:1], pa.float64())}), source)
        lake.ok("ingest", "db.t", source, "--overwrite-where", text)
        assert ids_of(lake) == [*sorted(set(range(first)) - set(found)), 100]


def test_a_typed_date_selects_the_days_and_is_refused_for_text(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "days.csv"
    source.write_text("id,day,note\n1,2023-12-31,2024-01-01\n2,2024-01-01,b\n3,2024-01-02,c\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "day")

    assert ids_of(lake, "--where", "day >= date '2024-01-01'") == [2, 3]
    assert ids_of(lake, "--where", "TIMESTAMP '2024-01-01 12:00:00' > day") == [1, 2]
    refused = lake("--json", "scan", "db.t", "--where", "note = date '2024-01-01'")
    assert refused.exit_code == 7
    assert refused.json()["error"]["hint"] == "write note = '2024-01-01'"
