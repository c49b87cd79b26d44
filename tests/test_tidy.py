"""House rules that a machine can judge: the package list, the layers, the documents, the completions."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.cli.help_text import help_of
from support.tables.iceberg_tables import make_table

from lake.cli import completion
from lake.cli.app import VERBS, arrange_arguments, load_verb, root_command
from lake.cli.help import EXAMPLES, VERB_GROUPS
from lake.core.base import errors
from lake.core.base.options import Option

ROOT = Path(__file__).parent.parent
SOURCES = ("cli", "commands", "core")
README = (ROOT / "README.md").read_text()
MANUAL = (ROOT / "commands/README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> list[Path]:
    inner = [path for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    return [ROOT / "__init__.py", ROOT / "spark.py", *inner]


def module_name(path: Path) -> str:
    parts = ("lake", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_by_module() -> dict[str, set[str]]:
    """Return which modules of lake each module of lake imports, at its top or anywhere else."""
    names = {module_name(path): path for path in modules()}
    imported: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{item.name}" for item in node.names}
                found = inner & names.keys() or {node.module} & names.keys()
                imported[name] |= found - {name}
    return imported


def subclasses(kind: type) -> list[type]:
    return [kind, *(found for child in kind.__subclasses__() for found in subclasses(child))]


def test_every_package_is_in_the_wheel() -> None:
    setuptools = PROJECT["tool"]["setuptools"]
    folders = {path.parent.relative_to(ROOT) for path in modules()}

    # The first ones by name, and what is below them by pattern.
    listed = {name for name in setuptools["packages"] if name.partition(".")[0] == "lake"}
    assert {".".join(("lake", *folder.parts[:1])) for folder in folders} == listed
    for name in {folder.parts[0] for folder in folders if len(folder.parts) > 1}:
        assert "**/*.py" in setuptools["package-data"][f"lake.{name}"]
    assert all((ROOT / folder / "__init__.py").exists() for folder in folders)


def test_a_package_has_at_most_sixteen_files_and_says_what_belongs_in_it() -> None:
    folders = {path.parent for path in modules()}
    # One file for each command, found by the command's name.
    folders_of_verbs = {ROOT / "commands", ROOT / "cli" / "sentences"}
    crowded = {str(folder): len(list(folder.glob("*.py"))) for folder in folders - folders_of_verbs}

    assert {name: count for name, count in crowded.items() if count > 16} == {}
    for folder in folders:
        assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text())), folder


@pytest.mark.parametrize(
    "wing", sorted(path.parent.name for path in ROOT.glob("core/*/__init__.py"))
)
def test_a_wing_shows_an_example_that_calls_what_it_contains(wing: str) -> None:
    folder = ROOT / "core" / wing
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    example = ast.parse(textwrap.dedent(text[text.index("\n    ") :]))
    called = {
        node.func.id
        for node in ast.walk(example)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    defined = {
        node.name
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }

    assert called
    assert called <= defined


def test_each_command_is_a_module_with_its_name() -> None:
    names = {path.stem for path in (ROOT / "commands").glob("*.py")}
    verbs = {verb.replace("-", "_") for verb in VERBS}

    assert verbs <= names
    assert names - verbs == {
        *(
            "__init__",
            "actions",
            "commit_hook",
            "context",
            "defaults",
            "each_table",
            "groups",
            "options",
            "outputs",
            "parsing",
            "runs_tables",
        ),
    }


def layers() -> dict[str, list[str]]:
    """Return the names in each contract of layers, by the package that the contract divides."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    listed = [
        [name for layer in contract["layers"] for name in layer.split(" | ")]
        for contract in contracts
        if contract["type"] == "layers"
    ]
    return {
        os.path.commonpath([name.replace(".", "/") for name in names]).replace("/", "."): names
        for names in listed
    }


