"""A catalog that fails at chosen calls, with the errors that PyIceberg's REST and SQL catalogs raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import requests
from pyiceberg import exceptions as theirs
from pyiceberg.catalog.noop import NoopCatalog
from sqlalchemy.exc import OperationalError

from world.faulty import SPILL, Act, Call, Fault, Layer

LOAD, COMMIT = "load", "commit"
STALE = object()


class FaultyCatalog(NoopCatalog):
    """A catalog in front of another one, with a layer's faults."""

    def __init__(self, behind: Any, layer: Layer) -> None:
        super().__init__("lake")
        self._behind = behind
        self._layer = layer

    @property
    def engine(self) -> Any:
        """Where a catalog in SQL stores the names of tables and views."""
        return self._behind.engine

    def load_table(self, identifier: Any) -> Any:
        def load() -> Any:
            found = self._behind.load_table(identifier)
            self._layer.first.setdefault(str(identifier), found)
            return found

        call: Any = self._layer.at(LOAD, str(identifier), load)
        # Like a server's outdated cache.
        return self._layer.first.get(str(identifier), call) if call is STALE else call

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        return self._layer.at(
            COMMIT, "commit", lambda: self._behind.commit_table(table, requirements, updates)
        )

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = None) -> None:
        self._behind.create_namespace_if_not_exists(namespace)

    def create_table_transaction(self, *arguments: Any, **named: Any) -> Any:
        return self._behind.create_table_transaction(*arguments, **named)


def _http(status: int) -> Exception:
    kinds: dict[int, type[Exception]] = {
        401: theirs.UnauthorizedError,
        403: theirs.ForbiddenError,
        419: theirs.AuthorizationExpiredError,
        429: theirs.TooManyRequestsError,
        503: theirs.ServiceUnavailableError,
        409: theirs.CommitFailedException,
    }
    return kinds.get(status, theirs.ServerError)(f"RESTError {status}: {SPILL}")


_OPEN: dict[str, Callable[[], Exception]] = {
    "500": lambda: _http(500),
    "502": lambda: _http(502),
    "503": lambda: _http(503),
    "504": lambda: _http(504),
    "unknown": lambda: theirs.CommitStateUnknownException(f"CommitStateUnknown: {SPILL}"),
    "reset": lambda: requests.ConnectionError(f"Connection aborted. {SPILL}"),
    "timeout": lambda: requests.Timeout(f"Read timed out. {SPILL}"),
    "no json": lambda: requests.JSONDecodeError(f"Expecting value {SPILL}", "<html>", 0),
    "database": lambda: OperationalError(f"COMMIT {SPILL}", {}, Exception("server closed")),
}


def _raise(make: Callable[[], Exception]) -> Callable[[Call, Act], Any]:
    def work(_call: Call, _real: Act) -> Any:
        raise make()

    return work


def _landed(make: Callable[[], Exception]) -> Callable[[Call, Act], Any]:
    def work(_call: Call, real: Act) -> Any:
        real()
        raise make()

    return work


def _faults() -> Iterator[Fault]:
    for name, make in _OPEN.items():
        yield Fault(f"commit: {name}", COMMIT, _raise(make), frozenset({5}))
        yield Fault(f"landed: {name}", COMMIT, _landed(make), frozenset({5}))
        yield Fault(f"load: {name}", LOAD, _raise(make), frozenset({7, 10}))
    for status in (401, 403, 419):
        yield Fault(f"commit: {status}", COMMIT, _raise(lambda s=status: _http(s)), frozenset({9}))
        yield Fault(f"load: {status}", LOAD, _raise(lambda s=status: _http(s)), frozenset({9}))
    yield Fault("commit: 429", COMMIT, _raise(lambda: _http(429)), frozenset())
    yield Fault("load: 429", LOAD, _raise(lambda: _http(429)), frozenset({10}))
    yield Fault("commit: 409", COMMIT, _raise(lambda: _http(409)), frozenset({4}))
    yield Fault("landed: 409", COMMIT, _landed(lambda: _http(409)), frozenset())
    yield Fault(
        "load: gone",
        LOAD,
        _raise(lambda: theirs.NoSuchTableError(f"no table {SPILL}")),
        frozenset({7}),
    )
    yield Fault("load: stale", LOAD, _stale, frozenset({4}))
    yield Fault("load: locked", LOAD, _raise(_locked), frozenset({7, 10}))


def _stale(call: Call, real: Act) -> Any:
    return STALE if call.number else real()


def _locked() -> Exception:
    return OperationalError(f"SELECT {SPILL}", {}, Exception("database is locked"))


CATALOG_FAULTS = {one.name: one for one in _faults()}
