"""Open the file system or the bucket of a location's store with the storage properties of a catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lake.core.base.clock import Backoff
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.io.objects.cloud import Cloud
from lake.core.io.objects.requests import UnsupportedError
from lake.core.io.objects.s3 import S3, is_certified, require_reachable
from lake.core.io.objects.s3_connection import AUTHORITIES, Connection, completed
from lake.core.io.storage.errors import distrusted, is_distrust

# Arrow's waits are 50 ms, 100 ms and so on, without a limit: 102 s together.
ARROW_TRIES = 12
# The most characters of another library's message.
MESSAGE_LENGTH = 400
# How long a bucket is left to Arrow's client before its settings are tried again.
_UNSUPPORTED_SECONDS = 60.0
_unsupported_until: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}


@lru_cache(maxsize=16)
def _open_bucket(scheme: str, name: str, properties: Iterable[tuple[str, str]]) -> S3 | Cloud:
    if scheme == "s3":
        return S3(Connection(completed(dict(properties)), name))
    return Cloud.of(scheme, name, dict(properties))


def bucket_with(
    backoff: Backoff, scheme: str, name: str, properties: tuple[tuple[str, str], ...]
) -> S3 | Cloud | None:
    """Return the client of a bucket; None while only Arrow's client supports it or its settings."""
    key, now = (scheme, name, properties), backoff.clock.monotonic()
    if now < _unsupported_until.get(key, now):
        return None
    try:
        return _open_bucket(*key).waiting(backoff)
    except UnsupportedError:
        # Arrow's client may support the settings; a region or keys may also be found later.
        _unsupported_until[key] = now + _UNSUPPORTED_SECONDS
        return None


def open_filesystem(scheme: str, authority: str, properties: Iterable[tuple[str, str]]) -> Any:
    """Return Arrow's file system of a store.

    Raises:
        BadInputError: the scheme is not supported, or the settings are wrong.
        StorageError: Arrow does not trust the store's certificate.
    """
    if scheme == "file":
        return pafs.LocalFileSystem()
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - costs 0.2 s, remote stores only

    settings = completed(dict(properties))
    authorities = settings.pop(AUTHORITIES, None)
    if scheme == "s3":
        require_reachable(settings)
    try:
        filesystem = PyArrowFileIO(settings).fs_by_scheme(scheme, authority or None)
    except ValueError as error:
        raise BadInputError(
            f"{scheme}:// locations are not supported",
            hint="paths, s3://, gs:// and abfss:// are; pipe a download to `lake ingest TABLE -` with "
            f"{Option.FORMAT}",
        ) from error
    except (TypeError, ImportError, OSError, pa.ArrowException) as error:
        why = (str(error).strip().splitlines() or [""])[0][:MESSAGE_LENGTH]
        raise BadInputError(
            f"cannot open {scheme}://{authority}: {why}",
            hint="check the storage settings of the catalog's configuration and the packages on this machine",
        ) from error
    return (
        filesystem if "s3.retry-strategy-impl" in settings else with_limits(filesystem, authorities)
    )


def with_limits(filesystem: Any, authorities: str | None = None) -> Any:
    """Return a file system with settings that PyIceberg does not support; Arrow pickles it as its settings.

    Args:
        filesystem: Arrow's file system.
        authorities: the file of trusted authorities; None for that of the environment.
    """
    if isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem
    wanted = {"tls_ca_file_path": authorities or os.environ.get("AWS_CA_BUNDLE")}
    make, arguments = filesystem.__reduce__()
    settings = arguments[0] if arguments and isinstance(arguments[0], dict) else {}
    more = {key: value for key, value in wanted.items() if value and key in settings}
    if filesystem.type_name == "s3":
        _require_trust(make, {**settings, **more})
        # The settings of an existing file system do not contain it.
        more["retry_strategy"] = pafs.AwsDefaultS3RetryStrategy(max_attempts=ARROW_TRIES)
    return make({**settings, **more}) if more else filesystem


def _require_trust(make: Callable[[dict[str, Any]], Any], settings: dict[str, Any]) -> None:
    """Check that Arrow accepts a store's certificate, before requests are repeated for minutes.

    Arrow may trust other authorities than Python does, so its own answer decides.

    Raises:
        StorageError: it does not.
    """
    endpoint = str(settings.get("endpoint_override") or "")
    proxy = (settings.get("proxy_options") or {}).get("host")
    if proxy or is_certified(endpoint, str(settings.get("tls_ca_file_path") or "")):
        return
    once = make({**settings, "retry_strategy": pafs.AwsDefaultS3RetryStrategy(max_attempts=1)})
    try:
        once.get_file_info("certificate")
    except OSError as error:
        if is_distrust(error):
            raise distrusted(endpoint) from error
