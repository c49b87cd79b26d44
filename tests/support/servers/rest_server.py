"""The Iceberg project's own REST catalog server as tests use it; Maven fetches its jars once (100 MB)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.peers.java_peer import CACHE
from support.servers.server_process import HOST, Server, free_port

POM = Path(__file__).parent / "rest_catalog" / "pom.xml"
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_JAVA_OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def missing() -> str | None:
    """Return what this machine lacks, or None."""
    if not shutil.which("mvn"):
        return "Maven"
    return None if shutil.which("java") else "a JDK"


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
            ["java", *_JAVA_OPTIONS, "-cp", _class_path(), _MAIN],
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


def _class_path() -> str:
    CACHE.mkdir(parents=True, exist_ok=True)
    known = CACHE / f"rest-{hashlib.sha256(POM.read_bytes()).hexdigest()[:16]}.classpath"
    with (CACHE / "rest.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (known.exists() and all(map(os.path.exists, known.read_text().split(":")))):
            command = ["mvn", "-q", "-B", "-f", POM, "dependency:build-classpath"]
            subprocess.run(
                [*command, f"-Dmdep.outputFile={known}"], check=True, cwd=CACHE, stdout=sys.stderr
            )
    return known.read_text().strip()
