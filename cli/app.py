"""The Typer application: global options, and the verbs that a command line names."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.errors import InvalidRequestError
from lake.core.interrupts import Interrupts
from lake.core.redaction import is_secret
from lake.core.settings import Settings

if TYPE_CHECKING:
    from lake.core.session import Session

# In the order in which help shows them, with what help says, so that help need load none of them.
VERBS = {
    "ingest": "Load files into a table, checked before a byte is written, committed once.",
    "scan": "Read a table, or what was appended or changed between two snapshots.",
    "snapshots": "Show a table's snapshots, newest first.",
    "compact": "Rewrite small files into large ones; no row changes.",
    "expire": "Forget old snapshots and delete the files that only they reach.",
    "replay": "List Flink checkpoints that were taken but never committed, or commit them once.",
    "demo": "Load a year of real flights into ./lake-demo; read, correct, compact, expire them.",
}
DISTRIBUTION = "lake-iceberg"
_CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass(slots=True)
class State:
    """What one invocation carries from its options to its end.

    Args:
        open_session: makes the session from the global options.
        command: the verb, as far as it is known.
        table: the table's name as given, as far as it is known.
        branch: the branch's name as given, as far as it is known.
        as_json: whether standard output belongs to one JSON document.
        quiet: whether only warnings and errors are told.
        ignore_stops: is called when no stop signal may interrupt the command any more.
    """

    open_session: Callable[[Settings, bool], Session]
    command: str | None = None
    table: str | None = None
    branch: str | None = None
    as_json: bool = False
    quiet: bool = False
    settings: Settings | None = None
    ignore_stops: Callable[[], None] = lambda: None
    opened: Session | None = None

    @property
    def session(self) -> Session:
        """The session, opened on first use: a command without a table needs no catalog."""
        if self.opened is None:
            settings = self.settings or Settings()
            self.opened = self.open_session(settings, self.quiet)
            self.opened.interrupts = Interrupts(self.ignore_stops)
            for key in filter(is_secret, settings.spark_conf):
                self.opened.warn(
                    f"whoever can list this machine's processes can read {key}: "
                    "keep it in Spark's own configuration files instead"
                )
        return self.opened

    @property
    def warnings(self) -> Sequence[str]:
        """What the session has to tell so far."""
        return self.opened.warnings if self.opened else ()

    def close(self) -> None:
        """Stop what the session started; may be called twice."""
        if self.opened is not None:
            self.opened.progress.finish()
            self.opened.close()


def build_app() -> typer.Typer:
    """Return the application; its verbs load when they are asked for."""
    app = typer.Typer(
        name="lake",
        cls=_Verbs,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=_CONTEXT_SETTINGS,
    )
    app.callback()(_root)
    return app


def load_verb(name: str) -> TyperCommand:
    """Return a verb's command."""
    module = importlib.import_module(f"lake.commands.{name}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, cls=_Verb)(getattr(module, name))
    command = typer.main.get_command(alone)
    assert isinstance(command, TyperCommand)  # noqa: S101 - one command makes no group
    # Help wraps its paragraphs, but an example is there to be copied.
    command.help = (command.help or "").replace("\nExample:", "\n\b\nExample:")
    return command


class _Verbs(TyperGroup):
    """The verbs by name, loaded one by one."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return load_verb(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


class _Verb(TyperCommand):
    """A verb that leaves the table's name for whoever has to tell of a failure."""

    def invoke(self, ctx: Any) -> Any:
        ctx.obj.table = ctx.params.get("table")
        ctx.obj.branch = ctx.params.get("branch")
        return super().invoke(ctx)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - Typer calls it so
    if wanted:
        typer.echo(f"lake {importlib.metadata.version(DISTRIBUTION)}")
        raise typer.Exit


def _root(
    context: typer.Context,
    catalog: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Catalog in PyIceberg's configuration."),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder with tables and a catalog of its own."),
    ] = None,
    catalog_type: Annotated[
        str | None, typer.Option(metavar="sql|hadoop", help="What --warehouse is [default: sql].")
    ] = None,
    engine: Annotated[
        str, typer.Option(metavar="auto|spark|inline", help="What moves rows.")
    ] = "auto",
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master; all local cores without it.")
    ] = None,
    remote: Annotated[str | None, typer.Option(metavar="URL", help="Spark Connect server.")] = None,
    spark_conf: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Spark setting; repeatable.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell more, e.g. each file with the reason.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The maintenance crew for Apache Iceberg tables.

    Example: lake --warehouse ./warehouse snapshots db.events
    """
    # Both are acted on before this runs, the first so that a usage error is a JSON document too.
    del as_json, version
    if master and remote:
        raise InvalidRequestError("--master and --remote contradict each other")
    if catalog_type and warehouse is None:
        raise InvalidRequestError("--catalog-type needs --warehouse")
    state: State = context.obj
    state.command = context.invoked_subcommand
    state.quiet = quiet
    state.settings = Settings(
        catalog=catalog,
        warehouse=warehouse,
        catalog_type=parse_choice(catalog_type or "sql", "--catalog-type", ("sql", "hadoop")),
        engine=parse_choice(engine, "--engine", ("auto", "spark", "inline")),
        master=master,
        remote=remote,
        spark_conf=parse_pairs(spark_conf or [], "--spark-conf"),
        verbose=verbose,
    )
