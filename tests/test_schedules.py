"""The examples of the manual's section about schedules work as they stand."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
import types
import zipfile
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.examples import complaint
from support.cli.service_line import ConfiguredLine

from lake.core.base.clock import SystemClock, SystemIds
from lake.core.maintain.rounds.status import StatusFile

ROOT = Path(__file__).parent.parent
MANUAL = (ROOT / "commands/README.md").read_text()
PROGRAMS = Path(sys.executable).parent


def blocks(title: str, language: str) -> list[str]:
    """Return the blocks of a language below a heading of the section about schedules."""
    section = re.search(r"^## Schedules$(.*?)(?=^## )", MANUAL, re.M | re.S)
    assert section is not None
    part = re.search(rf"^### {title}$(.*?)(?=^### |\Z)", section[1], re.M | re.S)
    assert part is not None, title
    return re.findall(rf"^```{language}\n(.*?)^```$", part[1], re.M | re.S)


CRONTAB = blocks("cron", "cron")[0]
UNITS = dict(zip(("service", "timer"), blocks("systemd", "ini"), strict=True))
CONTAINERFILE = blocks("A container image", "dockerfile")[0]
MANIFESTS = {
    manifest["kind"]: manifest for manifest in map(yaml.safe_load, blocks("Kubernetes", "yaml"))
}
LAKE_RUNS, DAG, JOB = blocks("Airflow and Dagster", "python")


def crontab_commands() -> list[str]:
    return [line.split(maxsplit=5)[5] for line in CRONTAB.splitlines() if line[0] in "*0123456789"]


def unit(kind: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNITS[kind])
    return {name: dict(parser[name]) for name in parser.sections()}


def pods() -> dict[str, dict[str, Any]]:
    """Return the specification of the pods, by the kind of what makes them."""
    job = MANIFESTS["CronJob"]["spec"]["jobTemplate"]["spec"]
    templates = {
        "CronJob": job["template"],
        "Deployment": MANIFESTS["Deployment"]["spec"]["template"],
    }
    return {kind: template["spec"] for kind, template in templates.items()}


def container(kind: str) -> dict[str, Any]:
    [found] = pods()[kind]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfiguredLine:
    """A catalog `prod` with two tables, and `lake` in PATH as these examples need both."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/prod.db",
        "warehouse": f"file://{tmp_path}/tables",
    }
    text = yaml.safe_dump({"catalog": {"prod": properties}})
    Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml").write_text(text)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{PROGRAMS}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    line = ConfiguredLine(tmp_path)
    for table in ("db.a", "db.b"):
        line.load("id\n1\n", "--catalog", "prod", "--create", table=table)
    return line


def lose_metadata(tmp_path: Path, table: str) -> None:
    for file in tmp_path.glob(f"tables/**/{table}/metadata/*.metadata.json"):
        file.unlink()


def test_the_command_lines_are_those_that_lake_understands() -> None:
    lines = [shlex.split(command)[1:] for command in crontab_commands()]
    lines = [[word for word in line if not word.startswith(">")] for line in lines]
    lines.append(shlex.split(unit("service")["Service"]["ExecStart"])[1:])
    lines += [container(kind)["args"] for kind in pods()]

    assert [complaint(line) for line in lines] == [""] * 5
    assert complaint(["maintain", "--status", "s.json"]) != ""


def test_the_times_of_the_crontab_are_times_and_its_commands_contain_no_line_break() -> None:
    highest = (59, 23, 31, 12, 7)
    for line in CRONTAB.splitlines():
        if re.match(r"[A-Z_]+=", line):
            continue
        *times, command = line.split(maxsplit=5)
        for time_field, limit in zip(times, highest, strict=True):
            assert time_field == "*" or 0 <= int(time_field) <= limit, line
        # cron makes a line break of each.
        assert not re.search(r"(?<!\\)%", command)


@pytest.mark.slow
def test_cron_sends_mail_only_if_something_is_wrong(prod: ConfiguredLine, tmp_path: Path) -> None:
    metrics = tmp_path / "lake.prom"
    maintain, health = (
        command.replace("/var/lib/node_exporter/lake.prom", str(metrics))
        for command in crontab_commands()
    )

    def run(command: str) -> tuple[int, str]:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert run(maintain) == (0, "")
    assert run(health) == (0, "")
    assert "lake_health_grade" in metrics.read_text()
    assert (tmp_path / "state/lake/runs.jsonl").exists()
    lose_metadata(tmp_path, "b")
    code, mail = run(health)
    assert code == 6
    assert "db.b" in mail


