"""Keys of every type, drawn at random, and as batches."""

import datetime as dt
import math
import struct
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

FLOATS = st.sampled_from(
    [0.0, -0.0, 1.5, -1.5, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1.0]
)
TEXTS = st.one_of(
    st.text("abé", max_size=3),
    st.sampled_from(["", "x" * 7, "x" * 8, "x" * 9, "x" * 16, "x" * 300, "x" * 299 + "y", "\0"]),
)
UTC = dt.UTC
KINDS = [
    (pa.int32(), st.integers(-3, 3) | st.sampled_from([2**31 - 1, -(2**31)])),
    (pa.int64(), st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**32, 2**33])),
    (pa.bool_(), st.booleans()),
    (pa.float32(), FLOATS.map(lambda value: value if value != 5e-324 else 2.0)),
    (pa.float64(), FLOATS),
    (pa.date32(), st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2))),
    (pa.time64("us"), st.sampled_from([dt.time(0), dt.time(1, 2, 3, 4)])),
    (pa.timestamp("us"), st.sampled_from([dt.datetime(1969, 1, 1), dt.datetime(2020, 1, 1)])),
    (
        pa.timestamp("us", "UTC"),
        st.sampled_from([dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, tzinfo=UTC)]),
    ),
    (pa.timestamp("ns"), st.sampled_from([dt.datetime(1969, 1, 1), dt.datetime(2020, 1, 1)])),
    (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.00"), Decimal("0.00"), Decimal("1.23")])),
    (
        pa.decimal128(38, 2),
        st.sampled_from([Decimal("-1.00"), Decimal(10**35), Decimal(10**35 + 1), Decimal("-0.01")]),
    ),
    (pa.string(), TEXTS),
    (pa.binary(), TEXTS.map(lambda text: text.encode())),
    (pa.binary(16), st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15)])),
    (pa.binary(3), st.sampled_from([b"abc", b"abd", b"\0\0\0"])),
    (pa.binary(40), st.sampled_from([bytes(40), bytes(39) + b"\1"])),
    (pa.null(), st.none()),
]


def as_key(row):
    """Return a row as a dictionary's key by Iceberg Java's equality."""
    return tuple(
        (
            ("nan",)
            if isinstance(value, float) and math.isnan(value)
            else struct.pack("<d", value)
            if isinstance(value, float)
            else value
        )
        for value in row
    )


@st.composite
def key_rows(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    row = st.tuples(*(values | st.none() for _, values in kinds))
    keys = draw(st.lists(row, max_size=30))
    probes = draw(st.lists(st.sampled_from(keys) | row if keys else row, max_size=30))
    return [kind for kind, _ in kinds], keys, probes


def batch_of(types, rows, *, sliced=False):
    """Return rows as a batch; a sliced one's columns do not begin where their memory does."""
    before = [rows[0]] * 3 if sliced and rows else []
    arrays = [
        pa.array([row[column] for row in [*before, *rows]], kind)
        for column, kind in enumerate(types)
    ]
    schema = pa.schema([(f"c{column}", kind) for column, kind in enumerate(types)])
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(len(before))
