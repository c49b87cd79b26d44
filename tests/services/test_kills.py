"""Processes killed around the request that commits: what the server makes of it then, once and for all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from support.cli.forked import started
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Forward, Proxy, ResetError
from support.servers.postgres_server import Postgres
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3
from support.tiers import chosen
from world.crashes import Crashes
from world.killed import COMMANDS
from world.mortal import Mortals
from world.places import SERVED, Place
from world.served_places import opened

COMMIT = r"/tables/t$"
_REFUSED = 3
_CATALOG = {"commit_table", "_write_metadata", "drop", "drop_table", "rename_table", "do_commit"}
# The calls that change what others see.
_CHANGING = {
    **dict.fromkeys(("append, with run id", "expire", "drop and purge", "rename"), _CATALOG),
    "clean": {"delete"},
}


@pytest.fixture
def proxy(rest: tuple[RestServer, str]) -> Iterator[Proxy]:
    with Proxy(rest[0].uri) as running:
        yield running


@pytest.fixture
def behind(on_rest: Service, proxy: Proxy) -> Service:
    """A table with one row in it, behind the proxy."""
    first = csv(on_rest.folder, "first.csv", id=[0])
    on_rest.line().ok("ingest", on_rest.table(), first, "--create")
    return Service(
        "behind",
        {**on_rest.properties, "uri": proxy.uri},
        on_rest.folder,
        on_rest.list_files,
        on_rest.namespace,
    )


class Killing:
    """A fault that kills the sender of the request, before or after the server has it, or holds it back."""

    def __init__(
        self,
        service: Service,
        proxy: Proxy,
        *arguments: object,
        arrives: bool,
        request: tuple[str, str] = ("POST", COMMIT),
    ) -> None:
        self.held: list[Forward] = []
        self._arrives = arrives
        proxy.fail(*request, self)
        self._has_started = threading.Event()
        self._process = started(service.line(), *arguments)
        self._has_started.set()
        ended = self._process.end()
        assert ended.exit_code == -signal.SIGKILL, ended
        assert proxy.unused == 0

    def __call__(self, asked: Asked, forward: Forward) -> Answer:
        if self._arrives:
            forward()
        else:
            self.held.append(forward)
        # The request may arrive before the test has the process object.
        self._has_started.wait()
        self._process.send_signal(signal.SIGKILL)
        raise ResetError


def ingest(service: Service) -> list[object]:
    source = csv(service.folder, "one.csv", id=[1])
    return ["ingest", service.table(), source, "--run-id", "r"]


@pytest.mark.parametrize("arrives", [True, False], ids=["unread", "unsent"])
def test_who_was_killed_in_a_commit_is_ended_by_the_next_run(
    behind: Service, proxy: Proxy, arrives: bool
) -> None:
    killing = Killing(behind, proxy, *ingest(behind), arrives=arrives)
    second = behind.line().ok(*ingest(behind))
    # What was held back on its way comes now.
    late = [forward().status for forward in killing.held]

    assert second["status"] == ("nothing-to-do" if arrives else "done")
    assert late == [409] * len(killing.held)
    assert behind.line().ok(*ingest(behind))["status"] == "nothing-to-do"
    assert behind.rows() == [(0,), (1,)]
    assert behind.unreferenced() == set()


def test_what_may_still_be_committed_is_not_discarded(behind: Service, proxy: Proxy) -> None:
    killing = Killing(behind, proxy, *ingest(behind), arrives=False)
    discard = ("ingest", behind.table(), "--discard", "r")
    refused = behind.line()("--json", *discard)
    (late,) = (forward().status for forward in killing.held)

    assert refused.exit_code == _REFUSED, refused
    assert late < 300
    assert behind.rows() == [(0,), (1,)]
    assert behind.line().ok(*ingest(behind))["status"] == "nothing-to-do"
    assert behind.rows() == [(0,), (1,)]
    assert behind.unreferenced() == set()


_CHANGES = {
    "drop": ("DELETE", r"/tables/t(\?|$)"),
    "rename": ("POST", r"/tables/rename$"),
    "register": ("POST", r"/register$"),
}


@pytest.mark.parametrize("arrives", [True, False], ids=["unread", "unsent"])
@pytest.mark.parametrize("verb", list(_CHANGES))
def test_an_entry_is_changed_or_not_when_its_sender_is_killed(
    behind: Service, proxy: Proxy, s3: S3, verb: str, arrives: bool
) -> None:
    # This server gives keys for the storage with a table only.
    behind.properties = {**s3.properties(), **behind.properties}
    name, other = behind.table(), behind.table("renamed")
    document = behind.catalog().load_table(name).metadata_location
    words = {"drop": [name], "rename": [name, other], "register": [name, document]}[verb]
    if verb == "register":
        behind.line().ok("drop", name)
    before, files = _names(behind), behind.list_files()
    after = {"drop": [], "rename": ["renamed"], "register": ["t"]}[verb]

    Killing(behind, proxy, verb, *words, arrives=arrives, request=_CHANGES[verb])
    killed = _names(behind)
    again = behind.line()("--json", verb, *words)

    assert killed == (after if arrives else before)
    assert again.exit_code == (7 if arrives and verb != "register" else 0), again
    assert _names(behind) == after
    # A lock may be left by who was killed.
    assert behind.list_files() >= files
    if verb == "drop":
        behind.line().ok("register", name, document)
    assert behind.rows(after[0] if after else "t") == [(0,)]


def _names(service: Service) -> list[str]:
    return sorted(name[-1] for name in service.catalog().list_tables(service.namespace))


@pytest.fixture(scope="module")
def served(
    request: pytest.FixtureRequest,
    s3: S3,
    postgres: Postgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Place, Mortals]]:
    with (
        opened(request.param, tmp_path_factory.mktemp("served"), s3, postgres) as place,
        Mortals(place.environment) as mortals,
    ):
        yield place, mortals


@pytest.mark.parametrize(
    ("served", "name"),
    chosen(
        [
            ("postgres", "append, with run id"),
            ("postgres", "drop and purge"),
            ("postgres", "clean"),
            ("rest", "expire"),
            ("rest", "rename"),
        ],
        list(product(SERVED, _CHANGING)),
    ),
    indirect=["served"],
    # Else the servers would start for each test.
    scope="module",
)
def test_who_was_killed_around_a_change_of_a_served_table_is_ended_by_the_next_run(
    served: tuple[Place, Mortals], tmp_path: Path, name: str
) -> None:
    place, mortals = served
    crashes = Crashes(tmp_path, mortals, COMMANDS[name], 2, place=place)
    kinds = [call.split()[0] for call in crashes.calls]
    every = [point for point in crashes.points() if kinds[point[0]] in _CHANGING[name]]
    points = chosen([*every[:2], *every[2:][-1:]], every)

    assert [crashes.kill(point) for point in points] == [1] * len(points)
    assert len(points) >= 2
