"""The manifests of one checkpoint in the format of the sinks' state.

Source: Iceberg's DeltaManifestsSerializer and ManifestFiles.encode.
"""

from __future__ import annotations

from typing import Any

from lake.core.base import locations
from lake.core.base.errors import BadInputError
from lake.core.table.flink.avro_datum import read_by_field_id
from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.state import ManifestReference
from lake.core.table.manifests.data_files import DATA

_ENCODED = b"\xc2\x01"
# A description has some kilobytes: its schema, and bounds of partition values.
_MAX_ENCODED = 16 * 1024 * 1024
_DATA_ONLY, _WITH_DELETES = 1, 2
_DELETES = 1
# Iceberg's field ids of a manifest file.
_PATH, _LENGTH, _SPEC_ID, _CONTENT, _ADDED_FILES, _ADDED_ROWS = 500, 501, 502, 517, 504, 512


def read_delta_manifests(source: ByteReader) -> tuple[ManifestReference, ...]:
    """Read a versioned DeltaManifests up to the last byte: the data manifest, then the delete manifest.

    Raises:
        CorruptFileError: the bytes are not DeltaManifests.
        RefusedError: they have an unknown version.
    """
    version = source.int32()
    if version not in (_DATA_ONLY, _WITH_DELETES):
        raise source.refused(f"DeltaManifests have the unknown version {version}")
    if source.int32() != source.remaining:
        raise source.corrupt("DeltaManifests do not have their declared length")
    if version == _DATA_ONLY:
        return (_manifest(source, DATA),)
    found = tuple(
        _manifest(source.reader(length), content)
        for content in (DATA, _DELETES)
        if (length := source.count(1))
    )
    for _ in range(source.count(2)):
        source.skip_text()
    source.expect_end()
    return found


def _manifest(source: ByteReader, content: int) -> ManifestReference:
    if source.remaining > _MAX_ENCODED or bytes(source.take(2)) != _ENCODED:
        raise source.corrupt("not an encoded manifest")
    values = read_by_field_id(source.text(), source)
    kept = values.get(_CONTENT, DATA)
    if kept != content:
        raise source.corrupt(f"a manifest has the content {kept!r} instead of {content}")
    path = values.get(_PATH)
    if not isinstance(path, str) or not _is_absolute(path):
        raise source.corrupt(f"a manifest has the invalid path {str(path)[:80]!r}")
    return ManifestReference(
        path=path,
        length=_number(values, _LENGTH, source),
        spec_id=_number(values, _SPEC_ID, source),
        content=content,
        added_files=_number_or_none(values, _ADDED_FILES, source),
        added_rows=_number_or_none(values, _ADDED_ROWS, source),
    )


def _is_absolute(path: str) -> bool:
    try:
        locations.parse(path)
    except BadInputError:
        return False
    return path.startswith("/") or ":/" in path


def _number_or_none(values: dict[int, Any], field_id: int, source: ByteReader) -> int | None:
    return None if values.get(field_id) is None else _number(values, field_id, source)


def _number(values: dict[int, Any], field_id: int, source: ByteReader) -> int:
    value = values.get(field_id)
    if not isinstance(value, int) or value < 0:
        raise source.corrupt(f"a manifest's field {field_id} is {str(value)[:40]}")
    return value
