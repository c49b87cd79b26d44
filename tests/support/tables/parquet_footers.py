"""Parquet files whose footers are those of other writers: their names, orders and statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hostile.footer_edits import Struct, edited

# Types of Thrift's compact encoding, and field numbers of parquet.thrift.
_FALSE, _I64, _BINARY = 2, 6, 8
_GROUPS, _CREATED_BY, _ORDERS = 4, 6, 7
_COLUMNS, _META, _STATISTICS = 1, 3, 12
_UNPACKED = 6
_OLD_MAX, _OLD_MIN, _NULLS, _MAX, _MIN, _MAX_EXACT = 1, 2, 3, 5, 6, 7


def written_by(path: Path, writer: str | None, *, deprecated: bool = False) -> Path:
    """Give a file another writer; with deprecated minima and maxima, as writers before column orders."""

    def change(tree: Struct) -> None:
        tree[_CREATED_BY] = _BINARY, (writer or "").encode()
        if writer is None:
            del tree[_CREATED_BY]
        if not deprecated:
            return
        del tree[_ORDERS]
        for statistics in _all_statistics(tree):
            for new, old in ((_MIN, _OLD_MIN), (_MAX, _OLD_MAX)):
                found = statistics.pop(new, None) or statistics.get(old)
                if found is not None:
                    statistics[old] = found

    return _edit(path, change)


def with_statistics(
    path: Path,
    *,
    column: int = 0,
    bounds: tuple[bytes, bytes] | None = None,
    nulls: int | None = None,
    truncated: bool = False,
) -> Path:
    """Give a column of a file other statistics, in every row group."""

    def change(tree: Struct) -> None:
        for statistics in _all_statistics(tree, column):
            if bounds is not None:
                low, high = bounds
                for number, value in ((_MIN, low), (_OLD_MIN, low), (_MAX, high), (_OLD_MAX, high)):
                    if number in statistics:
                        statistics[number] = _BINARY, value
            if nulls is not None:
                statistics[_NULLS] = _I64, nulls
            if truncated:
                statistics[_MAX_EXACT] = _FALSE, False

    return _edit(path, change)


def with_unpacked_size(path: Path, size: int) -> Path:
    """Let a footer declare a size in bytes to which each column chunk unpacks."""

    def change(tree: Struct) -> None:
        for chunk in _chunks(tree):
            chunk[_META][1][_UNPACKED] = _I64, size

    return _edit(path, change)


def _all_statistics(tree: Struct, column: int | None = None) -> list[dict[int, Any]]:
    return [chunk[_META][1][_STATISTICS][1] for chunk in _chunks(tree, column)]


def _chunks(tree: Struct, column: int | None = None) -> list[Mapping[int, Any]]:
    found: list[Mapping[int, Any]] = []
    for group in tree[_GROUPS][1][1]:
        chunks: list[Mapping[int, Any]] = group[_COLUMNS][1][1]
        found += chunks if column is None else [chunks[column]]
    return found


def _edit(path: Path, change: Callable[[Struct], object]) -> Path:
    path.write_bytes(edited(path.read_bytes(), change))
    return path
