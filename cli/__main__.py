"""Entry point of ``lake`` and ``python -m lake.cli``: handle signals before the slow imports."""

# The module is loaded already. A signal could interrupt an import of `signal`, or of `gc`.
import _signal  # type: ignore[import-not-found]
from time import monotonic

# Imports take a part of the time that a command may have.
_BEGUN = monotonic()

# Signals received before `lake.cli.main` installs its handlers.
_EARLY: list[int] = []
# An exception raised during an import might be swallowed, so only record the signal.
for _number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(_number, lambda received, _: _EARLY.append(received))
# Most objects of imports and metadata live until the process ends, so frequent collections free
# nothing.
_OBJECTS_PER_COLLECTION = 10_000


def run() -> int:
    """Run one command and return its exit code. Signals take effect after the imports."""
    import atexit  # noqa: PLC0415 - after the handlers are set
    import os  # noqa: PLC0415
    import sys  # noqa: PLC0415

    codes: list[int] = []

    def end() -> None:
        """End the process, with the command's exit code; after a defect, which has none, the interpreter does.

        The interpreter's own end aborts the process if a thread of PyArrow releases a Python object at that time, and
        PyArrow does not wait for its threads. It also searches all objects for garbage, which takes half a second.
        """
        if not codes:
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                # The command has reported it, or its standard error fails too.
                continue
        os._exit(codes[0])

    # The handler that is registered first runs last.
    atexit.register(end)
    if kind := os.environ.get("_LAKE_COMPLETE"):
        from lake.cli.suggestions import suggest  # noqa: PLC0415 - only a shell asks for words

        return suggest(kind, sys.argv[1:])
    import gc  # noqa: PLC0415

    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    # NumPy would start a thread for each processor, which waits busily for algebra that no command has.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from lake.cli.main import main  # noqa: PLC0415 - takes a while

    codes.append(main(early=_EARLY, since=_BEGUN))
    waits = sys.modules.get("lake.core.io.objects.waits")
    if waits is not None and waits.has_requests():
        # PyArrow's own end would wait for the answers.
        end()
    return codes[0]


if __name__ == "__main__":
    import sys

    if not sys.flags.safe_path:
        # `python -m` puts the working folder first, where files of other users may have the names of libraries.
        del sys.path[0]
    raise SystemExit(run())
