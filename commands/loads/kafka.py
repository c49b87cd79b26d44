"""The options of `lake ingest --kafka`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.commands.groups import given
from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.base.choices import OnGap
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.redaction import is_secret

if TYPE_CHECKING:
    from lake.commands.loads.options import Streaming, Topic
    from lake.core.load.continuous.kafka.options import KafkaOptions
    from lake.core.load.continuous.loader import Loader
    from lake.core.transaction.session import Session

_LARGEST_FILE = 1 << 20


def kafka_options(loader: Loader, streaming: Streaming, *, quiet: bool) -> KafkaOptions:
    """Return the options of a load from a topic; from here on, the secrets among them are not printed.

    Raises:
        InvalidRequestError: an option is missing or not valid.
        BadInputError: a file cannot be read.
    """
    from lake.core.load.continuous.kafka.options import (
        JSON,
        TIMESTAMP,
        KafkaOptions,
        parse_skipped,
        parse_start,
    )

    flags, position, arrivals = streaming.topic, streaming.position, streaming.arrivals
    for flag, value in (("--stream", streaming.stream.stream), ("--brokers", flags.brokers)):
        if value is None:
            raise InvalidRequestError(f"--kafka needs {flag}")
    chosen = given(streaming.stream)
    if arrivals.commit_size is not None:
        chosen["commit_size"] = arrivals.commit_size
    if flags.avro_schema is not None:
        chosen["avro_schema"] = _text(flags.avro_schema, "--avro-schema")
    if position.start_at is not None:
        chosen |= {"start": TIMESTAMP, "start_at": position.start_at}
    if position.start is not None:
        chosen["start"] = parse_start(position.start)
    if position.on_gap is not None:
        chosen["on_gap"] = OnGap(parse_choice(position.on_gap, "--on-gap", ("fail", "skip")))
    options = loader.options
    return KafkaOptions(
        topic=flags.kafka or "",
        brokers=flags.brokers or "",
        branch=options.branch,
        format=options.format or JSON,
        conf=_conf(loader.session, flags),
        kafka_metadata=parse_pairs(flags.kafka_metadata, "--kafka-metadata"),
        evolve=options.evolve,
        skip=frozenset(map(parse_skipped, arrivals.skip)),
        bad_files=arrivals.bad_files,
        rejects_aside=arrivals.bad_files is not None and options.rejects is None,
        quiet=quiet,
        **chosen,
    )


def _conf(session: Session, flags: Topic) -> dict[str, str]:
    from lake.core.load.continuous.kafka.options import parse_properties

    shown = parse_pairs(flags.kafka_conf, "--kafka-conf")
    session.secrets.append(shown)
    for key in filter(is_secret, shown):
        session.warn(
            f"{key} is visible in this machine's list of processes: write it to a file for --kafka-conf-file"
        )
    hidden: dict[str, str] = {}
    if flags.kafka_conf_file is not None:
        name = flags.kafka_conf_file
        hidden = parse_properties(_text(name, "--kafka-conf-file").splitlines(), name)
        session.secrets.append(hidden)
    return {**hidden, **shown}


def _text(path: str, flag: str) -> str:
    try:
        with open(path, "rb") as file:
            found = file.read(_LARGEST_FILE + 1)
        if len(found) > _LARGEST_FILE:
            raise BadInputError(f"{path} of {flag} is larger than 1 MiB")
        return found.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInputError(f"cannot read {path} of {flag}: {reason}") from error
