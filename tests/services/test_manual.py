"""The catalogs that the manual shows work, once addresses and secrets are real."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from support.cli.service_line import Service, csv
from support.servers.postgres_server import Postgres
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3

MANUAL = (Path(__file__).parent.parent.parent / "commands/README.md").read_text()


def configured() -> dict[str, dict[str, Any]]:
    """Return the catalogs that the manual shows."""
    found = re.search(r"<!-- catalogs -->\n```yaml\n(.*?)```", MANUAL, re.S)
    assert found is not None
    return yaml.safe_load(found[1])["catalog"]


def test_the_postgresql_catalog_on_a_minio_store_works(
    postgres: Postgres, s3: S3, tmp_path: Path
) -> None:
    mine = s3.properties()
    real = {"uri": postgres.uri(), "warehouse": f"s3://{s3.bucket()}/warehouse", **mine}
    shown = configured()["postgres"]
    properties = {key: real.get(key, text) for key, text in shown.items()}
    assert real["uri"].startswith("postgresql+psycopg2://")
    _try(Service("readme", properties, tmp_path, set))


def test_the_rest_catalog_works(rest: tuple[RestServer, str], s3: S3, tmp_path: Path) -> None:
    shown = configured()["rest"]
    # This server, as few do, leaves the store's address to its clients.
    store = {"s3.endpoint": s3.endpoint, "s3.region": "us-east-1"}
    login = {"oauth2-server-uri": f"{rest[0].uri}/v1/oauth/tokens"}
    properties = {**shown, "uri": rest[0].uri, **store, **login}
    _try(Service("readme", properties, tmp_path, set, namespace="readme"))


def _try(service: Service) -> None:
    lake, table = service.line(), service.table()
    lake.ok("ingest", table, csv(service.folder, "day.csv", id=[1, 2]), "--create")
    assert len(lake.ok("snapshots", table)["result"]["snapshots"]) == 1
    assert service.rows() == [(1,), (2,)]
