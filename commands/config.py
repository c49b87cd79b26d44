"""`lake config`: the settings in effect, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from lake.commands.defaults import Setting, settings_of
from lake.core.errors import LakeError
from lake.core.outcome import Detail, Outcome, Status
from lake.core.redaction import MASK, Redactor, is_secret


def config(context: typer.Context) -> Outcome:
    """Show the settings in effect and where each comes from; connect to nothing."""
    from lake.core.catalogs.configuration import configuration_file, read_configuration, shortened
    from lake.core.catalogs.selection import chosen_name

    effective: Mapping[str, Setting] = context.obj.effective
    configuration = read_configuration()
    try:
        name = chosen_name(settings_of(effective, verbose=False), configuration)
        notes = []
    except LakeError as error:
        name = None
        notes = [f"{error.message}: {error.hint}"]
    settings = [_redacted(item) for item in effective.values()]
    settings += _properties(configuration.catalogs)
    file = configuration_file()
    return Outcome(
        command="config",
        table="",
        status=Status.DONE,
        notes=notes,
        result={
            "catalog": name,
            "catalogs": sorted(configuration.catalogs),
            "pyiceberg_file": file,
            "settings": [
                {"name": item.name, "value": item.value, "source": item.source} for item in settings
            ],
        },
        details=[
            Detail(
                "settings",
                ["setting", "value", "source"],
                [[item.name, _text(item.value), shortened(item.source)] for item in settings],
            )
        ],
    )


def _redacted(item: Setting) -> Setting:
    value = item.value
    if isinstance(value, Mapping):
        value = {key: _masked(key, str(text)) for key, text in value.items()}
    elif isinstance(value, str):
        value = _masked(item.name, value)
    return Setting(item.name, value, item.source)


def _masked(key: str, value: str) -> str:
    """Return a value for output: a secret is masked, and so is the password in an address."""
    return MASK if is_secret(key) else Redactor()(value)


def _properties(catalogs: Mapping[str, Mapping[str, Any]]) -> Iterator[Setting]:
    """Yield the properties of all configured catalogs as ``catalog.NAME.KEY``."""
    from lake.core.catalogs.configuration import configuration_file, variable_of

    for catalog, properties in sorted(catalogs.items()):
        for key, value in _flat(properties):
            source = variable_of(catalog, key) or configuration_file() or ""
            yield Setting(f"catalog.{catalog}.{key}", _masked(key, value), source)


def _flat(properties: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={text}" for key, text in value.items())
    return "" if value is None else str(value)
