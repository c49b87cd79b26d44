"""Whether the entries of a temporary manifest can be a table's, and are what a sink writes.

Nothing of them is believed: a manifest may be another table's, damaged, or made to mislead.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema, index_by_id

from lake.core.errors import CorruptFileError
from lake.core.locations import MAX_LOCATION
from lake.core.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES
from lake.core.manifests.schemas import ADDED
from lake.core.snapshots.delete_scopes import PUFFIN
from lake.core.storage.location_columns import normalize_locations

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.avro.container import Container
    from lake.core.catalogs.catalog import Table

_MAX_BYTES = 1 << 62
_FORMATS = pa.array(["PARQUET", "AVRO", "ORC", PUFFIN])
# Where writers put data files beside a table's own roots; tables may share such a place.
_SHARED_ROOTS = ("write.object-storage.path", "write.folder-storage.path")


def defect(entries: pa.Table) -> str | None:
    """Say what is wrong with entries that decode; None if nothing is."""
    vectors = pc.equal(entries["file_format"], PUFFIN)
    equality = pc.equal(entries["content"], EQUALITY_DELETES)
    placed = pc.and_(
        _is_place(entries["content_offset"]), _is_place(entries["content_size_in_bytes"])
    )
    no_place = pc.or_(pc.invert(placed), pc.is_null(entries["referenced_data_file"]))
    no_ids = pc.equal(pc.fill_null(pc.list_value_length(entries["equality_ids"]), 0), 0)
    plain = entries.filter(pc.invert(vectors))["file_path"]
    checks = {
        "holds an entry that is not an added file": pc.not_equal(entries["status"], ADDED),
        "holds a file of an unknown format": pc.invert(
            pc.is_in(entries["file_format"], value_set=_FORMATS)
        ),
        "holds a file with an impossible name": pc.or_(
            pc.greater(pc.utf8_length(entries["file_path"]), MAX_LOCATION),
            pc.match_substring(entries["file_path"], "\x00"),
        ),
        "holds an encrypted file, which lake does not read": pc.is_valid(entries["key_metadata"]),
        "holds a deletion vector among other files": pc.and_(
            vectors, pc.not_equal(entries["content"], POSITION_DELETES)
        ),
        "holds a deletion vector without its place": pc.and_(vectors, no_place),
        "holds equality deletes without their columns": pc.and_(equality, no_ids),
        "names a file twice": pa.array([pc.count_distinct(plain).as_py() < len(plain)]),
    }
    return next((what for what, bad in checks.items() if pc.any(bad, min_count=0).as_py()), None)


def _is_place(column: Any) -> Any:
    known = pc.fill_null(column, -1)
    return pc.and_(pc.greater_equal(known, 0), pc.less(known, _MAX_BYTES))


def outside(table: Table, locations: Any) -> str | None:
    """Say which file lies outside the table, or is called oddly; None if none does."""
    chosen = (table.properties.get(key) for key in _SHARED_ROOTS)
    roots = normalize_locations(
        pa.array([*table.roots, *(root for root in chosen if root)], pa.string())
    )
    folded = normalize_locations(locations)
    inside = pc.equal(folded, "")
    for root in roots.to_pylist():
        inside = pc.or_(inside, pc.starts_with(folded, root.rstrip("/") + "/"))
    inside = pc.and_(inside, pc.invert(pc.match_substring_regex(folded, r"(^|/)\.\.?(/|$)")))
    odd = pc.filter(locations, pc.invert(inside))
    return f"{odd[0].as_py()} lies outside the table" if len(odd) else None


def other_schema(metadata: TableMetadata, written: Schema) -> str | None:
    """Say which column of a manifest's schema the table never had; None if it had them all."""
    if written.fields in [schema.fields for schema in metadata.schemas]:
        return None
    known: dict[int, set[str]] = {}
    for schema in metadata.schemas:
        for field_id, kind in _columns(schema).items():
            known.setdefault(field_id, set()).add(kind)
    for field_id, kind in _columns(written).items():
        # A column may be gone from every schema that is kept, but never be another one.
        kinds = known.get(field_id)
        if field_id > metadata.last_column_id or (kinds and not _may_become(kind, kinds)):
            return f"its column {field_id} ({kind}) was never one of the table"
    return None


def _columns(schema: Schema) -> dict[int, str]:
    """Return the kinds of types by field id."""
    return {
        field_id: type(field.field_type).__name__ for field_id, field in index_by_id(schema).items()
    }


def schema_of(container: Container) -> Schema:
    """Return the schema in a manifest's header.

    Raises:
        CorruptFileError: there is none.
    """
    try:
        return _parsed(container.metadata["schema"])
    except (KeyError, ValueError, ValidationError, RecursionError) as error:
        raise CorruptFileError(f"{container.name} has no usable schema in its header") from error


@lru_cache(maxsize=16)
def _parsed(text: bytes) -> Schema:
    schema = Schema.model_validate_json(text)
    if not _columns(schema):
        raise ValueError("a schema without columns")
    return schema


def _may_become(kind: str, kinds: set[str]) -> bool:
    """Whether a column of a type may be one of other types, or have been promoted to one."""
    wider = {
        "IntegerType": {"LongType"},
        "FloatType": {"DoubleType"},
        "DateType": {"TimestampType", "TimestampNanoType"},
    }
    return kind == "UnknownType" or bool(kinds & ({kind} | wider.get(kind, set())))
