"""Iceberg's types as Spark's, and the exact Arrow types in which Spark takes their values from Python.

Spark 4.2 and later refuse a batch whose types, nullability and time zone are not exactly these.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark

from lake.core.base.errors import RefusedError
from lake.core.spec.types.arrow_schema import parts_of

# Spark 4.0 has no type for a time of day.
_TIME = getattr(spark, "TimeType", None)
_TYPES: Mapping[IcebergType, tuple[spark.DataType, pa.DataType]] = {
    BooleanType(): (spark.BooleanType(), pa.bool_()),
    IntegerType(): (spark.IntegerType(), pa.int32()),
    LongType(): (spark.LongType(), pa.int64()),
    FloatType(): (spark.FloatType(), pa.float32()),
    DoubleType(): (spark.DoubleType(), pa.float64()),
    DateType(): (spark.DateType(), pa.date32()),
    StringType(): (spark.StringType(), pa.string()),
    BinaryType(): (spark.BinaryType(), pa.binary()),
    UUIDType(): (spark.StringType(), pa.string()),
    TimestamptzType(): (spark.TimestampType(), pa.timestamp("us", tz="UTC")),
    TimestampType(): (spark.TimestampNTZType(), pa.timestamp("us")),
    **({TimeType(): (_TIME(), pa.time64("ns"))} if _TIME else {}),
}


def spark_schema(schema: Schema) -> spark.StructType:
    """Return the schema of a DataFrame with a table's columns.

    Raises:
        RefusedError: a column has a type that Spark does not have, or does not take from Python.
    """
    return _spark_struct(schema.fields, "")


def _spark_struct(fields: Sequence[NestedField], path: str) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(item.name, _spark_type(item, path), nullable=item.optional)
            for item in fields
        ]
    )


def _spark_type(field: NestedField, path: str) -> spark.DataType:
    kind, name = field.field_type, f"{path}{field.name}"
    if isinstance(kind, StructType):
        return _spark_struct(kind.fields, f"{name}.")
    if isinstance(kind, ListType):
        element = _spark_type(kind.element_field, f"{name}.")
        return spark.ArrayType(element, containsNull=kind.element_field.optional)
    if isinstance(kind, MapType):
        key, value = (_spark_type(item, f"{name}.") for item in (kind.key_field, kind.value_field))
        return spark.MapType(key, value, valueContainsNull=kind.value_field.optional)
    if isinstance(kind, DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return spark.BinaryType()
    if kind in _TYPES and not (path and isinstance(kind, UUIDType)):
        return _TYPES[kind][0]
    raise RefusedError(
        f"column {name} is of the type {kind}, which this Spark does not take from Python",
        hint="name other columns in the option select",
    )


def batch_of(batch: pa.RecordBatch, schema: Schema, frame: spark.StructType) -> pa.RecordBatch:
    """Return rows that were read with a schema as a DataFrame takes them, whose columns may be NULL more often."""
    wanted = pa.schema(
        [
            _arrow_field(item).with_nullable(column.nullable)
            for item, column in zip(schema.fields, frame.fields, strict=True)
        ]
    )
    columns = [
        _uuid_texts(column) if isinstance(item.field_type, UUIDType) else column.cast(field.type)
        for column, item, field in zip(batch.columns, schema.fields, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _arrow_field(field: NestedField) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.field_type), nullable=field.optional)


def _arrow_type(kind: IcebergType) -> pa.DataType:
    fields = [_arrow_field(item) for item in parts_of(kind)]
    if isinstance(kind, StructType):
        return pa.struct(fields)
    if isinstance(kind, ListType):
        return pa.list_(fields[0])
    if isinstance(kind, MapType):
        return pa.map_(*fields)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary() if isinstance(kind, FixedType) else _TYPES[kind][1]


def _uuid_texts(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
    return pa.array(texts, pa.string())
