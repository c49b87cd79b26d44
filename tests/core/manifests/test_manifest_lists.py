"""Many manifest lists read at once are what each of them is alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults.memory_storage import MemoryStorage
from support.tiers import examples

from lake.core.errors import CorruptFileError, NotFoundError
from lake.core.manifests.api import (
    ManifestListHeader,
    encode_manifest_list,
    read_manifest_list,
    read_manifest_lists,
)
from lake.core.manifests.schemas import MANIFEST_SCHEMA

ROW = {
    "manifest_length": 10,
    "partition_spec_id": 0,
    "content": 0,
    "sequence_number": 0,
    "min_sequence_number": 0,
    "added_snapshot_id": 1,
    **{
        f"{word}_{what}_count": 1
        for word in ("added", "existing", "deleted")
        for what in ("files", "rows")
    },
}


def list_of(version: int, names: list[str]) -> bytes:
    rows = pa.Table.from_pylist([{**ROW, "manifest_path": name} for name in names], MANIFEST_SCHEMA)
    return encode_manifest_list(
        rows,
        ManifestListHeader(
            format_version=version, snapshot_id=5, parent_snapshot_id=None, sequence_number=2
        ),
    )


def read(
    storage: MemoryStorage, locations: list[str], unreadable: list[str] | None = None
) -> dict[str, pa.Table]:
    found = {}
    for names, counts, rows in read_manifest_lists(storage, locations, unreadable):
        start = 0
        for name, count in zip(names, counts, strict=True):
            found[name] = rows.slice(start, count)
            start += count
        assert start == rows.num_rows
    return found


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, 3]),
            st.lists(st.text("abc", min_size=1, max_size=9), max_size=5, unique=True),
            st.sampled_from(["whole", "whole", "cut", "missing", "no list", "twice"]),
        ),
        max_size=8,
    )
)
def test_each_list_has_its_own_rows_and_those_that_cannot_be_read_are_named(
    lists: list[tuple[int, list[str], str]],
) -> None:
    storage = MemoryStorage({})
    for number, (version, names, state) in enumerate(lists):
        data = list_of(version, names)
        again = list_of(version, ["/x/y", *names, "file:/x/y"])
        stored = {"whole": data, "cut": data[:-3], "no list": b"Obj\x01\x00", "twice": again}.get(
            state
        )
        if stored is not None:
            storage.files[f"l{number}"] = stored
    locations = [f"l{number}" for number in range(len(lists))]
    unreadable: list[str] = []
    found = read(storage, locations, unreadable)

    whole = [name for name, (*_, state) in zip(locations, lists, strict=True) if state == "whole"]
    assert sorted(found) == whole
    assert sorted(unreadable) == sorted(set(locations) - set(whole))
    assert all(found[name].equals(read_manifest_list(storage, name)) for name in whole)


@pytest.mark.parametrize(
    ("damage", "error"), [(b"Obj\x01", CorruptFileError), (None, NotFoundError)]
)
def test_the_first_list_that_cannot_be_read_stops_what_must_be_whole(
    damage: bytes | None, error: type[Exception]
) -> None:
    storage = MemoryStorage({})
    storage.files |= {f"l{number}": list_of(2, [f"m{number}"]) for number in range(5)}
    if damage is None:
        del storage.files["l3"]
    else:
        storage.files["l3"] = damage

    with pytest.raises(error, match="l3"):
        read(storage, [f"l{number}" for number in range(5)])


def test_a_list_with_impossible_rows_is_named_among_many() -> None:
    storage = MemoryStorage({})
    storage.files |= {f"l{number}": list_of(2, [f"m{number}"]) for number in range(3)}
    storage.files["l1"] = list_of(2, [""])
    unreadable: list[str] = []
    found = read(storage, ["l0", "l1", "l2"], unreadable)

    assert (sorted(found), unreadable) == (["l0", "l2"], ["l1"])
    with pytest.raises(CorruptFileError, match="l1"):
        read(storage, ["l0", "l1", "l2"])


def test_a_list_that_names_a_manifest_twice_lacks_another() -> None:
    storage = MemoryStorage({"l": list_of(2, ["a", "b", "a"]), "m": list_of(2, ["a", "b"])})

    with pytest.raises(CorruptFileError, match="l names a manifest twice"):
        read_manifest_list(storage, "l")
    with pytest.raises(CorruptFileError, match="l names a manifest twice"):
        read(storage, ["m", "l"])
