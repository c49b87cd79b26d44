"""A few of the faults on the wire to a REST catalog and its store; `python -m soak --wire N` tries them all."""

from __future__ import annotations

from pathlib import Path

from support.cli.service_line import Service
from support.faults import wire
from support.faults.wire import Case, Wired
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3

CHOSEN = [
    Case("append", "catalog", 3, "slow after"),
    Case("compact", "store", 8, "cut"),
    Case("expire", "catalog", 3, "page"),
    Case("rename", "catalog", 9, "404 after", sticky=True),
    Case("purge", "store", 6, "401", sticky=True),
    Case("drop-purge", "store", 10, "endless"),
]


def test_a_fault_on_the_wire_is_reported_as_what_it_was(
    rest: tuple[RestServer, str], s3: S3, on_rest: Service, tmp_path: Path
) -> None:
    server, bucket = rest
    with wire.between(server, s3, bucket, tmp_path, on_rest.namespace) as wired:
        assert isinstance(wired, Wired)
        for case in CHOSEN:
            assert wired.check(case)["wire faults"] == 1, case
