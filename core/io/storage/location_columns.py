"""Normalise columns of locations to one text per object, as `lake.core.base.locations.canonical` does for one."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations as paths
from lake.core.base.arrow import one_array

# The usual spellings of writers; the few others are normalised one at a time.
_USUAL = r"^(/|file:/|[a-z][a-z0-9+.-]*://[^/])"
_CHANGED = r"^(file:|//|s3[an]:|gcs:|abfs:|wasbs?:)|[^:/]//"
# Arrow takes longer to prepare a search than Python to search this number of locations.
_FEW = 32
_IS_USUAL, _HAS_CHANGED = re.compile(_USUAL).match, re.compile(_CHANGED).search

# Schemes, and hosts, of the same stores.
_ALIASES = (
    (r"^s3[an]://", "s3://"),
    (r"^gcs://", "gs://"),
    (r"^abfs://", "abfss://"),
    (r"^wasbs?://([^/@]*@[^/.]*)\.blob\.", r"abfss://\1.dfs."),
    (r"^wasbs?://", "abfss://"),
)


def normalize_locations(locations: Any) -> pa.Array:
    """Normalise the spellings with which engines write one location: schemes, hosts, doubled slashes."""
    if isinstance(locations, list):
        locations = pa.array(locations, pa.string())
    text = one_array(locations)
    if len(text) <= _FEW and all(map(_is_normal, text.to_pylist())):
        return text
    text = _with_usual_spelling(text)
    # A search takes much less time than the replacements, which copy the texts.
    if not pc.any(pc.match_substring_regex(text, _CHANGED), min_count=0).as_py():
        return text
    text = pc.replace_substring_regex(text, r"^(file:)?/+", "/")
    for pattern, usual in _ALIASES:
        text = pc.replace_substring_regex(text, pattern, usual)
    return pc.replace_substring_regex(text, r"([^:/])//+", r"\1/")


def _is_normal(location: str | None) -> bool:
    return location is None or bool(_IS_USUAL(location) and not _HAS_CHANGED(location))


def _with_usual_spelling(locations: pa.Array) -> pa.Array:
    unusual = pc.invert(pc.match_substring_regex(locations, _USUAL))
    if not pc.any(unusual).as_py():
        return locations
    folded = [paths.folded(location) for location in locations.filter(unusual).to_pylist()]
    return pc.replace_with_mask(
        locations, pc.fill_null(unusual, pa.scalar(value=False)), pa.array(folded, locations.type)
    )
