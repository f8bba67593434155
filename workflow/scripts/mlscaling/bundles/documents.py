"""JSON, YAML and text from anywhere, judged before anything else reads them.

Whoever reads a bundle behind `reading.opened` may use ordinary readers: what could hurt them has been refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from mlscaling.bundles.archives import BundleError

MAX_JSON_BYTES: Final = 64 << 20
MAX_YAML_BYTES: Final = 1 << 20
MAX_TABLE_BYTES: Final = 64 << 20
MAX_JSON_DEPTH: Final = 40
MAX_YAML_DEPTH: Final = 20
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
"""Strings are passed over, so that only brackets of the structure count; one without an end takes the rest."""


def check(path: Path, *, name: str) -> None:
    """Refuse a file that its kind, by suffix, cannot be.

    Raises:
        BundleError: names the file and the reason.
    """
    suffix = path.suffix
    if not suffix:
        suffix = f"/{path.name}"
    if suffix not in KINDS:
        legal = ", ".join(kind for kind in KINDS if kind.startswith("."))
        raise BundleError(f"{name!r} is refused: no file of this kind belongs in a bundle; legal: {legal}")
    if reason := KINDS[suffix](path):
        raise BundleError(f"{name!r} is refused: {reason}")


def read_json(path: Path) -> Any:
    """Value of a JSON file from anywhere.

    Raises:
        BundleError: too large, too deep, not UTF-8, not JSON, or an object with a key given twice.
    """
    if reason := _why_not_json(path):
        raise BundleError(f"{path.name}: {reason}")
    return json.loads(path.read_text(encoding="utf-8"))


def depth(data: bytes) -> int:
    """How deeply lists and objects of a JSON text are nested, at least; without parsing it."""
    level = deepest = 0
    for token in _TOKENS.finditer(data):
        first = token[0][:1]
        if first in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif first in b"]}":
            level -= 1
    return deepest


def _why_not_json(path: Path) -> str:
    if (size := path.stat().st_size) > MAX_JSON_BYTES:
        return f"JSON of {size:,} bytes; at most {MAX_JSON_BYTES:,} are read"
    data = path.read_bytes()
    if depth(data) > MAX_JSON_DEPTH:
        return f"JSON nested deeper than {MAX_JSON_DEPTH} levels"
    try:
        json.loads(data.decode("utf-8"), object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except UnicodeDecodeError:
        return "JSON that is not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    return ""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is given twice")
    return values


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _why_not_yaml(path: Path) -> str:
    """Plain values only: no tags, which name types to build; no anchors, of which nine make a billion values."""
    import yaml

    if (size := path.stat().st_size) > MAX_YAML_BYTES:
        return f"YAML of {size:,} bytes; at most {MAX_YAML_BYTES:,} are read"
    level = 0
    try:
        for event in yaml.parse(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
                return f"YAML with an anchor or alias in line {event.start_mark.line + 1}"
            if getattr(event, "tag", None):
                return f"YAML with the tag {event.tag} in line {event.start_mark.line + 1}"
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if level > MAX_YAML_DEPTH:
                return f"YAML nested deeper than {MAX_YAML_DEPTH} levels"
    except UnicodeDecodeError:
        return "YAML that is not UTF-8"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"not YAML: {' '.join(str(error).split())}"
    return ""


def _why_not_table(path: Path) -> str:
    if (size := path.stat().st_size) > MAX_TABLE_BYTES:
        return f"a table of {size:,} bytes; at most {MAX_TABLE_BYTES:,} are read"
    return _why_not_text(path)


def _why_not_text(path: Path) -> str:
    data = path.read_bytes()
    if b"\0" in data:
        return "text with NUL characters"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"text that is not UTF-8, at byte {error.start}"
    return ""


def _why_not_png(path: Path) -> str:
    with path.open("rb") as stream:
        return "" if stream.read(8) == b"\x89PNG\r\n\x1a\n" else "not the PNG that its name says"


def _anything(_: Path) -> str:
    """Logs are evidence as they are, whatever a cluster wrote into them; their reader takes any bytes."""
    return ""


KINDS: Final[Mapping[str, Callable[[Path], str]]] = {
    ".json": _why_not_json,
    ".yaml": _why_not_yaml,
    ".csv": _why_not_table,
    ".tsv": _why_not_table,
    ".rst": _why_not_text,
    ".md": _why_not_text,
    ".html": _why_not_text,
    ".svg": _why_not_text,
    ".smk": _why_not_text,
    ".diff": _why_not_text,
    ".png": _why_not_png,
    ".txt": _anything,
    ".log": _anything,
    ".out": _anything,
    ".err": _anything,
    ".xml": _anything,
    "/Snakefile": _why_not_text,
}
"""Suffix → why a file is not what it says; nothing that another program would execute or unpickle is among them."""
