"""``lake``, and ``python -m lake.cli``: the process's first moments."""

# The C module, which the interpreter has loaded: an import of `signal` could be interrupted itself.
import _signal  # type: ignore[import-not-found]

# The signals that came before `lake.cli.main` has handlers for them.
_EARLY: list[int] = []
# Raised into an import, an exception might get lost.
for _number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(_number, lambda given, _: _EARLY.append(given))


def run() -> int:
    """Run one command and return its exit code; a signal during the imports stops the command after them."""
    from lake.cli.main import main  # noqa: PLC0415 - takes a while

    return main(early=_EARLY)


if __name__ == "__main__":
    raise SystemExit(run())
