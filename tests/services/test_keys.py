"""Keys of all kinds, proxies and addresses: each is used by the same clients, with the same number of requests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from botocore import utils
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Proxy
from support.faults.vending import EXPIRED
from support.servers.s3_server import S3
from support.servers.server_process import HOST
from support.servers.tunnel import Tunnel, certificate
from support.tables.iceberg_tables import FixedClock

from lake.core.base.clock import Backoff
from lake.core.base.errors import LakeError, NotAuthorisedError
from lake.core.io.objects import s3_connection
from lake.core.io.objects.upload import PUT_BYTES
from lake.core.io.storage import opening
from lake.core.io.storage.storage import Storage
from lake.core.transaction.locks.local import this_process
from lake.core.transaction.locks.s3 import S3Lock, take

TOKEN = "x-amz-security-token"
CANARY = "canary-keys"
ENDS = "2099-01-01T00:00:00Z"
ROLE = "arn:aws:iam::123456789012:role/lake"
_NAMES = (
    *[
        "ENDPOINT_URL",
        "ENDPOINT_URL_S3",
        "ENDPOINT_URL_STS",
        "ENDPOINT_URL_SSO",
        "REGION",
        "DEFAULT_REGION",
    ],
    *["PROFILE", "SESSION_TOKEN", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "CA_BUNDLE", "ROLE_ARN"],
    *["WEB_IDENTITY_TOKEN_FILE", "EC2_METADATA_DISABLED"],
)


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide what the machine says of AWS, and do not wait."""
    for name in _NAMES:
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setattr(Backoff, "wait", lambda *_, **__: None)


@pytest.fixture
def store(s3: S3) -> Iterator[Proxy]:
    with Proxy(s3.endpoint) as proxy:
        yield proxy


class Guarded:
    """A store that refuses requests without a token, or with one that has expired."""

    def __init__(self, store: Proxy) -> None:
        self.dead: set[str] = set()
        self.used: list[str] = []
        store.guard = self.guard

    def guard(self, asked: Asked) -> Answer | None:
        token = header(asked, TOKEN)
        if not token or token in self.dead:
            return Answer(400, {"Content-Type": "application/xml"}, EXPIRED)
        self.used.append(token)
        return None


def header(asked: Asked, name: str) -> str:
    return next((text for key, text in asked.headers.items() if key.lower() == name), "")


def works(storage: Storage, root: str, size: int = 6_000_000) -> None:
    """Write, list, measure, read and delete below a location."""
    small, large = f"{root}/data/a b.parquet", f"{root}/data/large"
    contents = b"x" * size
    storage.write(small, b"small")
    storage.write(large, contents)
    assert (storage.read(small), storage.read(large)) == (b"small", contents)
    assert storage.size(small) == 5
    assert sorted(storage.find(f"{root}/data", "")) == [small, large]
    assert storage.delete([small, large]).failed == {}


class Instance:
    """The metadata service of an instance, and a portal of SSO: each answer has another token."""

    def __init__(self) -> None:
        self.given = 0

    def guard(self, asked: Asked) -> Answer:
        if asked.path.endswith("/api/token") or asked.path.endswith("/security-credentials/"):
            return Answer(200, {}, b"lake")
        self.given += 1
        keys = {"AccessKeyId": "k", "SecretAccessKey": f"{CANARY}-secret"}
        token = f"{CANARY}-{self.given}"
        if asked.path.startswith("/federation/credentials"):
            assert header(asked, "x-amz-sso_bearer_token") == "of-sso"
            sso = {"accessKeyId": "k", "secretAccessKey": "s", "sessionToken": token}
            return _json({"roleCredentials": {**sso, "expiration": 4_000_000_000_000}})
        return _json({**keys, "Token": token, "Expiration": ENDS, "Code": "Success"})


def _json(content: object) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())


def from_instance(place: Path, instance: Proxy, sts: str, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.uri)


def from_role(place: Path, instance: Proxy, sts: str, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", "k")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    patch.setenv("AWS_ENDPOINT_URL_STS", sts)


def from_profile_of_role(place: Path, instance: Proxy, sts: str, patch: pytest.MonkeyPatch) -> None:
    role = f"[profile lakes]\nrole_arn={ROLE}\nsource_profile=base\n"
    keys = "[profile base]\naws_access_key_id=k\naws_secret_access_key=s\n"
    (place / "config").write_text(role + keys)
    patch.setenv("AWS_PROFILE", "lakes")
    patch.setenv("AWS_ENDPOINT_URL_STS", sts)


def from_web_identity(place: Path, instance: Proxy, sts: str, patch: pytest.MonkeyPatch) -> None:
    (place / "token").write_text("of-web")
    patch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(place / "token"))
    patch.setenv("AWS_ROLE_ARN", ROLE)
    patch.setenv("AWS_ENDPOINT_URL_STS", sts)


