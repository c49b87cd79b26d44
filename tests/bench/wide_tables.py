"""Tables of one snapshot and many files, made manifest by manifest, for several benchmarks."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from expire import History, rows_of  # noqa: E402


def make_wide(
    warehouse: Path,
    files: int,
    manifests: int,
    *,
    folders: int = 1,
    is_real: bool = False,
    has_metrics: bool = True,
    location: str | None = None,
) -> History:
    """Make a table, and return what wrote it.

    Args:
        warehouse: a folder that does not exist.
        files: the number of data files.
        manifests: the number of manifests, of equal size.
        folders: the number of folders of the data files.
        is_real: whether the data files exist.
        has_metrics: whether entries have the metrics of 15 columns.
        location: what metadata names as the table's location, if its files will be moved there.
    """
    history = History(warehouse, 1, folders=folders, has_metrics=has_metrics, location=location)
    if is_real:
        history.make_data_files(files)
    each = -(-files // manifests)
    starts = range(0, files, each)
    made = [history.manifest(0, range(start, min(start + each, files))) for start in starts]
    # As many files as there are: plans depend on it.
    summary = {"operation": "append", "total-data-files": str(files)}
    history.snapshot(0, rows_of(made), summary)
    history.finish()
    return history


def made_once(folder: Path, name: str, make: Callable[[Path], object]) -> tuple[Path, Path]:
    """Return the folder of a table that is copied for each run, and the place where it is used.

    Args:
        folder: where both are; a table that was made there is used again.
        name: the name of the table's folder.
        make: makes the table.
    """
    used, kept = folder / "warehouse", folder / name
    if not kept.exists():
        # Locations in metadata are absolute: the table is made where it will be used.
        shutil.rmtree(used, ignore_errors=True)
        make(used)
        used.rename(kept)
    return kept, used
