"""What PyArrow reports about a file that it cannot read, as errors of lake."""

from __future__ import annotations

import re

import pyarrow as pa

from lake.core.errors import CorruptFileError, LakeError, RefusedError
from lake.core.storage.errors import storage_error

_MOST_CHARACTERS = 300
# Sound files, of which PyArrow lacks a codec, an encoding, a combination of types, or the keys.
_UNSUPPORTED = re.compile(
    r"not (currently |yet )?(supported|implemented)|unsupported|NotImplemented|decrypt|encrypted",
    re.IGNORECASE,
)


def reading_error(error: Exception, path: str) -> LakeError:
    """Return the error for an exception of PyArrow or of the system.

    Returns:
        An error of the storage; `RefusedError` where the file uses a feature that PyArrow does not have;
        `CorruptFileError` for anything else.
    """
    known = storage_error(error, path) if isinstance(error, OSError) else None
    if known is not None:
        return known
    lines = str(error).strip().splitlines()
    text = (lines or [""])[0][:_MOST_CHARACTERS]
    if isinstance(error, pa.ArrowNotImplementedError) or _UNSUPPORTED.search(text):
        return unsupported_file(path, text)
    return CorruptFileError(f"{path} cannot be read: {text}")


def unsupported_file(path: str, feature: str) -> RefusedError:
    """Return the error for a sound file with something that lake does not read."""
    return RefusedError(
        f"{path} is not supported: {feature}",
        hint="The file need not be damaged. Rewrite it without this feature by the engine that wrote it.",
    )
