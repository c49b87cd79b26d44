"""Delete many files at once: objects by requests for many of them, all other files one by one, in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lake.core.base.errors import BadInputError
from lake.core.io.objects.cloud import Cloud
from lake.core.io.objects.requests import UNTRIED, ShouldContinue, UnsupportedError
from lake.core.io.objects.s3 import S3

_DELETE_THREADS = 16
# The fewest files of a disk for which a thread is started.
_LOCAL_SLICE = 64


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletes files, and returns the reason of each failure by location.

    Args:
        object_at: the bucket and the key of a location; None if only a file system supports it.
        delete_one: deletes one file; returns why it could not, or None.
        should_continue: called before each request; once it returns False, the remaining files are not tried.
    """

    object_at: Callable[[str], tuple[S3 | Cloud, str] | None]
    delete_one: Callable[[str, ShouldContinue], str | None]
    should_continue: ShouldContinue

    def delete(self, wanted: Sequence[str], most_single: int | None) -> dict[str, str]:
        """Delete files; of those that take a request each, try ``most_single`` at most."""
        failed, single = self._delete_in_bulk(wanted)
        if most_single is not None:
            failed |= dict.fromkeys(single[most_single:], UNTRIED)
            single = single[:most_single]
        # A thread costs more than one system call, and scheduling a delete costs more than a local delete.
        least = _LOCAL_SLICE if all(map(_is_on_disk, single)) else 1
        size = max(-(-len(single) // _DELETE_THREADS), least)
        slices = [single[start : start + size] for start in range(0, len(single), size)]
        with ThreadPoolExecutor(len(slices) or 1) as pool:
            each = pool.map if slices[1:] else map
            for failures in each(self._delete_all, slices):
                failed.update(failures)
        return failed

    def _delete_in_bulk(self, wanted: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Delete objects with bulk requests; return the failures, and the locations to delete one by one."""
        buckets: dict[S3 | Cloud, dict[str, str]] = {}
        single = []
        for location in wanted:
            found = None if _is_on_disk(location) else self._object_at(location)
            if found is None:
                single.append(location)
            else:
                buckets.setdefault(found[0], {})[found[1]] = location
        failed: dict[str, str] = {}
        for bucket, keys in buckets.items():
            try:
                by_key = bucket.delete_all(list(keys), self.should_continue)
            except UnsupportedError:
                single += keys.values()
            else:
                failed |= {keys[key]: why for key, why in by_key.items()}
        return failed, single

    def _object_at(self, location: str) -> tuple[S3 | Cloud, str] | None:
        try:
            return self.object_at(location)
        except BadInputError:
            return None

    def _delete_all(self, locations: Sequence[str]) -> dict[str, str]:
        results = {
            location: self.delete_one(location, self.should_continue) for location in locations
        }
        return {location: failure for location, failure in results.items() if failure is not None}


def _is_on_disk(location: str) -> bool:
    return location.startswith(("/", "file:"))
