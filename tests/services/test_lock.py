"""The lock of maintenance on an object store: one run a table, the dead's is taken over, none is left."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Proxy, refused, reset
from support.servers.azure_server import Azure
from support.servers.gcs_server import Gcs
from support.servers.s3_server import S3

from lake.core.base.clock import Backoff
from lake.core.io.storage.storage import Storage
from lake.core.transaction.locks import s3 as lock_object
from lake.core.transaction.locks.local import Owner, this_process
from lake.core.transaction.locks.s3 import S3Lock, take

# Google's client encodes the dot.
LOCK = r"lake(?:\.|%2E)lock"
HERE = this_process("compact", "op-1")
DEAD = Owner("elsewhere", 1, "elsewhere 1 0", "expire", "op-0")


@pytest.fixture(params=["s3", "gcs", "azure"])
def server(request: pytest.FixtureRequest) -> S3 | Gcs | Azure:
    """Each kind of store in turn."""
    found: S3 | Gcs | Azure = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def place(server: S3 | Gcs | Azure) -> tuple[Storage, str]:
    """A storage and the path of a lock in it."""
    return Storage(server.properties()), f"{server.warehouse()[0]}/t/metadata/lake.lock"


def test_of_many_runs_one_gets_the_lock_and_leaves_nothing(place: tuple[Storage, str]) -> None:
    owners = [replace(HERE, operation_id=f"op-{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda me: take(*place, me), owners))
    held = [one for one in found if isinstance(one, S3Lock)]
    operation_ids = {one.operation_id for one in found if isinstance(one, Owner)}
    assert len(held) == 1
    assert operation_ids <= {held[0]._owner.operation_id, ""}
    held[0].release()
    assert not place[0].exists(place[1])


def test_a_dead_runs_lock_is_taken_over_and_a_living_ones_is_not(
    place: tuple[Storage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = place
    storage.write(location, json.dumps(asdict(DEAD)).encode())
    found = take(storage, location, HERE)
    assert isinstance(found, Owner)
    assert found.operation_id == "op-0"
    monkeypatch.setattr(lock_object, "TTL_SECONDS", -1)
    lock = take(storage, location, HERE)
    assert isinstance(lock, S3Lock)
    # Another run took it over meanwhile: it stays that one's.
    storage.write(location, json.dumps(asdict(DEAD)).encode())
    lock.release()
    assert storage.exists(location)


def test_a_run_whose_process_is_gone_is_dead_at_once(place: tuple[Storage, str]) -> None:
    storage, location = place
    # It began at another time.
    owner = replace(HERE, process=f"{HERE.process}0", operation_id="op-0")
    storage.write(location, json.dumps(asdict(owner)).encode())
    lock = take(storage, location, HERE)
    assert isinstance(lock, S3Lock)
    lock.release()
    assert not storage.exists(location)


def test_a_lock_made_by_a_request_whose_answer_was_lost_is_held(
    server: S3 | Gcs | Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda *_, **__: None)
    with Proxy(server.endpoint) as proxy:
        storage = Storage(server.properties(proxy.uri))
        location = f"{server.warehouse()[0]}/lake.lock"
        proxy.fail("PUT", LOCK, reset(done=True))
        lock = take(storage, location, HERE)
        assert isinstance(lock, S3Lock)
        lock.release()
        assert not storage.exists(location)
        # A store that refuses, or knows no conditions: runs go on without.
        proxy.fail("PUT", LOCK, refused(501))
        assert take(storage, location, HERE) is None
        proxy.fail("PUT", LOCK, refused(403))
        assert take(storage, location, HERE) is None


def test_a_lock_whose_refreshing_answer_was_lost_is_refreshed_further(
    server: S3 | Gcs | Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda *_, **__: None)
    with Proxy(server.endpoint) as proxy:
        storage = Storage(server.properties(proxy.uri))
        location = f"{server.warehouse()[0]}/lake.lock"
        lock = take(storage, location, HERE)
        assert isinstance(lock, S3Lock)
        proxy.fail("PUT", LOCK, reset(done=True))
        assert lock._beat()
        written = storage.read(location)
        assert lock._beat()
        assert storage.read(location) != written
        # Another run took it over: nothing is left to refresh.
        storage.write(location, json.dumps(asdict(DEAD)).encode())
        assert not lock._beat()
        lock.release()
        assert storage.exists(location)


def test_a_store_without_the_bucket_has_no_other_run(server: S3 | Gcs | Azure) -> None:
    place = re.sub("lake[0-9]+", "missing", server.warehouse()[0])
    assert take(Storage(server.properties()), f"{place}/t/metadata/lake.lock", HERE) is None


def test_a_second_run_on_s3_leaves_at_once(on_s3: Service) -> None:
    line, table = on_s3.line(), on_s3.table()
    line.ok("ingest", table, csv(on_s3.folder, "a.csv", id=[1]), "--create")
    location = f"{on_s3.properties['warehouse']}/db/t/metadata/lake.lock"
    storage = Storage(on_s3.properties)
    lock = take(storage, location, HERE)
    assert isinstance(lock, S3Lock)
    document = line.ok("compact", table, "--rewrite-all")
    lock.release()

    assert document["status"] == "already-running"
    assert line.ok("compact", table, "--rewrite-all")["status"] == "done"
    assert not storage.exists(location)


def test_a_store_that_ignores_conditions_lets_both_run(s3: S3) -> None:
    def careless(asked: Asked) -> Answer | None:
        for name in [name for name in asked.headers if name.lower().startswith("if-")]:
            del asked.headers[name]
        return None

    with Proxy(s3.endpoint) as proxy:
        proxy.guard = careless
        storage, location = Storage(s3.properties(proxy.uri)), f"s3://{s3.bucket()}/lake.lock"
        other = replace(HERE, operation_id="op-2")
        first = take(storage, location, HERE)
        assert isinstance(first, S3Lock)
        assert isinstance(take(storage, location, other), Owner)
        first.release()
        assert not storage.exists(location)
