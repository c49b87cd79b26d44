"""List the configured catalogs, and which of them answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import LakeError, NotFoundError, TimedOutError
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.base.redaction import Redactor
from lake.core.base.settings import Settings
from lake.core.read.inspection.facts import CatalogFacts, CatalogsResult
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.configuration import (
    Configuration,
    how_to_add,
    read_configuration,
    shortened,
    sources_of,
)
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.names import require_existing
from lake.core.table.catalogs.selection import chosen_name, open_catalog, type_of

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Catalog
    from lake.core.transaction.session import Session

_REST = "rest"


def list_catalogs(session: Session, settings: Settings, *, check: bool, timeout_ms: int) -> Outcome:
    """Return the configured catalogs, or the one that the options choose.

    Args:
        session: the session, whose own catalog is not used.
        settings: the global options.
        check: whether to ask each catalog for its namespaces. They are asked at the same time.
        timeout_ms: how long to wait for all of them.

    Raises:
        NotFoundError: the chosen catalog is not configured.
        BadInputError: the configuration cannot be read.
    """
    in_folder = settings.warehouse is not None
    configuration = read_configuration(working_folder=not in_folder)
    is_own = in_folder or not configuration.catalogs
    if settings.catalog is not None or is_own:
        names = [chosen_name(settings, configuration)]
    else:
        names = sorted(configuration.catalogs)
    probes = [_Probe.of(session, settings, name) for name in names]
    if check:
        with shown(session.progress, Meter("asking catalogs")):
            _ask_all(session, probes, timeout_ms)
    is_unconfigured = is_own and not in_folder
    for probe in probes:
        if is_unconfigured and isinstance(probe.error, NotFoundError):
            # The first load makes it.
            probe.error = probe.seconds = None
    default = _default(settings, configuration)
    rows = [_row(probe, configuration, is_default=probe.name == default) for probe in probes]
    failed = [row for row in rows if row.error is not None]
    notes = [f"{row.name}: {row.error.message}" + _hint(row) for row in failed if row.error]
    if is_unconfigured:
        notes.append(
            f"no catalog is configured: tables are in ./warehouse, or in the folder of {Option.WAREHOUSE}; "
            f"{how_to_add('prod')}"
        )
    return Outcome(
        status=Status.PARTIAL if failed else Status.DONE,
        result=CatalogsResult(catalogs=rows),
        details=[_detail(rows)],
        notes=notes,
    )


@dataclass(slots=True)
class _Probe:
    """A catalog, and what became of the question to it."""

    name: str
    catalog: Catalog | None = None
    error: LakeError | None = None
    # Anything else than a LakeError is a defect, and is raised by the thread of the command.
    defect: Exception | None = None
    namespaces: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, session: Session, settings: Settings, name: str) -> _Probe:
        """Choose a catalog; nothing is opened yet."""
        probe = cls(name)
        try:
            probe.catalog = open_catalog(
                replace(settings, catalog=name), session.clock, session.ids
            )
        except LakeError as error:
            probe.error = error
            return probe
        session.secrets.append(probe.catalog.configured)
        return probe

    def ask(self, monotonic: Callable[[], float]) -> None:
        """List the catalog's first namespaces."""
        catalog, begun = self.catalog, monotonic()
        if catalog is None:
            return
        try:
            require_existing(catalog)
            with catalog_errors(f"catalog {self.name}", catalog):
                self.namespaces = len(catalog.handle.list_namespaces())
        except LakeError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - raised again by the command's own thread
            self.defect = error
        self.seconds = monotonic() - begun


def _ask_all(session: Session, probes: Sequence[_Probe], timeout_ms: int) -> None:
    """Ask all catalogs at the same time, and wait no longer than the limit for the last one."""
    # Threads must not change PyIceberg at the same time.
    pyiceberg_patches.apply()
    if any(item.catalog and type_of(item.catalog.configured) == _REST for item in probes):
        pyiceberg_patches.apply_to_rest()
    clock = session.clock
    ends = clock.monotonic() + timeout_ms / 1000
    # What answers too late changes no row, and the end of the process does not wait for it.
    asked = [replace(probe) for probe in probes]
    threads = [
        threading.Thread(target=item.ask, args=(clock.monotonic,), daemon=True) for item in asked
    ]
    for thread in threads:
        thread.start()
    for probe, item, thread in zip(probes, asked, threads, strict=True):
        thread.join(max(ends - clock.monotonic(), 0.0))
        if item.defect is not None:
            raise item.defect
        if thread.is_alive():
            probe.error = TimedOutError(
                f"catalog {probe.name} did not answer within {timeout_ms / 1000:g} s",
                hint="check its address, and that its server runs",
            )
            probe.seconds = timeout_ms / 1000
        else:
            probe.error, probe.namespaces, probe.seconds = item.error, item.namespaces, item.seconds


def _default(settings: Settings, configuration: Configuration) -> str | None:
    """Return the name of the catalog that commands use without a choice; None if they need one."""
    try:
        return chosen_name(settings, configuration)
    except LakeError:
        return None


def _row(probe: _Probe, configuration: Configuration, *, is_default: bool) -> CatalogFacts:
    catalog = probe.catalog
    properties: Mapping[str, Any] = (
        configuration.catalogs.get(probe.name, {}) if catalog is None else catalog.configured
    )
    masked = Redactor()
    masked.learn(properties)
    is_answered = probe.namespaces is not None
    return CatalogFacts(
        name=probe.name,
        type=type_of(properties),
        default=is_default,
        uri=_text(masked, properties.get("uri") or properties.get("glue.endpoint")),
        warehouse=_text(masked, properties.get("warehouse")),
        sources=[shortened(source) for source in sources_of(probe.name, configuration)],
        answers=is_answered if is_answered or probe.error else None,
        namespaces=probe.namespaces,
        seconds=None if probe.seconds is None else round(probe.seconds, 3),
        error=None if probe.error is None else probe.error.facts(),
    )


def _text(masked: Redactor, value: Any) -> str | None:
    return None if value is None else masked(str(value))


def _hint(row: CatalogFacts) -> str:
    return f" ({row.error.hint})" if row.error and row.error.hint else ""


def _detail(rows: Sequence[CatalogFacts]) -> Detail:
    columns = ["catalog", "type", "answers", "namespaces", "seconds", "address", "source"]
    return Detail("catalogs", columns, [list(_cells(row)) for row in rows], first=columns[:5])


def _cells(row: CatalogFacts) -> Iterator[str | int | float | None]:
    yield f"{row.name} (default)" if row.default else row.name
    yield row.type
    yield row.error.kind if row.error else {True: "yes", None: None}[row.answers]
    yield row.namespaces
    yield row.seconds
    yield row.uri or row.warehouse
    yield ", ".join(row.sources)
