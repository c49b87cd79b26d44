"""Pack lake's code into one file, so that the workers of a cluster run exactly the driver's code."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_ROOT, _PACKAGE = "lake", "lake.core"
# Equal code gives an equal file, which a server accepts again.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def pack(folder: Path) -> Path:
    """Write lake's core to a zip file in a folder; the name contains a hash of the content."""
    modules = [
        (f"{_ROOT}/__init__.py", (files(_ROOT) / "__init__.py").read_bytes()),
        *_modules(files(_PACKAGE), _PACKAGE.replace(".", "/")),
    ]
    digest = hashlib.sha256()
    for name, source in modules:
        digest.update(b"%d %d %s" % (len(name), len(source), name.encode()) + source)
    path = folder / f"lake-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in modules:
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source, zipfile.ZIP_DEFLATED)
    return path


def _modules(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and the contents of a package's modules, in order."""
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        path = f"{name}/{item.name}"
        if item.is_dir():
            yield from _modules(item, path)
        elif item.name.endswith(".py"):
            yield path, item.read_bytes()
