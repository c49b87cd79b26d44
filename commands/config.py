"""`lake config`: the settings in effect, where each comes from, and which folders are trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from lake.commands.defaults import Setting, project_folder, settings_of, working_folder
from lake.commands.groups import Flag
from lake.commands.reports.facts import ConfigResult, IgnoredFacts, SettingFacts, TrustResult
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.options import Option, spell_options
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.redaction import MASK, Redactor, is_secret
from lake.core.base.trust import folders as trust_store

_SPELLED = {Option.TRUST: "lake config --trust", Option.SPARK_CONF: "--spark-conf"}


def config(
    context: typer.Context,
    trust: Annotated[
        bool, Flag("From now on, believe this folder's files about addresses.")
    ] = False,
    untrust: Annotated[bool, Flag("Withdraw the trust in this folder.")] = False,
) -> Outcome:
    """Show the settings in effect, or trust this folder's files.

    A file in the working folder chooses no code, and no address that would receive a secret of your environment or
    home folder. With --trust, it may choose addresses.
    """
    if trust and untrust:
        raise InvalidRequestError("--trust contradicts --untrust")
    if trust or untrust:
        return _changed_trust(withdrawn=untrust)
    from lake.core.table.catalogs.configuration import (
        configuration_file,
        read_configuration,
        shortened,
    )
    from lake.core.table.catalogs.selection import chosen_name

    effective: Mapping[str, Setting] = context.obj.effective
    settings = settings_of(effective, verbose=False)
    in_folder = settings.warehouse is not None
    configuration = read_configuration(working_folder=not in_folder)
    try:
        name = chosen_name(settings, configuration)
        notes = []
    except LakeError as error:
        name = None
        notes = [f"{error.message}: {error.hint}"]
    shown = [_redacted(item) for item in effective.values()]
    shown += _properties(configuration.catalogs)
    withheld = [
        *settings.withheld,
        *(item for items in configuration.withheld.values() for item in items),
    ]
    ignored = [
        IgnoredFacts(
            name=item.name,
            source=item.source,
            reason=item.reason,
            hint=spell_options(item.hint, _SPELLED.__getitem__),
        )
        for item in withheld
    ]
    details = [
        Detail(
            "settings",
            ["setting", "value", "source"],
            [[item.name, _text(item.value), shortened(item.source)] for item in shown],
        )
    ]
    if withheld:
        rows = [[item.name, shortened(item.source), item.reason] for item in withheld]
        details.append(Detail("ignored", ["ignored setting", "source", "reason"], rows))
        notes += dict.fromkeys(item.hint for item in ignored)
    return Outcome(
        status=Status.DONE,
        notes=notes,
        result=ConfigResult(
            catalog=name,
            catalogs=sorted(configuration.catalogs),
            pyiceberg_file=configuration_file(),
            settings=shown,
            ignored=ignored,
            trusted_folders=trust_store.trusted_folders().listed(),
        ),
        details=details,
    )


def _changed_trust(*, withdrawn: bool) -> Outcome:
    """Trust the working folder, and that of its project file if it has the same owner, or trust them no longer."""
    here = working_folder()
    above = project_folder(here) or here
    is_same_owner = os.stat(above).st_uid == os.stat(here).st_uid
    folders = dict.fromkeys(map(os.path.realpath, (here, above) if is_same_owner else (here,)))
    if not withdrawn:
        for folder in folders:
            trust_store.require_trustworthy(folder)
    change = trust_store.withdraw if withdrawn else trust_store.trust
    done = [folder for folder in folders if change(folder)]
    return Outcome(
        status=Status.DONE if done else Status.NOTHING_TO_DO,
        result=TrustResult(
            trusted=[] if withdrawn else done,
            withdrawn=done if withdrawn else [],
            trusted_folders=trust_store.trusted_folders().listed(),
        ),
    )


def _redacted(item: Setting) -> SettingFacts:
    value = item.value
    if isinstance(value, Mapping):
        value = {key: _masked(key, str(text)) for key, text in value.items()}
    elif isinstance(value, str):
        value = _masked(item.name, value)
    return SettingFacts(name=item.name, value=value, source=item.source)


def _masked(key: str, value: str) -> str:
    """Return a value for output: a secret is masked, and so is the password in an address."""
    return MASK if is_secret(key) else Redactor()(value)


def _properties(catalogs: Mapping[str, Mapping[str, Any]]) -> Iterator[SettingFacts]:
    """Yield the properties of all configured catalogs as ``catalog.NAME.KEY``."""
    from lake.core.table.catalogs.configuration import configuration_file, variable_of

    for catalog, properties in sorted(catalogs.items()):
        for key, value in _flat(properties):
            source = variable_of(catalog, key) or configuration_file() or ""
            yield SettingFacts(
                name=f"catalog.{catalog}.{key}", value=_masked(key, value), source=source
            )


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
