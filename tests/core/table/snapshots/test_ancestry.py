"""Names of snapshots: tags and branches, ids, and the first digits of ids."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField

from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError
from lake.core.base.units import parse_time_ms
from lake.core.table.snapshots.ancestry import resolve, resolve_id

# Ids of the digits 1 and 2 often share a prefix. The specification allows all longs.
IDS = st.lists(
    st.text("12", min_size=5, max_size=18).map(int) | st.integers(-(2**63), 2**63 - 1),
    min_size=1,
    max_size=12,
    unique=True,
)


def metadata_of(ids: Sequence[int], parent: int | None = None, **tags: int) -> TableMetadata:
    schema = Schema(NestedField(1, "id", LongType(), required=False), schema_id=0)
    return TableMetadataV2(
        location="/t",
        last_column_id=1,
        schemas=[schema],
        current_schema_id=0,
        partition_specs=[{"spec-id": 0, "fields": []}],
        default_spec_id=0,
        last_partition_id=999,
        sort_orders=[{"order-id": 0, "fields": []}],
        default_sort_order_id=0,
        last_sequence_number=1,
        snapshots=[
            Snapshot(
                snapshot_id=number,
                parent_snapshot_id=parent,
                sequence_number=1,
                timestamp_ms=1000,
                manifest_list="/m.avro",
                schema_id=0,
            )
            for number in ids
        ],
        refs={
            name: SnapshotRef(snapshot_id=number, snapshot_ref_type=SnapshotRefType.TAG)
            for name, number in tags.items()
        },
    )


@given(IDS, st.data())
def test_an_id_or_its_unique_prefix_of_six_digits_names_a_snapshot(
    ids: list[int], data: st.DataObject
) -> None:
    metadata = metadata_of(ids)
    whole = str(data.draw(st.sampled_from(ids)))
    name = whole[: data.draw(st.integers(min(len(whole), 2), len(whole)))]
    digits = len(name.lstrip("-"))
    matches = {number for number in ids if str(number).startswith(name)}

    if int(name) in ids:
        assert resolve(metadata, name).snapshot_id == int(name)
    elif digits >= 6 and len(matches) == 1:
        assert {resolve(metadata, name).snapshot_id} == {resolve_id(metadata, name)} == matches
    elif digits >= 6:
        with pytest.raises(BadInputError) as ambiguous:
            resolve(metadata, name)
        listed = {
            int(text) for text in ambiguous.value.message.split(": ")[1].split("and")[0].split(", ")
        }
        assert listed <= matches
        assert len(listed) == min(10, len(matches))
    else:
        with pytest.raises(NotFoundError):
            resolve(metadata, name)
        assert resolve_id(metadata, name) == int(name)


def test_a_tag_named_like_an_id_or_a_prefix_precedes_both() -> None:
    metadata = metadata_of(
        [1234567890, 5555555555], **{"123456": 5555555555, "1234567890": 5555555555}
    )

    assert resolve(metadata, "123456").snapshot_id == 5555555555
    assert resolve_id(metadata, "1234567890") == 5555555555
    assert resolve(metadata, "1234567").snapshot_id == 1234567890


def test_a_parent_that_expired_is_found_by_its_first_digits_only_where_a_range_begins() -> None:
    metadata = metadata_of([1234567890], parent=7654321098)

    assert resolve_id(metadata, "765432") == 7654321098
    with pytest.raises(NotFoundError):
        resolve(metadata, "765432")


def test_a_time_can_be_copied_from_a_table_on_a_terminal() -> None:
    assert parse_time_ms("1970-01-02 00:00:01.500 UTC") == 86_401_500
    with pytest.raises(InvalidRequestError):
        parse_time_ms("1970-01-02T00:00:00Z CET")
