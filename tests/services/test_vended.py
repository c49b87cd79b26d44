"""Credentials that a catalog vends and that end in the middle of a run: renewed, or the run ends typed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked
from support.faults.vending import PREFIX, Vending, vending
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3
from support.tables.iceberg_tables import FixedClock
from support.tiers import chosen

from lake.core.io.storage.credentials import CredentialProvider
from lake.core.table.catalogs import pyiceberg_catalog

# The token expires after this number of requests to the store: every second one of the commands in this process, some
# of the commands on Spark. Each command sends its kinds of requests at other numbers.
_EVERYDAY = (9, "inline")
_LONG = [(at, "inline") for at in range(1, 26, 4)] + [(at, "spark") for at in (2, 8)]
DEATHS = [
    _EVERYDAY,
    *(
        pytest.param(*one, marks=pytest.mark.slow)
        for one in chosen(_LONG[::2], _LONG)
        if one != _EVERYDAY
    ),
]
OLD = ("--older-than", "0s", "--unsafe-retention")


@pytest.fixture
def between(rest: tuple[RestServer, str], s3: S3) -> Iterator[Vending]:
    with vending(rest[0].uri, s3.endpoint) as running:
        yield running


@pytest.fixture
def vended(on_rest: Service, between: Vending) -> Service:
    """A table of three files in as many snapshots, whose store wants living tokens."""
    for number in range(3):
        source = csv(on_rest.folder, f"{number}.csv", id=[number])
        on_rest.line().ok("ingest", on_rest.table(), source, "--create")
    return Service(
        "vended",
        {
            **on_rest.properties,
            "uri": between.catalog.uri,
            "s3.endpoint": between.store.uri,
        },
        on_rest.folder,
        on_rest.list_files,
        on_rest.namespace,
    )


def run(service: Service, *words: object, engine: str = "inline") -> dict[str, object]:
    """Run a command; return its document with the exit code, in which no secret may be."""
    result = service.line(engine)("--json", *words)
    assert PREFIX not in result.stdout + result.stderr
    return {**result.json(), "code": result.exit_code}


@pytest.mark.parametrize(("at", "engine"), DEATHS)
def test_a_token_that_dies_in_a_run_is_replaced(
    vended: Service, on_rest: Service, between: Vending, at: int, engine: str
) -> None:
    table = vended.table()
    source = csv(vended.folder, "more.csv", id=[3])
    for words in (
        ("ingest", table, source),
        ("compact", table, "--rewrite-all"),
        ("expire", table, *OLD),
    ):
        between.served, between.dies_at = 0, at
        document = run(vended, *words, engine=engine)
        assert (document["code"], document["status"]) == (0, "done"), json.dumps(document)
    assert between.refused
    assert on_rest.rows() == [(0,), (1,), (2,), (3,)]
    assert on_rest.unreferenced() == set()


def test_a_table_that_is_being_made_gets_another_token_too(
    vended: Service, on_rest: Service, between: Vending
) -> None:
    source = csv(vended.folder, "more.csv", id=[3])
    between.dies_at = between.served + 3
    document = run(vended, "ingest", vended.table("new"), source, "--create")

    assert (document["code"], document["status"]) == (0, "done"), json.dumps(document)
    assert between.refused
    assert on_rest.rows("new") == [(3,)]


def test_a_token_with_an_expiration_time_is_replaced_before_it(
    vended: Service, between: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FixedClock()
    end = between.expires_ms = clock.now + 3_600_000
    monkeypatch.setattr(
        pyiceberg_catalog,
        "CredentialProvider",
        lambda *given: CredentialProvider(*given[:2], clock),
    )
    handed = between.given

    def later(asked: Asked) -> Answer | None:
        # From the first read on nearly an hour has passed; tokens vended from then on are new.
        if between.expires_ms == end:
            clock.now, between.expires_ms = end - 1, end + 3_600_000
        return between.guard(asked)

    between.store.guard = later
    assert run(vended, "compact", vended.table(), "--rewrite-all")["code"] == 0
    assert between.refused == 0
    assert between.given > handed + 1


def test_a_store_that_refuses_every_token_ends_the_run_and_changes_nothing(
    vended: Service, on_rest: Service, between: Vending
) -> None:
    before = on_rest.list_files()
    between.dead = 1_000_000
    document = run(vended, "compact", vended.table(), "--rewrite-all")

    assert (document["code"], document["status"]) == (9, "failed"), document
    assert between.given < 10
    assert on_rest.list_files() == before
    assert on_rest.rows() == [(0,), (1,), (2,)]


def test_each_place_gets_the_token_of_its_longest_prefix(
    vended: Service, on_rest: Service, between: Vending
) -> None:
    root = on_rest.catalog().load_table(on_rest.table()).location()
    between.prefixes = (f"{root}/", f"{root}/data/")
    between.dies_at = 8
    assert run(vended, "compact", vended.table(), "--rewrite-all")["code"] == 0

    assert between.refused
    assert {(place, "/data/" in asked) for place, asked in between.used} == {
        ("0", False),
        ("1", True),
    }
