"""AWS Glue. The version of an entry is the condition of a change of it.

A change is sent once: an answer is then about this request, and not about an earlier copy of it that got no answer.
Requests that change nothing are repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ReadTimeoutError
from pyiceberg import exceptions as theirs
from pyiceberg.catalog import (
    AVAILABLE_CATALOGS,
    METADATA_LOCATION,
    PREVIOUS_METADATA_LOCATION,
    TABLE_TYPE,
    CatalogType,
    glue,
)
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Identifier

from lake.core.io.objects.requests import StoreError
from lake.core.io.objects.waits import awaited
from lake.core.spec.properties.values import whole
from lake.core.table.catalogs.aws import session_of
from lake.core.table.catalogs.catalog import Table, split_identifier
from lake.core.table.catalogs.metastores.other import ServiceBackend

_CONNECT_SECONDS, _READ_SECONDS = 10, 60
_RETRIES = whole("glue.max-retries", 3, least=0)
# Requests whose success a lost answer would hide from the next copy of them.
_CHANGES = frozenset({"create_table", "update_table", "delete_table"})
_REFUSED = frozenset(
    {
        *("EntityNotFoundException", "GlueEncryptionException", "InvalidInputException"),
        *("ResourceNumberLimitExceededException", "SerializationException", "ValidationException"),
    }
)
_FORBIDDEN = frozenset(
    {
        *("AccessDenied", "AccessDeniedException", "ExpiredTokenException", "IncompleteSignature"),
        *("InvalidClientTokenId", "InvalidSignatureException", "MissingAuthenticationToken"),
        *("NotAuthorized", "SignatureDoesNotMatch", "UnrecognizedClientException"),
    }
)
_BUSY = frozenset({"Throttling", "ThrottlingException", "TooManyRequestsException"})
# The type of an entry whose table has another name already: no program commits to it.
_RENAMED = "ICEBERG-RENAMED"
# The parameter of such an entry with the table's name.
_NAME = "renamed-to"
# How often a request is sent that only one version of an entry allows.
_TAKES = 3


class _Client:
    """Two clients: one that repeats requests, and one that sends each change once."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        texts = {key: str(value) for key, value in properties.items()}
        session = session_of(properties, "glue")
        self._reading, self._changing = (
            session.create_client(
                "glue",
                endpoint_url=texts.get("glue.endpoint"),
                config=Config(
                    connect_timeout=_CONNECT_SECONDS,
                    read_timeout=_READ_SECONDS,
                    retries={
                        "total_max_attempts": attempts,
                        "mode": texts.get("glue.retry-mode", "standard"),
                    },
                ),
            )
            for attempts in (_RETRIES.of(texts) + 1, 1)
        )
        if account := texts.get("glue.id"):
            for client in (self._reading, self._changing):
                glue._register_glue_catalog_id_with_glue_client(client, account)  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._changing if name in _CHANGES else self._reading, name)
        return partial(self._sent, found) if callable(found) else found

    def _sent(self, request: Callable[..., Any], **arguments: Any) -> Any:
        """Make a request and return its answer.

        Raises:
            ReadTimeoutError: the command was stopped before the answer came.
            HTTPClientError: the answer is not Glue's but, for example, a page of a proxy: botocore takes it for one.
        """
        address = self._reading.meta.endpoint_url
        try:
            answer = awaited(address, partial(request, **arguments))
        except StoreError as error:
            raise ReadTimeoutError(endpoint_url=address, error=error) from error
        about = answer.get("ResponseMetadata", {}) if isinstance(answer, dict) else {}
        kind = about.get("HTTPHeaders", {}).get("content-type", "")
        if about and "RequestId" not in about and "json" not in kind:
            raise HTTPClientError(error="the answer is not one of Glue")
        return answer


