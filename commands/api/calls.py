"""Call the verbs of the command line from Python: with the same options, checks and functions of the core."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lake.commands.actions import verb_of
from lake.commands.defaults import effective, settings_of
from lake.commands.groups import arguments_of, flags_given, given
from lake.commands.options import absolute_time
from lake.commands.scan import scan
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.options import quote_options
from lake.core.base.outcome import Outcome
from lake.core.base.redaction import mask
from lake.core.base.settings import Settings
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.scan.plan import ScanOptions
from lake.core.table.catalogs.configuration import read_configuration
from lake.core.transaction.session import Session, open_session

if TYPE_CHECKING:
    import typer

    from lake.core.load.ingest.options import IngestOptions
    from lake.core.table.snapshots.streams import QueryEpoch

# The value of an option of the command line; the unit of a number and the forms of a text are the same.
Option: TypeAlias = str | float | bool | Sequence[str] | None
# What only the command line does: it runs programs, and goes on until it is stopped.
_OF_THE_COMMAND_LINE = frozenset(
    {"on-commit", "watch", "follow", "kafka", "route", "discard", "output", "output-format"}
)


def settings_from(options: Mapping[str, Any]) -> Settings:
    """Return the settings of options by their names, completed by the environment and the project file.

    Raises:
        LakeError: the project file is not valid, or options contradict each other.
    """
    found = {name: value for name, value in options.items() if value is not None}
    if "catalog-type" in found and "warehouse" not in found:
        raise InvalidRequestError("catalog_type needs warehouse")
    settings = settings_of(effective(found), verbose=False)
    # As the command line does, before PyIceberg reads it.
    read_configuration(working_folder=settings.warehouse is None)
    return settings


@dataclass(slots=True)
class _State:
    """What verbs ask of the command line that called them."""

    session: Session
    quiet: bool = True
    as_json: bool = True
    branch: str | None = None
    landed: Callable[[Outcome], None] = lambda _: None
    announce: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class _Context:
    """The context of a verb, of which verbs use one field."""

    obj: _State


class Calls:
    """The verbs on one catalog."""

    def __init__(self, settings: Settings) -> None:
        self.session = open_session(settings)
        self._context = cast("typer.Context", _Context(_State(self.session)))

    def verb(self, name: str, *arguments: Any, options: Mapping[str, Option]) -> Outcome:
        """Run a verb.

        Args:
            name: the verb.
            arguments: its positional arguments.
            options: the values of its options by their names; a missing one, and None, are the default.

        Raises:
            LakeError: as the verb does. Neither it nor the outcome's warnings contain a secret.
        """
        verb = verb_of(name)
        with self._command():
            found = arguments_of(verb, _named(options), self._context)
            outcome = verb(self._context, *arguments, **found)
        return replace(outcome, warnings=self.warnings(outcome))

    def scan_options(self, options: Mapping[str, Option]) -> ScanOptions:
        """Return the options of `lake scan` that choose rows, columns, snapshots and splits.

        Raises:
            InvalidRequestError: a value is not allowed.
        """
        with self._command():
            found = arguments_of(scan, _named(options), self._context)
            groups = [found.pop(name) for name in ("rows", "snapshots", "start", "splits")]
            for flag in flags_given(*found.values()):
                raise InvalidRequestError(f"{flag} is an option of the command line only")
            return ScanOptions(**given(*groups))

    def load_options(self, source: str, options: Mapping[str, Option]) -> IngestOptions:
        """Return the options of `lake ingest` that say what a load from elsewhere does with the table.

        Args:
            source: what the history of the table shows as the source.
            options: the values of options by their names.

        Raises:
            InvalidRequestError: a value is not allowed.
        """
        from lake.commands.ingest import ingest
        from lake.core.load.ingest.options import IngestOptions

        with self._command():
            found = arguments_of(ingest, _named(options), self._context)
            replaced, upsert = found["replaced"], found["upsert"]
            return IngestOptions(
                sources=[source],
                mode=replaced.mode,
                overwrite_where=replaced.overwrite_where,
                no_upsert=upsert.no_upsert,
                **given(found["columns"], found["writing"], found["load_run"]),
            )

    def upsert(
        self,
        table: str,
        sources: Sequence[str],
        epoch: QueryEpoch | None,
        options: Mapping[str, Option],
    ) -> Outcome:
        """Load the files of a DataFrame by key.

        Args:
            table: the table's name.
            sources: the files.
            epoch: the epoch of a streaming query that they are; None for other frames.
            options: the values of options of `lake ingest --upsert` by their names.

        Raises:
            LakeError: as the verb does; or an option is one of other loads.
        """
        from lake.commands.ingest import ingest
        from lake.core.load.ingest.options import IngestOptions, LoadRequest
        from lake.core.load.run import load
        from lake.core.load.upsert.options import UpsertOptions

        with self._command():
            found = arguments_of(ingest, _named(options), self._context)
            groups = [found.pop(name) for name in ("columns", "writing", "load_run")]
            keys = UpsertOptions(**given(found.pop("keys")))
            asked = IngestOptions(sources=sources, **given(*groups))
            for flag in [*flags_given(*found.values()), *(["--stage"] if asked.stage else [])]:
                raise InvalidRequestError(f"{flag} is not an option of an upsert of a DataFrame")
            request = LoadRequest(options=asked, epoch=None, query_epoch=epoch, origin=["Spark"])
            outcome = load(self.session, table, request, keys)
        return replace(outcome, warnings=self.warnings(outcome))

    def follow_options(self, options: Mapping[str, Option]) -> FollowOptions:
        """Return the options of `lake scan --follow`.

        Raises:
            InvalidRequestError: a value is not allowed, or options contradict each other.
        """
        with self._command():
            found = arguments_of(scan, _named(options), self._context)
            scanned = [found[name] for name in ("rows", "snapshots", "splits")]
            names = ("start", "changes", "following", "what", "discovery")
            return FollowOptions(
                scan=ScanOptions(**given(*scanned)), **given(*(found[name] for name in names))
            )

    def snapshot(self, name: str | None) -> str | None:
        """Return the name of a snapshot that does not depend on the time."""
        return cast("str | None", absolute_time(self._context, name))

    def warnings(self, outcome: Outcome) -> Sequence[str]:
        """Return the warnings of an outcome and those of the session, each once and without secrets."""
        found = dict.fromkeys([*outcome.warnings, *self.session.warnings])
        return [self.redact(text) for text in found]

    @contextmanager
    def masked(self) -> Iterator[None]:
        """Let errors that leave the block contain no secrets, and show their hints in a traceback."""
        try:
            yield
        except LakeError as error:
            mask(error, self.redact)
            if error.hint:
                error.add_note(f"hint: {quote_options(error.hint)}")
            # What a library said about the cause may contain a secret.
            raise error from None

    @contextmanager
    def _command(self) -> Iterator[None]:
        self.session.warnings.clear()
        self.session.protected_files.clear()
        with self.masked():
            try:
                yield
            finally:
                self.session.end_command()

    def redact(self, text: str) -> str:
        """Return a text without the secrets of the catalog and of the environment."""
        redact = self.session.redactor()
        redact.learn_environment(os.environ)
        redact.learn(self.session.settings.spark_conf)
        return redact(text)


def _named(options: Mapping[str, Option]) -> dict[str, tuple[Any, str]]:
    """Return options as a verb takes those of a file: by the flag's name, with the place for messages."""
    found: dict[str, tuple[Any, str]] = {}
    for name, value in options.items():
        flag = name.replace("_", "-")
        if value is None:
            continue
        if flag in _OF_THE_COMMAND_LINE:
            raise InvalidRequestError(f"{name} is an option of the command line only")
        found[flag] = (value if isinstance(value, str | float | int) else list(value), name)
    return found
