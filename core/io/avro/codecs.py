"""The Avro codecs and levels that table properties select."""

from __future__ import annotations

from collections.abc import Mapping

from lake.core.base.units import whole_number
from lake.core.io.avro.container import AVRO_CODECS, AVRO_LEVELS
from lake.core.spec.properties.table_properties import MANIFEST_CODEC, MANIFEST_LEVEL
from lake.core.spec.properties.values import Setting, refused_value


def codec_of(
    properties: Mapping[str, str], codec: Setting[str], level: Setting[str | None]
) -> tuple[str, int | None]:
    """Return Avro's name of a codec and its level; None means the codec's default level.

    Raises:
        InvalidRequestError: a property has a value that is not allowed.
    """
    name, text = AVRO_CODECS[codec.of(properties)], level.of(properties)
    if text is None or name not in AVRO_LEVELS:
        return name, None
    (least, most), found = AVRO_LEVELS[name], whole_number(text)
    if found is None or not least <= found <= most:
        raise refused_value(level.name, text, f"a level of {name}, from {least} to {most}")
    return name, found


def codec_of_manifests(properties: Mapping[str, str]) -> tuple[str, int | None]:
    """Return the codec and the level of a table's manifests; see `codec_of`."""
    return codec_of(properties, MANIFEST_CODEC, MANIFEST_LEVEL)
