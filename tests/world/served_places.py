"""The tables on which commands are killed, on S3, in catalogs on servers: a SQL catalog on PostgreSQL, and REST.

Their files are also in a folder of this machine, because the reference reads local files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import requests
from sqlalchemy import create_engine, inspect, text
from support.servers import maven, postgres_server, s3_server
from support.servers.postgres_server import Postgres
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3

from lake.core.base.settings import Settings
from world.places import LOCAL, Place, PlacedFile
from world.reference import local

_SECONDS = 60
_KEYS = 1000


@dataclass(frozen=True)
class _Saved:
    """A saved state: the objects' tags, which also name their contents, and the entries of the catalog."""

    tags: Mapping[str, str]
    entries: Any


class _Bucket:
    """The objects of a bucket, with a copy in a folder."""

    def __init__(self, s3: S3, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        properties = s3.properties()
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=s3.endpoint,
            region_name=s3_server.REGION,
            aws_access_key_id=properties["s3.access-key-id"],
            aws_secret_access_key=properties["s3.secret-access-key"],
        )
        self._contents: dict[str, bytes] = {}
        # The tag of each object in the folder.
        self._copied: dict[str, str] = {}

    def listed(self) -> dict[str, Any]:
        """Return what the store reports of each object."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return {item["Key"]: item for page in pages for item in page.get("Contents", ())}

    def tags(self) -> dict[str, str]:
        """Return the tag of each object; the content of each is kept."""
        tags = {key: str(item["ETag"]) for key, item in self.listed().items()}
        for key, tag in tags.items():
            if tag not in self._contents:
                answer = self._client.get_object(Bucket=self.name, Key=key)
                self._contents[tag] = answer["Body"].read()
        return tags

    def set(self, tags: Mapping[str, str]) -> None:
        """Delete and write objects until they are those that are given."""
        now = {key: str(item["ETag"]) for key, item in self.listed().items()}
        more = [{"Key": key} for key in now if key not in tags]
        for start in range(0, len(more), _KEYS):
            part = more[start : start + _KEYS]
            self._client.delete_objects(Bucket=self.name, Delete={"Objects": part})
        for key, tag in tags.items():
            if now.get(key) != tag:
                self.put(key, self._contents[tag])

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def copy(self) -> None:
        """Make the folder contain what the bucket contains."""
        tags = self.tags()
        for key in self._copied.keys() - tags.keys():
            self.path(key).unlink()
        for key, tag in tags.items():
            if self._copied.get(key) != tag:
                self.path(key).parent.mkdir(parents=True, exist_ok=True)
                self.path(key).write_bytes(self._contents[tag])
        self._copied = tags

    def path(self, key: str) -> Path:
        """Return the path of an object's copy."""
        return self._folder / key


class ServedPlace(Place):
    """A warehouse on S3; commands find the catalog as `prod` in their environment.

    Args:
        folder: a folder of its own.
        s3: the store.
        bucket: the name of a bucket of its own.
    """

    is_served = True

    def __init__(self, folder: Path, s3: S3, bucket: str) -> None:
        super().__init__(folder)
        self._bucket = _Bucket(s3, bucket, folder / "copy")
        self._root = f"s3://{self._bucket.name}/"
        self._properties = s3.properties()
        self._states: dict[str, _Saved] = {}

    @property
    def arguments(self) -> list[str]:
        return ["--catalog", "prod"]

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            f"PYICEBERG_CATALOG__PROD__{name.replace('.', '__').replace('-', '_').upper()}": value
            for name, value in self._properties.items()
        }

    @property
    def _settings(self) -> Settings:
        return Settings(catalog="prod")

    def local(self, location: str) -> str:
        if location.startswith(self._root):
            return str(self._bucket.path(location.removeprefix(self._root)))
        return local(location)

    def files(self) -> list[PlacedFile]:
        return [
            PlacedFile(
                f"{self._root}{key}", item["Size"], int(item["LastModified"].timestamp() * 1e6)
            )
            for key, item in self._bucket.listed().items()
        ]

    def wait(self) -> None:
        # A store reports times in seconds: what was written in this second is not older than now.
        time.sleep(1 - time.time() % 1)

    def keep(self, path: Path) -> str:
        key = f"sources/{path.name}"
        self._bucket.put(key, path.read_bytes())
        return f"{self._root}{key}"

    def _refresh(self) -> None:
        self._bucket.copy()

    def save(self, name: str) -> None:
        super().save(name)
        self._states[name] = _Saved(self._bucket.tags(), self._entries())
        self.wait()

    def restore(self, name: str) -> bool:
        super().restore(name)
        saved = self._states.get(name)
        self._bucket.set(saved.tags if saved else {})
        self.wait()
        self._set_entries(saved.entries if saved else None)
        return saved is not None

    def _entries(self) -> Any:
        raise NotImplementedError

    def _set_entries(self, entries: Any) -> None:
        raise NotImplementedError