def test_every_module_of_the_core_is_in_one_layer() -> None:
    by_package = layers()
    wings = [name for name in by_package["lake"] if name.startswith("lake.core.")]
    listed = [name for wing in wings for name in by_package[wing]]
    names = [module_name(path) for path in modules() if path.name != "__init__.py"]

    assert sorted(wings) == sorted(
        f"lake.core.{path.parent.name}" for path in (ROOT / "core").glob("*/__init__.py")
    )
    for name in names:
        if name.startswith("lake.core."):
            assert sum(name == one or name.startswith(f"{one}.") for one in listed) == 1, name


def contract(name: str) -> dict[str, list[str]]:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    return next(found for found in contracts if found["name"] == name)


def covers(listed: list[str], name: str) -> bool:
    """Whether a module is in a list of names, in which * stands for one part of a name."""
    patterns = (entry.replace(".", r"\.").replace("*", "[^.]+") for entry in listed)
    return any(re.fullmatch(rf"{pattern}(\..+)?", name) for pattern in patterns)


def test_the_contract_of_plans_contains_every_plan_and_all_that_executes_one() -> None:
    plans = contract("plans import nothing that writes, commits or runs tasks")
    core = [module_name(path) for path in modules() if path.relative_to(ROOT).parts[0] == "core"]
    planning = [name for name in core if re.fullmatch(r".*[._]plan", name)]
    writing = [name for name in core if re.fullmatch(r".*[._](execute|tasks)", name)]

    assert planning
    assert writing
    assert [name for name in planning if not covers(plans["source_modules"], name)] == []
    assert [name for name in writing if not covers(plans["forbidden_modules"], name)] == []


def test_the_contract_of_pyspark_contains_every_module_and_excepts_two_packages() -> None:
    pyspark = contract("only the engine and the data source import PySpark")

    assert pyspark["source_modules"] == PROJECT["tool"]["importlinter"]["root_packages"]
    assert all(
        rule.startswith(("lake.core.engine.**", "lake.commands.spark"))
        for rule in pyspark["ignore_imports"]
    )


def test_files_do_not_import_one_another_in_a_circle() -> None:
    sorter = TopologicalSorter(imports_by_module())

    sorter.prepare()  # CycleError names the modules


# They have no caller that could pass a clock: constants of the process, and the main function of another one.
OWN_CLOCKS = {
    "core/table/metadata/text.py",
    "core/table/metadata/stored_snapshots.py",
    "core/engine/spark/build_class_archive.py",
}


def test_the_systems_clock_and_ids_are_only_the_defaults_of_the_core() -> None:
    """Whatever takes the time or an identifier takes a clock or a source of identifiers as an argument."""
    built = re.compile(r"(?<! or )\b(?:SystemClock|SystemIds)\(")
    found = {
        str(path.relative_to(ROOT))
        for path in modules()
        if built.search(path.read_text()) and path.relative_to(ROOT).parts[0] != "cli"
    }

    # The module of the clocks defines them.
    assert found - {"core/base/clock.py"} == OWN_CLOCKS


# Imports inside functions, by file: libraries that a run may not need and that are slow to import. Verbs import
# the core when they run; `test_startup` checks the result. A new one needs a reason; prefer the top of a module.
DOORS = {
    "__init__.py": 1,
    "cli/__main__.py": 6,
    "cli/display.py": 1,
    "cli/main.py": 6,
    "cli/manual.py": 1,
    "cli/progress/displays.py": 1,
    "cli/render.py": 1,
    "cli/suggestions.py": 4,
    "cli/telemetry/begin.py": 1,
    "core/io/avro/decode.py": 1,
    "core/maintain/compaction/run.py": 2,
    "core/maintain/health/page/page.py": 1,
    "core/maintain/rounds/records.py": 1,
    "core/table/catalogs/file_io.py": 1,
    "core/table/catalogs/pyiceberg_patches.py": 2,
    "core/table/catalogs/rest.py": 1,
    "core/table/catalogs/selection.py": 5,
    "core/engine/selection.py": 1,
    "core/engine/spark/preflight.py": 2,
    "core/engine/spark/pyspark_internals.py": 4,
    "core/engine/spark/worker.py": 1,
    "core/engine/spark/worker_daemon.py": 1,
    "core/data/columns/column_mapping.py": 2,
    "core/data/schemas/new_tables.py": 1,
    "core/data/sorting/sort_keys.py": 1,
    "core/transaction/session.py": 2,
    "core/io/objects/azure.py": 1,
    "core/io/objects/cloud_objects.py": 3,
    "core/io/objects/gcs.py": 3,
    "core/io/objects/s3_connection.py": 8,
    "core/io/objects/whole_objects.py": 5,
    "core/io/objects/s3.py": 1,
    "core/io/storage/opening.py": 1,
    "core/load/continuous/kafka/client.py": 2,
    "core/load/continuous/kafka/spool.py": 2,
}


