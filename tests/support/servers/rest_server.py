"""The Iceberg project's own REST catalog server as tests use it; Maven fetches its jars once (100 MB)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.servers.maven import class_path
from support.servers.server_process import HOST, Server, free_port

POM = Path(__file__).parent / "rest_catalog" / "pom.xml"
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class RestServer:
    """A running server: tables are stored where their namespace's `location` says, locally or on S3."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Start it with properties for its own FileIO, which it also vends with each table."""
        self._folder = tempfile.TemporaryDirectory(prefix="lake-rest-")
        folder = Path(self._folder.name)
        self.port = free_port()
        self.uri = f"http://{HOST}:{self.port}"
        settings = {
            "warehouse": f"file://{folder}/warehouse",
            "uri": f"jdbc:sqlite:{folder}/catalog.db",
            "rest.port": str(self.port),
            "io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            "http-client.type": "urlconnection",
            "include-credentials": "true",
            **properties,
        }
        self.server = Server(
            ["java", *_JAVA_OPTIONS, "-cp", class_path("rest", POM), _MAIN],
            self.port,
            folder / "log",
            cwd=folder,
            env={
                **os.environ,
                "AWS_REGION": "us-east-1",
                **{_variable(key): text for key, text in settings.items()},
            },
        )

    def end(self) -> None:
        """Stop it and remove its files."""
        self.server.end()
        self._folder.cleanup()


def _variable(key: str) -> str:
    """Return the name under which the server takes a property from its environment."""
    return "CATALOG_" + key.replace("-", "__").replace(".", "_").upper()
