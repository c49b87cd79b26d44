"""Where a verb writes rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.groups import Flag
from lake.commands.options import Replace
from lake.core.base.choices import EXPORT_FORMATS
from lake.core.base.errors import InvalidRequestError

if TYPE_CHECKING:
    from lake.core.read.exports.destinations import Output


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output."""

    output: Annotated[str | None, Flag("Write to a file, a folder, or stdout.", "PATH|-")] = None
    output_format: Annotated[
        str | None, Flag("Format [default: from the output's name].", "|".join(EXPORT_FORMATS))
    ] = None
    replace: Replace = False


def output_of(context: typer.Context, target: OutputOptions) -> Output | None:
    """Return the file, folder or stream for rows; None for a preview, which only a terminal and JSON get.

    Raises:
        InvalidRequestError: the options contradict each other.
    """
    from lake.core.read.exports.destinations import output_to

    path, format_name = target.output, target.output_format
    check_format(format_name)
    if path not in (None, "-"):
        return output_to(path, format_name, replace=target.replace)
    if target.replace:
        raise InvalidRequestError(
            f"--replace {'contradicts --output -' if path else 'needs --output'}"
        )
    if context.obj.as_json:
        if path:
            raise InvalidRequestError("--json and --output - both write to standard output")
        if format_name:
            raise InvalidRequestError("--output-format needs --output")
        return None
    if not path and not format_name:
        if sys.stdout.isatty():
            return None
        format_name = "tsv"
    return _standard_output(context, format_name)


def _standard_output(context: typer.Context, format_name: str | None) -> Output:
    """Return standard output for rows; the summary then goes to standard error."""
    from lake.core.read.exports.destinations import output_stream

    if sys.__stdout__ is None:
        raise InvalidRequestError("standard output is closed")
    context.obj.rows_on_stdout = True
    return output_stream(sys.stdout.buffer, format_name)


def check_format(format_name: str | None) -> None:
    """Raise `InvalidRequestError` for an unknown format."""
    if format_name is not None and format_name not in EXPORT_FORMATS:
        raise InvalidRequestError(
            f"--output-format {format_name!r} is not one of {', '.join(EXPORT_FORMATS)}"
        )