def test_imports_inside_functions_are_few_and_listed() -> None:
    found = {str(path.relative_to(ROOT)): path.read_text().count("PLC0415") for path in modules()}

    assert {path: count for path, count in found.items() if count} == DOORS


# Options that select what the core does: a function of its own, or a value of `IngestOptions.mode`.
OPERATIONS = {
    "auto",
    "changes",
    "discard",
    "dropped_consumer",
    "dropped_ref",
    "follow",
    "overwrite",
    "overwrite_where",
    "rewrite",
    "then_compact",
    "trust",
    "upsert",
}
# The options of other programs.
FOREIGN_FLAGS = {
    "core/engine/jvm/process.py": {"--add-opens", "--enable-native-access"},
    "core/engine/spark/conf.py": {"--conf"},
    "core/data/sources/discovery.py": {"--headless", "--convert-to"},
}


def test_the_core_knows_no_flag() -> None:
    """The core names options by `Option`; the command line shows the flags."""
    flag = re.compile(r"(?<![\w-])--[a-z{][a-z-]*")
    found = {
        str(path.relative_to(ROOT)): set(flag.findall(path.read_text()))
        for path in (ROOT / "core").rglob("*.py")
    }

    assert {path: flags for path, flags in found.items() if flags} == FOREIGN_FLAGS


def test_options_of_the_core_are_in_use_and_have_names_of_the_core() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "core").rglob("*.py"))
    used = set(re.findall(r"\bOption\.([A-Z_]+)\b", text))
    # A parameter or a field of a dataclass with its type.
    names = set(re.findall(r"(?:^ {4}|[(,] ?)([a-z_]+): ", text, re.M))

    assert [option.name for option in Option if option.name not in used] == []
    assert {option.value for option in Option} - names - OPERATIONS == set()


def test_every_layer_has_a_marker_for_type_checkers() -> None:
    assert all((ROOT / folder / "py.typed").exists() for folder in SOURCES)
    assert all(
        (ROOT / "tests/typing/lake" / folder).resolve() == ROOT / folder for folder in SOURCES
    )


def test_imports_point_one_way() -> None:
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stdout


def test_modules_name_one_another_as_lake() -> None:
    # From the root `import core` works too, and gives every class a second time.
    wrong = {
        str(path): found
        for path in modules()
        if (
            found := re.findall(
                r"^\s*(?:from|import) (?:cli|commands|core)\b.*", path.read_text(), re.M
            )
        )
    }

    assert wrong == {}


def test_every_exit_code_is_in_the_manual_and_means_one_thing() -> None:
    codes = {vars(kind).get("exit_code") for kind in subclasses(errors.ReportedError)} - {None}
    documented = [int(code) for code in re.findall(r"^\| (\d+) \|", MANUAL, re.M)]

    assert codes | {0, 6, 130, 143} == set(documented)
    assert len(documented) == len(set(documented))


