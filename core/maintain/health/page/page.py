"""Fill the template, and replace the file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lake.core.base.options import quote_options
from lake.core.base.redaction import Redactor, one_line
from lake.core.base.units import counted, format_size, format_time
from lake.core.io.storage.atomic_files import replace_text, require_own
from lake.core.maintain.health.facts import HealthFacts
from lake.core.maintain.health.order import Viewed
from lake.core.maintain.health.page.overview import columns, counts, lines_of, maps
from lake.core.maintain.health.page.sections import section_of

if TYPE_CHECKING:
    from lake.core.base.clock import Ids

# A browser shows more only slowly. The page says what it leaves out.
MOST_SECTIONS, _MOST_ROWS = 100, 5_000
# Texts are cut to this length.
_MOST_TEXT = 600
# A page has this in its first bytes.
_TITLE = b"<title>Health of "
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a page shows.

    Args:
        catalog: the name of the catalog.
        patterns: which tables were asked for; empty for all.
        now_ms: the time of the report, in ms since 1970.
        rows: the tables in the order of the page.
        views: the tables with a section, in the same order.
        not_looked_at: what no row shows.
    """

    catalog: str
    patterns: Sequence[str]
    now_ms: int
    rows: Sequence[HealthFacts]
    views: Sequence[Viewed]
    not_looked_at: Sequence[str]


def write_page(path: str, shown: Shown, redact: Redactor, *, ids: Ids) -> None:
    """Replace a page.

    Raises:
        LakeError: it is another file, or cannot be written.
    """
    require_page(path)
    replace_text(path, page_text(shown, redact), ids=ids)


def require_page(path: str) -> None:
    """Refuse to replace another file than a page.

    Raises:
        InvalidRequestError: it is another file.
        LakeError: it cannot be read.
    """
    require_own(path, "a page of lake health", lambda head: _TITLE in head)


def page_text(shown: Shown, redact: Redactor) -> str:
    """Return a page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    @lru_cache(maxsize=10_000)
    def clean(text: str) -> str:
        return one_line(redact(quote_options(text), limit=_MOST_TEXT))

    def finalized(value: Any) -> Any:
        # What the template escaped itself is clean.
        return clean(value) if type(value) is str else value

    environment = Environment(
        autoescape=True,
        finalize=finalized,
        loader=FileSystemLoader(_FOLDER),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {
        "counted": counted,
        "number": "{:,}".format,
        "percent": "{:.2f}%".format,
        "size": format_size,
        "slug": lambda text: text.replace(" ", "-"),
    }
    style = _FOLDER.joinpath("page.css").read_text("utf-8")
    script = _FOLDER.joinpath("page.js").read_text("utf-8")
    now_ms, rows = shown.now_ms, shown.rows[:_MOST_ROWS]
    links = {id(viewed.row): f"t{number}" for number, viewed in enumerate(shown.views, start=1)}
    listed = columns(rows, now_ms)
    return environment.get_template("page.html.jinja").render(
        shown=shown,
        style=style,
        script=script,
        hash=_hash,
        time=format_time(now_ms),
        counts=counts(shown.rows),
        totals={
            "files": sum(row.reading.files or 0 for row in shown.rows),
            "bytes": sum(row.reading.bytes or 0 for row in shown.rows),
        },
        maps=maps(shown.rows, links),
        columns=listed,
        lines=lines_of(rows, listed, links, now_ms),
        left_out=len(shown.rows) - len(rows),
        without_section=sum(bool(row.grade) for row in shown.rows) - len(shown.views),
        sections=(section_of(row, view, now_ms) for row, view in shown.views),
    )


def _hash(text: str) -> str:
    """Return the hash of a style or a script, by which the policy of the page allows it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
