"""The tables of `lake demo --lake`, in every state of neglect, and the warehouse that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from lake.commands.tours import neglect
from lake.commands.tours.table_maker import TableMaker, TableSpec
from lake.core.base.progress import Meter, shown

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

_ORDERS = ("order_id", "customer_id", "status", "amount", "placed_at")
_PRODUCTS = ("product_id", "supplier_id", "category", "price", "changed_at")
_EVENTS = ("event_id", "user_id", "page", "seconds", "seen_at")
_READINGS = ("reading_id", "sensor_id", "unit", "value", "measured_at")
_WORDS: Mapping[tuple[str, ...], Sequence[str]] = {
    _ORDERS: ("new", "paid", "shipped", "returned"),
    _PRODUCTS: ("books", "garden", "kitchen", "toys"),
    _EVENTS: ("/", "/cart", "/search", "/thanks"),
    _READINGS: ("bar", "celsius", "percent"),
}


def _spec(
    name: str,
    columns: tuple[str, ...],
    make: neglect.Make,
    *,
    by_day: bool = False,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> TableSpec:
    return TableSpec(
        name=name,
        columns=columns,
        words=_WORDS[columns],
        make=make,
        partition_by=f"day({columns[-1]})" if by_day else None,
        properties=properties,
    )


TABLES: Sequence[TableSpec] = (
    _spec(
        "prod.orders", _ORDERS, neglect.streamed_upserts(200, since=12), properties=neglect.UNMERGED
    ),
    _spec("prod.order_items", _ORDERS, neglect.small_files(300, commits=3)),
    _spec(
        "prod.customers",
        _ORDERS,
        neglect.streamed_upserts(60, since=4),
        properties=neglect.UNMERGED,
    ),
    _spec("prod.payments", _ORDERS, neglect.many_position_deletes(300)),
    _spec("prod.refunds", _ORDERS, neglect.many_equality_deletes(240)),
    _spec("prod.shipments", _ORDERS, neglect.new_partitioning(240, "day(placed_at)")),
    _spec(
        "prod.inventory", _PRODUCTS, neglect.vectors_on_small_files(230), properties=neglect.VECTORS
    ),
    _spec("prod.products", _PRODUCTS, neglect.nightly_replacement(30)),
    _spec("prod.prices", _PRODUCTS, neglect.nightly_replacement(45)),
    _spec(
        "prod.page_views",
        _EVENTS,
        neglect.small_files(100, commits=100, days=5),
        by_day=True,
        properties=neglect.UNMERGED,
    ),
    _spec("prod.invoices", _ORDERS, neglect.tidy(4)),
    _spec("prod.erp_export", _ORDERS, neglect.unreadable),
    _spec("prod.suppliers", _PRODUCTS, neglect.tidy(1, rows=300)),
    _spec(
        "staging.clickstream",
        _EVENTS,
        neglect.small_files(280, commits=28, days=7, since=30),
        by_day=True,
    ),
    _spec("staging.web_logs", _EVENTS, neglect.small_files(240, commits=60, since=25)),
    _spec("staging.crm_contacts", _ORDERS, neglect.nightly_replacement(20)),
    _spec("staging.imports", _PRODUCTS, neglect.with_orphans(neglect.tidy(), 40)),
    _spec("staging.returns", _ORDERS, neglect.tidy()),
    _spec("staging.api_audit", _EVENTS, neglect.tidy(4)),
    _spec("staging.retries", _EVENTS, neglect.empty),
    _spec(
        "analytics.sessions",
        _EVENTS,
        neglect.streamed_upserts(60, since=9),
        properties=neglect.UNMERGED,
    ),
    _spec("analytics.daily_revenue", _ORDERS, neglect.nightly_replacement(25)),
    _spec("analytics.cohorts", _EVENTS, neglect.tidy(1)),
    _spec("analytics.funnels", _EVENTS, neglect.tidy()),
    _spec(
        "analytics.experiments",
        _EVENTS,
        neglect.vectors_on_small_files(3),
        properties=neglect.VECTORS,
    ),
    _spec("analytics.marketing_spend", _ORDERS, neglect.tidy(1, rows=400)),
    _spec("sensors.readings", _READINGS, neglect.small_files(270, commits=9, days=6), by_day=True),
    _spec(
        "sensors.alerts",
        _READINGS,
        neglect.small_files(90, commits=90, since=4),
        properties=neglect.UNMERGED,
    ),
    _spec("sensors.devices", _READINGS, neglect.tidy(1)),
    _spec("sensors.calibrations", _READINGS, neglect.with_orphans(neglect.tidy(1), 25)),
)


def make_tables(session: Session, specs: Sequence[TableSpec]) -> None:
    """Make tables, one after the other, in the catalog of a session; a stop takes effect after a table.

    Raises:
        RefusedError: a table exists.
        StorageError: a file cannot be written.
        StoppedError: a stop signal came.
    """
    meter = Meter("making tables", tasks=len(specs))
    with shown(session.progress, meter):
        for spec in specs:
            spec.make(TableMaker(session, spec))
            session.interrupts.checkpoint()
            meter.advance(tasks=1)