def test_every_kind_of_error_is_in_the_manual() -> None:
    kinds = {kind.kind for kind in subclasses(errors.ReportedError)}  # type: ignore[attr-defined]

    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in MANUAL] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_has_three_examples_that_it_understands(verb: str) -> None:
    assert len(EXAMPLES[verb]) == 3
    for example in EXAMPLES[verb]:
        assert f"  {example}\n" in help_of(verb)
        line = arrange_arguments(shlex.split(example)[1:])
        assert load_verb(line.command or "").make_context(verb, list(line.rest))
        assert verb in {line.command, "demo"}


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_shows_every_option_once_in_groups_and_no_types_of_python(verb: str) -> None:
    text = help_of(*[verb] if verb else [])
    command = load_verb(verb) if verb else root_command()

    for option in (item.opts[0] for item in command.params if item.param_type_name == "option"):
        assert len(re.findall(rf"^  (?:-\w, )?{option}\b(?!-)", text, re.M)) == 1, option
    assert not re.search(r"<\w+>|list\[|\{TABLE|\.\.\.\||\|\.\.\.", text)


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_of_a_command_what_the_command_says_of_itself(verb: str) -> None:
    assert (load_verb(verb).help or "").split("\n\n")[0] == VERBS[verb]
    assert " ".join(VERBS[verb].split()) in " ".join(help_of().split())


def test_help_groups_the_commands_by_what_people_do() -> None:
    text = help_of()
    titles = re.findall(r"^(\w+):$", text, re.M)
    grouped = [verb for _, verbs in VERB_GROUPS for verb in verbs if verb in VERBS]

    assert titles[:5] == ["Load", "Read", "Look", "Change", "Maintain"]
    assert "More" not in titles
    assert sorted(grouped) == sorted(VERBS)
    assert [verb for verb, summary in VERBS.items() if len(summary.split()) > 10] == []


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_completions_are_current(shell: str) -> None:
    name = completion.SCRIPTS[shell][0]

    assert (ROOT / "completions" / name).read_text() == completion.script(shell), (
        "run: python -m lake.cli.completion completions"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["lake", "sna"], ["snapshots"]),
        (["lake", "--eng"], ["--engine"]),
        (["lake", "--engine", "s"], ["spark"]),
        (["lake", "--engine", "spark", "exp"], ["expire", "expire-partitions"]),
        (["lake", "snapshots", "--br"], ["--branch"]),
        (["lake", "snapshots", "db.t", "--a"], ["--all"]),
    ],
)
def test_bash_completes_commands_options_and_choices(words: list[str], expected: list[str]) -> None:
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); _lake;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "-c", code, "bash", str(ROOT / "completions/lake.bash"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.split() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["snapshots", "db.t"],
        ["scan", "db.t", "--plan"],
        ["expire", "db.t", "--dry-run"],
        ["replay", "db.t"],
        ["compact", "db.t", "--dry-run"],
    ],
)
def test_metadata_commands_load_no_engine_and_start_no_java(
    lake: CommandLine, arguments: list[str], tmp_path: Path
) -> None:
    make_table(lake.warehouse)
    code = (
        "import sys; from lake.cli.main import main; code = main();"
        "heavy = {'pyspark', 'py4j', 'rich', 'pandas', 'pyiceberg.io.pyarrow'} & set(sys.modules);"
        "print(code, sorted(heavy))"
    )
    command = [sys.executable, "-c", code, *lake.arguments("-q", *arguments)]
    # A machine on which Java cannot be found: a command that wanted one would fail.
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert done.stdout.splitlines()[-1:] == ["0 []"], done.stderr


def test_the_distribution_has_the_command() -> None:
    scripts = importlib.metadata.entry_points(group="console_scripts", name="lake")

    assert [script.value for script in scripts] == ["lake.cli.__main__:run"]


def test_ci_runs_the_readmes_test_command_to_the_letter() -> None:
    command = re.search(r"<!-- tests -->\s*```sh\n(.*?)\n```", README, re.S)

    assert command is not None
    assert command[1] in (ROOT / ".ci/run").read_text()
