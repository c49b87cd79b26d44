"""The Hive metastore as tests use it, on Derby. Maven fetches its jars, and the statements of its tables (200 MB)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from support.peers.java_peer import CACHE
from support.servers.maven import class_path
from support.servers.server_process import HOST, Server, free_port

POM = Path(__file__).parent / "hive_metastore" / "pom.xml"
_PACKAGE = "org.apache.hadoop.hive.metastore"
_JAVA_OPTIONS = (
    *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    # Derby would wait for a minute, as long as a client does. Concurrent transactions can block it forever: tests do
    # not let two processes commit at the same time.
    *("-Dderby.locks.waitTimeout=10", "-Dderby.locks.deadlockTimeout=2"),
    *(
        f"--add-opens=java.base/java.{name}=ALL-UNNAMED"
        for name in ("lang", "net", "util", "util.concurrent", "util.concurrent.atomic", "time")
    ),
)


class HiveMetastore:
    """A running metastore."""

    def __init__(self) -> None:
        """Make its tables and start it."""
        self._folder = tempfile.TemporaryDirectory(prefix="lake-hive-")
        folder = Path(self._folder.name)
        port = free_port()
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/db;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "metastore.warehouse.dir": f"file://{folder}/warehouse",
            "metastore.task.threads.always": "",
            "metastore.thrift.bind.host": HOST,
        }
        lines = (
            f"<property><name>{key}</name><value>{text}</value></property>"
            for key, text in settings.items()
        )
        (folder / "metastore-site.xml").write_text(
            f"<configuration>{''.join(lines)}</configuration>"
        )
        java = ["java", *_JAVA_OPTIONS, "-cp", f"{folder}:{class_path('hive', POM)}"]
        env = {**os.environ, "METASTORE_HOME": str(_home())}
        with (folder / "tables.log").open("wb") as log:
            subprocess.run(
                [
                    *(*java, f"{_PACKAGE}.tools.schematool.MetastoreSchemaTool"),
                    *("-dbType", "derby", "-initSchema"),
                ],
                check=True,
                cwd=folder,
                env=env,
                stdout=log,
                stderr=log,
            )
        command = [*java, f"{_PACKAGE}.HiveMetaStore", "-p", str(port)]
        self.server = Server(command, port, folder / "log", cwd=folder, env=env)
        self.uri = f"thrift://{HOST}:{port}"

    def end(self) -> None:
        """Stop it and remove its files."""
        self.server.end()
        self._folder.cleanup()


def _home() -> Path:
    """Return the folder with the statements of the tables, which only the whole distribution contains."""
    found = re.search(r"<hive.version>(.*)<", POM.read_text())
    assert found is not None
    home = CACHE / f"apache-hive-metastore-{found[1]}-bin"
    if not (home / "scripts").exists():
        artifact = f"org.apache.hive:hive-standalone-metastore-server:{found[1]}:tar.gz:bin"
        unpack = ["mvn", "-q", "-B", "dependency:unpack", f"-Dartifact={artifact}"]
        options = [f"-DoutputDirectory={CACHE}", "-Dmdep.unpack.includes=**/upgrade/derby/*"]
        subprocess.run([*unpack, *options], check=True, cwd=CACHE, stdout=sys.stderr)
    return home
