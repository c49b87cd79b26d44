"""Listed files: what a set of needed names leaves, however many batches were stored on disk."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import StorageError
from lake.core.io.storage.file_names import FileNames
from lake.core.io.storage.storage import Storage, StoredFile
from lake.core.io.storage.store_listing import LISTING
from lake.core.maintain.orphans import listing
from lake.core.maintain.orphans.listing import ListedFiles
from lake.core.transaction.garbage import name_set
from lake.core.transaction.garbage.name_set import NameSet

# Spellings of a few objects: `FileNames.of` gives some of them one name.
PATHS = (
    *("s3://b/t/a", "s3a://b/t/a", "s3://b/t//a", "s3://b/t/%61", "s3://b/t/a/", "s3://b/t/a%2F"),
    *("s3://b/t/a b", "s3://b/t/a%20b", "s3://b/t/a%2520b", "s3://b/t/x%", "s3://b/t/é"),
    *("/t/a", "file:/t/a", "file:///t//a", "/t/a%20b", "/t/a b", "/t/\U0001f600", "/t/a/../a"),
)
batches = st.lists(st.lists(st.sampled_from(PATHS), max_size=6), max_size=5)


def files(paths: list[str]) -> pa.Table:
    sizes = [len(path) for path in paths]
    return pa.table([paths, sizes, sizes], schema=LISTING)


def listed(parts: list[list[str]], names: FileNames) -> ListedFiles:
    found = ListedFiles(names, Storage())
    for part in parts:
        table = files(part)
        found.add(table, names.of(table["path"]))
    return found


@settings(max_examples=examples(300))
@given(batches, st.lists(st.sampled_from(PATHS), max_size=4), st.booleans())
def test_exactly_the_files_whose_names_are_not_needed_are_left(
    parts: list[list[str]], needed: list[str], collide: bool
) -> None:
    names = FileNames()
    held_names = set(names.of(pa.array(needed, pa.string())).to_pylist())
    every = [path for part in parts for path in part]
    own = names.of(pa.array(every, pa.string())).to_pylist()
    loose = [path for path, name in zip(every, own, strict=True) if name not in held_names]

    with pytest.MonkeyPatch.context() as patch:
        if collide:
            original = name_set.hash_keys
            patch.setattr(name_set, "hash_keys", lambda batch: original(batch) % np.uint64(3))
        with closing(listed(parts, names)) as found:
            left = found.without(NameSet.of(names.of(pa.array(needed, pa.string()))))
            assert found.names.has(pa.array(own, pa.string())).to_pylist() == [True] * len(own)

    assert (found.count, found.bytes_up_to(math.inf)) == (len(every), sum(map(len, every)))
    assert left.schema.names == [*LISTING.names, "name"]
    assert left["name"].to_pylist() == names.of(left["path"]).to_pylist()
    assert left["bytes"].to_pylist() == [len(path) for path in left["path"].to_pylist()]
    if collide:
        # A file too many may be kept; one that is needed is not left.
        assert is_part(left["path"].to_pylist(), loose)
    else:
        assert left["path"].to_pylist() == loose


def is_part(some: list[str], every: list[str]) -> bool:
    """Whether the first list is the second one without some of its items."""
    remaining: Iterator[str] = iter(every)
    return all(item in remaining for item in some)


def test_slices_of_a_listing_are_stored_whole() -> None:
    names = FileNames()
    table = pa.concat_tables([files(["/t/a", "/t/b"]), files(["/t/c", "/t/d"])])
    with closing(ListedFiles(names, Storage())) as found:
        for start in (1, 3):
            part = table.slice(start, 2)
            found.add(part, names.of(part["path"]))
        left = found.without(NameSet.of(pa.array(["/t/c"], pa.string())))
    assert left["path"].to_pylist() == ["/t/b", "/t/d"]


def test_a_listing_without_files_needs_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with closing(listed([[], []], FileNames())) as found:
        assert found.without(NameSet()).num_rows == 0
        assert len(found.names) == 0


def test_a_listing_that_does_not_fit_on_the_disk_is_an_error_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="the listed files cannot be written to") as caught:
        listed([["/t/a"]], FileNames())
    assert caught.value.hint == "set TMPDIR to a folder with more room"


def test_a_listing_leaves_no_file_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(listed([["/t/a"], ["/t/b"]], FileNames())) as found:
        assert found.without(NameSet())["path"].to_pylist() == ["/t/a", "/t/b"]
        assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_the_sizes_of_local_files_are_looked_up_when_they_are_needed(tmp_path: Path) -> None:
    storage, names = Storage(), FileNames()
    for name in "abcd":
        (tmp_path / name).write_bytes(b"12345")
    with closing(ListedFiles(names, storage)) as found:
        for batch in storage.each_batch(f"file://{tmp_path}"):
            assert batch["bytes"].null_count == 4
            found.add(batch, names.of(batch["path"]))
        (tmp_path / "b").unlink()
        left = found.without(NameSet.of(names.of(pa.array([f"{tmp_path}/a"]))))
        assert found.bytes_up_to(math.inf) == 15

    sizes = {Path(row["path"]).name: row["bytes"] for row in left.to_pylist()}
    assert sizes == {"b": None, "c": 5, "d": 5}
    assert [row["modified_ms"] is None for row in left.sort_by("path").to_pylist()] == [
        True,
        False,
        False,
    ]


@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=4),
    st.lists(st.booleans()),
    st.integers(0, 60),
)
def test_looked_up_sizes_are_all_of_them_or_enough(
    parts: list[list[int]], known: list[bool], enough: int
) -> None:
    sizes = {f"/t/{i}-{j}": size for i, part in enumerate(parts) for j, size in enumerate(part)}
    asked: list[str] = []

    class Disk(Storage):
        def look_up(self, locations: Iterable[str]) -> dict[str, StoredFile | None]:
            wanted = list(locations)
            asked.extend(wanted)
            return {path: StoredFile(path, sizes[path], 0) for path in wanted}

    names = FileNames()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_LOOKED_UP", 2)
        with closing(ListedFiles(names, Disk())) as found:
            for i, part in enumerate(parts):
                paths = [f"/t/{i}-{j}" for j in range(len(part))]
                own = [None] * len(part) if i >= len(known) or not known[i] else part
                columns = [
                    pa.array(paths, pa.string()),
                    pa.array(own, pa.int64()),
                    pa.nulls(len(part), pa.int64()),
                ]
                found.add(pa.table(columns, LISTING), names.of(pa.array(paths, pa.string())))
            total = found.bytes_up_to(enough)

    assert total == sum(sizes.values()) or enough <= total < sum(sizes.values())
    assert len(asked) == len(set(asked))
