"""The options of `lake ingest --kafka`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.commands.parsing import parse_choice, parse_pairs
from lake.core.base.choices import OnGap
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.redaction import is_secret
from lake.core.base.units import parse_duration_ms, parse_size, parse_time_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.core.load.continuous.kafka.options import KafkaOptions
    from lake.core.load.ingest.options import IngestOptions
    from lake.core.transaction.session import Session

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFlags:
    """The flags of a load from a topic, as they were given."""

    kafka: str | None = None
    brokers: str | None = None
    kafka_conf: Sequence[str] | None = None
    kafka_conf_file: str | None = None
    kafka_metadata: Sequence[str] | None = None
    avro_schema: str | None = None
    on_gap: str | None = None
    start: str | None = None
    start_at: str | None = None
    stream: str | None = None
    once: bool = False
    commit_interval: str | None = None
    commit_size: str | None = None
    bad_files: str | None = None
    skip: Sequence[str] | None = None
    metrics_file: str | None = None
    quiet: bool = False


def kafka_options(session: Session, options: IngestOptions, flags: TopicFlags) -> KafkaOptions:
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

    for flag, value in (("--stream", flags.stream), ("--brokers", flags.brokers)):
        if value is None:
            raise InvalidRequestError(f"--kafka needs {flag}")
    given: dict[str, Any] = {}
    if flags.commit_interval is not None:
        given["commit_interval_ms"] = parse_duration_ms(flags.commit_interval)
    if flags.commit_size is not None:
        given["commit_bytes"] = parse_size(flags.commit_size)
    if flags.avro_schema is not None:
        given["avro_schema"] = _text(flags.avro_schema, "--avro-schema")
    if flags.start_at is not None:
        given |= {"starting": TIMESTAMP, "start_at_ms": parse_time_ms(flags.start_at)}
    if flags.start is not None:
        given["starting"] = parse_start(flags.start)
    if flags.on_gap is not None:
        given["on_gap"] = OnGap(parse_choice(flags.on_gap, "--on-gap", ("fail", "skip")))
    return KafkaOptions(
        topic=flags.kafka or "",
        brokers=flags.brokers or "",
        stream=flags.stream or "",
        branch=options.branch,
        format=options.format or JSON,
        conf=_conf(session, flags),
        kafka_metadata=parse_pairs(list(flags.kafka_metadata or ()), "--kafka-metadata"),
        evolve=options.evolve,
        skip=frozenset(map(parse_skipped, flags.skip or ())),
        bad_files=flags.bad_files,
        rejects_aside=flags.bad_files is not None and options.rejects is None,
        metrics_path=flags.metrics_file,
        quiet=flags.quiet,
        once=flags.once,
        **given,
    )


def _conf(session: Session, flags: TopicFlags) -> dict[str, str]:
    from lake.core.load.continuous.kafka.options import parse_properties

    shown = parse_pairs(list(flags.kafka_conf or ()), "--kafka-conf")
    session.secrets.update(shown)
    for key in filter(is_secret, shown):
        session.warn(
            f"{key} is visible in this machine's list of processes: write it to a file for --kafka-conf-file"
        )
    hidden: dict[str, str] = {}
    if flags.kafka_conf_file is not None:
        name = flags.kafka_conf_file
        hidden = parse_properties(_text(name, "--kafka-conf-file").splitlines(), name)
        session.secrets.update(hidden)
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
