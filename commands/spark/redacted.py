"""Errors and storage whose secrets Spark does not see, for the driver and for tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lake.core.base.errors import LakeError
from lake.core.base.options import spell_options
from lake.core.base.redaction import Redactor, mask
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.storage import Storage


@contextmanager
def reported(redact: Callable[[str], str]) -> Iterator[None]:
    """Let errors say everything in one text without secrets: Spark shows no more of them."""
    try:
        yield
    except LakeError as error:
        mask(error, redact)
        text = f"{error.message} ({error.hint})" if error.hint else error.message
        error.args = (spell_options(text, lambda option: option.value.replace("_", "-")),)
        vars(error).pop("__notes__", None)
        raise error from None


@contextmanager
def storage_of(secrets: bytes) -> Iterator[Storage]:
    """Give the storage of a task; errors do not show its credentials."""
    credentials = Credentials.from_bytes(secrets)
    redact = Redactor()
    for part in credentials.parts():
        redact.learn(part)
    with reported(redact):
        yield Storage(renewed=CredentialProvider(credentials))
