"""A REST catalog that fails: a certain failure is distinguished from an unknown outcome."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import (
    Answer,
    Asked,
    Fault,
    Proxy,
    ResetError,
    landed,
    page,
    refused,
    reset,
    sent_twice,
    throttled,
)
from support.servers.rest_server import RestServer

COMMIT = r"/tables/t$"
# Tables that do not wait long to learn what became of a commit.
QUICK = (
    *("--property", "commit.retry.min-wait-ms=1", "--property", "commit.retry.max-wait-ms=5"),
    *("--property", "commit.status-check.min-wait-ms=1"),
    *("--property", "commit.status-check.num-retries=2"),
)


@pytest.fixture
def proxy(rest: tuple[RestServer, str]) -> Iterator[Proxy]:
    with Proxy(rest[0].uri) as running:
        yield running


@pytest.fixture
def faulty(on_rest: Service, proxy: Proxy) -> Service:
    """A table with one row in it, behind the proxy."""
    first = csv(on_rest.folder, "first.csv", id=[0])
    on_rest.line().ok("ingest", on_rest.table(), first, "--create", *QUICK)
    return Service(
        "faulty",
        {**on_rest.properties, "uri": proxy.uri},
        on_rest.folder,
        on_rest.list_files,
        on_rest.namespace,
    )


def impatient(service: Service) -> Service:
    """Return a service whose clients give up soon. A busy machine may answer late too: only where one hangs."""
    limit = {"rest.client.socket-timeout-ms": "4000"}
    return replace(service, properties={**service.properties, **limit})


def ingest(service: Service, *options: object) -> dict[str, Any]:
    """Append one row; return the document with the exit code in it."""
    source = csv(service.folder, "one.csv", id=[1])
    result = service.line()("--json", "ingest", service.table(), source, *options)
    return {**result.json(), "code": result.exit_code}


MAY_HAVE_LANDED: list[Callable[[Proxy], Fault]] = [
    *(lambda _, status=status: landed(status) for status in (500, 503, 404, 403, 400)),
    lambda _: reset(done=True),
    lambda proxy: proxy.landed_and_hang,
    lambda _: sent_twice,
    lambda _: landed(409),
]


@pytest.mark.parametrize("make", MAY_HAVE_LANDED, ids=range(len(MAY_HAVE_LANDED)))
def test_a_commit_that_landed_counts_once_whatever_the_answer_was(
    faulty: Service, proxy: Proxy, make: Callable[[Proxy], Fault]
) -> None:
    fault = make(proxy)
    proxy.fail("POST", COMMIT, fault)
    hangs = fault == proxy.landed_and_hang
    document = ingest(impatient(faulty) if hangs else faulty, "--run-id", "r")

    assert (document["code"], document["status"]) == (0, "done"), document
    assert proxy.unused == 0
    assert ingest(faulty, "--run-id", "r")["status"] == "nothing-to-do"
    assert faulty.rows() == [(0,), (1,)]
    assert faulty.unreferenced() == set()


NEVER_ARRIVED: list[Callable[[Proxy], Fault]] = [
    *(lambda _, status=status: refused(status) for status in (500, 503)),
    lambda _: reset(done=False),
    lambda proxy: proxy.hang,
    # Clients make a question of such a request, and get the table as an answer.
    lambda _: lambda asked, _forward: Answer(302, {"Location": asked.path}),
]


@pytest.mark.parametrize("make", NEVER_ARRIVED, ids=range(len(NEVER_ARRIVED)))
def test_a_commit_without_a_trace_is_unknown_and_removes_nothing(
    faulty: Service, proxy: Proxy, make: Callable[[Proxy], Fault]
) -> None:
    before = faulty.list_files()
    fault = make(proxy)
    proxy.fail("POST", COMMIT, fault)
    document = ingest(impatient(faulty) if fault == proxy.hang else faulty, "--run-id", "r")

    assert (document["code"], document["status"]) == (5, "unknown"), document
    assert document["operation_id"]
    assert proxy.times("POST", COMMIT) == 1
    # What the commit would have made live: a data file, its manifest and the list of manifests.
    marked = f"{document['operation_id']}-m0.avro", f"{document['operation_id']}.avro"
    added = {
        file for file in faulty.list_files() - before if "/data/" in file or file.endswith(marked)
    }
    assert len(added) == 3
    assert ingest(faulty, "--run-id", "r")["status"] == "done"
    assert faulty.rows() == [(0,), (1,)]


def test_a_commit_whose_outcome_cannot_be_read_is_unknown_and_the_next_run_reports_that_it_landed(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("POST", COMMIT, landed(504))
    # The first look is the command's own, before it commits.
    proxy.fail("GET", COMMIT, _forwarded, *[refused(400)] * 3)
    document = ingest(faulty, "--run-id", "r")

    assert (document["code"], document["status"]) == (5, "unknown"), document
    assert faulty.rows() == [(0,), (1,)]
    again = ingest(faulty, "--run-id", "r")
    assert (again["code"], again["status"]) == (0, "nothing-to-do")
    assert faulty.unreferenced() == set()


def test_an_unknown_answer_stays_unknown_though_later_ones_are_conflicts(
    faulty: Service, proxy: Proxy
) -> None:
    proxy.fail("POST", COMMIT, refused(503), refused(409))
    document = ingest(faulty)

    assert document["code"] == 5, document
    assert proxy.times("POST", COMMIT) == 1


def test_refused_commits_are_tried_again_and_then_reported_as_a_conflict(
    faulty: Service, proxy: Proxy
) -> None:
    before = faulty.list_files()
    proxy.fail("POST", COMMIT, refused(409), refused(409))
    assert ingest(faulty)["code"] == 0
    proxy.fail("POST", COMMIT, *[refused(409)] * 5)
    between = faulty.list_files()
    document = ingest(faulty)

    assert (document["code"], document["status"]) == (4, "conflict"), document
    assert faulty.list_files() == between > before
    assert faulty.rows() == [(0,), (1,)]
    assert faulty.unreferenced() == set()


def test_an_expiry_that_landed_unheard_deletes_its_files_once_it_is_known(
    faulty: Service, proxy: Proxy
) -> None:
    source = csv(faulty.folder, "two.csv", id=[2])
    faulty.line().ok("ingest", faulty.table(), source, "--overwrite")
    old = ("--older-than", "0s", "--unsafe-retention")
    proxy.fail("POST", COMMIT, reset(done=False))
    before = faulty.list_files()
    result = faulty.line()("--json", "expire", faulty.table(), *old)
    assert (result.exit_code, result.json()["status"]) == (5, "unknown")
    # The journal lists for the next run what this one was about to delete.
    assert {file for file in faulty.list_files() if "lake-journal" not in file} == before

    proxy.fail("POST", COMMIT, landed(504))
    expired = faulty.line().ok("expire", faulty.table(), *old)
    assert expired["result"]["data_files"] >= 1
    assert faulty.rows() == [(2,)]
    assert faulty.unreferenced() == set()


def test_a_server_that_stalls_is_given_up(faulty: Service, proxy: Proxy) -> None:
    proxy.fail("GET", COMMIT, *[proxy.hang] * 2)
    result = impatient(faulty).line()("--json", "snapshots", faulty.table())

    assert (result.exit_code, result.json()["error"]["kind"]) == (10, "timed-out")


def test_a_login_that_stalls_is_given_up(on_rest: Service, proxy: Proxy) -> None:
    login = {
        "client_id": "id",
        "client_secret": "secret",
        "token_url": f"{proxy.uri}/v1/oauth/tokens",
    }
    properties = {
        **on_rest.properties,
        "rest.client.socket-timeout-ms": "1000",
        "auth": {"type": "oauth2", "oauth2": login},
    }
    proxy.fail("POST", "oauth", proxy.hang)
    stalled = Service("stalled", properties, on_rest.folder, on_rest.list_files)
    result = stalled.line()("--json", "snapshots", on_rest.table())

    # The request may arrive when nothing waits for its answer any more.
    until = time.monotonic() + 60
    while proxy.unused and time.monotonic() < until:
        time.sleep(0.01)
    assert (result.exit_code, proxy.unused) == (10, 0), result


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(faulty: Service, proxy: Proxy, status: int) -> None:
    proxy.fail("GET", COMMIT, *[refused(status)] * 3)

    assert faulty.line()("snapshots", faulty.table()).exit_code == 0
    assert proxy.times("GET", COMMIT) == 4


@pytest.mark.parametrize(("status", "code"), [(401, 9), (404, 7), (500, 7)])
def test_what_the_server_says_becomes_an_exit_code(
    faulty: Service, proxy: Proxy, status: int, code: int
) -> None:
    # A refused login is tried a second time with a fresh token.
    proxy.fail("GET", COMMIT, *[refused(status)] * 2)

    assert faulty.line()("snapshots", faulty.table()).exit_code == code


def test_a_commit_that_is_not_allowed_changes_nothing(faulty: Service, proxy: Proxy) -> None:
    before = faulty.list_files()
    proxy.fail("POST", COMMIT, refused(403))

    assert ingest(faulty)["code"] == 9
    assert faulty.list_files() == before


def test_a_commit_that_the_server_does_not_accept_changes_nothing(
    faulty: Service, proxy: Proxy
) -> None:
    before = faulty.list_files()
    proxy.fail("POST", COMMIT, refused(400, "no such update"))
    document = ingest(faulty)

    assert document["code"] == 7
    assert "no such update" in document["error"]["message"]
    assert faulty.list_files() == before


def test_a_server_with_idempotency_keys_is_sent_a_lost_commit_again(
    faulty: Service, proxy: Proxy
) -> None:
    answers: dict[str, Answer] = {}

    def once(asked: Asked, answer: Answer) -> Answer:
        if asked.path.endswith("/v1/config"):
            document = {**json.loads(answer.body), "idempotency-key-lifetime": "PT30M"}
            return Answer(200, {"Content-Type": "application/json"}, json.dumps(document).encode())
        return answer

    def keyed(asked: Asked) -> Answer | None:
        key = asked.headers.get("Idempotency-Key")
        if asked.method != "POST" or key is None:
            return None
        assert UUID(key).version == 7
        if key not in answers:
            answers[key] = proxy._forward(asked)
        return answers[key]

    def lost(asked: Asked, _forward: Callable[[], Answer]) -> Answer:
        keyed(asked)
        raise ResetError

    proxy.changes.append(once)
    proxy.guard = keyed
    proxy.fail("POST", COMMIT, lost)
    document = ingest(faulty)
    assert (document["code"], document["status"]) == (0, "done"), document
    proxy.fail("POST", COMMIT, refused(503), reset(done=False))
    document = ingest(faulty)
    assert (document["code"], document["status"]) == (0, "done"), document
    # What is refused when it comes again may have been done when it came first.
    proxy.fail("POST", COMMIT, lost, refused(403))
    document = ingest(faulty)
    assert (document["code"], document["status"]) == (0, "done"), document

    assert proxy.times("POST", COMMIT) == 7
    assert len(answers) == 3
    assert faulty.rows() == [(0,), (1,), (1,), (1,)]


def test_a_throttled_commit_waits_as_the_server_asks(faulty: Service, proxy: Proxy) -> None:
    proxy.fail("POST", COMMIT, throttled(0), throttled(1))
    assert ingest(faulty)["code"] == 0
    assert proxy.times("POST", COMMIT) == 3
    assert faulty.rows() == [(0,), (1,)]


# Clients make a question of a request that is redirected, and get the table as an answer.
NO_DROP: list[Fault] = [page, lambda asked, _forward: Answer(302, {"Location": asked.path})]


@pytest.mark.parametrize("options", [(), ("--purge", "--yes")], ids=["drop", "purge"])
@pytest.mark.parametrize("fault", NO_DROP, ids=["page", "redirect"])
def test_a_drop_that_another_server_answers_is_unknown_and_deletes_nothing(
    faulty: Service, proxy: Proxy, fault: Fault, options: tuple[str, ...]
) -> None:
    proxy.fail("DELETE", "/tables/t", fault)
    result = faulty.line()("--json", "drop", faulty.table(), *options)

    assert (result.exit_code, result.json()["status"]) == (5, "unknown"), result.stderr
    assert proxy.unused == 0
    assert faulty.rows() == [(0,)]
    faulty.line().ok("drop", faulty.table(), *options)


@pytest.mark.parametrize("status", [401, 419])
def test_a_login_that_expires_in_a_run_is_made_again(
    faulty: Service, proxy: Proxy, status: int
) -> None:
    tokens = iter(f"token{number}" for number in range(100))

    def login(asked: Asked, answer: Answer) -> Answer:
        if not asked.path.endswith("/tokens"):
            return answer
        document = {"access_token": next(tokens), "token_type": "bearer", "expires_in": 3600}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(document).encode())

    proxy.changes.append(login)
    address = f"{proxy.uri}/v1/oauth/tokens"
    parts = {"client_id": "id", "client_secret": "secret", "token_url": address}
    ways: list[dict[str, Any]] = [
        {"credential": "id:secret", "oauth2-server-uri": address},
        {"auth": {"type": "oauth2", "oauth2": parts}},
    ]
    for number, way in enumerate(ways, start=1):
        proxy.fail("POST", COMMIT, refused(status))
        proxy.fail("GET", COMMIT, refused(status))
        proxy.asked.clear()
        properties = {**faulty.properties, **way}
        again = Service("login", properties, faulty.folder, faulty.list_files, faulty.namespace)
        assert ingest(again)["code"] == 0
        used = [item.headers.get("Authorization") for item in proxy.asked if "/t" in item.path]
        assert len({text for text in used if text and "token" in text}) >= 2
        assert len(faulty.rows()) == 1 + number


def test_a_new_columns_commit_carries_schema_and_snapshot_in_one_request(
    faulty: Service, proxy: Proxy
) -> None:
    source = csv(faulty.folder, "wide.csv", id=[1], more=["x"])
    faulty.line().ok("ingest", faulty.table(), source, "--evolve")

    (commit,) = (item for item in proxy.asked if item.method == "POST" and "/t" in item.path)
    actions = [update["action"] for update in json.loads(commit.body)["updates"]]
    assert {"add-schema", "set-current-schema", "add-snapshot", "set-snapshot-ref"} <= set(actions)
    assert faulty.rows() == [(0, None), (1, "x")]


def _forwarded(_asked: Asked, forward: Callable[[], Answer]) -> Answer:
    return forward()
