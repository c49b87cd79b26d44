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

_LOCAL = "file://"
_REPLACED = (
    (r"^(file:)?/+", "/"),
    # Schemes, and hosts, of the same stores.
    (r"^s3[an]://", "s3://"),
    (r"^gcs://", "gs://"),
    (r"^abfs://", "abfss://"),
    (r"^wasbs?://([^/@]*@[^/.]*)\.blob\.", r"abfss://\1.dfs."),
    (r"^wasbs?://", "abfss://"),
    (r"([^:/])//+", r"\1/"),
)
_REPLACE = [(re.compile(pattern).sub, usual) for pattern, usual in _REPLACED]


def normalize_locations(locations: Any) -> pa.Array:
    """Normalise the spellings with which engines write one location: schemes, hosts, doubled slashes."""
    if isinstance(locations, list):
        locations = pa.array(locations, pa.string())
    text = one_array(locations)
    if len(text) <= _FEW:
        found = text.to_pylist()
        normal = [location and _normal(location) for location in found]
        return text if normal == found else pa.array(normal, text.type)
    text = _with_usual_spelling(text)
    # A search takes much less time than the replacements, which copy the texts.
    if not pc.any(pc.match_substring_regex(text, _CHANGED), min_count=0).as_py():
        return text
    for pattern, usual in _REPLACED:
        text = pc.replace_substring_regex(text, pattern, usual)
    return text


def _normal(location: str) -> str:
    path = location.removeprefix(_LOCAL)
    if path.startswith("/") and "//" not in path:
        return path
    text = location if _IS_USUAL(location) else paths.folded(location)
    if _HAS_CHANGED(text):
        for replaced, usual in _REPLACE:
            text = replaced(usual, text)
    return text


def _with_usual_spelling(locations: pa.Array) -> pa.Array:
    unusual = pc.invert(pc.match_substring_regex(locations, _USUAL))
    if not pc.any(unusual).as_py():
        return locations
    folded = [paths.folded(location) for location in locations.filter(unusual).to_pylist()]
    return pc.replace_with_mask(
        locations, pc.fill_null(unusual, pa.scalar(value=False)), pa.array(folded, locations.type)
    )
