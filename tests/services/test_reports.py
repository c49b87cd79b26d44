"""Reports about commits and scans for a REST catalog: Iceberg's server parses them, and nothing depends on them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Proxy, refused
from support.servers.rest_server import RestServer

from lake.core.table.catalogs.rest import BoundedRestCatalog

METRICS = "/metrics"
CANARY = "canary-login-7c1e"


@pytest.fixture
def proxy(rest: tuple[RestServer, str]) -> Iterator[Proxy]:
    with Proxy(rest[0].uri) as running:
        yield running


@pytest.fixture
def reporting(on_rest: Service, proxy: Proxy) -> Service:
    """A catalog behind the proxy that gets reports if its server takes them."""
    properties = {**on_rest.properties, "uri": proxy.uri, "token": CANARY}
    del properties["rest-metrics-reporting-enabled"]
    return Service("reporting", properties, on_rest.folder, on_rest.list_files, on_rest.namespace)


@pytest.fixture(autouse=True)
def catalogs(monkeypatch: pytest.MonkeyPatch) -> list[BoundedRestCatalog]:
    """The catalogs that were opened; their reports are waited for, as the end of a process does."""
    opened: list[BoundedRestCatalog] = []
    original = BoundedRestCatalog.__init__

    def noted(self: BoundedRestCatalog, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        opened.append(self)

    monkeypatch.setattr(BoundedRestCatalog, "__init__", noted)
    return opened


def reports(
    service: Service, proxy: Proxy, catalogs: list[BoundedRestCatalog], *words: object
) -> list[tuple[Asked, dict[str, Any]]]:
    """Run a command that succeeds; return the reports that were sent, as requests and documents."""
    before = len(proxy.asked)
    service.line().ok(*words)
    for catalog in catalogs:
        catalog._reports.drain(120)
    sent = [asked for asked in proxy.asked[before:] if asked.path.endswith(METRICS)]
    return [(asked, json.loads(asked.body)) for asked in sent]


def load(service: Service, **columns: Any) -> tuple[object, ...]:
    """Return a load of a source."""
    return ("ingest", service.table(), csv(service.folder, "source.csv", **columns), "--create")


def test_each_snapshot_is_reported_and_the_server_parses_the_report(
    reporting: Service, proxy: Proxy, catalogs: list[BoundedRestCatalog]
) -> None:
    answers: list[int] = []

    def record(asked: Asked, answer: Answer) -> Answer:
        if asked.path.endswith(METRICS):
            answers.append(answer.status)
        return answer

    proxy.changes.append(record)

    ((asked, report),) = reports(reporting, proxy, catalogs, *load(reporting, id=[1, 2, 3]))
    upsert = ("--upsert", "--key", "id")
    ((_, second),) = reports(reporting, proxy, catalogs, *load(reporting, id=[2]), *upsert)

    assert answers == [204, 204]
    assert asked.path.endswith(f"/namespaces/{reporting.namespace}/tables/t/metrics")
    first, last = reporting.catalog().load_table(reporting.table()).snapshots()
    assert report["report-type"] == "commit-report"
    assert report["table-name"] == f"prod.{reporting.table()}"
    assert (report["snapshot-id"], report["sequence-number"]) == (first.snapshot_id, 1)
    assert (report["operation"], second["operation"]) == ("append", last.summary.operation.value)
    metrics = report["metrics"]
    assert metrics["added-records"] == {"unit": "count", "value": 3}
    assert metrics["attempts"] == {"unit": "count", "value": 1}
    size = int(first.summary["added-files-size"])
    assert metrics["added-files-size-bytes"] == {"unit": "bytes", "value": size}
    assert metrics["total-duration"]["time-unit"] == "nanoseconds"
    assert metrics["total-duration"]["total-duration"] > 0
    assert report["metadata"]["engine-name"] == "lake"
    assert CANARY not in asked.body.decode()
    assert asked.headers["Authorization"] == f"Bearer {CANARY}"


def test_each_scan_is_reported_without_the_values_of_its_filter(
    reporting: Service, proxy: Proxy, catalogs: list[BoundedRestCatalog]
) -> None:
    answers: list[int] = []

    def record(asked: Asked, answer: Answer) -> Answer:
        if asked.path.endswith(METRICS):
            answers.append(answer.status)
        return answer

    reporting.line().ok(*load(reporting, id=[1, 2, 3], name=["a", "b", "c"]))
    reporting.line().ok(*load(reporting, id=[9], name=["z"]))
    for catalog in catalogs:
        catalog._reports.drain(120)
    proxy.changes.append(record)
    scan = ("scan", reporting.table(), "--where")
    text = "id > 8000001 and not (name in ('hidden-1', 'hidden-2') or name is null)"

    ((asked, plain),) = reports(reporting, proxy, catalogs, "scan", reporting.table())
    ((_, report),) = reports(reporting, proxy, catalogs, *scan, text, "--select", "name", "--plan")
    for other in ("name like 'a%' or id <> 3", "id = 1 and name <=> null", "id in (1) or id <=> 2"):
        reports(reporting, proxy, catalogs, *scan, other)

    # The server has parsed them.
    assert answers == [204] * 5
    snapshot = reporting.catalog().load_table(reporting.table()).current_snapshot()
    assert (report["report-type"], report["snapshot-id"]) == ("scan-report", snapshot.snapshot_id)
    assert (report["table-name"], report["schema-id"]) == (f"prod.{reporting.table()}", 0)
    assert (plain["projected-field-ids"], plain["projected-field-names"]) == (
        [1, 2],
        ["id", "name"],
    )
    assert report["projected-field-names"] == ["name"]
    assert plain["filter"] is True
    assert [report["filter"]["left"][key] for key in ("type", "term")] == ["gt", "id"]
    assert "8000001" not in json.dumps(report)
    assert "hidden-" not in json.dumps(report)
    counts = {key: item["value"] for key, item in plain["metrics"].items() if "value" in item}
    assert (counts["result-data-files"], counts["total-data-manifests"]) == (2, 2)
    assert counts["total-file-size-in-bytes"] == int(snapshot.summary["total-files-size"])
    skipped = report["metrics"]["skipped-data-files"]["value"]
    assert (skipped, report["metrics"]["result-data-files"]["value"]) == (2, 0)
    assert report["metrics"]["total-planning-duration"]["time-unit"] == "nanoseconds"
    assert CANARY not in asked.body.decode()


def test_the_server_refuses_a_report_of_another_form(
    reporting: Service, proxy: Proxy, catalogs: list[BoundedRestCatalog]
) -> None:
    """What the server accepts above, it has parsed."""
    reports(reporting, proxy, catalogs, *load(reporting, id=[1]))
    catalog = catalogs[-1]
    path = catalog.url(f"namespaces/{reporting.namespace}/tables/t/metrics")

    assert not catalog._send_report(path, {"report-type": "commit-report"})


def test_a_property_switches_reports_off_and_a_server_that_lists_no_endpoint_gets_none(
    reporting: Service, proxy: Proxy, catalogs: list[BoundedRestCatalog]
) -> None:
    reporting.properties = {**reporting.properties, "rest-metrics-reporting-enabled": "false"}
    assert reports(reporting, proxy, catalogs, *load(reporting, id=[1])) == []

    def without_metrics(asked: Asked, answer: Answer) -> Answer:
        if not asked.path.partition("?")[0].endswith("/v1/config"):
            return answer
        found = json.loads(answer.body)
        found["endpoints"] = [one for one in found["endpoints"] if not one.endswith(METRICS)]
        return Answer(answer.status, answer.headers, json.dumps(found).encode())

    proxy.changes.append(without_metrics)
    reporting.properties = {
        key: text for key, text in reporting.properties.items() if "reporting" not in key
    }
    assert reports(reporting, proxy, catalogs, *load(reporting, id=[2])) == []
    reporting.properties = {**reporting.properties, "rest-metrics-reporting-enabled": "true"}
    assert len(reports(reporting, proxy, catalogs, *load(reporting, id=[3]))) == 1


def test_a_server_that_refuses_reports_or_hangs_changes_nothing_for_the_command(
    reporting: Service, proxy: Proxy, catalogs: list[BoundedRestCatalog]
) -> None:
    reporting.line().ok(*load(reporting, id=[0]))
    hung = threading.Event()

    def hang(_asked: Asked, _forward: Any) -> Answer:
        hung.set()
        proxy.ended.wait(60)
        return Answer(204)

    proxy.fail("POST", METRICS, refused(500), refused(404), hang)

    for number in (1, 2, 3):
        document = reporting.line().ok(*load(reporting, id=[number]))
        assert (document["status"], document["warnings"]) == ("done", [])
    document = reporting.line().ok("scan", reporting.table())
    assert (document["status"], document["warnings"]) == ("done", [])

    assert hung.wait(120)
    assert reporting.rows() == [(number,) for number in range(4)]
