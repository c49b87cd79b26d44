"""Vended credentials: the longest prefix, renewed in time or once a store refused them, never asked in vain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.tables.iceberg_tables import FixedClock

from lake.core.base.errors import NotAuthorisedError, NotFoundError, RefusedError
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.trust import check_store

NOW = 1_800_000_000_000


def given(number: int, expires_ms: int | None = None) -> Credentials:
    expiration = {} if expires_ms is None else {"s3.session-token-expires-at-ms": str(expires_ms)}
    return Credentials({"s3.session-token": f"token {number}", **expiration})


class Catalog:
    """Vends a new token each time, valid for ``life_ms``; None if it does not state an end."""

    def __init__(self, clock: FixedClock, life_ms: int | None) -> None:
        self.clock = clock
        self.life_ms = life_ms
        self.number = 0

    def vend(self) -> Credentials:
        self.number += 1
        life = self.life_ms
        return given(self.number, None if life is None else self.clock.now_ms() + life)


def test_the_longest_prefix_counts_and_none_elsewhere() -> None:
    found = Credentials(
        {"s3.region": "r", "k": "0"},
        (("s3://b/t", {"k": "1"}), ("s3://b/t/data", {"k": "2"}), ("s3://other", {"k": "3"})),
    )
    places = ("s3://b/t/data/x", "s3://b/t/metadata/x", "s3://b/x", "s3://other/x")

    assert [found.at(place)["k"] for place in places] == ["2", "1", "0", "3"]
    assert {found.at(place)["s3.region"] for place in places} == {"r"}
    assert Credentials.from_bytes(found.to_bytes()) == found
    assert "token" not in repr(given(1)) + repr(Storage(renewed=CredentialProvider(given(1))))


@pytest.mark.parametrize(("life_ms", "after_ms"), [(3_600_000, 3_300_000), (100_000, 75_000)])
def test_they_are_renewed_a_while_before_they_end(life_ms: int, after_ms: int) -> None:
    clock = FixedClock(NOW)
    catalog = Catalog(clock, life_ms)
    renewed = CredentialProvider(catalog.vend(), catalog.vend, clock)
    clock.now += after_ms - 1
    assert renewed.current()[0] == 0
    clock.now += 1
    assert renewed.current()[1].properties["s3.session-token"] == "token 2"
    assert (renewed.current()[0], catalog.number) == (1, 2)
    clock.now += after_ms
    assert renewed.current()[0] == 2


def test_a_server_whose_clock_is_behind_is_not_asked_before_every_call() -> None:
    clock = FixedClock(NOW)
    catalog = Catalog(clock, -60_000)
    renewed = CredentialProvider(catalog.vend(), catalog.vend, clock)

    assert [renewed.current()[0] for _ in range(3)] == [0, 0, 0]
    assert renewed.renew(0)
    assert catalog.number == 2


def test_a_catalog_that_cannot_vend_is_asked_again_only_later() -> None:
    clock = FixedClock(NOW)
    asked = []

    def vend() -> Credentials:
        asked.append(clock.now)
        raise NotFoundError("gone")

    renewed = CredentialProvider(given(1, NOW + 1000), vend, clock)
    clock.now += 900
    assert [renewed.current()[0] for _ in range(5)] == [0] * 5
    assert len(asked) == 1
    clock.now += 10_000
    renewed.current()
    assert len(asked) == 2
    assert not renewed.renew(0)


def test_a_store_that_refuses_the_new_ones_too_is_believed() -> None:
    clock = FixedClock(NOW)
    catalog = Catalog(clock, None)
    renewed = CredentialProvider(catalog.vend(), catalog.vend, clock)
    assert renewed.renew(0)
    # Another thread that was refused under the old ones has only to try again.
    assert renewed.renew(0)
    assert catalog.number == 2
    assert not renewed.renew(1)
    assert catalog.number == 2
    clock.now += 10_000
    assert renewed.renew(1)


def test_a_call_that_was_refused_is_made_once_more() -> None:
    clock = FixedClock(NOW)
    catalog = Catalog(clock, None)

    class Refusing(Storage):
        def resolve(self, location: str) -> tuple[object, str]:
            token = self.credentials.at(location)["s3.session-token"]
            if token != f"token {living}":
                raise PermissionError("AWS Error EXPIRED_TOKEN")
            raise NotFoundError(token)

    storage = Refusing(renewed=CredentialProvider(catalog.vend(), catalog.vend, clock))
    living = 2
    calls: list[Callable[[str], object]] = [storage.size, storage.read, storage.open_output]
    for call in calls:
        with pytest.raises(NotFoundError, match="token 2"):
            call("s3://b/x")
    living = 0
    with pytest.raises(NotAuthorisedError):
        storage.read("s3://b/x")
    with pytest.raises(NotAuthorisedError):
        Refusing(given(1).properties).read("s3://b/x")


KEYS = {"s3.access-key-id": "user key", "s3.secret-access-key": "user secret"}
VENDED = {"s3.endpoint": "http://elsewhere"}
GOOGLE = {"gcs.service.host": "http://elsewhere"}
AZURE = {"adls.blob-storage-authority": "http://elsewhere"}


@pytest.mark.parametrize(
    ("configured", "vended", "refused"),
    [
        (KEYS, VENDED, True),
        ({}, VENDED, True),
        ({}, {"s3.proxy-uri": "http://elsewhere"}, True),
        (KEYS, {**VENDED, "s3.access-key-id": "its key"}, True),
        ({**KEYS, **VENDED}, VENDED, False),
        (KEYS, {**VENDED, "s3.access-key-id": "its", "s3.secret-access-key": "its"}, False),
        ({}, {**VENDED, "s3.access-key-id": "its", "s3.secret-access-key": "its"}, False),
        # With these, a client would look for the user's own login.
        ({}, {**VENDED, "s3.session-token": "its"}, True),
        ({}, {**VENDED, "s3.role-session-name": "its"}, True),
        ({}, {**VENDED, "s3.access-key-id": "", "s3.secret-access-key": ""}, True),
        ({}, {**GOOGLE, "gcs.oauth2.token": "its"}, False),
        ({}, {**GOOGLE, "gcs.no-auth": "true"}, False),
        ({}, {**GOOGLE, "gcs.anonymous": "true"}, True),
        ({}, {**GOOGLE, "gcs.oauth2.token": ""}, True),
        ({}, {**GOOGLE, "gcs.oauth2.token-expires-at": "1"}, True),
        ({"gcs.oauth2.token": "user"}, GOOGLE, True),
        ({}, {**AZURE, "adls.sas-token.acct": "its"}, False),
        ({}, {**AZURE, "adls.client-secret": "its"}, True),
        ({}, {**VENDED, "s3.anonymous": "true"}, False),
        (KEYS, {**VENDED, "s3.anonymous": "true"}, True),
        (KEYS, {"s3.region": "there"}, False),
    ],
)
def test_a_server_chooses_a_store_only_for_credentials_of_its_own(
    configured: dict[str, str], vended: dict[str, str], refused: bool
) -> None:
    if not refused:
        check_store({**configured, **vended}, configured)
        return
    with pytest.raises(RefusedError, match="http://elsewhere"):
        check_store({**configured, **vended}, configured)


def test_what_cannot_be_asked_again_stays_as_it_is() -> None:
    renewed = CredentialProvider(given(1, NOW + 1000), None, FixedClock(NOW + 2000))

    assert not renewed.renew(0)
    assert renewed.current() == (0, given(1, NOW + 1000))
