"""Make one round after the other, as a process that stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from lake.core.base.errors import InvalidRequestError, LakeError, RefusedError, StoppedError
from lake.core.base.facts import NoFacts
from lake.core.base.outcome import Outcome
from lake.core.maintain.rounds.facts import RoundsResult
from lake.core.maintain.rounds.round import Round

if TYPE_CHECKING:
    from lake.core.maintain.rounds.options import RoundOptions, RunVerb
    from lake.core.maintain.rounds.status import StatusFile
    from lake.core.maintain.rounds.tables import Remembered
    from lake.core.transaction.session import Session


def maintain_repeatedly(
    session: Session,
    run_verb: RunVerb,
    options: RoundOptions,
    *,
    read: Callable[[], RoundOptions],
    every_ms: int,
    status: StatusFile,
    ended: Callable[[Outcome | LakeError], None],
) -> NoReturn:
    """Make one round after the other until a stop signal; one that fails does not end the process.

    Args:
        session: the session; its engine ends with each round.
        run_verb: runs a verb on a table.
        options: the options of the first round.
        read: reads the policy files again, and returns the options of a later round.
        every_ms: the time from the beginning of a round to that of the next one.
        status: the file that a probe reads.
        ended: called after each round with its outcome or its error.

    Raises:
        InvalidRequestError: the request is not valid; it would fail in each round. A policy file that becomes
            wrong later is an error of the rounds until it is mended.
        StoppedError: the user stopped the process; its result contains what a round had done, or
            the number of rounds that had ended.
    """
    try:
        _repeat(session, run_verb, options, read, every_ms=every_ms, status=status, ended=ended)
    except StoppedError as stop:
        if isinstance(stop.result, NoFacts):
            stop.result = RoundsResult(rounds=status.rounds)
        raise


def _repeat(
    session: Session,
    run_verb: RunVerb,
    options: RoundOptions,
    read: Callable[[], RoundOptions],
    *,
    every_ms: int,
    status: StatusFile,
    ended: Callable[[Outcome | LakeError], None],
) -> NoReturn:
    remembered: Remembered = {}
    clock = session.clock
    first_warnings = session.warnings.copy()
    found: RoundOptions | LakeError = options
    with status.kept():
        while True:
            begun = clock.monotonic()
            status.begin_round()
            ending: Outcome | LakeError
            try:
                # Without its rules, tables that a file excludes would change.
                if isinstance(found, LakeError):
                    ending = found
                else:
                    ending = Round(session, run_verb, found, remembered, status).run()
            except (InvalidRequestError, RefusedError):
                # It may be in the folder of a table.
                status.remove()
                raise
            except LakeError as error:
                ending = error
            # An engine that waits keeps memory that nothing uses.
            session.close()
            # They protect files from the command that wrote them, and none runs.
            session.protected_files.clear()
            rest = max(every_ms / 1000 - (clock.monotonic() - begun), 0)
            status.end_round(ending, clock.now_ms() + int(rest * 1000))
            ended(ending)
            session.next_command()
            session.begun = None
            clock.sleep(rest)
            found = _read_again(read)
            if found != options:
                # What was wrong with the former rules may be mended.
                session.warnings[:] = first_warnings
                options = options if isinstance(found, LakeError) else found


def _read_again(read: Callable[[], RoundOptions]) -> RoundOptions | LakeError:
    try:
        return read()
    except LakeError as error:
        return error
