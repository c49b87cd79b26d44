"""Plan files: what a round would do, written to be approved and applied later.

JSON with ``format`` (1), ``catalog``, ``created_at`` and ``actions``: for each its ``table``, ``table_uuid``,
``action``, ``options``, ``reason`` and ``forecast``, and in ``base`` what must still be true when it is applied:
``base_snapshot_id`` (the head of the main branch, null without one), ``schema_id`` and ``spec_id``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import BadInputError
from lake.core.base.facts import Facts
from lake.core.base.options import Option
from lake.core.base.trust.folders import read_named
from lake.core.base.units import iso_time
from lake.core.io.storage.atomic_files import has_keys, replace_text, require_own
from lake.core.maintain.policies.policy import ACTIONS, Given
from lake.core.maintain.rounds.candidates import Base, Candidate, expected
from lake.core.maintain.rounds.decisions import Decision
from lake.core.maintain.rounds.facts import DecisionFacts
from lake.core.maintain.run_log.entries import ExpectedFacts

if TYPE_CHECKING:
    from lake.core.base.clock import Ids

_FORMAT, _PLACE = 1, "the plan"
_MADE_BY = f"{Option.PLAN} FILE writes one"
# The plan of a hundred thousand actions.
_LARGEST = 64 * 1024 * 1024
_OWN_KEYS = frozenset({"format", "catalog", "created_at", "actions"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction(Facts):
    """An action of a plan file."""

    table: str
    table_uuid: str
    action: str
    """The command."""
    options: Mapping[str, Any]
    """Its options."""
    reason: str
    """Why it is due."""
    base: Base
    """The state of the table that the plan was made for."""
    forecast: ExpectedFacts | None = None
    """What it is expected to do; null if it is not known."""

    def decision(self, seen: Candidate) -> Decision:
        """Return the action as a decision about a table as it is now."""
        return Decision(
            table=self.table,
            action=self.action,
            is_due=True,
            reason=self.reason,
            options={name: Given(value, _PLACE) for name, value in self.options.items()},
            forecast=seen.forecast(self.action),
        )

    def replacement(self, seen: Candidate) -> str:
        """Return why a table is not the one of the plan, which no later run changes; empty if it is."""
        if seen.uuid == self.table_uuid:
            return ""
        return _changed(f"the UUID was {self.table_uuid} and is {seen.uuid}")

    def drift(self, seen: Candidate, base: Base) -> str:
        """Return why the plan is not one of a table as it is now; empty if it is.

        Args:
            seen: the table now.
            base: its state when the plan was made, or after the last commit of this plan.
        """
        return _changed(base.drift(seen.base))

    def facts(self, reason: str) -> DecisionFacts:
        """Return the action for the outcome, with why it is not done."""
        return DecisionFacts(table=self.table, action=self.action, reason=reason)


def _changed(what: str) -> str:
    return what and f"the table has changed since the plan: {what}"


def planned_action(seen: Candidate, decision: Decision) -> PlannedAction:
    """Return a decision as an action of a plan file."""
    return PlannedAction(
        table=seen.table,
        table_uuid=seen.uuid,
        action=decision.action,
        options={name: given.value for name, given in decision.options.items()},
        reason=decision.reason,
        base=seen.base,
        forecast=expected(decision.forecast),
    )


def require_plan(path: str) -> None:
    """Refuse to replace a file that is not a plan.

    Raises:
        InvalidRequestError: it is another file.
        LakeError: it cannot be read.
    """
    require_own(path, "a plan of lake maintain", partial(has_keys, _OWN_KEYS), _LARGEST)


def write_plan(
    path: str, catalog: str, actions: Sequence[PlannedAction], now_ms: int, ids: Ids
) -> None:
    """Replace a plan file.

    Raises:
        InvalidRequestError: another file has this name.
        LakeError: it cannot be written.
    """
    require_plan(path)
    document = {
        "format": _FORMAT,
        "catalog": catalog,
        "created_at": iso_time(now_ms),
        "actions": [item.document() for item in actions],
    }
    text = json.dumps(document, indent=1)
    replace_text(path, f"{text}\n", ids=ids)


def read_plan(path: str, catalog: str) -> list[PlannedAction]:
    """Return the actions of a plan file.

    Raises:
        BadInputError: it cannot be read, is not a plan, or is one for another catalog.
        RefusedError: every user can change it.
    """
    document = _document(path, read_named(path, _LARGEST, made_by=_MADE_BY))
    if document.get("catalog") != catalog:
        raise BadInputError(
            f"{path} is a plan for the catalog {document.get('catalog')!r}, and this is {catalog}",
            hint=f"choose the catalog of the plan by {Option.CATALOG} or {Option.WAREHOUSE}",
        )
    actions = document.get("actions")
    if not isinstance(actions, list):
        raise _not_a_plan(path)
    return [_action(path, item) for item in actions]


def _document(path: str, data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _not_a_plan(path) from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise _not_a_plan(path)
    return document


def _not_a_plan(path: str) -> BadInputError:
    return BadInputError(f"{path} is not a plan of lake maintain", hint=_MADE_BY)


def _action(path: str, found: Any) -> PlannedAction:
    if not isinstance(found, dict):
        raise _not_a_plan(path)
    base, options = found.get("base"), found.get("options")
    texts = [found.get(name) for name in ("table", "table_uuid", "action", "reason")]
    if not (isinstance(base, dict) and isinstance(options, dict)):
        raise _not_a_plan(path)
    snapshot, schema_id, spec_id = (base.get(item.name) for item in fields(Base))
    if (
        not all(isinstance(text, str) for text in texts)
        or texts[2] not in ACTIONS
        or not isinstance(snapshot, str | None)
        or not isinstance(schema_id, int)
        or not isinstance(spec_id, int)
    ):
        raise _not_a_plan(path)
    table, uuid, action, reason = map(str, texts)
    return PlannedAction(
        table=table,
        table_uuid=uuid,
        action=action,
        options=options,
        reason=reason,
        base=Base(base_snapshot_id=snapshot, schema_id=schema_id, spec_id=spec_id),
    )