def from_sso(place: Path, instance: Proxy, sts: str, patch: pytest.MonkeyPatch) -> None:
    start = "https://lake.example/start"
    settings = ("account_id=1", "role_name=r", "region=us-east-1", f"start_url={start}")
    text = "".join(f"sso_{setting}\n" for setting in settings)
    (place / "config").write_text(f"[profile lakes]\n{text}")
    cached = place / f"{hashlib.sha1(start.encode()).hexdigest()}.json"
    cached.write_text(json.dumps({"accessToken": "of-sso", "expiresAt": ENDS}))
    patch.setattr(utils.JSONFileCache, "CACHE_DIR", str(place))
    patch.setattr("botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", str(place))
    patch.setenv("AWS_ENDPOINT_URL_SSO", instance.uri)


Source = Callable[[Path, Proxy, str, pytest.MonkeyPatch], None]
SOURCES = [from_instance, from_role, from_profile_of_role, from_web_identity, from_sso]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_keys_of_every_source_are_those_of_every_client_and_replaced_when_they_end(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Source
) -> None:
    guarded, root = Guarded(store), f"s3://{s3.bucket()}/t"
    with Proxy(s3.endpoint) as instance, Proxy(s3.endpoint) as sts:
        instance.guard = Instance().guard
        source(tmp_path, instance, sts.uri, monkeypatch)
        named = {
            from_role: {"s3.role-arn": ROLE, "client.role-session-name": "nightly"},
            from_sso: {"s3.profile-name": "lakes"},
        }
        storage = Storage({"s3.endpoint": store.uri, **named.get(source, {})})
        works(storage, root)
        first = set(guarded.used)
        assert len(first) == 1
        clients = {header(asked, "user-agent").partition("/")[0] for asked in store.asked}
        assert "object_store" in clients

        guarded.dead |= first
        works(storage, root)
        assert len(set(guarded.used) - first) == 1
        if source is from_role:
            assert [b"RoleSessionName=nightly" in asked.body for asked in sts.asked] == [True] * 2


def test_keys_that_another_program_replaces_in_a_file_are_read_again(
    s3: S3, store: Proxy, tmp_path: Path
) -> None:
    guarded, root = Guarded(store), f"s3://{s3.bucket()}/t"

    def login(number: int) -> None:
        keys = f"aws_access_key_id=k\naws_secret_access_key=s\naws_session_token=t{number}\n"
        (tmp_path / "credentials").write_text(f"[default]\n{keys}")

    login(1)
    storage = Storage({"s3.endpoint": store.uri})
    works(storage, root)
    guarded.dead = {"t1"}
    login(2)
    # The answer to a HEAD has no body that says why.
    assert not storage.exists(f"{root}/x")
    works(storage, root)
    assert guarded.used[-1] == "t2"
    # There are no others: the store's refusal is reported, after one more look.
    guarded.dead = {"t1", "t2"}
    store.asked.clear()
    with pytest.raises(NotAuthorisedError, match="ExpiredToken"):
        storage.read(f"{root}/x")
    assert len(store.asked) == 1


