"""Names of files that are derived from names of users' files, which may be as long as a file system allows."""

from __future__ import annotations

# Bytes of a name in the usual file systems.
_LONGEST = 255


def beside(path: str, ending: str) -> str:
    """Return a path in the folder of another, whose name is that name and an ending; a long name is cut."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}{shortened(name, len(ending.encode()))}{ending}"


def shortened(name: str, room: int) -> str:
    """Return a name, cut so that another part with `room` bytes fits into a file name with it."""
    data = name.encode()[: _LONGEST - room]
    return data.decode(errors="ignore")
