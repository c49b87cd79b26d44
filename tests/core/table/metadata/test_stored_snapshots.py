"""Snapshots that are read alone are those that PyIceberg's models read, and are written as they were read."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.metadata import stored_snapshots
from lake.core.table.metadata.parser import parsed
from lake.core.table.metadata.stored_snapshots import StoredSummary
from lake.core.table.metadata.summaries import some_properties_of
from lake.core.table.metadata.text import bytes_of

Plain = dict[str, Any]

# Members and values of which some are valid, and some are not, or are only to one of two parsers.
_SCALARS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from(
        [None, True, 0, 1, -1, 1.0, 1.5, "1", "", "append", "ä\u2028", "\\u00e4", '"snapshots":[{']
    ),
)
_VALUES = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=1), st.dictionaries(st.just("x"), _SCALARS, max_size=1)
)
_NAMES = st.sampled_from(
    [
        *("snapshot-id", "parent-snapshot-id", "sequence-number", "timestamp-ms", "manifest-list"),
        *(
            "schema-id",
            "first-row-id",
            "added-rows",
            "snapshot_id",
            "schema_id",
            "other",
            "summary",
        ),
    ]
)
_SUMMARIES = st.dictionaries(
    st.sampled_from(["operation", "Operation", "self", "total-records", 'a"b', "ä", "snapshots"]),
    st.one_of(st.sampled_from(["append", "delete", "APPEND", "other"]), st.text(), _VALUES),
)
_EDITS = st.dictionaries(_NAMES, st.one_of(_VALUES, _SUMMARIES), max_size=2)


@pytest.fixture(autouse=True, scope="module")
def patched() -> None:
    pyiceberg_patches.apply_to_rest()


def document(edits: list[Plain], version: int = 2) -> Plain:
    usual = [
        {
            "snapshot-id": number,
            **({"parent-snapshot-id": number - 1} if number else {}),
            "sequence-number": number,
            "timestamp-ms": 1_700_000_000_000 + number,
            "manifest-list": f"file:///w/db/t/metadata/snap-{number}-ä.avro",
            "summary": {"operation": "append", "total-records": str(number), "text": 'ä"\\'},
            "schema-id": 0,
        }
        for number in range(len(edits))
    ]
    return {
        "format-version": version,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:///w/db/t",
        "last-sequence-number": len(edits),
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": {"a": '"snapshots": [{}]'},
        "snapshots": [{**one, **edit} for one, edit in zip(usual, edits, strict=True)],
        "snapshot-log": [
            {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]}
            for one in usual
        ],
    }


def outcome_of(read: Any, text: str) -> Any:
    try:
        return values(read(text))
    except Exception as error:
        return type(error), str(error)


def values(metadata: TableMetadata) -> Any:
    found = [
        {
            **vars(item),
            "summary": item.summary
            and (item.summary.operation, as_texts(item.summary.additional_properties)),
        }
        for item in metadata.snapshots
    ]
    return metadata.model_dump(exclude={"snapshots"}), found


def as_texts(properties: Plain) -> Plain:
    # The models keep other values until all metadata is checked.
    return {name: str(value) for name, value in properties.items()}


def is_stored(metadata: TableMetadata) -> bool:
    return isinstance(metadata.snapshots[0].summary, StoredSummary)


@given(st.lists(_EDITS, min_size=1, max_size=3), st.booleans(), st.sampled_from([50, 1000]))
@example([{"summary": {"operation": "append", "x": "\ud800"}}], False, 50)
@example([{"summary": {"operation": "append", "x": "\U0001f600"}}], False, 50)
@example([{"other": {"snapshots": [{}]}}], False, 50)
@example([{"summary": {"operation": "append", "x": "}, {" * 40}}, {}], False, 50)
@example([{"summary": {"operation": "append", "x": 1.50, "y": None, "z": [{}]}}, {}], False, 50)
@example([{"summary": {"operation": None}}], False, 50)
@example([{"summary": {"operation": "append", "self": "x"}}], False, 50)
@example([{"snapshot_id": 7}], False, 50)
@example([{"key-id": "k", "snapshot-id": True}], False, 50)
@example([{"sequence-number": None, "summary": None}, {"key-id": "k"}], False, 50)
def test_values_and_errors_are_those_of_the_models(
    edits: list[Plain], is_ascii: bool, window: int
) -> None:
    text = json.dumps(document(edits), ensure_ascii=is_ascii, indent=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_snapshots, "_PIECE", window)
        found = outcome_of(lambda given: parsed(given.encode(errors="surrogatepass")), text)
    with suppress(UnicodeEncodeError):
        text.encode()
        assert found == outcome_of(TableMetadataUtil.parse_raw, text)


@pytest.mark.parametrize(
    "entry",
    [{"snapshot-id": "1"}, {"timestamp-ms": 1.5}, {"timestamp-ms": None}, {"other": 1}, {}],
)
@pytest.mark.parametrize("window", [50, 1 << 20])
def test_the_log_of_snapshots_is_that_of_the_models_and_is_written_as_it_was_read(
    entry: Plain, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_snapshots, "_PIECE", window)
    plain = document([{}, {}, {}])
    plain["snapshot-log"][1] |= entry
    text = json.dumps(plain)
    found = outcome_of(lambda given: parsed(given.encode()), text)
    assert found == outcome_of(TableMetadataUtil.parse_raw, text)
    if entry in ({"other": 1}, {}):
        written = json.loads(bytes_of(parsed(text.encode())))
        assert written["snapshot-log"] == plain["snapshot-log"]
        assert written["snapshots"] == plain["snapshots"]


def test_another_list_with_the_name_of_the_log_is_not_taken_for_it() -> None:
    plain = document([{}, {}])
    other = json.dumps({"snapshot-log": [{"snapshot-id": 7, "timestamp-ms": 7}]})
    edited = f'{{"other": {other}, {json.dumps(plain)[1:]}'
    assert values(parsed(edited.encode())) == values(TableMetadataUtil.parse_raw(edited))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("window", [50, 1 << 20])
def test_snapshots_are_written_as_they_were_read(
    version: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = document([{"key-id": "k"}, {"other": 1.50}, {}], version)
    if version == 1:
        plain |= {"schema": plain["schemas"][0], "partition-spec": []}
    monkeypatch.setattr(stored_snapshots, "_PIECE", window)
    text = json.dumps(plain, ensure_ascii=False).replace("1.5}", "1.50}")
    metadata = parsed(text.encode())
    assert is_stored(metadata)
    new = Snapshot(snapshot_id=9, timestamp_ms=9, manifest_list="file:///w/x.avro")
    kept = [metadata.snapshots[2], metadata.snapshots[1], new]
    written = bytes_of(metadata.model_copy(update={"snapshots": kept}))
    assert json.loads(written)["snapshots"][:2] == [plain["snapshots"][2], plain["snapshots"][1]]
    assert b'"other": 1.50}' in written
    assert [item.snapshot_id for item in parsed(written).snapshots] == [2, 1, 9]


def test_other_lists_with_this_name_are_not_taken_for_the_snapshots() -> None:
    plain = document([{}, {}])
    text, other = json.dumps(plain), json.dumps({"snapshots": plain["snapshots"][:1]})
    for edited in (
        f'{{"other": {other}, {text[1:]}',
        f"{other[:-1]}, {text[1:]}",
        f"{text[:-1]}, {other[1:]}",
        text.replace('"total-records"', '"operation": "delete", "total-records"'),
        text.replace('"snapshot-id": 1,', '"snapshot-id": 7, "snapshot-id": 1,'),
    ):
        found = values(parsed(edited.encode()))
        assert found == values(TableMetadataUtil.parse_raw(edited))


@pytest.mark.parametrize("end", [1, 40, 300])
def test_a_text_that_ends_within_its_snapshots_is_refused_as_by_the_models(end: int) -> None:
    text = json.dumps(document([{}, {}]))[:-end]
    assert outcome_of(lambda given: parsed(given.encode()), text) == outcome_of(
        TableMetadataUtil.parse_raw, text
    )


@pytest.mark.parametrize("value", ["ä", "", 1.5, None, {"operation": "x"}])
def test_some_properties_of_a_summary_are_those_of_all(value: object) -> None:
    summary = {"operation": "append", "a": value, "b": "1"}
    metadata = parsed(json.dumps(document([{"summary": summary}, {}, {"summary": None}])).encode())
    first, second, third = metadata.snapshots
    assert is_stored(metadata)
    names = frozenset({"a", "total-records"})
    assert some_properties_of(first, names)["a"] == str(value)
    assert some_properties_of(second, names)["total-records"] == "1"
    assert "a" not in some_properties_of(second, names)
    assert some_properties_of(third, names) == {}


def test_a_response_of_a_server_is_read_in_the_same_way() -> None:
    plain = document([{}, {}])
    text = json.dumps({"metadata": plain, "metadata-location": "file:///w/x", "config": {}})
    metadata = TableResponse.model_validate_json(text).metadata
    assert is_stored(metadata)
    assert values(metadata) == values(TableMetadataUtil.parse_raw(json.dumps(plain)))
    assert json.loads(bytes_of(metadata))["snapshots"] == plain["snapshots"]
