"""Check that the entries of a temporary manifest can belong to a table and are as a sink writes them.

They are untrusted: a manifest may be another table's, damaged, or malicious.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema, index_by_id

from lake.core.base.errors import CorruptFileError
from lake.core.base.locations import MAX_LOCATION
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES
from lake.core.table.manifests.schemas import ADDED
from lake.core.table.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.avro.container import Container
    from lake.core.table.catalogs.catalog import Table

_MAX_BYTES = 1 << 62
_FORMATS = pa.array(["PARQUET", "AVRO", "ORC", PUFFIN])
# Properties with further folders for data files; several tables may share such a folder.
_SHARED_ROOTS = ("write.object-storage.path", "write.folder-storage.path")


def defect(entries: pa.Table) -> str | None:
    """Return what is wrong with decoded entries; None if nothing is."""
    vectors = pc.equal(entries["file_format"], PUFFIN)
    equality = pc.equal(entries["content"], EQUALITY_DELETES)
    located = pc.and_(
        _is_offset(entries["content_offset"]), _is_offset(entries["content_size_in_bytes"])
    )
    not_located = pc.or_(pc.invert(located), pc.is_null(entries["referenced_data_file"]))
    no_ids = pc.equal(pc.fill_null(pc.list_value_length(entries["equality_ids"]), 0), 0)
    plain = entries.filter(pc.invert(vectors))["file_path"]
    checks = {
        "contains an entry that is not an added file": pc.not_equal(entries["status"], ADDED),
        "contains a file of an unknown format": pc.invert(
            pc.is_in(entries["file_format"], value_set=_FORMATS)
        ),
        "contains a file with an invalid name": pc.or_(
            pc.greater(pc.utf8_length(entries["file_path"]), MAX_LOCATION),
            pc.match_substring(entries["file_path"], "\x00"),
        ),
        "contains an encrypted file, which lake does not read": pc.is_valid(
            entries["key_metadata"]
        ),
        "contains a deletion vector that is not a position delete file": pc.and_(
            vectors, pc.not_equal(entries["content"], POSITION_DELETES)
        ),
        "contains a deletion vector without its offset, size or data file": pc.and_(
            vectors, not_located
        ),
        "contains equality deletes without their columns": pc.and_(equality, no_ids),
        "names a file twice": pa.array([pc.count_distinct(plain).as_py() < len(plain)]),
    }
    return next((what for what, bad in checks.items() if pc.any(bad, min_count=0).as_py()), None)


def _is_offset(column: Any) -> Any:
    known = pc.fill_null(column, -1)
    return pc.and_(pc.greater_equal(known, 0), pc.less(known, _MAX_BYTES))


def outside(table: Table, locations: Any) -> str | None:
    """Return a message about a file outside the table's folders or with `..` in its name, else None."""
    chosen = (table.properties.get(key) for key in _SHARED_ROOTS)
    roots = normalize_locations(
        pa.array([*table.roots, *(root for root in chosen if root)], pa.string())
    )
    folded = normalize_locations(locations)
    inside = pc.equal(folded, "")
    for root in roots.to_pylist():
        inside = pc.or_(inside, pc.starts_with(folded, root.rstrip("/") + "/"))
    inside = pc.and_(inside, pc.invert(pc.match_substring_regex(folded, r"(^|/)\.\.?(/|$)")))
    strays = pc.filter(locations, pc.invert(inside))
    return f"{strays[0].as_py()} is outside the table's folders" if len(strays) else None


def other_schema(metadata: TableMetadata, written: Schema) -> str | None:
    """Return a message about a column that the table never had; None if it had them all."""
    if written.fields in [schema.fields for schema in metadata.schemas]:
        return None
    known: dict[int, set[str]] = {}
    for schema in metadata.schemas:
        for field_id, type_name in _columns(schema).items():
            known.setdefault(field_id, set()).add(type_name)
    for field_id, type_name in _columns(written).items():
        # A column may be missing in every retained schema, but cannot have another type.
        type_names = known.get(field_id)
        if field_id > metadata.last_column_id or (
            type_names and not _may_become(type_name, type_names)
        ):
            return f"the table never had its column {field_id} ({type_name})"
    return None


def _columns(schema: Schema) -> dict[int, str]:
    """Return the names of the type classes by field id."""
    return {
        field_id: type(field.field_type).__name__ for field_id, field in index_by_id(schema).items()
    }


def schema_of(container: Container) -> Schema:
    """Return the schema in a manifest's header.

    Raises:
        CorruptFileError: it has no valid schema.
    """
    try:
        return _parsed(container.metadata["schema"])
    except (KeyError, ValueError, ValidationError, RecursionError) as error:
        raise CorruptFileError(f"{container.name} has no valid schema in its header") from error


@lru_cache(maxsize=16)
def _parsed(text: bytes) -> Schema:
    schema = Schema.model_validate_json(text)
    if not _columns(schema):
        raise ValueError("a schema without columns")
    return schema


def _may_become(type_name: str, type_names: set[str]) -> bool:
    """Whether a column of a type is or may have been promoted to one of the other types."""
    wider = {
        "IntegerType": {"LongType"},
        "FloatType": {"DoubleType"},
        "DateType": {"TimestampType", "TimestampNanoType"},
    }
    return type_name == "UnknownType" or bool(
        type_names & ({type_name} | wider.get(type_name, set()))
    )