class PostgresPlace(ServedPlace):
    """A warehouse on S3 in a SQL catalog on PostgreSQL.

    Args:
        folder: a folder of its own.
        s3: the store.
        bucket: the name of a bucket of its own.
        uri: the catalog's URI, with a separate database.
    """

    _TABLES = ("iceberg_tables", "iceberg_namespace_properties")

    def __init__(self, folder: Path, s3: S3, bucket: str, uri: str) -> None:
        super().__init__(folder, s3, bucket)
        self._engine = create_engine(uri)
        self._properties |= {"type": "sql", "uri": uri, "warehouse": f"{self._root}tables"}

    def locations(self) -> Mapping[str, str]:
        found = {
            f"{row['table_namespace']}.{row['table_name']}": str(row["metadata_location"])
            for row in self._select("iceberg_tables")
        }
        return dict(sorted(found.items()))

    def _select(self, table: str) -> list[dict[str, Any]]:
        if not inspect(self._engine).has_table(table):
            return []
        with self._engine.connect() as connection:
            found = connection.execute(text(f"SELECT * FROM {table}"))
            return [dict(row) for row in found.mappings()]

    def _entries(self) -> dict[str, list[dict[str, Any]]]:
        return {table: self._select(table) for table in self._TABLES}

    def _set_entries(self, entries: dict[str, list[dict[str, Any]]] | None) -> None:
        for table in self._TABLES:
            if not inspect(self._engine).has_table(table):
                continue
            with self._engine.begin() as connection:
                connection.execute(text(f"DELETE FROM {table}"))
                for row in (entries or {}).get(table, []):
                    columns = ", ".join(row)
                    values = ", ".join(f":{column}" for column in row)
                    insert = f"INSERT INTO {table} ({columns}) VALUES ({values})"
                    connection.execute(text(insert), row)


class RestPlace(ServedPlace):
    """A warehouse on S3 in a REST catalog.

    Args:
        folder: a folder of its own.
        s3: the store.
        bucket: the name of a bucket of its own, in which the catalog creates tables.
        uri: the catalog's URI; it has no other tables.
    """

    def __init__(self, folder: Path, s3: S3, bucket: str, uri: str) -> None:
        super().__init__(folder, s3, bucket)
        self._uri = uri
        self._properties |= {"type": "rest", "uri": uri}

    def locations(self) -> Mapping[str, str]:
        found = {}
        for namespace in self._namespaces():
            listed = self._ask("get", f"namespaces/{namespace}/tables")["identifiers"]
            for name in sorted(item["name"] for item in listed):
                table = self._ask("get", f"namespaces/{namespace}/tables/{name}")
                found[f"{namespace}.{name}"] = str(table["metadata-location"])
        return found

    def _namespaces(self) -> list[str]:
        return sorted(".".join(parts) for parts in self._ask("get", "namespaces")["namespaces"])

    def _entries(self) -> dict[str, Any]:
        return {"namespaces": self._namespaces(), "tables": self.locations()}

    def _set_entries(self, entries: dict[str, Any] | None) -> None:
        namespaces, tables = (
            (entries or {}).get("namespaces", []),
            (entries or {}).get("tables", {}),
        )
        for namespace in self._namespaces():
            for item in self._ask("get", f"namespaces/{namespace}/tables")["identifiers"]:
                self._ask("delete", f"namespaces/{namespace}/tables/{item['name']}")
            if namespace not in namespaces:
                self._ask("delete", f"namespaces/{namespace}")
        for namespace in set(namespaces) - set(self._namespaces()):
            self._ask("post", "namespaces", {"namespace": [namespace]})
        for name, location in tables.items():
            namespace, table = name.split(".")
            entry = {"name": table, "metadata-location": location}
            self._ask("post", f"namespaces/{namespace}/register", entry)

    def _ask(self, method: str, path: str, document: Any = None) -> Any:
        answer = requests.request(method, f"{self._uri}/v1/{path}", json=document, timeout=_SECONDS)
        answer.raise_for_status()
        return answer.json() if answer.content else None


@contextmanager
def opened(
    kind: str, folder: Path, s3: S3 | None = None, postgres: Postgres | None = None
) -> Iterator[Place]:
    """Yield a place of a kind, with servers of its own for those that are not given.

    Raises:
        RuntimeError: a server is not installed.
    """
    if kind in LOCAL:
        yield LOCAL[kind](folder)
        return
    needed = [s3_server.missing(), (postgres_server if kind == "postgres" else maven).missing()]
    if reasons := [reason for reason in needed if reason]:
        raise RuntimeError(f"this kind of tables needs {', '.join(reasons)}")
    with ExitStack() as held:
        if s3 is None:
            s3 = S3("key", "secret")
            held.callback(s3.end)
        bucket = s3.bucket()
        if kind == "postgres":
            if postgres is None:
                postgres = Postgres("secret")
                held.callback(postgres.end)
            yield PostgresPlace(folder, s3, bucket, postgres.uri())
        else:
            server = RestServer({**s3.properties(), "warehouse": f"s3://{bucket}/tables"})
            held.callback(server.end)
            yield RestPlace(folder, s3, bucket, server.uri)
