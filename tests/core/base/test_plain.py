"""Dataclasses travel as JSON and come back equal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lake.core.base.plain import PlainData
from lake.core.table.manifests.data_files import DataFile


@dataclass(frozen=True, kw_only=True)
class Inner(PlainData):
    number: int
    text: str | None = "default"


@dataclass(frozen=True, kw_only=True)
class Outer(PlainData):
    inner: Inner
    inners: Sequence[Inner] = ()
    binary: tuple[bytes | None, ...] = ()
    bounds: Mapping[int, bytes] = field(default_factory=dict)
    named: Mapping[str, Inner] = field(default_factory=dict)
    flag: bool = False
    optional: Inner | None = None
    anything: Any = None


_INNER = st.builds(Inner, number=st.integers(), text=st.none() | st.text())
_OUTER = st.builds(
    Outer,
    inner=_INNER,
    inners=st.lists(_INNER, min_size=1),
    binary=st.lists(st.none() | st.binary()).map(tuple),
    bounds=st.dictionaries(st.integers(), st.binary()),
    named=st.dictionaries(st.text(), _INNER),
    flag=st.booleans(),
    optional=st.none() | _INNER,
    anything=st.none() | st.integers() | st.lists(st.text()),
)


@given(value=_OUTER)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_value_comes_back_equal(value: Outer) -> None:
    assert Outer.from_plain(json.loads(json.dumps(value.to_plain()))) == value


def test_a_field_that_equals_its_default_is_left_out() -> None:
    assert Outer(inner=Inner(number=1)).to_plain() == {"inner": {"number": 1}}


def test_none_is_kept_where_it_is_not_the_default() -> None:
    plain = Inner(number=1, text=None).to_plain()

    assert plain == {"number": 1, "text": None}
    assert Inner.from_plain(plain).text is None


def test_a_number_that_equals_a_flag_is_not_left_out() -> None:
    assert Outer(inner=Inner(number=1), flag=0).to_plain()["flag"] == 0  # type: ignore[arg-type]


def test_unknown_names_are_ignored() -> None:
    assert Inner.from_plain({"number": 1, "new": 2}) == Inner(number=1)


def test_a_type_that_json_cannot_express_is_refused() -> None:
    @dataclass
    class Wrong(PlainData):
        value: complex

    with pytest.raises(TypeError, match="complex"):
        Wrong(1j).to_plain()


def test_a_data_file_keeps_its_statistics() -> None:
    file = DataFile(
        path="a",
        spec_id=1,
        record_count=2,
        size_bytes=3,
        partition=(b"\x00", None),
        lower_bounds={1: b"\xff"},
        null_value_counts={1: 0},
        equality_ids=(1, 2),
    )

    assert DataFile.from_plain(json.loads(json.dumps(file.to_plain()))) == file
