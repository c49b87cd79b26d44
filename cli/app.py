"""The Typer application: global options, and verbs that are loaded when they are used."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from lake.cli import help as help_text
from lake.cli.arguments import CommandLine, arrange, option_table
from lake.cli.display import Display
from lake.cli.messages import subject
from lake.cli.progress import displays
from lake.cli.telemetry.trace import Trace
from lake.commands.defaults import (
    BUILT_IN,
    CATALOG_TYPES,
    CHOICES,
    COLORS,
    COLUMNS,
    ENGINES,
    Setting,
    effective,
    settings_of,
)
from lake.commands.groups import Flag, of_typer
from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.base.clock import Clock, SystemClock
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.interrupts import Interrupts
from lake.core.base.progress import Meter
from lake.core.base.redaction import is_secret
from lake.core.base.settings import Settings

if TYPE_CHECKING:
    from lake.core.base.outcome import Outcome
    from lake.core.transaction.session import Session

OpenSession: TypeAlias = "Callable[[Settings], Session]"
# The verbs with their summaries, so that help does not load their modules; `lake.cli.help` groups them.
VERBS = {
    "ingest": "Load files into a table, in one commit.",
    "add-files": "Add existing Parquet files to a table without copying them.",
    "replay": "List or commit Flink checkpoints that were never committed.",
    "demo": "Try the commands on real flights in ./lake-demo.",
    "scan": "Read a table, or what changed since a snapshot.",
    "inspect": "Show or write one of Iceberg's metadata tables.",
    "tables": "List the tables of a catalog with their sizes.",
    "catalogs": "List the configured catalogs, and which of them answer.",
    "health": "Grade tables by what their layout costs readers.",
    "show": "Show a table's columns, properties, refs, sizes and users.",
    "snapshots": "Show a table's snapshots, newest first.",
    "check": "Report what is missing, damaged or contradictory in a table.",
    "partitions": "Show a table's partitions with their sizes and ages.",
    "deletes": "Show a table's delete files and what they apply to.",
    "consumers": "List or remove the readers that a table protects.",
    "runs": "Show what lake maintain did, and what it saved.",
    "config": "Show the settings in effect, or trust this folder's files.",
    "create": "Create an empty table.",
    "delete": "Delete the rows that a filter selects.",
    "alter": "Change a table's columns, partitioning, order, properties or format.",
    "rollback": "Set a branch back to an earlier snapshot.",
    "tag": "List, set, move or drop a table's tags.",
    "ref": "List, create, drop or move branches and tags.",
    "cherry-pick": "Apply the change of one snapshot to a branch.",
    "publish": "Apply a snapshot that was staged under a WAP id.",
    "rename": "Rename a table; its files stay where they are.",
    "register": "Add a table to the catalog by its metadata file.",
    "drop": "Drop a table; its files stay unless they are purged.",
    "maintain": "Give each table the maintenance it needs.",
    "apply": "Do what a plan of lake maintain contains.",
    "compact": "Rewrite small files into large ones; no row changes.",
    "expire": "Remove old snapshots and the files only they use.",
    "clean": "Find, move or delete files that no snapshot references.",
    "manifests": "Rewrite the manifests, fewer and clustered by partition.",
    "stats": "Count distinct values of columns for query planners.",
    "expire-partitions": "Remove partitions whose rows are all older than a limit.",
}
# Verbs that open no catalog: they import no library for one, and need no configuration of one.
_WITHOUT_CATALOG = frozenset({"runs"})
DISTRIBUTION = "lake-iceberg"
_CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass(slots=True)
class State:
    """The state of one invocation.

    Args:
        open_session: creates the session from the global options.
        clock: the time, for what needs no session.
        command: the verb; None until it is known.
        table: the table's name as given; None until it is known.
        branch: the branch's name as given; None until it is known.
        as_json: whether to print one JSON document on standard output.
        quiet: whether to leave out progress and the sentences about what was done.
        rows_on_stdout: whether the command writes rows to standard output, which then contains nothing else.
        given: the values of global options on the command line that have defaults elsewhere.
        effective: these settings with the defaults of the environment and the project file.
        progress: the kind of progress display.
        before_verb: called before a verb imports the core.
        on_commit: the user's program to run after a commit, with its arguments; empty for none.
        on_done: the user's program to run after a run without failures; empty for none.
        on_failure: the user's program to run after any other run.
        run_ended: prints how one of several runs of a command ended, and runs these programs.
        landed: called with the outcome of each commit of a command that commits several times.
        has_reported: whether ``landed`` was called.
        announce: prints a warning when it occurs.
        announced: the warnings that were printed.
        trace: records the parts of the command.
        early_warnings: warnings that do not belong to a session.
        table_ended: prints how a command that works on several tables ended for one of them.
        clean: returns a text of the core as one line, without secrets.
        note: prints at once what must be known if the process is killed, and its facts.
        ignore_stops: called when stop signals must no longer interrupt the command.
        accept_stops: called when they may interrupt it again, because it goes on with another table.
        bind: lets the functions that print use a state.
        begun: the monotonic time at which the process began; None if it was not started for the command.
        printing: held while something is printed, or a program of the user runs: several tables may end at a time.
    """

    open_session: OpenSession
    clock: Clock = field(default_factory=SystemClock)
    command: str | None = None
    table: str | None = None
    branch: str | None = None
    as_json: bool = False
    quiet: bool = False
    rows_on_stdout: bool = False
    progress: str = displays.AUTO
    display: Display = field(default_factory=Display)
    verbose: bool = False
    vertical: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    effective: Mapping[str, Setting] = field(default_factory=dict)
    settings: Settings | None = None
    before_verb: Callable[[], None] = lambda: None
    ignore_stops: Callable[[], None] = lambda: None
    accept_stops: Callable[[], None] = lambda: None
    on_commit: Sequence[str] = ()
    on_done: Sequence[str] = ()
    on_failure: Sequence[str] = ()
    run_ended: Callable[[Outcome | LakeError], None] = lambda _: None
    landed: Callable[[Outcome], None] = lambda _: None
    has_reported: bool = False
    announce: Callable[[str], None] = lambda _: None
    announced: set[str] = field(default_factory=set)
    trace: Trace = field(default_factory=Trace)
    early_warnings: list[str] = field(default_factory=list)
    table_ended: Callable[[str, Outcome | LakeError], None] = lambda _table, _ending: None
    clean: Callable[[str], str] = str
    note: Callable[[str, Mapping[str, str]], None] = lambda _text, _facts: None
    opened: Session | None = None
    bind: Callable[[State], None] = lambda _: None
    begun: float | None = None
    printing: threading.RLock = field(default_factory=threading.RLock)

    @property
    def session(self) -> Session:
        """The session, opened on first use, because a command without a table needs no catalog."""
        if self.opened is None:
            settings = self.settings or Settings()
            self.opened = self.open_session(settings)
            self.opened.note = self.note
            self.opened.retried = self.trace.retried
            self.opened.begun = self.begun
            display = displays.make_progress(
                self.progress,
                sys.stderr,
                self.clock,
                lambda: subject(self.command, self.table),
                quiet=self.quiet or self.as_json or (self.rows_on_stdout and sys.stdout.isatty()),
            )
            self.opened.progress = self.trace.progress(display)
            # The first phase of each command; others replace it while they last.
            self.opened.progress.show(Meter("reading metadata"))
            self.opened.interrupts = Interrupts(self.ignore_stops, self.accept_stops)
            for key in filter(is_secret, settings.spark_conf):
                self.opened.warn(
                    f"{key} is visible in this machine's list of processes: "
                    "set it in Spark's configuration files instead"
                )
        return self.opened

    def of_session(self, session: Session) -> State:
        """Return the state of a thread that works on another table with a session of its own."""
        found = copy(self)
        found.opened = session
        self.bind(found)
        session.note = found.note
        if session.announce is not None:
            session.announce = found.announce
        return found

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings so far."""
        return [*self.early_warnings, *(self.opened.warnings if self.opened else ())]

    @property
    def unprinted(self) -> Sequence[str]:
        """Those of the warnings that were not printed when they occurred."""
        return [warning for warning in self.warnings if warning not in self.announced]

    @property
    def catalog_name(self) -> str | None:
        """The name of the catalog that was opened, else the one that was asked for, if any."""
        if self.opened is not None:
            return self.opened.catalog.name
        return self.settings.catalog if self.settings else None

    def take_defaults(self) -> None:
        """Complete the global options by the environment and the project file.

        Raises:
            LakeError: the project file is not valid, or options contradict each other.
        """
        found = self.effective = effective(self.given)
        if "catalog-type" in self.given and found["warehouse"].value is None:
            raise InvalidRequestError("--catalog-type needs --warehouse")
        self.settings = settings_of(found, verbose=self.verbose)
        self.display = Display(
            vertical=self.vertical,
            all_columns=found["columns"].value == "all",
            color=found["color"].value,
        )

    def begin_table(self, table: str | None, branch: str | None) -> None:
        """Begin with the next table of a command that works on several."""
        self.table, self.branch, self.has_reported = table, branch, False

    def begin_action(self, command: str, table: str | None) -> None:
        """Begin with the next verb of a command that runs several, or with the command itself again."""
        self.command = command
        self.begin_table(table, None)
        if table is not None:
            self.trace.begin_table(command, table)

    def hide_progress(self) -> None:
        """Remove the progress display, which would be in the way of a message; the next phase shows it again."""
        if self.opened is not None and sys.stderr.isatty():
            self.opened.progress.show(None)

    def close(self) -> None:
        """Stop everything that the session started. May be called twice."""
        if self.opened is not None:
            self.opened.progress.show(None)
            self.opened.close()


