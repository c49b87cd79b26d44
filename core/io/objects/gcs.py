"""Google Cloud Storage: its client by the properties of PyIceberg's FileIO.

Logins: ``gcs.oauth2.token``, or the sources of Google's own tools (application default credentials): the file that
``GOOGLE_APPLICATION_CREDENTIALS`` names, the login of ``gcloud``, the server of metadata of a machine or a pod. Other
kinds of files, such as workload identity federation, need the package google-auth.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import BadInputError
from lake.core.io.objects.cloud_objects import CloudObjects, Login
from lake.core.io.objects.whole_objects import Address, is_supported

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_ENDPOINT = "https://storage.googleapis.com"
_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
# The kinds of files that `obstore` reads itself.
_PLAIN_FILES = frozenset({"service_account", "authorized_user"})
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_LONGEST_FILE = 1024 * 1024


class GcsObjects(CloudObjects):
    """The objects of a bucket."""

    name = "Google"
    _login_hint = (
        "log in with gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
    )
    _tag = "version"
    # The client sends ten requests at the same time.
    most_keys, keys_of_request = 100, 1

    @classmethod
    def of(cls, properties: Mapping[str, str], bucket: str) -> GcsObjects:
        """Return the client of a bucket.

        Raises:
            BadInputError: the endpoint is not a server's address, or a package is missing.
        """
        endpoint = (properties.get("gcs.service.host") or _ENDPOINT).rstrip("/")
        if not is_supported(endpoint):
            raise BadInputError("gcs.service.host is not the address of a server")
        return cls(Address(bucket, endpoint, ""), _login(properties))

    def _open(self, options: ClientConfig, retries: Any) -> Any:
        from obstore.store import GCSStore  # noqa: PLC0415 - door: remote stores only

        return GCSStore(
            self.address.bucket,
            base_url=self.address.endpoint,
            client_options=options,
            retry_config=retries,
            **self._settings,
        )


def _login(properties: Mapping[str, str]) -> dict[str, Any]:
    token = properties.get("gcs.oauth2.token")
    if str(properties.get("gcs.no-auth", "")).lower() == "true":
        # Writes would ask for a login nevertheless.
        return {"skip_signature": True, "credential_provider": Login(("token", "none"))}
    if token:
        return {"credential_provider": Login(("token", token))}
    if _kind_of_file() in _PLAIN_FILES:
        return {}
    try:
        import google.auth  # noqa: PLC0415 - this kind only
        from obstore.auth.google import GoogleCredentialProvider  # noqa: PLC0415
    except ImportError as error:
        raise BadInputError(
            f"the file that {_FILE} names needs the package google-auth",
            hint="pip install 'lake-iceberg[gcs]'",
        ) from error
    try:
        login, _ = google.auth.default(scopes=[_SCOPE])
    except google.auth.exceptions.GoogleAuthError as error:
        raise BadInputError(f"the file that {_FILE} names is not a login of Google") from error
    return {"credential_provider": GoogleCredentialProvider(login)}


def _kind_of_file() -> str:
    """Return the kind of login in the file that the environment names; that of a service account without one.

    Raises:
        BadInputError: the file cannot be read.
    """
    path = os.environ.get(_FILE)
    if not path:
        return "service_account"
    try:
        with open(path, "rb") as file:
            kind = json.loads(file.read(_LONGEST_FILE)).get("type")
    except (OSError, ValueError, AttributeError) as error:
        raise BadInputError(f"cannot read the file that {_FILE} names: {path}") from error
    return str(kind)
