"""Errors of stores to which there is no connection, in the words of Arrow, botocore and the system."""

from __future__ import annotations

import errno

import pytest

from lake.core.base.errors import LakeError, NotAuthorisedError, StorageError, TimedOutError
from lake.core.io.storage.errors import storage_error

ARROW = (
    "When getting information for key 'x' in bucket 'b': AWS Error NETWORK_CONNECTION during "
    "HeadObject operation: curlCode: {}, {}"
)


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        (
            ARROW.format(6, "Could not resolve hostname; Details: Could not resolve host: nosuch"),
            TimedOutError,
            "the host name of the storage cannot be resolved: ",
            "check the endpoint",
        ),
        (
            ARROW.format(7, "Could not connect to server"),
            TimedOutError,
            "the storage refused the connection: ",
            "check s3.endpoint",
        ),
        (
            ARROW.format(60, "SSL peer certificate or SSH remote key was not OK"),
            StorageError,
            "no trusted encrypted connection to the storage: ",
            "if the authority is your own, set AWS_CA_BUNDLE",
        ),
        (
            ARROW.format(35, "SSL connect error"),
            StorageError,
            "no trusted encrypted connection to the storage: ",
            "if the authority is your own, set AWS_CA_BUNDLE",
        ),
        (
            ARROW.format(28, "Timeout was reached"),
            TimedOutError,
            "the storage is too busy: ",
            "run the command again",
        ),
        (
            "Could not connect to the endpoint: NameResolutionError: Failed to resolve 'nosuch'",
            TimedOutError,
            "the host name of the storage cannot be resolved: ",
            "check the endpoint",
        ),
        ("AWS Error ACCESS_DENIED: HTTP status 403", NotAuthorisedError, "the storage refused", ""),
    ],
)
def test_each_way_not_to_reach_a_store_has_its_own_sentence(
    text: str, kind: type[LakeError], message: str, hint: str
) -> None:
    found = storage_error(OSError(text))

    assert type(found) is kind
    assert found.message.startswith(message)
    assert (found.hint or "").startswith(hint)


def test_a_refused_connection_of_the_system_is_a_timeout() -> None:
    found = storage_error(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))

    assert isinstance(found, TimedOutError)