def build_app() -> typer.Typer:
    """Return the application. Its verbs are loaded when they are used."""
    app = typer.Typer(
        name="lake",
        cls=_Verbs,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_CONTEXT_SETTINGS,
    )
    app.callback()(of_typer(_root))
    return app


@cache
def root_command() -> TyperGroup:
    """Return the command with the global options and the verbs, built once."""
    command = typer.main.get_command(build_app())
    assert isinstance(command, TyperGroup)  # noqa: S101 - an application with a callback is a group
    return command


@cache
def load_verb(name: str) -> TyperCommand:
    """Return the command of a verb, built once."""
    function = name.replace("-", "_")
    module = importlib.import_module(f"lake.commands.{function}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=_Verb)(of_typer(getattr(module, function)))
    command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand)  # noqa: S101 - a single command is not a group
    return command


def arrange_arguments(arguments: Sequence[str]) -> CommandLine:
    """Return a command line with the global options in front of the verb.

    Raises:
        InvalidRequestError: the last option lacks its value.
    """
    return arrange(arguments, option_table(root_command()), _options_of)


def _options_of(verb: str) -> dict[str, bool]:
    return option_table(load_verb(verb)) if verb in VERBS else {}


class _Verbs(TyperGroup):
    """The verbs by name; each is loaded when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return load_verb(cmd_name) if cmd_name in VERBS else None

    def format_usage(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        formatter.write_usage("lake", "COMMAND [options]")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        named = {verb for _, verbs in help_text.VERB_GROUPS for verb in verbs}
        more = ("More", tuple(verb for verb in VERBS if verb not in named))
        for title, verbs in (*help_text.VERB_GROUPS, more):
            if verbs:
                with formatter.section(title):
                    formatter.write_dl([(verb, VERBS[verb]) for verb in verbs if verb in VERBS])
        help_text.write_options(ctx, self.get_params(ctx), formatter)
        help_text.write_examples("", formatter)


class _Verb(TyperCommand):
    """A verb that stores the table's and branch's names in the state for error messages."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        help_text.write_usage(self.name or "", self.get_params(ctx), formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        name, params = self.name or "", self.get_params(ctx)
        help_text.write_arguments(params, formatter)
        help_text.write_options(ctx, params, formatter)
        help_text.write_examples(name, formatter)
        formatter.write("\nGlobal options: lake --help\n")

    def invoke(self, ctx: Any) -> Any:
        # Trust is decided before the settings are read that it is about.
        if not (ctx.params.get("trust") or ctx.params.get("untrust")):
            ctx.obj.take_defaults()
            if self.name not in _WITHOUT_CATALOG:
                ctx.obj.before_verb()
        ctx.obj.table = ctx.params.get("table")
        ctx.obj.branch = ctx.params.get("branch")
        return super().invoke(ctx)


