"""Convert PyArrow's errors about unreadable files to lake's errors."""

from __future__ import annotations

import re

import pyarrow as pa

from lake.core.base.errors import CorruptFileError, LakeError, RefusedError
from lake.core.io.storage.errors import storage_error
from lake.core.spec.types.type_text import in_iceberg_words

_MOST_CHARACTERS = 300
# Valid files for which PyArrow lacks a codec, an encoding, a combination of types, or the keys.
_UNSUPPORTED = re.compile(
    r"not (currently |yet )?(supported|implemented)|unsupported|NotImplemented|decrypt|encrypted",
    re.IGNORECASE,
)


def reading_error(error: Exception, path: str) -> LakeError:
    """Return the error for an exception of PyArrow or of the system.

    Returns:
        A storage error; `RefusedError` if the file uses a feature that PyArrow does not support;
        `CorruptFileError` otherwise.
    """
    known = storage_error(error, path) if isinstance(error, OSError) else None
    if known is not None:
        return known
    lines = in_iceberg_words(error).strip().splitlines()
    text = (lines or [""])[0][:_MOST_CHARACTERS]
    if isinstance(error, pa.ArrowNotImplementedError) or _UNSUPPORTED.search(text):
        return unsupported_file(path, text)
    return CorruptFileError(f"{path} cannot be read: {text}")


def unsupported_file(path: str, feature: str) -> RefusedError:
    """Return the error for a valid file with a feature that lake does not support."""
    return RefusedError(
        f"{path} is not supported: {feature}",
        hint="the file may be valid: rewrite it without this feature with the engine that wrote it",
    )
