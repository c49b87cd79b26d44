"""Columns of locations folded to one text per object, as `lake.core.paths.canonical` folds one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.arrays import one_array


def same_name(locations: Any) -> pa.Array:
    """Fold the spellings under which engines write one location: file: schemes, s3a, doubled slashes."""
    text = pc.replace_substring_regex(one_array(locations), r"^(file:)?/+", "/")
    text = pc.replace_substring_regex(text, r"^s3[an]://", "s3://")
    return pc.replace_substring_regex(text, r"([^:/])//+", r"\1/")