class BoundedGlueCatalog(glue.GlueCatalog):
    """Glue, with a time limit for each request."""

    def __init__(self, name: str, /, **properties: Any) -> None:
        """Open the catalog.

        Raises:
            InvalidRequestError: the number of retries is not a whole number.
        """
        super().__init__(name, client=cast("Any", _Client(properties)), **properties)

    def _is_s3tables_database(self, database_name: str) -> bool:  # noqa: ARG002
        # PyIceberg asks before each commit. Tables of S3 Tables are made by its REST catalog.
        return False

    def drop_same(self, table: Table) -> None:
        """Remove a table's entry if it has the table's metadata file.

        Raises:
            CommitFailedException: it has another one.
            NoSuchTableError: there is none.
        """
        names = split_identifier(table.identifier)
        self._same_entry(names, table.metadata_location)
        self.drop_table(names)

    def rename_table(
        self, from_identifier: str | Identifier, to_identifier: str | Identifier
    ) -> IcebergTable:
        """Give a table another name: make its new entry, take the table from the old one, and remove that.

        PyIceberg removes the old entry whatever was committed to it meanwhile, and the commit would be lost.

        Raises:
            CommitFailedException: another process committed to the table meanwhile; it has its old name only.
            CommitStateUnknownException: it may have both names.
        """
        old, new = (
            self.identifier_to_tuple(from_identifier),
            self.identifier_to_tuple(to_identifier),
        )
        entry = self._entry(old)
        table = self._convert_glue_to_iceberg(entry)
        place = table.metadata_location
        taking = glue._construct_rename_table_input(new[-1], entry)  # noqa: SLF001
        try:
            self._create_glue_table(new[0], new[-1], taking)
        except (ClientError, BotoCoreError):
            # It may have been made although there is no answer.
            if not self._has_entry(new, METADATA_LOCATION, place):
                raise
        try:
            self._take_table(old, entry, new)  # check: rename-of-same-entry
        except (theirs.CommitFailedException, theirs.NoSuchTableError):
            self._take_back(new, place, old)
            raise
        except ClientError as error:
            if _refusal(error):
                self._take_back(new, place, old)
            raise
        self.drop_table(old)
        return table

    def _take_table(self, names: Identifier, entry: Any, name: Identifier) -> None:
        """Let an entry be that of no table, if nothing was committed to it since it was read.

        Raises:
            CommitFailedException: something was committed to it.
            NoSuchTableError: it was dropped.
        """
        taken = glue._construct_rename_table_input(names[-1], entry)  # noqa: SLF001
        own = {TABLE_TYPE: _RENAMED, _NAME: ".".join(name)}
        taken["Parameters"] = {**entry["Parameters"], **own}
        failures: list[Exception] = []
        for _ in range(_TAKES):
            try:
                self._update_glue_table(names[0], names[-1], taken, entry["VersionId"])
            except (
                *(ClientError, BotoCoreError),
                *(theirs.CommitFailedException, theirs.NoSuchTableError),
            ) as error:
                if self._has_entry(names, _NAME, own[_NAME]):
                    return
                failures.append(error)
                if _refusal(error) or not isinstance(error, ClientError | BotoCoreError):
                    break
            else:
                return
        # A copy of the request that got no answer may still be carried out, whatever a later one was answered.
        raise failures[0]

    def _take_back(self, names: Identifier, place: str, name: Identifier) -> None:
        """Remove the entry that a rename made a moment ago, if nothing was committed to it.

        Raises:
            CommitStateUnknownException: it could not be removed.
        """
        try:
            entry = self._same_entry(names, place)
            with suppress(ClientError):
                # A user without the right to replace entries may still remove one.
                self._take_table(names, entry, name)
            self.drop_table(names)
        except (ClientError, BotoCoreError, theirs.CommitFailedException) as error:
            raise theirs.CommitStateUnknownException(
                f"{'.'.join(names)} may be a second name of the table: {error}"
            ) from error

    def _has_entry(self, names: Identifier, parameter: str, value: str) -> bool:
        """Whether there is an entry with a parameter; False if that cannot be read."""
        try:
            return bool(self._entry(names).get("Parameters", {}).get(parameter) == value)
        except (ClientError, BotoCoreError, theirs.NoSuchTableError):
            return False

    def _same_entry(self, names: Identifier, place: str) -> Any:
        """Return an entry if it has a metadata file.

        Raises:
            CommitFailedException: it has another one.
        """
        entry = self._entry(names)
        if entry.get("Parameters", {}).get(METADATA_LOCATION) != place:
            raise theirs.CommitFailedException(f"{'.'.join(names)} has another metadata file now")
        return entry

    def _entry(self, names: Identifier) -> Any:
        return self._get_glue_table(*self.identifier_to_database_and_table(names))


def _parameters(
    metadata_location: str,
    glue_table: Mapping[str, Any] | None = None,
    prev_metadata_location: str | None = None,
    metadata_properties: Mapping[str, str] | None = None,  # noqa: ARG001
) -> dict[str, str]:
    """Return an entry's parameters, without the table's properties, as Iceberg Java.

    PyIceberg adds them after the location of the metadata, which one of them could replace, and never removes one.
    """
    own = {TABLE_TYPE: "ICEBERG", METADATA_LOCATION: metadata_location}
    if prev_metadata_location:
        own[PREVIOUS_METADATA_LOCATION] = prev_metadata_location
    return {**(glue_table or {}).get("Parameters", {}), **own}


def _refusal(error: Exception) -> Exception | None:
    # An error of the connection has no answer.
    answer = getattr(error, "response", None) or {}
    code = answer.get("Error", {}).get("Code", "")
    for codes, kind in (
        (_REFUSED, theirs.BadRequestError),
        (_FORBIDDEN, theirs.ForbiddenError),
        (_BUSY, theirs.TooManyRequestsError),
    ):
        if code in codes:
            return kind(str(error))
    return None


class GlueBackend(ServiceBackend):
    """A Glue catalog."""

    errors = (ClientError, BotoCoreError)

    def refusal(self, error: Exception) -> Exception | None:
        """Return PyIceberg's exception for an answer after which a change certainly was not made; None for others."""
        return _refusal(error)

    def _load_catalog(self) -> PyIcebergCatalog:
        vars(glue)["_construct_parameters"] = _parameters
        AVAILABLE_CATALOGS[CatalogType.GLUE] = lambda name, properties: BoundedGlueCatalog(
            name, **properties
        )
        return super()._load_catalog()