_KNOWN_KEYS = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        *("Type", "User", "EnvironmentFile", "Environment", "StateDirectory", "CacheDirectory"),
        *("ExecStart", "KillMode", "TimeoutStopSec", "SuccessExitStatus", "NoNewPrivileges"),
        *("PrivateTmp", "ProtectHome", "ProtectSystem"),
    },
    "Timer": {"OnCalendar", "RandomizedDelaySec", "Persistent"},
    "Install": {"WantedBy"},
}


def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for kind in UNITS:
        for name, keys in unit(kind).items():
            assert set(keys) <= _KNOWN_KEYS[name]
    # A service without [Install] is started by its timer, which has the same name.
    assert "Install" not in unit("service")
    assert "Install" in unit("timer")

    program = shutil.which("systemd-analyze")
    if program is None:
        return
    paths = []
    for kind, text in UNITS.items():
        paths.append(tmp_path / f"lake-maintain.{kind}")
        paths[-1].write_text(text.replace("/opt/lake/bin/lake", str(PROGRAMS / "lake")))
    done = subprocess.run([program, "verify", *paths], capture_output=True, text=True, check=False)
    # It ignores what it does not know, and ends with 0.
    assert [line for line in done.stderr.splitlines() if "lake-maintain" in line] == []
    assert done.returncode == 0


def test_the_service_keeps_its_run_log_in_its_state_folder() -> None:
    service = unit("service")["Service"]

    assert "XDG_STATE_HOME=%S " in service["Environment"]
    assert service["StateDirectory"] == "lake"
    assert f"/var/lib/{service['StateDirectory']}/runs.jsonl" in MANUAL


