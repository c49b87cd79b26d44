"""Google's and Azure's stores with faults on the wire: no row is lost or doubled, and no secret is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Forward, Proxy, cut, refused, reset
from support.servers.azure_server import Azure
from support.servers.gcs_server import Gcs
from support.tables.iceberg_tables import FixedClock

from lake.core.base.clock import Backoff
from lake.core.base.errors import BadInputError, LakeError, NotAuthorisedError, NotFoundError
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.storage import Storage

OLD = ("--older-than", "0s", "--unsafe-retention")
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda *_, **__: None)


@pytest.fixture(params=["gcs", "azure"])
def server(request: pytest.FixtureRequest) -> Gcs | Azure:
    """Each store in turn."""
    found: Gcs | Azure = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(server: Gcs | Azure) -> Iterator[Proxy]:
    with Proxy(server.endpoint) as running:
        yield running


@pytest.fixture
def place(server: Gcs | Azure, proxy: Proxy) -> tuple[Storage, str]:
    """A storage and the location of an empty folder in it."""
    return Storage(server.properties(proxy.uri)), f"{server.warehouse()[0]}/t"


@pytest.fixture
def faulty(request: pytest.FixtureRequest, server: Gcs | Azure, proxy: Proxy) -> Service:
    """A catalog whose store is asked through the proxy."""
    kind = "gcs" if isinstance(server, Gcs) else "azure"
    plain = request.getfixturevalue(f"on_{kind}")
    properties = {**plain.properties, **server.properties(proxy.uri)}
    return Service(kind, properties, plain.folder, plain.list_files, judge=plain.judge)


def test_a_store_that_refuses_three_of_ten_requests_ends_no_command(
    faulty: Service, proxy: Proxy
) -> None:
    line, table, chance = faulty.line(), faulty.table(), Random(5)

    def busy(request: Asked) -> Answer | None:
        status = chance.choice((500, 503)) if chance.random() < 0.3 else 0
        return refused(status)(request, lambda: Answer(0)) if status else None

    proxy.guard = busy
    for number in range(3):
        line.ok("ingest", table, csv(faulty.folder, f"{number}.csv", id=[number]), "--create")
    line.ok("compact", table, "--rewrite-all")
    line.ok("expire", table, *OLD)
    proxy.guard = None

    assert line.ok("check", table, "--deep")["result"]["findings"] == []
    assert faulty.rows() == [(0,), (1,), (2,)]
    assert faulty.unreferenced() == set()


def test_connections_that_break_lose_and_double_no_row(faulty: Service, proxy: Proxy) -> None:
    line, table = faulty.line(), faulty.table()
    line.ok("ingest", table, csv(faulty.folder, "a.csv", id=[1]), "--create")
    for pattern in ("parquet", "avro", "metadata(?:.|%2E)json"):
        proxy.fail("PUT", pattern, reset(done=True), reset(done=False))
        proxy.fail("GET", pattern, cut(announced=True), reset(done=False))
    line.ok("ingest", table, csv(faulty.folder, "b.csv", id=[2]))
    line.ok("compact", table, "--rewrite-all")

    assert proxy.unused <= 1
    assert faulty.rows() == [(1,), (2,)]
    assert faulty.unreferenced() == set()


def test_small_objects_take_one_request_each(place: tuple[Storage, str], proxy: Proxy) -> None:
    storage, folder = place
    assert storage.create(f"{folder}/a #?%20ö", b"abc")
    with storage.open_output(f"{folder}/b") as sink:
        sink.write(b"x" * MIB)
    assert storage.read(f"{folder}/a #?%20ö") == b"abc"
    assert storage.read_part(f"{folder}/b", MIB - 2, 9) == b"xx"
    assert [asked.method for asked in proxy.asked] == ["PUT", "PUT", "GET", "GET"]
    with pytest.raises(FileExistsError):
        storage.create(f"{folder}/b", b"y")
    assert storage.create(f"{folder}/b", b"x" * MIB)
    found = {file.location: file.length for file in storage.find_files(folder)}
    assert found == {f"{folder}/a #?%20ö": 3, f"{folder}/b": MIB}
    assert storage.is_folder(folder)
    assert not storage.is_folder(f"{folder}/none")
    with pytest.raises(NotFoundError):
        storage.read(f"{folder}/none")


def test_a_large_object_exists_whole_or_not_at_all(
    place: tuple[Storage, str], proxy: Proxy
) -> None:
    storage, folder = place
    data = Random(1).randbytes(20 * MIB)
    # The store is busy for a moment.
    proxy.fail("PUT", "large", refused(503), refused(500))
    with storage.open_output(f"{folder}/large") as sink:
        sink.write(data[:MIB])
        sink.write(data[MIB:])
    with storage.open_input(f"{folder}/large") as source:
        assert source.read() == data
        source.seek(-5, 2)
        assert source.read() == data[-5:]
    with pytest.raises(RuntimeError, match="stop"):
        with storage.open_output(f"{folder}/abandoned") as sink:
            sink.write(data)
            raise RuntimeError("stop")
    proxy.fail("PUT", "refused", *[refused(403)] * 20)
    with pytest.raises((LakeError, OSError)):
        with storage.open_output(f"{folder}/refused") as sink:
            sink.write(data)

    assert [name for name, _ in storage.list_folder(folder)] == ["large"]


def test_an_object_that_is_replaced_while_its_end_is_asked_for_is_read_again(azure: Azure) -> None:
    name = f"{azure.warehouse()[0]}/t/a"
    plain = Storage(azure.properties())
    plain.write(name, b"a" * 3 * MIB)

    def replaced(_asked: Asked, forward: Forward) -> Answer:
        plain.write(name, b"b" * 5 * MIB)
        return forward()

    with Proxy(azure.endpoint) as proxy:
        # The first answer has the length.
        proxy.fail("GET", "", lambda _asked, forward: forward(), replaced)
        with Storage(azure.properties(proxy.uri)).open_input(name) as source:
            assert source.read() == b"b" * 5 * MIB
    assert proxy.unused == 0


def test_a_file_that_cannot_be_deleted_is_reported_and_the_others_are_deleted(
    place: tuple[Storage, str], proxy: Proxy
) -> None:
    storage, folder = place
    names = [f"{folder}/{number}" for number in range(5)]
    for name in names:
        storage.write(name, b"x")

    def guard(asked: Asked) -> Answer | None:
        is_deletion = asked.method == "DELETE" or b"DELETE " in asked.body
        is_refused = is_deletion and (asked.path + asked.body.decode()).count("t%2F3") > 0
        is_refused |= is_deletion and "/t/3" in asked.path + asked.body.decode()
        return refused(403)(asked, lambda: Answer(0)) if is_refused else None

    proxy.guard = guard
    outcome = storage.delete([*names, f"{folder}/none"])

    assert list(outcome.failed) == [names[3]]
    assert "403" in outcome.failed[names[3]]
    assert [name for name, _ in storage.list_folder(folder)] == ["3"]


def test_a_store_that_is_too_busy_to_delete_is_not_asked_for_each_file(
    place: tuple[Storage, str], proxy: Proxy
) -> None:
    storage, folder = place
    names = [f"{folder}/{number}" for number in range(30)]
    proxy.guard = lambda asked: refused(503)(asked, lambda: Answer(0))
    outcome = storage.delete(names)
    asked = len(proxy.asked)
    # Requests that were under way when the first one was refused may still arrive: the others have their own names.
    others = [f"{folder}/other-{number}" for number in range(30)]
    stopped = storage.delete(others, should_continue=lambda: False)

    assert set(outcome.failed) == set(names)
    assert asked <= 12 * 30
    assert stopped.untried == others
    assert not any("other-" in request.path for request in proxy.asked)


def test_a_folder_of_a_hierarchical_namespace_is_not_an_empty_file(
    on_azure: Service, azure: Azure
) -> None:
    described = {
        "ETag": '"0x1"',
        "Last-Modified": "Mon, 01 Jun 2026 10:00:00 GMT",
        "x-ms-blob-type": "BlockBlob",
        "x-ms-meta-hdi_isfolder": "true",
    }
    with Proxy(azure.endpoint) as proxy:
        # Data Lake Storage answers so; Azurite has no such namespaces.
        proxy.guard = lambda asked: (
            Answer(200, described) if asked.method == "HEAD" and "/in" in asked.path else None
        )
        properties = {**on_azure.properties, **azure.properties(proxy.uri)}
        service = Service("azure", properties, on_azure.folder, on_azure.list_files)
        source = f"{properties['warehouse']}/in"
        Storage(azure.properties()).write(f"{source}/a.csv", b"id\n1\n")
        Storage(azure.properties()).write(f"{source}empty", b"")
        service.line().ok("ingest", "db.t", source, "--create")

        proxy.guard = None
        assert Storage(properties).size(f"{source}empty") == 0
    assert on_azure.rows() == [(1,)]


def test_a_signature_for_the_account_is_enough(azure: Azure) -> None:
    place, container = azure.warehouse()
    own = {key: text for key, text in azure.properties().items() if "account" not in key}
    host = place.partition("@")[2]
    storage = Storage({**own, f"adls.sas-token.{host}": azure.signature(container)})
    assert storage.create(f"{place}/t/a", b"abc")
    storage.write(f"{place}/t/b", b"abc")
    assert storage.read(f"{place}/t/a") == b"abc"
    assert len(storage.find_files(f"{place}/t")) == 2
    outcome = storage.delete([f"{place}/t/{name}" for name in ("a", "b", "none")])
    assert not outcome.failed
    assert storage.find_files(f"{place}/t") == []


def test_a_login_that_the_store_refuses_is_shown_nowhere(faulty: Service, proxy: Proxy) -> None:
    line, table = faulty.line(), faulty.table()
    source = csv(faulty.folder, "a.csv", id=[1])
    line.ok("ingest", table, source, "--create")
    secret = next(
        text for name, text in faulty.properties.items() if name.endswith(("2.token", "key"))
    )
    for status in (401, 403):
        proxy.guard = lambda asked, status=status: refused(status, str(asked))(
            asked, lambda: Answer(0)
        )
        for options in (("--json",), ("--verbose",)):
            for words in (("ingest", table, source), ("scan", table), ("compact", table)):
                done = line(*options, *words)
                assert done.exit_code == 9, done.stderr
                assert secret not in done.stdout + done.stderr
                assert "canary" not in done.stdout + done.stderr
    proxy.guard = None
    with pytest.raises(NotAuthorisedError):
        storage = Storage(
            {**faulty.properties, "gcs.oauth2.token": "x", "adls.account-key": "eA=="}
        )
        storage.read(f"{faulty.properties['warehouse']}/x")


def test_a_name_with_an_empty_part_is_refused(place: tuple[Storage, str]) -> None:
    storage, folder = place
    with pytest.raises(BadInputError, match="not a usable name"):
        storage.write(f"{folder}//x", b"")


class Tokens(Proxy):
    """In front of a store of Google's: one token is valid at a time, whatever the store itself accepts."""

    valid = "first"

    def __init__(self, gcs: Gcs) -> None:
        super().__init__(gcs.endpoint)
        self.accepted: list[str] = []
        self._own = f"Bearer {gcs.properties()['gcs.oauth2.token']}"
        self.guard = self._check

    def _check(self, asked: Asked) -> Answer | None:
        given = {name.lower(): text for name, text in asked.headers.items()}
        is_valid = asked.path == "/" or given.get("authorization") == f"Bearer {self.valid}"
        if not is_valid:
            return refused(401)(asked, lambda: Answer(0))
        self.accepted.append(asked.path)
        return None

    def _forward(self, asked: Asked) -> Answer:
        headers = {name: text for name, text in asked.headers.items() if name != "authorization"}
        return super()._forward(replace(asked, headers={**headers, "authorization": self._own}))


def test_an_upload_goes_on_with_the_token_that_replaces_its_first_one(gcs: Gcs) -> None:
    data, clock = Random(2).randbytes(70 * MIB), FixedClock()
    with Tokens(gcs) as proxy:

        def vended() -> Credentials:
            ends = str(clock.now + 3_600_000)
            own = {"gcs.oauth2.token": proxy.valid, "gcs.oauth2.token-expires-at": ends}
            return Credentials({**gcs.properties(proxy.uri), **own})

        storage = Storage(renewed=CredentialProvider(vended(), vended, clock))
        name = f"{gcs.warehouse()[0]}/t/large"
        with storage.open_output(name) as sink:
            sink.write(data[: 30 * MIB])
            until = time.monotonic() + 60
            while sum("partNumber" in path for path in proxy.accepted) < 3:
                assert time.monotonic() < until
                time.sleep(0.05)
            proxy.valid, clock.now = "second", clock.now + 3_599_000
            sink.write(data[30 * MIB :])

        assert storage.read(name, limit=len(data)) == data
