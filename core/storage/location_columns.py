"""Columns of locations folded to one text per object, as `lake.core.locations.canonical` folds one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core import locations as paths
from lake.core.arrow import one_array

# As writers spell them; the few others are folded one by one.
_USUAL = r"^(/|file:/|[a-z][a-z0-9+.-]*://[^/])"


def normalize_locations(locations: Any) -> pa.Array:
    """Fold the spellings under which engines write one location: schemes, s3a, doubled slashes."""
    text = _usual(one_array(locations))
    text = pc.replace_substring_regex(text, r"^(file:)?/+", "/")
    text = pc.replace_substring_regex(text, r"^s3[an]://", "s3://")
    return pc.replace_substring_regex(text, r"([^:/])//+", r"\1/")


def _usual(locations: pa.Array) -> pa.Array:
    odd = pc.invert(pc.match_substring_regex(locations, _USUAL))
    if not pc.any(odd).as_py():
        return locations
    folded = [paths.folded(location) for location in locations.filter(odd).to_pylist()]
    return pc.replace_with_mask(
        locations, pc.fill_null(odd, pa.scalar(value=False)), pa.array(folded, locations.type)
    )
