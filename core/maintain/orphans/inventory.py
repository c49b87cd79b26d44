"""Read an inventory of an object store in place of listing a table's folders.

An inventory is one of these:

- a Parquet, ORC or CSV file with the columns ``path``, ``size`` and ``last_modified``, or a folder of such files;
- the ``manifest.json`` of an S3 inventory, whose files are in the folder ``data`` beside the manifest's folder.

Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html. Keys in its CSV files
are encoded as in URLs; those in Parquet and ORC files are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lake.core.base import locations
from lake.core.base.errors import BadInputError
from lake.core.data.formats.orc.reader import open_orc
from lake.core.data.formats.parquet.footer import open_parquet
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.store_listing import LISTING
from lake.core.spec.types.type_text import type_text

if TYPE_CHECKING:
    from lake.core.io.storage.storage import Storage

_PLAIN = ("path", "size", "last_modified")
# The columns of an S3 inventory, in lower case and without separators, as its formats spell them differently.
_OBJECT = ("bucket", "key", "size", "lastmodifieddate")
_LATEST, _MARKER = "islatest", "isdeletemarker"
_MANIFEST = "manifest.json"
_ENDINGS = (".parquet", ".orc", ".csv", ".csv.gz")
_MANIFEST_BYTES = 64 * 1024 * 1024
_BATCH_ROWS = 8192
_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class _Part:
    """A file of an inventory.

    Args:
        location: the file's.
        names: the columns of a CSV file that has no header.
        encoded: whether keys are encoded as in URLs.
    """

    location: str
    names: Sequence[str] | None = None
    encoded: bool = False


def read_inventory(storage: Storage, location: str) -> Iterator[pa.Table]:
    """Yield the files of an inventory in batches (`LISTING`); deleted and earlier versions are left out.

    Args:
        storage: opens the inventory.
        location: a file, a folder or a ``manifest.json``.

    Raises:
        BadInputError: the inventory cannot be read, or a row has no path or no size, or a negative one.
        NotFoundError: a file is missing.
    """
    for part in _parts(storage, location):
        try:
            with translate_errors(part.location):
                for batch in _batches(storage, part):
                    yield _rows(batch, part)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise BadInputError(
                f"{part.location} cannot be read as an inventory: {error}"
            ) from error


def _parts(storage: Storage, location: str) -> list[_Part]:
    name = location.rstrip("/").rpartition("/")[2]
    if name == _MANIFEST:
        return list(_of_manifest(storage, location))
    if name.endswith(_ENDINGS) and not storage.is_folder(location):
        return [_Part(location)]
    found = [
        _Part(file.location)
        for file in storage.list_files(location)
        if file.location.endswith(_ENDINGS)
    ]
    if not found:
        raise BadInputError(
            f"{location} contains no inventory",
            hint=f"name a {_MANIFEST}, a file that ends in {', '.join(_ENDINGS)}, or a folder of such files",
        )
    return found


def _of_manifest(storage: Storage, location: str) -> Iterator[_Part]:
    try:
        document = json.loads(storage.read(location, limit=_MANIFEST_BYTES))
        schema, form = str(document["fileSchema"]), str(document["fileFormat"]).upper()
        keys = [str(file["key"]) for file in document["files"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadInputError(f"{location} is not the manifest of an S3 inventory") from error
    folder = location.rpartition("/")[0].rpartition("/")[0]
    is_csv = form == "CSV"
    names = [_column(name) for name in schema.split(",")] if is_csv else None
    for key in keys:
        path = locations.join(folder, "data", key.rpartition("/")[2])
        if not path.endswith(_ENDINGS):
            raise BadInputError(f"{location} names a file of an unknown format: {key}")
        yield _Part(path, names, encoded=is_csv)


def _batches(storage: Storage, part: _Part) -> Iterator[pa.RecordBatch]:
    with storage.open_source(part.location) as source:
        if part.location.endswith(".parquet"):
            parquet, _ = open_parquet(source, part.location)
            yield from parquet.iter_batches(_BATCH_ROWS)
        elif part.location.endswith(".orc"):
            orc = open_orc(source)
            for stripe in range(orc.nstripes):
                yield orc.read_stripe(stripe)
        else:
            stream = (
                pa.CompressedInputStream(source, "gzip")
                if part.location.endswith(".gz")
                else source
            )
            reading = pacsv.ReadOptions(column_names=part.names, use_threads=False)
            texts = {name: pa.string() for name in (*_PLAIN, *_OBJECT, _LATEST, _MARKER)}
            yield from pacsv.open_csv(
                stream,
                read_options=reading,
                convert_options=pacsv.ConvertOptions(column_types=texts, strings_can_be_null=True),
            )


def _rows(batch: pa.RecordBatch, part: _Part) -> pa.Table:
    """Return the current objects of a batch."""
    columns = {
        _column(name): batch.column(number) for number, name in enumerate(batch.schema.names)
    }
    if all(_column(name) in columns for name in _PLAIN):
        path, size, time = (columns[_column(name)] for name in _PLAIN)
        paths = _texts(path)
    elif all(name in columns for name in _OBJECT):
        bucket, key, size, time = (columns[name] for name in _OBJECT)
        keys = _texts(key)
        if part.encoded:
            keys = pa.array([text and unquote_plus(text) for text in keys.to_pylist()], pa.string())
        paths = pc.binary_join_element_wise("s3:/", _texts(bucket), keys, "/")
    else:
        raise BadInputError(
            f"{part.location} is not an inventory: it has the columns {', '.join(batch.schema.names)}",
            hint=f"it needs {', '.join(_PLAIN)}",
        )
    table = pa.table([paths, pc.cast(size, pa.int64()), _times(time)], schema=LISTING)
    table = table.filter(_is_current(columns, batch.num_rows))
    longest = pc.max(pc.binary_length(table["path"])).as_py() or 0
    if longest > locations.MAX_LOCATION:
        raise BadInputError(f"{part.location} has a path of {longest} bytes")
    is_bad = pc.less(table["bytes"], 0)
    if table["path"].null_count or is_bad.null_count or pc.any(is_bad, min_count=0).as_py():
        raise BadInputError(
            f"{part.location} has a row without a path or a size, or with a negative size"
        )
    return table


def _is_current(columns: dict[str, Any], rows: int) -> pa.Array:
    """Return which rows are the newest version of an object that exists; a bucket may have versions."""
    current = pa.array([True] * rows, pa.bool_())
    if _LATEST in columns:
        current = pc.and_(current, pc.fill_null(_flags(columns[_LATEST]), fill_value=True))
    if _MARKER in columns:
        is_marker = pc.fill_null(_flags(columns[_MARKER]), fill_value=False)
        current = pc.and_(current, pc.invert(is_marker))
    return current


def _flags(column: Any) -> Any:
    return pc.cast(column, pa.bool_())


def _texts(column: Any) -> Any:
    return pc.cast(column, pa.string())


def _times(column: Any) -> Any:
    """Return times as ms since 1970; those without a zone are UTC."""
    if not (pa.types.is_timestamp(column.type) or pa.types.is_string(column.type)):
        raise BadInputError(
            f"the times of an inventory have the type {type_text(column.type)}, not timestamp"
        )
    if pa.types.is_timestamp(column.type) and column.type.tz is None:
        column = pc.assume_timezone(column, "UTC")
    micros = pc.cast(pc.cast(column, _TIME, safe=False), pa.int64())
    return pc.divide(micros, 1000)


def _column(name: str) -> str:
    return name.strip().lower().replace("_", "").replace(" ", "")
