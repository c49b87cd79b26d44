"""Runs inputs one by one in a process with limits; one that ends the process is reported like any other.

That process tries inputs of one kind after the other, and writes a line of JSON before and after each.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

_TESTS = Path(__file__).parent.parent
# For all commands on one input together.
SECONDS = 300
# Of addresses, not of memory: allocators reserve much more than they use.
ADDRESSES = 12 * 2**30
MEMORY = 2**31
_CHILD = "from hostile.guard import serve; serve()"
_START_SECONDS = 600
_SHM = Path("/dev/shm")


class WrongError(AssertionError):
    """What lake did with an input is neither a typed error nor right."""


class Kind(Protocol):
    """A kind of input.

    Args:
        count: how many there are.
    """

    count: int

    def attempt(self, number: int) -> str:
        """Try one input; return how it ended, in a word or two. Raises `WrongError`."""


@dataclass(frozen=True)
class Tried:
    """What became of an input.

    Args:
        kind: its kind.
        number: which of its kind.
        outcome: in a word or two.
        wrong: what is wrong with it; None if nothing is.
        seconds: how long it took.
        bytes: the most memory that the process had meanwhile.
        inputs: how many inputs it was.
    """

    kind: str
    number: int
    outcome: str
    wrong: str | None
    seconds: float
    bytes: int
    inputs: int = 1


# The name of a kind, ``module:class:arguments``, and which of its inputs.
Input = tuple[str, int]


def attempts(inputs: Sequence[Input]) -> Iterator[Tried]:
    """Try inputs in a process of their own; after one that ends it, the next ones get another."""
    left = list(inputs)
    while left:
        ended, at = yield from _some(left)
        if at is None:
            if ended:
                raise RuntimeError(f"a kind could not be set up: {ended}")
            return
        yield Tried(*left[at], "crash", ended, 0.0, 0)
        left = left[at + 1 :]


def _some(inputs: Sequence[Input]) -> Iterator[Tried]:  # type: ignore[misc]
    """Try inputs until the process ends; return why, and at which input."""
    at, made = None, ""
    with (
        tempfile.TemporaryDirectory(
            prefix="lake-hostile-", dir=_SHM if _SHM.is_dir() else None
        ) as folder,
        tempfile.TemporaryFile() as errors,
    ):
        here = os.path.join(folder, "here")
        os.mkdir(here)
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            # What relative names mean must not be what others keep.
            cwd=here,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(inputs).encode())
            process.stdin.close()
            lines = _lines(process.stdout)
            for line in lines:
                if "make" in line:
                    made = line["make"]
                elif "begin" in line:
                    at = line["begin"]
                else:
                    at = None
                    yield Tried(**line)
            if lines is None:
                return "nothing came", at
        except TimeoutError as error:
            return str(error), at
        finally:
            process.kill()
            code = process.wait()
        if code == 0 and at is None:
            return None, None
        errors.seek(0)
        text = errors.read()[-600:].decode(errors="replace")
        return f"exit code {code}{'' if at is not None else f' of {made}'}: {text}", at


def _lines(stream: Any) -> Iterator[dict[str, Any]]:
    """Yield lines; raises TimeoutError where one does not come in time."""
    rest, starts = b"", True
    while True:
        seconds = _START_SECONDS if starts else SECONDS
        if not select.select([stream], [], [], seconds)[0]:
            raise TimeoutError(f"took more than {seconds} s")
        data = os.read(stream.fileno(), 65536)
        if not data:
            return
        *whole, rest = (rest + data).split(b"\n")
        for line in map(json.loads, whole):
            starts = "make" in line
            yield line


def kind_of(name: str, folder: Path) -> Kind:
    """Make a kind in a folder of its own, or of its table, which kinds share."""
    module, made, *arguments = name.split(":")
    make: Callable[..., Kind] = getattr(importlib.import_module(f"hostile.{module}"), made)
    own = folder / "-".join(arguments or (module, made))
    own.mkdir(exist_ok=True)
    return make(own, *arguments)


def serve() -> None:
    """Be that process."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    made, kind = "", None
    for index, (name, number) in enumerate(json.loads(sys.stdin.buffer.read())):
        if kind is None or name != made:
            out.write(json.dumps({"make": name}) + "\n")
            made, kind = name, kind_of(name, Path(sys.argv[1]))
            _give_back()
        out.write(json.dumps({"begin": index}) + "\n")
        out.write(json.dumps({"kind": name, **_tried(kind, number)}) + "\n")
    out.flush()
    os._exit(0)


def _tried(kind: Kind, number: int) -> dict[str, Any]:
    wrong = None
    _forget_peak()
    start = time.monotonic()
    try:
        outcome = kind.attempt(number) if number < kind.count else "none"
    except WrongError as error:
        outcome, wrong = "wrong", str(error)[:2000]
    seconds = time.monotonic() - start
    peak = _peak()
    if peak > MEMORY and wrong is None:
        outcome, wrong = "wrong", f"took {peak >> 20} MiB"
    return {
        "number": number,
        "outcome": outcome,
        "wrong": wrong,
        "seconds": seconds,
        "bytes": peak,
        "inputs": getattr(kind, "at_once", 1),
    }


def _give_back() -> None:
    """Free what making the inputs took, which is not lake's."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
