"""Stores addressed as people do: by the environment, a profile, https with an authority of one's own, odd names."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Proxy
from support.servers.s3_server import S3
from support.servers.server_process import HOST

from lake.core.base.errors import BadInputError, StorageError
from lake.core.io.objects.s3_connection import completed
from lake.core.io.storage.storage import Storage

AWS = ("ENDPOINT_URL", "ENDPOINT_URL_S3", "REGION", "DEFAULT_REGION", "PROFILE", "SESSION_TOKEN")
KEYS = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SHARED_CREDENTIALS_FILE", "CA_BUNDLE")


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what the machine says of AWS."""
    for name in (*AWS, *KEYS):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def works(storage: Storage, root: str) -> None:
    """Write, list, read and delete below a location, by Arrow's requests and by lake's own."""
    small, large = f"{root}/data/a b.parquet", f"{root}/data/large"
    storage.write(small, b"small")
    with storage.open_output(large) as sink:
        sink.write(b"large")
    assert (storage.read(small), storage.read(large)) == (b"small", b"large")
    assert sorted(storage.find(f"{root}/data", "")) == [small, large]
    assert storage.delete([small, large]).failed == {}
    assert storage.find(f"{root}/data", "") == []


@pytest.mark.parametrize("keys", ["environment", "profile"])
def test_endpoint_and_keys_come_from_the_environment(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: str
) -> None:
    properties = s3.properties()
    pair = (properties["s3.access-key-id"], properties["s3.secret-access-key"])
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    if keys == "environment":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", pair[0])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", pair[1])
    else:
        place = tmp_path / "credentials"
        text = f"[lakes]\naws_access_key_id={pair[0]}\naws_secret_access_key={pair[1]}\n"
        place.write_text(text)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(place))
        monkeypatch.setenv("AWS_PROFILE", "lakes")
    storage, place_of = Storage(), f"s3://{s3.bucket()}/t"
    works(storage, place_of)
    assert storage.s3(f"{place_of}/x") is not None


def test_what_is_configured_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://one")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "there")
    assert completed({}) == {"s3.endpoint": "http://one", "s3.region": "there"}
    own = {"s3.endpoint": "http://two", "client.region": "here"}
    assert completed(own) == own
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert completed({}) == {}
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert completed({"s3.endpoint": "http://two"})["s3.region"] == "us-east-1"


@pytest.mark.parametrize(
    "below", ["prefix with spaces & umlauts äöü/%41", "+plus=1", "it's;a,b@c"], ids=range(3)
)
def test_odd_names_are_what_they_are(s3: S3, below: str) -> None:
    works(Storage(s3.properties()), f"s3://{s3.bucket()}/{below}")


def test_a_bucket_with_dots_and_another_spelling_of_the_scheme(s3: S3) -> None:
    s3.files().create_dir("a.b.c")
    works(Storage(s3.properties()), "s3a://a.b.c/t")


def test_a_table_below_odd_names_is_loaded_compacted_and_expired(on_s3: Service) -> None:
    place = f"{on_s3.properties['warehouse']}/prefix with ä & %41"
    odd = Service("odd", {**on_s3.properties, "warehouse": place}, on_s3.folder, on_s3.list_files)
    lake = odd.line()
    for number in (1, 2):
        lake.ok("ingest", odd.table(), csv(odd.folder, "a.csv", id=[number]), "--create")
    lake.ok("compact", odd.table(), "--rewrite-all")
    lake.ok("expire", odd.table(), "--older-than", "0s", "--unsafe-retention")

    assert odd.rows() == [(1,), (2,)]
    assert odd.unreferenced() == set()


def test_https_by_an_authority_of_ones_own(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle, context = authority(tmp_path)
    root = f"s3://{s3.bucket()}/t"
    with Proxy(s3.endpoint, tls=context) as proxy:
        # Requests that are repeated for minutes end with Arrow's text instead.
        with pytest.raises(
            StorageError, match=f"encrypted connection to the storage: {proxy.uri}$"
        ):
            Storage(s3.properties(proxy.uri)).size(f"{root}/x")
        assert proxy.asked == []
        monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        works(Storage(s3.properties(proxy.uri)), root)
        assert {item.method for item in proxy.asked} >= {"GET", "HEAD", "POST", "PUT"}


@pytest.mark.parametrize("location", ["abfs://c@a.dfs.example/x", "hdfs://none/x", "ftp://a/b"])
def test_a_store_that_cannot_be_opened_is_reported(location: str) -> None:
    with pytest.raises(BadInputError, match="cannot open|not a host of Azure|are not supported"):
        Storage().read(location)


def test_a_name_that_arrow_does_not_know_is_reported(s3: S3) -> None:
    with pytest.raises(BadInputError, match="mpty path component"):
        Storage(s3.properties()).read("s3://b//double//slash")


def authority(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a new certificate authority's file, and a server with a certificate of it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lake tests")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    bundle, secret = folder / "authority.pem", folder / "key.pem"
    bundle.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(bundle, secret)
    return bundle, context
