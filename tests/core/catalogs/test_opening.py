"""What the catalogs' own libraries raise is told in lake's words."""

from __future__ import annotations

import pytest
from botocore import exceptions as botocore
from sqlalchemy.exc import OperationalError
from support.cli.command_line import CommandLine

from lake.core.catalogs.errors import catalog_errors
from lake.core.errors import BadInputError, LakeError, NotAuthorisedError, TimedOutError


def refused(code: str) -> Exception:
    return botocore.ClientError({"Error": {"Code": code, "Message": "no"}}, "GetTable")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (botocore.NoRegionError(), BadInputError),
        (botocore.NoCredentialsError(), NotAuthorisedError),
        (botocore.PartialCredentialsError(provider="env", cred_var="x"), NotAuthorisedError),
        (botocore.UnauthorizedSSOTokenError(), NotAuthorisedError),
        (botocore.EndpointConnectionError(endpoint_url="https://x"), TimedOutError),
        (botocore.ConnectTimeoutError(endpoint_url="https://x"), TimedOutError),
        (refused("AccessDeniedException"), NotAuthorisedError),
        (refused("ExpiredTokenException"), NotAuthorisedError),
        (refused("UnrecognizedClientException"), NotAuthorisedError),
        (refused("ThrottlingException"), TimedOutError),
        (refused("InternalServiceException"), BadInputError),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_the_libraries_of_aws_are_typed(error: Exception, kind: type[LakeError]) -> None:
    with pytest.raises(LakeError) as told, catalog_errors("table db.t"):
        raise error

    assert type(told.value) is kind


@pytest.mark.parametrize(
    "words",
    [
        "database is locked",
        "Connection refused",
        "server closed the connection unexpectedly",
        "[Errno -3] Temporary failure in name resolution",
    ],
)
def test_a_database_that_is_away_or_locked_is_a_timeout(words: str) -> None:
    with pytest.raises(TimedOutError, match=words.rpartition("] ")[2]), catalog_errors("catalog c"):
        raise OperationalError("SELECT 1", {}, Exception(words))


def test_a_catalog_on_aws_that_is_not_configured_is_not_a_defect(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("PYICEBERG_CATALOG__CLOUD__TYPE", "glue")
    lake.arguments = lambda *words: ["--catalog", "cloud", *words]  # type: ignore[method-assign]

    result = lake("--json", "snapshots", "db.t")

    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "bad-input")
