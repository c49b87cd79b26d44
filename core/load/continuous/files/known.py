"""Which files a watch knows already: those of the ledger, under the names that they have now, and copies of them."""

from __future__ import annotations

import filecmp
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lake.core.base import locations
from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.data.sources.discovery import look_up_sources, source_folder
from lake.core.io.storage.storage import Storage
from lake.core.load.continuous.files.listing import WatchedFile, comparable, resolved_file
from lake.core.load.continuous.options import WatchOptions
from lake.core.load.continuous.state import StateStore


@dataclass(slots=True)
class Copies:
    """Finds the loaded file that a new one is a copy of, or that was moved to its place.

    Two files are the same if they have one name, and one size, and either the storage's tags of their contents are
    equal or, without tags, their times are. If the loaded file is still there on this machine, its bytes decide.
    """

    storage: Storage
    loaded: Mapping[str, WatchedFile]
    _by_content: dict[tuple[str, int, str | int], list[str]] | None = None
    _compared: dict[tuple[WatchedFile, str], bool] = field(default_factory=dict)

    def original(self, file: WatchedFile) -> str | None:
        """Return the location of the loaded file; None for a file that is not known."""
        if self._by_content is None:
            self._by_content = defaultdict(list)
            for one in self.loaded.values():
                for key in _contents(one):
                    self._by_content[key].append(one.path)
        for key in _contents(file):
            for path in self._by_content.get(key, ()):
                if path != file.path and self._is_same(file, path):  # check: moved-source-file
                    return path
        return None

    def _is_same(self, file: WatchedFile, path: str) -> bool:
        known = self._compared.get((file, path))
        if known is None:
            known = self._compared[file, path] = self._is_equal(file, path)
        return known

    def _is_equal(self, file: WatchedFile, path: str) -> bool:
        is_local = all(locations.parse(one).is_local for one in (file.path, path))
        if file.tag is not None or not is_local:
            return True
        now = look_up_sources(self.storage, [path])[path]
        if now is None or (now.length, now.modified_ms) != self.loaded[path].version:
            return True
        with suppress(OSError):
            return filecmp.cmp(file.path, path, shallow=False)
        return True


def _contents(file: WatchedFile) -> Iterable[tuple[str, int, str | int]]:
    """Yield by what a file is known elsewhere: a store changes the time of a copy, but not its tag."""
    name = file.path.rpartition("/")[2]
    if file.tag is not None:
        yield name, file.size, file.tag
    elif file.modified_ms is not None:
        yield name, file.size, file.modified_ms


def adopt_source(store: StateStore, options: WatchOptions) -> bool:
    """Check that a state is of the folder that is watched, and return whether its ledger has other names for it.

    Raises:
        RefusedError: it is another folder, and that is not allowed.
    """
    state, folder = store.state, source_folder(options.source)
    if state is None or state.source == folder:
        return False
    before = state.source
    if before is None:
        # A state of an earlier version has the names as they were given.
        files = [
            *store.loaded,
            *(file.path for file in (state.offered.files if state.offered else ())),
        ]
        if not files or any(_is_below(resolved_file(path), folder) for path in files):
            return True
        before = files[0].rpartition("/")[0]
    if options.new_source:  # check: state-of-this-source
        return True
    raise RefusedError(
        f"the state in {options.state} is of the files in {before}, not of those in {folder}",
        hint=f"if they were moved there, {Option.NEW_SOURCE} takes those of the same names for loaded; another "
        f"source needs another {Option.STREAM} and {Option.STATE}",
    )


def rename_source(store: StateStore, options: WatchOptions) -> None:
    """Note the folder that is watched, and the names that its loaded files have there."""
    state, folder = store.state, source_folder(options.source)
    if state is None:
        return
    loaded = dict(store.loaded)
    for path, file in store.loaded.items():
        for now in _names(path, state.source, folder):
            loaded.setdefault(now, replace(file, path=now))
    excluded = {
        now
        for path in state.excluded
        for now in (path, *_names(path, state.source, folder))
        if not _is_below(folder, now)
    }
    renamed = replace(state, source=folder, excluded=tuple(sorted(map(comparable, excluded))))
    store.rewrite(renamed, loaded)


def _names(path: str, before: str | None, folder: str) -> Sequence[str]:
    """Return the names that a file of one folder has now."""
    if before is None:
        return [resolved_file(path)]
    return [f"{folder}{path[len(before) :]}"] if _is_below(path, before) else []


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def skipped(options: WatchOptions) -> Mapping[str, str]:
    """Return the names of files to skip as they were given, by the locations that they may mean."""
    folder = source_folder(options.source)
    return {
        where: name
        for name in options.skip
        for where in (resolved_file(name), resolved_file(locations.join(folder, name)))
    }
