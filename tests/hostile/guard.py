"""Runs inputs one by one in a process with limits; one that ends the process is reported like any other.

That process tries inputs of a kind, and writes a line of JSON before and after each.
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
        number: which.
        outcome: in a word or two.
        wrong: what is wrong with it; None if nothing is.
        seconds: how long it took.
        bytes: the most memory that the process had meanwhile.
        inputs: how many inputs it was.
    """

    number: int
    outcome: str
    wrong: str | None
    seconds: float
    bytes: int
    inputs: int = 1


def attempts(kind: str, numbers: Sequence[int]) -> Iterator[Tried]:
    """Try inputs of a kind (``module:class:arguments``) in processes of their own."""
    left = list(numbers)
    while left:
        ended, at = yield from _some(kind, left)
        if at is None:
            if ended:
                raise RuntimeError(f"{kind} could not be set up: {ended}")
            return
        yield Tried(at, "crash", ended, 0.0, 0)
        left = left[left.index(at) + 1 :]


def _some(kind: str, numbers: list[int]) -> Iterator[Tried]:  # type: ignore[misc]
    """Try inputs until the process ends; return why, and at which input."""
    at = None
    with (
        tempfile.TemporaryDirectory(
            prefix="lake-hostile-", dir=_SHM if _SHM.is_dir() else None
        ) as folder,
        tempfile.TemporaryFile() as errors,
    ):
        here = os.path.join(folder, "here")
        os.mkdir(here)
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, kind, folder],
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
            process.stdin.write(json.dumps(numbers).encode())
            process.stdin.close()
            lines = _lines(process.stdout)
            for line in lines:
                if "begin" in line:
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
        return f"exit code {code}: {errors.read()[-600:].decode(errors='replace')}", at


def _lines(stream: Any) -> Iterator[dict[str, Any]]:
    """Yield lines; raises TimeoutError where one does not come in time."""
    rest, first = b"", True
    while True:
        seconds = _START_SECONDS if first else SECONDS
        if not select.select([stream], [], [], seconds)[0]:
            raise TimeoutError(f"took more than {seconds} s")
        data = os.read(stream.fileno(), 65536)
        if not data:
            return
        first = False
        *whole, rest = (rest + data).split(b"\n")
        yield from map(json.loads, whole)


def kind_of(name: str, folder: Path) -> Kind:
    """Make a kind in a folder of its own."""
    module, made, *arguments = name.split(":")
    make: Callable[..., Kind] = getattr(importlib.import_module(f"hostile.{module}"), made)
    return make(folder, *arguments)


def serve() -> None:
    """Be that process."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    numbers = json.loads(sys.stdin.buffer.read())
    kind = kind_of(sys.argv[1], Path(sys.argv[2]))
    _give_back()
    for number in numbers:
        out.write(json.dumps({"begin": number}) + "\n")
        out.write(json.dumps(_tried(kind, number)) + "\n")
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
