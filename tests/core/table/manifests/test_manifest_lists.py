"""Many manifest lists read at once are what each of them is alone."""

from __future__ import annotations

import io
import itertools
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.faults.memory_storage import MemoryStorage
from support.tiers import examples

from lake.core.base.errors import CorruptFileError, NotFoundError
from lake.core.io.avro.container import Block, Container, read_container, write_container
from lake.core.table.manifests import read as read_module
from lake.core.table.manifests.api import (
    ManifestListHeader,
    encode_manifest_list,
    read_list_additions,
    read_manifest_list,
)
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA

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
    found: dict[str, pa.Table] = {}
    last = MANIFEST_SCHEMA.empty_table()
    for added in read_list_additions(storage, locations, unreadable):
        start = 0
        for name, inherited, size in zip(
            added.locations, added.inherited, added.sizes, strict=True
        ):
            own = added.rows.slice(start, size)
            start += size
            last = pa.concat_tables([last, own]) if inherited else own
            found[name] = last
        assert start == added.rows.num_rows
    return found


def in_order(manifests: pa.Table) -> pa.Table:
    return manifests.sort_by("manifest_path").combine_chunks()


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
    for name in whole:
        assert in_order(found[name]).equals(in_order(read_manifest_list(storage, name)))


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


def additions(
    storage: MemoryStorage, locations: list[str], unreadable: list[str] | None = None
) -> dict[str, list[str]]:
    """Return the manifests of each list, put together from what the lists add to those before them."""
    found: dict[str, list[str]] = {}
    before: list[str] = []
    for lists, inherited, sizes, rows in read_list_additions(storage, locations, unreadable):
        names = iter(rows["manifest_path"].to_pylist())
        for location, shared, size in zip(lists, inherited, sizes, strict=True):
            assert shared in {0, len(before)}
            before = [*(before if shared else []), *itertools.islice(names, size)]
            found[location] = before
        assert next(names, None) is None
    return found


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(
        st.tuples(
            st.sampled_from([2, 2, 2, 3]),
            st.integers(0, 3),
            st.sampled_from(["before", "before", "after", "between", "other", "fewer"]),
            st.integers(1, 3),
            st.sampled_from(["whole"] * 9 + ["cut", "missing", "twice"]),
        ),
        max_size=12,
    ),
    st.integers(1, 4),
)
def test_what_lists_add_to_each_other_makes_up_their_rows(
    lists: list[tuple[int, int, str, int, str]], at_once: int
) -> None:
    storage, names, expected = MemoryStorage({}), list[str](), dict[str, list[str]]()
    bad = []
    for number, (version, count, order, blocks, state) in enumerate(lists):
        new = [f"{number}-{item}" for item in range(count)]
        half = len(names) // 2
        names = {
            "before": [*new, *names],
            "after": [*names, *new],
            "between": [*names[:half], *new, *names[half:]],
            "other": new,
            "fewer": names[:half],
        }[order]
        location = f"l{number}"
        data = in_blocks(list_of(version, names), blocks)
        if state == "twice":
            data = list_of(version, [*names, "one", "one"])
        if state != "missing":
            storage.files[location] = data[:-1] if state == "cut" else data
        if state == "whole":
            expected[location] = names
        else:
            bad.append(location)
    locations = [f"l{number}" for number in range(len(lists))]
    unreadable: list[str] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_module, "_LISTS_AT_ONCE", at_once)
        found = additions(storage, locations, unreadable)

    assert sorted(unreadable) == sorted(bad)
    assert {name: sorted(rows) for name, rows in found.items()} == {
        name: sorted(rows) for name, rows in expected.items()
    }


def test_equal_rows_are_decoded_once() -> None:
    names = [f"m{number}" for number in range(50)]
    storage = MemoryStorage({})
    for number in range(1, 50):
        # As Iceberg Java writes them: those of the commit first.
        storage.files[f"l{number}"] = list_of(2, names[:number][::-1])
    [found] = read_list_additions(storage, list(storage.files))
    assert (found.inherited, found.sizes, found.rows.num_rows) == (list(range(49)), [1] * 49, 49)


@pytest.mark.parametrize("at_once", [1, 10])
def test_a_list_that_names_a_manifest_of_the_list_before_it_again_is_refused(at_once: int) -> None:
    lists = {"a": ["x", "y"], "b": ["x", "y", "z"], "c": ["x", "y", "z", "file:/x"], "d": ["x"]}
    storage = MemoryStorage({name: list_of(2, rows) for name, rows in lists.items()})
    storage.files["c"] = list_of(2, ["x", "y", "z", "y"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_module, "_LISTS_AT_ONCE", at_once)
        with pytest.raises(CorruptFileError, match="c names a manifest twice"):
            list(read_list_additions(storage, list(lists)))


@pytest.mark.parametrize("damage", ["cut", "surplus"])
def test_a_damaged_list_after_others_is_named(damage: str) -> None:
    storage = MemoryStorage({"a": list_of(2, ["x"]), "c": list_of(2, ["x", "y", "z", "w"])})
    container = read_container(list_of(2, ["x", "y"]), name="b")
    data = b"".join(block.data for block in container.blocks)
    objects = 2 if damage == "cut" else 1
    bad = data[:-3] if damage == "cut" else data
    storage.files["b"] = rewritten(container, [Block(objects, bad)])
    with pytest.raises(CorruptFileError, match=r"^b\b"):
        list(read_list_additions(storage, ["a", "b", "c"]))


def in_blocks(data: bytes, size: int) -> bytes:
    """Return a list with at most ``size`` rows in each block."""
    container = read_container(data, name="l")
    schema = json.loads(container.metadata["avro.schema"])
    rows = fastavro.reader(io.BytesIO(data))
    records = []
    for row in rows:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, row)
        records.append(sink.getvalue())
    parts = [records[start : start + size] for start in range(0, len(records), size)]
    return rewritten(container, [Block(len(part), b"".join(part)) for part in parts])


def rewritten(container: Container, blocks: list[Block]) -> bytes:
    header = {
        key: value.decode()
        for key, value in container.metadata.items()
        if not key.startswith(("avro.", "lake."))
    }
    schema = json.loads(container.metadata["avro.schema"])
    return write_container(schema, blocks, metadata=header, codec="uncompressed")
