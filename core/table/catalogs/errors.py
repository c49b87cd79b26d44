"""Translate the errors of catalogs and their client libraries into lake's errors."""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg import exceptions as theirs

from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CorruptFileError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    SilentError,
    TimedOutError,
)
from lake.core.table.catalogs.configuration import place_of

_TIMED_OUT = re.compile(
    r"timed? ?out\b|timeout (?:expired|was reached)|database (?:table )?is locked|throttl"
    r"|could not connect to the endpoint",
    re.IGNORECASE,
)
_SILENT = re.compile(r"timed? ?out\b", re.IGNORECASE)
_UNAUTHORISED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba.conf entry|permission denied|access.?denied"
    r"|role .* (?:does not exist|is not permitted)"
    r"|(?:unable to locate|partial|default) credentials|sso session|expired.?token|token has expired"
    r"|unrecognized.?client|invalid.?client.?token|signature.?does.?not.?match",
    re.IGNORECASE,
)
# A server that is unreachable, or not started yet.
_AWAY = re.compile(
    r"connection refused|no route to host|(?:network|host) is unreachable|connection (?:reset|aborted)"
    r"|remote end closed connection|server closed the connection|temporary failure in name resolution"
    r"|could not connect to any of",
    re.IGNORECASE,
)
# An unknown host name is a mistake in the configuration, unless the name server itself is unreachable.
_UNRESOLVED = re.compile(
    r"failed to resolve|could not (?:resolve|translate) host|name or service not known"
    r"|nodename nor servname|no address associated with hostname",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"(?:resolve(?: sockaddr for)?|host name|host:) '?\"?(?P<host>[\w.-]+)", re.IGNORECASE
)
_TLS = re.compile(
    r"certificate verify failed|\[SSL|\bSSL (?:error|was required)|SSLError", re.IGNORECASE
)
_UNTRUSTED = re.compile(r"certificate verify failed: ([^()\n]+)")
_TLS_CODE = re.compile(r"\[SSL: (\w+)\]")
_LOCKED = re.compile(r"database (?:table )?is locked", re.IGNORECASE)
# Texts of PyIceberg, SQLite and botocore about a configuration that is not complete.
_NO_WAREHOUSE = "No default path is set"
_NO_DATABASE = "unable to open database file"
_READ_ONLY = "attempt to write a readonly database"
_NO_REGION = "You must specify a region"
_NO_CLASS = "Could not initialize Catalog"
_NO_DRIVER = re.compile(r"Can't load plugin: sqlalchemy\.dialects:(\S+)")
# The text that PyIceberg adds to a server's message.
_AROUND = re.compile(
    r"(?P<code>RESTError \d+): (?:Received unexpected JSON Payload|Could not decode json payload): "
    r"(?P<text>.*?)(?:, errors: .*)?$",
    re.DOTALL,
)
_PORTS = {"http": 80, "https": 443}
_LONGEST_REASON = 500
_LONGEST_LINE = 200
# Properties by which a catalog's client logs in, the usual ones first.
_LOGINS = ("credential", "token", "auth", "header.authorization")
_CLOUD_LOGINS = {
    "botocore": "the AWS credentials: AWS_PROFILE, AWS_ACCESS_KEY_ID, or the catalog's client.* properties",
    "google": "the Google credentials: GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
}
# Packages that PyIceberg's extras consist of, by the module that is missing.
_PACKAGES = {
    "adlfs": "pyiceberg[adlfs]",
    "azure": "pyiceberg[entra-auth]",
    "boto3": "lake-iceberg[glue]",
    "fsspec": "pyiceberg[s3fs]",
    "gcsfs": "pyiceberg[gcsfs]",
    "google": "pyiceberg[gcp-auth]",
    "huggingface_hub": "pyiceberg[hf]",
    "kerberos": "pyiceberg[hive-kerberos]",
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "puresasl": "pyiceberg[hive-kerberos]",
    "s3fs": "pyiceberg[s3fs]",
    "thrift": "lake-iceberg[hive]",
    "thrift_sasl": "pyiceberg[hive-kerberos]",
}
_EXTRA = re.compile(r"pip install '?([\w.-]+\[[\w,-]+\])")
_SQL_EXTRA = "pyiceberg[sql-"
# Base classes of the errors of client libraries, which are looked up only if a catalog has imported them.
_LIBRARIES = (
    ("sqlalchemy.exc", "SQLAlchemyError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("thrift.Thrift", "TException"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("google.auth.exceptions", "GoogleAuthError"),
)


class Opened(Protocol):
    """A catalog, as far as messages about it need it."""

    @property
    def name(self) -> str:
        """The catalog's name."""

    @property
    def configured(self) -> Mapping[str, Any]:
        """Its configuration, which may contain secrets."""

    @property
    def database(self) -> str | None:
        """The file of a catalog in SQLite; None for any other catalog."""


def locked_error(error: BaseException, database: str | None) -> TimedOutError | None:
    """Return the error for a SQLite database that another process holds; None for any other error.

    Args:
        error: the exception that was raised.
        database: the database's file; None if the catalog has no such file.
    """
    if database is None or not _LOCKED.search(str(error)):
        return None
    return TimedOutError(
        f"the database {database} is locked by another process",
        hint="end the process that holds the lock, or run the command again after it has ended",
    )


def unwritten_error(error: BaseException, database: str | None) -> LakeError | None:
    """Return the error for a SQLite database that did not take a change; None for any other error."""
    if database is not None and _READ_ONLY in str(error):
        return NotAuthorisedError(f"no permission to write the database {database} and its folder")
    return locked_error(error, database)


@contextmanager
def catalog_errors(what: str, catalog: Opened | None = None) -> Iterator[None]:
    """Translate PyIceberg's errors into lake's, for every operation but a commit."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        refusal = _translated(error, what, catalog)
        if refusal is None:
            raise
        raise refusal from error


def _translated(error: Exception, what: str, catalog: Opened | None) -> LakeError | None:
    """Return lake's error for an error of a catalog or its client library; None for a defect."""
    match error:
        case (
            theirs.NoSuchTableError()
            | theirs.NoSuchNamespaceError()
            | theirs.NoSuchIcebergTableError()
        ):
            return NotFoundError(f"{what} does not exist")
        case theirs.CommitFailedException():
            return CommitConflictError(f"another process changed {what} meanwhile")
        case theirs.TableAlreadyExistsError():
            return CommitConflictError(f"another process created {what} meanwhile")
        case (
            theirs.UnauthorizedError()
            | theirs.ForbiddenError()
            | theirs.AuthorizationExpiredError()
            | theirs.OAuthError()
        ):
            return _refused(error, what, catalog)
        case PermissionError():
            return NotAuthorisedError(f"no permission to open {what}: {first_line(error)}")
        case FileNotFoundError():
            return CorruptFileError(f"the metadata file of {what} is missing")
        case ValidationError() | UnicodeDecodeError() | theirs.ValidationError():
            return CorruptFileError(f"the metadata of {what} cannot be read: {first_line(error)}")
        case theirs.ServiceUnavailableError() | theirs.TooManyRequestsError():
            return TimedOutError(
                f"the catalog is too busy to open {what}: {words(error)}",
                hint="run the command again",
            )
        case ImportError() | theirs.NotInstalledError():
            return _not_installed(error, what, catalog)
    known = (theirs.RESTError, theirs.NoSuchPropertyException, ValueError, OSError)
    if isinstance(error, (*known, *_library_errors())):
        database = catalog.database if catalog else None
        return unwritten_error(error, database) or _failed(error, what, catalog)
    if isinstance(error, TypeError | AttributeError | KeyError) and _is_pyicebergs(error):
        # A server, or a database that keeps any value in any column, returned a value of another type.
        return CorruptFileError(
            f"the catalog contains a value of a wrong type for {what}: {first_line(error)}"
        )
    return None


def _is_pyicebergs(error: Exception) -> bool:
    """Whether PyIceberg's code raised an error, not lake's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(
        "pyiceberg."
    )


def _library_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the client libraries that were imported."""
    modules = ((sys.modules.get(module), name) for module, name in _LIBRARIES)
    return tuple(getattr(module, name) for module, name in modules if module)


def _refused(error: Exception, what: str, catalog: Opened | None) -> NotAuthorisedError:
    """Return the error for credentials that a server did not accept, with the server's own message."""
    if catalog is None:
        return NotAuthorisedError(f"not allowed to open {what}: {words(error)}")
    if isinstance(error, theirs.ForbiddenError):
        return NotAuthorisedError(
            f"catalog {catalog.name} does not allow this user to open {what}: {words(error)}",
            hint=f"grant the privilege on the server, or set another user: {_login(error, catalog)}",
        )
    subject = "the login" if what == f"catalog {catalog.name}" else f"the login for {what}"
    return NotAuthorisedError(
        f"catalog {catalog.name} refused {subject}: {words(error)}",
        hint=f"check {_login(error, catalog)}",
    )


def _login(error: Exception, catalog: Opened) -> str:
    """Return where the credentials of a catalog's client are set."""
    library = type(error).__module__.partition(".")[0]
    if str(catalog.configured.get("rest.sigv4-enabled", "")).lower() == "true":
        library = "botocore"
    if library in _CLOUD_LOGINS:
        return _CLOUD_LOGINS[library]
    # The address of a database contains the user and the password.
    keys = ("uri",) if hasattr(error, "orig") else _LOGINS
    key = next((key for key in keys if key in catalog.configured), keys[0])
    return place_of(catalog.name, key)


def _not_installed(error: Exception, what: str, catalog: Opened | None) -> BadInputError:
    named = _EXTRA.search(str(error))
    module = _missing_module(error)
    if named and named[1].startswith(_SQL_EXTRA):
        # PyIceberg names an extra for PostgreSQL, whatever driver the address names.
        named = None
    package = named[1] if named else _PACKAGES.get(module, module)
    if module == "boto3" and catalog is not None and not named:
        package = "pyiceberg[dynamodb]"
    return BadInputError(
        f"{what} needs a Python package that is not installed: {package or first_line(error)}",
        hint=f"pip install '{package}'" if package else None,
    )


def _missing_module(error: BaseException | None) -> str:
    """Return the name of the module that an import did not find; empty if the error does not contain it."""
    while error is not None:
        if isinstance(error, ImportError) and error.name:
            return error.name.partition(".")[0]
        error = error.__cause__ or error.__context__
    return ""


def _failed(error: Exception, what: str, catalog: Opened | None) -> LakeError:
    text = _whole_text(error)
    if _UNRESOLVED.search(text) and not _AWAY.search(text):
        return BadInputError(
            f"cannot open {what}: the host name {_host(error, text)} is not known",
            hint=f"check {_address_setting(catalog)}, and the name server of this machine",
        )
    if isinstance(error, ssl.SSLError) or _TLS.search(text):
        return _not_encrypted(error, text, what, catalog)
    if away := _AWAY.search(text):
        return TimedOutError(
            f"cannot open {what}: {_address(error, away[0].lower())}",
            hint="check that the server runs at this address, then run the command again",
        )
    if isinstance(error, TimeoutError) or _TIMED_OUT.search(text):
        is_silent = isinstance(error, TimeoutError) or _SILENT.search(text)
        kind = SilentError if is_silent else TimedOutError
        return kind(
            f"opening {what} took too long: {first_line(error)}",
            hint="run the command again when the server answers",
        )
    if _UNAUTHORISED.search(text):
        return _refused(error, what, catalog)
    return _not_configured(error, text, what, catalog)


def _not_configured(
    error: Exception, text: str, what: str, catalog: Opened | None
) -> BadInputError:
    if catalog is None:
        return BadInputError(f"cannot open {what}: {words(error)}")
    if _NO_WAREHOUSE in text:
        return BadInputError(
            f"catalog {catalog.name} has no warehouse, so there is no place for {what}",
            hint=f"set {place_of(catalog.name, 'warehouse')} to the folder of new tables",
        )
    if driver := _NO_DRIVER.search(text):
        return BadInputError(
            f"catalog {catalog.name} needs a database driver that is not known: {driver[1]}",
            hint=f"check {_address_setting(catalog)}: sqlite:///FILE or postgresql+psycopg2://USER@HOST/DATABASE",
        )
    if catalog.database and _NO_DATABASE in text:
        return BadInputError(
            f"cannot open {what}: the file {catalog.database} cannot be opened or created",
            hint="check that its folder exists and that this user may write there",
        )
    hint = None
    if _NO_REGION in text:
        hint = f"set {place_of(catalog.name, 'client.region')}, or AWS_REGION"
    elif _NO_CLASS in text:
        hint = f"check {place_of(catalog.name, 'py-catalog-impl')}: it names a module of this environment and a class"
    return BadInputError(f"cannot open {what}: {words(error)}", hint=hint)


def _not_encrypted(error: Exception, text: str, what: str, catalog: Opened | None) -> BadInputError:
    server = _address(error, "").rstrip(": ") if _url(error) else "the server"
    if untrusted := _UNTRUSTED.search(text):
        setting = place_of(catalog.name, "ssl.cabundle") if catalog else "'ssl.cabundle'"
        return BadInputError(
            f"cannot open {what}: the certificate of {server} is not trusted: {untrusted[1].strip()}",
            hint=f"if its authority is your own, set REQUESTS_CA_BUNDLE or {setting} to the authority's file",
        )
    code = _TLS_CODE.search(text)
    reason = code[1].lower().replace("_", " ") if code else words(error)
    return BadInputError(
        f"cannot open {what}: no encrypted connection to {server}: {reason}",
        hint=f"check that the server speaks TLS at this address: {_address_setting(catalog)}",
    )


def _address_setting(catalog: Opened | None) -> str:
    if catalog is None:
        return "the catalog's 'uri'"
    if "uri" in catalog.configured:
        return place_of(catalog.name, "uri")
    return "the region and the endpoint in the catalog's configuration"


def _whole_text(error: BaseException) -> str:
    """Return an error's text with that of the error that it contains, which botocore omits."""
    inner = getattr(error, "kwargs", {}).get("error")
    return f"{error} {inner}" if inner is not None else str(error)


def _host(error: BaseException, text: str) -> str:
    host = urlsplit(_url(error) or "").hostname
    found = _HOST.search(text)
    return host or (found["host"] if found else "of the server")


def _url(error: BaseException) -> str | None:
    url = getattr(getattr(error, "request", None), "url", None)
    return None if url is None else str(url)


def _address(error: BaseException, reason: str) -> str:
    """Return a server's host and port and the reason for the failure, if the error contains them."""
    if hasattr(error, "orig"):
        # A database's client reports both, in several lines.
        return " ".join(str(error.orig).split())[:_LONGEST_REASON]
    url = _url(error)
    if url is None:
        return first_line(error)
    address = urlsplit(url)
    port = address.port or _PORTS.get(address.scheme)
    return f"{address.hostname}, port {port}: {reason}"


def words(error: BaseException) -> str:
    """Return the server's own message in an error, without the text that client libraries add."""
    if hasattr(error, "orig"):
        return " ".join(str(error.orig).split())[:_LONGEST_REASON]
    around = _AROUND.match(str(error))
    if around is None:
        return first_line(error)
    code = around["code"].replace("RESTError", "HTTP status")
    return f"{code}: {' '.join(around['text'].split())[:_LONGEST_LINE]}"


def first_line(error: BaseException) -> str:
    """Return the start of an error's text: enough to recognise the error, too little to leak a response."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:_LONGEST_LINE]