def test_a_store_that_refuses_all_keys_is_given_others_once_in_a_while(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FixedClock()
    monkeypatch.setattr(s3_connection, "SystemClock", lambda: clock)
    store.guard = lambda _: Answer(400, {"Content-Type": "application/xml"}, EXPIRED)
    with Proxy(s3.endpoint) as sts:
        from_role(Path(), sts, sts.uri, monkeypatch)
        storage = Storage({"s3.endpoint": store.uri, "s3.role-arn": ROLE})
        for _ in range(3):
            with pytest.raises(NotAuthorisedError):
                storage.read("s3://b/x")
        assert len(sts.asked) == 2
        clock.now += 10_000
        with pytest.raises(NotAuthorisedError):
            storage.read("s3://b/x")
        assert len(sts.asked) == 3


@pytest.mark.parametrize("status", [403, 503])
def test_a_service_that_gives_no_keys_is_reported(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with Proxy(s3.endpoint) as sts:
        code = b"AccessDenied" if status == 403 else b"ServiceUnavailable"
        error = b"<Error><Code>%b</Code><Message>canary</Message></Error>" % code
        text = b"<ErrorResponse>%b</ErrorResponse>" % error
        sts.guard = lambda _: Answer(status, {"Content-Type": "text/xml"}, text)
        from_role(Path(), sts, sts.uri, monkeypatch)
        storage = Storage({"s3.endpoint": store.uri, "s3.role-arn": ROLE})
        for call in (storage.read, storage.size, storage.find_files):
            with pytest.raises(LakeError, match="during AssumeRole") as failed:
                call("s3://b/x")
            assert "canary" not in str(failed.value)
            assert isinstance(failed.value, NotAuthorisedError) is (status == 403)
    assert store.asked == []


def test_a_login_that_has_ended_is_reported_with_what_to_do(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from_sso(tmp_path, store, "", monkeypatch)
    for path in tmp_path.glob("*.json"):
        path.write_text(path.read_text().replace("2099", "2019"))
    with pytest.raises(NotAuthorisedError, match="no keys for the storage") as failed:
        Storage({"s3.endpoint": store.uri, "s3.profile-name": "lakes"}).read("s3://b/x")
    assert "log in again" in str(failed.value.hint)
    assert "of-sso" not in str(failed.value)


def test_a_login_that_ends_during_a_run_hides_neither_its_result_nor_its_error(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    guarded, root = Guarded(store), f"s3://{s3.bucket()}/t"
    with Proxy(s3.endpoint) as portal:
        portal.guard = Instance().guard
        from_sso(tmp_path, portal, "", monkeypatch)
        storage = Storage({"s3.endpoint": store.uri, "s3.profile-name": "lakes"})
        lock = take(storage, f"{root}/lake.lock", this_process("expire", "op-1"))
        assert isinstance(lock, S3Lock)
        with pytest.raises(RuntimeError, match="stop"), storage.open_output(f"{root}/f") as sink:
            sink.write(b"x" * (PUT_BYTES + 1))
            for path in tmp_path.glob("*.json"):
                path.write_text(path.read_text().replace("2099", "2019"))
            guarded.dead = set(guarded.used)
            raise RuntimeError("stop")

    outcome = storage.delete([f"{root}/a", f"{root}/b"])
    assert sorted(outcome.failed) == [f"{root}/a", f"{root}/b"]
    storage.end_uploads(root, "")
    assert lock._beat()
    lock.release()
    with pytest.raises(NotAuthorisedError, match="no keys for the storage"):
        storage.read(f"{root}/x")


def test_anonymous_requests_are_not_signed_and_false_is_not_anonymous(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, signed = f"s3://{s3.bucket()}/t", list[bool]()

    def sign(asked: Asked) -> None:
        signed.append(bool(header(asked, "authorization")))
        # The store has no public buckets.
        asked.headers["Authorization"] = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4"

    store.guard = sign
    works(Storage({"s3.endpoint": store.uri, "s3.anonymous": "True"}), root, size=9)
    assert set(signed) == {False}
    signed.clear()
    works(Storage({**s3.properties(store.uri), "s3.anonymous": "false"}), root)
    assert set(signed) == {True}


@pytest.mark.parametrize("is_virtual", [False, True], ids=["path", "virtual"])
@pytest.mark.parametrize("named_by", ["property", "environment"])
def test_a_proxy_gets_the_requests_of_all_clients(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch, named_by: str, is_virtual: bool
) -> None:
    bucket, host = s3.bucket(), "store.example" if is_virtual else "store"
    proxy = store.uri.replace("://", "://user:word@")
    given = {**s3.properties(f"http://{host}"), "s3.session-token": "t"}
    if named_by == "property":
        given["s3.proxy-uri"] = proxy
    else:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        monkeypatch.setenv("http_proxy", proxy)
    if is_virtual:
        given["s3.force-virtual-addressing"] = "true"
        host = f"{bucket}.{host}"
    works(Storage(given), f"s3://{bucket}/t")

    assert all(re.match(rf"http://{host}(:80)?/", asked.path) for asked in store.asked)
    assert {asked.method for asked in store.asked} >= {"GET", "HEAD", "POST", "PUT"}
    assert any("object_store" in header(asked, "user-agent") for asked in store.asked)


def test_a_host_that_the_environment_excludes_is_asked_itself(
    s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, store.uri)
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    works(Storage(s3.properties()), f"s3://{s3.bucket()}/t")
    assert store.asked == []


@pytest.mark.parametrize("region", [None, "us-east-1"], ids=["unknown", "wrong"])
def test_the_region_of_a_bucket_on_amazons_stores_is_found_once(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, region: str | None
) -> None:
    regions = ("us-east-1", "eu-west-1")
    hosts = [f"{start}s3.{name}.amazonaws.com" for name in regions for start in ("", "*.")]
    bundle, context = certificate(tmp_path, [*hosts, "*.s3.amazonaws.com", "s3.amazonaws.com"])
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    bucket = s3.bucket()
    root = f"s3://{bucket}/t"

    def elsewhere(asked: Asked) -> Answer | None:
        if asked.method == "HEAD" and asked.path == "/":
            return Answer(403, {"x-amz-bucket-region": "eu-west-1"})
        if header(asked, "host").partition(":")[0] == f"{bucket}.s3.eu-west-1.amazonaws.com":
            return None
        error = b"<Error><Code>PermanentRedirect</Code></Error>"
        return Answer(301, {"x-amz-bucket-region": "eu-west-1"}, error)

    with Proxy(s3.endpoint, tls=context) as amazon, Tunnel(int(amazon.uri[-5:])) as tunnel:
        amazon.guard = elsewhere
        given = {"s3.proxy-uri": tunnel.uri, "s3.access-key-id": "k", "s3.secret-access-key": "s"}
        storage = Storage({**given, **({"s3.region": region} if region else {})})
        works(storage, root)
        asked_elsewhere = [asked.method for asked in amazon.asked if elsewhere(asked)]
        assert asked_elsewhere.count("HEAD") == 1
        amazon.asked.clear()
        works(storage, root)
        assert [asked for asked in amazon.asked if elsewhere(asked)] == []
        assert any("object_store" in header(asked, "user-agent") for asked in amazon.asked)


def test_a_table_is_made_and_maintained_with_the_keys_of_a_role(
    on_s3: Service, s3: S3, store: Proxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from_role(tmp_path, store, s3.endpoint, monkeypatch)
    guarded = Guarded(store)
    kept = {key: text for key, text in on_s3.properties.items() if "access-key" not in key}
    given = {**kept, "s3.endpoint": store.uri, "s3.role-arn": ROLE}
    service = Service("role", given, on_s3.folder, on_s3.list_files)
    lake, table = service.line(), service.table()
    for number in (1, 2):
        result = lake(
            "--json", "ingest", table, csv(service.folder, "a.csv", id=[number]), "--create"
        )
        assert result.exit_code == 0, result
    guarded.dead |= set(guarded.used)
    lake.ok("compact", table, "--rewrite-all")
    lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")

    assert len(set(guarded.used)) == 2
    assert on_s3.rows() == [(1,), (2,)]
    assert on_s3.unreferenced() == set()


@pytest.mark.spark
def test_the_workers_of_spark_read_and_write_objects_by_one_request_each(
    on_s3: Service, store: Proxy
) -> None:
    given = {**on_s3.properties, "s3.endpoint": store.uri, "s3.session-token": "t"}
    service = Service("spark", given, on_s3.folder, on_s3.list_files)
    lake, table = service.line("spark"), service.table()
    for number in (1, 2):
        lake.ok("ingest", table, csv(service.folder, "one.csv", id=[number]), "--create")
    store.asked.clear()
    lake.ok("compact", table, "--rewrite-all")

    asked = [one for one in store.asked if ".parquet" in one.path]
    assert sorted(one.method for one in asked) == ["GET", "GET", "PUT"]
    assert {header(one, "user-agent").partition("/")[0] for one in asked} == {"object_store"}
    assert service.rows() == [(1,), (2,)]


def test_the_authorities_of_a_profile_count_for_every_client(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle, context = certificate(tmp_path, ["localhost"])
    login = f"aws_access_key_id=k\naws_secret_access_key=s\nca_bundle={bundle}\n"
    (tmp_path / "config").write_text(f"[profile lakes]\n{login}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with Proxy(s3.endpoint, tls=context) as secure:
        endpoint = secure.uri.replace(HOST, "localhost")
        given = {"s3.endpoint": endpoint, "s3.profile-name": "lakes"}
        works(Storage(given), f"s3://{s3.bucket()}/t")
        assert secure.times("GET", "list-type=2") > 0


def test_keys_that_were_missing_are_found_by_the_same_process(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_UNSUPPORTED_SECONDS", 0.0)
    given, place = {"s3.endpoint": s3.endpoint}, f"s3://{s3.bucket()}/t/f"
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert Storage(given).s3(place) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    found = Storage(given)
    found.write(place, b"x")
    assert found.s3(place) is not None
    assert found.read(place) == b"x"
