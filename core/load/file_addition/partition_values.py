"""The partition of an existing file: from the bounds of its columns if they leave one value, else from its folders.

Folders are named ``column=value``, as Hive and Spark write them. A value that cannot be proved is refused: scans
would skip a file with a wrong partition although they need its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus

import pyarrow as pa
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, DoubleType, FixedType, FloatType

from lake.core.base.errors import BadInputError, RefusedError
from lake.core.data.columns.metrics import Leaf, Mode
from lake.core.data.sources.text_values import ValueContext, from_text
from lake.core.spec.types.bounds import decode_bounds
from lake.core.spec.types.single_values import partition_type, single_values
from lake.core.spec.types.transforms import fitting, typed

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema

    from lake.core.data.formats.parquet.statistics import TrustedFooter
    from lake.core.load.file_addition.columns import FileColumns

_NULL = "__HIVE_DEFAULT_PARTITION__"
# Iceberg's name of the folder of NULL, which is also a text.
_NULL_TEXT = "null"
_ORDERED = (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
_HINT = "load its rows with `lake ingest` instead, which divides them by partition"


def folder_values(path: str, unquoted: Callable[[str], str] = unquote) -> dict[str, str]:
    """Return the values of the folders ``column=value`` in a path.

    Args:
        path: the path.
        unquoted: how a value is unquoted.

    Raises:
        RefusedError: two folders name one column.
    """
    found: dict[str, str] = {}
    for part in path.split("/")[:-1]:
        name, mark, value = part.partition("=")
        if not mark or not name:
            continue
        if unquote(name) in found:
            raise RefusedError(f"{path} has several folders for the column {unquote(name)}")
        found[unquote(name)] = unquoted(value)
    return found


def partition_of(
    spec: PartitionSpec, schema: Schema, columns: FileColumns, footer: TrustedFooter, path: str
) -> tuple[bytes | None, ...]:
    """Return the partition of a file, as single values.

    Raises:
        RefusedError: the file may have rows of several partitions, or its footer and folders do not show which.
    """
    folders = folder_values(path)
    finder = _Finder(schema, columns, footer, path, folders)
    finder.refuse_lost(spec)
    kinds = partition_type(spec, [schema]).fields
    return tuple(
        finder.value(item, kind.field_type) for item, kind in zip(spec.fields, kinds, strict=True)
    )


class _Finder:
    """Finds the partition values of one file."""

    def __init__(
        self,
        schema: Schema,
        columns: FileColumns,
        footer: TrustedFooter,
        path: str,
        folders: Mapping[str, str],
    ) -> None:
        self._schema, self._footer, self._path = schema, footer, path
        self._columns, self._folders = columns, folders
        self._leaves = {item.leaf.field_id: item for item in columns.leaves}

    def refuse_lost(self, spec: PartitionSpec) -> None:
        """Refuse a folder with the values of a column that neither the file nor the partition would have.

        Raises:
            RefusedError: the column would be read as NULL.
        """
        kept = {
            item.source_id for item in spec.fields if isinstance(item.transform, IdentityTransform)
        }
        for item in self._schema.fields:
            known = item.field_id in self._columns.tops or item.field_id in kept
            if item.name in self._folders and not known:
                raise RefusedError(
                    f"{self._path} has values of the column {item.name} in the name of its folder only, and the "
                    "table is not partitioned by it: they would be lost",
                    hint="load its rows with `lake ingest` instead",
                )

    def value(self, item: PartitionField, kind: Any) -> bytes | None:
        """Return the value of a partition field."""
        if isinstance(item.transform, VoidTransform):
            return None
        name = self._schema.find_column_name(item.source_id) or item.name
        folder = self._folders.get(name)
        if item.source_id not in self._leaves:
            return self._of_folder(item, name, folder, kind)
        ends = self._ends(item.source_id, name)
        if isinstance(item.transform, IdentityTransform) and folder is not None:
            self._compare(ends[0], folder, item.source_id, name)
        if len(ends.unique()) > 1 and not isinstance(item.transform, _ORDERED):
            raise self._several(name)
        batch = pa.RecordBatch.from_arrays([ends], names=[name])
        values = fitting(batch, self._schema, item.source_id, item.transform)
        first, last = single_values(typed(values, kind), kind)
        if first != last:
            raise self._several(name)
        return first

    def _of_folder(
        self, item: PartitionField, name: str, folder: str | None, kind: Any
    ) -> bytes | None:
        if folder is None or not isinstance(item.transform, IdentityTransform):
            raise RefusedError(
                f"{self._path} has no column {name}, and no folder {name}=VALUE: its partition is not known",
                hint=_HINT,
            )
        if folder == _NULL:
            if self._schema.find_field(item.source_id).required:
                raise RefusedError(f"{self._path} has NULL in the required column {name}")
            return None
        if folder == _NULL_TEXT:
            raise RefusedError(
                f"{self._path} is in a folder {name}=null, which means NULL or the text null",
                hint=_HINT,
            )
        found = single_values(self._parsed(folder, item.source_id, name), kind)
        return found[0]

    def _compare(self, stored: pa.Scalar, folder: str, source_id: int, name: str) -> None:
        """Compare the value of a column with that of its folder.

        Raises:
            RefusedError: they differ.
        """
        if not stored.is_valid:
            same = folder in {_NULL, _NULL_TEXT}
        else:
            # Iceberg writes a space as a plus; writers of Hive's folders quote neither.
            spaced = pa.scalar(folder_values(self._path, unquote_plus)[name])
            same = folder != _NULL and (
                self._parsed(folder, source_id, name)[0].equals(stored) or spaced.equals(stored)
            )
        if not same:
            raise RefusedError(
                f"{self._path} is in the folder {name}={folder}, but its column {name} has another value",
                hint=_HINT,
            )

    def _parsed(self, folder: str, source_id: int, name: str) -> pa.Array:
        kind = self._schema.find_type(source_id)
        # Writers of folders do not agree on a text for bytes.
        if not isinstance(kind, BinaryType | FixedType):
            column = pa.array([folder], pa.string())
            with suppress(BadInputError):
                return from_text(column, kind, ValueContext(name, self._path))
        raise RefusedError(
            f"{self._path} is in the folder {name}={folder}, which is not a value of the type {kind}",
            hint=_HINT,
        )

    def _ends(self, source_id: int, name: str) -> pa.Array:
        """Return the least and the greatest value of a column; two NULLs if it has only NULLs.

        Raises:
            RefusedError: they are not known, or the column has NULLs and values.
        """
        found = self._leaves[source_id]
        leaf: Leaf = found.leaf
        mode = Mode(counts=True, bounds=found.exact)
        metrics = self._footer.metrics([(found.position, leaf)], {source_id: mode})
        nulls = metrics.null_value_counts.get(source_id)
        bounds = [metrics.lower_bounds.get(source_id), metrics.upper_bounds.get(source_id)]
        if nulls is not None and nulls == self._footer.metadata.num_rows:
            bounds = [None, None]
        elif nulls is None or None in bounds or isinstance(leaf.kind, FloatType | DoubleType):
            # A footer neither counts NaN nor distinguishes 0.0 from -0.0.
            raise RefusedError(
                f"the footer of {self._path} does not show the values of the column {name}: its partition is not "
                "known",
                hint=_HINT,
            )
        elif nulls:
            raise self._several(name)
        ends = decode_bounds(pa.array(bounds, pa.binary()), leaf.kind)
        if bounds[0] is not None and ends.null_count:
            raise RefusedError(f"the bounds of the column {name} of {self._path} cannot be read")
        return ends

    def _several(self, name: str) -> RefusedError:
        return RefusedError(
            f"{self._path} may have rows of several partitions: its column {name} has several values",
            hint=_HINT,
        )
