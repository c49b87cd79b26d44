"""Files of comma-separated values that tests load."""

from __future__ import annotations

from pathlib import Path


def csv(path: Path, *lines: str) -> Path:
    """Write a file of lines; the first one is its header."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def csv_changes(path: Path, *lines: str) -> Path:
    """Write a change log of rows with a kind, an id, a part and a value."""
    return csv(path, "op,id,part,value", *lines)
