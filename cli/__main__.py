"""``lake``, and ``python -m lake.cli``: the process's first moments."""

# The C module, which the interpreter has loaded: an import of `signal` could be interrupted itself.
import _signal  # type: ignore[import-not-found]

# The signals that came before `lake.cli.main` has handlers for them.
_EARLY: list[int] = []
# Raised into an import, an exception might get lost.
for _number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(_number, lambda given, _: _EARLY.append(given))
# Most objects that imports and metadata make live until the process ends, so frequent searches find nothing.
_OBJECTS_PER_COLLECTION = 10_000


def run() -> int:
    """Run one command and return its exit code; a signal during the imports stops the command after them."""
    import gc  # noqa: PLC0415 - after the handlers are set

    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    from lake.cli.main import main  # noqa: PLC0415 - takes a while

    try:
        return main(early=_EARLY)
    finally:
        # At its end the interpreter searches all objects for garbage, which takes half a second. Frozen objects
        # are left out.
        gc.freeze()


if __name__ == "__main__":
    raise SystemExit(run())
