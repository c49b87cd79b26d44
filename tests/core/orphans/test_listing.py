"""Listed files: what a set of needed names leaves, however many batches were stored on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.errors import StorageError
from lake.core.garbage import name_set
from lake.core.garbage.name_set import NameSet
from lake.core.orphans.inventory import INVENTORY
from lake.core.orphans.listing import ListedFiles
from lake.core.storage.file_names import FileNames

# Spellings of a few objects: `FileNames.of` gives some of them one name.
PATHS = (
    *("s3://b/t/a", "s3a://b/t/a", "s3://b/t//a", "s3://b/t/%61", "s3://b/t/a/", "s3://b/t/a%2F"),
    *("s3://b/t/a b", "s3://b/t/a%20b", "s3://b/t/a%2520b", "s3://b/t/x%", "s3://b/t/é"),
    *("/t/a", "file:/t/a", "file:///t//a", "/t/a%20b", "/t/a b", "/t/\U0001f600", "/t/a/../a"),
)
batches = st.lists(st.lists(st.sampled_from(PATHS), max_size=6), max_size=5)


def files(paths: list[str]) -> pa.Table:
    sizes = [len(path) for path in paths]
    return pa.table([paths, sizes, sizes], schema=INVENTORY)


def listed(parts: list[list[str]], names: FileNames) -> ListedFiles:
    found = ListedFiles(names)
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

    assert (found.count, found.bytes) == (len(every), sum(map(len, every)))
    assert left.schema.names == [*INVENTORY.names, "name"]
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
    with closing(ListedFiles(names)) as found:
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
