"""Translate the errors of catalogs and their client libraries into lake's."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg import exceptions as theirs

from lake.core.errors import (
    BadInputError,
    CommitConflictError,
    CorruptFileError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    TimedOutError,
)

_TIMED_OUT = re.compile(
    r"timed? ?out\b|timeout (?:expired|was reached)|database (?:table )?is locked|throttl"
    r"|could not connect to the endpoint",
    re.IGNORECASE,
)
_UNAUTHORISED = re.compile(
    r"password authentication failed|no password supplied|permission denied|access.?denied"
    r"|role .* (?:does not exist|is not permitted)"
    r"|(?:unable to locate|partial) credentials|sso session|expired.?token|token has expired"
    r"|unrecognized.?client|invalid.?client.?token|signature.?does.?not.?match",
    re.IGNORECASE,
)
# A server that is unreachable, or not started yet; an unknown host name is a mistake in the configuration.
_AWAY = re.compile(
    r"connection refused|no route to host|(?:network|host) is unreachable|connection (?:reset|aborted)"
    r"|remote end closed connection|server closed the connection|temporary failure in name resolution",
    re.IGNORECASE,
)
_LOCKED = re.compile(r"database (?:table )?is locked", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
_LONGEST_REASON = 500


def locked_error(error: BaseException, database: str | None) -> TimedOutError | None:
    """Return the error for a SQLite database that another process holds; None for any other error.

    Args:
        error: what was raised.
        database: the database's file; None where the catalog has no such file.
    """
    if database is None or not _LOCKED.search(str(error)):
        return None
    return TimedOutError(
        f"the database {database} is locked by another process",
        hint="end the process that holds it, or run the command again when it has ended",
    )


@contextmanager
def catalog_errors(what: str, *, database: str | None = None) -> Iterator[None]:
    """Turn PyIceberg's errors on anything but a commit into lake's.

    Args:
        what: what is opened, for messages.
        database: the file of a catalog on SQLite.
    """
    try:
        yield
    except LakeError:
        raise
    except (
        theirs.NoSuchTableError,
        theirs.NoSuchNamespaceError,
        theirs.NoSuchIcebergTableError,
    ) as error:
        raise NotFoundError(f"{what} does not exist") from error
    except theirs.TableAlreadyExistsError as error:
        raise CommitConflictError(f"{what} was made by someone else meanwhile") from error
    except (
        theirs.UnauthorizedError,
        theirs.ForbiddenError,
        theirs.AuthorizationExpiredError,
        theirs.OAuthError,
        PermissionError,
    ) as error:
        raise NotAuthorisedError(f"not allowed to open {what}") from error
    except FileNotFoundError as error:
        raise CorruptFileError(f"the metadata file of {what} is missing") from error
    except (ValidationError, UnicodeDecodeError, theirs.ValidationError) as error:
        raise CorruptFileError(
            f"the metadata of {what} cannot be read: {first_line(error)}"
        ) from error
    except (theirs.ServiceUnavailableError, theirs.TooManyRequestsError) as error:
        raise TimedOutError(
            f"the catalog is too busy to open {what}: {first_line(error)}",
            hint="run the command again",
        ) from error
    except (ModuleNotFoundError, theirs.NotInstalledError) as error:
        raise BadInputError(
            f"{what} needs a Python module that is not installed: {first_line(error)}",
            hint="install it into lake's environment, e.g. pip install psycopg2-binary",
        ) from error
    except Exception as error:
        known = (theirs.RESTError, theirs.NoSuchPropertyException, ValueError, OSError)
        if isinstance(error, (*known, *database_errors(), *_aws_errors())):
            if refusal := locked_error(error, database):
                raise refusal from error
            raise _translated(error, what) from error
        raise


def database_errors() -> tuple[type[Exception], ...]:
    """Return the errors of SQL catalogs, if one was opened."""
    module = sys.modules.get("sqlalchemy.exc")
    return (module.SQLAlchemyError,) if module else ()


def _aws_errors() -> tuple[type[Exception], ...]:
    """Return the errors of catalogs on AWS, if one was opened."""
    module = sys.modules.get("botocore.exceptions")
    return (module.BotoCoreError, module.ClientError) if module else ()


def _translated(error: BaseException, what: str) -> LakeError:
    text = str(error)
    away = _AWAY.search(text)
    if away:
        return TimedOutError(
            f"cannot open {what}: {_address(error, away[0].lower())}",
            hint="check that the server runs at this address, then run the command again",
        )
    if isinstance(error, TimeoutError) or _TIMED_OUT.search(text):
        return TimedOutError(f"opening {what} took too long: {first_line(error)}")
    if _UNAUTHORISED.search(text):
        return NotAuthorisedError(f"not allowed to open {what}: {first_line(error)}")
    return BadInputError(f"cannot open {what}: {first_line(error)}")


def _address(error: BaseException, reason: str) -> str:
    """Return a server's host and port and why it cannot be reached, as far as the error contains them."""
    if hasattr(error, "orig"):
        # A database's client reports both, in several lines.
        return " ".join(str(error.orig).split())[:_LONGEST_REASON]
    url = getattr(getattr(error, "request", None), "url", None)
    if url is None:
        return first_line(error)
    address = urlsplit(str(url))
    port = address.port or _PORTS.get(address.scheme)
    return f"{address.hostname}, port {port}: {reason}"


def first_line(error: BaseException) -> str:
    """Return the start of an error's text: enough to recognise the error, too little to leak a response."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:200]
