"""A dataclass is a panel of the help, a set of options that belong together, and what a verb takes."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from lake.commands import compact, ingest, manifests, partitions, replay, scan
from lake.commands.groups import Flag, flags_given, given, of_typer, require
from lake.commands.loads import options as loads
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.data.sources.text_format import TextFormat
from lake.core.data.sources.text_forms import TextForms
from lake.core.load.continuous.kafka.options import KafkaOptions
from lake.core.load.continuous.options import WatchOptions
from lake.core.load.continuous.table.execute import CopyOptions
from lake.core.load.ingest.options import IngestOptions, LoadRequest
from lake.core.load.replay.options import ReplayOptions
from lake.core.load.routing.options import RouteOptions
from lake.core.load.upsert.options import UpsertOptions
from lake.core.maintain.compaction.options import CompactionOptions
from lake.core.maintain.manifest_rewrite.plan import ManifestOptions
from lake.core.maintain.partitions.report import PartitionOptions
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.scan.plan import ScanOptions


class Order(StrEnum):
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Which sizes.

    Nothing of this paragraph is in the title.
    """

    least: Annotated[int | None, Flag("Least.", "SIZE", parse=len)] = None
    order: Annotated[Order, Flag("Order.", name="--sorted")] = Order.UP
    name: Annotated[tuple[str, ...], Flag("Names.", "NAME")] = ()
    is_all: Annotated[bool, Flag("All.")] = False


@dataclass(frozen=True, kw_only=True)
class Outer:
    """What contains a group."""

    sizes: Sizes
    more: Annotated[bool, Flag("More.")] = False


_taken: list[Any] = []


def verb(
    table: Annotated[str, typer.Argument()],
    *,
    needed: Annotated[int, Flag("Needed.", "TEXT", parse=len)],
    sizes: Sizes,
) -> Outcome | None:
    """Do nothing."""
    _taken.append((table, needed, sizes))
    return None


def run(*arguments: str) -> Any:
    app = typer.Typer(rich_markup_mode=None)
    app.command()(of_typer(verb))
    _taken.clear()
    return CliRunner().invoke(app, arguments)


def test_a_verb_takes_the_values_of_its_options_in_groups() -> None:
    line = (
        "t",
        "--needed",
        "x",
        "--least",
        "abc",
        "--sorted",
        "down",
        "--name",
        "a",
        "--name",
        "b",
    )

    assert run(*line, "--is-all").exit_code == 0
    sizes = Sizes(least=3, order=Order.DOWN, name=("a", "b"), is_all=True)
    assert _taken == [("t", 1, sizes)]
    assert given(sizes) == {"least": 3, "order": "down", "name": ("a", "b"), "is_all": True}
    assert flags_given(sizes) == ["--least", "--sorted", "--name", "--is-all"]


def test_options_that_are_not_given_have_the_defaults_of_their_fields() -> None:
    assert run("t", "--needed", "").exit_code == 0
    assert _taken == [("t", 0, Sizes())]
    assert given(Sizes()) == {}
    require("--mode", Sizes())


def test_an_option_without_the_one_that_it_needs_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match=r"^--sorted needs --mode$"):
        require("--mode", Sizes(order=Order.DOWN, is_all=True))


def test_a_word_that_is_not_among_the_choices_is_refused_with_the_choices() -> None:
    result = run("t", "--needed", "", "--sorted", "left")

    assert str(result.exception) == "--sorted is 'left', not one of up, down"
    assert _taken == []


def test_a_required_option_has_no_default() -> None:
    assert run("t").exit_code == 2


def test_the_first_line_of_a_group_is_the_title_of_its_panel() -> None:
    app = typer.Typer()
    app.command()(of_typer(verb))
    params = typer.main.get_command(app).params
    panels = {item.name: getattr(item, "rich_help_panel", None) for item in params}

    assert panels["least"] == panels["is_all"] == "Which sizes"
    assert panels["needed"] is None
    assert next(item for item in params if item.name == "order").metavar == "up|down"


def test_a_group_contains_others_with_panels_of_their_own() -> None:
    def nesting(*, outer: Outer) -> Outcome | None:
        _taken.append(outer)
        return None

    # The annotations of an inner function are texts, which refer to names of this module.
    app = typer.Typer(rich_markup_mode=None)
    app.command()(of_typer(nesting))
    _taken.clear()
    result = CliRunner().invoke(app, ["--least", "ab", "--more"])

    assert result.exit_code == 0
    assert _taken == [Outer(sizes=Sizes(least=2), more=True)]
    assert flags_given(_taken[0]) == ["--least", "--more"]
    params = typer.main.get_command(app).params
    panels = {item.name: getattr(item, "rich_help_panel", None) for item in params}
    assert (panels["least"], panels["more"]) == ("Which sizes", "What contains a group")


# What a verb passes on by the names of its options, and which options of the core have these names.
PASSED_ON: list[tuple[list[Any], Any, set[str]]] = [
    (
        [
            *(ingest.Source, ingest.NewTable, ingest.Columns, ingest.Writing, ingest.BadRows),
            ingest.LoadRun,
        ],
        IngestOptions,
        set(),
    ),
    ([ingest.ByKey], UpsertOptions, set()),
    ([ingest.Text], TextFormat, set()),
    ([ingest.Forms], TextForms, set()),
    ([ingest.ManyTables], RouteOptions, {"route"}),
    ([loads.Stream, loads.Watch, loads.Arrivals], WatchOptions, {"watch"}),
    ([loads.Stream], CopyOptions, set()),
    ([loads.Stream], KafkaOptions, set()),
    ([compact.WhichFiles, compact.NewFiles, compact.Work], CompactionOptions, set()),
    ([manifests.WhichManifests], ManifestOptions, set()),
    ([partitions.WhichPartitions], PartitionOptions, set()),
    ([replay.WhatToCommit], ReplayOptions, set()),
    ([scan.RowsAndColumns, scan.Snapshots, scan.Start, scan.Splits], ScanOptions, set()),
    (
        [scan.Start, scan.Changes, scan.Following, scan.WhatIsRead, scan.Discovery],
        FollowOptions,
        set(),
    ),
]


@pytest.mark.parametrize(
    ("groups", "core", "others"), PASSED_ON, ids=[item[1].__name__ for item in PASSED_ON]
)
def test_options_that_are_passed_on_are_fields_of_the_core_with_the_same_defaults(
    groups: list[Any], core: Any, others: set[str]
) -> None:
    defaults = {item.name: item.default for item in fields(core)}
    flags = [item for group in groups for item in fields(group) if item.name not in others]

    assert {item.name for item in flags} - defaults.keys() == set()
    for item in flags:
        if item.default is not None and item.default != ():
            assert defaults[item.name] in {item.default, MISSING}, item.name


def test_the_options_of_a_load_are_what_a_user_can_say_and_nothing_else() -> None:
    groups = next(groups for groups, core, _ in PASSED_ON if core is IngestOptions)
    flags = {
        item.name for group in [*groups, ingest.Replaced, ingest.Upsert] for item in fields(group)
    }
    by_other_means = {"sources", "mode", "text"}

    assert {item.name for item in fields(IngestOptions)} - flags == by_other_means


def test_a_load_cannot_be_requested_without_saying_of_which_epoch_it_is() -> None:
    needed = {
        item.name
        for item in fields(LoadRequest)
        if item.default is MISSING and item.default_factory is MISSING
    }

    assert needed == {"options", "epoch"}
