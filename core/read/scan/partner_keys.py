"""The keys of a scan's partners: read once, from a table at one snapshot or from files."""

from __future__ import annotations

import os
import re
import tempfile
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
)

from lake.core.base.choices import Overflow
from lake.core.base.errors import InvalidRequestError, RefusedError, unknown_column
from lake.core.base.options import Option
from lake.core.base.units import format_size
from lake.core.data.keys.extraction import columns_of, cut
from lake.core.data.keys.key_set import (
    KeyCollector,
    is_key_type,
    normal_keys,
    without_nulls,
)
from lake.core.data.rows.reader import prefetch
from lake.core.data.sources.batches import source_batches, source_columns
from lake.core.data.sources.discovery import Source, find_sources, has_known_format
from lake.core.data.sources.sniffing import with_format
from lake.core.data.sources.text_format import AS_SHOWN
from lake.core.io.storage.storage import Storage
from lake.core.read.scan.execute import ScanRows
from lake.core.read.scan.plan import ScanOptions, plan_scan, scan_schema, scan_snapshot
from lake.core.read.scan.scan_keys import KeySource, ScanKeys
from lake.core.spec.types.arrow_schema import field_path
from lake.core.spec.types.single_values import arrow_type
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.session import Session

_TABLE = re.compile(r"(?P<table>\S+?)(@(?P<ref>\S+))?(\s+where\s+(?P<where>.+))?", re.I | re.S)
# The table or the files, and the table's snapshot.
_SourceName = tuple[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """How a scan is pruned by the keys of its partners.

    Args:
        prune_with: a table ``NS.T[@REF] [where EXPR]``, or a file, folder or glob.
        on: pairs of a column of the scanned table and a column of the source.
        prune_limit: the most bytes of distinct keys that are kept; 0 for no limit.
        prune_overflow: what happens if there are more.
        matching: test every row.
        no_prune: skip no files and row groups.
        ignore_case: whether names of columns match in any case.

    Raises:
        InvalidRequestError: a column is named twice, or no column is named.
    """

    prune_with: str
    on: Sequence[tuple[str, str]]
    prune_limit: int = 8 << 20
    prune_overflow: Overflow = Overflow.RANGE
    matching: bool = False
    no_prune: bool = False
    ignore_case: bool = False

    def __post_init__(self) -> None:
        facts = [fact for fact, _ in self.on]
        if not facts or len(set(facts)) < len(facts):
            raise InvalidRequestError(f"{Option.ON} must name each column of the table once")

    def to_plain(self) -> list[Any]:
        """Return the options as JSON-ready values, to compare them with those of another run."""
        pairs = [list(pair) for pair in self.on]
        how = [self.prune_overflow.value, self.matching, not self.no_prune]
        return [self.prune_with, pairs, self.prune_limit, *how]


@contextmanager
def partner_keys(
    session: Session, table: Table, schema: Schema, options: KeyOptions
) -> Iterator[ScanKeys]:
    """Read the keys. They can be used until the context ends.

    Raises:
        InvalidRequestError: columns of a pair have different types.
        NotFoundError: a table, file or column does not exist.
        BadInputError: a value of a file does not match its column, or the filter is not valid.
        RefusedError: there are more keys than the limit, and the options refuse that.
    """
    types = _fact_types(schema, options)
    kept = _AllKeys()
    spill = kept.add if options.matching else None
    collector = KeyCollector(types, options.prune_limit, spill)
    try:
        source, batches = _source(session, table, types, options)
        for batch in prefetch(batches):
            keys = without_nulls(batch)
            collector.add(keys)
            if collector.overflowed and options.prune_overflow is Overflow.FAIL:
                raise RefusedError(
                    f"the keys of {options.prune_with} have more than {format_size(options.prune_limit)}",
                    hint=f"raise {Option.PRUNE_LIMIT}, or choose {Option.PRUNE_OVERFLOW} range",
                )
        yield _scan_keys(collector, kept, source, options)
    finally:
        kept.close()


class _AllKeys:
    """A file with all keys, in case that they are more than the limit and rows are tested."""

    def __init__(self) -> None:
        self.path: str | None = None
        self._open = ExitStack()
        self._writer: Any = None

    def add(self, keys: pa.RecordBatch) -> None:
        if self._writer is None:
            number, self.path = tempfile.mkstemp(prefix="lake-keys-", suffix=".arrow")
            file = self._open.enter_context(os.fdopen(number, "wb"))
            self._writer = self._open.enter_context(pa.ipc.new_file(file, keys.schema))
        self._writer.write_batch(keys)

    def finish(self) -> str | None:
        self._open.close()
        return self.path

    def close(self) -> None:
        self._open.close()
        if self.path is not None:
            os.unlink(self.path)


def _scan_keys(
    collector: KeyCollector, kept: _AllKeys, source: _SourceName, options: KeyOptions
) -> ScanKeys:
    dimension, snapshot_id = source
    keys = collector.finish()
    reasons, warnings = [], []
    if collector.overflowed:
        limit = format_size(options.prune_limit)
        effect = (
            "only their ranges exclude files"
            if options.prune_overflow is Overflow.RANGE
            else "they exclude no file"
        )
        reasons.append(f"the keys have more than {limit}: {effect}")
        warnings.append(
            f"the keys of {options.prune_with} have more than {limit}: {effect} "
            f"({Option.PRUNE_LIMIT} sets the limit)"
        )
    if options.no_prune:
        reasons.append("pruning is off")
    prunes = not options.no_prune and (keys.exact or options.prune_overflow is Overflow.RANGE)
    known = "exact" if keys.exact else "range"
    return ScanKeys(
        types=collector.types,
        keys=keys,
        prunes=prunes,
        matching=options.matching,
        path=kept.finish(),
        source=KeySource(
            status=known if prunes else "none",
            dimension=dimension,
            dimension_snapshot_id=snapshot_id,
            keys=len(keys) if keys.exact else None,
            key_bytes=collector.size_bytes,
            limit_bytes=options.prune_limit,
        ),
        warnings=warnings,
        reasons=reasons,
    )


# Columns


def _fact_types(schema: Schema, options: KeyOptions) -> dict[int, IcebergType]:
    """Return the types of the key's columns by their ids."""
    found = {}
    for name, _ in options.on:
        item = _column(schema, name, options, "the table")
        found[item.field_id] = item.field_type
    if len(found) < len(options.on):
        raise InvalidRequestError(f"{Option.ON} must name each column of the table once")
    return found


def _column(schema: Schema, name: str, options: KeyOptions, where: str) -> NestedField:
    try:
        item = schema.find_field(name, case_sensitive=not options.ignore_case)
    except ValueError as error:
        raise unknown_column(name, schema.column_names, where) from error
    if field_path(schema, item.field_id) is None or not is_key_type(item.field_type):
        raise InvalidRequestError(
            f"{name} is {type_text(item.field_type)}: {Option.ON} takes columns of primitive types "
            "that are not inside lists or maps"
        )
    return item


def _check_pair(fact: IcebergType, partner: IcebergType, pair: tuple[str, str]) -> None:
    """Refuse columns of which neither can be promoted to the other.

    Raises:
        InvalidRequestError: the types are different.
    """
    if fact == partner:
        return
    numbers = [(IntegerType, LongType), (FloatType, DoubleType)]
    if any(isinstance(fact, kinds) and isinstance(partner, kinds) for kinds in numbers):
        return
    decimals = isinstance(fact, DecimalType) and isinstance(partner, DecimalType)
    if decimals and fact.scale == partner.scale:  # type: ignore[attr-defined]
        return
    left, right = pair
    raise InvalidRequestError(
        f"{left} is {type_text(fact)}, but {right} is {type_text(partner)}: "
        f"{Option.ON} needs columns of the same type"
    )


def _in_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column of a pair in the table's type; NULL for values that the type does not have."""
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if column.type == kind:
        return column
    if pa.types.is_integer(kind):
        inside = _between(column, kind)
        return pc.if_else(inside, column, pa.scalar(None, column.type)).cast(kind)
    if pa.types.is_floating(kind):
        narrow = column.cast(kind, safe=False)
        same = pc.or_(pc.equal(narrow.cast(column.type), column), pc.is_nan(column))
        return pc.if_else(same, narrow, pa.scalar(None, kind))
    if column.type.precision > kind.precision:
        limit = pa.scalar(Decimal(10 ** (kind.precision - kind.scale)), column.type)
        fits = pc.less(pc.abs(column), limit)
        column = pc.if_else(fits, column, pa.scalar(None, column.type))
    return column.cast(kind)


def _between(column: pa.Array, kind: pa.DataType) -> pa.BooleanArray:
    bits = kind.bit_width - 1
    least, most = (pa.scalar(value, pa.int64()) for value in (-(2**bits), 2**bits - 1))
    wide = column.cast(pa.int64())
    return pc.and_(pc.greater_equal(wide, least), pc.less_equal(wide, most))


# Sources


def _source(
    session: Session, table: Table, types: Mapping[int, IcebergType], options: KeyOptions
) -> tuple[_SourceName, Iterator[pa.RecordBatch]]:
    """Return the source, and batches of its keys."""
    if _names_files(options.prune_with):
        return (options.prune_with, None), _file_keys(table.storage, types, options)
    return _table_keys(session, types, options)


def _names_files(source: str) -> bool:
    """Whether a source is the name of a file, folder or glob: it has a slash, exists, or ends like a file."""
    words = source.split()
    if os.path.exists(source):
        return True
    return len(words) == 1 and ("/" in source or has_known_format(source))


def source_version(session: Session, options: KeyOptions) -> Hashable | None:
    """Return a value that differs if the source has other keys than before; None if files are the source.

    Raises:
        NotFoundError: the table or the snapshot does not exist.
        InvalidRequestError: the source is neither a table nor a file.
    """
    if _names_files(options.prune_with):
        return None
    partner, chosen = _partner(session, options)
    snapshot = scan_snapshot(partner, chosen)
    return (
        partner.metadata.table_uuid,
        None if snapshot is None else snapshot.snapshot_id,
        scan_schema(partner, chosen),
    )


def _partner(session: Session, options: KeyOptions) -> tuple[Table, ScanOptions]:
    """Return the table that is the source, and how it is read."""
    parsed = _TABLE.fullmatch(options.prune_with.strip())
    if parsed is None:
        raise InvalidRequestError(
            f"{options.prune_with!r} is neither a table nor a file",
            hint="write \"NS.TABLE where country = 'NZ'\", or the path of a file",
        )
    partner = session.table(parsed["table"])
    snapshot = parsed["ref"]
    if snapshot is not None and snapshot not in partner.metadata.refs and not snapshot.isdecimal():
        snapshot = f"@{snapshot}"
    chosen = ScanOptions(
        snapshot=snapshot,
        where=parsed["where"],
        select=list(dict.fromkeys(name for _, name in options.on)),
        ignore_case=options.ignore_case,
    )
    return partner, chosen


def _table_keys(
    session: Session, types: Mapping[int, IcebergType], options: KeyOptions
) -> tuple[_SourceName, Iterator[pa.RecordBatch]]:
    partner, chosen = _partner(session, options)
    plan = plan_scan(partner, chosen, engine_of=session.planning_engine)
    columns = [_column(plan.schema, name, options, partner.identifier) for _, name in options.on]
    for fact, item, pair in zip(types.values(), columns, options.on, strict=True):
        _check_pair(fact, item.field_type, pair)
    snapshot_id = None if plan.snapshot is None else str(plan.snapshot.snapshot_id)
    paths = columns_of(plan.projection, [item.field_id for item in columns])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in ScanRows(plan).stream(Counter()):
            yield _keys(cut(batch, paths).columns, types)

    return (partner.identifier, snapshot_id), batches()


def _keys(columns: Sequence[pa.Array], types: Mapping[int, IcebergType]) -> pa.RecordBatch:
    kinds = [arrow_type(kind) for kind in types.values()]
    return normal_keys(
        [_in_type(column, kind) for column, kind in zip(columns, kinds, strict=True)], types
    )


def _file_keys(
    storage: Storage, types: Mapping[int, IcebergType], options: KeyOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the keys of files; their columns have the types of the table's columns."""
    columns = dict(zip([name for _, name in options.on], types.values(), strict=True))
    schema = Schema(
        *(
            NestedField(number, name, kind, required=False)
            for number, (name, kind) in enumerate(columns.items(), 1)
        )
    )
    for file in find_sources(storage, [options.prune_with], None):
        source, _ = with_format(storage, file, AS_SHOWN, list(columns))
        _check_columns(storage, source, schema)
        for batch in source_batches(storage, source, schema):
            found = [batch.column(name) for _, name in options.on]
            yield _keys(found, types)


def _check_columns(storage: Storage, source: Source, schema: Schema) -> None:
    found = source_columns(storage, source, schema, infer=True)
    if found is None:
        return
    for item in schema.fields:
        if item.name not in found.names:
            raise unknown_column(item.name, found.names, source.path)
