"""Logins at AWS: the session of a catalog's client, and signatures of requests to a REST catalog.

A signature (version 4) covers a request's address, its content and its time, for one service in one region. Amazon's
REST catalogs are those of S3 Tables (`s3tables`) and Glue (`glue`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any, cast

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from lake.core.base.errors import BadInputError, NotAuthorisedError

_REGION, _SERVICE = "rest.signing-region", "rest.signing-name"
# PyIceberg's default, and that of Iceberg Java.
_DEFAULT_SERVICE = "execute-api"
_OURS = "AWS4-HMAC-SHA256 "
_MADE = ("X-Amz-Date", "X-Amz-Security-Token", "X-Amz-Content-SHA256")


def session_of(properties: Mapping[str, Any], family: str = "client") -> Any:
    """Return botocore's session for a catalog; what is not configured is found as by AWS's own tools.

    Args:
        properties: the catalog's configuration.
        family: the first word of the properties that count before those of ``client.``.

    Raises:
        BotoCoreError: the configured profile does not exist.
    """

    def first(key: str) -> str | None:
        found = (properties.get(f"{word}.{key}") for word in (family, "client"))
        return next((str(value) for value in found if value), None)

    session = Session(profile=first("profile-name"))
    # AWS's newer tools read this variable, botocore does not.
    if region := first("region") or os.environ.get("AWS_REGION"):
        session.set_config_variable("region", region)
    access, secret = first("access-key-id"), first("secret-access-key")
    if access and secret:
        session.set_credentials(access, secret, first("session-token"))
    return session


class Signer:
    """Signs requests to a REST catalog.

    Raises:
        BadInputError: no region is configured.
        NotAuthorisedError: there are no keys.
    """

    def __init__(self, name: str, properties: Mapping[str, Any]) -> None:
        try:
            session = session_of(properties)
            region = properties.get(_REGION) or session.get_config_variable("region")
            self._keys = session.get_credentials()
        except BotoCoreError as error:
            raise BadInputError(f"cannot sign requests to catalog {name}: {error}") from error
        if not region:
            raise BadInputError(
                f"catalog {name} has no region for the signatures of its requests",
                hint=f"set the catalog's {_REGION}, or AWS_REGION",
            )
        if self._keys is None:
            raise NotAuthorisedError(
                f"there are no AWS credentials to sign requests to catalog {name}",
                hint="check AWS_PROFILE, AWS_ACCESS_KEY_ID, or the catalog's client.* properties",
            )
        self._region = str(region)
        self._service = str(properties.get(_SERVICE) or _DEFAULT_SERVICE)

    def __call__(self, request: requests.PreparedRequest) -> None:
        """Sign a request; one that is sent again gets a new signature."""
        # A server may read a plus sign as itself. The signature is about the same text.
        address, mark, query = str(request.url).partition("?")
        request.url = f"{address}{mark}{query.replace('+', '%20')}"
        headers, body = request.headers, request.body or b""
        content = body.encode() if isinstance(body, str) else cast("bytes", body)
        for name in _MADE:
            headers.pop(name, None)
        given = headers.pop("Authorization", None)
        if given and not str(given).startswith(_OURS):
            headers["Original-Authorization"] = given
        # Programs on the way may change other headers.
        signed = AWSRequest(
            request.method,
            request.url,
            {
                "X-Amz-Content-SHA256": hashlib.sha256(content).hexdigest(),
                **({"Content-Type": headers["Content-Type"]} if "Content-Type" in headers else {}),
            },
            content,
        )
        SigV4Auth(self._keys.get_frozen_credentials(), self._service, self._region).add_auth(signed)
        headers.update(dict(signed.headers.items()))
