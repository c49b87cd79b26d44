"""Azure's Blob Storage as tests use it: Azurite, which npm installs once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from support.servers import built
from support.servers.server_process import HOST, Server, free_port

_VERSION = "3.35.0"
ACCOUNT = "lakehouse"
_MAIN = "node_modules/azurite/dist/src/blob/main.js"


def program() -> Path | str:
    """Return the folder of the program, or what this machine lacks."""
    return built.by_npm("azurite", _VERSION)


class ContainerFileIO(PyArrowFileIO):
    """PyIceberg's FileIO, without the host that it takes for a part of the container's name."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Return a location's scheme, authority and path."""
        scheme, authority, path = PyArrowFileIO.parse_location(location, properties)
        container, at, _ = authority.partition("@")
        return scheme, authority, path.replace(authority, container, 1) if at else path


class Azure:
    """A running server; each test has a container of its own."""

    def __init__(self, secret: str) -> None:
        """Start it, with a text that becomes the account's key."""
        self.key = base64.b64encode(secret.encode()).decode()
        self._folder = tempfile.TemporaryDirectory(prefix="lake-azure-")
        self._containers = itertools.count(1)
        folder, port = Path(self._folder.name), free_port()
        place = ("--blobHost", HOST, "--blobPort", str(port), "--location", folder / "objects")
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck")
        environment = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.key}"}
        found = program()
        assert isinstance(found, Path)
        self.server = Server(
            ["node", found / _MAIN, *place, *quiet], port, folder / "log", env=environment
        )
        self.endpoint = f"http://{HOST}:{port}"

    def properties(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the storage properties with which PyIceberg reaches it."""
        authority = (endpoint or self.endpoint).removeprefix("http://")
        return {
            "adls.account-name": ACCOUNT,
            "adls.account-key": self.key,
            "adls.blob-storage-authority": authority,
            "adls.dfs-storage-authority": authority,
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-scheme": "http",
        }

    def judge(self) -> dict[str, str]:
        """Return what PyIceberg needs in addition."""
        return {"py-io-impl": f"{ContainerFileIO.__module__}.{ContainerFileIO.__name__}"}

    def bucket(self) -> str:
        """Return the authority of a new, empty container."""
        name = f"lake{next(self._containers)}"
        self.files().create_dir(name)
        return f"{name}@{ACCOUNT}.dfs.core.windows.net"

    def warehouse(self) -> tuple[str, str]:
        """Return the location and the path of a new, empty container."""
        authority = self.bucket()
        return f"abfss://{authority}", authority.partition("@")[0]

    def signature(self, container: str) -> str:
        """Return a shared access signature for all requests to a container."""
        fields = {
            "sp": "racwdl",
            "st": "2020-01-01T00:00:00Z",
            "se": "2099-01-01T00:00:00Z",
            "sv": "2022-11-02",
            "sr": "c",
        }
        place = f"/blob/{ACCOUNT}/{container}"
        # Identifier, addresses and protocol come before the version; snapshot and headers behind the kind.
        lines = [
            fields["sp"],
            fields["st"],
            fields["se"],
            place,
            *[""] * 3,
            fields["sv"],
            "c",
            *[""] * 7,
        ]
        signed = hmac.new(base64.b64decode(self.key), "\n".join(lines).encode(), hashlib.sha256)
        return urlencode({**fields, "sig": base64.b64encode(signed.digest()).decode()})

    def files(self) -> Any:
        """Return the server as PyArrow sees it."""
        settings = self.properties()
        names = ("account-name", "account-key", "blob-storage-authority", "dfs-storage-authority")
        schemes = ("blob-storage-scheme", "dfs-storage-scheme")
        return pafs.AzureFileSystem(
            **{name.replace("-", "_"): settings[f"adls.{name}"] for name in (*names, *schemes)}
        )

    def end(self) -> None:
        """Stop it."""
        self.server.end()
        self._folder.cleanup()