def test_the_manifests_have_the_fields_that_kubernetes_requires() -> None:
    versions = {kind: manifest["apiVersion"] for kind, manifest in MANIFESTS.items()}
    deployment = MANIFESTS["Deployment"]["spec"]

    assert versions == {
        "PersistentVolumeClaim": "v1",
        "CronJob": "batch/v1",
        "Deployment": "apps/v1",
    }
    for manifest in MANIFESTS.values():
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", manifest["metadata"]["name"])
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    # The volume can be mounted by one node.
    assert deployment["strategy"] == {"type": "Recreate"}
    assert len(MANIFESTS["CronJob"]["spec"]["schedule"].split()) == 5
    assert pods()["CronJob"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("kind", ["CronJob", "Deployment"])
def test_a_pod_writes_to_its_volumes_only_and_is_not_root(kind: str) -> None:
    pod, lake = pods()[kind], container(kind)
    mounts = {mount["name"]: mount["mountPath"] for mount in lake["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}

    assert set(mounts) == set(volumes)
    claim = MANIFESTS["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim
    assert all(volume.get("emptyDir") == {} for name, volume in volumes.items() if name != "state")
    user = re.search(r"useradd --uid (\d+) ", CONTAINERFILE)
    assert user is not None
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert lake["securityContext"]["readOnlyRootFilesystem"] is True
    variables = dict(re.findall(r"^ENV (\w+)=(.*)$", CONTAINERFILE, re.M))
    assert f"{variables['XDG_STATE_HOME']}/lake" == mounts["state"]
    assert variables["LAKE_CACHE_DIR"].startswith(f"{mounts['state']}/")
    assert mounts["tmp"] == "/tmp"


def test_the_probe_fails_for_an_old_heartbeat_and_for_none(tmp_path: Path) -> None:
    words = container("Deployment")["args"]
    path = words[words.index("--status") + 1]
    status = tmp_path / "status.json"
    command = container("Deployment")["livenessProbe"]["exec"]["command"]
    assert path in command[-1]
    assert str(Path(path).parent) in {
        mount["mountPath"] for mount in container("Deployment")["volumeMounts"]
    }

    def probe() -> int:
        own = [word.replace(path, str(status)) for word in command]
        return subprocess.run(own, capture_output=True, check=False).returncode

    assert probe() != 0
    with StatusFile(str(status), SystemClock(), SystemIds()).kept():
        assert probe() == 0
    os.utime(status, (time.time() - 100, time.time() - 100))
    assert probe() == 0
    os.utime(status, (time.time() - 130, time.time() - 130))
    assert probe() != 0


def instructions() -> list[tuple[str, str]]:
    return [tuple(line.split(maxsplit=1)) for line in CONTAINERFILE.splitlines() if line]  # type: ignore[misc]


def test_the_containerfile_names_stages_and_files_that_exist() -> None:
    names = [name for name, _ in instructions()]
    stages = re.findall(
        r"^FROM docker\.io/library/python:[\d.]+-slim(?: AS (\w+))?$", CONTAINERFILE, re.M
    )

    assert set(names) == {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "ENTRYPOINT"}
    assert stages == ["build", ""]
    for name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from=build "):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    assert json.loads(dict(instructions())["ENTRYPOINT"]) == ["lake"]
    assert dict(instructions())["USER"] == re.findall(r"--uid (\d+)", CONTAINERFILE)[0]


@pytest.mark.slow
def test_the_image_contains_a_lake_that_works(tmp_path: Path) -> None:
    """The steps of the first stage are done below a temporary folder, without the dependencies."""
    source, wheels, target = tmp_path / "src", tmp_path / "wheels", tmp_path / "lake"
    source.mkdir()
    stage = CONTAINERFILE.split("\n\n")[0]
    for line in re.findall(r"^COPY (.*)$", stage, re.M):
        *files, place = line.split()
        for file in files:
            if (ROOT / file).is_dir():
                left_out = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / file, source / place, ignore=left_out)
            else:
                shutil.copy(ROOT / file, source / place)
    offline = {
        "python -m venv": f"{sys.executable} -m venv",
        "pip wheel": f"{sys.executable} -m pip wheel --no-deps --no-build-isolation",
        "pip install": "pip install --no-deps",
        "/wheels": str(wheels),
        "/opt/lake": str(target),
    }
    for step in re.findall(r"^RUN (.*)$", stage, re.M):
        command = reduce(lambda text, pair: text.replace(*pair), offline.items(), step)
        subprocess.run(["sh", "-c", command], check=True, capture_output=True, cwd=source)
    # The dependencies are those of this process; a line in such a file does not make `lake` importable from here.
    [packages] = target.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def lake(*words: str) -> str:
        command = [target / "bin/lake", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tmp_path
        ).stdout

    assert lake("--version").startswith("lake ")
    assert lake("help", "schedules", "--manual").startswith("## Schedules\n")
    [wheel] = wheels.glob("lake_iceberg-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("cli", "commands", "core"):
        for file in (source / folder).rglob("*"):
            is_document = file.suffix == ".md" and file != source / "commands/README.md"
            if file.is_file() and not is_document:
                # Spark finds a package by its name, beside lake.
                name = f"lake/{file.relative_to(source)}"
                name = name.replace("lake/commands/spark/pyspark_lake", "pyspark_lake")
                assert name in inside


class FailedForGoodError(Exception):
    """Stand for the exceptions that end a task without another try."""

    def __init__(self, text: str, *, allow_retries: bool = False) -> None:
        super().__init__(text)
        assert not allow_retries


class Scheduler:
    """Stand for what the examples use of Airflow and Dagster: decorators that return the function."""

    def __init__(self) -> None:
        self.tasks: list[Callable[..., Any]] = []

    def task(self, **_: Any) -> Callable[[Any], Any]:
        def decorate(function: Any) -> Any:
            self.tasks.append(function)
            # Only the scheduler runs it.
            return lambda: None

        return decorate

    def modules(self) -> Iterator[types.ModuleType]:
        def plain(function: Any) -> Any:
            return function

        yield module("airflow.sdk.exceptions", AirflowFailException=FailedForGoodError)
        yield module("airflow.sdk", dag=lambda **_: plain, task=self.task)
        yield module(
            "dagster",
            op=self.task,
            job=plain,
            Failure=FailedForGoodError,
            RetryPolicy=dict,
            OpExecutionContext=object,
            ScheduleDefinition=dict,
            Definitions=dict,
        )
        runs = module("lake_runs")
        exec(compile(LAKE_RUNS, "lake_runs.py", "exec"), runs.__dict__)
        yield runs


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(names)
    return made


class Context:
    """Stand for the context of an op."""

    def __init__(self) -> None:
        self.metadata: dict[str, int] = {}

    def add_output_metadata(self, metadata: dict[str, int]) -> None:
        self.metadata |= metadata


def run_task(example: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Run the task of an example and return what it reports."""
    scheduler = Scheduler()
    for found in scheduler.modules():
        monkeypatch.setitem(sys.modules, found.__name__, found)
    exec(compile(example, "example.py", "exec"), {"__name__": "example"})
    [task] = scheduler.tasks
    if example == DAG:
        return dict(task())
    context = Context()
    task(context)
    return context.metadata


@pytest.mark.parametrize(
    "example",
    [pytest.param(DAG, id="airflow"), pytest.param(JOB, id="dagster", marks=pytest.mark.slow)],
)
def test_a_task_succeeds_or_fails_by_the_exit_code(
    example: str, prod: ConfiguredLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_task(example, monkeypatch) == {"actions": 2, "rest": 0}

    lose_metadata(tmp_path, "b")
    with pytest.raises(FailedForGoodError, match=r"^db\.b$"):
        run_task(example, monkeypatch)

    (tmp_path / "prod.db").unlink()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run_task(example, monkeypatch)
    assert failed.value.returncode == 7
