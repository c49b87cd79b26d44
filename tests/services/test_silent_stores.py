"""A store that accepts connections and never answers: requests end in time, and a stop signal ends every command."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Proxy

from lake.core.base import interrupts
from lake.core.base.clock import SystemClock
from lake.core.base.errors import TimedOutError
from lake.core.io.objects import waits
from lake.core.io.objects.requests import StoreError
from lake.core.io.storage.storage import Storage
from lake.core.transaction.session import open_session

OLD = ("--older-than", "0s", "--unsafe-retention")


@pytest.fixture(autouse=True)
def _hurried(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_LAST_SECONDS", 0.05)
    # Requests that other tests left may end late.
    monkeypatch.setattr(waits, "_threads", waits._Threads())


@pytest.fixture(params=["s3", "gcs", "azure"])
def healthy(request: pytest.FixtureRequest) -> Service:
    """A catalog on each store in turn."""
    found: Service = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.fixture
def proxy(request: pytest.FixtureRequest, healthy: Service) -> Iterator[Proxy]:
    with Proxy(request.getfixturevalue(healthy.kind).endpoint) as running:
        yield running


@pytest.fixture
def faulty(request: pytest.FixtureRequest, healthy: Service, proxy: Proxy) -> Service:
    """The same catalog, with its store behind the proxy."""
    server = request.getfixturevalue(healthy.kind)
    properties = {**healthy.properties, **server.properties(proxy.uri)}
    return Service(
        healthy.kind, properties, healthy.folder, healthy.list_files, judge=healthy.judge
    )


def silent(proxy: Proxy, begun: Lock, method: str, path: str, asked: Asked) -> Answer | None:
    """Stop this process at the first request that matches, and answer neither it nor others from then on."""
    if not begun.locked():
        if not (re.fullmatch(method, asked.method) and re.search(path, asked.path)):
            return None
        if begun.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGTERM)
    return proxy.hang(asked, lambda: Answer(0))


@pytest.fixture
def seconds() -> float:
    """How long a request may take."""
    return 0.2


@pytest.fixture
def storage(faulty: Service, seconds: float) -> Iterator[tuple[Storage, str]]:
    """A storage that waits for a short time, and the location of a file in it."""
    given = {key: str(value) for key, value in faulty.properties.items()}
    # PyIceberg has no property for the other stores.
    found = Storage({**given, "s3.request-timeout": str(seconds)})
    place = f"{faulty.properties['warehouse']}/f"
    reached = found.s3(place)
    assert reached
    client: Any = reached[0].objects()
    before = client.address
    client.address = replace(before, connect_seconds=seconds, read_seconds=seconds)
    vars(client).pop("_store", None)
    yield found, place
    client.address = before
    vars(client).pop("_store", None)


def test_a_request_that_is_not_answered_ends_with_the_name_of_the_host(
    storage: tuple[Storage, str], proxy: Proxy
) -> None:
    reached, place = storage
    proxy.guard = lambda asked: proxy.hang(asked, lambda: Answer(0))
    for ask in (
        lambda: reached.read(place),
        lambda: reached.write(place, b"x"),
        lambda: reached.find_files(place),
    ):
        with pytest.raises(TimedOutError, match=f"does not answer: {urlsplit(proxy.uri).netloc}"):
            ask()


def test_a_stop_signal_ends_a_command_whatever_it_waits_for(faulty: Service, proxy: Proxy) -> None:
    lake, table = faulty.line(), faulty.table()
    source = csv(faulty.folder, "some.csv", id=[1])
    lake.ok("ingest", table, source, "--create")
    lake.ok("ingest", table, source, "--overwrite")
    for method, path, arguments in (
        ("GET", "", ("check", table, "--deep")),
        ("GET", r"\?", ("clean", table, *OLD, "--dry-run")),
        ("PUT", "parquet", ("ingest", table, source)),
        ("PUT", "avro", ("ingest", table, source)),
        ("PUT", r"metadata(\.|%2E)json", ("ingest", table, source)),
        ("POST|DELETE", "", ("expire", table, *OLD)),
    ):
        begun = Lock()
        proxy.guard = partial(silent, proxy, begun, method, path)
        result = lake("--json", *arguments)
        proxy.guard = None
        assert begun.locked()
        assert result.exit_code == 143, result
    assert faulty.rows() == [(1,)]
    assert lake.ok("check", table, "--deep")["result"]["findings"] == []


# On a busy machine, a request reaches the proxy late: a try has time for that, and all are waited for.
@pytest.mark.parametrize("seconds", [2.0])
@pytest.mark.parametrize("healthy", ["gcs", "azure"], indirect=True)
def test_a_store_that_has_no_time_is_asked_twice_and_delays_no_stop(
    storage: tuple[Storage, str], proxy: Proxy
) -> None:
    reached, place = storage
    reached.write(place, b"x")

    def asked(expected: int) -> int:
        proxy.asked.clear()
        with pytest.raises(StoreError, match="did not answer in time"):
            reached.ask_s3(place, lambda bucket, key: bucket.get(key, 1))
        until = time.monotonic() + 10
        while proxy.times("HEAD", "") < expected and time.monotonic() < until:
            time.sleep(0.01)
        return proxy.times("HEAD", "")

    proxy.guard = lambda asked: (
        proxy.hang(asked, lambda: Answer(0)) if asked.method == "HEAD" else None
    )
    assert asked(2) == 2
    assert not waits.has_requests()
    interrupts.STOPPED.set()
    try:
        assert asked(1) == 1
    finally:
        interrupts.STOPPED.clear()
    assert waits.has_requests()


def test_a_stop_signal_ends_a_move_that_the_store_does_not_answer(
    faulty: Service, healthy: Service, proxy: Proxy
) -> None:
    lake, table = faulty.line(), faulty.table()
    lake.ok("ingest", table, csv(faulty.folder, "some.csv", id=[1]), "--create")
    folder = healthy.catalog().load_table(table).location()
    lost = [f"{folder}/data/lost-{number}.parquet" for number in range(2)]
    storage = Storage(healthy.properties)
    for name in lost:
        storage.write(name, b"x")
    # A store reports its time in whole seconds; younger files are kept.
    time.sleep(1 - time.time() % 1)
    begun = Lock()
    proxy.guard = partial(silent, proxy, begun, "PUT", "lost")
    proxy.asked.clear()
    result = lake("--json", "clean", table, "--quarantine", *OLD, "--max-share", "100%")
    proxy.guard = None

    assert result.exit_code == 143, result
    assert proxy.times("PUT", "lost") <= len(lost)
    assert all(storage.exists(name) for name in lost)


class Ahead(SystemClock):
    """The machine's clock, moved forward by a test."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_a_listing_that_a_store_does_not_end_is_given_up_when_the_time_has_ended(
    faulty: Service, proxy: Proxy
) -> None:
    lake, clock, asked = faulty.line(), Ahead(), list[str]()
    lake.ok("ingest", faulty.table(), csv(faulty.folder, "some.csv", id=[1]), "--create")
    lake.open_session = partial(open_session, clock=clock)

    def hanging(request: Asked) -> Answer | None:
        # The only listing that asks for all that is below a folder.
        if "prefix=" not in request.path or "delimiter=" in request.path:
            return None
        asked.append(request.path)
        clock.ahead = 1000.0
        return proxy.hang(request, lambda: Answer(0))

    proxy.guard = hanging
    result = lake("--json", "maintain", "--only", "clean", "--max-seconds", "15m")
    proxy.guard = None
    assert asked
    assert result.exit_code == 6, result
    (row,) = result.json()["result"]["rest"]
    assert row["reason"] == "the time has ended: not all files were listed, and none was removed"
    assert waits.has_requests()