@cache
def installed_version() -> str:
    """Return the version of lake."""
    return importlib.metadata.version(DISTRIBUTION)


def _show_version(_: typer.Context, wanted: Any) -> None:
    if wanted:
        typer.echo(f"lake {installed_version()}")
        raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class CatalogOptions:
    """Catalog."""

    catalog: Annotated[str | None, Flag("Catalog of PyIceberg's configuration.", "NAME")] = None
    warehouse: Annotated[str | None, Flag("Folder with tables and their own catalog.", "DIR")] = (
        None
    )
    catalog_type: Annotated[
        str | None,
        Flag("Type of the catalog of --warehouse [default: sql].", "|".join(CATALOG_TYPES)),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Engine."""

    engine: Annotated[
        str, Flag("Engine that moves rows, and reads many manifests.", "|".join(ENGINES))
    ] = "auto"
    master: Annotated[str | None, Flag("Spark master [default: all local cores].", "URL")] = None
    remote: Annotated[str | None, Flag("Spark Connect server.", "URL")] = None
    spark_conf: Annotated[tuple[str, ...], Flag("Spark setting; repeatable.", "K=V")] = ()


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output."""

    # Handled before the verb, so that usage errors are JSON documents too.
    as_json: Annotated[bool, Flag("Print exactly one JSON document on stdout.", name="--json")] = (
        False
    )
    quiet: Annotated[bool, Flag("Print results and what is wrong only.", short="-q")] = False
    verbose: Annotated[bool, Flag("Print more, e.g. each file with the reason.", short="-v")] = (
        False
    )
    vertical: Annotated[bool, Flag("On a terminal, print a row as a block of lines.")] = False
    columns: Annotated[
        str, Flag("On a terminal, columns that fit it, or all of them.", "|".join(COLUMNS))
    ] = "fit"
    color: Annotated[str, Flag("Use colors; NO_COLOR is honoured.", "|".join(COLORS))] = "auto"
    progress: Annotated[
        str, Flag("What standard error shows while the command works.", "|".join(displays.KINDS))
    ] = displays.AUTO


def _root(
    context: typer.Context,
    catalog: CatalogOptions,
    engine: EngineOptions,
    output: OutputOptions,
    *,
    version: Annotated[
        bool, Flag("Show the version.", short="-V", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Maintain Apache Iceberg tables."""
    del version  # its callback handles it
    state: State = context.obj
    state.command = context.invoked_subcommand
    state.quiet = output.quiet
    state.verbose = output.verbose
    state.progress = parse_choice(output.progress, "--progress", displays.KINDS)
    state.vertical = output.vertical
    pairs = parse_pairs(engine.spark_conf, "--spark-conf")
    # Secrets in these are masked from now on, also in errors about the rest of the line.
    state.settings = Settings(remote=engine.remote, spark_conf=pairs)
    values = {**vars(catalog), **vars(engine), **vars(output), "spark_conf": pairs}
    named = {name: values[name.replace("-", "_")] for name in BUILT_IN}
    for name, allowed in CHOICES.items():
        if named[name] is not None:
            parse_choice(named[name], f"--{name}", allowed)
    state.given = {name: value for name, value in named.items() if _is_given(context, name)}


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name.replace("-", "_"))
    return source is not None and source.name == "COMMANDLINE"
